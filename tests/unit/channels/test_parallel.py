"""Requests in flight together: how many, in which order, and what an error leaves behind."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict

import numpy as np
import pyarrow as pa
import pytest
from fakes import HEADER, STREAM, memory_channel, put_frame

from spark_wan.channels import parallel
from spark_wan.channels.parallel import AT_ONCE, BYTES_AT_ONCE, in_order
from spark_wan.log.frames import BatchLimits, BatchPublisher
from spark_wan.target.tasks import DecodeTask

LONG = 60.0
"""Seconds after which a test gives up waiting."""


class Store:
    """Requests that take until ``expected`` of them are in flight together."""

    def __init__(self, expected: int) -> None:
        self.expected = expected
        self.met = threading.Barrier(expected)
        self.lock = threading.Lock()
        self.in_flight = self.most = 0

    def request(self, item: int) -> int:
        with self.lock:
            self.in_flight += 1
            self.most = max(self.most, self.in_flight)
        self.met.wait(LONG)
        with self.lock:
            self.in_flight -= 1
        return item * 10


def test_requests_are_in_flight_together_and_answers_come_in_order() -> None:
    """Fails (the requests wait for each other in vain) when each is waited for by itself."""
    store = Store(AT_ONCE)
    items = range(3 * AT_ONCE)
    assert list(in_order(store.request, items)) == [item * 10 for item in items]
    assert store.most == AT_ONCE


def test_no_more_are_in_flight_than_memory_allows() -> None:
    """Fails when large frames are moved as many at a time as small ones."""
    store = Store(2)
    half = BYTES_AT_ONCE // 2
    assert len(list(in_order(store.request, range(8), size=lambda _: half))) == 8
    assert store.most == 2
    alone = Store(1)
    list(in_order(alone.request, range(4), size=lambda _: 2 * BYTES_AT_ONCE))
    assert alone.most == 1


def test_items_are_taken_when_there_is_room() -> None:
    """Fails when all frames of a task are made before the first one is written."""
    taken: list[int] = []

    def items() -> Iterator[int]:
        for item in range(100):
            taken.append(item)
            yield item

    results = in_order(lambda item: item, items(), at_once=3)
    assert next(results) == 0
    assert len(taken) <= 5
    results.close()  # type: ignore[attr-defined]


def test_one_item_needs_no_thread() -> None:
    here = threading.current_thread()
    assert list(in_order(lambda _: threading.current_thread(), [1])) == [here]
    assert list(in_order(lambda _: threading.current_thread(), [])) == []


def test_the_first_error_is_raised_once_nothing_is_in_flight(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Fails when a request is still at work then: it would write what the caller has removed."""
    release, ended = threading.Event(), list[int]()

    def request(item: int) -> int:
        if item == 1:
            raise OSError("first")
        if item == 2:
            assert release.wait(LONG)
            ended.append(item)
            raise OSError("second")
        return item

    class Pool(ThreadPoolExecutor):
        def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
            release.set()
            super().shutdown(wait, cancel_futures=cancel_futures)

    monkeypatch.setattr(parallel, "ThreadPoolExecutor", Pool)
    results = in_order(request, range(4))
    assert next(results) == 0
    with pytest.raises(OSError, match="first"):
        next(results)
    assert ended == [2]
    assert not [each for each in threading.enumerate() if each.name.startswith("wan-frames")]


def test_frames_of_a_task_are_written_together_and_named_in_order() -> None:
    """150 ms to the store and a hundred frames: fails (waits in vain) when a task writes them one
    by one."""
    channel, store = memory_channel(), Store(AT_ONCE)
    real = channel.put_frame

    def put_frame(stream: str, attempt: str, index: int, data: bytes) -> str:
        store.request(index)
        return real(stream, attempt, index, data)

    channel.put_frame = put_frame  # type: ignore[method-assign]
    rows = pa.record_batch(
        {"_wan_op": pa.array(np.ones(2 * AT_ONCE, np.int8)), "id": np.arange(2 * AT_ONCE)}
    )
    publisher = BatchPublisher(channel, HEADER, BatchLimits(1, 1 << 20))
    publisher.publish([(rows, None)])
    assert [ref.path for ref in publisher.refs] == [
        f"frames/{STREAM}/{HEADER.attempt}-{index:05d}.frame" for index in range(2 * AT_ONCE)
    ]
    assert store.most == AT_ONCE


def test_frames_of_an_apply_are_fetched_together_and_decoded_in_order() -> None:
    """Fails (waits in vain) when a task fetches them one by one."""
    channel, store = memory_channel(), Store(AT_ONCE)
    refs = [put_frame(channel, rows=n + 1) for n in range(2 * AT_ONCE)]
    real = channel.get_frame

    def get_frame(path: str, max_bytes: int | None = None) -> bytes:
        store.request(0)
        return real(path, max_bytes)

    channel.get_frame = get_frame  # type: ignore[method-assign]
    task = DecodeTask(channel, pa.schema([("id", pa.int64())]), user_stream=False)
    entries = [{**asdict(ref), "above": -1, "epoch": n} for n, ref in enumerate(refs)]
    batches = [pa.RecordBatch.from_pylist(part) for part in (entries[:3], entries[3:])]
    assert [rows.num_rows for rows in task(batches)] == [ref.rows for ref in refs]
    assert store.most == AT_ONCE
