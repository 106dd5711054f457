"""Tables that rest: what neither sends nor receives rows for longer than its log keeps commits goes on afterwards, at both ends."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from fakes import STREAM, Clock, LedgerRows, Target, memory_channel, publish
from test_inbound_channel import TOPOLOGY
from test_ledger import held, ledger, mark, target
from test_publish import Site

from spark_wan import datasource
from spark_wan.channels import StreamLog
from spark_wan.commits import DAY, record_after
from spark_wan.datasource import WanStreamReader
from spark_wan.errors import LedgerError, TableReplacedError
from spark_wan.events import LOCAL_ONLY
from spark_wan.options import IDLE_INTERVAL, SourceOptions
from spark_wan.receiver import job
from spark_wan.receiver.apply import TableApplier
from spark_wan.receiver.job import InboundChannel

HOUR = DAY // 24


def test_what_is_known_is_recorded_after_a_day_or_a_quarter_of_the_retention() -> None:
    assert [record_after(days * DAY) // HOUR for days in (30, 7, 4, 2, 0)] == [24, 24, 24, 12, 0]


# --- the source -------------------------------------------------------------------------------------------------------


def quiet(site: Site, days: int, restarts: bool, retention: int = 30) -> None:
    """A day's maintenance each day, looked at each day; the log keeps ``retention`` days."""
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
def test_f49_a_source_that_is_quiet_for_longer_than_its_log_keeps_commits_goes_on(restarts: bool) -> None:
    """Its quiet commits are recorded by time too, before log cleanup takes them, also when the sender begins anew each day."""
    site = Site()
    site.published()
    quiet(site, 40, restarts)
    site.source.add(time=site.clock())
    (manifest,) = site.rounds()
    assert manifest.rows == 1
    assert manifest.last == 41


def test_f49_quiet_commits_are_recorded_while_nothing_else_happens() -> None:
    """One look at the source and one manifest, a day after the first quiet commit; nothing before it and nothing after."""
    site = Site()
    site.published()
    site.source.add("OPTIMIZE", time=site.clock())
    site.source.add(user_metadata=LOCAL_ONLY, time=site.clock())
    assert site.rounds() == []
    site.source.calls.clear()
    site.clock.pass_seconds(86_400 - 1)
    assert site.rounds() == []
    assert site.source.calls == ["latest"]
    site.clock.pass_seconds(1)
    (recorded,) = site.rounds()
    assert (recorded.first, recorded.last, recorded.frames) == (1, 2, ())
    site.clock.pass_seconds(10 * 86_400)
    site.source.calls.clear()
    assert site.rounds() == []
    assert site.source.calls == ["latest"]


def test_f49_a_short_retention_is_answered_in_time() -> None:
    site = Site()
    site.source.retention = 8 * HOUR
    site.published()
    site.source.add("OPTIMIZE", time=site.clock())
    assert site.rounds() == []
    site.clock.pass_seconds(2 * 3_600)
    assert len(site.rounds()) == 1


def test_f49_commits_that_only_the_change_feed_calls_quiet_are_recorded_too() -> None:
    """Updates that change nothing."""
    site = Site()
    site.published()
    site.source.add(time=site.clock())
    site.source.without_events = {1}
    assert site.rounds() == []
    site.clock.pass_seconds(86_400)
    (recorded,) = site.rounds()
    assert (recorded.first, recorded.last, recorded.frames) == (1, 1, ())


def test_what_another_publisher_has_recorded_is_not_recorded_again() -> None:
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
    assert site.source.calls == ["latest"]


# --- the target -------------------------------------------------------------------------------------------------------


def resting(days: int, restarts: bool, *operations: str) -> tuple[Target, LedgerRows, Any]:
    """A target with one apply and then one local commit a day, caught up daily; its log keeps 30 days."""
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
def test_f49_a_target_that_rests_for_longer_than_its_log_keeps_commits_goes_on(restarts: bool) -> None:
    """How far its history was seen is kept durably: also a receiver that begins anew each day needs no copy.

    The log's files cannot be read here, so that nothing else proves it. Fails when no ``Seen`` is appended, or none is read.
    """
    table, store, _ = resting(40, restarts, "OPTIMIZE", "WRITE")
    table.log_is_readable = False
    again = ledger(store)
    assert again.catch_up(table) == 2
    table.put(mark(2).user_metadata(), "MERGE")
    assert again.catch_up(table) == 3


