"""Tables may be idle for longer than their log keeps commits, at both ends."""

from __future__ import annotations

import random
from typing import Any

import pytest
import receivers
from capturing import delta_source, orders
from fakes import Clock, LedgerRows, Target, memory_channel
from ledgers import ORIGIN, held, ledger, mark, target
from publishing import Site

from spark_wan.delta import tables
from spark_wan.delta.commits import DAY, record_after
from spark_wan.delta.sessions import CurrentSession
from spark_wan.delta.tables import milliseconds_of
from spark_wan.errors import (
    ChannelError,
    LedgerError,
    SourceUnreadableError,
    StoppedError,
    TableReplacedError,
)
from spark_wan.ledger.ledger import Ledger
from spark_wan.target import delta_table as target_module
from spark_wan.target.delta_table import DeltaTarget
from spark_wan.wire.mark import LOCAL_ONLY, Mark

HOUR = DAY // 24


def test_commits_are_recorded_after_a_day_or_a_quarter_of_the_retention() -> None:
    assert [record_after(days * DAY) // HOUR for days in (30, 7, 4, 2, 0)] == [24, 24, 24, 12, 0]


# --- the source -----------------------------------------------------------------------------------


def quiet(site: Site, days: int, restarts: bool, retention: int = 30) -> None:
    """One maintenance commit and one poll each day; the log keeps ``retention`` days."""
    for _ in range(days):
        site.clock.pass_seconds(86_400)
        now = site.clock()
        site.source.add("OPTIMIZE", time=now)
        kept = [each for each in site.source.commits if each.time >= now - retention * DAY]
        site.source.commits[:] = kept
        if restarts:
            site.restart()
        site.rounds()


@pytest.mark.parametrize("restarts", [False, True])
def test_f49_a_source_may_be_quiet_for_longer_than_its_log_keeps_commits(
    restarts: bool,
) -> None:
    """Its quiet commits are also recorded by time, before log cleanup deletes them.

    Also when the sender restarts each day.
    """
    site = Site()
    site.published()
    quiet(site, 40, restarts)
    site.source.add(time=site.clock())
    (manifest,) = site.rounds()
    assert manifest.rows == 1
    assert manifest.last_version == 41


def test_f49_quiet_commits_are_recorded_after_a_day() -> None:
    """One poll and one manifest, a day after the first quiet commit; nothing before or after."""
    site = Site()
    site.published()
    site.source.add("OPTIMIZE", time=site.clock())
    site.source.add(user_metadata=LOCAL_ONLY, time=site.clock())
    assert site.rounds() == []
    site.source.calls.clear()
    site.clock.pass_seconds(86_400 - 1)
    assert site.rounds() == []
    assert site.source.calls == ["look"]
    site.clock.pass_seconds(1)
    (recorded,) = site.rounds()
    assert (recorded.first_version, recorded.last_version, recorded.frames) == (1, 2, ())
    site.clock.pass_seconds(10 * 86_400)
    site.source.calls.clear()
    assert site.rounds() == []
    assert site.source.calls == ["look"]


def test_f49_quiet_commits_are_recorded_after_an_error() -> None:
    """Their files could not be read when they were due: the next round plans them again."""
    site = Site()
    site.published()
    site.source.add("OPTIMIZE", time=site.clock())
    assert site.rounds() == []
    site.clock.pass_seconds(86_400)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(site.source, "history", _unreadable)
        with pytest.raises(SourceUnreadableError):
            site.round()
    (recorded,) = site.rounds()
    assert (recorded.first_version, recorded.last_version) == (1, 1)


def test_f49_commits_with_an_empty_change_feed_are_recorded_after_an_error() -> None:
    """Fails when they are forgotten before their feed is read: log cleanup would delete them."""
    site = Site()
    site.published()
    site.source.add("STREAMING UPDATE", rows=0, time=site.clock())
    site.source.without_events = {1}
    assert site.rounds() == []
    site.clock.pass_seconds(86_400)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(site.source, "capture", lambda *_: _unreadable(1))
        with pytest.raises(SourceUnreadableError):
            site.round()
    (recorded,) = site.rounds()
    assert (recorded.first_version, recorded.last_version, recorded.frames) == (1, 1, ())


def _unreadable(after: int) -> None:
    raise SourceUnreadableError("orders: files cannot be read now")


def test_f49_quiet_commits_are_recorded_in_time_for_a_short_retention() -> None:
    site = Site()
    site.source.retention = 8 * HOUR
    site.published()
    site.source.add("OPTIMIZE", time=site.clock())
    assert site.rounds() == []
    site.clock.pass_seconds(2 * 3_600)
    assert len(site.rounds()) == 1


def test_f49_commits_with_an_empty_change_feed_are_recorded() -> None:
    """Updates that change nothing."""
    site = Site()
    site.published()
    site.source.add(time=site.clock())
    site.source.without_events = {1}
    assert site.rounds() == []
    site.clock.pass_seconds(86_400)
    (recorded,) = site.rounds()
    assert (recorded.first_version, recorded.last_version, recorded.frames) == (1, 1, ())


def test_commits_that_another_publisher_recorded_are_not_recorded_again() -> None:
    site = Site()
    site.published()
    site.source.add("OPTIMIZE", time=site.clock())
    other = site.new()
    assert site.rounds() == []
    site.clock.pass_seconds(86_400)
    site.publisher, own = other, site.publisher
    assert len(site.rounds()) == 1
    site.publisher = own
    assert site.rounds() == []
    site.source.calls.clear()
    assert site.rounds() == []
    assert site.source.calls == ["look"]


# --- the target -----------------------------------------------------------------------------------


def idle_target(days: int, restarts: bool, *operations: str) -> tuple[Target, LedgerRows, Any]:
    """A target with one apply, then one local commit a day, caught up daily; its log keeps 30."""
    clock, store = Clock(), LedgerRows()
    table, found = target(mark(1)), ledger(store, clock=clock)
    found.catch_up(table)
    for day in range(days):
        clock.pass_seconds(86_400)
        table.put(None, operations[day % len(operations)], time=clock())
        table.commits[:] = [each for each in table.commits if each.time >= clock() - 30 * DAY]
        if restarts:
            found = ledger(store, clock=clock)
        assert found.catch_up(table) == 2
    return table, store, found


@pytest.mark.parametrize("restarts", [False, True])
def test_f49_a_target_may_be_idle_for_longer_than_its_log_keeps_commits(
    restarts: bool,
) -> None:
    """How far its history was seen is recorded: a receiver that restarts each day needs no copy.

    The log's files cannot be read here, so that nothing else proves it. Fails when no
    ``HistoryPosition`` is appended, or none is read.
    """
    table, store, _ = idle_target(40, restarts, "OPTIMIZE", "WRITE")
    table.log_is_readable = False
    again = ledger(store)
    assert again.catch_up(table) == 2
    table.put(mark(2).user_metadata(), "MERGE")
    assert again.catch_up(table) == 3


def test_f49_seen_commits_are_recorded_once() -> None:
    clock, store = Clock(), LedgerRows()
    table, found = target(mark(1)), ledger(store, clock=clock)
    table.put(None, "OPTIMIZE", time=clock())
    for _ in range(5):
        found.catch_up(table)
    assert store.positions == []
    clock.pass_seconds(86_400)
    for _ in range(5):
        found.catch_up(table)
    assert [(each.target_version, each.target_id) for each in store.positions] == [(2, "target-1")]
    for each in (found, ledger(store, clock=clock)):
        clock.pass_seconds(86_400)
        each.catch_up(table)
    assert len(store.positions) == 1


def test_a_mark_covers_the_commits_before_it() -> None:
    clock, store = Clock(), LedgerRows()
    table, found = target(mark(1)), ledger(store, clock=clock)
    table.put(None, "OPTIMIZE", time=clock())
    found.catch_up(table)
    table.put(mark(2).user_metadata(), time=clock())
    clock.pass_seconds(3 * 86_400)
    found.catch_up(table)
    assert store.positions == []


def test_seen_commits_hide_no_mark() -> None:
    """Another receiver's marks, also of commits before those that this receiver has seen.

    The ledger was restored to before they were in it, with what was seen.
    """
    clock, store = Clock(), LedgerRows()
    table, found = target(mark(1)), ledger(store, clock=clock)
    table.put(None, "OPTIMIZE", time=clock())
    clock.pass_seconds(86_400)
    found.catch_up(table)
    older = LedgerRows(list(store.rows), list(store.positions))
    table.put(mark(2).user_metadata())
    table.put(None, "OPTIMIZE", time=clock())
    clock.pass_seconds(86_400)
    ledger(store, clock=clock).catch_up(table)
    assert [each.target_version for each in store.positions] == [2, 4]
    again = ledger(older, clock=clock)
    assert again.catch_up(table) == 3
    assert found.catch_up(table) == 3


@pytest.mark.parametrize("restarts", [False, True])
def test_f32_a_restore_to_before_the_seen_commits_is_noticed(restarts: bool) -> None:
    """The table was restored to before the last seen commit, and written to again.

    The commit's identity is compared, also after a restart.
    """
    clock, store = Clock(), LedgerRows()
    table, found = target(mark(1), mark(2)), ledger(store, clock=clock)
    table.put(None, "OPTIMIZE", time=clock())
    clock.pass_seconds(86_400)
    found.catch_up(table)
    del table.commits[2:]
    for _ in range(3):
        table.put(None, "MERGE")
    if restarts:
        found = ledger(store, clock=clock)
    held(
        found,
        table,
        TableReplacedError,
        "version 2 at site seattle is not the commit that the ledger knows",
    )


def test_seen_commits_of_a_table_restored_since_hide_no_mark() -> None:
    """It was restored to after the last mark. A receiver applied, and died before its ledger row.

    Fails when the commit's identity is not compared.
    """
    clock, store = Clock(), LedgerRows()
    table, found = target(mark(1)), ledger(store, clock=clock)
    for _ in range(3):
        table.put(None, "OPTIMIZE", time=clock())
    clock.pass_seconds(86_400)
    found.catch_up(table)
    assert [each.target_version for each in store.positions] == [4]
    del table.commits[3:]
    table.put(mark(2).user_metadata(), "MERGE")
    for _ in range(2):
        table.put(None, "WRITE")
    assert ledger(store).catch_up(table) == 3


def test_f32_a_table_restored_to_before_the_seen_commits_and_cleaned_is_held() -> None:
    """The seen commit is another one, and those before it are deleted: nobody knows their marks."""
    clock, store = Clock(), LedgerRows()
    table, found = target(mark(1)), ledger(store, clock=clock)
    for _ in range(4):
        table.put(None, "OPTIMIZE", time=clock())
    clock.pass_seconds(86_400)
    found.catch_up(table)
    del table.commits[4:]
    table.log_is_readable = False
    for _ in range(3):
        table.put(None, "MERGE", time=clock())
    del table.commits[:4]
    with pytest.raises(LedgerError, match="begins at version 4, the ledger ends at 1"):
        ledger(store, clock=clock).catch_up(table)


def test_a_restore_after_the_seen_commits_is_noticed_after_a_restart() -> None:
    table, store, _ = idle_target(3, False, "OPTIMIZE")
    table.put(None, "RESTORE")
    held(ledger(store), table, TableReplacedError, "is a RESTORE")


# --- log cleanup was faster than every receiver ---------------------------------------------------


@pytest.mark.parametrize("operation", ["OPTIMIZE", "RESTORE"])
def test_commits_deleted_by_log_cleanup_unseen_hold(operation: str) -> None:
    """By Delta's own transaction number none of them was an apply. But nobody knows what they were,
    and a RESTORE takes rows away. Fails when the stream goes on."""
    table, store = target(mark(1)), LedgerRows()
    ledger(store).catch_up(table)
    table.put(None, operation)
    for _ in range(5):
        table.put(None, "OPTIMIZE")
    table.commits = table.commits[-2:]
    for _ in range(2):
        held(
            ledger(store),
            table,
            TableReplacedError,
            "log cleanup has removed versions 2 to 5 .*spark-wan sync",
        )


def test_the_stream_goes_on_once_somebody_knows_that_there_was_no_restore() -> None:
    """And that is recorded: a later gap is another question. Fails when nothing but a copy helps,
    which a user stream may have nobody for."""
    table, store, clock = target(mark(1)), LedgerRows(), Clock()
    ledger(store, clock=clock).catch_up(table)
    for _ in range(6):
        table.put(None, time=clock())
    table.commits = table.commits[-2:]
    decided = {5}

    def process() -> Ledger:
        return Ledger("seattle", "orders", store, clock=clock, accepts_gap=decided.__contains__)

    with pytest.raises(TableReplacedError, match=r"decide orders@5=no-restore"):
        ledger(store).catch_up(table)
    found = process()
    assert (found.catch_up(table), found.local_commits) == (2, 6)
    assert ledger(store, clock=clock).catch_up(table) == 2
    for _ in range(3):
        table.put(None, time=clock())
    table.commits = table.commits[-1:]
    with pytest.raises(TableReplacedError, match=r"decide orders@9=no-restore"):
        process().catch_up(table)


def test_what_another_receiver_has_recorded_counts() -> None:
    """One was suspended for long. Fails when it holds the stream by what it has in memory."""
    table, store, clock = target(mark(1)), LedgerRows(), Clock()
    suspended, other = ledger(store, clock=clock), ledger(store, clock=clock)
    suspended.catch_up(table)
    table.put(None, "OPTIMIZE", time=clock())
    clock.pass_seconds(2 * 86_400)
    other.catch_up(table)
    table.put(None, "OPTIMIZE", time=clock())
    table.commits = table.commits[-1:]
    assert suspended.catch_up(table) == 2


@pytest.mark.parametrize("readable", [False, True])
def test_a_mark_deleted_by_log_cleanup_unseen_holds(readable: bool) -> None:
    """Another receiver applied, and died before its ledger row.

    Fails when the transaction number is not compared.
    """
    table, store = target(mark(1)), LedgerRows()
    ledger(store).catch_up(table)
    table.put(mark(2).user_metadata(), "MERGE")
    for _ in range(3):
        table.put(None, "OPTIMIZE")
    table.commits = table.commits[-2:]
    table.log_is_readable = readable
    held(
        ledger(store),
        table,
        LedgerError,
        "receiver may have applied in between.*spark-wan sync",
    )


@pytest.mark.parametrize(("number", "gap"), [(2, False), (3, True)])
def test_the_next_mark_shows_whether_one_is_missing(number: int, gap: bool) -> None:
    """Apply numbers have no gaps; nothing else needs to be read. Then a newer state of the ledger
    helps, and otherwise only a copy."""
    table, store = target(mark(1)), LedgerRows()
    ledger(store).catch_up(table)
    for _ in range(4):
        table.put(None, "OPTIMIZE")
    table.put(mark(number).user_metadata(), "MERGE")
    table.commits = table.commits[-2:]
    table.log_is_readable = False
    by_number = (LedgerError, r"the last apply was 1 by the ledger, 2 by the table's log")
    held(ledger(store), table, *(by_number if gap else (TableReplacedError, "None was an apply")))


def test_a_table_restored_to_before_the_last_apply_and_cleaned_holds() -> None:
    """Its transaction number is lower than the ledger's."""
    table, store = target(mark(1), mark(2)), LedgerRows()
    ledger(store).catch_up(table)
    table.transactions = dict.fromkeys(table.transactions, 1)
    for _ in range(4):
        table.put(None, "OPTIMIZE")
    table.commits = table.commits[-2:]
    held(
        ledger(store),
        table,
        LedgerError,
        "the last apply was 2 by the ledger, 1 by the table's log",
    )


# --- the receiver ---------------------------------------------------------------------------------


def test_f49_the_target_of_an_idle_stream_is_caught_up_daily(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its retention is looked at each hour, and its history is read once a day.

    With a short retention, four times per retention. Fails when it is never read again.
    """
    receivers_clock, clock = receivers.Clock(monkeypatch), Clock()
    channel = memory_channel()
    receivers.send(channel, "orders", 1)
    here = receivers.receiver(channel)
    here.apply()
    orders = here.tables.get("orders")
    found = orders._ledger
    assert found is not None
    found.clock, found.store = clock, LedgerRows()
    table = here.streams.get("orders").applier.target  # type: ignore[union-attr]
    looks: list[float] = []
    catch_up = found.catch_up

    def counted(of: Any, **options: Any) -> int | None:
        looks.append(clock())
        return catch_up(of, **options)

    monkeypatch.setattr(found, "catch_up", counted)
    table.put(None, "OPTIMIZE", time=clock())  # type: ignore[attr-defined]
    for retention, times in ((30 * DAY, 1), (DAY, 4)):
        table.retention = retention  # type: ignore[attr-defined]
        looks.clear()
        for _ in range(24 * 60):
            receivers_clock.now += 60
            clock.pass_seconds(60)
            here.apply()
        assert len(looks) in (times, times - 1)
    assert [each.target_version for each in found.store.positions] == [2]


def test_f49_a_target_is_read_while_its_channel_is_out_of_reach(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A partition may last for longer than the table keeps its history. Fails when the stream is
    held afterwards for commits that the receiver could have seen."""
    receivers_clock, clock = receivers.Clock(monkeypatch), Clock()
    channel = memory_channel()
    receivers.send(channel, "orders", 1)
    here = receivers.receiver(channel)
    here.apply()
    found = here.tables.get("orders")._ledger
    assert found is not None
    found.clock, found.store = clock, LedgerRows()
    table: Any = here.streams.get("orders").applier.target  # type: ignore[union-attr]
    table.put(None, "OPTIMIZE", time=clock())

    def refused(*_: object) -> Any:
        raise ChannelError("no route to host")

    with monkeypatch.context() as cut:
        cut.setattr(channel, "notes", refused)
        for _ in range(2 * 24 * 4):
            receivers_clock.now += 900
            clock.pass_seconds(900)
            here.apply()
    assert [each.target_version for each in found.store.positions] == [2]
    table.put(None, "OPTIMIZE", time=clock())
    table.commits = table.commits[-1:]
    receivers.send(channel, "orders", 2)
    here.apply()
    assert here.held() == {"orders": None}


# --- what Spark is asked --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "milliseconds"),
    [
        ("interval 30 days", 30 * DAY),
        ("interval 1 week", 7 * DAY),
        ("12 hours", 12 * HOUR),
        ("INTERVAL 1 DAY 90 MINUTES 1 second", DAY + 90 * 60_000 + 1_000),
        ("interval 0.5 days", DAY // 2),
        ("interval 0 hours", 0),
        ("for ever", 0),
    ],
)
def test_retentions_are_read_as_delta_writes_them(written: str, milliseconds: int) -> None:
    assert milliseconds_of(written) == milliseconds


@pytest.mark.parametrize("end", ["source", "target"])
def test_the_retention_of_a_log_is_read_once_a_day(
    end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, asked = [100.0], []
    monkeypatch.setattr(tables.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(
        tables, "table_detail", lambda spark, location, column: asked.append(location) or {}
    )
    nothing: Any = CurrentSession()
    table: Any = DeltaTarget(
        nothing, "seattle", "orders", "/orders", channel=memory_channel(), ledger=nothing
    )
    if end == "source":
        table = delta_source(table=orders("/orders"))
    for passed in (0.0, 3_600.0, 82_000.0, 3_600.0):
        now[0] += passed
        assert table.log_retention() == 30 * DAY
    assert asked == ["/orders"] * 2


def test_a_history_lasts_as_long_as_the_shorter_retention(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read with that of the log, or afresh where somebody may have raised it."""
    properties: dict[str, str] = {}
    asked: list[str] = []
    monkeypatch.setattr(
        tables, "table_detail", lambda spark, location, column: asked.append(location) or properties
    )
    table: Any = delta_source(table=orders("/orders"))
    assert (table.history_retention(), table.log_retention()) == (7 * DAY, 30 * DAY)
    properties["delta.deletedFileRetentionDuration"] = "interval 21 days"
    assert table.history_retention() == 7 * DAY and len(asked) == 1
    assert table.history_retention(afresh=True) == 21 * DAY
    properties["delta.logRetentionDuration"] = "interval 2 days"
    assert table.history_retention(afresh=True) == 2 * DAY and len(asked) == 3


def test_a_log_with_unreadable_files_has_no_last_transaction(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    nothing: Any = CurrentSession()
    place = "main.sales.orders"
    table = DeltaTarget(
        nothing, "seattle", "orders", place, channel=memory_channel(), ledger=nothing
    )
    errors: list[Exception] = [ValueError("PERMISSION_DENIED"), StoppedError("stopped")]

    def refused(*_: Any) -> int:
        raise errors.pop(0)

    monkeypatch.setattr(target_module, "last_transaction", refused)
    assert table.last_transaction("spark_wan/seattle/orders/1") is None
    assert "cannot be read (PERMISSION_DENIED)" in caplog.text
    with pytest.raises(StoppedError):
        table.last_transaction("spark_wan/seattle/orders/1")


# --- generated ------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(8))
def test_no_mark_is_hidden_and_no_stream_is_held_without_need(seed: int) -> None:
    """Applies, receivers that die before their ledger row, local commits, restarts, log cleanup.

    In any order, an apply gets the right number, or the stream is held. It is held exactly when log
    cleanup has deleted commits that the process has not read, by what it or the ledger knows: and
    a commit that a receiver saw when it was a day old is in the ledger.
    """
    for each in range(60):
        _idle_target_history(random.Random(f"{seed}/{each}"))


def _idle_target_history(chance: random.Random) -> None:
    clock, store, table = Clock(), LedgerRows(), target()
    table.log_is_readable = chance.random() < 0.5
    found, applies, lost, unseen = ledger(store, clock=clock), 0, False, False
    covered = seen = -1
    steps: list[str] = []
    for _ in range(40):
        step = chance.choice(
            ("catch up", "restart", "apply", "die", "local", "local", "days", "days", "days")
        )
        steps.append(step)
        if step == "days":
            clock.pass_seconds(chance.randint(1, 20) * 86_400)
        elif step == "local":
            table.put(None, "OPTIMIZE", time=clock())
        elif step == "restart":
            found, seen = ledger(store, clock=clock), -1
        else:
            durable = [each.target_version for each in (*store.rows, *store.positions)]
            try:
                number = found.catch_up(table)
            except LedgerError:
                assert lost or unseen, (steps, "held without need")
                return
            except TableReplacedError:
                assert unseen, (steps, "held without need")
                return
            first = table.commits[0].version if table.commits else 0
            assert not durable or first <= max(seen, *durable) + 1, (steps, "a gap is not seen")
            seen = table.commits[-1].version if table.commits else -1
            covered = max([covered, *(row.target_version for row in store.rows)])
            uncovered = [each for each in table.commits if each.version > covered]
            if store.rows and uncovered and clock() - uncovered[0].time >= DAY:
                covered = uncovered[-1].version
            # Without ledger and marks only Delta knows: it would skip the write.
            assert number == applies + 1 or (number == 1 and not store.rows and lost), (
                steps,
                number,
                applies,
            )
            if number != applies + 1:
                return
            assert found.progress.through.get(ORIGIN, -1) == 10 * applies - 1, steps
            if step != "catch up":
                applies += 1
                table.put(mark(applies).user_metadata(), "MERGE", time=clock())
                if step == "apply":
                    assert found.catch_up(table) == applies + 1, steps
                    seen = table.commits[-1].version
                else:
                    found, seen = ledger(store, clock=clock), -1
        kept = [
            each for each in table.commits[:-1] if each.time >= clock() - 30 * DAY
        ] + table.commits[-1:]
        gone = [
            Mark.read(each.user_metadata, "seattle", "orders")
            for each in table.commits[: -len(kept)]
        ]
        ledgered = {row.mark.apply for row in store.rows}
        lost = lost or any(each is not None and each.apply not in ledgered for each in gone)
        unseen = unseen or any(each.version > covered for each in table.commits[: -len(kept)])
        table.commits = kept


@pytest.mark.parametrize("seed", range(4))
def test_a_source_that_is_polled_in_time_loses_nothing(seed: int) -> None:
    """Commits with rows, without rows, and with rows that change nothing.

    A poll at least every ten days; the log keeps thirty.
    """
    for each in range(20):
        _idle_source_history(random.Random(f"{seed}/{each}"))


def _idle_source_history(chance: random.Random) -> None:
    site = Site()
    published = list(site.rounds())
    carrying = [0]
    for _ in range(40):
        site.clock.pass_seconds(chance.randint(0, 10) * 86_400)
        what = chance.choice(
            ("OPTIMIZE", "OPTIMIZE", "OPTIMIZE", "nothing", "nothing", "empty", "WRITE")
        )
        if what != "nothing":
            version = site.source.add(
                "OPTIMIZE" if what == "OPTIMIZE" else "WRITE", time=site.clock()
            ).version
            if what == "WRITE":
                carrying.append(version)
            elif what == "empty":
                site.source.without_events.add(version)
        kept = [each for each in site.source.commits[:-1] if each.time >= site.clock() - 30 * DAY]
        site.source.commits[:] = [*kept, site.source.commits[-1]]
        if chance.random() < 0.3:
            site.restart()
        published += site.rounds()
    assert [ref["version"] for each in published for ref in each.commits] == carrying
