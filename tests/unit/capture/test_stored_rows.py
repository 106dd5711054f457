"""Rows of a version that are captured as they are stored, each with the hash of its key."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from fakes import HEADER, memory_channel

from spark_wan.capture.netting import COMMIT_VERSION, KEY_HASH, RANK_COLUMN
from spark_wan.capture.source import HASHED_TYPES
from spark_wan.capture.tasks import CapturedTable, CaptureReport, CaptureTask
from spark_wan.events.operations import OP, VERSION, Operation
from spark_wan.log.frames import BatchLimits
from spark_wan.wire.frame import decode_frame


def stored(ids: list[int | None], hashes: list[int] | None = None) -> pa.RecordBatch:
    return pa.record_batch(
        {
            "id": pa.array(ids, pa.int64()),
            COMMIT_VERSION: pa.array([7] * len(ids), pa.int64()),
            RANK_COLUMN: pa.array([1] * len(ids), pa.int8()),
            KEY_HASH: pa.array(hashes or [7 * (each or 0) for each in ids], pa.int64()),
        }
    )


def captured(*tasks: list[pa.RecordBatch]) -> tuple[CaptureReport, pa.Table]:
    """The report of some tasks, as it comes to the driver, and the events in their frames."""
    channel, report = memory_channel(), CaptureReport()
    for number, batches in enumerate(tasks):
        header = replace(HEADER, attempt=f"{number}" * 32)
        task = CaptureTask(
            channel,
            BatchLimits(rows=3, bytes=1 << 20),
            CapturedTable("orders", "/orders", ("id",)),
            header,
            hashed=True,
        )
        for rows in task(batches):
            for row in rows.to_pylist():
                report.add(**row)
    frames = [channel.get_frame(frame.path) for frame in report.frames]
    events = [decode_frame(frame, "a frame")[1] for frame in frames]
    return report, pa.Table.from_batches(events) if events else pa.table({})


def test_all_rows_become_events_in_their_order() -> None:
    """Fails when a row is left out, or when the hash travels."""
    report, events = captured([stored([3, 1]), stored([2, 5, 4])], [stored([9])])
    assert events.column_names == [OP, VERSION, "id"]
    assert events["id"].to_pylist() == [3, 1, 2, 5, 4, 9]
    assert {*events[OP].to_pylist()} == {Operation.CREATE}
    assert {*events[VERSION].to_pylist()} == {7}
    assert [frame.rows for frame in report.frames] == [3, 2, 1]
    assert report.keys_differ() and report.result().disjoint


@pytest.mark.parametrize(
    "tasks",
    [[[stored([1, 1])]], [[stored([1]), stored([1])]], [[stored([1])], [stored([2, 1])]]],
    ids=["a batch", "a task", "two tasks"],
)
def test_equal_keys_have_equal_hashes(tasks: Any) -> None:
    """In a batch, a task, and two tasks. Fails when the frames count although rows share a key."""
    report, _ = captured(*tasks)
    assert not report.keys_differ()


def test_rows_without_a_key_are_dead_letters_and_no_duplicates() -> None:
    report, events = captured([stored([None, 1, None], [42, 7, 42])])
    assert [letter.cause for letter in report.dead_letters] == ["null_in_key"] * 2
    assert events["id"].to_pylist() == [1] and report.keys_differ()


def test_a_version_without_rows_has_no_equal_keys() -> None:
    report, _ = captured([])
    assert report.keys_differ() and not report.frames


def test_a_task_keeps_the_hashes_and_not_the_rows() -> None:
    """Fails when the hashes are a view of the batch that came with them."""
    report = CaptureReport()
    task = CaptureTask(
        memory_channel(),
        BatchLimits(rows=3, bytes=1 << 20),
        CapturedTable("orders", "/orders", ("id",)),
        HEADER,
        hashed=True,
    )
    assert [events.num_rows for events, _ in task._hashed([stored([1, 2])], report)] == [2]
    assert [hashes.flags.owndata for hashes in report.key_hashes] == [True]


def test_hashes_of_any_sign_arrive_as_they_are() -> None:
    hashes = [-(2**63), 2**63 - 1, -1, 0]
    report, _ = captured([stored([1, 2, 3, 4], hashes)])
    assert np.concatenate(report.key_hashes).tolist() == hashes


@pytest.mark.parametrize(
    ("kind", "is_hashed"),
    [
        ("bigint", True),
        ("decimal(38,18)", True),
        ("timestamp_ntz", True),
        ("string", True),
        ("string collate UTF8_LCASE", False),
        ("double", False),
        ("struct<a:int>", False),
        ("interval day", False),
    ],
)
def test_keys_of_which_equal_values_may_have_other_hashes_are_brought_together(
    kind: str, is_hashed: bool
) -> None:
    assert bool(HASHED_TYPES.fullmatch(kind)) is is_hashed
