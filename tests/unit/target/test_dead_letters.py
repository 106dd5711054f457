"""Rows that become dead letters are recorded exactly, whatever their types."""

from __future__ import annotations

import base64
import datetime
import decimal
import json
from typing import Any

import pyarrow as pa
import pytest
from capturing import capture_task
from fakes import HEADER

from spark_wan.events.operations import keyed_event_id
from spark_wan.target.record import LetterTask

DAYS = pa.array([-800_000, 0, 4_000_000], pa.date32())
TIMES = pa.array([-80_000_000_000_000_001, 1, 400_000_000_000_000_001], pa.timestamp("us", "UTC"))
ODD: dict[str, pa.Array] = {
    "days before year 1 and after 9999": DAYS,
    "times": TIMES,
    "local times": TIMES.cast(pa.timestamp("us")),
    "days in lists": pa.ListArray.from_arrays([0, 1, 2, 3], DAYS),
    "times in structs": pa.StructArray.from_arrays([TIMES, DAYS], names=["t", "d"]),
    "days as map keys": pa.MapArray.from_arrays([0, 1, 2, 3], DAYS, TIMES),
    "bytes": pa.array([b"\x00\xff", b"", None]),
    "floats": pa.array([float("nan"), float("-inf"), -0.0]),
    "decimals": pa.array(
        [decimal.Decimal("1.5"), None, decimal.Decimal("-99999999999999999999.9")],
        pa.decimal128(38, 1),
    ),
    "struct keys": pa.array(
        [[({"k": 1}, "x")], [], None], pa.map_(pa.struct([("k", pa.int32())]), pa.string())
    ),
    "bytes as map keys": pa.array([[(b"\x00", 1)], [], None], pa.map_(pa.binary(), pa.int32())),
}


def letters(
    batches: list[pa.RecordBatch], schema: pa.Schema, keys: tuple[str, ...] = ()
) -> list[tuple[bytes, str]]:
    """Return payload and event ID of what a receiver records for rows of a target."""
    found = pa.Table.from_batches(LetterTask(HEADER.table_id, keys, schema)(iter(batches)))
    return list(
        zip(
            found.column("_wan_payload").to_pylist(),
            found.column("_wan_event_id").to_pylist(),
            strict=True,
        )
    )


def row(payload: bytes) -> pa.RecordBatch:
    with pa.ipc.open_stream(payload) as reader:
        (found,) = reader.read_all().to_batches()
    assert found.num_rows == 1
    return found


def set_aside(*batches: pa.RecordBatch) -> list[tuple[bytes, str]]:
    """Return payload and event ID of what a sender records for change rows without a key."""
    (result,) = capture_task()(list(batches))
    contents = [json.loads(row["content"]) for row in result.to_pylist() if row["kind"] == "dead"]
    return [(base64.b64decode(each["payload"]), each["event_id"]) for each in contents]


def applied(values: pa.Array, name: str = "v", op: int = 0) -> pa.RecordBatch:
    """Rows of an apply, of version 7."""
    count = len(values)
    return pa.RecordBatch.from_arrays(
        [pa.array([op] * count, pa.int8()), pa.array([7] * count), values],
        names=["_wan_op", "_wan_version", name],
    )


def changed(values: pa.Array, rank: int = 1) -> pa.RecordBatch:
    """The same rows in the change feed, with a null in their key."""
    count = len(values)
    return pa.RecordBatch.from_arrays(
        [
            pa.nulls(count, pa.int64()),
            values,
            pa.array([7] * count),
            pa.array([rank] * count, pa.int8()),
        ],
        names=["id", "v", "_commit_version", "_wan_rank"],
    )


@pytest.mark.parametrize("kind", ODD)
def test_the_payload_is_the_exact_row(kind: str) -> None:
    values = ODD[kind]
    for index, (payload, _) in enumerate(
        letters([applied(values)], pa.schema([("v", values.type)]))
    ):
        assert str(row(payload).column("v")) == str(values.slice(index, 1))


@pytest.mark.parametrize("kind", ODD)
def test_both_ends_record_the_same_of_an_event(kind: str) -> None:
    """ID and row. Equal rows of a commit are different events at both ends; so are a deleted row
    and an equal one that is inserted. Fails when one end has another definition."""
    rows = pa.concat_arrays([ODD[kind].slice(n, 1) for n in (0, 1, 0)])
    feed = [changed(rows.slice(0, 2)), changed(rows.slice(2)), changed(rows.slice(0, 1), rank=0)]
    at_sender = set_aside(*feed)
    nulls = pa.nulls(3, pa.int64())
    at_receiver = letters(
        [
            applied(rows.slice(0, 2)).append_column("id", nulls.slice(0, 2)),
            applied(rows.slice(2)).append_column("id", nulls.slice(2)),
            applied(rows.slice(0, 1), op=2).append_column("id", nulls.slice(2)),
        ],
        pa.schema([("id", pa.int64()), ("v", rows.type)]),
        keys=("id",),
    )
    assert [event_id for _, event_id in at_sender] == [event_id for _, event_id in at_receiver]
    assert len({event_id for _, event_id in at_sender}) == 4
    for (sent, _), (received, _) in zip(at_sender, at_receiver, strict=True):
        one, other = row(sent), row(received)
        assert one.schema.equals(other.schema) and str(one) == str(other)


