"""A copy that writes only what differs, into tables of every kind.

Each target has its change feed on. One row is wrong there, one is missing, one is too many: readers
of the feed see these three, the columns that only the target has stay, and of equal rows nobody
sees anything.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest
from pair import Pair
from sites import NEWARK, SEATTLE

from spark_wan.delta.tables import newest_commit
from spark_wan.sync.request import request_copy

KINDS: Mapping[str, tuple[str, str, str]] = {
    "plain": ("", "", ""),
    "own_columns": (
        ", own STRING, five INT DEFAULT 5, tenfold DOUBLE GENERATED ALWAYS AS (amount * 10)"
        ", number BIGINT GENERATED ALWAYS AS IDENTITY",
        "",
        "delta.feature.allowColumnDefaults = 'supported', "
        "delta.constraints.positive = 'amount > 0'",
    ),
    "tracked": (
        "",
        "",
        "delta.enableRowTracking = true, delta.columnMapping.mode = 'name', "
        "delta.enableTypeWidening = true, delta.enableInCommitTimestamps = true",
    ),
    "partitioned": ("", "PARTITIONED BY (day)", "delta.enableDeletionVectors = false"),
    "clustered": ("", "CLUSTER BY (day, id)", "delta.enableDeletionVectors = true"),
}
"""Of a target: columns of its own, how it is laid out, and properties."""
KEYS: Mapping[str, str] = {
    "bigint": "id",
    "string": "concat('key ', id)",
    "decimal(20,2)": "cast(id AS DECIMAL(20,2)) / 4",
    "date": "date_add(DATE'2026-01-01', cast(id AS INT))",
    "timestamp": "timestamp_micros(1767225600000000 + id * 1000003)",
    "timestamp_ntz": "cast(timestamp_micros(1767225600000000 + id * 1000003) AS TIMESTAMP_NTZ)",
    "binary": "cast(concat('key ', id) AS BINARY)",
    "boolean": "id % 2 = 0",
    "char(8)": "concat('key ', id)",
}
"""Of the table ``keyed``, whose key has a column of each type."""
COLUMNS = "id BIGINT NOT NULL, day DATE, item STRING, amount DOUBLE, tags ARRAY<STRING>"
ROWS = (
    "SELECT id, date_add(DATE'2026-01-01', cast(id % 3 AS INT)) AS day, concat('item ', id) AS "
    "item, id / 4 + 1 AS amount, array('a', cast(id AS STRING)) AS tags FROM range(40)"
)


def _values(number: str) -> str:
    return ", ".join(re.sub(r"\bid\b", number, value) for value in KEYS.values())


class Swaps(Pair):
    """The tables of all kinds, replicated, and then altered at the target."""

    def make_all(self, spark: Any) -> None:
        for name, (columns, layout, properties) in KINDS.items():
            self.make_one(spark, name, COLUMNS, columns, layout, properties)
            self.sql(spark, name, f"INSERT INTO {{t}} {ROWS}")
        keys = ", ".join(f"k{n} {kind.upper()}" for n, kind in enumerate(KEYS))
        self.make_one(spark, "keyed", f"id BIGINT, amount DOUBLE, {keys}")
        self.sql(spark, "keyed", f"INSERT INTO {{t}} SELECT id, 1, {_values('id')} FROM range(40)")

    def make_one(
        self,
        spark: Any,
        table: str,
        columns: str,
        own: str = "",
        layout: str = "",
        properties: str = "",
    ) -> None:
        self.make(spark, table, columns)
        every = ", ".join(filter(None, ("delta.enableChangeDataFeed = true", properties)))
        spark.sql(
            f"CREATE TABLE {self.name(table, SEATTLE)} ({columns}{own}) USING delta {layout} "
            f"TBLPROPERTIES ({every})"
        )

    def spoil(self, spark: Any, table: str) -> None:
        there = self.name(table, SEATTLE)
        spark.sql(f"UPDATE {there} SET amount = 77 WHERE id = 3")
        spark.sql(f"DELETE FROM {there} WHERE id = 5")
        more = values = "day, item, tags"
        if table == "keyed":
            more = ", ".join(f"k{n}" for n in range(len(KEYS)))
            values = _values("(id + 1000)")
        spark.sql(
            f"INSERT INTO {there} (id, amount, {more}) SELECT id + 1000, 1, {values} FROM {there} "
            "WHERE id = 7"
        )

    def swap(self, spark: Any) -> dict[str, int]:
        """Ask for copies of all tables and take them; return the versions before."""
        before = {}
        for table in self.topology.tables:
            before[table] = newest_commit(spark, self.location(table, SEATTLE)).version
            request_copy(self.topology, table, SEATTLE, difference=True)
        self.send(spark)
        for table, result in self.apply(spark, rounds=2).items():
            assert result.held is None, (table, result.held)
        return before

    def feed(self, spark: Any, table: str, version: int) -> list[tuple[int, str]]:
        options = {"readChangeFeed": "true", "startingVersion": version + 1}
        rows = spark.read.format("delta").options(**options).load(self.location(table, SEATTLE))
        return sorted((row["id"], row["_change_type"]) for row in rows.collect())


@pytest.fixture(scope="module")
def swaps(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Swaps, Any]:
    tables: dict[str, Any] = {name: {} for name in KINDS}
    tables["keyed"] = {"keys": [f"k{n}" for n in range(len(KEYS))]}
    made = Swaps.of(tmp_path_factory.mktemp("swaps") / "wan", tables)
    made.make_all(spark)
    made.replicate(spark)
    place = made.name("own_columns", SEATTLE)
    spark.sql(f"UPDATE {place} SET own = concat('mine ', id), five = id")
    for table in tables:
        made.spoil(spark, table)
    own = _own(spark, made)
    first = made.swap(spark)
    second = made.swap(spark)
    return made, (first, second, own)


def _own(spark: Any, made: Swaps) -> dict[int, Any]:
    name = made.name("own_columns", SEATTLE)
    rows = spark.sql(f"SELECT id, own, five, number FROM {name} WHERE id <> 5 AND id < 1000")
    return {row["id"]: tuple(row) for row in rows.collect()}


@pytest.mark.parametrize("table", [*KINDS, "keyed"])
def test_a_copy_changes_what_differs_alone(spark: Any, swaps: Any, table: str) -> None:
    made, (first, second, _) = swaps
    changes = made.feed(spark, table, first[table])
    assert changes == [
        (3, "update_postimage"),
        (3, "update_preimage"),
        (5, "insert"),
        (1007, "delete"),
    ]
    assert made.feed(spark, table, second[table]) == []
    columns = spark.read.format("delta").load(made.location(table, NEWARK)).columns
    rows = [
        sorted(map(str, spark.sql(f"SELECT {', '.join(columns)} FROM {name}").collect()))
        for name in (made.name(table), made.name(table, SEATTLE))
    ]
    assert rows[0] == rows[1]


def test_columns_of_the_targets_own_stay(spark: Any, swaps: Any) -> None:
    made, (_, _, own) = swaps
    assert len(own) == 39 and own[3][1:3] == ("mine 3", 3)
    assert _own(spark, made) == own
    name = made.name("own_columns", SEATTLE)
    wrong = spark.sql(f"SELECT * FROM {name} WHERE tenfold <> amount * 10 OR number IS NULL")
    assert wrong.count() == 0


def test_rows_that_share_a_key_hold_the_copy(spark: Any, swaps: Any) -> None:
    """Fails when a difference is written that leaves them, and the tables are taken for equal."""
    made, _ = swaps
    there = made.name("plain", SEATTLE)
    spark.sql(f"INSERT INTO {there} SELECT * FROM {there} WHERE id = 9")
    version = newest_commit(spark, made.location("plain", SEATTLE)).version
    request_copy(made.topology, "plain", SEATTLE, difference=True)
    made.send(spark)
    result = made.apply(spark, rounds=2)["plain"]
    assert "several rows with the key" in str(result.held)
    assert newest_commit(spark, made.location("plain", SEATTLE)).version == version
    spark.sql(f"DELETE FROM {there} WHERE id = 9")
    assert made.apply(spark, rounds=2)["plain"].held is None
    made.assert_same(spark, "plain")
