"""Every type of Delta × insert, update, delete, key × table read, change feed: generated values,
compared to the bit by deltalake and pyarrow.

The values are the same in each run; ``SPARK_WAN_SEED=<number>`` chooses others.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import exact
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from dates import DATES, OLD_FILES, ZONE, assert_exact, carry_dates, dated, having, merge
from deltalake import DeltaTable, write_deltalake
from hypothesis import strategies as st
from pair import Pair
from pyspark.sql import functions as F
from sites import NEWARK, SEATTLE

import spark_wan
from spark_wan import Sender
from spark_wan.capture.altered_values import refuse, refused
from spark_wan.datasource.decode import decode
from spark_wan.delta.dataframes import schema_json
from spark_wan.delta.tables import load
from spark_wan.errors import WanError

ZONES = ("America/New_York", "Africa/Monrovia")


def test_f45_dates_and_timestamps_arrive_exactly_through_the_change_feed(
    spark: Any, tmp_path: Path
) -> None:
    """Years before 1 and after 9999, 1582-10-05 to 14, and times before time zones: as values at
    any depth, as keys, and as keys of maps.

    One epoch under each time zone of the sender, applied under another. Each inserts, updates,
    deletes, and changes keys by a day or a microsecond. The receiver's session has settings for
    files of old Spark versions, which must not affect what it writes.

    Fails without the setting with which the change feed returns ``java.time`` values (1582-10-15
    arrives), or without the settings of the writes.
    """
    assert carry_dates(spark, tmp_path / "wan", ZONES) > 100


# --- every type

ROWS, EXAMPLES = 90, 24
"""Rows of the table; different values of each column, which the rows take in turn."""


def schema_of_values() -> pa.Schema:
    """Return a schema with an ID, every type once, and nested types."""
    # An example is often the previous one with a small change.
    nested = exact.generated(exact.types(), 60)[2::3]
    return pa.schema(
        [
            ("id", pa.int64()),
            *((f"c{place}", kind) for place, kind in enumerate([*exact.LEAVES, *nested])),
        ]
    )


def table_of(rows: dict[int, dict[str, Any]], schema: pa.Schema) -> pa.Table:
    return pa.Table.from_pylist(list(rows.values()), schema=schema)


def test_every_type_arrives_exactly_as_value(spark: Any, tmp_path: Path) -> None:
    """Generated values of every type and of nested types: a snapshot, then through the change
    feed inserts, updates by the least amount, deletes, and rows written again unchanged. Each
    update is an event; an unchanged row is none.
    """
    schema = schema_of_values()
    drawn = {
        field.name: [None, *exact.generated(exact.values(field.type), EXAMPLES)]
        for field in list(schema)[1:]
    }
    state = {
        number: {
            "id": number,
            **{
                name: examples[(number + 7 * place) % len(examples)]
                for place, (name, examples) in enumerate(drawn.items())
            },
        }
        for number in range(ROWS)
    }
    pair = Pair.of(tmp_path / "wan", {"values": {}})
    pair.make(
        spark, "values", ", ".join(f"{field.name} {exact.name(field.type)}" for field in schema)
    )
    later = {number: state.pop(number) for number in list(state) if number % 3 == 2}
    merge(spark, pair, "values", table_of(state, schema), "id")
    pair.replicate(spark)
    assert_exact(pair, "values", table_of(state, schema))

    columns = len(schema) - 1
    epoch = 1
    for turn in range(2):
        deleted = [number for number in state if number % 20 == turn]
        unchanged = [number for number in state if number % 20 == 4]
        updated = [number for number in state if number not in (*deleted, *unchanged)]
        for number in updated:
            field = schema.field(1 + (number + turn * ROWS) % columns)
            changed = exact.nudged(state[number][field.name], field.type, number + turn)
            assert changed != state[number][field.name] or repr(changed) != repr(
                state[number][field.name]
            )
            state[number] = {**state[number], field.name: changed}
        inserted = {number: row for number, row in later.items() if number % 2 == turn}
        state.update(inserted)
        merge(spark, pair, "values", table_of(state, schema), "id", deleted)
        for number in deleted:
            del state[number]
        pair.replicate(spark)
        epoch += 1
        events = pair.events("values", epoch)["id"].to_pylist()
        assert sorted(events) == sorted([*deleted, *updated, *inserted])
        assert_exact(pair, "values", table_of(state, schema))


def test_variants_arrive_exactly_as_values(spark: Any, tmp_path: Path) -> None:
    """Generated variants, at the top and nested, which only Spark reads: both sites have the
    same bytes, and the values that were written.
    """
    leaves = (
        st.none()
        | st.booleans()
        | st.integers(-(2**63), 2**63 - 1)
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(max_size=8)
    )
    documents = st.recursive(
        leaves,
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
        ),
        max_leaves=6,
    )
    texts = [json.dumps(document) for document in exact.generated(documents, 60)]
    pair = Pair.of(tmp_path / "wan", {"odd": {}})
    pair.make(
        spark,
        "odd",
        "id bigint, v variant, vs array<variant>, r struct<v:variant,n:void>, "
        "m map<string,variant>",
    )

    def write(rows: Mapping[int, str]) -> None:
        file = tmp_path / f"{len(list(tmp_path.glob('*.parquet')))}.parquet"
        pq.write_table(pa.table({"id": list(rows), "text": list(rows.values())}), file)
        variants = (
            "parse_json(text) v, array(parse_json(text), null) vs, "
            "named_struct('v', parse_json(text), 'n', null) r, map('k', parse_json(text)) m"
        )
        pair.sql(
            spark,
            "odd",
            f"MERGE INTO {{t}} t USING (SELECT id, {variants} FROM parquet.`{file}`) s "
            "ON t.id = s.id WHEN MATCHED AND s.id = 7 THEN DELETE WHEN MATCHED THEN UPDATE SET * "
            "WHEN NOT MATCHED THEN INSERT *",
        )

    def assert_same(rows: Mapping[int, str]) -> None:
        pair.assert_same(spark, "odd")
        target = load(spark, pair.location("odd", SEATTLE)).selectExpr(
            "id", "to_json(v)", "to_json(r.v)", "to_json(vs[0])"
        )
        arrived = {
            number: [json.loads(text) for text in row]
            for number, *row in map(tuple, target.collect())
        }
        assert arrived == {number: [json.loads(text)] * 3 for number, text in rows.items()}

    rows = dict(enumerate(texts[:30]))
    write(rows)
    pair.replicate(spark)
    assert_same(rows)
    # Most rows change, some stay, some are new.
    changed = {
        number: texts[(number + 1) % len(texts)] if number % 5 else text
        for number, text in enumerate(texts)
    }
    write(changed)
    pair.replicate(spark)
    del changed[7]
    assert_same(changed)


def decimals(*texts: str) -> tuple[Decimal, ...]:
    return tuple(map(Decimal, texts))


# A key of each type, with values that are hard to tell apart.
TEXTS = (
    "", " ", "  ", "a", "a ", "A", "\0", "a\0", "\u00e9", "e\u0301",
    "\u212b", "\u00c5", "\ufffd", "null", "\U0001f6b2", "\u00df", "ss", "\ufb03",
)  # fmt: skip
BYTES = (b"\0", b"\0\0", b"a", b"a\0", b"a\0\0", b"\xff", b"\xef\xbf\xbd", b" ")
MONEY = decimals("0.01", "-0.01", "0.10", "1.00", "10.00", "-99999.99", "99999.99")
FINE = decimals("1e-18", "-1e-18", "1", "1.000000000000000001", "99999999999999999999")
WIDE = decimals("9" * 38, "9" * 37 + "8", "-" + "9" * 38, "1")
FIXED = tuple(dict.fromkeys(text.rstrip(" ") for text in TEXTS if text.strip(" ")))
KEYS: dict[str, tuple[str, pa.DataType, tuple[Any, ...]]] = {
    "k_byte": ("tinyint", pa.int8(), (-128, 127, -1, 1)),
    "k_short": ("smallint", pa.int16(), (-32768, 32767, -1, 1)),
    "k_int": ("int", pa.int32(), (-(2**31), 2**31 - 1, 2**24, 2**24 + 1)),
    "k_long": ("bigint", pa.int64(), (-(2**63), 2**63 - 1, 2**63 - 2, 2**53, 2**53 + 1)),
    "k_flag": ("boolean", pa.bool_(), (True,)),
    "k_text": ("string", pa.string(), TEXTS[1:]),
    "k_bytes": ("binary", pa.binary(), BYTES),
    "k_day": ("date", exact.DATE, exact.DAYS),
    "k_at": ("timestamp", exact.INSTANT, exact.MOMENTS),
    "k_wall": ("timestamp_ntz", exact.WALL, exact.MOMENTS),
    "k_money": ("decimal(7,2)", pa.decimal128(7, 2), MONEY),
    "k_fine": ("decimal(38,18)", pa.decimal128(38, 18), FINE),
    "k_wide": ("decimal(38,0)", pa.decimal128(38, 0), WIDE),
    "k_fixed": ("char(5)", pa.string(), FIXED),
    "k_short_text": ("varchar(5)", pa.string(), TEXTS[1:]),
}
PLAIN: dict[str, Any] = {
    **dict.fromkeys(KEYS, 0),
    **{"k_flag": False, "k_text": "", "k_bytes": b"", "k_fixed": "", "k_short_text": ""},
    **dict.fromkeys(("k_money", "k_fine", "k_wide"), Decimal(0)),
}
KEYED = pa.schema(
    [
        ("id", pa.int64()),
        *((name, kind) for name, (_, kind, _) in KEYS.items()),
        ("note", pa.string()),
    ]
)


@pytest.mark.core
def test_every_type_arrives_exactly_as_key(spark: Any, tmp_path: Path) -> None:
    """Rows whose keys differ in one column, by as little as possible: a day, a microsecond, a
    trailing space, a NUL, normalisation, case, the last digit. Some are in the snapshot, and in the
    target before it; the others come through the feed, and some are updated, deleted, or change
    their key.

    Fails when the session of the write does not read chars as they are stored: the MERGE fails, and
    the stream is held forever.
    """
    pair = Pair.of(tmp_path / "wan", {"keyed": {"keys": list(KEYS)}})
    columns = ", ".join(f"{name} {declared}" for name, (declared, _, _) in KEYS.items())
    pair.make(spark, "keyed", f"id bigint, {columns}, note string")
    keys = [PLAIN] + [
        {**PLAIN, name: value}
        for name, (_, _, odd) in KEYS.items()
        for value in dict.fromkeys(odd)
        if value != PLAIN[name]
    ]
    every = {number: {"id": number, **key, "note": "new"} for number, key in enumerate(keys)}
    state = {number: row for number, row in every.items() if number % 2}
    merge(spark, pair, "keyed", table_of(state, KEYED), "id")
    pq.write_table(
        table_of({number: {**row, "note": "old"} for number, row in state.items()}, KEYED),
        tmp_path / "old.parquet",
    )
    target = pair.name("keyed", SEATTLE)
    spark.sql(f"CREATE TABLE {target} (id bigint, {columns}, note string) USING delta")
    spark.sql(f"INSERT INTO {target} SELECT * FROM parquet.`{tmp_path / 'old.parquet'}`")
    pair.replicate(spark)
    assert_exact(pair, "keyed", table_of(state, KEYED), {"k_fixed": 5})

    deleted = [number for number in state if number % 3 == 0]
    for number in state:
        # Every third row takes the key of a row that is deleted in the same commit.
        taken = every[number - 4] if number % 3 == 1 and number - 4 in deleted else every[number]
        state[number] = {**taken, "id": number, "note": f"note {number}"}
    state.update((number, row) for number, row in every.items() if not number % 2)
    merge(spark, pair, "keyed", table_of(state, KEYED), "id", deleted)
    for number in deleted:
        del state[number]
    assert any(row["k_day"] != every[number]["k_day"] for number, row in state.items())
    status = pair.send(spark)
    assert [(stream.held, stream.dead_letters) for stream in status] == [(None, 0)]
    pair.apply(spark)
    assert_exact(pair, "keyed", table_of(state, KEYED), {"k_fixed": 5})


# --- values that the feed alters

BAD, GOOD = "CAST(X'61FF' AS string)", "'\ufffd'"


def held(spark: Any, pair: Pair) -> dict[str, str | None]:
    """Run the sender; return the causes of holds by table."""
    handle = Sender(spark, pair.topology, NEWARK).start(available_now=True)
    with suppress(WanError):
        handle.await_termination()
    return {status.table: status.held for status in handle.status()}


@pytest.mark.core
def test_values_that_the_change_feed_alters_hold_the_stream(spark: Any, tmp_path: Path) -> None:
    """Text that is not UTF-8, and maps with a repeated key (which writers other than Spark may
    write): a snapshot goes on once they are corrected; from the feed, earlier commits are sent.
    U+FFFD itself is ordinary text.

    Fails without the check of strings with U+FFFD, which arrives in place of the byte FF.
    """
    pair = Pair.of(tmp_path / "wan", {"texts": {}, "maps": {}})

    def maps(*rows: tuple[int, list[tuple[float, int]]]) -> None:
        kind = pa.map_(pa.float64(), pa.int64())
        values = {"id": [row[0] for row in rows], "m": pa.array([row[1] for row in rows], kind)}
        config = {"delta.enableChangeDataFeed": "true"}
        write_deltalake(pair.path("maps"), pa.table(values), mode="append", configuration=config)

    def texts(*rows: tuple[int, str]) -> None:
        pair.sql(
            spark,
            "texts",
            f"INSERT INTO {{t}} VALUES {', '.join(f'({row}, {text})' for row, text in rows)}",
        )

    pair.make(spark, "texts", "id bigint, t string")
    texts((1, GOOD), (2, BAD))
    maps((1, [(1.0, 1)]), (2, [(1.0, 2), (1.0, 3)]))
    causes = held(spark, pair)
    invalid_text = "texts: column 't' has text that is not valid UTF-8 in version 1."
    assert invalid_text in str(causes["texts"])
    assert "maps: column 'm' has a map with a repeated key in version 0." in str(causes["maps"])
    assert [pair.numbers(table) or pair.frames(table) for table in causes] == [set(), set()]

    pair.sql(spark, "texts", "UPDATE {t} SET t = make_valid_utf8(t)")
    DeltaTable(str(pair.path("maps"))).delete("id = 2")
    assert set(held(spark, pair).values()) == {None}

    texts((3, GOOD))
    texts((4, BAD))
    maps((3, []), (4, [(0.5, 1), (0.0, 1)]))
    maps((5, [(0.0, 1), (-0.0, 2)]))
    causes = held(spark, pair)
    invalid_text = "texts: column 't' has text that is not valid UTF-8 in version 4."
    assert invalid_text in str(causes["texts"])
    assert "maps: column 'm' has a map with a repeated key in version 3." in str(causes["maps"])
    assert [
        [manifest.last_version for manifest in pair.manifests(table)] for table in ("texts", "maps")
    ] == [[2, 3], [1, 2]]
    assert [pair.frames(table) == pair.named_frames(table) for table in causes] == [True, True]
    pair.apply(spark)
    arrived = exact.rows(exact.read(pair.path("texts", SEATTLE)), "id")
    assert {number: row["t"].decode() for number, row in arrived.items()} == {
        1: "\ufffd",
        2: "a\ufffd",
        3: "\ufffd",
    }
    assert sorted(exact.rows(exact.read(pair.path("maps", SEATTLE)), "id")) == [1, 3, 4]


def test_invalid_text_is_detected_at_any_depth(spark: Any, tmp_path: Path) -> None:
    """Before the feed alters it: in each place of a row where text can stand, and nowhere else."""
    columns = {
        "t": ("string", "{}"),
        "fixed": ("varchar(5)", "{}"),
        "listed": ("array<string>", "array('a', null, {})"),
        "keys": ("array<map<string,int>>", "array(null, map('a', 1, {}, 2))"),
        "deep": (
            "map<int,array<struct<n:int,`s.t`:string>>>",
            "map(1, array(null, named_struct('n', 1, 's.t', {})), 2, null)",
        ),
    }
    declared = ", ".join(f"{name} {kind}" for name, (kind, _) in columns.items())
    spark.sql(
        f"CREATE TABLE delta.`{tmp_path}` (id int, {declared}) USING delta "
        "TBLPROPERTIES (delta.enableChangeDataFeed = true, delta.columnMapping.mode = 'name')"
    )
    rows = [
        [
            form.format(BAD if place == bad else GOOD)
            for place, (_, form) in enumerate(columns.values())
        ]
        for bad in range(len(columns) + 1)
    ]
    rows.append(["null"] * len(columns))
    inserted = ", ".join(f"({number}, {', '.join(row)})" for number, row in enumerate(rows))
    spark.sql(f"INSERT INTO delta.`{tmp_path}` VALUES {inserted}")
    feed = load(spark, str(tmp_path), readChangeFeed="true", startingVersion=1)
    schema = schema_json(load(spark, str(tmp_path)))
    for number in range(len(rows)):
        checked = refuse(feed.where(f"id = {number}"), schema, F.col("_commit_version"), text=True)
        if number >= len(columns):
            assert checked.count() == 1
            continue
        with pytest.raises(Exception, match="spark_wan: refused") as error:
            checked.count()
        cause = str(refused(error.value, "odd", schema))
        column = list(columns)[number]
        assert f"odd: column {column!r} has text that is not valid UTF-8 in version 1." in cause


# --- user streams


def test_dates_of_a_user_stream_arrive_exactly(spark: Any, tmp_path: Path) -> None:
    """The same values through the sink and the receiver (which appends), and through the sink,
    the source and ``decode``.
    """
    spark_wan.register(spark)
    pair = Pair.of(tmp_path / "wan", {"facts": {"senders": ["events"], "keys": []}}, {"events": {}})
    every = [
        dated(number, exact.DAYS[number % len(exact.DAYS)], moment, (0, moment, moment))
        for number, moment in enumerate(exact.MOMENTS)
    ]
    expected = pa.Table.from_pylist(every, schema=DATES)
    file = tmp_path / "facts.parquet"
    pq.write_table(expected, file)
    with having(spark, {ZONE: "Africa/Monrovia"}):
        rows = spark.read.parquet(str(file)).selectExpr("*", "concat('e', id) AS event")
        pair.write_events("facts", rows)
    with having(spark, {ZONE: "America/New_York", **OLD_FILES}):
        pair.apply(spark, "events")
    wanted = exact.rows(expected, "id")
    assert (
        exact.rows(exact.read(pair.path("facts", SEATTLE)).select(expected.column_names), "id")
        == wanted
    )
    with having(spark, {ZONE: "America/New_York"}):
        batches = spark.readStream.format("wan").options(**pair.channel_options("events")).load()
        writer = decode(batches, rows.schema).writeStream.format("delta")
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(
            availableNow=True
        )
        writer.start(str(tmp_path / "decoded")).awaitTermination()
    assert (
        exact.rows(exact.read(tmp_path / "decoded").select(expected.column_names), "id") == wanted
    )
