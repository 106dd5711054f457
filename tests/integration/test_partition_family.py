"""Targets that are partitioned by a column that travels: every type, and its odd values.

Delta keeps a partition's value as text, in its log and in the name of a folder. What that cannot
hold becomes a dead letter; all else arrives bit for bit, whatever the time zone of who reads it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pair import Pair
from sites import SEATTLE

import spark_wan.target.decode as decode_module
from spark_wan.delta.tables import load

HIVE = "__HIVE_DEFAULT_PARTITION__"
STORED: dict[str, tuple[str, ...]] = {
    "boolean": ("true", "false"),
    "tinyint": ("-128",),
    "bigint": ("9223372036854775807", "-1"),
    "float": ("float('NaN')", "-0.0F", "float('-Infinity')"),
    "double": ("double('NaN')", "-0.0D", "0.0D", "1e-300D", "0.1D"),
    "decimal(38,18)": ("1.000000000000000001BD", "-0.5BD"),
    "date": ("DATE'1582-10-10'", "DATE'0001-01-01'", "DATE'-0044-03-15'", "DATE'+12345-01-01'"),
    "timestamp": (
        "TIMESTAMP'2026-11-01 05:30:00Z'",  # these two are one local time in New York
        "TIMESTAMP'2026-11-01 06:30:00Z'",
        "TIMESTAMP'1880-01-01 00:00:00.000001Z'",
        "TIMESTAMP'0001-01-01 00:00:00Z'",
        "TIMESTAMP'+12345-12-31 23:59:59.999999Z'",
    ),
    "timestamp_ntz": (
        "TIMESTAMP_NTZ'2026-03-29 02:30:00'",
        "TIMESTAMP_NTZ'1880-01-01 00:00:00.000001'",
        "TIMESTAMP_NTZ'-0044-03-15 12:00:00'",
    ),
    "char(4)": ("'ab'", "'abcd'", "''"),
    "varchar(5)": ("'ab '", "'='"),
    "string": (
        "' '", "'a '", "'/'", "'a=b'", "'%25'", "'a\\nb'", "'é😀'", "'.'", "'..'", "'null'",
        "'\\\\'", "repeat('x', 240)", "concat('a', char(127))",
    ),
    "binary": ("X'6162'", "X'c3a9'"),
}  # fmt: skip
REFUSED: dict[str, tuple[tuple[str, str], ...]] = {
    "timestamp": (("TIMESTAMP'-0044-03-15 12:00:00Z'", "a timestamp before the year 1"),),
    "varchar(5)": (("''", "an empty value"),),
    "string": (
        ("''", "an empty value"),
        (f"'{HIVE}'", f"the value {HIVE}"),
        ("concat('a', char(0))", "NUL"),
        ("repeat('é', 130)", "more than 253 bytes"),
        ("repeat('/', 90)", "more than 253 bytes"),
    ),
    "binary": (
        ("X''", "an empty value"),
        (f"CAST('{HIVE}' AS BINARY)", f"the value {HIVE}"),
        ("X'ff41'", "what is not valid UTF-8"),
        ("X'6100'", "NUL"),
    ),
}
KEYED, BY_KEY, KEYLESS = "keyed", "by_key", "keyless"


@pytest.mark.parametrize("small", [True, False], ids=["small applies", "applies by tasks"])
def test_partition_values_arrive_or_are_dead_letters(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small: bool
) -> None:
    """Fails when a value becomes another or NULL, and when a write fails for ever."""
    if not small:
        monkeypatch.setattr(decode_module, "SMALL_BYTES", 0)
    kinds = list(STORED)
    tables = {f"{KEYED}{n}": (kind, ["id"]) for n, kind in enumerate(kinds)}
    if small:
        text = kinds.index("string")
        tables |= {f"{BY_KEY}{text}": ("string", ["c"]), f"{KEYLESS}{text}": ("string", [])}
        stamp = kinds.index("timestamp")
        tables |= {f"{BY_KEY}{stamp}": ("timestamp", ["c"])}
    else:
        tables = {name: tables[name] for name in tables if tables[name][0] in REFUSED}
    pair = Pair.of(tmp_path / "wan", {name: {"keys": keys} for name, (_, keys) in tables.items()})
    expected = {}
    for table, (kind, _) in tables.items():
        pair.make(spark, table, f"id bigint, c {kind}")
        spark.sql(
            f"CREATE TABLE {pair.name(table, SEATTLE)} (id bigint, c {kind}) USING delta "
            "PARTITIONED BY (c)"
        )
        refused = REFUSED.get(kind, ())
        values = [*STORED[kind], *(value for value, _ in refused)]
        rows = ", ".join(f"({n}, CAST({value} AS {kind}))" for n, value in enumerate(values))
        pair.sql(spark, table, f"INSERT INTO {{t}} VALUES {rows}")
        expected[table] = len(STORED[kind]), [cause for _, cause in refused]
    pair.replicate(spark)
    for table, (stored, causes) in expected.items():
        assert_same_rows(spark, pair, table, stored)
        letters = pair.dead_letters(table)
        found = sorted(letter["cause"] for letter in letters)
        assert found == sorted(f"partition column c cannot store {cause}" for cause in causes)

    if small:
        # A row that was refused gets another value, one that was stored is moved, one is deleted.
        table = f"{KEYED}{text}"
        pair.sql(spark, table, f"UPDATE {{t}} SET c = 'good' WHERE id = {len(STORED['string'])}")
        pair.sql(spark, table, "UPDATE {t} SET c = 'moved' WHERE id = 0")
        pair.sql(spark, table, "DELETE FROM {t} WHERE id = 1")
        pair.sql(spark, f"{BY_KEY}{text}", "DELETE FROM {t} WHERE c = '' OR c = '.'")
        pair.replicate(spark)
        target = load(spark, pair.location(table, SEATTLE))
        moved = {row["id"]: row["c"] for row in target.collect()}
        assert moved[0] == "moved" and moved[len(STORED["string"])] == "good" and 1 not in moved
        assert_same_rows(spark, pair, f"{BY_KEY}{text}", len(STORED["string"]) - 1)


NAMES = ("a-b", "größe", "2024", "select", "a b")
"""Which SQL must quote. Delta takes the last one with column mapping only, and no MERGE into a
table that is partitioned by a name with dots or backticks."""


def test_partition_columns_of_any_name_are_guarded(spark: Any, tmp_path: Path) -> None:
    """Fails when values of such a column become NULL, or when a long one is a write error for
    ever. With column mapping, names of folders do not count: fails when a row that can be stored
    is refused because of another one that cannot."""
    pair = Pair.of(tmp_path / "wan", {f"t{n}": {"keys": ["id"]} for n in range(len(NAMES))})
    long = "repeat('x', 300)"
    for n, name in enumerate(NAMES):
        mapped = name == NAMES[-1]
        mapping = "delta.columnMapping.mode = 'name'" if mapped else ""
        column = f"`{name.replace('`', '``')}`"
        pair.make(spark, f"t{n}", f"id bigint, {column} string", mapping)
        spark.sql(
            f"CREATE TABLE {pair.name(f't{n}', SEATTLE)} (id bigint, {column} string) USING delta "
            f"PARTITIONED BY ({column})" + (f" TBLPROPERTIES ({mapping})" if mapping else "")
        )
        pair.sql(
            spark,
            f"t{n}",
            f"INSERT INTO {{t}} VALUES (1, ''), (2, 'a'), (3, '{HIVE}'), (4, {long})",
        )
    pair.replicate(spark)
    for n, name in enumerate(NAMES):
        found = load(spark, pair.location(f"t{n}", SEATTLE)).collect()
        stored = {row["id"]: row[1] for row in found}
        assert stored == {2: "a", **({4: "x" * 300} if name == NAMES[-1] else {})}, name
        assert len(pair.dead_letters(f"t{n}")) == 4 - len(stored)


def assert_same_rows(spark: Any, pair: Pair, table: str, stored: int) -> None:
    """Check that the target has just the rows of the source that it can store, for readers in two
    time zones."""
    zone = spark.conf.get("spark.sql.session.timeZone")
    try:
        for each in ("UTC", "America/New_York"):
            spark.conf.set("spark.sql.session.timeZone", each)
            source, target = (
                {(row[0], row[1]) for row in shown(spark, pair.location(table, *site))}
                for site in ((), (SEATTLE,))
            )
            assert len(target) == stored
            assert target <= source, (table, each, target - source)
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)


def shown(spark: Any, location: str) -> list[Any]:
    return load(spark, location).selectExpr("id", "hex(CAST(c AS STRING))").collect()
