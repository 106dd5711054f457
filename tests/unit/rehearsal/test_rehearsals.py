"""Rehearsals of sender and receiver: what they would do, and that they write nothing."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import pytest
from fakes import STREAM, Clock, LedgerRows, Target, memory_channel, publish
from publishing import Site
from topologies import topology

from spark_wan.apply.applier import TableApplier
from spark_wan.apply.change import Change
from spark_wan.apply.plan import PlannedEpoch
from spark_wan.channels.base import Note
from spark_wan.delta.tables import milliseconds_of
from spark_wan.errors import HistoryLostError, SchemaError, SourceError
from spark_wan.ledger.applied_columns import AppliedColumns
from spark_wan.ledger.ledger import Ledger
from spark_wan.log.stream_log import StreamLog
from spark_wan.rehearsal.applying import Rehearsed, next_of
from spark_wan.rehearsal.findings import Finding, Verdict
from spark_wan.rehearsal.nowhere import (
    NoChannel,
    NoCheckpoints,
    UnwrittenAck,
    UnwrittenCheckpoints,
    UnwrittenLog,
)
from spark_wan.rehearsal.sending import Captured, repeated, retention_of, start_of, wanted_of
from spark_wan.sender.publish import Publisher
from spark_wan.topology.routes import all_streams
from spark_wan.wire.control import AT_TIME, AT_VERSION, DRAIN, NEWEST, PAUSE, Control, End, Scope
from spark_wan.wire.ledger import DeadLetter

# --- the sender


def rehearsed(site: Site) -> Publisher:
    """A publisher as a check has it, of which nothing must reach the site."""
    site.source.channel = NoChannel("nowhere")
    return Publisher(
        site.settings,
        UnwrittenLog(site.channel, STREAM),
        site.source,
        UnwrittenCheckpoints(site.checkpoints),
        site.clock,
        lambda: site.decisions,
        wanted=lambda: site.wanted,
        wanted_before=lambda: site.wanted,
    )


def checked(site: Site, captured: Captured | None = None) -> list[Finding]:
    """Rehearse what the site has to send. Nothing is written."""
    before = site.inner.epochs(), site.inner.frames(STREAM), dict(site.checkpoints.kept)
    found = start_of(rehearsed(site), captured or Captured())
    after = site.inner.epochs(), site.inner.frames(STREAM), dict(site.checkpoints.kept)
    assert after == before
    return found


def test_all_epochs_that_a_sender_has_to_send_are_rehearsed() -> None:
    site = Site(max_epoch_rows=1)
    for _ in range(4):
        site.source.add()
    (found,) = checked(site)
    assert found == Finding("start", Verdict.OK, "all that is to be sent can be: 5 epochs")
    assert site.published().epoch == 1  # and the stream begins with its first one


def test_a_fault_behind_what_can_be_sent_is_found() -> None:
    site = Site()
    site.source.add()
    site.source.add("TRUNCATE")
    (found,) = checked(site)
    assert found.verdict is Verdict.FAILED and "version 2 is a TRUNCATE" in found.text
    site.restart()
    site.round()
    site.held(SourceError, "version 2 is a TRUNCATE")


def test_a_stream_that_has_sent_everything_is_checked_by_its_log() -> None:
    site = Site()
    site.rounds()
    assert checked(site)[0].text == "nothing is to be sent now"
    site.source.id = "another table"
    site.source.commits = [replace(site.source.commits[0], time=5)]
    (found,) = checked(site)
    assert found.verdict is Verdict.FAILED and "It was dropped and created again" in found.text


def test_a_log_that_was_lost_is_found_by_the_checkpoint() -> None:
    site = Site()
    site.rounds()
    site.inner.remove(STREAM)
    (found,) = checked(site)
    assert found.verdict is Verdict.FAILED and "is gone" in found.text


def test_writers_that_commit_all_the_time_are_not_waited_for() -> None:
    site = Site()
    capture = site.source.capture

    def committing(*args: Any) -> Any:
        if len(site.source.commits) < 20:
            site.source.add()
        return capture(*args)

    site.source.capture = committing  # type: ignore[method-assign]
    (found,) = checked(site)
    assert found.verdict is Verdict.OK and len(site.source.commits) < 5


def test_copies_in_place_of_a_lost_history_are_a_warning() -> None:
    site = Site()
    site.rounds()
    for _ in range(3):
        site.source.add()
    del site.source.commits[:2]
    (found,) = checked(site)
    assert found.verdict is Verdict.WARNING
    assert "gets a copy of the table instead" in found.text
    site.restart()
    assert site.published().frames == () and site.publisher.gone_over is not None
    assert isinstance(site.publisher.gone_over, HistoryLostError)


def test_rows_that_cannot_be_sent_are_counted() -> None:
    captured = Captured(is_read=True)
    letter = DeadLetter(
        **dict.fromkeys(DeadLetter.__dataclass_fields__),  # type: ignore[arg-type]
    )
    cause = replace(letter, cause="null_in_key", origin_version=3, row='{"id": null}')
    twin = replace(cause, cause="duplicate_key")
    captured.note_dead_letters([cause, twin, cause])
    _, rows = checked(Site(), captured)
    assert rows.check == "rows" and rows.verdict is Verdict.WARNING
    assert "2 rows cannot be sent" in rows.text and "null_in_key in version 3" in rows.text
    _, rows = checked(Site(), Captured(is_read=True))
    assert rows == Finding("rows", Verdict.OK, "all rows that are to be sent now can be sent")


def test_keys_that_several_rows_have_are_a_warning() -> None:
    table = topology().table("flights")
    assert repeated(table, 0).verdict is Verdict.OK
    found = repeated(table, 1_200)
    assert found.verdict is Verdict.WARNING and "1,200 keys have several rows" in found.text


@pytest.mark.parametrize(
    ("properties", "verdict", "says"),
    [
        ({}, Verdict.OK, "for 7 d"),
        (
            {"delta.deletedFileRetentionDuration": "interval 21 days"},
            Verdict.OK,
            "for 21 d",
        ),
        (
            {"delta.deletedFileRetentionDuration": "interval 2 days"},
            Verdict.WARNING,
            "longer than 2 d cannot send",
        ),
        (
            {"delta.logRetentionDuration": "interval 20 days"},
            Verdict.WARNING,
            "delta.logRetentionDuration is interval 20 days (advised: 30 days or more)",
        ),
    ],
)
def test_retentions_below_those_of_delta_are_a_warning(
    properties: dict[str, str], verdict: Verdict, says: str
) -> None:
    found = retention_of("orders", properties, milliseconds_of)
    assert found.verdict is verdict and says in found.text


def test_pauses_and_ends_are_told_by_stream() -> None:
    flights, readings = all_streams(topology())
    nobody = Control()
    assert [*wanted_of(flights, nobody)] == []
    asked = {"generation": 4, "by": "ann", "at": 1}
    paused = nobody.following(PAUSE, Scope("east", "flights"), **asked, capture=True)  # type: ignore[arg-type]
    (found,) = wanted_of(flights, paused)
    assert (found.check, found.verdict) == ("pause", Verdict.WARNING)
    assert "paused by ann (request 4)" in found.text and "the sender adds nothing" in found.text
    assert [*wanted_of(readings, paused)] == []
    for end, says in (
        (End(NEWEST), "the newest one"),
        (End(AT_VERSION, 41), "version 41"),
        (End(AT_TIME, 5), "a time"),
    ):
        ended = nobody.following(DRAIN, Scope(), **asked, end=end)  # type: ignore[arg-type]
        (found,) = wanted_of(readings, ended)
        assert found.check == "end" and says in found.text


def test_a_channel_that_is_nowhere_keeps_nothing_also_in_tasks() -> None:
    channel = pickle.loads(pickle.dumps(NoChannel("nowhere")))
    channel.prepare()
    path = channel.put_frame(STREAM, "a" * 32, 0, b"frame")
    channel.put_note(Note("head", STREAM), b"{}")
    assert channel.frames(STREAM) == [] and channel.foreign() == []
    assert not channel.is_begun() and channel.frame_time(path) is None
    assert StreamLog(channel, STREAM).newest_manifest() is None
    assert NoCheckpoints().load(STREAM) is None


# --- the receiver


class Untouched(Target):
    """A target to which a rehearsal would write: that ends it."""

    def create(self, epoch: PlannedEpoch) -> None:
        raise Rehearsed("created")

    def read(self, change: Change, applied: AppliedColumns) -> None:
        raise Rehearsed("read")


def applier_of(target: Target, *epochs: int, **changes: Any) -> TableApplier:
    log = StreamLog(memory_channel(), STREAM)
    publish(log, *epochs, **changes)
    ledger = Ledger("seattle", "orders", LedgerRows(), clock=Clock())
    answer = UnwrittenAck("seattle", log)
    return TableApplier("seattle", "orders", log, target, ledger, answer=answer)


def applied(applier: TableApplier, asks: bool = False) -> Finding:
    found = next_of(applier, asks=asks)
    assert applier.log.acks() == {}
    return found


def test_an_epoch_that_can_be_applied_is_not() -> None:
    there, absent = Untouched(memory_channel()), Untouched(memory_channel(), None)
    for target in (there, absent):
        assert applied(applier_of(target, 1)).text.endswith("the next epoch can be applied")
        assert target.written == []
    assert applied(applier_of(there)).text.endswith("there is nothing to apply now")


def test_what_holds_a_receiver_is_found_and_not_acked() -> None:
    class Narrow(Target):
        def read(self, change: Change, applied: AppliedColumns) -> None:
            raise SchemaError("the column is narrower")

    found = applied(applier_of(Narrow(memory_channel()), 1))
    assert found == Finding("stream", Verdict.FAILED, "the column is narrower")


def test_a_site_that_asks_for_a_copy_by_itself_is_a_warning() -> None:
    target = Untouched(memory_channel())
    held = applied(applier_of(target, 1, start=False))
    assert held.verdict is Verdict.FAILED and "has nothing of the table yet" in held.text
    asks = applied(applier_of(target, 1, start=False), asks=True)
    assert asks.verdict is Verdict.WARNING and "asks for a copy by itself" in asks.text
