"""Two sending sites and a receiving one on one channel, in a directory or on topics, with keys. No
Spark: the target decodes frames as the product does."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from fakes import HEADER, LedgerRows, Target, manifest
from inline import Inbound, Running, Woken

from spark_wan.apply.applier import TableApplier
from spark_wan.apply.plan import PlannedEpoch
from spark_wan.channels.base import Channel, new_attempt
from spark_wan.channels.kafka.channel import TopicChannel
from spark_wan.channels.registry import open_channel
from spark_wan.ledger.ledger import Ledger
from spark_wan.log.frames import BatchLimits, BatchPublisher
from spark_wan.log.notes import head, put_head
from spark_wan.log.stream_log import StreamLog
from spark_wan.receiver.channel_streams import ChannelStreams
from spark_wan.receiver.inbound import InboundTables
from spark_wan.receiver.stream import InboundStream
from spark_wan.receiver.table import InboundTable
from spark_wan.topology.model import Topology, stream_name
from spark_wan.topology.parsing import parse_topology
from spark_wan.topology.signing import sending_trust
from spark_wan.wire import topic_log
from spark_wan.wire.frame import FrameRef, decode_frame, most_bytes
from spark_wan.wire.manifest import Manifest, fingerprint
from spark_wan.wire.topic_state import parse_path

ORDERS, PRICES = "newark.east.orders", "denver.west.prices"


def content(
    folder: Path, channel: str, keys: dict[str, list[str]], **seattle: Any
) -> dict[str, Any]:
    """Return a topology in which newark sends orders and denver sends prices to seattle."""
    places = {name: {"seattle": f"/seattle/{name}"} for name in ("orders", "prices")}
    return {
        "version": 1,
        "sites": {
            **{
                name: {"state": str(folder / name), "signing_keys": keys[name]}
                if name in keys
                else {"state": str(folder / name)}
                for name in ("newark", "denver")
            },
            "seattle": {
                "state": str(folder / "seattle"),
                **({"signing_keys": keys["seattle"]} if "seattle" in keys else {}),
                **seattle,
            },
        },
        "senders": {
            "east": {"site": "newark", "remotes": ["seattle"], "channel": channel},
            "west": {"site": "denver", "remotes": ["seattle"], "channel": channel},
        },
        "tables": {
            "orders": {
                "keys": ["id"],
                "writers": ["newark"],
                "senders": ["east"],
                "at": {"newark": "/newark/orders", **places["orders"]},
            },
            "prices": {
                "keys": ["id"],
                "writers": ["denver"],
                "senders": ["west"],
                "at": {"denver": "/denver/prices", **places["prices"]},
            },
        },
    }


def key_file(folder: Path, name: str, secret: str = "") -> str:
    """Write a key, and return the reference to it."""
    path = folder / f"{name}.key"
    path.write_text((secret or f"the secret of {name}, which is long enough") + "\n")
    path.chmod(0o600)
    return f"file:{path}"


def put_operations(
    channel: TopicChannel, stream: str, epoch: int, data: bytes, earlier: Sequence[bytes] = ()
) -> None:
    """Write a manifest to a topic, in place of the one that is there and those behind it, as anyone
    can: remove the stream, and write it anew.

    The operations name no frames: those of a stream that was removed may not be named again, and
    readers go by the manifests. ``earlier``: the manifests before it, if they are trimmed.
    """
    manifests = [*earlier] or [channel.manifest(stream, each) for each in range(1, epoch)]
    manifests.append(data)
    first = epoch
    if head(channel, stream) >= epoch:
        assert channel.submit(topic_log.REMOVE, {"stream": stream})
        first = 1
    for number in range(first, epoch + 1):
        previous = fingerprint(manifests[number - 2]) if number > 1 else ""
        fields = {"stream": stream, "epoch": number, "previous": previous, "frames": []}
        assert channel.submit(topic_log.MANIFEST, fields, manifests[number - 1])


class CheckingTarget(Target):
    most = 2**30
    """``max_frame_bytes``"""

    def check_frames(self, epoch: PlannedEpoch) -> None:
        for ref in epoch.manifest.frames:
            data = self.channel.get_frame(ref.path, most_bytes(ref, ref.path, self.most))
            decode_frame(data, ref.path, ref, self.most)


class SignedTable(InboundTable):
    """Applies in memory, with the product's own logs, plans and acks."""

    target: CheckingTarget

    def _applier(self, stream: InboundStream, stream_log: StreamLog) -> TableApplier:
        if stream.applier is None:
            if self._ledger is None:
                self._ledger = Ledger(self.site.name, self.name, LedgerRows())
            target = copy.copy(self.target)
            target.channel = stream_log.channel
            stream.applier = TableApplier(
                self.site.name,
                self.name,
                stream_log,
                target,
                self._ledger,
                answer=stream.answer,
                writers=self.table.writers,
            )
        return stream.applier


