"""A site without Spark, in a process of its own: publishes a table, and applies the other site's.

The argument is JSON: ``site`` and ``topology``, as the file has it. Reads one JSON command per
line and answers each with one. Publisher, log, ack manager and receiver are real; tables are lists
of rows.
"""

from __future__ import annotations

import json
import random
import sys
import threading
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import pyarrow as pa
from fakes import Checkpoints, LedgerRows, Source, Target
from inline import Inbound, Running
from receivers import SPARK, InMemory

from spark_wan.apply.change import Change
from spark_wan.capture.ranges import CaptureRange, CaptureResult
from spark_wan.channels.base import Channel, new_attempt
from spark_wan.channels.registry import open_channel
from spark_wan.errors import WanError
from spark_wan.ledger.ledger import Ledger
from spark_wan.log.stream_log import StreamLog
from spark_wan.receiver.channel_streams import ChannelStreams
from spark_wan.receiver.inbound import InboundTables
from spark_wan.receiver.table import InboundTable
from spark_wan.sender.acks import AckManager
from spark_wan.sender.publish import CaptureSettings, Publisher
from spark_wan.steps import run
from spark_wan.topology.ack_policy import AckPolicy
from spark_wan.topology.model import stream_name
from spark_wan.topology.parsing import parse_topology
from spark_wan.units import milliseconds
from spark_wan.wire.decisions import Decisions
from spark_wan.wire.frame import FrameHeader, FrameRef, decode_frame, encode_frame, frame_checksum
from spark_wan.wire.mark import Mark

ROWS, TEXT = 40, 1_000
"""Rows of a commit, and the random bytes of each: a frame takes many packets."""
ROUND = 0.05
"""Seconds between rounds."""


