"""When the next capture of a table begins, so that commits travel together.

A receiver takes about as long for one small epoch as for ten. While it applies an epoch, more
commits wait for the next one; how many of them join it is a choice between latency and work
(``optimize`` of a sender):

- ``latency``: a capture begins when a receiver is about to be ready for it. Earlier, it would
  compete with the receiver for the machine, and its commits would wait. Later, the receiver would
  wait for it.
- ``throughput``: a capture begins when twice the time has passed that an epoch takes until its ack.
  So receivers and the capture rest for half of the time, however many commits come.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from spark_wan.topology.values import Optimize

LONGEST_JOIN = 10.0
"""Longest time for which commits wait for later ones, in seconds, for ``latency``."""
LONGEST_GATHER = 60.0
"""The same for ``throughput``."""
_NEWER_SHARE = 0.3
"""Weight of the newest time in an average."""


@dataclass
class Pipeline:
    """How long captures and acks of one stream take, and when the next capture is to begin."""

    optimize: Optimize = "latency"
    _published_at: float | None = None
    """When the newest epoch was published; None: none was."""
    _is_acked: bool = False
    """Whether some receiver has acked it."""
    _capture_time: float = 0.0
    _ack_time: float | None = None
    """From a manifest to its first ack, in seconds."""

    def capture_took(self, seconds: float) -> None:
        """Note how long a capture took."""
        self._capture_time += _NEWER_SHARE * (seconds - self._capture_time)

    def published(self) -> None:
        """Note that an epoch was published."""
        self._published_at, self._is_acked = time.monotonic(), False

    def acked(self) -> None:
        """Note that some receiver has acked the newest epoch."""
        if self._published_at is not None and not self._is_acked:
            passed = time.monotonic() - self._published_at
            known = passed if self._ack_time is None else self._ack_time
            self._ack_time = known + _NEWER_SHARE * (passed - known)
            self._is_acked = True

    def wait(self) -> float:
        """Return the seconds until the next capture should begin."""
        if self._published_at is None or self._ack_time is None:
            return 0.0
        if self.optimize == "throughput":
            join = min(LONGEST_GATHER, 2 * self._ack_time)
        elif self._is_acked:
            return 0.0
        else:
            join = min(LONGEST_JOIN, self._ack_time - self._capture_time)
        return max(0.0, self._published_at + join - time.monotonic())
