"""Rows that become dead letters are recorded exactly, whatever their types."""

from __future__ import annotations

import datetime
import decimal
import json
from typing import Any

import pyarrow as pa
import pytest
from capturing import capture_task

from spark_wan.receiver.dead_letters import LetterTask

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


@pytest.mark.parametrize("kind", ODD)
def test_the_payload_is_the_exact_row(kind: str) -> None:
    """Equal rows have equal hashes, others do not."""
    values = ODD[kind]
    batch = pa.RecordBatch.from_arrays(
        [pa.array([7, 7, 7]), *[pa.concat_arrays([values.slice(n, 1) for n in (0, 1, 0)])]],
        names=["_wan_version", "v"],
    )
    (found,) = LetterTask(("v",))(iter([batch]))
    for index, payload in enumerate(found.column("_wan_payload").to_pylist()):
        with pa.ipc.open_stream(payload) as reader:
            assert (
                reader.read_all()
                .to_batches()[0]
                .column(0)
                .equals(batch.column("v").slice(index, 1))
                or kind == "floats"
            )
    first, second, third = found.column("_wan_hash").to_pylist()
    assert first == third != second


@pytest.mark.parametrize("kind", ODD)
def test_a_sender_records_rows_outside_of_pythons_range(kind: str) -> None:
    """Python has no such days. JSON is for people; the payload is the exact row.

    Fails with ``_readable`` taken out.
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
