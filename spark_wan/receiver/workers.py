"""Threads of one micro-batch: one per table, several tables at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from spark_wan.delta.sessions import spark_thread

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SLOW = 20.0
"""Seconds after which a table being written no longer counts towards the limit."""


class TableWorkers:
    """Threads that each work on one table.

    At most ``parallel`` tables are worked on at once, not counting those that have taken more than
    ``SLOW`` seconds (a long snapshot, a write that waits for a lock): a slow table delays no other.
    After the first error no further work starts, and :meth:`wait` raises it.
    """

    def __init__(self, spark: SparkSession, parallel: int) -> None:
        self._spark = spark
        self._parallel = max(1, parallel)
        self._changed = threading.Condition()
        self._waiting: dict[str, Callable[[], None]] = {}
        self._at_work: dict[str, float] = {}
        """Table -> when its work started."""
        self._errors: list[BaseException] = []

    def give(self, table: str, work: Callable[[], None]) -> None:
        """Queue work for a table. Ignored while the table is worked on: the next poll finds it."""
        with self._changed:
            if table not in self._at_work:
                self._waiting[table] = work

    def wait(self, seconds: float) -> bool:
        """Start queued work for up to ``seconds``. Return whether all is done.

        Raises the first error of any work.
        """
        end = time.monotonic() + seconds
        with self._changed:
            while True:
                if self._errors:
                    raise self._errors[0]
                self._begin()
                left = end - time.monotonic()
                if not self._at_work or left <= 0:
                    return not self._at_work
                self._changed.wait(left)

    def join(self) -> None:
        """Start nothing more, and wait for the tables being worked on."""
        with self._changed:
            self._waiting.clear()
            while self._at_work:
                self._changed.wait()

    def _begin(self) -> None:
        now = time.monotonic()
        while (
            self._waiting
            and sum(now - since < SLOW for since in self._at_work.values()) < self._parallel
        ):
            table, work = next(iter(self._waiting.items()))
            run, on_lost_session = partial(self._run, table, work), partial(self._end, table)
            spark_thread(
                self._spark, run, f"wan-receiver {table}", on_lost_session
            ).start()  # waits for the lock before it ends
            del self._waiting[table]
            self._at_work[table] = now

    def _run(self, table: str, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            self._end(table, error)
        else:
            self._end(table, None)

    def _end(self, table: str, error: BaseException | None) -> None:
        with self._changed:
            if error is not None:
                self._errors.append(error)
            del self._at_work[table]
            self._changed.notify_all()
