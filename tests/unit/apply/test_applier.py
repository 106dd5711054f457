"""The receiver's numbered path, with a target table that is a list of commits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest
from fakes import (
    MANIFEST,
    STREAM,
    Clock,
    LedgerRows,
    Target,
    ack,
    commit,
    conflict,
    manifest,
    memory_channel,
    publish,
    raising,
)
from faulty_channel import Fault, FaultyChannel
from ledgers import of_earlier_version

from spark_wan.apply.applier import ATTEMPTS, ApplyResult, TableApplier
from spark_wan.apply.change import Change
from spark_wan.channels.base import Note
from spark_wan.errors import (
    TABLE,
    ChannelError,
    FrameError,
    LedgerError,
    SchemaError,
    StoppedError,
    TargetError,
)
from spark_wan.ledger.ledger import Ledger
from spark_wan.log.notes import put_ack
from spark_wan.log.stream_log import StreamLog
from spark_wan.steps import run
from spark_wan.wire.ack import Ack
from spark_wan.wire.manifest import EVENTS
from spark_wan.wire.mark import Mark
from spark_wan.wire.receiver_record import NotApplied
from spark_wan.wire.records import EpochRef, TableClock

STEPS = [
    "apply.1 caught-up",
    "apply.2 planned",
    "apply.3 read",
    "apply.4 resolved",
    "apply.5 recorded",
    "apply.6 written",
    "apply.6b read-back",
    "apply.7 ledgered",
    "apply.8 acked",
]


class Site:
    """A channel with epochs, a target table and its ledger; appliers start and end."""

    def __init__(self, *numbers: int, target_id: str | None = "target-1", **limits: Any) -> None:
        self.channel = memory_channel()
        self.log = StreamLog(self.channel, STREAM)
        publish(self.log, *numbers)
        self.target = Target(self.channel, target_id)
        self.store = LedgerRows()
        self.limits = limits
        self.applier = self.new()

    def new(self, **more: Any) -> TableApplier:
        """A new process: an applier that knows only what is durable."""
        ledger = Ledger("seattle", "orders", self.store, clock=Clock())
        return TableApplier(
            "seattle", "orders", self.log, self.target, ledger, **{**self.limits, **more}
        )

    def round(self, numbers: list[int] | None = None) -> ApplyResult:
        outcome = run(self.applier.round(numbers))
        assert self.target.open_work == 0
        return outcome

    def acked(self) -> Ack | None:
        return self.log.acks().get("seattle")

    def applied(self) -> int:
        answer = self.acked()
        return answer.applied if answer is not None else 0


def delete_frame(site: Site, number: int) -> str:
    """Delete a frame of an epoch, and return its path."""
    path = site.log.read(number).frames[0].path
    site.channel.trim_frames(STREAM, [path])
    return path


def test_f47_a_receiver_overtaken_after_it_read_the_ledger_does_not_hold() -> None:
    """It was frozen there; others applied, and what they acked was trimmed.

    Fails when the first plan decides: the ack would report missing epochs.
    """
    site = Site(1)
    slow = site.new().round()
    assert next(slow) == STEPS[0]
    publish(site.log, 2, 3)
    site.round()
    for number in (1, 2):
        site.channel.trim_manifest(STREAM, number)
    publish(site.log, 4)
    outcome = run(slow)
    assert (outcome.applied, outcome.held) == (4, None)
    assert [number for numbers in site.target.written for number in numbers] == [1, 2, 3, 4]


# --- the way through ------------------------------------------------------------------------------


def test_epochs_are_applied_in_one_commit_and_acked() -> None:
    site = Site(1, 2, 3)
    outcome = site.round()
    assert site.target.written == [[1, 2, 3]]
    assert (outcome.applied, outcome.epochs, outcome.events, outcome.again) == (3, 3, 3, False)
    assert site.acked() == Ack("seattle", STREAM, MANIFEST.log_id, 3)


def test_the_steps_come_in_order() -> None:
    assert list(Site(1).applier.round()) == STEPS


def test_b34_the_table_is_created_on_first_contact_only() -> None:
    site = Site(1, target_id=None)
    site.round()
    assert (site.target.id, site.target.written) == ("target-1", [[1]])
    site.target.id = None
    publish(site.log, 2)
    site.applier = site.new()
    outcome = site.round()
    assert outcome.held is not None and "is missing at site seattle" in str(outcome.cause)
    assert site.target.id is None


def test_nothing_new_writes_nothing() -> None:
    site = Site(1)
    site.round()
    commits = list(site.target.commits)
    put_note, calls = site.channel.put_note, []
    site.channel.put_note = lambda *args: calls.append(args)  # type: ignore[method-assign]
    outcome = site.round()
    assert (outcome.applied, outcome.epochs, outcome.held) == (1, 0, None)
    assert (site.target.commits, calls) == (commits, [])
    site.channel.put_note = put_note  # type: ignore[method-assign]


def test_a_round_takes_no_more_than_its_limits_and_reports_that_more_waits() -> None:
    site = Site(1, 2, 3, max_epochs=2)
    assert site.round().again
    assert site.applied() == 2
    assert not site.round().again
    assert site.target.written == [[1, 2], [3]]


def test_f42_a_receiver_that_is_set_back_to_this_version_replaces_its_newer_ack() -> None:
    site = Site(1, 2)
    put_ack(site.channel, STREAM, "seattle", b'{"version":3,"site":"seattle","through":1}')
    assert (site.round().applied, site.acked()) == (
        2,
        Ack("seattle", STREAM, MANIFEST.log_id, 2),
    )


def test_a_mark_carries_the_highest_stamp_of_what_was_applied() -> None:
    """And the inbound epoch that was forwarded. Fails when the newest epoch decides: an earlier one
    may have the higher stamp, of a receiver's commit."""
    site = Site()
    via = EpochRef("denver.north.orders", "b" * 32, 5, "f" * 32)
    for epoch, stamp in ((1, 7), (2, 900), (3, 8)):
        commits = ({"version": 10 * epoch, "time": 6, "clock": stamp},)
        publish(site.log, epoch, commits=commits, clock=TableClock(900, 6), via=via)
    site.round()
    ((part,),) = [row.mark.applied for row in site.store.rows]
    assert (part.epoch, part.clock, part.via) == (3, 900, via)
    assert site.target.commits[-1].applied_clock == 900


