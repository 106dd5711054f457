"""Machines in network namespaces, and links between them that delay, lose and swallow packets.

A link is a pair of TUN devices, one in each namespace, and a thread here that carries packets from
one to the other. Kernels may lack ``tc netem``; every one with containers has TUN. A link's chances
come from a seed, and it can look into packets: :attr:`Link.swallows`.
"""

from __future__ import annotations

import fcntl
import heapq
import os
import random
import select
import shutil
import struct
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from waiting import ENDS_WITH_US

TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
ONE_WAY = 0.075
"""Seconds that a packet is under way: half of a round trip."""
LOSS = 0.01
STORE_ADDRESS = "10.77.0.1"
THERE, BACK = "there", "back"
"""The directions of a link: to the store, and back."""

_names = iter(range(1_000_000))


def missing() -> str:
    """Return what the machine lacks for namespaces; empty: nothing. Installs iproute2 if it can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if not Path("/dev/net/tun").exists():
        return "/dev/net/tun is missing"
    if shutil.which("ip") is None and shutil.which("apt-get") is not None:
        for words in (["update"], ["install", "-y", "--no-install-recommends", "iproute2"]):
            subprocess.run(["apt-get", "-qq", *words], capture_output=True, timeout=300)
    if shutil.which("ip") is None:
        return "the command ip is missing (apt-get install iproute2)"
    tried = subprocess.run(["unshare", "--net", "true"], capture_output=True, text=True)
    return f"no network namespaces: {tried.stderr.strip()}" if tried.returncode else ""


def ip(*words: object) -> None:
    done = subprocess.run(["ip", *map(str, words)], capture_output=True, text=True)
    assert done.returncode == 0, (words, done.stderr)


class Machine:
    """A network namespace, with a loopback interface of its own."""

    def __init__(self, name: str) -> None:
        self.namespace = f"wan-{os.getpid()}-{next(_names)}-{name}"
        ip("netns", "add", self.namespace)
        ip("-n", self.namespace, "link", "set", "lo", "up")

    def command(self, *words: object) -> list[str]:
        """Return the command line of a process that runs there."""
        return [*ENDS_WITH_US, "ip", "netns", "exec", self.namespace, *map(str, words)]

    def remove(self) -> None:
        ip("netns", "del", self.namespace)


class Link:
    """A link between a site and the store. What it does can be changed while it runs."""

    def __init__(self, net: int, machines: tuple[Machine, Machine], seed: object) -> None:
        self.addresses = (f"10.77.0.{net}", STORE_ADDRESS)
        self.delay = ONE_WAY
        self.loss = LOSS
        self.down: frozenset[str] = frozenset()
        """The directions in which it carries nothing."""
        self.swallows: Callable[[str, bytes], bool] = lambda direction, payload: False
        """Whether a packet with this TCP payload is lost on its way."""
        self.flaps: tuple[int, int] | None = None
        """After how many packets it goes down, and after how many lost ones it comes back."""
        self.carried: Counter[str] = Counter()
        self.lost: Counter[str] = Counter()
        self._chance = random.Random(f"{seed} {net}")
        self._phase = 0
        self._files = [self._device(machines[end], net, end) for end in (0, 1)]
        self._ended, self._end = os.pipe()
        self._thread = threading.Thread(target=self._carry, name=f"link {net}", daemon=True)
        self._thread.start()

    def _device(self, machine: Machine, net: int, end: int) -> int:
        file = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        name = f"wt{os.getpid() % 100_000}x{next(_names)}"
        fcntl.ioctl(
            file, TUNSETIFF, struct.pack("16sH22s", name.encode(), IFF_TUN | IFF_NO_PI, b"")
        )
        ip("link", "set", name, "netns", machine.namespace)
        here, there = self.addresses[end], self.addresses[1 - end]
        ip("-n", machine.namespace, "addr", "add", here, "peer", there, "dev", name)
        ip("-n", machine.namespace, "link", "set", name, "mtu", 1400, "up")
        return file

    def _carry(self) -> None:
        under_way: list[tuple[float, int, int, bytes]] = []
        order = 0
        while True:
            wait = max(0.0, under_way[0][0] - time.monotonic()) if under_way else None
            ready, _, _ = select.select([self._ended, *self._files], [], [], wait)
            if self._ended in ready:
                return
            now = time.monotonic()
            for end, file in enumerate(self._files):
                if file not in ready:
                    continue
                for packet in _packets(file):
                    if self._arrives((THERE, BACK)[end], packet):
                        order += 1
                        heapq.heappush(under_way, (now + self.delay, order, 1 - end, packet))
            now = time.monotonic()
            while under_way and under_way[0][0] <= now:
                _, _, end, packet = heapq.heappop(under_way)
                with suppress(OSError):  # a full queue loses packets, too
                    os.write(self._files[end], packet)

    def _arrives(self, direction: str, packet: bytes) -> bool:
        lost = (
            direction in self.down
            or self._chance.random() < self.loss
            or self._flaps()
            or self.swallows(direction, _tcp_payload(packet))
        )
        (self.lost if lost else self.carried)[direction] += 1
        return not lost

    def _flaps(self) -> bool:
        if self.flaps is None:
            return False
        up, down = self.flaps
        self._phase = (self._phase + 1) % (up + down)
        return self._phase >= up

    def heal(self) -> None:
        """Carry all packets from now on, but those lost by chance."""
        self.down, self.flaps = frozenset(), None
        self.swallows = lambda direction, payload: False

    def close(self) -> None:
        os.write(self._end, b".")
        self._thread.join()
        for file in (*self._files, self._ended, self._end):
            os.close(file)


def _packets(file: int) -> Iterator[bytes]:
    with suppress(BlockingIOError):
        for _ in range(64):
            yield os.read(file, 65_536)


def _tcp_payload(packet: bytes) -> bytes:
    """Return what an IPv4 packet carries for the application; nothing if it is none of TCP."""
    if len(packet) < 40 or packet[0] >> 4 != 4 or packet[9] != 6:
        return b""
    header = (packet[0] & 15) * 4
    return packet[header + (packet[header + 12] >> 4) * 4 :]


def remove_left_over() -> None:
    """Remove the namespaces of test processes that were killed."""
    folder = Path("/run/netns")
    for entry in folder.glob("wan-*") if folder.exists() else ():
        owner = entry.name.split("-")[1]
        if owner.isdigit() and not Path("/proc", owner).exists():
            ip("netns", "del", entry.name)


@contextmanager
def linked(
    store: str, sites: Sequence[str], seed: object
) -> Iterator[tuple[dict[str, Machine], dict[str, Link]]]:
    """Machines of a store and of sites, and the links from the sites to the store."""
    machines: dict[str, Machine] = {}
    links: dict[str, Link] = {}
    remove_left_over()
    try:
        for name in (store, *sites):
            machines[name] = Machine(name)
        for net, site in enumerate(sites, start=2):
            links[site] = Link(net, (machines[site], machines[store]), seed)
        yield machines, links
    finally:
        for link in links.values():
            link.close()
        for machine in machines.values():
            machine.remove()
