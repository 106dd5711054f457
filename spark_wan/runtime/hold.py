"""A hold: why something failed, since when, and when it is retried.

Each wait is twice as long as the one before, up to :data:`LONGEST_WAIT`. The first wait differs,
because a retry costs differently much:

- a receiver retries an apply after 10 s: each retry runs Spark jobs;
- a forwarder retries after 1 s: it only sends requests to channels;
- a sender retries after twice its ``batch_interval``, the time in which a user expects changes.

Only a success ends a hold. What may let a retry succeed before its time calls
:meth:`Hold.retry_now`.
"""

from __future__ import annotations

import time
from dataclasses import InitVar, dataclass, field

from spark_wan.units import milliseconds

LONGEST_WAIT = 30.0
"""Longest wait before a retry, in seconds."""


@dataclass
class Hold:
    """A hold. Made again, from the one ``before``, whenever a retry fails."""

    cause: str
    first_wait: InitVar[float]
    """Seconds from the first failure to the first retry."""
    before: InitVar[Hold | None] = None
    wait: float = field(init=False)
    """Seconds from the last failure to the next retry."""
    retry_at: float = field(init=False)
    """By the monotonic clock."""
    since_ms: int = field(init=False)
    """When the first attempt failed, in milliseconds since 1970 UTC."""

    def __post_init__(self, first_wait: float, before: Hold | None) -> None:
        self.wait = next_wait(first_wait, before)
        self.retry_at = time.monotonic() + self.wait
        self.since_ms = milliseconds() if before is None else before.since_ms

    def left(self) -> float:
        """Return the seconds until the next retry; 0: it is due."""
        return max(0.0, self.retry_at - time.monotonic())

    def retry_now(self) -> None:
        """Make the retry due: what the hold waits for may be there."""
        self.retry_at = 0.0


def next_wait(first_wait: float, before: Hold | None) -> float:
    """Return the wait after a failure, in seconds. ``before``: the hold that it continues."""
    return min(LONGEST_WAIT, first_wait if before is None else 2 * before.wait)
