"""The ledger with Spark: folding, looking up event IDs, and the hourly maintenance."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from deltalake import DeltaTable
from ledgers import MARK, ledger, mark, target
from sites import make_ledger

from spark_wan.delta.sessions import CurrentSession, temporary_settings
from spark_wan.delta.sql import reference
from spark_wan.events.operations import CONTENT, ID, SEQUENCE, TIME, VERSION
from spark_wan.ledger import applied_ids, folding, maintenance
from spark_wan.ledger.applied_ids import AppliedEventIds
from spark_wan.ledger.event_ids import RecordedIds
from spark_wan.ledger.folding import fold
from spark_wan.ledger.maintenance import LedgerMaintenance
from spark_wan.ledger.store import DeltaLedgerStore
from spark_wan.ledger.tables import LedgerTables
from spark_wan.steps import run
from spark_wan.target.deduplicate import deduplicate
from spark_wan.target.rows import EventRows
from spark_wan.wire.ledger import SCHEMAS, HistoryPosition, LedgerRow
from spark_wan.wire.mark import Mark

NEWARK = "newark"
ODD = ["plain", "it's", "back\\slash", "${spark.app.name}", "nul\x00", "ünï", "", "a\nb"]


@pytest.fixture
def store(spark: Any, tmp_path: Path) -> DeltaLedgerStore:
    state = str(tmp_path / "_wan")
    make_ledger(spark, state)
    return DeltaLedgerStore(LedgerTables(CurrentSession(spark), state))


def users(apply: int, **changes: Any) -> Mark:
    return mark(apply, **{"ids": True, "through": -1, "new_ids": 2, **changes})


def events(spark: Any, ids: list[str], content: str = "c", time: int | None = 100) -> EventRows:
    """Events of a user stream, decoded."""
    rows = [(each, 1, 1, f"{content} {each}", time) for each in ids]
    schema = f"{ID} string, {VERSION} bigint, {SEQUENCE} bigint, {CONTENT} string, {TIME} bigint"
    return EventRows(spark.createDataFrame(rows, schema), [], ())


def dropped(ids: AppliedEventIds, rows: EventRows) -> Any:
    """What is left of events: the change with its counts, and the IDs that are new."""
    change: Any = SimpleNamespace()
    rows = deduplicate(change, rows, ids)
    change.new = sorted(row[0] for row in rows.frame.select(ID).collect())
    change.dead = 0 if rows.dead is None else rows.dead.count()
    rows.release()
    return change


def apply(store: DeltaLedgerStore, number: int, ids: list[str], marked: bool = True) -> Mark:
    """Record the IDs of an apply, and its mark."""
    spark = store.tables.spark
    made = users(number, token=f"{number:032x}", new_ids=len(ids), ids_until=100)
    known = AppliedEventIds(store.tables, "orders", NEWARK)
    known.record(events(spark, ids).frame.select(ID, CONTENT, TIME), made.token)
    if marked:
        store.append("orders", [LedgerRow("target-1", number, made)])
    return made


@pytest.mark.parametrize("few", [0, 100])
def test_event_ids_are_looked_up_by_the_ids_of_the_apply(
    spark: Any, store: DeltaLedgerStore, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few as literals, many by a join; marked, aborted and folded ones, with any characters.

    Fails when a range's token does not count, or an aborted apply's does.
    """
    monkeypatch.setattr(applied_ids, "FEW_IDS", few)
    apply(store, 1, ODD[:4])
    apply(store, 2, ODD[4:])
    assert run(fold(store, "seattle", "orders", least=1)) == 2
    apply(store, 3, ["third"])
    apply(store, 4, ["aborted"], marked=False)
    ids = AppliedEventIds(store.tables, "orders", NEWARK)
    change = dropped(ids, events(spark, [*ODD, "third", "aborted", "new"]))
    assert (change.new, change.duplicates, change.dead) == (["aborted", "new"], 9, 0)
    assert dropped(ids, events(spark, ["third", "new"], "other")).dead == 1
    other = AppliedEventIds(store.tables, "orders", "denver")
    assert dropped(other, events(spark, ["third"])).new == ["third"]
    ids.expire(99)
    ids.expire(100)
    floors = [(row.time, row.token) for row in store.tables.read("event_ids").collect()]
    assert floors.count((100, "floor")) == 1 and (99, "floor") not in floors
    assert dropped(ids, events(spark, ["third"])).dead == 1


