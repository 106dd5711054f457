"""Sites of a topology in one thread, without Spark: real receivers, forwarders and ack managers on
channels in memory. Only tables and ledgers are fakes."""

from __future__ import annotations

import copy
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fakes import Checkpoints, Clock, LedgerRows, Target, publish
from faulty_channel import call_name
from inline import Inbound, Running, Woken
from receivers import SPARK, InMemory

from spark_wan.channels.base import Channel
from spark_wan.channels.registry import open_channel
from spark_wan.errors import ChannelError
from spark_wan.forward.forwarding import Forwarding
from spark_wan.forward.job import Forwards
from spark_wan.ledger.ledger import Ledger
from spark_wan.log.ack_watch import AckWatch
from spark_wan.log.stream_log import StreamLog
from spark_wan.receiver.channel_streams import ChannelStreams
from spark_wan.receiver.inbound import InboundTables
from spark_wan.receiver.stream import TableStatus
from spark_wan.receiver.table import InboundTable
from spark_wan.sender.acks import AckManager
from spark_wan.sender.outbound_channel import OutboundChannel
from spark_wan.steps import run
from spark_wan.topology.model import Sender, Stream, Table, Topology
from spark_wan.topology.parsing import parse_topology
from spark_wan.topology.routes import all_streams
from spark_wan.wire.manifest import Manifest

Links = Mapping[str, Sequence[Sequence[str]]]
"""Site -> the remotes of each of its senders, which are called ``<site>0``, ``<site>1`` …"""


def content(links: Links, folder: Path, memory: str, **tables: Any) -> dict[str, Any]:
    """The topology in which each site writes a table that is called after it, or with ``tables``,
    whose entries say what differs from that."""
    senders = {
        f"{site}{number}": {
            "site": site,
            "remotes": list(remotes),
            "channel": f"memory://{memory}-{site}{number}",
        }
        for site, all_remotes in links.items()
        for number, remotes in enumerate(all_remotes)
    }
    writers = tables or {f"of-{site}": {"writers": [site]} for site in links}
    return {
        "version": 1,
        "sites": {site: {"state": str(folder / site)} for site in links},
        "senders": senders,
        "tables": {
            name: {
                "keys": ["id"],
                "senders": list(senders),
                "at": {site: f"/{site}/{name}" for site in links},
                **entry,
            }
            for name, entry in writers.items()
        },
    }


@dataclass
class Durable:
    """What a site's receivers share, and what survives them."""

    targets: dict[str, Target] = field(default_factory=dict)
    rows: dict[str, LedgerRows] = field(default_factory=dict)


class NetworkForwards(Forwards):
    """The forwarding of a site, on channels as the site sees them."""

    network: Network

    def outbound(self, sender: Sender) -> OutboundChannel:
        outbound = super().outbound(sender)
        if outbound.watch.channel.__class__.__name__ != "AsSeen":
            outbound.watch = AckWatch(self.network.channel(sender.channel, self.site.name))
        return outbound


class AsSeen:
    """A channel as a site sees it: calls fail or are lost as the network says."""

    def __init__(self, network: Network, site: str, inner: Channel) -> None:
        self.network, self.site, self.inner = network, site, inner

    def __getattr__(self, name: str) -> Any:
        target = getattr(self.inner, name)
        if not callable(target):
            return target

        def call(*args: Any, **more: Any) -> Any:
            what = self.network.fault(self.site, self.inner.url, call_name(name, args))
            if what == "fail":
                raise ChannelError(f"{self.site}: {name} is refused")
            return None if what == "lose" else target(*args, **more)

        return call


class Receiving:
    """A receiver of a site, in this thread."""

    def __init__(self, network: Network, site: str) -> None:
        self.network, self.site = network, site
        topology = network.topology
        self.woken = Woken()
        scheduler: Any = self.woken
        self.forwards = NetworkForwards(
            Running(),
            scheduler,
            topology=topology,
            site=topology.site(site),
            available_now=False,
        )
        self.forwards.network = network
        self.forwarded: list[Forwarding] = []
        tables = InboundTables(self._table)
        self.inbound = []
        for url in sorted({sender.channel for sender in topology.senders_to(site)}):
            streams = ChannelStreams(topology, site, url, self._forward)
            channel = network.channel(url, site)
            self.inbound.append(Inbound(streams, channel, tables, False, self.woken))

    def _forward(self, log: StreamLog, table: Table, answer: Any) -> list[Forwarding]:
        made = self.forwards.of(log, table, answer)
        self.forwarded += made
        return made

    def _table(self, name: str) -> InboundTable:
        network, site = self.network, self.site
        table = network.topology.table(name)
        made = InMemory(Running(), network.topology.site(site), table, 1 << 20, False)
        durable = network.durable[site]
        made.before = lambda table: network.before_apply(site, table)
        made.target = durable.targets.setdefault(name, Target(network.channel("", site), name))
        made._ledger = Ledger(site, name, durable.rows.setdefault(name, LedgerRows()))
        return made

    def go(self) -> None:
        """List all channels, apply and forward what is due, and act on acks."""
        for forwarding in self.forwarded:
            if forwarding.hold is not None:
                forwarding.hold.retry_now()
            if forwarding.is_due:
                forwarding.wake()
        for inbound in self.inbound:
            inbound.retry(SPARK)
        for outbound in list(self.forwards._outbound.values()):
            outbound.look(SPARK)
            for collecting in outbound.streams:
                collecting._holds.clear()  # as if the time of all that are held had come
                collecting.look(SPARK)

    def statuses(self) -> dict[str, TableStatus]:
        found = (status for inbound in self.inbound for status in inbound.statuses())
        return {status.stream: status for status in found}


