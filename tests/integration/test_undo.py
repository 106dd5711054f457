"""Versions of a table are undone at the site that writes it, and the undo is replicated."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pair import Pair
from sites import NEWARK, SEATTLE, Sites

import spark_wan
from spark_wan.errors import CompareError, UndoError
from spark_wan.sync import inverse
from spark_wan.sync.undone import Action


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Sites:
    """Versions 0 to 3 of orders: 10 to 17 inserted; 8 to 13 updated or inserted; 11 and 17
    deleted; 11 inserted."""
    sites = Sites.make(tmp_path_factory.mktemp("undo") / "wan")
    sites.change(10)
    return sites


@pytest.fixture
def sites(made: Sites, tmp_path: Path) -> Sites:
    return made.copy(tmp_path / "wan")


def rows(sites: Sites, version: int | None = None) -> dict[int, dict[str, Any]]:
    table = DeltaTable(sites.path("orders"), version=version).to_pyarrow_table()
    return {row["id"]: row for row in table.to_pylist()}


def undo(spark: Any, sites: Sites, first: int, last: int | None = None, **options: Any) -> Any:
    return spark_wan.undo(spark, sites.topology, "orders", first, last, **options)


@pytest.mark.core
def test_rows_are_as_before_and_the_undo_is_replicated(spark: Any, sites: Sites) -> None:
    sites.replicate(spark)
    done = undo(spark, sites, 1, 3)
    assert done.version == sites.version("orders", NEWARK) == 4
    assert done.counts == {Action.SET_BACK: 4, Action.DELETE: 2, Action.INSERT: 1}
    assert rows(sites) == rows(sites, 0)
    (newest, *_) = DeltaTable(sites.path("orders")).history(1)
    assert json.loads(newest["userMetadata"])["undo"]["versions"] == [1, 3]
    sites.replicate(spark)
    sites.assert_equal()
    assert undo(spark, sites, 1, 3).rows == 0


def test_one_version_of_several(spark: Any, sites: Sites) -> None:
    """Rows of other commits stay, those before and those after it."""
    done = undo(spark, sites, 3)
    assert (done.counts, done.changed_since) == ({Action.DELETE: 1}, 0)
    assert rows(sites) == {key: row for key, row in rows(sites, 3).items() if key != 11}


def test_keys_that_were_changed_since_are_refused(spark: Any, sites: Sites) -> None:
    """11 was updated in version 1, and deleted and inserted since."""
    would = undo(spark, sites, 1, dry_run=True)
    assert would.version is None and would.changed_since == 1
    assert [each.key for each in would.examples if each.changed_since] == ['{"id":11}']
    with pytest.raises(UndoError, match=r"1 of 6 keys .* changed again since: \{\"id\":11\}\."):
        undo(spark, sites, 1)
    assert sites.version("orders", NEWARK) == 3
    done = undo(spark, sites, 1, force=True)
    before = rows(sites, 0)
    del before[17]  # deleted in version 2
    assert done.changed_since == 1 and rows(sites) == before


def test_a_key_that_is_set_back_already_is_left_alone(spark: Any, sites: Sites) -> None:
    sites.upsert("orders", [rows(sites, 0)[key] for key in (10, 11)])
    done = undo(spark, sites, 1)
    assert (done.counts, done.changed_since) == ({Action.SET_BACK: 2, Action.DELETE: 2}, 0)


def test_a_dry_run_writes_nothing(spark: Any, sites: Sites) -> None:
    done = undo(spark, sites, 1, 3, dry_run=True, limit=2)
    assert (done.version, done.rows, len(done.examples)) == (None, 7, 2)
    assert sites.version("orders", NEWARK) == 3


LATER: dict[str, tuple[int, Callable[[Sites], None]]] = {
    "a row to set back is updated": (12, lambda sites: sites.upsert("orders", [theirs(12)])),
    "a row to set back is deleted": (12, lambda sites: sites.delete("orders", "id = 12")),
    "a row to delete is updated": (8, lambda sites: sites.upsert("orders", [theirs(8)])),
    "a row to insert is inserted": (17, lambda sites: sites.append("orders", [theirs(17)])),
    "another row is inserted": (777, lambda sites: sites.append("orders", [theirs(777)])),
}


def theirs(key: int) -> dict[str, Any]:
    return {"id": key, "item": "theirs", "amount": 5.0}


@pytest.mark.parametrize("what", LATER)
def test_a_commit_between_plan_and_write_is_not_lost(
    spark: Any, sites: Sites, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Fails when the MERGE does not check which rows it finds: they would be overwritten."""
    key, commit = LATER[what]
    source, commits = inverse._Plan.source, [commit]

    def committed_meanwhile(plan: Any) -> Any:
        while commits:
            commits.pop()(sites)
        return source(plan)

    monkeypatch.setattr(inverse._Plan, "source", committed_meanwhile)
    if key == 777:
        assert undo(spark, sites, 1, 3).version == 5
        assert rows(sites) == {**rows(sites, 0), key: theirs(key)}
        return
    with pytest.raises(UndoError, match=f'1 of 7 keys .* changed again since: ."id":{key}'):
        undo(spark, sites, 1, 3)
    assert sites.version("orders", NEWARK) == 4
    assert rows(sites).get(key) == (None if "deleted" in what else theirs(key))