def test_marks_are_cumulative() -> None:
    site = Site(1, 2, max_epochs=1)
    site.round()
    site.round()
    assert [
        (row.mark.apply, [(part.through, part.epoch) for part in row.mark.applied])
        for row in site.store.rows
    ] == [(1, [(9, 1)]), (2, [(19, 2)])]


def test_the_ack_counts_dead_letters() -> None:
    site = Site(1, 2, max_epochs=1)
    site.target.letters_per_apply = 2
    site.round()
    site.round()
    answer = site.acked()
    assert answer is not None and answer.dead_letters == 4
    site.applier = site.new()
    site.round()
    assert site.acked() == answer


def test_the_sender_is_told_of_dead_letters_before_the_ack_counts_them() -> None:
    """Each time that there are more, and where the ack that counted them was lost. Fails when a
    sender that sees the count finds no cause."""
    site = Site(1, 2, max_epochs=1)
    site.target.letters_per_apply = 2
    counts = list[int]()

    def tell(at_once: bool) -> bool:
        assert not at_once
        acked = site.acked()
        counts.append(acked.dead_letters if acked is not None else 0)
        return True

    site.applier.tell_refused = tell
    for _ in range(3):
        site.round()
    assert counts == [0, 2]
    site.channel.put_note(Note("ack", STREAM, "seattle"), None)
    site.round()
    assert counts == [0, 2, 0]