class Network:
    """All sites. ``go`` lets some of them run; ``write`` publishes an epoch of a table."""

    def __init__(self, folder: Path, links: Links, **tables: Any) -> None:
        self.folder, self.memory = folder, uuid.uuid4().hex
        self.content = content(links, folder, self.memory, **tables)
        self.clock = Clock()
        self.durable = {site: Durable() for site in links}
        self.checkpoints = {site: Checkpoints() for site in links}
        self.written: Counter[str] = Counter()
        self.fault: Callable[[str, str, str], str | None] = lambda site, url, method: None
        """Returns what becomes of a site's call to a channel: ``fail``, ``lose``, or None."""
        self.before_apply: Callable[[str, str], None] = lambda site, table: None
        """Called with site and table before each round of an apply; may raise."""
        self.topology: Topology
        self.running: dict[str, Receiving] = {}
        self.load()

    def load(self, **changes: Any) -> None:
        """Read the topology again, with some sections replaced; all receivers start anew."""
        self.content = {**copy.deepcopy(self.content), **changes}
        self.topology = parse_topology(self.content, "wan.yaml")
        self.managers: dict[str, AckManager] = {}
        self.streams = {stream.name: stream for stream in all_streams(self.topology)}
        self.restart(*self.topology.sites)

    def restart(self, *sites: str) -> None:
        """Start receivers that know nothing but what is durable."""
        for site in sites:
            if self.topology.senders_to(site):
                self.running[site] = Receiving(self, site)

    def stop(self, site: str) -> None:
        self.running.pop(site, None)

    def channel(self, url: str, site: str) -> Any:
        return AsSeen(self, site, open_channel(url)) if url else None

    def log(self, stream: str) -> StreamLog:
        return StreamLog(open_channel(self.streams[stream].sender.channel), stream)

    def own_streams(self, table: str) -> list[Stream]:
        """The streams of a table that begin at its writer."""
        return [
            stream
            for stream in self.streams.values()
            if stream.table.name == table and stream.inbound is None
        ]

    def write(self, table: str, **changes: Any) -> list[Manifest]:
        """Publish the next epoch of a table by all its senders."""
        self.written[table] += 1
        return [
            publish(
                self.log(stream.name),
                self.written[table],
                table=table,
                table_id=f"id of {table}",
                origin=stream.origin,
                sent_to=stream.sent_to,
                addressees=stream.addressees,
                **changes,
            )[0]
            for stream in self.own_streams(table)
        ]

    def collect(self) -> None:
        """The writers' ack managers have a round each."""
        for stream in self.streams.values():
            if stream.inbound is None:
                manager = self.managers.setdefault(
                    stream.name,
                    AckManager(
                        self.log(stream.name),
                        self.checkpoints[stream.origin],
                        stream.sender.ack_policy,
                        60_000,
                        self.clock,
                        stream.addressees,
                    ),
                )
                run(manager.round())

    def go(self, rounds: int = 1, sites: Sequence[str] | None = None) -> None:
        for _ in range(rounds):
            for site in sites if sites is not None else list(self.running):
                if site in self.running:
                    self.running[site].go()
            self.collect()

    def settle(self) -> None:
        """Go until nothing changes any more."""
        self.go(2 * len(self.topology.sites) + 2)

    # --- what there is

    def through(self, site: str, table: str) -> int:
        """The number of epochs of a table that a site has applied."""
        durable = self.durable[site]
        if table not in durable.targets:
            return 0
        ledger = Ledger(site, table, durable.rows[table])
        ledger.catch_up(durable.targets[table])
        versions = ledger.progress.through.values()
        return (max(versions) + 1) // 10 if versions else 0

    def statuses(self) -> dict[tuple[str, str], TableStatus]:
        return {
            (site, name): status
            for site, receiving in self.running.items()
            for name, status in receiving.statuses().items()
        }

    def check_settled(self, duplicates: bool = False, orphans: bool = False) -> None:
        """Every site has every epoch, once; nothing is held, and all logs are trimmed."""
        for table in self.topology.tables.values():
            for site in table.writers:
                assert table.name not in self.durable[site].targets, "it came back"
            for site in table.at:
                if site not in table.writers:
                    found = self.through(site, table.name)
                    assert found == self.written[table.name], (site, table.name, found)
        for where, status in self.statuses().items():
            assert status.held is None, (where, status.held)
            assert status.duplicates == 0 or duplicates, (where, status)
        for name in self.streams:
            log = self.log(name)
            assert len(log.epochs()) == 1, name
            assert orphans or not log.channel.frames(name), name
