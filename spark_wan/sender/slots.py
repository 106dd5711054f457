"""Slots: how many threads may do a kind of work at once."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager


class Slots:
    """At most ``number`` holders at a time, first come, first served. (A semaphore lets a holder
    that returns overtake those that wait.)"""

    def __init__(self, number: int) -> None:
        self._free = number
        self._line: deque[object] = deque()
        self._changed = threading.Condition()

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Wait for a slot, and hold it."""
        own = object()
        with self._changed:
            self._line.append(own)
            try:
                self._changed.wait_for(lambda: self._free > 0 and self._line[0] is own)
                self._free -= 1
            finally:
                self._line.remove(own)
                self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._free += 1
                self._changed.notify_all()
