"""Where a captured stream ends, because an operator has asked for that (:mod:`spark_wan.control`).

The end is a manifest without events, whose ``end`` is true and whose ``control`` says which request
it answers. So the log alone says whether a stream has ended, also after a crash, on another
machine, and to a sender that does not know the request yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from spark_wan.delta.commits import Commit
from spark_wan.wire.control import AT_TIME, AT_VERSION, NEWEST, End, Ending

LATE_COMMITS = 10_000
"""Milliseconds by which the end of a stream comes after its time: a commit that has begun by then
gets a time before it is there, and the clocks of its writers differ."""


class EndingTable(Protocol):
    """What the end of a stream asks of its source."""

    def newest(self) -> Commit: ...


@dataclass(frozen=True)
class EndPoint:
    """Where a stream is to end, as its sender understands it."""

    ending: Ending
    end: End
    """With ``newest``, a version: the newest one when the sender saw the request."""

    @classmethod
    def of(cls, ending: Ending, before: EndPoint | None, source: EndingTable) -> EndPoint:
        """Return the end point that is asked for; ``before``: the one that was known."""
        if before is not None and before.ending == ending:
            return before
        assert ending.end is not None
        end = ending.end
        if end.kind == NEWEST:
            end = End(NEWEST, source.newest().version)
        return cls(ending, end)

    @property
    def is_fixed(self) -> bool:
        """Whether somebody has chosen the point: nothing behind it may be sent."""
        return self.end.kind != NEWEST

    def moved_to(self, version: int) -> EndPoint:
        """Return the end point of a drain that has gone over what cannot be sent."""
        return replace(self, end=End(NEWEST, version))

    def may_follow(self, commit: Commit) -> bool:
        """Whether a commit is before the end."""
        at = commit.time if self.end.kind == AT_TIME else commit.version
        return at <= self.end.point

    def is_reached(self, through: int, following: Sequence[Commit], now: int) -> bool:
        """Whether a stream that is published through a version has reached it. ``following``: the
        commits above that, as they were at a time ``now`` or later."""
        if self.end.kind != AT_TIME:
            return through >= self.end.point
        is_over = now > self.end.point + LATE_COMMITS
        return is_over and not any(self.may_follow(each) for each in following[:1])

    def may_be_reached(self, through: int, now: int) -> bool:
        """Whether that has to be found out, though nothing has come since."""
        if self.end.kind == AT_TIME:
            return now > self.end.point + LATE_COMMITS
        return through >= self.end.point

    def __str__(self) -> str:
        if self.end.kind == AT_VERSION:
            return f"version {self.end.point}"
        return "a time" if self.end.kind == AT_TIME else "the newest version"
