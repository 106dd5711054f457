"""Commits that a sender has read of a table's history and not published yet.

Spark returns a history from its end only: the last n commits. A sender that lags would read all of
its backlog for each epoch. So each commit is read once, and kept until it is published. No Spark.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from spark_wan.delta.commits import Commit, is_same_commit

MOST_COMMITS = 10_000
"""Maximum number of commits that are kept: about 20 MB. A longer backlog is read again after so
many."""


@dataclass
class Backlog:
    """The next commits of a table, as the sender reads them."""

    read: Callable[[int], list[Commit]]
    """Returns the commits above a version that the history still has, ascending."""
    most: int = MOST_COMMITS
    _commits: list[Commit] = field(default_factory=list)
    """Ascending, without gaps."""
    _end: Commit | None = None
    """The newest commit that was read."""

    def above(self, after: int) -> list[Commit]:
        """Return the commits above ``after`` that the history still has, ascending.

        If these are more than ``most``, the first ones; but all of them when columns are renamed
        among the first, because a later commit may undo it.

        What was kept is used if the newest commit that was read is still the same one: a table that
        was restored or replaced since has another commit under its number, or none.
        """
        self._read_end()
        kept = [commit for commit in self._commits if commit.version > after]
        begins = bool(kept) and kept[0].version == after + 1
        if self._end is None or (self._end.version > after and not begins):
            kept = self.read(after)
            self._end = kept[-1] if kept else None
        if not any(commit.operation == "RENAME COLUMN" for commit in kept[: self.most]):
            kept = kept[: self.most]
        self._commits = kept
        return list(kept)

    def forget(self) -> None:
        """Read everything again next time."""
        self._commits, self._end = [], None

    def _read_end(self) -> None:
        """Read the commits after the newest one that was read; forget all if that is another."""
        if self._end is None:
            return
        commits = self.read(self._end.version - 1)
        if not commits or not is_same_commit(commits[0].identity, self._end.identity):
            self.forget()
            return
        if self._commits and self._commits[-1].version == self._end.version:
            self._commits += commits[1:]
        self._end = commits[-1]
