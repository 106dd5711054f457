"""Netting compares the images of a row by their bits, whatever their type."""

from __future__ import annotations

import exact
import pyarrow as pa
import pytest

from spark_wan.capture.netting import COMMIT_VERSION, net

NESTED = exact.generated(exact.types(), 60)[2::3]


def events(column: pa.Array) -> list[int]:
    """The IDs of changed rows. ``column`` has the old and the new image of each row in turn."""
    count = len(column) // 2
    images = {
        "id": pa.array([number for number in range(count) for _ in (0, 1)]),
        "value": column,
        COMMIT_VERSION: pa.array([7] * 2 * count, pa.int64()),
        "_wan_rank": pa.array([0, 1] * count, pa.int8()),
    }
    return [
        key
        for part in net([pa.record_batch(images)], ["id"])
        for key in part.events["id"].to_pylist()
    ]


@pytest.mark.parametrize("kind", [*exact.LEAVES, *NESTED], ids=exact.name)
def test_every_change_is_an_event_and_equal_images_are_none(kind: pa.DataType) -> None:
    """Generated values, each changed as little as possible in several places, and unchanged."""
    originals = [None, *exact.generated(exact.values(kind), 20)]
    pairs = [(value, exact.nudged(value, kind, turn)) for value in originals for turn in range(12)]
    old_and_new = pa.array([image for pair in pairs for image in pair], kind)
    assert events(old_and_new) == list(range(len(pairs)))
    again = pa.array([image for value in originals for image in (value, value)], kind)
    assert events(again) == []


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64(), pa.list_(pa.float64())], ids=str)
def test_zero_and_minus_zero_are_two_values(kind: pa.DataType) -> None:
    images = [0.0, -0.0] if pa.types.is_floating(kind) else [[0.0], [-0.0]]
    assert events(pa.array(images, kind)) == [0]