@pytest.mark.parametrize(
    ("narrow", "wide"),
    [
        (pa.array([1, -7, None], pa.int8()), pa.int64()),
        (pa.array([1, -7, None], pa.int32()), pa.decimal128(20, 2)),
        (pa.array([1, -7, None], pa.int32()), pa.float64()),
        (pa.array([0.1, -0.0, None], pa.float32()), pa.float64()),
        (pa.array([0, -7, None], pa.date32()), pa.timestamp("us")),
        (pa.array([decimal.Decimal("1.5"), None], pa.decimal128(4, 1)), pa.decimal128(20, 4)),
    ],
    ids=["integer", "integer to decimal", "integer to double", "float", "date", "decimal"],
)
def test_a_wider_column_at_the_target_changes_nothing(narrow: pa.Array, wide: pa.DataType) -> None:
    """Fails when the row is taken as it is at the target: its ID would be another one."""
    schema = pa.schema([("v", narrow.type)])
    assert letters([applied(narrow.cast(wide))], schema) == letters([applied(narrow)], schema)


@pytest.mark.parametrize(
    ("keys", "texts"),
    [
        (pa.array([5, -6], pa.int16()), ["5", "-6"]),
        (pa.array(["Ulm", ""]), ["Ulm", ""]),
        (
            DAYS.slice(0, 2),
            ["e303052ee879d04d22788805a6b59b39", "0e0ded2da7cd517e90e4dd7a32b630d9"],
        ),
    ],
    ids=["integers", "strings", "others"],
)
def test_the_event_id_of_a_keyed_row_is_that_of_its_key(keys: pa.Array, texts: list[str]) -> None:
    """Whatever else the row has. Fails when the row's content is part of it: redelivered to a
    target with other columns, the event would be another one."""
    rows = applied(keys, "k")
    found = letters([rows], pa.schema([("k", keys.type)]), ("k",))
    more = rows.append_column("v", pa.array(["a", "b"]))
    wide = letters([more], pa.schema([("k", keys.type), ("v", pa.string())]), ("k",))
    expected = [keyed_event_id(HEADER.table_id, 7, (text,)) for text in texts]
    assert [event_id for _, event_id in found] == [event_id for _, event_id in wide] == expected


def test_the_event_id_of_a_users_event_is_the_users() -> None:
    rows = applied(pa.array(["a"])).append_column("_wan_id", pa.array(["e1"]))
    (found,) = LetterTask("events", (), pa.schema([("v", pa.string())]))(iter([rows]))
    assert found.schema.names == ["_wan_op", "_wan_version", "v", "_wan_id", "_wan_payload"]


@pytest.mark.parametrize("kind", ODD)
def test_a_sender_records_rows_outside_of_pythons_range(kind: str) -> None:
    """Python has no such days. JSON is for people; the payload is the exact row.

    Fails with ``_readable_type`` taken out.
    """
    values = ODD[kind]
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array([None, None, None], pa.int64()),
            values,
            pa.array([7, 7, 7], pa.int64()),
            pa.array([1, 1, 1], pa.int8()),
        ],
        names=["id", "v", "_commit_version", "_wan_rank"],
    )
    (result,) = capture_task()([batch])
    rows = result.to_pylist()
    assert [row["kind"] for row in rows] == ["dead"] * 3
    texts = [json.loads(json.loads(row["content"])["row"])["v"] for row in rows]
    assert len(texts) == 3
    if kind.startswith("days before"):
        assert texts == ["-0221-09-04", "1970-01-01", "12921-08-18"]


def test_ordinary_times_stay_readable() -> None:
    """A row's text has its values as people write them."""
    batch: Any = pa.RecordBatch.from_pydict(
        {
            "id": pa.array([None], pa.int64()),
            "at": pa.array([datetime.datetime(2024, 5, 6, 7, 8, 9, 10)], pa.timestamp("us", "UTC")),
            "_commit_version": pa.array([7], pa.int64()),
            "_wan_rank": pa.array([1], pa.int8()),
        }
    )
    (result,) = capture_task()([batch])
    row = json.loads(json.loads(result.to_pylist()[0]["content"])["row"])
    assert row == {"id": None, "at": "2024-05-06 07:08:09.000010Z"}