def test_as_many_ids_as_are_looked_up_as_literals_can_be_read(
    spark: Any, store: DeltaLedgerStore
) -> None:
    """Fails when they are one IN list, which Parquet's reader gets as thousands of nested
    comparisons: the JVM ends with a StackOverflowError."""
    names = [f"event {n}" for n in range(applied_ids.FEW_IDS)]
    apply(store, 1, names)
    ids = AppliedEventIds(store.tables, "orders", NEWARK)
    assert dropped(ids, events(spark, names)).duplicates == applied_ids.FEW_IDS


def test_a_fold_during_a_look_up_hides_no_id(
    spark: Any, store: DeltaLedgerStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another receiver folds after the IDs were read, and before the marks are.

    Fails when an unmarked token is not looked up again: the event is applied twice.
    """
    apply(store, 1, ["one"])
    unmarked = AppliedEventIds._unmarked

    def folding_first(ids: AppliedEventIds, tokens: Any) -> set[str]:
        run(fold(store, "seattle", "orders", least=1))
        return unmarked(ids, tokens)

    monkeypatch.setattr(AppliedEventIds, "_unmarked", folding_first)
    ids = AppliedEventIds(store.tables, "orders", NEWARK)
    assert dropped(ids, events(spark, ["one", "two"])).new == ["two"]


def test_a_ledger_in_delta_tables_is_folded_and_read(spark: Any, store: DeltaLedgerStore) -> None:
    """Rows of other tables stay; a rival claim is skipped; dead letters and IDs are renamed."""
    marks = [users(number, token=f"{number:032x}", dead_letters=number) for number in range(1, 6)]
    table = target(*marks)
    store.append("cities", [LedgerRow("target-2", 1, replace(MARK, table="cities"))])
    for each in marks:
        known = AppliedEventIds(store.tables, "orders", "newark")
        new = events(spark, [f"{each.apply} {n}" for n in range(2)])
        known.record(new.frame.select(ID, CONTENT, TIME), each.token)
        letter = {"side": "receiver", "table": "orders", "event_id": "x", "token": each.token}
        store.tables.append("dead_letters", [letter])
    found = ledger(store)
    assert found.catch_up(table) == 6
    position = HistoryPosition("target-1", 5, table.commits[-1].identity)
    store.append("orders", [position, replace(position, target_version=2)])
    steps = fold(store, "seattle", "orders", least=1)
    next(steps)
    [claim] = [row for row in store.load("orders") if getattr(row, "claimed", False)]
    store.claim("orders", replace(claim, apply=3))  # type: ignore[call-overload]
    assert len(store.load("orders")) == 8
    assert run(steps) == 5
    rows = store.load("orders")
    assert len(rows) == 2 and position in rows
    assert store.recorded_ids("orders") == RecordedIds(ranges={NEWARK: frozenset({(1, 5)})})
    letters = store.tables.read("dead_letters").select("token").distinct().collect()
    assert [row[0] for row in letters] == ["marked 1-5"]
    assert ledger(store).catch_up(table) == 6
    assert len(store.load("cities")) == 1
    assert store.names("target-1") == {"orders"}
    versions = {row[0] for row in store.tables.read("applied").select("version").collect()}
    assert versions == {1, 2}  # version 0.1.0 refuses to read the summary


KEY = "delta.logRetentionDuration"
SET = f"SET TBLPROPERTIES ('{KEY}' = 'interval 9 days')"


def versions(store: DeltaLedgerStore) -> list[int]:
    return [DeltaTable(store.tables.location(name)).version() for name in SCHEMAS]


def retention(store: DeltaLedgerStore, name: str) -> str | None:
    location = store.tables.location(name)
    value: str | None = DeltaTable(location).metadata().configuration.get(KEY)
    return value


def test_the_log_of_a_ledger_is_kept_for_a_week(spark: Any, store: DeltaLedgerStore) -> None:
    """Also that of an earlier version's ledger, unless someone has set another retention. Fails
    when it is kept for a month: each apply adds a file to it."""
    assert {retention(store, name) for name in SCHEMAS} == {"interval 7 days"}
    for name, change in (("applied", f"UNSET TBLPROPERTIES ('{KEY}')"), ("event_ids", SET)):
        spark.sql(f"ALTER TABLE {reference(store.tables.location(name))} {change}").collect()
    for name in SCHEMAS:
        store.tables.shorten_log(name)
        store.tables.shorten_log(name)
    assert [retention(store, name) for name in ("applied", "event_ids")] == [
        "interval 7 days",
        "interval 9 days",
    ]
    assert versions(store)[0] == 2  # created, unset, set once


def test_maintenance_folds_compacts_and_expires_and_then_rests(
    spark: Any,
    store: DeltaLedgerStore,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A table whose IDs are lost is left as it is, and delays no other. A second run, with nothing
    to do, writes nothing. A VACUUM takes few tasks: with Spark's default it takes 10,000 for each
    table, a minute on two cores.
    """
    monkeypatch.setattr(maintenance, "LEAST_MARKS", 3)
    monkeypatch.setattr(folding.fold, "__kwdefaults__", {"least": 3, "most": 2_000})
    monkeypatch.setattr(maintenance, "MOST_FILES", 3)
    marks = [apply(store, number, [f"{number} {n}" for n in range(2)]) for number in range(1, 5)]
    for each in marks:
        store.append("cities", [LedgerRow("target-2", 1, replace(each, table="cities"))])
        letter = {"side": "receiver", "table": "orders", "event_id": "x", "token": each.token}
        store.tables.append("dead_letters", [letter])
    store.append("idle", [HistoryPosition("target-3", n, f"hash@{n}") for n in range(1, 5)])
    work = LedgerMaintenance("seattle", store.tables.state, {})
    context, tracker = spark.sparkContext, spark.sparkContext.statusTracker()
    context.setJobGroup("maintenance", "")
    with temporary_settings(spark, dict.fromkeys(maintenance.FEW_TASKS, "10000")):
        work.run(spark)
    context.setLocalProperty("spark.jobGroup.id", None)
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup("maintenance")]
    stages = [tracker.getStageInfo(stage) for job in jobs for stage in job.stageIds]
    assert 0 < sum(stage.numTasks for stage in stages if stage is not None) < 1_000
    assert store.load("idle") == [HistoryPosition("target-3", 4, "hash@4")]
    assert "cities: marks could not be folded" in caplog.text
    assert [len(store.load(table)) for table in ("orders", "cities")] == [1, 4]
    assert store.recorded_ids("orders").ranges == {NEWARK: frozenset({(1, 4)})}
    files = [DeltaTable(store.tables.location(name)).file_uris() for name in SCHEMAS]
    assert [len(each) for each in files] == [1, 1, 1]
    assert (
        "VACUUM"
        in spark.sql(
            f"DESCRIBE HISTORY delta.`{store.tables.location('applied')}` LIMIT 1"
        ).collect()[0]["operation"]
    )
    before = versions(store)
    work.run(spark)
    assert versions(store) == before
    ids = AppliedEventIds(store.tables, "orders", NEWARK)
    assert dropped(ids, events(spark, ["1 0", "new"])).new == ["new"]

    work = LedgerMaintenance("seattle", store.tables.state, {"orders": 1.0})
    work.run(spark)
    assert dropped(ids, events(spark, ["1 0"])).dead == 1
    assert ledger(store).catch_up(target(*marks)) == 5