def test_f49_what_was_seen_is_recorded_once_and_not_at_every_look() -> None:
    clock, store = Clock(), LedgerRows()
    table, found = target(mark(1)), ledger(store, clock=clock)
    table.put(None, "OPTIMIZE", time=clock())
    for _ in range(5):
        found.catch_up(table)
    assert store.seen == []
    clock.pass_seconds(86_400)
    for _ in range(5):
        found.catch_up(table)
    assert [(each.target_version, each.target_id) for each in store.seen] == [(2, "target-1")]
    for each in (found, ledger(store, clock=clock)):
        clock.pass_seconds(86_400)
        each.catch_up(table)
    assert len(store.seen) == 1


def test_a_mark_covers_what_is_before_it() -> None:
    clock, store = Clock(), LedgerRows()
    table, found = target(mark(1)), ledger(store, clock=clock)
    table.put(None, "OPTIMIZE", time=clock())
    found.catch_up(table)
    table.put(mark(2).user_metadata(), time=clock())
    clock.pass_seconds(3 * 86_400)
    found.catch_up(table)
    assert store.seen == []


def test_what_was_seen_hides_no_mark() -> None:
    """Another receiver's marks, also of commits below what this one has seen: the ledger was put back to before they were in it, with what was seen."""
    clock, store = Clock(), LedgerRows()
    table, found = target(mark(1)), ledger(store, clock=clock)
    table.put(None, "OPTIMIZE", time=clock())
    clock.pass_seconds(86_400)
    found.catch_up(table)
    older = LedgerRows(list(store.rows), list(store.seen))
    table.put(mark(2).user_metadata())
    table.put(None, "OPTIMIZE", time=clock())
    clock.pass_seconds(86_400)
    ledger(store, clock=clock).catch_up(table)
    assert [each.target_version for each in store.seen] == [2, 4]
    again = ledger(older, clock=clock)
    assert again.catch_up(table) == 3
    assert found.catch_up(table) == 3


@pytest.mark.parametrize("restarts", [False, True])
def test_f32_a_restore_behind_what_was_seen_is_found(restarts: bool) -> None:
    """Files put back to before the commit that was seen last, and written to again: its identity is compared, also after a restart."""
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
    held(found, table, TableReplacedError, "version 2 at site seattle is not the commit that the ledger knows")


def test_what_was_seen_of_a_table_that_was_put_back_since_hides_no_mark() -> None:
    """To after the last mark, and applied to again by a receiver that died before its ledger row. Fails when the commit's identity is not compared."""
    clock, store = Clock(), LedgerRows()
    table, found = target(mark(1)), ledger(store, clock=clock)
    for _ in range(3):
        table.put(None, "OPTIMIZE", time=clock())
    clock.pass_seconds(86_400)
    found.catch_up(table)
    assert [each.target_version for each in store.seen] == [4]
    del table.commits[3:]
    table.put(mark(2).user_metadata(), "MERGE")
    for _ in range(2):
        table.put(None, "WRITE")
    assert ledger(store).catch_up(table) == 3


def test_f32_a_table_put_back_behind_what_was_seen_and_cleaned_is_held() -> None:
    """The commit that was seen is another one, and those before it are gone: what was there cannot be told."""
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


def test_a_restore_after_what_was_seen_is_found_after_a_restart() -> None:
    table, store, _ = resting(3, False, "OPTIMIZE")
    table.put(None, "RESTORE")
    held(ledger(store), table, TableReplacedError, "is a RESTORE")


# --- log cleanup was faster than every receiver -----------------------------------------------------------------------


def test_maintenance_that_log_cleanup_took_unseen_does_not_hold(caplog: pytest.LogCaptureFixture) -> None:
    """Delta's own transaction number says that none of the commits was an apply. They are reported, and recorded at once."""
    table, store = target(mark(1)), LedgerRows()
    ledger(store).catch_up(table)
    for _ in range(6):
        table.put(None, "OPTIMIZE")
    table.commits = table.commits[-2:]
    found = ledger(store)
    with caplog.at_level(logging.WARNING):
        assert found.catch_up(table) == 2
    assert "log cleanup took versions 2 to 5" in caplog.text
    assert found.local_commits == 4
    caplog.clear()
    table.log_is_readable = False
    assert ledger(store).catch_up(table) == 2
    assert caplog.text == ""