def test_the_sender_of_an_idle_stream_is_told_of_a_copy() -> None:
    """At once, and once: the letters before it need nothing any more, and it may have rows that
    were refused. Again by a receiver that starts behind it, as the one before may have died. Fails
    when a row is missing at the site and the sender, status and check know nothing of it."""
    site = Site(1)
    site.target.letters_per_apply = 2
    told = list[bool]()

    def tell(at_once: bool) -> bool:
        told.append(at_once)
        return True

    site.applier.tell_refused = tell
    site.applier.copy_taken()
    assert told == [] and site.acked() is None
    site.round()
    assert told == [False]
    ledger, copies = site.applier.ledger, f"{STREAM}~copy~seattle"
    ledger.dead_letters[copies], ledger.copied = 1, 1
    for _ in range(2):
        site.applier.copy_taken()
        site.round()
        answer = site.acked()
        assert answer is not None and answer.dead_letters == 3
    assert told == [False, True]
    site.applier = site.new()
    site.applier.tell_refused, site.applier.ledger.copied = tell, 1
    site.round()
    assert told == [False, True, True]


# --- a crash between any two steps ----------------------------------------------------------------


@pytest.mark.parametrize("steps", range(1, len(STEPS) + 1))
def test_f23_f24_f25_a_crash_after_any_step_changes_nothing(steps: int) -> None:
    """Invariants 5 and 6.

    Fails when the ack goes before the write, or the apply number is not fixed at step 1.
    """
    site = Site(1, 2)
    attempt = site.applier.round()
    for step in range(steps):
        assert next(attempt) == STEPS[step]
        assert site.applied() == (2 if STEPS[step] == "apply.8 acked" else 0)
    attempt.close()
    assert site.target.open_work == 0
    site.applier = site.new()
    outcome = site.round()
    assert (outcome.applied, outcome.held) == (2, None)
    assert site.target.written == [[1, 2]]
    assert len(site.store.rows) == 1
    publish(site.log, 3)
    site.round()
    assert site.target.written == [[1, 2], [3]]


def test_f24_redelivered_epochs_are_answered_from_the_ledger() -> None:
    """The ack was lost."""
    site = Site(1, 2)
    site.round()
    ack(site.log, "seattle", 0)
    site.applier = site.new()
    outcome = site.round()
    assert (outcome.duplicates, outcome.epochs, site.applied()) == (2, 0, 2)
    assert site.target.written == [[1, 2]]


