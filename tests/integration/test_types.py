"""Every type of Delta arrives unchanged: source table, capture, channel, target; and user rows
through sink and source.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dates import ZONE, having
from pair import Pair, hashes
from sites import NEWARK, SEATTLE

import spark_wan
from spark_wan.datasource.decode import decode
from spark_wan.delta.tables import load

# Column: type, then one literal each for a low, a high and an odd row.
TYPES = {
    "tiny": ("tinyint", "-128Y", "127Y", "0Y"),
    "small": ("smallint", "-32768S", "32767S", "0S"),
    "whole": ("int", "int(-2147483648)", "2147483647", "0"),
    "big": ("bigint", "-9223372036854775807L - 1", "9223372036854775807L", "0L"),
    "single": ("float", "float('-Infinity')", "float(3.4028235E38)", "float('NaN')"),
    "precise": ("double", "double('-Infinity')", "1.7976931348623157E308D", "double('NaN')"),
    "zero": ("double", "-0.0D", "0.0D", "4.9E-324D"),
    "fine": (
        "decimal(38,18)",
        "-99999999999999999999.999999999999999999BD",
        "99999999999999999999.999999999999999999BD",
        "0.000000000000000001BD",
    ),
    "wide": ("decimal(38,0)", f"-{'9' * 38}BD", f"{'9' * 38}BD", "0BD"),
    "money": ("decimal(7,2)", "-99999.99BD", "99999.99BD", "0.10BD"),
    "text": ("string", "''", "'Zürich 東京 🚲 e\\u0301'", "concat('a', chr(0), 'b')"),
    "bytes": ("binary", "X''", "X'00FF80'", "X'0A'"),
    "flag": ("boolean", "false", "true", "false"),
    "day": ("date", "DATE'0001-01-01'", "DATE'9999-12-31'", "DATE'1582-10-15'"),
    "instant": (
        "timestamp",
        "timestamp_micros(-62135596800000000L)",
        "timestamp_micros(253402300799999999L)",
        "timestamp_micros(-1L)",
    ),
    "wall": (
        "timestamp_ntz",
        "TIMESTAMP_NTZ'0001-01-01 00:00:00'",
        "TIMESTAMP_NTZ'9999-12-31 23:59:59.999999'",
        "TIMESTAMP_NTZ'2024-03-10 02:30:00'",
    ),
    "fixed": ("char(5)", "''", "'abcde'", "'é'"),
    "short": ("varchar(5)", "''", "'vwxyz'", "' b '"),
    "list": ("array<double>", "array()", "array(-0.0D, double('NaN'), null)", "array(null)"),
    "lists": (
        "array<array<string>>",
        "array(array(), null)",
        "array(array('', null, 'x'))",
        "array()",
    ),
    "instants": (
        "array<timestamp>",
        "array(timestamp_micros(-62135596800000000L))",
        "array(timestamp_micros(253402300799999999L), null)",
        "array()",
    ),
    "pairs": ("map<string,int>", "map()", "map('', 1, 'b', null)", "map('ü', -1)"),
    "by_struct": (
        "map<struct<a:int,b:string>,array<int>>",
        "map()",
        "map(named_struct('a', 1, 'b', 'x'), array(1, null),"
        " named_struct('a', null, 'b', ''), null)",
        "map(named_struct('a', 0, 'b', null), array())",
    ),
    "nested": (
        "struct<zz:struct<day:date,at:timestamp,list:array<struct<q:decimal(38,18)>>>,aa:float>",
        "named_struct('zz', null, 'aa', float(-0.0))",
        "named_struct('zz', named_struct('day', DATE'9999-12-31', "
        "'at', timestamp_micros(253402300799999999L), 'list',"
        " array(named_struct('q', 0.5BD), null)), 'aa', float('NaN'))",
        "named_struct('zz', named_struct('day', null, 'at', null, 'list', null), 'aa', null)",
    ),
    "json": (
        "variant",
        "parse_json('{}')",
        'parse_json(\'{"a": [1, null, "x"], "b": 1.5}\')',
        "parse_json('null')",
    ),
    "json_in": (
        "struct<v:variant,n:int>",
        "named_struct('v', parse_json('1'), 'n', 1)",
        "named_struct('v', null, 'n', null)",
        "named_struct('v', parse_json('\"text\"'), 'n', 2)",
    ),
    "jsons": (
        "array<variant>",
        "array()",
        "array(parse_json('[1,2]'), null)",
        "array(parse_json('true'))",
    ),
    "json_by": (
        "map<string,variant>",
        "map()",
        "map('k', parse_json('1'), 'n', null)",
        "map('', parse_json('{}'))",
    ),
    "dotted.Name": ("string", "'dots'", "''", "null"),
    "größe": ("int", "1", "2", "3"),
    "nothing": ("void", "null", "null", "null"),
}
COLUMNS = "id bigint, " + ", ".join(f"`{name}` {kind}" for name, (kind, *_) in TYPES.items())
LOW, HIGH, ODD, NULL, SAME = 1, 2, 3, 4, 5
"""IDs. The row ``SAME`` has the values of ``HIGH``."""


def row(number: int, place: int | None) -> str:
    """Return the SELECT of one row: the literals at ``place``, or nulls."""
    columns = [
        f"CAST({'null' if place is None else declared[place]} AS {declared[0]}) AS `{name}`"
        for name, declared in TYPES.items()
    ]
    return f"SELECT {number}L AS id, {', '.join(columns)}"


ROWS = " UNION ALL ".join([row(LOW, 1), row(HIGH, 2), row(ODD, 3), row(NULL, None), row(SAME, 2)])
EVENTS = f"SELECT *, concat('e', id) AS event FROM ({ROWS})"


@pytest.fixture(scope="module")
def sites(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """``values`` (keyed), sent as a snapshot; ``inserts`` (keyless), each row inserted twice.
    Elsewhere the session's zone is UTC."""
    with having(spark, {ZONE: "America/New_York"}):
        pair = Pair.of(
            tmp_path_factory.mktemp("types") / "wan", {"values": {}, "inserts": {"keys": []}}
        )
        for table in ("values", "inserts"):
            pair.make(spark, table, COLUMNS)
            pair.sql(spark, table, f"INSERT INTO {{t}} {ROWS}")
        pair.sql(spark, "inserts", f"INSERT INTO {{t}} {ROWS}")
        pair.send(spark)
        pair.apply(spark)
        yield pair


