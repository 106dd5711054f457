"""Captures and applies that take long, for the people who wait for them: how much, how far."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from spark_wan.units import milliseconds


@dataclass(frozen=True)
class Progress:
    """How far a capture or an apply is."""

    stream: str
    work: str
    """``capturing`` or ``applying``."""
    rows: int
    """Number of rows; of a capture an estimate."""
    bytes: int | None
    """Their size: of a first copy that of the table's files, of an apply that of the frames. None:
    not known."""
    began_ms: int
    """In milliseconds since 1970 UTC."""
    share: float | None = None
    """The share that is done, from 0 to 1. None: not known, as of an apply or with Spark
    Connect."""

    def rate(self, now_ms: int) -> float | None:
        """Return the rows per second so far."""
        seconds = (now_ms - self.began_ms) / 1000
        return None if self.share is None or seconds <= 0 else self.rows * self.share / seconds


Share = Callable[[], float | None]
_under_way: dict[object, tuple[Progress, Share]] = {}


@contextmanager
def under_way(
    work: str, stream: str, *, rows: int, size: int | None, share: Share = lambda: None
) -> Iterator[None]:
    """Have :func:`progress` return this work until it ends. ``share`` returns how much is done."""
    key = object()
    _under_way[key] = Progress(stream, work, rows, size, milliseconds()), share
    try:
        yield
    finally:
        del _under_way[key]


def progress() -> list[Progress]:
    """Return how far the captures and applies of this process are, the oldest first."""
    return [replace(begun, share=share()) for begun, share in [*_under_way.values()]]