def test_undo_beside_a_busy_writer(
    spark: Any, sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It loses against him, or is made; nothing of his is lost."""
    monkeypatch.setattr(inverse, "ATTEMPTS", 2)
    done = threading.Event()

    def work() -> None:
        number = 1_000
        while not done.wait(0.3):
            number += 1
            sites.append("orders", [{"id": number, "item": "new", "amount": 1.0}])

    writer = threading.Thread(target=work)
    writer.start()
    try:
        undo(spark, sites, 1, 3)
    except UndoError as error:
        assert "lost against other writers" in str(error)
    finally:
        done.set()
        writer.join()
    now = rows(sites)
    added = {key for key in now if key > 1_000}
    assert added == set(range(1_001, 1_001 + len(added)))


def test_values_of_all_kinds_come_back(spark: Any, tmp_path: Path) -> None:
    pair = Pair.of(tmp_path / "wan", {"t": {"keys": ["code", "day"]}})
    columns = (
        "code char(4), day date, x double, s struct<a: int, b: array<map<string, int>>>, v variant,"
        " `odd name` binary, d decimal(38,10)"
    )
    pair.make(spark, "t", columns, "delta.columnMapping.mode = 'name'")
    pair.sql(
        spark,
        "t",
        "INSERT INTO {t} SELECT c, DATE'2024-01-01', double('-0.0'), named_struct('a', 1, 'b', "
        "array(map('k', 1), null)), parse_json('[1, null]'), X'ff00', 1.5 "
        "FROM VALUES ('a'), ('b '), ('c') AS t(c)",
    )
    pair.replicate(spark)
    kept = pair.hashes(spark, "t", NEWARK)
    pair.sql(spark, "t", "UPDATE {t} SET x = 0.0, v = null, s = null WHERE code LIKE 'a%'")
    pair.sql(spark, "t", "DELETE FROM {t} WHERE code LIKE 'b%'")
    pair.sql(spark, "t", "INSERT INTO {t} (code, day) VALUES ('z', DATE'2024-01-01')")
    done = spark_wan.undo(spark, pair.topology, "t", 2, 4)
    assert done.counts == {Action.SET_BACK: 1, Action.INSERT: 1, Action.DELETE: 1}
    assert pair.hashes(spark, "t", NEWARK) == kept
    pair.replicate(spark)
    pair.assert_same(spark, "t")


def test_versions_without_rows_have_nothing_to_undo(spark: Any, sites: Sites) -> None:
    place = f"delta.`{sites.path('orders')}`"
    spark.sql(f"ALTER TABLE {place} SET TBLPROPERTIES (a = 'b')")
    spark.sql(f"OPTIMIZE {place}")
    done = undo(spark, sites, 4, 5)
    assert (done.rows, done.version) == (0, None)


def test_versions_that_cannot_be_undone(spark: Any, sites: Sites) -> None:
    for first, last, match in [
        (0, 2, "the first must be 1 or more"),
        (3, 2, "not above the last"),
        (2, 9, "version 9 is not there, and the newest is 3"),
        (9, 9, "version 9 is not there, and the newest is 3"),
    ]:
        with pytest.raises(UndoError, match=match):
            undo(spark, sites, first, last)
    with pytest.raises(UndoError, match="readings has no keys"):
        spark_wan.undo(spark, sites.topology, "readings", 1)
    with pytest.raises(UndoError, match="prices is written by a sink"):
        spark_wan.undo(spark, sites.topology, "prices", 1)
    place = f"delta.`{sites.path('orders')}`"
    spark.sql(f"INSERT INTO {place} SELECT * FROM {place} WHERE id = 12")
    with pytest.raises(UndoError, match=r"keys are there more than once.*\{\"id\":12\}"):
        undo(spark, sites, 1, 3)
    spark.sql(f"ALTER TABLE {place} ADD COLUMNS (more INT)")
    with pytest.raises(UndoError, match="columns have changed since version 0: more was added"):
        undo(spark, sites, 1, 3)


def test_a_version_whose_files_are_gone(spark: Any, sites: Sites) -> None:
    place = f"delta.`{sites.path('orders')}`"
    spark.sql(f"OPTIMIZE {place}")
    spark.sql(f"VACUUM {place} RETAIN 0 HOURS")
    with pytest.raises(CompareError, match=r"version 0 at site newark .* can no longer be read"):
        undo(spark, sites, 1, 3)


def test_a_commit_of_a_receiver_is_not_undone(spark: Any, sites: Sites) -> None:
    sites.replicate(spark)
    mark = DeltaTable(sites.path("orders", SEATTLE)).history(1)[0]["userMetadata"]
    spark.conf.set("spark.databricks.delta.commitInfo.userMetadata", mark)
    try:
        spark.sql(f"DELETE FROM delta.`{sites.path('orders')}` WHERE id = 12")
    finally:
        spark.conf.unset("spark.databricks.delta.commitInfo.userMetadata")
    with pytest.raises(UndoError, match="version 4 was written by a receiver"):
        undo(spark, sites, 4)
