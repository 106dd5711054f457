"""How fast a sender publishes: a token bucket that all its streams in a job share.

What must be whole is never split: an epoch is published once the bucket is not overdrawn, however
large it is, and its debt is paid before the next one of any stream. So a rate holds on average.

>>> rate = SendRate(bytes=1_000, clock=lambda: 5.0)
>>> rate.spend(bytes=4_000, rows=10)
>>> rate.wait()
3.0
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from spark_wan.topology.model import Sender

BURST = 1.0
"""Seconds for which unused tokens are kept."""


@dataclass
class SendRate:
    """The rates of a sender. Threads share it."""

    bytes: int | None = None
    """Bytes of frames per second; None: any number."""
    rows: int | None = None
    """Events per second; None: any number."""
    clock: Callable[[], float] = time.monotonic
    """Seconds."""
    _paid_at: dict[str, float] = field(default_factory=dict)
    """When the debt of each kind is paid, by ``clock``."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def of(cls, sender: Sender) -> SendRate:
        """Return the rates that the topology gives a sender."""
        return cls(sender.max_bytes_per_second, sender.max_rows_per_second)

    def spend(self, bytes: int, rows: int) -> None:
        """Note that an epoch was published."""
        with self._lock:
            earliest = self.clock() - BURST
            for kind, spent, rate in (("bytes", bytes, self.bytes), ("rows", rows, self.rows)):
                if rate is not None:
                    begins = max(earliest, self._paid_at.get(kind, earliest))
                    self._paid_at[kind] = begins + spent / rate

    def wait(self) -> float:
        """Return the seconds until the next epoch may be published; 0: now."""
        with self._lock:
            now = self.clock()
            return max([0.0, *(paid - now for paid in self._paid_at.values())])
