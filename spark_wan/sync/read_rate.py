"""Reading a table at a limited rate: tasks pause between batches of its rows. Imports no Spark."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

TASK_RATE = 16 * 2**20
"""Bytes per second for each of which a rate gets a task. More tasks than cores take turns, and stay
below the rate."""


@dataclass(frozen=True)
class ReadRate:
    """How fast a table's rows may pass: so many tasks, each at most so many rows per second."""

    tasks: int
    rows: float

    @classmethod
    def of(cls, rate: int, rows: int, size: int) -> ReadRate | None:
        """Return that of a table whose files, of ``size`` bytes, are read at ``rate`` bytes per
        second. None: there are no rows.

        A task does not see how many bytes it reads: rows of ``size / rows`` bytes each are
        assumed, but of at least one."""
        if not rows:
            return None
        tasks = math.ceil(rate / TASK_RATE)
        return cls(tasks, rate * rows / max(size, rows) / tasks)


@dataclass(frozen=True)
class PacedRows:
    """Passes batches on, each once the rows before it have taken their time. Spark reads a table
    only as fast as its rows are taken."""

    rows: float
    """At most so many per second."""
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        began, passed = self.clock(), 0
        for batch in batches:
            early = passed / self.rows - (self.clock() - began)
            if early > 0:
                self.sleep(early)
            passed += batch.num_rows
            yield batch