@pytest.fixture(scope="module")
def facts(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """``facts``, a user stream of the same rows."""
    spark_wan.register(spark)
    with having(spark, {ZONE: "America/New_York"}):
        pair = Pair.of(
            tmp_path_factory.mktemp("facts") / "wan",
            {"facts": {"senders": ["events"]}},
            {"events": {}},
        )
        pair.write_events("facts", spark.sql(EVENTS))
        yield pair


def as_text(spark: Any, pair: Pair, table: str, site: str) -> list[tuple[Any, ...]]:
    """Return rows as text, by Spark's own casts, and instants as microseconds."""
    frame = load(spark, pair.location(table, site))
    casts = [f"CAST(`{name}` AS string)" for name in TYPES]
    exact = [
        "unix_micros(instant)",
        "hex(text)",
        "hex(bytes)",
        "unix_micros(nested.zz.at)",
        "unix_micros(get(instants, 0))",
    ]
    return sorted(map(tuple, frame.selectExpr("id", *casts, *exact).collect()))


@pytest.mark.core
def test_creates_of_every_type_arrive(spark: Any, sites: Pair) -> None:
    """A snapshot and a keyless table's inserts, with least, greatest and odd values of every
    type, and nulls everywhere.
    """
    sites.assert_same(spark, "values", "inserts")
    assert as_text(spark, sites, "values", SEATTLE) == as_text(spark, sites, "values", NEWARK)
    assert len(sites.hashes(spark, "inserts")) == 10


@pytest.mark.core
def test_values_arrive_as_they_were_written(spark: Any, sites: Pair) -> None:
    """Not only equal at both sites, but equal to the literals."""
    texts = ("wall", "day", "zero", "precise", "fine", "list")
    rows = load(spark, sites.location("values", SEATTLE)).selectExpr(
        *("id", "fixed", "unix_micros(instant) AS instant", "hex(text) AS text"),
        *(f"CAST({name} AS string) AS {name}" for name in texts),
        *("to_json(json) AS json", "json_in.v IS NULL AS no_variant"),
    )
    arrived = {row["id"]: row for row in rows.collect()}
    assert (arrived[LOW]["instant"], arrived[HIGH]["instant"]) == (
        -62135596800000000,
        253402300799999999,
    )
    assert (arrived[LOW]["wall"], arrived[HIGH]["wall"]) == (
        "0001-01-01 00:00:00",
        "9999-12-31 23:59:59.999999",
    )
    assert (arrived[LOW]["day"], arrived[HIGH]["day"]) == ("0001-01-01", "9999-12-31")
    assert (arrived[LOW]["text"], arrived[ODD]["text"]) == ("", "610062")
    assert (arrived[LOW]["zero"], arrived[HIGH]["zero"], arrived[ODD]["precise"]) == (
        "-0.0",
        "0.0",
        "NaN",
    )
    assert arrived[HIGH]["fine"] == "99999999999999999999.999999999999999999"
    assert (arrived[LOW]["fixed"], arrived[HIGH]["json"]) == (" " * 5, '{"a":[1,null,"x"],"b":1.5}')
    assert arrived[HIGH]["list"] == "[-0.0, NaN, null]"
    assert arrived[HIGH]["no_variant"] is True
    assert all(
        value is None
        for name, value in arrived[NULL].asDict().items()
        if name not in ("id", "no_variant")
    )


def test_the_target_has_the_types_of_the_source(spark: Any, sites: Pair) -> None:
    types = {
        site: {
            field.name: field.dataType
            for field in load(spark, sites.location("values", site)).schema
        }
        for site in (NEWARK, SEATTLE)
    }
    assert types[SEATTLE] == types[NEWARK]


def test_updates_of_every_type_arrive(spark: Any, sites: Pair) -> None:
    """Values become nulls, nulls become values, 0.0 becomes -0.0, also inside an array. A row
    written again unchanged is no event.
    """
    assign = ", ".join(f"t.`{name}` = s.`{name}`" for name in TYPES if name != "nothing")
    changed = " UNION ALL ".join(
        [row(LOW, None), row(HIGH, 3), row(ODD, 1), row(NULL, 2), row(SAME, 2)]
    )
    merge = (
        f"MERGE INTO {{t}} t USING ({changed}) s ON t.id = s.id "
        f"WHEN MATCHED THEN UPDATE SET {assign}"
    )
    sites.sql(spark, "values", merge)
    sites.sql(
        spark, "values", f"UPDATE {{t}} SET zero = -0.0D, list = array(0.0D) WHERE id = {SAME}"
    )
    sites.sql(spark, "values", f"UPDATE {{t}} SET list = array(-0.0D) WHERE id = {SAME}")
    sites.sql(spark, "values", "UPDATE {t} SET instant = instant, zero = zero, json = json")
    sites.sql(
        spark, "values", f"UPDATE {{t}} SET json = parse_json('{{\"b\": 2}}') WHERE id = {NULL}"
    )
    sites.send(spark)
    sites.apply(spark)
    events = Counter(
        (event["id"], event["_wan_version"]) for event in sites.events("values", 2).to_pylist()
    )
    assert Counter(id for id, _ in events) == {LOW: 1, HIGH: 1, ODD: 1, NULL: 2, SAME: 2}
    sites.assert_same(spark, "values")
    assert as_text(spark, sites, "values", SEATTLE) == as_text(spark, sites, "values", NEWARK)


def test_events_of_a_user_stream_arrive(spark: Any, facts: Pair) -> None:
    """Through the sink and the receiver, with deduplication by event ID."""
    facts.apply(spark, "events")
    assert facts.hashes(spark, "facts") == hashes(spark.sql(EVENTS))


def test_the_source_returns_the_rows_given_to_the_sink(
    spark: Any, facts: Pair, tmp_path: Path
) -> None:
    """``format("wan")`` in, ``format("wan")`` out, decoded."""
    rows = spark.sql(EVENTS)
    batches = spark.readStream.format("wan").options(**facts.channel_options("events")).load()
    decoded = decode(batches, rows.schema).drop("nothing")
    query = decoded.writeStream.format("delta").option(
        "checkpointLocation", str(tmp_path / "checkpoint")
    )
    query.trigger(availableNow=True).start(str(tmp_path / "rows")).awaitTermination()
    decoded_rows = load(spark, str(tmp_path / "rows"))
    assert {row[0] for row in decoded_rows.select("wan_operation").distinct().collect()} == {"put"}
    event = [name for name in decoded_rows.columns if name.startswith("wan_")]
    assert hashes(decoded_rows.drop(*event)) == hashes(rows.drop("nothing"))


DAY, MONTHS = "INTERVAL '1' DAY", "INTERVAL '1-2' YEAR TO MONTH"
BOTH, TIME = "make_interval(1, 2, 3)", "TIME'12:30:00'"
REFUSED = "column '{}' is {}, which cannot be carried. Cast it"


@pytest.mark.parametrize(
    ("mode", "odd", "message"),
    [
        ("batch", f"array({DAY})", REFUSED.format("odd.element", "interval day")),
        ("batch", MONTHS, REFUSED.format("odd", "interval year to month")),
        ("batch", TIME, REFUSED.format("odd", "time(6)")),
        ("stream", BOTH, REFUSED.format("odd", "interval")),
    ],
)
def test_unsupported_types_are_refused_by_column(
    spark: Any, tmp_path: Path, mode: str, odd: str, message: str
) -> None:
    """Before anything is in the channel; the message has the column, its type and a remedy."""
    spark_wan.register(spark)
    pair = Pair.of(tmp_path / "wan", {"facts": {"senders": ["events"]}}, {"events": {}})
    with pytest.raises(Exception) as refused:
        if mode == "batch":
            pair.write_events("facts", spark.sql(f"SELECT 1L AS id, 'e' AS event, {odd} AS odd"))
        else:
            rows = (
                spark.readStream.format("rate")
                .load()
                .selectExpr("value AS id", "'e' AS event", f"{odd} AS odd")
            )
            writer = rows.writeStream.format("wan").options(**pair.sink_options("facts"))
            query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
            try:
                query.awaitTermination()
            finally:
                query.stop()
    assert message in str(refused.value)
    assert pair.numbers("facts") == []
    assert pair.frames("facts") == set()
