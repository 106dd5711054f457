"""The first looks at tables after a start: those that can wait have their turn one after another.

At its first look a job compares a table with everything that is recorded of it, which takes Spark
half a second or more. A thousand tables keep it busy for minutes. So a table that has nothing to
do, as far as a glance shows, lets the others go first.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from spark_wan.runtime.scheduler import SLOW, Activity

RETRY = SLOW
"""Seconds after which an activity should ask again although nobody has woken it."""


class FirstLooks:
    """Lets one activity at a time have its first look. ``wake``: has an activity ask again."""

    def __init__(self, wake: Callable[[Activity], None]) -> None:
        self._wake = wake
        self._lock = threading.Lock()
        self._waiting: dict[Activity, None] = {}
        """In the order in which they asked first."""
        self._current: tuple[Activity, float] | None = None
        """Whose turn it is, and since when."""

    def may_begin(self, activity: Activity) -> bool:
        """Whether it is this activity's turn now. If not, it is woken when it may be."""
        now = time.monotonic()
        with self._lock:
            current = self._current
            # One that is slow, or that an error has ended, must not delay all others.
            if current is None or current[0] is activity or now - current[1] >= SLOW:
                self._current = activity, now
                self._waiting.pop(activity, None)
                return True
            self._waiting[activity] = None
            return False

    def done(self, activity: Activity) -> None:
        """Take note that an activity has had its first look, whether it had to wait or not."""
        with self._lock:
            self._waiting.pop(activity, None)
            if self._current is not None and self._current[0] is not activity:
                return
            self._current = None
            following = next(iter(self._waiting), None)
            if following is not None:
                # It asks again, or has something to do: then it must not be woken for others.
                del self._waiting[following]
        if following is not None:
            self._wake(following)