def text_of(site: str, row: int) -> str:
    return random.Random(f"{site} {row}").randbytes(TEXT // 2).hex()


@dataclass
class Rows(Source):
    """A source whose version n has the rows from n times ROWS on."""

    site: str = ""

    def capture(self, planned: CaptureRange, header: FrameHeader) -> CaptureResult:
        versions = [commit.version for commit in planned.commits if commit.version]
        if not versions:
            return CaptureResult()
        ids = [version * ROWS + n for version in versions for n in range(ROWS)]
        change = pa.record_batch(
            {
                "_wan_op": pa.array([1] * len(ids), pa.int8()),
                "id": pa.array(ids, pa.int64()),
                "city": pa.array([text_of(self.site, each) for each in ids]),
            }
        )
        attempt = new_attempt(header.attempt)
        data = encode_frame(
            replace(header, attempt=attempt, index=0, events=change.num_rows), change
        )
        path = self.channel.put_frame(header.stream, attempt, 0, data)
        frame = FrameRef(path, change.num_rows, len(data), frame_checksum(data))
        return CaptureResult((frame,), True, tuple(versions))


@dataclass
class Applied(Target):
    """A target that keeps the rows of each commit."""

    rows: list[tuple[int, str]] = field(default_factory=list)

    def write(self, change: Change, mark: Mark) -> None:
        rows: list[tuple[int, str]] = []
        for epoch in change.epochs:
            for ref in epoch.manifest.frames:
                _, events = decode_frame(self.channel.get_frame(ref.path), ref.path, ref)
                found = zip(events["id"].to_pylist(), events["city"].to_pylist(), strict=True)
                rows += found
        before = len(self.written)
        super().write(change, mark)
        if len(self.written) > before:
            self.rows += rows


class Site:
    def __init__(self, site: str, topology: dict[str, Any]) -> None:
        self.site = site
        self.topology = parse_topology(topology, "wan.yaml")
        (sender,) = self.topology.senders_at(site)
        (inbound,) = self.topology.senders_to(site)
        (table,) = self.topology.tables_of(sender.name)
        (self.remote,) = sender.remotes
        self.channel = open_channel(sender.channel, sender.storage)
        self.inbound = open_channel(inbound.channel, inbound.storage)
        stream = stream_name(site, sender.name, table.name)
        self.log = StreamLog(self.channel, stream)
        self.source = Rows(self.channel, id=str(uuid.uuid4()), site=site)
        settings = CaptureSettings(
            stream=stream,
            table=table.name,
            keys=table.keys,
            origin=site,
            sent_to=(self.remote,),
            addressees=(self.remote,),
            start=0,
            on_table_operation="hold",
            max_epoch_rows=ROWS,
        )
        checkpoints = Checkpoints()
        self.publisher = Publisher(
            settings, self.log, self.source, checkpoints, milliseconds, lambda: Decisions()
        )
        timeout = int(sender.ack_timeout * 1000)
        served = [self.remote]
        self.acks = AckManager(self.log, checkpoints, AckPolicy.ALL, timeout, milliseconds, served)
        self.target = Applied(self.inbound, "target")
        self.ledger = LedgerRows()
        self.receiver = self._receiver()
        self.failures = {"publish": 0, "receive": 0}
        self.errors: list[str] = []
        self.ended = threading.Event()
        self.threads = [
            threading.Thread(target=self._repeat, args=(name, channel, work), daemon=True)
            for name, channel, work in (
                ("publish", self.channel, self._send),
                ("receive", self.inbound, self._receive),
            )
        ]

    def _receiver(self) -> Inbound:
        """Return a receiver that knows nothing but the table and its ledger."""

        def make(name: str) -> InboundTable:
            table = self.topology.table(name)
            made = InMemory(Running(), self.topology.site(self.site), table, 1 << 30, False)
            made.before, made.target = (lambda _: None), self.target
            made._ledger = Ledger(self.site, name, self.ledger)
            return made

        streams = ChannelStreams(self.topology, self.site, self.inbound.url)
        return Inbound(streams, self.inbound, InboundTables(make))

    def _send(self) -> None:
        while run(self.publisher.round()) is not None:
            pass
        run(self.acks.round())

    def _receive(self) -> None:
        self.receiver.apply(SPARK)

    def _repeat(self, name: str, channel: Channel, work: Callable[[], None]) -> None:
        prepared = False
        while not self.ended.wait(ROUND):
            try:
                if not prepared:
                    channel.prepare()
                    prepared = True
                work()
            except WanError as error:
                self.failures[name] += 1
                self.errors = [*self.errors[-4:], str(error)[:300]]

    def status(self) -> dict[str, Any]:
        return {
            "committed": self.source.commits[-1].version,
            "rows": len(self.target.rows),
            "applies": len(self.target.written),
            "failures": self.failures,
            "errors": self.errors,
            "held": [status.held for status in self.receiver.statuses()],
            "duplicates": sum(status.duplicates for status in self.receiver.statuses()),
        }

    def equal(self, versions: int) -> dict[str, Any]:
        """Compare what was applied with what the other site has written, row by row."""
        expected = [(n, text_of(self.remote, n)) for n in range(ROWS, (versions + 1) * ROWS)]
        return {
            "equal": self.target.rows == expected,
            "missing": len(set(expected) - set(self.target.rows)),
            "doubled": len(self.target.rows) - len(set(self.target.rows)),
        }

    def epochs(self) -> list[int]:
        """Return the epochs that its own log has, however often the line fails meanwhile."""
        while True:
            try:
                return self.log.epochs()
            except WanError as error:
                self.errors = [*self.errors[-4:], str(error)[:300]]

    def answer(self, command: Sequence[Any]) -> dict[str, Any]:
        name, *values = command
        if name == "start":
            for thread in self.threads:
                thread.start()
        elif name == "commit":
            for _ in range(values[0]):
                self.source.add(rows=ROWS)
        elif name == "restart receiver":
            self.receiver = self._receiver()
        elif name == "compare":
            return self.equal(values[0])
        elif name == "epochs":
            return {"epochs": self.epochs()}
        return self.status()


def main() -> None:
    site = Site(**json.loads(sys.argv[1]))
    for line in sys.stdin:
        print(json.dumps(site.answer(json.loads(line))), flush=True)
    site.ended.set()


if __name__ == "__main__":
    main()
