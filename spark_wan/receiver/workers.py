"""Threads of one micro-batch: each table's work runs alone, several tables at once, and a slow table delays no other."""

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
"""Seconds after which a table at work no longer counts among those that are written at once."""


class TableWorkers:
    """Runs the work that it is given, one thread per table at work.

    At most ``parallel`` tables are at work at once, and those beside that have been at it for more than ``SLOW`` seconds (a long snapshot, a
    write that a lock holds up). The first error that a work raises ends it: nothing more is begun, and :meth:`wait` raises the error.
    """

    def __init__(self, spark: SparkSession, parallel: int) -> None:
        self._spark = spark
        self._parallel = max(1, parallel)
        self._changed = threading.Condition()
        self._waiting: dict[str, Callable[[], None]] = {}
        self._at_work: dict[str, float] = {}
        """Table -> when its work began."""
        self._errors: list[BaseException] = []

    def give(self, table: str, work: Callable[[], None]) -> None:
        """Give work for a table. Dropped while the table is at work: whoever finds work finds it again."""
        with self._changed:
            if table not in self._at_work:
                self._waiting[table] = work

    def wait(self, seconds: float) -> bool:
        """Begin what may begin, for at most ``seconds``. Returns whether all is done; raises the first error of a work."""
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
        """Begin nothing more, and wait for the tables at work."""
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
            run, unbegun = partial(self._run, table, work), partial(self._end, table)
            spark_thread(
                self._spark, run, f"wan-receiver {table}", unbegun
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