def test_what_an_apply_leaves_out_is_in_its_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all its epochs. Fails when a target that cannot count its events reports none, or when
    what a plan has passed over is lost behind an apply."""
    site = Site(1, 2)
    assert site.round().not_applied == NotApplied(uncounted=2)

    def resolve(change: Change) -> None:
        change.superseded, change.covered = 3, 4

    monkeypatch.setattr(site.target, "resolve", resolve)
    publish(site.log, 3, addressees=("tacoma",), frames=0, first_version=20, last_version=19)
    publish(site.log, 4, first_version=20, last_version=29)
    expected = NotApplied(superseded=3, covered=4, elsewhere=1)
    assert site.round().not_applied == expected
    assert site.round().not_applied == NotApplied()


@pytest.mark.parametrize("at", STEPS[:6])
def test_f08_two_receivers_apply_each_epoch_once(at: str) -> None:
    """The slow one's apply number is used: its write is skipped, and it goes back to step 1.

    Fails when the apply number is taken right before the write.
    """
    site = Site(1, 2)
    slow = site.applier.round()
    while next(slow) != at:
        pass
    other = site.new()
    run(other.round())
    publish(site.log, 3)
    run(other.round())
    outcome = run(slow)
    run(site.new().round())
    assert sorted(number for written in site.target.written for number in written) == [1, 2, 3]
    assert outcome.held is None
    assert site.applied() == 3


def test_a_skipped_write_is_not_acked() -> None:
    """Another receiver used the apply number, for fewer epochs.

    Fails when the token is not checked after the write: epochs that no receiver applied are acked,
    and trimmed.
    """
    site = Site(1, 2, 3)
    slow = site.applier.round()
    while next(slow) != "apply.5 recorded":
        pass
    run(site.new(max_epochs=1).round())
    assert site.target.written == [[1]]
    outcome = run(slow)
    assert site.target.written == [[1], [2, 3]]
    assert (outcome.applied, site.applied()) == (3, 3)


# --- conflicts and cancellations ------------------------------------------------------------------


def test_f26_a_conflict_goes_back_to_step_1() -> None:
    site = Site(1)
    site.target.before_write = [conflict, conflict]
    steps = list(site.applier.round())
    assert steps.count("apply.1 caught-up") == 3
    assert site.target.written == [[1]]
    assert len(site.target.recorded) == 1


def test_an_apply_whose_write_fails_is_recorded_once() -> None:
    """Fails when each attempt records again: the ledger grows by an epoch's event IDs every 30 s.

    Not with dead letters, which may be other rows by then; nor once another receiver has applied.
    """
    site = Site(1)
    site.target.before_write = [raising(TargetError("the disk is full"))] * 6
    for _ in range(3):
        assert site.round().held == 1
    assert len(site.target.recorded) == 1
    site.target.letters_per_apply = 1
    site.round()
    assert len(site.target.recorded) > 1
    site.target.letters_per_apply = 0
    site.target.before_write = []
    assert site.round().applied == 1
    (token,) = {row.mark.token for row in site.store.rows}
    assert site.target.recorded[-1] == (1, token)


def test_a_frame_that_only_tasks_cannot_read_holds_the_stream_with_its_cause() -> None:
    """The executors do not share a directory.

    Fails when the driver's success counts each time: after 20 attempts, the hold names conflicts
    with other writers.
    """
    site = Site(1)
    read, looks = site.target.read, []

    def fails(*args: Any) -> Any:
        looks.append(args)
        raise FrameError("frames/a.frame: not there")

    site.target.read = fails  # type: ignore[method-assign]
    outcome = site.round()
    assert (outcome.held, len(looks)) == (1, 2)
    assert "frames/a.frame: not there" in str(
        outcome.cause
    ) and "executors reach the channel" in str(outcome.cause)
    site.target.read = read  # type: ignore[method-assign]
    assert site.round().applied == 1


def test_frames_that_are_unreadable_for_a_moment_do_not_hold() -> None:
    """Now and then, over weeks.

    Fails when the second time holds the stream and blames the executors.
    """
    site = Site()
    read, looks = site.target.read, [0]

    def fails_once(*args: Any) -> Any:
        looks[0] += 1
        if looks[0] % 2:
            raise FrameError("frames/a.frame: the store throttles")
        return read(*args)

    site.target.read = fails_once  # type: ignore[method-assign]
    for number in (1, 2, 3):
        publish(site.log, number)
        site.target.put(None, "OPTIMIZE")  # so that no round rests on a hint, and is made again
        outcome = site.round()
        assert (outcome.held, outcome.applied) == (None, number)


@pytest.mark.parametrize("where", ["resolve", "record"])
def test_f55_the_ledger_is_read_again_after_any_of_its_errors(where: str) -> None:
    """A running receiver meets a damaged file of event IDs, and the ledger is restored as advised.

    Fails when the ledger is read again only after errors of :meth:`Ledger.catch_up`: replays of the
    lost IDs are applied again.
    """
    user = {"kind": EVENTS, "first_version": -1, "last_version": -1}
    site = Site()
    read = site.target.read

    def of_a_user(change: Change, *more: Any) -> None:
        read(change, *more)
        change.new_ids = 2

    def recorded(change: Change, mark: Mark) -> None:
        site.store.tokens_with_ids.add(mark.token)

    site.target.read, site.target.record = of_a_user, recorded  # type: ignore[method-assign]
    for number in (1, 2, 3):
        publish(site.log, number, **{**user, "start": number == 1})
        assert site.round().applied == number
        if number == 1:
            backup = set(site.store.tokens_with_ids)
    publish(site.log, 4, **user, start=False)
    works = getattr(site.target, where)

    def damaged(*_: Any) -> None:
        raise LedgerError("the ledger cannot be read: restore it")

    setattr(site.target, where, damaged)
    assert site.round().held == 4
    setattr(site.target, where, works)
    site.store.tokens_with_ids = backup
    outcome = site.round()
    assert (outcome.applied, outcome.held) == (3, 4)
    assert "has lost the 2 event IDs of apply 2" in str(outcome.cause)


def test_the_ack_counts_dead_letters_of_copies() -> None:
    """Their streams end once they are taken. Fails when a row that a copy brought is refused, and
    no status and no check says so."""
    site = Site(1)
    site.round()
    counts = {STREAM: 4, f"{STREAM}~copy~seattle": 2, "hub.on.orders~copy~seattle": 1}
    with patch.object(site.applier.ledger, "dead_letters", counts, create=True):
        for stream, expected in ((STREAM, 7), (f"{STREAM}~copy~seattle", 2)):
            site.applier.log = StreamLog(site.channel, stream)
            assert site.applier._dead_letters(None) == expected
        site.applier.log = StreamLog(site.channel, "newark.west.orders")
        assert site.applier._dead_letters(site.acked()) == 3


def test_the_ack_keeps_its_dead_letters_while_the_ledger_cannot_be_read() -> None:
    site = Site(1)
    site.target.letters_per_apply = 7
    site.round()
    answer = site.acked()
    assert answer is not None and answer.dead_letters == 7
    site.applier = site.new()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LedgerRows, "load", lambda *_: raising(LedgerError("not now"))())
        publish(site.log, 2)
        site.round()
    answer = site.acked()
    assert answer is not None and (answer.held, answer.dead_letters) == (2, 7)


def test_f55_a_stream_that_may_have_been_applied_before_is_no_first_contact() -> None:
    """The ledger has lost marks of an earlier version, and the history no longer has them.

    The ledger has marks of another stream into the same table. Fails when a stream without progress
    counts as new: epochs that another site has not acked yet are applied again. Also fails when a
    running receiver does not notice a restored ledger.
    """
    site = Site(1)
    site.round()
    other = StreamLog(site.channel, "newark.west.orders")
    west = TableApplier(
        "seattle",
        "orders",
        other,
        site.target,
        Ledger("seattle", "orders", site.store, clock=Clock()),
    )
    publish(other, 1, table_id="another", log_id="b" * 32, origin="denver")
    assert run(west.round()).applied == 1
    of_earlier_version(site.target, site.store)
    rows = site.store.rows
    site.store.rows, site.target.commits = rows[1:], site.target.commits[-1:]
    site.applier = site.new()
    outcome = site.round()
    assert outcome.epochs == 0
    assert "has lost marks of table orders, and knows nothing of this stream" in str(outcome.cause)
    site.store.rows = rows
    outcome = site.round()
    assert (outcome.held, outcome.applied) == (None, 1)
    assert site.target.written == [[1], [1]]


def test_f26_endless_conflicts_hold_the_stream_for_a_while() -> None:
    site = Site(1)
    site.target.before_write = [conflict] * ATTEMPTS
    outcome = site.round()
    assert (outcome.held, site.applied()) == (1, 0)
    assert f"{ATTEMPTS} writes in a row lost" in str(outcome.cause)
    assert site.round().applied == 1


def stop() -> None:
    raise StoppedError("stopped")


@pytest.mark.parametrize("where", ["before", "between", "write"])
def test_a_cancellation_is_neither_held_nor_acked(where: str) -> None:
    """Fails when StoppedError is caught like other errors of the stream."""
    site = Site(1)
    asked: list[Callable[[], None]] = [stop] if where == "before" else [lambda: None, stop]
    site.applier.check_stopped = lambda: asked.pop(0)() if asked else None
    if where == "write":
        asked.clear()
        site.target.before_write = [stop]
    with pytest.raises(StoppedError):
        site.round()
    assert (site.acked(), site.target.written, site.target.open_work) == (None, [], 0)
    assert site.round().applied == 1


# --- what holds the stream ------------------------------------------------------------------------


def test_f31_an_error_of_the_table_holds_the_stream_and_is_retried() -> None:
    site = Site(1, 2)
    site.target.before_write = [raising(TargetError("orders: the disk is full"))]
    outcome = site.round()
    assert (outcome.held, outcome.cause, outcome.applied) == (1, "orders: the disk is full", 0)
    held = site.acked()
    assert held is not None and held.since is not None and held.passes
    assert replace(held, since=None, passes=False) == Ack(
        "seattle", STREAM, MANIFEST.log_id, 0, 1, "orders: the disk is full"
    )
    assert site.round().applied == 2
    assert site.acked() == Ack("seattle", STREAM, MANIFEST.log_id, 2)


@pytest.mark.parametrize("bad", [1, 2, 3])
def test_f20_a_bad_frame_holds_the_stream_there_and_earlier_epochs_are_applied(bad: int) -> None:
    """Fails when the whole plan waits for the bad frame, or when it is skipped."""
    site = Site(1, 2, 3)
    path = delete_frame(site, bad)
    outcome = site.round()
    before = list(range(1, bad))
    assert site.target.written == ([before] if before else [])
    assert (outcome.held, outcome.applied, site.applied()) == (bad, bad - 1, bad - 1)
    assert path in str(outcome.cause)
    again = site.round()
    assert (again.held, again.applied) == (bad, bad - 1)
    assert len(site.target.written) == (1 if before else 0)


def test_f20_a_restored_frame_is_applied() -> None:
    site = Site(1, 2)
    frame = site.log.read(2).frames[0]
    data = site.channel.get_frame(frame.path)
    delete_frame(site, 2)
    site.round()
    _, _, name = frame.path.rpartition("/")
    attempt, _, index = name.removesuffix(".frame").rpartition("-")
    site.channel.put_frame(STREAM, attempt, int(index), data)
    assert site.round().applied == 2
    assert site.target.written == [[1], [2]]


def test_f20_a_truncated_frame_is_held_by_name() -> None:
    site = Site()
    inner, site.channel = (
        site.channel,
        FaultyChannel(site.channel, [Fault("put_frame", 1, "truncate")]),
    )
    site.log.channel = site.target.channel = site.channel
    (published,) = publish(site.log, 1)
    outcome = site.round()
    assert outcome.held == 1
    assert published.frames[0].path in str(outcome.cause)
    assert inner.get_frame(published.frames[0].path)


def test_f20_an_altered_manifest_holds_the_stream_there() -> None:
    site = Site(1)
    site.channel.append(STREAM, 2, b"WANM 1 00000000\n{}")
    outcome = site.round()
    assert (outcome.held, outcome.applied, site.target.written) == (2, 1, [[1]])
    assert "manifest 2" in str(outcome.cause)


def test_a_manifest_for_another_table_is_held() -> None:
    site = Site(1)
    site.log.append(manifest(2, table="cities", previous=site.log.read(1).fingerprint))
    outcome = site.round()
    assert (outcome.held, outcome.applied) == (2, 1)
    assert "is for table cities, not orders" in str(outcome.cause)


def test_f16_a_gap_in_the_log_is_held_and_acked_epochs_stay_acked() -> None:
    """Fails when an unreadable log counts as one without applied epochs: the ack would go back to
    0.
    """
    site = Site(1, 2)
    site.round()
    publish(site.log, 3, 4)
    site.channel.trim_manifest(STREAM, 3)
    outcome = site.round()
    assert (outcome.held, outcome.applied, site.applied()) == (4, 2, 2)
    answer = site.acked()
    assert (
        answer is not None
        and "begins at version 30, but this site has applied only through 19" in str(answer.cause)
    )


def test_f15_an_unreachable_channel_revokes_no_ack() -> None:
    site = Site(1, 2)
    site.round()
    publish(site.log, 3)
    # Twice: what rested on a hint is checked again.
    site.log.channel = FaultyChannel(
        site.channel, [Fault("stream_epochs", nth, "fail") for nth in (1, 2, 3)]
    )
    outcome = site.round()
    assert (outcome.held, outcome.applied, site.applied()) == (3, 2, 2)
    assert site.round().applied == 3


def test_the_history_is_not_read_while_the_target_seems_unchanged() -> None:
    site = Site(1)
    site.round()
    read_history, asked = site.target.history, []

    def history(after: int) -> Any:
        asked.append(len(site.target.written))
        return read_history(after)

    site.target.history = history  # type: ignore[method-assign]
    publish(site.log, 2)
    assert site.round().applied == 2
    assert asked == [2]  # only after the write
    site.target.put(None, "WRITE")
    publish(site.log, 3)
    assert site.round().applied == 3
    assert asked == [2, 2, 3]


@pytest.mark.parametrize("table_id", ["target-1", "target-2"])
def test_f32_a_replaced_table_stays_held(table_id: str) -> None:
    """It was restored or recreated, and written to until it had as many versions.

    Fails when it seems unchanged the second time, since its history was read the first time: rows
    are written to it.
    """
    site = Site(1)
    site.round()
    publish(site.log, 2)
    newest = site.target.commits[-1].version
    site.target.id = table_id
    site.target.commits = [commit(version, "WRITE", rows=7) for version in range(newest + 1)]
    for _ in range(3):
        outcome = site.round()
        assert (outcome.held, outcome.applied, site.target.written) == (2, 1, [[1]])


@pytest.mark.parametrize("trimmed", [False, True])
def test_a_wrong_hint_does_no_harm(trimmed: bool) -> None:
    """The target seems unchanged, but another receiver has applied; the sender may have trimmed.

    Fails when a round that rests on a hint is not repeated before it holds, or when the history is
    not read after a write.
    """
    site = Site(1)
    site.round()
    publish(site.log, 2, 3)
    run(site.new().round())
    publish(site.log, 4)
    site.target.is_unchanged = lambda version: True  # type: ignore[method-assign]
    if trimmed:
        site.channel.trim_manifest(STREAM, 1)
        for number in (2, 3):
            delete_frame(site, number)
            site.channel.trim_manifest(STREAM, number)
    outcome = site.round()
    assert (outcome.held, outcome.applied) == (None, 4)
    assert site.target.written == [[1], [2, 3], [4]]


def test_an_outdated_listing_does_not_hold() -> None:
    """Since then another receiver applied more, and the sender trimmed.

    Fails when the plan is not made again.
    """
    site = Site(1, 2, 3)
    run(site.new().round())
    for number in (1, 2):
        site.channel.trim_manifest(STREAM, number)
    outcome = site.round([1, 2])
    assert (outcome.held, outcome.applied, site.applied()) == (None, 3, 3)


def test_an_unexpected_error_holds_the_stream_where_it_is() -> None:
    site = Site(1)
    site.round()
    outcome = site.applier.unexpected("orders: KeyError: 'x'")
    assert (outcome.held, outcome.applied) == (2, 1)
    held = site.acked()
    assert held is not None and held.passes
    assert replace(held, since=None, passes=False) == Ack(
        "seattle", STREAM, MANIFEST.log_id, 1, 2, "orders: KeyError: 'x'"
    )


def test_an_ack_says_since_when_it_is_held_and_whether_that_may_pass() -> None:
    """While it is, whatever the cause; anew if it is held once more, or for what may pass after
    what does not. A copy that is needed does not come by itself. Fails when each retry begins anew:
    nothing is ever held for long; or when a blip after a long hold counts as failed at once."""
    site = Site(1, 2)
    clock = Clock()
    site.applier._answer.clock = clock
    full = TargetError("orders: the disk is full")
    changed = SchemaError("orders: a column was dropped")
    lost = TargetError("orders: restored", needs=TABLE)
    began = clock()
    slow = TargetError("orders: slow")
    for error, passes, anew in (
        (full, True, True),
        (slow, True, False),
        (changed, False, True),
        (lost, False, False),
        (full, True, True),
    ):
        began = clock() if anew else began
        site.target.before_write = [raising(error)] * 3
        site.round()
        acked = site.acked()
        assert acked is not None and (acked.cause, acked.since) == (str(error), began)
        assert acked.passes is passes
        clock.pass_seconds(60)
    site.target.before_write = []
    site.round()
    acked = site.acked()
    assert acked is not None and (acked.since, acked.passes) == (None, False)
    publish(site.log, 3)
    site.target.before_write = [raising(full)] * 3
    site.round()
    acked = site.acked()
    assert acked is not None and acked.since == clock() > began


@pytest.mark.parametrize("limit", ["LARGE_APPLY_ROWS", "LARGE_APPLY_BYTES"])
def test_a_large_apply_is_announced_until_it_is_acked(
    monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    """Fails when a site that has worked for an hour on one epoch seems not to answer, and when it
    still seems to work once it has acked."""
    site = Site(1)
    assert site.round().applied == 1
    publish(site.log, 2, 3, frames=2)
    frames = [frame for epoch in (2, 3) for frame in site.log.read(epoch).frames]
    size = sum(frame.rows if limit == "LARGE_APPLY_ROWS" else frame.bytes for frame in frames)
    monkeypatch.setattr(f"spark_wan.apply.applier.{limit}", size)
    seen: list[Ack | None] = []
    site.target.before_write = [lambda: seen.append(site.acked())]
    assert site.round().applied == 3
    assert seen == [Ack("seattle", STREAM, MANIFEST.log_id, 1, working=2)]
    assert site.acked() == Ack("seattle", STREAM, MANIFEST.log_id, 3)

    publish(site.log, 4)  # a smaller one is not
    site.target.before_write = [lambda: seen.append(site.acked())]
    assert site.round().applied == 4
    assert seen[1] == Ack("seattle", STREAM, MANIFEST.log_id, 3)


def test_an_apply_that_cannot_be_announced_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails when a channel that refuses the announcement keeps the rows from the table."""
    monkeypatch.setattr("spark_wan.apply.applier.LARGE_APPLY_ROWS", 1)
    site = Site(1)
    site.log.channel = FaultyChannel(site.channel, [Fault("put_ack", 1, "fail")])
    outcome = site.round()
    assert (outcome.epochs, outcome.held, site.applied()) == (1, None, 1)


