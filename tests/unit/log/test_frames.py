"""Gateway batches: bounded by rows and bytes, in order, with the events of a key together."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from capturing import capture_task, changes
from fakes import HEADER, STREAM, memory_channel
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_wan.channels.base import Channel, write_of
from spark_wan.errors import FrameError
from spark_wan.log.frames import BatchLimits, BatchPublisher
from spark_wan.wire.frame import decode_frame

randomly = settings(derandomize=True, deadline=None, max_examples=120, print_blob=True)


def batch(keys: list[int], sizes: list[int] | None = None) -> pa.RecordBatch:
    """Events with these keys; ``sizes`` are the bytes of a payload column."""
    payload = [b"x" * size for size in sizes or [0] * len(keys)]
    return pa.record_batch(
        {"id": pa.array(keys, pa.int64()), "payload": pa.array(payload, pa.binary())}
    )


def starts(keys: list[int], before: int | None = None) -> np.ndarray:
    """Positions where another key begins; ``before`` is the last key of what came before."""
    places = [
        place for place, key in enumerate(keys) if key != (keys[place - 1] if place else before)
    ]
    return np.array(places, np.int64)


def published(
    batches: list[tuple[pa.RecordBatch, np.ndarray | None]],
    rows: int = 1_000,
    size: int = 1_000_000,
) -> tuple[BatchPublisher, list[pa.RecordBatch]]:
    """The publisher, and the events of its frames, in order."""
    channel: Channel = memory_channel()
    publisher = BatchPublisher(channel, HEADER, BatchLimits(rows, size))
    publisher.publish(batches)
    frames = []
    for index, ref in enumerate(publisher.refs):
        header, events = decode_frame(channel.get_frame(ref.path), ref.path, ref)
        assert (header.index, header.events, ref.rows) == (index, events.num_rows, events.num_rows)
        frames.append(events)
    assert len(channel.frames(STREAM)) == len(publisher.refs)
    return publisher, frames


def lengths(frames: list[pa.RecordBatch]) -> list[int]:
    return [frame.num_rows for frame in frames]


def test_f47_the_frames_of_all_tasks_of_a_capture_are_one_write() -> None:
    """Frames of one write share their age.

    Fails when a task's attempt does not carry the name of its write: a sweep then deletes the first
    frames of a long snapshot.
    """
    channel = memory_channel()
    for _ in range(2):
        list(capture_task(channel)([changes(1, 2)]))
    paths = [path for path, _ in channel.frames(STREAM)]
    assert len(paths) == 2
    assert {write_of(path) for path in paths} == {HEADER.attempt[:16]}


def test_no_events_are_no_frames() -> None:
    assert published([])[1] == []
    assert published([(batch([]), None)])[1] == []


def test_small_batches_travel_together() -> None:
    events = [(batch([n]), np.array([0])) for n in range(10)]
    assert lengths(published(events, rows=10)[1]) == [10]


def test_a_batch_closes_at_its_rows() -> None:
    """batchSize. Fails without the limit on rows."""
    keys = list(range(25))
    publisher, frames = published([(batch(keys), starts(keys))], rows=10)
    assert lengths(frames) == [10, 10, 5]
    assert not publisher.split_runs


def test_a_batch_closes_at_its_bytes() -> None:
    """batchBytes. Fails without the limit on bytes."""
    keys = list(range(20))
    _, frames = published([(batch(keys, [1_000] * 20), starts(keys))], size=5_500)
    assert sum(lengths(frames)) == 20
    assert all(frame.nbytes <= 5_500 for frame in frames)
    assert len(frames) <= 8


def test_f19_one_event_larger_than_the_limit_travels_alone() -> None:
    keys = list(range(5))
    publisher, frames = published(
        [(batch(keys, [10, 10, 1_000_000, 10, 10]), starts(keys))], size=10_000
    )
    assert [frame.column("id").to_pylist() for frame in frames if frame.nbytes > 10_000] == [[2]]
    assert [key for frame in frames for key in frame.column("id").to_pylist()] == keys
    assert not publisher.split_runs


def test_the_events_of_a_key_stay_together_where_possible() -> None:
    """Fails when a frame is cut exactly at the limit."""
    keys = [1] * 4 + [2] * 4 + [3] * 4
    publisher, frames = published([(batch(keys), starts(keys))], rows=6)
    assert lengths(frames) == [4, 4, 4]
    assert not publisher.split_runs


def test_a_key_with_more_events_than_a_batch_holds_is_split_and_reported() -> None:
    """The manifest then does not call its frames disjoint."""
    keys = [1] * 3 + [2] * 15 + [3] * 2
    publisher, frames = published([(batch(keys), starts(keys))], rows=6)
    assert [key for frame in frames for key in frame.column("id").to_pylist()] == keys
    assert all(frame.num_rows <= 6 for frame in frames)
    assert publisher.split_runs


def test_a_key_that_continues_in_the_next_batch_stays_together() -> None:
    first, second = [1, 1, 2, 2], [2, 2, 3, 3]
    publisher, frames = published(
        [(batch(first), starts(first)), (batch(second), starts(second, 2))], rows=6
    )
    assert lengths(frames) == [6, 2]
    publisher, frames = published(
        [(batch(first), starts(first)), (batch(second), starts(second, 2))], rows=5
    )
    assert lengths(frames) == [2, 4, 2]
    assert not publisher.split_runs


def test_events_without_keys_are_cut_anywhere() -> None:
    publisher, frames = published([(batch([1] * 25), None)], rows=10)
    assert lengths(frames) == [10, 10, 5]
    assert not publisher.split_runs


def test_two_attempts_write_frames_of_their_own() -> None:
    """Invariant 1: a second attempt of a task overwrites nothing."""
    channel = memory_channel()
    for attempt in ("a" * 32, "b" * 32):
        header = HEADER.__class__(**{**HEADER.__dict__, "attempt": attempt})
        BatchPublisher(channel, header, BatchLimits(10, 1_000)).publish([(batch([1, 2]), None)])
    assert len(channel.frames(STREAM)) == 2


@randomly
@given(
    st.lists(st.lists(st.tuples(st.integers(1, 6), st.integers(0, 400)), max_size=6), max_size=5),
    st.integers(1, 12),
    st.integers(1, 2_000),
)
def test_no_event_is_lost_and_the_limits_hold(
    runs: list[list[tuple[int, int]]], rows: int, size: int
) -> None:
    """``runs``: batches of (number of events of one key, their size).

    Keys ascend; some continue in the next batch.
    """
    events: list[tuple[pa.RecordBatch, Any]] = []
    everything: list[int] = []
    key = 0
    for group in runs:
        keys: list[int] = []
        sizes: list[int] = []
        for place, (count, bytes_each) in enumerate(group):
            key += 1 if place or count % 2 else 0
            keys += [key] * count
            sizes += [bytes_each] * count
        events.append((batch(keys, sizes), starts(keys, everything[-1] if everything else None)))
        everything += keys
    publisher, frames = published(events, rows, size)
    assert [key for frame in frames for key in frame.column("id").to_pylist()] == everything
    for frame in frames:
        assert 1 <= frame.num_rows <= rows
        assert frame.nbytes <= size or frame.num_rows == 1
    edges = [
        (a.column("id")[-1].as_py(), b.column("id")[0].as_py())
        for a, b in itertools.pairwise(frames)
    ]
    assert publisher.split_runs == any(last == first for last, first in edges)


def test_limits_are_of_uncompressed_arrow() -> None:
    keys = list(range(1_000))
    publisher, frames = published(
        [(batch(keys, [1_000] * 1_000), starts(keys))], rows=10_000, size=100_000
    )
    assert len(frames) >= 10
    assert sum(ref.bytes for ref in publisher.refs) < 100_000


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_tiny_limits_still_carry_everything(rows: int) -> None:
    keys = [1, 1, 1, 2, 3, 3]
    _, frames = published([(batch(keys), starts(keys))], rows=rows, size=1)
    assert [key for frame in frames for key in frame.column("id").to_pylist()] == keys
    assert lengths(frames) == [1] * 6


def test_f19_an_event_above_max_frame_bytes_is_set_aside_and_those_around_it_travel() -> None:
    """Frames are numbered without a gap. Fails without the limit on what a receiver unpacks."""
    channel, aside = memory_channel(), []
    limits = BatchLimits(1_000, 1_000, 50_000)

    def set_aside(event: pa.RecordBatch, size: int) -> None:
        aside.append((event.column("id").to_pylist(), size))

    publisher = BatchPublisher(channel, HEADER, limits, set_aside)
    publisher.publish([(batch([1, 2, 3], [10, 60_000, 10]), None)])
    [([key], size)] = aside
    assert key == 2 and 60_000 < size < 61_000
    frames = [decode_frame(channel.get_frame(ref.path), ref.path, ref) for ref in publisher.refs]
    assert [events.column("id").to_pylist() for _, events in frames] == [[1], [3]]
    assert [header.index for header, _ in frames] == [0, 1]


def test_f19_a_batch_that_unpacks_to_more_than_its_events_is_split() -> None:
    """A row counts 16 bytes at least, whatever its columns take. Fails without the split: a hundred
    rows of 8 bytes are refused as one event."""
    channel = memory_channel()
    publisher = BatchPublisher(channel, HEADER, BatchLimits(1_000, 1_000, 1_000))
    rows = pa.record_batch({"id": pa.array(range(100), pa.int64())})
    publisher.publish([(rows, None)])
    frames = [
        decode_frame(channel.get_frame(ref.path), ref.path, ref, 1_000)[1].column("id").to_pylist()
        for ref in publisher.refs
    ]
    assert [key for keys in frames for key in keys] == [*range(100)]
    assert len(frames) > 1 and publisher.split_runs


def test_an_event_that_nobody_sets_aside_is_an_error_with_both_limits() -> None:
    limits = BatchLimits(10, 1_000, 50_000, received="60,000 at site seattle")
    publisher = BatchPublisher(memory_channel(), HEADER, limits)
    message = r"60,\d{3} bytes; max_frame_bytes is 50,000 at the sender, 60,000 at site seattle"
    with pytest.raises(FrameError, match=message):
        publisher.publish([(batch([2], [60_000]), None)])