@pytest.mark.parametrize("readable", [False, True])
def test_a_mark_that_log_cleanup_took_unseen_holds(readable: bool) -> None:
    """Another receiver applied and died before its ledger row. Fails when the transaction number is not compared."""
    table, store = target(mark(1)), LedgerRows()
    ledger(store).catch_up(table)
    table.put(mark(2).user_metadata(), "MERGE")
    for _ in range(3):
        table.put(None, "OPTIMIZE")
    table.commits = table.commits[-2:]
    table.log_is_readable = readable
    held(ledger(store), table, LedgerError, "may have been applied by a receiver.*full copy under a new table name")


@pytest.mark.parametrize(("number", "gap"), [(2, False), (3, True)])
def test_the_next_mark_tells_whether_one_is_missing(number: int, gap: bool) -> None:
    """Apply numbers have no gaps; nothing else has to be read."""
    table, store = target(mark(1)), LedgerRows()
    ledger(store).catch_up(table)
    for _ in range(4):
        table.put(None, "OPTIMIZE")
    table.put(mark(number).user_metadata(), "MERGE")
    table.commits = table.commits[-2:]
    table.log_is_readable = False
    if gap:
        held(ledger(store), table, LedgerError, r"the last apply was 1 by the ledger, 2 by the table's log")
    else:
        assert ledger(store).catch_up(table) == 3


def test_a_table_put_back_to_before_the_last_apply_and_cleaned_holds() -> None:
    """Its transaction number is lower than the ledger's."""
    table, store = target(mark(1), mark(2)), LedgerRows()
    ledger(store).catch_up(table)
    table.transactions = dict.fromkeys(table.transactions, 1)
    for _ in range(4):
        table.put(None, "OPTIMIZE")
    table.commits = table.commits[-2:]
    held(ledger(store), table, LedgerError, "the last apply was 2 by the ledger, 1 by the table's log")


# --- the wake-up ------------------------------------------------------------------------------------------------------


def test_a_receiver_to_which_nothing_is_sent_is_woken_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """And only then: an idle receiver runs no micro-batch in between."""
    now = [100.0]
    monkeypatch.setattr(datasource.time, "monotonic", lambda: now[0])
    log = StreamLog(memory_channel(), STREAM)
    publish(log, 1)
    monkeypatch.setattr(datasource, "open_channel", lambda *_: log.channel)
    reader = WanStreamReader(SourceOptions.parse({"channel": "/channel", "site": "seattle", "wakeToken": "w"}))
    offset = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    woken = 0
    for _ in range(3 * 60):
        now[0] += IDLE_INTERVAL / 60
        following = reader.latestOffset(offset, reader.getDefaultReadLimit())
        woken += following != offset
        offset = following
    assert woken == 3


def test_f49_the_target_of_an_idle_stream_is_caught_up_daily(monkeypatch: pytest.MonkeyPatch) -> None:
    """Woken each hour, it looks at the target's history once a day, and four times as often as the log is cleaned. Fails when what is done stays
    done for ever."""
    now = [100.0]
    monkeypatch.setattr(job.time, "monotonic", lambda: now[0])
    log = StreamLog(memory_channel(), STREAM)
    publish(log, 1)
    table, store, clock = Target(log.channel), LedgerRows(), Clock()
    found = ledger(store, clock=clock)
    inbound = InboundChannel(TOPOLOGY, "seattle", "/channel", {}, parallel=1, max_bytes=1 << 20)
    inbound._appliers[STREAM] = TableApplier("seattle", "orders", log, table, found)
    inbound._tables[STREAM] = "orders"
    monkeypatch.setattr(job, "open_channel", lambda *_: log.channel)
    looks: list[float] = []
    catch_up = found.catch_up

    def counted(of: Any) -> int | None:
        looks.append(now[0])
        return catch_up(of)

    monkeypatch.setattr(found, "catch_up", counted)
    spark: Any = None
    inbound.apply_all(spark)
    table.put(None, "OPTIMIZE", time=clock())
    for retention, times in ((30 * DAY, 1), (DAY, 4)):
        table.retention = retention
        looks.clear()
        for _ in range(24):
            now[0] += IDLE_INTERVAL
            clock.pass_seconds(IDLE_INTERVAL)
            inbound.apply_all(spark)
        assert len(looks) == times
    assert [each.target_version for each in store.seen] == [2]