def test_an_announcement_takes_no_ack_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another receiver has applied and acked more, and the target seems unchanged: the write will
    find out. Fails when the ack says meanwhile that the site has less."""
    site = Site(1)
    site.round()
    publish(site.log, 2, 3)
    run(site.new().round())
    publish(site.log, 4)
    monkeypatch.setattr("spark_wan.apply.applier.LARGE_APPLY_ROWS", 1)
    site.target.is_unchanged = lambda version: True  # type: ignore[method-assign]
    seen: list[tuple[int, int | None]] = []
    put_ack = site.log.put_ack

    def put(ack: Ack) -> None:
        seen.append((ack.applied, ack.working))
        put_ack(ack)

    site.log.put_ack = put  # type: ignore[method-assign]
    assert site.round().applied == 4
    assert seen == [(3, 4), (4, None)]


def test_a_failed_ack_is_written_by_the_next_round() -> None:
    site = Site(1)
    site.log.channel = FaultyChannel(site.channel, [Fault("put_ack", 1, "fail")])
    with pytest.raises(ChannelError):
        site.round()
    assert (site.target.written, site.acked()) == ([[1]], None)
    outcome = site.round()
    assert (outcome.epochs, site.applied(), site.target.written) == (0, 1, [[1]])


def test_f08_frames_trimmed_after_another_receiver_applied_them_do_not_hold() -> None:
    """This receiver had planned; the other one applied and acked, and the sender trimmed.

    Fails when the ledger is not read again: the hold names a missing frame.
    """
    site = Site(1, 2)
    real = site.target.read

    def read(change: Any, applied: Any) -> Any:
        site.target.read = real  # type: ignore[method-assign]
        run(site.new().round())
        for number in (1, 2):
            delete_frame(site, number)
        return real(change, applied)

    site.target.read = read  # type: ignore[method-assign]
    outcome = site.round()
    assert (outcome.applied, outcome.held, site.target.written) == (2, None, [[1, 2]])
    answer = site.acked()
    assert answer is not None and (answer.applied, answer.held) == (2, None)
