"""f55: any one file of a channel, or of a sender's checkpoints, is deleted, truncated, altered or
restored from a backup, while epochs wait.

Every file is tried, with every fault. What follows is one of two: all events are applied once, or
whoever is in the way of that is held, with a cause that names the way out. The publisher, the sink,
the ack manager and the applier are the product's own, on a channel in a directory.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from fakes import STREAM, Clock, LedgerRows, Source, Target, schema
from file_faults import Fault, altered, cut_in_half, deleted, emptied, restored
from publishing import SETTINGS

from spark_wan.apply.applier import TableApplier
from spark_wan.channels.registry import open_channel
from spark_wan.datasource.events import (
    EventsWriter,
    SinkColumns,
    SinkWrite,
    append_epoch,
    sink_writer,
)
from spark_wan.datasource.options import SinkOptions
from spark_wan.errors import WanError
from spark_wan.ledger.ledger import Ledger
from spark_wan.log.stream_log import StreamLog
from spark_wan.sender.acks import AckManager
from spark_wan.sender.publish import Publisher
from spark_wan.state.checkpoints import StoredCheckpoints
from spark_wan.steps import run
from spark_wan.topology.ack_policy import AckPolicy

WAY_OUT = re.compile(r"[Rr]estore|decide|newLog|a copy|a place of its own")
TIMEOUT = 60_000
TURNS = 6


class World:
    """A stream from newark to seattle below ``folder``: epochs 1 to 3 are acked, 4 to 6 wait.
    ``backup`` is how it was when 1 and 2 were acked and not trimmed yet."""

    def __init__(self, folder: Path, user: bool) -> None:
        self.folder, self.user = folder / "now", user
        self.clock = Clock()
        self.channel = open_channel(str(self.folder / "channel"))
        self.channel.prepare()
        self.log = StreamLog(self.channel, STREAM)
        self.checkpoints = StoredCheckpoints(str(self.folder / "state"))
        self.source = Source(self.channel)
        self.target = Target(self.channel)
        self.ledger = LedgerRows()
        self.batch = 0
        self.causes: list[str] = []
        for _ in range(2):
            self.write()
        self.apply()
        shutil.copytree(self.folder, folder / "backup")
        self.backup = folder / "backup"
        self.keep()
        self.write()
        self.apply()
        self.keep()
        for _ in range(3):
            self.write()
        assert not self.causes

    # --- each with a checkpoint of its own, as after a restart

    def write(self) -> None:
        """One more commit at the source, or write of a user, and its epoch."""
        self.batch += 1
        with self.noting():
            if not self.user and self.batch > 1:
                self.source.add()
            self._send()

    def _send(self) -> None:
        if self.user:
            self._sink()  # a replay of the last write, if that went well
        else:
            run(Publisher(SETTINGS, self.log, self.source, self.checkpoints, self.clock).round())

    def _sink(self) -> None:
        options = SinkOptions(
            channel=self.channel.url,
            site="newark",
            remotes=("seattle",),
            table="orders",
            key=(),
            event_id="event",
            stream=STREAM,
        )
        columns = SinkColumns.of(options, schema(event="string"))
        writer = EventsWriter(self.channel, options, columns, schema(event="string"), self.clock)
        written = writer.write([pa.record_batch({"event": pa.array([f"e{self.batch}"])})])
        sink = sink_writer(self.log, options, self.checkpoints, self.clock)
        write = SinkWrite([written], "q", str(self.batch))
        run(append_epoch(sink, options, schema(event="string"), write))

    def keep(self) -> None:
        with self.noting():
            run(
                AckManager(
                    self.log, self.checkpoints, AckPolicy.ALL, TIMEOUT, self.clock, ["seattle"]
                ).round()
            )

    def apply(self) -> None:
        applier = TableApplier(
            "seattle", "orders", self.log, self.target, Ledger("seattle", "orders", self.ledger)
        )
        with self.noting():
            outcome = run(applier.round())
            if outcome.cause is not None:
                self.causes.append(f"seattle: {outcome.cause}")

    @contextmanager
    def noting(self) -> Iterator[None]:
        try:
            yield
        except WanError as error:
            self.causes.append(str(error))

    def come_to_rest(self) -> list[str]:
        """All go on for a while; the causes that are left in the end."""
        self.write()
        for _ in range(TURNS):
            self.causes = []
            with self.noting():
                self.channel.prepare()
                self._send()
            self.apply()
            self.keep()
            self.clock.now += TIMEOUT
        return self.causes

    # --- what must hold

    def check(self, causes: list[str]) -> None:
        applied = [number for numbers in self.target.written for number in numbers]
        marks = [row.mark for row in self.ledger.rows]
        assert applied == sorted(set(applied)), f"applied {applied}"
        if causes:
            for cause in causes:
                assert WAY_OUT.search(cause), f"names no way out: {cause}"
            assert applied == list(range(1, len(applied) + 1)), f"applied {applied} and then held"
        elif self.user:
            assert applied == list(range(1, 8)), f"not held, and applied {applied}"
        else:
            assert marks[-1].applied[0].through == self.source.newest().version, (
                f"not held, and applied {applied}"
            )


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


FAULTS: list[Fault] = [deleted, cut_in_half, emptied, altered, restored]


@pytest.mark.parametrize("user", [False, True], ids=["captured", "user's"])
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_f55_one_file_is_damaged_restored_or_missing(
    tmp_path: Path, fault: Fault, user: bool
) -> None:
    """Taken out once, and found here: the comparison of the log with the checkpoint, and that of
    numbers in the plan of a user stream."""
    count = len(files(World(tmp_path / "names", user).folder)) if fault is not restored else 0
    tried = 0
    place = 0
    while True:
        # Names of frames are random: the n-th file is the same one in each world, but for frames
        # among themselves.
        world = World(tmp_path / str(place), user)
        names = files(world.backup if fault is restored else world.folder)
        if place >= len(names):
            break
        fault(world.folder / names[place], world.backup / names[place])
        causes = world.come_to_rest()
        try:
            world.check(causes)
        except AssertionError as problem:
            raise AssertionError(
                f"{names[place]} {fault.__name__}: {problem}; held: {causes}"
            ) from problem
        tried += 1
        place += 1
    assert tried >= max(count, 5)


def test_every_file_is_a_target_of_the_faults(tmp_path: Path) -> None:
    """Without a fault all arrives, and there is a file of each kind to strike."""
    for user in (False, True):
        world = World(tmp_path / str(user), user)
        kinds = {re.sub("[0-9a-f]{20,}", "*", name) for name in files(world.folder)}
        assert kinds >= {
            "channel/wan-channel.json",
            f"channel/log/{STREAM}/*.json",
            f"channel/frames/{STREAM}/*-00000.frame",
            f"channel/acks/{STREAM}/seattle.json",
            f"state/{STREAM}.json",
        }
        causes = world.come_to_rest()
        assert causes == []
        world.check(causes)