class SignedSites:
    """The sites of :func:`content`, with the keys that each of them has now.

    :meth:`put` and :meth:`replace_frame` do what anyone can who may write to the channel.
    """

    def __init__(self, folder: Path, *signing: str, url: str = "", **seattle: Any) -> None:
        self.folder = folder
        self.url = url or str(folder / "channel")
        self.keys = {name: [key_file(folder, name)] for name in signing}
        self.seattle = seattle
        self.channel: Channel = open_channel(self.url)
        self.channel.prepare()
        self.targets = {name: CheckingTarget(self.channel, name) for name in ("orders", "prices")}

    def topology(self, keys: dict[str, list[str]] | None = None) -> Topology:
        wanted = self.keys if keys is None else keys
        return parse_topology(content(self.folder, self.url, wanted, **self.seattle), "wan.yaml")

    def log(self, sender: str = "east", stream: str | None = None, **keys: list[str]) -> StreamLog:
        """Return the log of a sender's stream, as its sender has it."""
        topology = self.topology({**self.keys, **keys})
        each = topology.sender(sender)
        (table,) = topology.tables_of(sender)
        name = stream or stream_name(each.site, sender, table.name)
        return StreamLog(self.channel, name, sending_trust(topology, each))

    def send(self, *epochs: int, log: StreamLog | None = None, **changes: Any) -> list[Manifest]:
        """Append epochs with one frame each; return their manifests."""
        log = self.log() if log is None else log
        site, _, table = log.stream.split(".")[:3]
        appended: list[Manifest] = []
        for epoch in epochs:
            if appended:
                previous = appended[-1].fingerprint
            else:
                previous = log.peek(epoch - 1).fingerprint if epoch > 1 else ""
            fields: dict[str, Any] = {
                "stream": log.stream,
                "table": table,
                "origin": site,
                "previous": previous,
                "frames": (self.frame(log),),
                **changes,
            }
            appended.append(log.append(manifest(epoch, **fields)))
        return appended

    def frame(self, log: StreamLog, rows: int = 3) -> FrameRef:
        header = replace(HEADER, stream=log.stream, attempt=new_attempt("a" * 32))
        limits = BatchLimits(100, 2**20, digests=log.trust.signer is not None)
        publisher = BatchPublisher(self.channel, header, limits)
        batch = pa.record_batch(
            {"_wan_op": pa.array([1] * rows, pa.int8()), "id": pa.array(range(rows), pa.int64())}
        )
        publisher.publish([(batch, None)])
        return publisher.refs[0]

    def path(self, stream: str, epoch: int) -> Path:
        return self.folder / "channel" / "log" / stream / f"{epoch:020d}.json"

    def put(self, stream: str, epoch: int, data: bytes) -> None:
        """Write a manifest, in place of the one that is there. In a topic it is the last one."""
        if isinstance(self.channel, TopicChannel):
            put_operations(self.channel, stream, epoch, data)
            return
        path = self.path(stream, epoch)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        put_head(self.channel, stream, epoch, data)

    def replace_frame(self, path: str, data: bytes, key: bytes = b"") -> None:
        """Write another frame in place of one. On topics, its record is written elsewhere, with its
        key or another, and an operation leads readers to it."""
        if not isinstance(self.channel, TopicChannel):
            (self.folder / "channel" / path).write_bytes(data)
            return
        parsed = parse_path(path)
        assert parsed is not None
        topic = self.channel.topic("frames")
        partition = parsed.places[0].partition
        record = key or parsed.key(0), data
        [written] = self.channel.broker.produce(topic, partition, [record])
        fields = {"path": path, "from": parsed.places, "to": [(partition, written.offset)]}
        assert self.channel.submit(topic_log.MOVE, fields)

    def receiver(self, **keys: list[str]) -> Inbound:
        """Return a new receiver of seattle."""
        topology, running = self.topology({**self.keys, **keys}), Running()

        def make(name: str) -> InboundTable:
            table = topology.table(name)
            made = SignedTable(running, topology.site("seattle"), table, 1 << 20, False)
            made.target = self.targets[name]
            return made

        streams = ChannelStreams(topology, "seattle", self.url)
        return Inbound(streams, self.channel, InboundTables(make), woken=Woken())

    def applied(self, stream: str) -> int:
        """Return through which epoch seattle has applied a stream, by its ack as it is there."""
        ack = StreamLog(self.channel, stream).ack("seattle")
        return ack.applied if ack is not None else 0


def held(here: Inbound, stream: str) -> str:
    """Return why a receiver holds a stream; empty: it does not."""
    found = [each.held for each in here.streams.statuses() if each.stream == stream]
    return found[0] or "" if found else ""


def others_go_on(sites: SignedSites, here: Inbound) -> None:
    """Check that the stream of the other sender is applied, whatever is wrong with orders."""
    log = sites.log("west")
    sites.send(log.newest_epoch() + 1, log=log)
    here.apply()
    assert held(here, PRICES) == ""
    assert sites.applied(PRICES) == log.newest_epoch()
