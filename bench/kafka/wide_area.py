"""spark_wan over Kafka across a wide area, beside the same with nothing in the way.

The sender runs on one machine (a network namespace), Kafka and the receiver on another. Between
them is a link of the tests (``tests/support/wide_area.py``): it delays each packet by 75 ms and
loses one in a hundred, or it does neither, in turns. The clock runs from the time when commits are
visible in the source until the receiver has applied them:

burst    one epoch: each step waits for the one before, and so do the line and the processors.
backlog  several epochs: the next one is captured and sent while the receiver applies one.

A turn begins with a pause and a commit that does not count. TCP (BBR) takes a connection's shortest
round trip of the last ten seconds for that of its line, and no line of the world goes from 0 to
150 ms.
"""

from __future__ import annotations

import statistics
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import yaml
from kafka_server import running
from wide_area import LOSS, ONE_WAY, STORE_ADDRESS, linked, missing

from bench.end_to_end import SCRATCH, Bench, hidden_commits
from bench.jobs import Process, wait_for

COMMIT, KEYS = 50_000, 200_000
"""Events of a commit, and keys of the table."""
COMMITS = {"settling": 1, "burst": 10, "backlog": 40}
"""Of each turn, in this order."""
LINKS = {"near": (0.0, 0.0), "rtt_150ms": (ONE_WAY, LOSS)}
"""Delay in seconds, one way, and the share of packets that are lost."""
PAUSE = 11.0
"""Seconds after a link has changed."""
WARM_UP = 1
"""Turns over each link."""
BUFFERS = {"socket.receive.buffer.bytes": "-1", "socket.send.buffer.bytes": "-1"}
"""Of the broker: as large as the system makes them. Its default, 100 kB, is one of a local network:
a connection then carries 100 kB in a round trip."""
KEEP_WINDOWS = "echo 0 > /proc/sys/net/ipv4/tcp_slow_start_after_idle"
"""At the sender: its connections go on as fast after a pause as they were before."""


def wide_area(place: Path, rounds: int) -> dict[str, Any]:
    """Return events per second over both links, and ratios. Raises RuntimeError without root."""
    if reason := missing():
        raise RuntimeError(reason)
    turns = [*LINKS] * (WARM_UP + rounds)
    commits = sum(COMMITS.values()) * len(turns)
    bench = Bench(COMMIT * commits, KEYS, commits)
    bench.prepare(events_too=False)
    bench.spark.stop()
    with ExitStack() as stack:
        machines, by_site = stack.enter_context(linked("store", ["newark"], seed=7))
        store, link = machines["store"].command(), by_site["newark"]
        subprocess.run(machines["newark"].command("sh", "-c", KEEP_WINDOWS), check=True)
        brokers = running(place / "broker", 1, settings=BUFFERS, host=STORE_ADDRESS, command=store)
        cluster = stack.enter_context(brokers)
        reveal = stack.enter_context(hidden_commits(SCRATCH / "source", place / "source"))
        topology = place / "wan.yaml"
        topology.write_text(yaml.safe_dump(_topology(place, cluster.bootstrap)))
        sender = Process("send", "newark", topology, prefix=machines["newark"].command())
        stack.callback(sender.stop)
        receiver = Process("receive", "seattle", topology, prefix=store)
        stack.callback(receiver.stop)

        def arrived(version: int) -> bool:
            states = [next(iter(each.streams.values()), {}) for each in (sender, receiver)]
            sent, applied = states
            if held := [state["held"] for state in states if state.get("held")]:
                raise RuntimeError(held)
            return sent.get("version") == version and applied.get("applied") == sent["published"]

        wait_for(lambda: arrived(1), 300, "the first event")
        speeds: dict[tuple[str, str], list[float]] = {}
        version = 1
        for n, name in enumerate(turns):
            link.delay, link.loss = LINKS[name]
            time.sleep(PAUSE)
            for part, number in COMMITS.items():
                time.sleep(2)  # acks and trims of the part before
                began = time.monotonic()
                reveal(number)
                version += number
                wait_for(lambda version=version: arrived(version), 600, f"version {version}")
                took = time.monotonic() - began
                print(f"turn {n // len(LINKS)} {name:10} {part:10} {took:6.2f} s", flush=True)
                if n >= WARM_UP * len(LINKS):
                    speeds.setdefault((name, part), []).append(COMMIT * number / took)
    found: dict[str, Any] = {}
    for part, prefix in (("backlog", ""), ("burst", "burst_")):
        for name in LINKS:
            found[f"{prefix}{name}_events_per_s"] = round(statistics.median(speeds[name, part]))
        pairs = zip(speeds["rtt_150ms", part], speeds["near", part], strict=True)
        ratio = statistics.median(far / near for far, near in pairs)
        found[f"{prefix}rtt_150ms_ratio"] = round(ratio, 2)
    return found


def _topology(place: Path, servers: str) -> dict[str, Any]:
    return {
        "version": 1,
        "sites": {
            site: {"state": str(place / site), "idle_interval": "50ms", "receive_interval": "50ms"}
            for site in ("newark", "seattle")
        },
        "senders": {
            "east": {
                "site": "newark",
                "remotes": ["seattle"],
                "channel": f"kafka://{servers}/wan",
                "batch_interval": "50ms",
            }
        },
        "tables": {
            "orders": {
                "keys": ["order_id"],
                "writers": ["newark"],
                "senders": ["east"],
                "start": {"version": 1},
                "at": {"newark": str(place / "source"), "seattle": str(place / "target")},
            }
        },
    }
