"""Arrow types: every batch travels in the types of the wire, with the values that it had."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pyarrow as pa
import pytest

from spark_wan.events.arrow_types import arrow_ready

BERLIN = pa.timestamp("us", "Europe/Berlin")
READY = pa.timestamp("us", "UTC")
VARIANT = pa.struct(
    [
        pa.field("value", pa.binary(), False),
        pa.field("metadata", pa.binary(), False, {"variant": "true"}),
    ]
)
NOON = datetime(2024, 7, 1, 12, tzinfo=timezone.utc)


def test_a_ready_batch_is_returned_itself() -> None:
    values = {
        "ts": pa.array([NOON], READY),
        "tn": pa.array([0], pa.timestamp("us")),
        "big": pa.array(["x"], pa.large_string()),
    }
    batch = pa.record_batch(values)
    assert arrow_ready(batch) is batch


@pytest.mark.parametrize(
    ("before", "after", "values"),
    [
        (BERLIN, READY, [NOON, None, NOON]),
        (pa.timestamp("ns", "Asia/Tokyo"), pa.timestamp("ns", "UTC"), [NOON, None, NOON]),
        (pa.string_view(), pa.string(), ["short", None, "longer than twelve bytes"]),
        (pa.binary_view(), pa.binary(), [b"short", None, b"longer than twelve bytes"]),
        (pa.dictionary(pa.int32(), pa.string()), pa.string(), ["a", None, "a"]),
        (pa.list_(BERLIN), pa.list_(READY), [[NOON, None], None, []]),
        (pa.large_list(BERLIN), pa.large_list(READY), [[NOON, None], None, []]),
        (pa.list_(BERLIN, 2), pa.list_(READY, 2), [[NOON, None], None, [NOON, NOON]]),
        (
            pa.map_(pa.string_view(), BERLIN),
            pa.map_(pa.string(), READY),
            [[("a", NOON), ("b", None)], None, []],
        ),
        (pa.struct([("t", BERLIN)]), pa.struct([("t", READY)]), [{"t": NOON}, None, {"t": None}]),
        (
            pa.struct([("t", pa.list_(BERLIN)), ("v", VARIANT)]),
            pa.struct([("t", pa.list_(READY)), ("v", VARIANT)]),
            [{"t": [NOON], "v": {"value": b"1", "metadata": b"2"}}, None, {"t": None, "v": None}],
        ),
    ],
    ids=lambda part: str(part)[:40],
)
def test_values_are_the_same_in_the_types_of_the_wire(
    before: pa.DataType, after: pa.DataType, values: list[Any]
) -> None:
    about = {b"SPARK::metadata::json": b"{}"}
    fields = [pa.field("c", before, metadata=about), pa.field("id", pa.int64(), False)]
    original = pa.array([*values, *values], before)
    batch = pa.record_batch(
        [original, pa.array(range(6))], pa.schema(fields, {b"of": b"the schema"})
    )
    for start in (0, 1, 4):
        ready = arrow_ready(batch.slice(start))
        expected = [pa.field("c", after, metadata=about), pa.field("id", pa.int64(), False)]
        assert ready.schema.equals(pa.schema(expected, {b"of": b"the schema"}), check_metadata=True)
        ready.validate(full=True)
        assert ready["c"].equals(pa.array([*values, *values][start:], after))
        assert ready["id"].to_pylist() == list(range(start, 6))


def test_a_dictionary_inside_a_list_is_decoded() -> None:
    coded = pa.ListArray.from_arrays([0, 1, 3], pa.array(["a", "b", "a"]).dictionary_encode())
    ready = arrow_ready(pa.record_batch({"c": coded}))
    assert ready["c"].type == pa.list_(pa.string())
    assert ready["c"].to_pylist() == [["a"], ["b", "a"]]


def test_field_metadata_inside_nested_types_is_kept() -> None:
    kind = pa.struct([pa.field("v", VARIANT), pa.field("t", BERLIN)])
    ready = arrow_ready(pa.record_batch({"c": pa.array([None], kind)}))
    assert ready.schema.field("c").type.field("v").type.field("metadata").metadata == {
        b"variant": b"true"
    }
