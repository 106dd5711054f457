"""Rows that a constraint refuses: they are wrong, or were written in another time zone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pair import Pair
from sites import SEATTLE

from spark_wan.delta.tables import load
from spark_wan.errors import StoppedError
from spark_wan.target import zones

IN_TOKYO = "TIMESTAMP'2024-05-07 23:30:00Z'"
THERE, HERE, NEITHER = "DATE'2024-05-08'", "DATE'2024-05-07'", "DATE'2001-01-05'"
ROWS = {
    "a column": (f"{IN_TOKYO} AS at", "CAST(at AS DATE)"),
    "a field": (f"named_struct('at', {IN_TOKYO}, 'a-b', 1) AS s", "CAST(s.at AS DATE)"),
    "an element": (f"array({IN_TOKYO}) AS a", "CAST(a[0] AS DATE)"),
    "in a case": (f"{IN_TOKYO} AS at, 1 AS n", "CASE WHEN n = 1 THEN CAST(at AS DATE) END"),
    "beside a text": (
        f"{IN_TOKYO} AS at, '2024' AS text",
        "IF(CAST(text AS INT) > 0, CAST(at AS DATE), NULL)",
    ),
    "local time": (f"{IN_TOKYO} AS at", "CAST(CAST(at AS STRING) AS DATE)"),
}


def valid(spark: Any, columns: str, broken: str) -> int:
    from pyspark.sql import functions as F

    rows = spark.sql(columns)
    return zones.valid_elsewhere(spark, rows.toArrow(), rows.schema, F.expr(broken))


@pytest.mark.parametrize(("columns", "expression"), ROWS.values(), ids=ROWS)
def test_rows_of_another_time_zone_are_told_from_wrong_ones(
    spark: Any, columns: str, expression: str
) -> None:
    """Fails when it is judged by a row of the receiver's own, in which much is null."""
    query = " UNION ALL ".join(
        f"SELECT {columns}, {day} AS day" for day in (THERE, THERE, HERE, NEITHER)
    )
    assert valid(spark, query, f"{expression} <> day") == 3


@pytest.mark.parametrize(
    ("columns", "expression", "may"),
    [
        ("at TIMESTAMP, day DATE", "day = CAST(at AS DATE)", True),
        ("s STRUCT<at: TIMESTAMP>", "s.at IS NOT NULL", True),
        ("text STRING", "CAST(text AS TIMESTAMP) < NOW()", True),
        ("text STRING", "hour(text) = 5", True),
        ("x BIGINT, text STRING, day DATE", "x > 0 AND length(text) < 9 AND year(day) = 1", False),
    ],
)
def test_what_cannot_depend_on_the_zone_is_not_tried(
    spark: Any, columns: str, expression: str, may: bool
) -> None:
    schema = spark.createDataFrame([], columns).schema
    assert zones.may_depend_on_zone(schema, expression) == may


def test_a_row_that_is_wrong_in_every_time_zone_is_a_dead_letter(
    spark: Any, tmp_path: Path
) -> None:
    """Fails when the stream is held because its constraint depends on the zone."""
    pair = Pair.of(tmp_path / "wan", {"t": {}})
    pair.make(spark, "t", "id BIGINT, at TIMESTAMP, day DATE")
    target = pair.name("t", SEATTLE)
    spark.sql(f"CREATE TABLE {target} (id BIGINT, at TIMESTAMP, day DATE) USING delta")
    spark.sql(f"ALTER TABLE {target} ADD CONSTRAINT c CHECK (day = CAST(at AS DATE))")
    pair.sql(spark, "t", f"INSERT INTO {{t}} VALUES (1, {IN_TOKYO}, {HERE})")
    pair.sql(spark, "t", f"INSERT INTO {{t}} VALUES (2, {IN_TOKYO}, {NEITHER})")
    pair.replicate(spark)
    assert [row["id"] for row in load(spark, pair.location("t", SEATTLE)).collect()] == [1]
    [letter] = pair.dead_letters("t")
    assert letter["cause"].startswith("CHECK c:")


def test_a_stop_is_no_answer(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails when rows become dead letters because the receiver was stopped while it asked; an
    expression that raises is one that is not valid."""
    raised: list[Exception] = [ArithmeticError("DIVIDE_BY_ZERO")]

    def collect() -> object:
        raise raised[0]

    @contextmanager
    def copied(spark: object) -> Iterator[object]:
        query = SimpleNamespace(select=lambda *_: SimpleNamespace(collect=collect))
        frame = SimpleNamespace(where=lambda *_: query)
        conf = SimpleNamespace(set=lambda *_: None)
        yield SimpleNamespace(createDataFrame=lambda *_: frame, conf=conf)

    monkeypatch.setattr(zones, "copied_session", copied)
    assert valid(spark, "SELECT 1 AS id", "1 / 0 > id") == 0
    raised[0] = StoppedError("stopped")
    with pytest.raises(StoppedError):
        valid(spark, "SELECT 1 AS id", "1 / 0 > id")
