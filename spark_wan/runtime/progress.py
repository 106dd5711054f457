"""Captures and applies that take long, for the people who wait for them: how much, how far."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from spark_wan.messages import message_log
from spark_wan.units import milliseconds
from spark_wan.wire.records import LongWork

log = message_log(__name__)

LONG = 10.0
"""Seconds after which work is reported, and again so often."""


@dataclass(frozen=True)
class Progress:
    """How far a capture or an apply is."""

    stream: str
    site: str
    """Where it is done."""
    work: str
    """``capturing``, ``copying`` or ``applying``."""
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
        return rows_per_s(self.rows, self.share, now_ms - self.began_ms)

    def left(self, now_ms: int) -> int | None:
        """Return how many milliseconds the rest takes."""
        return ms_left(self.share, now_ms - self.began_ms)


def rows_per_s(rows: int, share: float | None, passed_ms: int) -> float | None:
    """Return the rows per second of work of which a share is done; None: it is not known."""
    return None if share is None or passed_ms <= 0 else rows * share * 1000 / passed_ms


def ms_left(share: float | None, passed_ms: int) -> int | None:
    """Return how long the rest of work takes, if it goes on as before; None: it is not known."""
    return None if not share or passed_ms <= 0 else round(passed_ms * (1 - share) / share)


Share = Callable[[], float | None]


@dataclass(frozen=True, eq=False)
class Work:
    """A capture or an apply that is under way."""

    begun: Progress
    share: Share

    def progress(self) -> Progress:
        """Ask how far it is."""
        return replace(self.begun, share=self.share())


_under_way: list[Work] = []


@contextmanager
def under_way(
    work: str,
    stream: str,
    site: str,
    *,
    rows: int,
    size: int | None,
    share: Share = lambda: None,
) -> Iterator[None]:
    """Have :func:`works` return this work until it ends. ``share`` returns how much is done."""
    begun = Work(
        Progress(stream, site, work=work, rows=rows, bytes=size, began_ms=milliseconds()), share
    )
    _under_way.append(begun)
    try:
        yield
    finally:
        _under_way.remove(begun)


def works() -> list[Work]:
    """Return the captures and applies of this process that are under way, the oldest first."""
    return [*_under_way]


class WorkWatch:
    """Reports work that takes long, now and then. Threads may share it.

    Args:
        report: Called with how far work is.
        ended: Called once nothing that was reported is under way any more.
        interval: Seconds between two reports of the same work.
    """

    def __init__(
        self,
        report: Callable[[Progress], None],
        ended: Callable[[], None] = lambda: None,
        interval: float = LONG,
    ) -> None:
        self._report, self._ended, self._interval = report, ended, interval
        self._told: dict[Work, int] = {}
        self._lock = threading.Lock()

    def poll(self) -> None:
        """Report what is due."""
        with self._lock:
            now, there = milliseconds(), works()
            had_told = bool(self._told)
            self._told = {work: at for work, at in self._told.items() if work in there}
            for work in there:
                told = self._told.get(work)
                is_due = now - work.begun.began_ms >= LONG * 1000
                if told is not None:
                    is_due = now - told >= self._interval * 1000
                if is_due:
                    self._told[work] = now
                    self._report(work.progress())
            if had_told and not self._told:
                self._ended()


def log_work(work: Progress) -> None:
    """Log how far work is."""
    now = milliseconds()
    rate = work.rate(now)
    log.info(
        "%s: %s %d rows, %s done",
        work.stream,
        work.work,
        work.rows,
        "an unknown share" if work.share is None else f"{work.share:.0%}",
        event="work",
        stream=work.stream,
        site=work.site,
        work=work.work,
        rows=work.rows,
        bytes=work.bytes,
        share=work.share,
        rows_per_s=None if rate is None else round(rate),
        left_ms=work.left(now),
    )


in_log = WorkWatch(log_work)
"""Has long work in the log. All jobs of the process share it, so each work is there once."""


def share_of(work: str, stream: str) -> float | None:
    """Return how much is done of work that is under way; None: there is none, or not known."""
    of_stream = (each for each in works() if (each.begun.work, each.begun.stream) == (work, stream))
    return next((each.share() for each in of_stream), None)


def long_work(work: str, stream: str, site: str, now_ms: int) -> LongWork | None:
    """Return what a record says of work that has taken longer than :data:`LONG`."""
    for each in works():
        begun = each.begun
        if (begun.work, begun.stream, begun.site) != (work, stream, site):
            continue
        if now_ms - begun.began_ms >= LONG * 1000:
            share = each.share()
            percent = None if share is None else int(100 * share)
            return LongWork(begun.rows, begun.began_ms, begun.bytes, percent)
    return None
