"""A comparison reads at most as many bytes per second as it was told to."""

from __future__ import annotations

import pyarrow as pa
import pytest

from spark_wan.sync.read_rate import TASK_RATE, PacedRows, ReadRate


class Time:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now = 5.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def batches(*sizes: int) -> list[pa.RecordBatch]:
    return [pa.RecordBatch.from_pydict({"id": list(range(size))}) for size in sizes]


def test_rows_pass_at_the_rate() -> None:
    """Fails when a task does not wait, or waits for its last rows, too."""
    time = Time()
    given = batches(100, 50, 50)
    passed = list(PacedRows(100.0, time, time.sleep)(given))
    assert passed == given
    assert time.slept == [1.0, 0.5]


def test_a_task_that_is_slow_anyway_does_not_wait() -> None:
    time = Time()
    passed = []
    for batch in PacedRows(100.0, time, time.sleep)(batches(100, 100, 100)):
        passed.append(batch)
        time.now += 3
    assert len(passed) == 3
    assert time.slept == []


def test_a_pace_shares_the_rate_among_its_tasks() -> None:
    """Rows of 10 bytes each; then of a version that has more than the newest one."""
    assert ReadRate.of(1000, rows=50, size=500) == ReadRate(1, 100.0)
    assert ReadRate.of(1000, rows=50, size=0) == ReadRate(1, 1000.0)
    assert ReadRate.of(3 * TASK_RATE, rows=50, size=500) == ReadRate(
        3, pytest.approx(TASK_RATE / 10)
    )


def test_an_empty_table_has_no_pace() -> None:
    assert ReadRate.of(1000, rows=0, size=0) is None
