"""Keys that the source has twice: for some commits, in the first snapshot, or for good.

The remote sites get one row of each key that the source has. The others are dead letters, and the
status says that the keys are not unique. ``unit/capture/test_remaining`` tries random histories.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pair import Pair
from sites import NEWARK, SEATTLE

import spark_wan.capture.source as source_module
import spark_wan.capture.tasks as tasks_module
from spark_wan import LOCAL_ONLY
from spark_wan.delta.tables import load
from spark_wan.status.reports import read_status

METADATA = "spark.databricks.delta.commitInfo.userMetadata"
KEYS = {
    "bigint": ("1", "2"),
    "string": ("'a'", "'b'"),
    "char(4)": ("'a'", "'b'"),
    "binary": ("X'00ff'", "X'01'"),
    "boolean": ("true", "false"),
    "date": ("DATE'1582-10-10'", "DATE'2026-01-01'"),
    "timestamp": ("TIMESTAMP'1880-01-01 00:00:00.000001Z'", "TIMESTAMP'2026-10-25 00:30:00Z'"),
    "timestamp_ntz": ("TIMESTAMP_NTZ'2026-03-29 02:30:00'", "TIMESTAMP_NTZ'2026-01-01 00:00:00'"),
    "decimal(38,18)": ("1.000000000000000001BD", "2BD"),
}
A_SURPLUS_ROW, A_NEW_VERSION = "a surplus row goes again", "a new version is appended"
TWICE = "the same change twice"
WAYS = {
    A_SURPLUS_ROW: (
        "INSERT INTO {t} VALUES ({a}, 'surplus')",
        "DELETE FROM {t} WHERE item = 'surplus'",
    ),
    A_NEW_VERSION: (
        "INSERT INTO {t} VALUES ({a}, 'new')",
        "DELETE FROM {t} WHERE item = 'old'",
    ),
    "a key is moved onto another": (
        "UPDATE {t} SET id = {a}, item = 'moved' WHERE id = {b}",
        "DELETE FROM {t} WHERE id = {a} AND item = 'old'",
    ),
    "a key is moved away again": (
        "UPDATE {t} SET id = {a}, item = 'moved' WHERE id = {b}",
        "UPDATE {t} SET id = {b} WHERE item = 'moved'",
    ),
    "by a merge": (
        "MERGE INTO {t} USING (SELECT {a} AS id, 'new' AS item) s ON false "
        "WHEN NOT MATCHED THEN INSERT *",
        "MERGE INTO {t} USING (SELECT {a} AS id, 'old' AS item) s "
        "ON {t}.id = s.id AND {t}.item = s.item WHEN MATCHED THEN DELETE",
    ),
    TWICE: (
        "INSERT INTO {t} VALUES ({a}, 'new'), ({a}, 'newer')",
        "DELETE FROM {t} WHERE item IN ('new', 'old')",
        "INSERT INTO {t} VALUES ({a}, 'newest')",
        "DELETE FROM {t} WHERE item = 'newer'",
    ),
}


def run(spark: Any, pair: Pair, table: str, statement: str, kind: str) -> None:
    a, b = (f"CAST({value} AS {kind})" for value in KEYS[kind])
    pair.sql(spark, table, statement.replace("{a}", a).replace("{b}", b))


def begin(spark: Any, folder: Path, tables: dict[str, str]) -> Pair:
    """Make tables with two keys of a type, and replicate them."""
    pair = Pair.of(folder, {table: {} for table in tables})
    for table, kind in tables.items():
        pair.make(spark, table, f"id {kind}, item string")
        run(spark, pair, table, "INSERT INTO {t} VALUES ({a}, 'old'), ({b}, 'other')", kind)
    pair.replicate(spark)
    return pair


@pytest.mark.parametrize("ranges", ["one range", "a range for each commit"])
def test_a_key_that_is_twice_in_between_arrives(spark: Any, tmp_path: Path, ranges: str) -> None:
    """Fails when the destroy of a key stands though the source still has it."""
    ways = [*WAYS.values()] if ranges == "one range" else [WAYS[A_SURPLUS_ROW], WAYS[TWICE]]
    tables = {f"t{n}": "bigint" for n in range(len(ways))}
    pair = begin(spark, tmp_path / "wan", tables)
    for table, statements in zip(tables, ways, strict=True):
        for statement in statements:
            run(spark, pair, table, statement, "bigint")
            if ranges != "one range":
                pair.send(spark)
    pair.replicate(spark)
    pair.assert_same(spark, *tables)


@pytest.mark.parametrize("listed", [True, False], ids=["few keys", "many keys"])
def test_a_key_of_any_type_is_found_again(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listed: bool
) -> None:
    """Keys that are too many to list are netted once more."""
    if not listed:
        monkeypatch.setattr(tasks_module, "LISTED_KEYS", 0)
    kinds = [*KEYS] if listed else ["bigint", "char(4)", "timestamp"]
    tables = {f"t{n}": kind for n, kind in enumerate(kinds)}
    pair = begin(spark, tmp_path / "wan", tables)
    for table, kind in tables.items():
        for statement in WAYS[A_NEW_VERSION]:
            run(spark, pair, table, statement, kind)
        run(spark, pair, table, "DELETE FROM {t} WHERE item = 'other'", kind)
    pair.replicate(spark)
    pair.assert_same(spark, *tables)
    for table in tables:
        assert [row["item"] for row in load(spark, pair.location(table, SEATTLE)).collect()] == [
            "new"
        ]


def test_a_row_that_stays_here_is_no_row_that_is_left(spark: Any, tmp_path: Path) -> None:
    """A key is deleted, and inserted again by a commit that its writer marks as local. Fails when
    the row of the latter is sent."""
    pair = begin(spark, tmp_path / "wan", {"orders": "bigint"})
    run(spark, pair, "orders", "DELETE FROM {t} WHERE id = {a}", "bigint")
    spark.sql("SELECT 1L AS id, 'here' AS item").write.format("delta").mode("append").option(
        "userMetadata", LOCAL_ONLY
    ).save(pair.location("orders"))
    run(spark, pair, "orders", "INSERT INTO {t} VALUES (3, 'three')", "bigint")
    pair.replicate(spark)
    assert pair.rows("orders") == Counter({(2, "other"): 1, (3, "three"): 1})


@pytest.mark.parametrize("listed", [True, False], ids=["few keys", "many keys"])
def test_what_a_commit_that_stays_here_does_to_a_row_that_is_left_is_not_sent(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listed: bool
) -> None:
    """The others have the row as it was when one of its key was deleted. Fails when they lose the
    key, and when they get what was to stay here."""
    if not listed:
        monkeypatch.setattr(tasks_module, "LISTED_KEYS", 0)
    here = {
        "changed": "UPDATE {t} SET item = 'here' WHERE item = 'old'",
        "deleted": "DELETE FROM {t} WHERE item = 'old'",
        "another": "INSERT INTO {t} VALUES ({a}, 'here')",
        "changed twice": "UPDATE {t} SET item = concat(item, '!') WHERE id = {a}",
    }
    tables = [*here] if listed else ["changed"]
    pair = begin(spark, tmp_path / "wan", {table.replace(" ", "_"): "bigint" for table in tables})
    for name in tables:
        table = name.replace(" ", "_")
        run(spark, pair, table, "INSERT INTO {t} VALUES ({a}, 'surplus')", "bigint")
        run(spark, pair, table, "DELETE FROM {t} WHERE item = 'surplus'", "bigint")
        spark.conf.set(METADATA, LOCAL_ONLY)
        try:
            for _ in range(2 if name.endswith("twice") else 1):
                run(spark, pair, table, here[name], "bigint")
        finally:
            spark.conf.unset(METADATA)
    pair.replicate(spark)
    for name in tables:
        rows = pair.rows(name.replace(" ", "_"))
        assert rows == Counter({(1, "old"): 1, (2, "other"): 1}), name


@pytest.mark.parametrize("most", [1_000, 999], ids=["as stored", "too many hashes"])
def test_the_rows_of_a_version_are_sent_as_they_are_stored(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """So what the table has together stays together. Fails when they are sorted; and when the
    driver gets the hashes of more rows than it should."""
    monkeypatch.setattr(source_module, "MOST_HASHES", most)
    pair = Pair.of(tmp_path / "wan", {"orders": {}})
    pair.make(spark, "orders", "id bigint, item string")
    rows = spark.range(1000).selectExpr("1000 - id AS id", "uuid() AS item").coalesce(1)
    rows.write.format("delta").mode("append").save(pair.location("orders"))
    pair.send(spark)
    ids = pair.events("orders", 1)["id"].to_pylist()
    assert ids == sorted(ids, reverse=most == 1_000)
    assert pair.receive(spark)["orders"].held is None
    pair.assert_same(spark, "orders")


@pytest.mark.core
def test_of_several_rows_one_is_sent_and_the_status_says_so(spark: Any, tmp_path: Path) -> None:
    """In the first snapshot, and when one of three is deleted. The frames in which the snapshot had
    all of them are gone."""
    pair = Pair.of(tmp_path / "wan", {"orders": {}})
    pair.make(spark, "orders", "id bigint, item string")
    pair.sql(spark, "orders", "INSERT INTO {t} VALUES (1, 'a'), (1, 'b'), (1, 'c'), (2, 'd')")
    pair.send(spark)
    log = pair.log("orders")
    named = {frame.path for frame in pair.manifests("orders")[0].frames}
    assert {path for path, _ in log.channel.frames(log.stream)} == named
    pair.receive(spark)
    [sent] = [row for row in pair.rows("orders") if row[0] == 1]
    letters = pair.dead_letters("orders", NEWARK)
    assert {letter["cause"] for letter in letters} == {"duplicate_key"}
    assert len(letters) == 2

    pair.sql(spark, "orders", f"DELETE FROM {{t}} WHERE item = '{sent[1]}'")
    pair.replicate(spark)
    [other] = [row for row in pair.rows("orders") if row[0] == 1]
    assert other != sent
    assert other in pair.rows("orders", NEWARK)
    assert len(pair.dead_letters("orders", NEWARK)) == 3

    [channel] = read_status(pair.topology)
    sender = channel.streams[0].sender
    assert sender is not None
    assert sender.duplicates == 2  # the second sender found one that was left, and another
    found = spark.sql(sender.duplicates_query).collect()
    assert [tuple(row) for row in found] == [(1, 2)]
