"""A copy of a table: asked for, served and taken, with tables that are lists of commits."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from fakes import MANIFEST, STREAM, Clock, LedgerRows, Target, commit, conflict, publish
from ledgers import mark
from publishing import Site as Newark

from spark_wan.apply.applier import ApplyResult, TableApplier
from spark_wan.apply.take import CopyTaker
from spark_wan.errors import ManifestError, SourceError
from spark_wan.ledger.folding import fold
from spark_wan.ledger.ledger import Ledger
from spark_wan.ledger.progress import origin_of
from spark_wan.log.stream_log import StreamLog
from spark_wan.sender.serve import CopyServer
from spark_wan.steps import run
from spark_wan.topology.model import copy_name
from spark_wan.wire.ack import Ack, Wanted
from spark_wan.wire.manifest import COPY, CopyOf, Manifest
from spark_wan.wire.mark import Mark

NAME = copy_name(STREAM, "seattle")
ORIGIN = origin_of(MANIFEST)
SERVE = ["copy.1 asked", "copy.2 planned", "copy.3 frames-written", "copy.4 manifest-added"]
TAKE = [
    "take.1 asked",
    "take.2 caught-up",
    "take.3 read",
    "take.4 resolved",
    "take.5 recorded",
    "take.6 written",
    "take.7 ledgered",
    "take.8 acked",
]


class Pair:
    """newark writes orders, seattle has applied what newark has published."""

    def __init__(self) -> None:
        self.newark = Newark(sent_to=("seattle",))
        self.channel = self.newark.channel
        self.target, self.store = Target(self.channel), LedgerRows()
        self.newark.source.add()
        self.newark.rounds()
        self.apply()

    @property
    def copies(self) -> StreamLog:
        return StreamLog(self.channel, NAME)

    def ledger(self) -> Ledger:
        return Ledger("seattle", "orders", self.store, clock=Clock())

    def server(self) -> CopyServer:
        """A server that knows only what is durable."""
        settings = replace(self.newark.settings, stream=NAME, addressees=("seattle",))
        return CopyServer(settings, self.copies, self.newark.source, self.newark.clock)

    def taker(self) -> CopyTaker:
        return CopyTaker("seattle", "orders", self.copies, self.target, self.ledger())

    def apply(self) -> ApplyResult:
        log = StreamLog(self.channel, STREAM)
        return run(TableApplier("seattle", "orders", log, self.target, self.ledger()).round())

    def ask(self, request: str = "r1", **wanted: Any) -> None:
        ack = self.copies.ack("seattle") or Ack("seattle", NAME, "", 0)
        self.copies.put_ack(replace(ack, wanted=Wanted(request, **wanted)))

    def serve(self) -> Manifest | None:
        return run(self.server().round())

    def take(self) -> ApplyResult:
        result = run(self.taker().round())
        assert self.target.open_work == 0
        return result

    def copies_taken(self) -> list[Mark]:
        marks = (Mark.read(each.user_metadata, "seattle", "orders") for each in self.target.commits)
        return [each for each in marks if each is not None and each.replaced is not None]

    def synchronized(self) -> None:
        """The stream goes on behind the copy, and a later process sees the same."""
        assert self.apply().held is None
        self.newark.source.add()
        self.newark.rounds()
        for _ in range(2):
            result = self.apply()
            assert (result.held, result.cause) == (None, None)
        through = self.newark.source.newest().version
        ledger = self.ledger()
        ledger.catch_up(self.target)
        assert ledger.progress.through == {ORIGIN: through}


@pytest.fixture
def pair() -> Pair:
    return Pair()


def steps(generator: Any) -> list[str]:
    return list(generator)


def test_the_steps_are_these(pair: Pair) -> None:
    assert steps(pair.server().round()) == []
    pair.ask()
    assert steps(pair.server().round()) == SERVE
    assert steps(pair.taker().round()) == TAKE
    assert steps(pair.server().round()) == ["copy.5 removed"]
    assert pair.channel.epochs().keys() == {STREAM} and pair.copies.acks() == {}


def test_a_copy_has_the_rows_of_one_version_and_says_which(pair: Pair) -> None:
    pair.newark.source.add()
    pair.ask()
    manifest = pair.serve()
    assert manifest is not None
    version = pair.newark.source.newest().version
    assert pair.newark.source.calls[-1] == f"snapshot {version}"
    assert (manifest.kind, manifest.last_version) == (COPY, version)
    assert manifest.copy == CopyOf("r1", ((*ORIGIN, version),))
    result = pair.take()
    assert (result.held, result.applied, result.epochs) == (None, 1, 1)
    (taken,) = pair.copies_taken()
    assert (taken.vector, taken.local) == (((*ORIGIN, version),), 0)
    pair.synchronized()
    assert pair.target.written == [[1], [1], [2]]  # nothing of it twice


def dropped(pair: Pair) -> None:
    pair.target.id, pair.target.commits = None, []


def replaced(pair: Pair) -> None:
    pair.target.id = "target-2"
    pair.target.commits = [commit(0), commit(1)]


def restored(pair: Pair) -> None:
    pair.target.put(None, "RESTORE")


def restored_and_written_to(pair: Pair) -> None:
    del pair.target.commits[1:]
    for _ in range(4):
        pair.target.put(None)


def ledger_lost(pair: Pair) -> None:
    pair.store.rows, pair.target.commits = [], [commit(7)]


def ledger_outdated(pair: Pair) -> None:
    pair.target.commits = [commit(7)]
    pair.target.put(mark(9).user_metadata())


def epochs_missing(pair: Pair) -> None:
    for _ in range(2):
        pair.newark.source.add()
        pair.newark.rounds()
    for epoch in pair.newark.log.since(0)[:-1]:
        pair.channel.trim_manifest(STREAM, epoch)


FAULTS = [
    dropped,
    replaced,
    restored,
    restored_and_written_to,
    ledger_lost,
    ledger_outdated,
    epochs_missing,
]


@pytest.mark.parametrize("fault", FAULTS, ids=[fault.__name__ for fault in FAULTS])
def test_a_copy_mends_it(pair: Pair, fault: Callable[[Pair], None]) -> None:
    """b06, f28, f32, f46: whatever the site lacks, it has afterwards."""
    fault(pair)
    assert pair.apply().needs is not None
    pair.ask()
    pair.serve()
    assert pair.take().held is None
    pair.synchronized()


@pytest.mark.parametrize("fault", FAULTS, ids=[fault.__name__ for fault in FAULTS])
@pytest.mark.parametrize("died", range(1, len(TAKE) + 1))
def test_a_receiver_that_dies_at_any_step_of_a_copy(
    fault: Callable[[Pair], None], died: int
) -> None:
    """Twice. Fails when a copy that is in the table is written once more."""
    pair = Pair()
    fault(pair)
    pair.apply()
    pair.ask()
    pair.serve()
    for _ in range(2):
        list(itertools.islice(pair.taker().round(), died))
        pair.target.open_work = 0
    pair.take()
    assert len(pair.copies_taken()) == 1
    pair.synchronized()


@pytest.mark.parametrize("died", range(1, len(SERVE) + 1))
def test_a_sender_that_dies_at_any_step_of_a_copy(pair: Pair, died: int) -> None:
    dropped(pair)
    pair.ask()
    for _ in range(2):
        list(itertools.islice(pair.server().round(), died))
    pair.serve()
    assert pair.take().held is None
    pair.synchronized()
    pair.serve()
    assert pair.channel.epochs().keys() == {STREAM}


@pytest.mark.parametrize("first", range(1, len(TAKE)))
def test_two_receivers_take_one_copy(pair: Pair, first: int) -> None:
    """One waits after each step while the other takes it. Delta lets one number through."""
    pair.ask()
    pair.serve()
    slow = pair.taker().round()
    for _ in range(first):
        next(slow)
    run(pair.taker().round())
    run(slow)
    assert pair.target.open_work == 0
    pair.synchronized()


def test_a_conflict_with_another_writer_is_tried_again(pair: Pair) -> None:
    pair.ask()
    pair.serve()
    pair.target.before_write = [conflict, conflict]
    assert pair.take().held is None
    pair.synchronized()


def test_a_second_request_replaces_the_first(pair: Pair) -> None:
    """b79. The copy that answers the first is not taken any more."""
    pair.ask("r1")
    pair.serve()
    pair.ask("r2")
    assert pair.take().epochs == 0 and pair.copies_taken() == []
    second = pair.serve()
    assert second is not None and second.epoch == 2
    assert pair.copies.since(0) == [2]
    assert pair.take().epochs == 1
    pair.synchronized()


def test_nothing_is_taken_that_was_not_asked_for(pair: Pair) -> None:
    pair.ask("r1")
    pair.serve()
    pair.copies.put_ack(Ack("seattle", NAME, "", 0))
    assert pair.take().epochs == 0 and pair.copies_taken() == []


def test_a_copy_that_has_too_little_is_not_served(pair: Pair) -> None:
    """The source was restored to an older state: the site has more."""
    pair.ask(least=((*ORIGIN, 50),))
    with pytest.raises(SourceError, match="asks for a copy that has version 50, and the newest is"):
        pair.serve()
    assert pair.copies.since(0) == []


def test_rows_of_a_copy_are_no_events_and_events_no_copy(pair: Pair) -> None:
    """Fails when a forged manifest in another log is applied as what it is not."""
    copy = {"kind": COPY, "copy": CopyOf("r1", ((*ORIGIN, 40),))}
    log = StreamLog(pair.channel, STREAM)
    newest = log.newest_manifest()
    assert newest is not None
    epoch, log_id = newest.epoch + 1, newest.log_id
    publish(log, epoch, first_version=2, last_version=40, log_id=log_id, **copy)
    assert "is of kind copy, which does not belong" in str(pair.apply().cause)
    pair.ask()
    publish(pair.copies, 1)
    assert "is of kind capture, which does not belong" in str(pair.take().cause)
    assert pair.copies_taken() == []


def test_a_manifest_without_what_its_kind_needs_is_none() -> None:
    whole = replace(MANIFEST, kind=COPY, copy=CopyOf("r1", ((*ORIGIN, 3),)))
    assert Manifest.decode(whole.encode(), "here") == whole
    for wrong in (replace(whole, copy=None), replace(whole, kind="capture")):
        with pytest.raises(ManifestError, match="copy is"):
            Manifest.decode(wrong.encode(), "here")


def test_a_ledger_is_folded_over_a_copy(pair: Pair) -> None:
    """Fails when marks of the table before the copy stay for ever, or count."""
    replaced(pair)
    pair.ask()
    pair.serve()
    pair.take()
    for _ in range(3):
        pair.newark.source.add()
        pair.newark.rounds()
        pair.apply()
    assert run(fold(pair.store, "seattle", "orders", least=2)) > 0
    assert len({row.target_id for row in pair.store.load("orders")}) == 1
    pair.synchronized()


def test_a_copy_into_a_table_with_fewer_versions_than_the_one_before(pair: Pair) -> None:
    """Fails when the ledger goes on from the newest version that any mark has."""
    for _ in range(9):
        pair.newark.source.add()
        pair.newark.rounds()
        pair.apply()
    dropped(pair)
    pair.ask()
    pair.serve()
    assert pair.take().held is None
    pair.synchronized()


def test_what_was_read_of_the_table_before_a_copy_does_not_count(pair: Pair) -> None:
    """A position behind the versions that the table has now. Fails when it holds the table."""
    for _ in range(30):
        pair.target.put(None, time=0)
    pair.apply()
    ledger = pair.ledger()
    ledger.catch_up(pair.target)
    assert pair.store.positions
    del pair.target.commits[2:]
    for _ in range(2):
        pair.target.put(None)
    pair.ask()
    pair.serve()
    assert pair.take().held is None
    pair.synchronized()
