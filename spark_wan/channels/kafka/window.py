"""How much a producer may have under way: what the line to the brokers carries in time.

A record's deadlines count from when the producer has it, and so include the time in which it waits
for those before it. With a fixed number of bytes under way, a slow line would let every record time
out, again and again. So the window is halved when an acknowledgement takes long, and doubled while
they come soon.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

FIRST_BYTES = 8 * 1024 * 1024
"""Bytes of the window at first."""
LEAST_BYTES = 64 * 1024


class Window:
    """A number of bytes that may be under way. Threads share it.

    Args:
        aim: Seconds within which a record should be acknowledged.
        most: Bytes of the window, at most.
        clock: Seconds.
    """

    def __init__(self, aim: float, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._aim = aim
        self._most = most
        self._clock = clock
        self._room = threading.Condition()
        self._under_way = 0
        self._changed = clock()
        self.bytes = min(FIRST_BYTES, most)

    def enter(self, size: int) -> Callable[[bool], None]:
        """Wait until a record of ``size`` bytes may be sent: at once if nothing is under way.

        Return what to call once it is acknowledged (True) or has failed (False).
        """
        with self._room:
            self._room.wait_for(lambda: not self._under_way or self._under_way + size <= self.bytes)
            self._under_way += size
            is_full = 2 * self._under_way > self.bytes
            began = self._clock()

        def leave(is_acknowledged: bool) -> None:
            with self._room:
                self._under_way -= size
                self._adapt(began, is_acknowledged, is_full)
                self._room.notify_all()

        return leave

    def _adapt(self, began: float, is_acknowledged: bool, is_full: bool) -> None:
        """Change the window by what a record took; not by one that was sent before the last change:
        all those of a full window tell the same."""
        if began < self._changed:
            return
        took = self._clock() - began
        if not is_acknowledged or took > self._aim:
            self.bytes = max(LEAST_BYTES, self.bytes // 2)
        elif took < self._aim / 2 and is_full:
            self.bytes = min(self._most, 2 * self.bytes)
        else:
            return
        self._changed = self._clock()
