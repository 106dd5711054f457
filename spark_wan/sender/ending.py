"""Where a captured stream ends, because an operator has asked for that (:mod:`spark_wan.control`).

The end is a manifest without events, whose ``end`` is true and whose ``control`` says which request
it answers. So the log alone says whether a stream has ended, also after a crash, on another
machine, and to a sender that does not know the request yet.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Protocol

from spark_wan.delta.commits import Commit
from spark_wan.wire.control import AT_TIME, NEWEST, End, Ending


class EndingTable(Protocol):
    """What the end of a stream asks of its source."""

    def newest(self) -> Commit: ...


@dataclass(frozen=True)
class EndPoint:
    """Where a stream is to end, as its sender understands it."""

    ending: Ending
    end: End
    """With ``newest``, a version: the newest one when the sender saw the request."""
    clock: Callable[[], int]

    @classmethod
    def of(
        cls, ending: Ending, before: EndPoint | None, source: EndingTable, clock: Callable[[], int]
    ) -> EndPoint:
        """Return the end point that is asked for; ``before``: the one that was known."""
        if before is not None and before.ending == ending:
            return before
        assert ending.end is not None
        end = ending.end
        if end.kind == NEWEST:
            end = End(NEWEST, source.newest().version)
        return cls(ending, end, clock)

    def may_follow(self, commits: Sequence[Commit]) -> list[Commit]:
        """Return those of the commits, ascending, that are before the end."""
        return [*takewhile(self._is_before, commits)]

    def _is_before(self, commit: Commit) -> bool:
        at = commit.time if self.end.kind == AT_TIME else commit.version
        return at <= self.end.point

    def is_reached(self, through: int, following: Sequence[Commit]) -> bool:
        """Whether a stream that is published through a version has reached it. ``following``: the
        commits above that."""
        if self.end.kind != AT_TIME:
            return through >= self.end.point
        # By now, a commit has a later time.
        return self.clock() > self.end.point and not self.may_follow(following[:1])

    def may_be_reached(self, through: int) -> bool:
        """Whether that has to be found out, though nothing has come since."""
        at = self.clock() - 1 if self.end.kind == AT_TIME else through
        return at >= self.end.point
