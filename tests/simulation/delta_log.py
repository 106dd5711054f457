"""The log of a simulated Delta table: its commits, and what log cleanup leaves of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from spark_wan.delta.commits import DAY, Commit, record_after

Clock = Callable[[], int]

LOG_RETENTION = 30 * DAY


@dataclass
class Reader:
    """A reader of a log: which commits log cleanup has taken from it unseen."""

    log: DeltaLog
    durable: Callable[[], int]
    """Returns the version through which the reader has, durably, what it needs of the log."""
    seen: int = -1
    """Through this version, it has looked at the log while that had all commits, and when they were
    so old that it had to record that it did."""
    missed: list[Commit] = field(default_factory=list)

    def looked(self, time: int) -> None:
        """Note that a round, begun at ``time``, has looked at the log to its end."""
        old = time - record_after(LOG_RETENTION)
        versions = [commit.version for commit in self.log.history(self.seen) if commit.time <= old]
        self.seen = max([self.seen, *versions])

    def removed(self, commits: Sequence[Commit]) -> None:
        """Note that log cleanup has removed commits."""
        seen = max(self.seen, self.durable())
        self.missed += [commit for commit in commits if commit.version > seen]

    def lost(self) -> list[Commit]:
        """Return the commits that are gone, and that the reader could not have seen in time."""
        durable = self.durable()
        return [commit for commit in self.missed if commit.version > durable]


@dataclass
class DeltaLog:
    """Commits of a table. ``clock``: that of the table's store."""

    clock: Clock
    commits: list[Commit] = field(default_factory=list)
    """All there ever were."""
    begins: int = 0
    """The oldest version that log cleanup has left."""
    cuts: int = 0
    """How often its end was cut off."""
    readers: list[Reader] = field(default_factory=list)

    def add(
        self,
        operation: str,
        metadata: str | None = None,
        parameters: Mapping[str, str] | None = None,
        metrics: Mapping[str, str] | None = None,
    ) -> Commit:
        """Add a commit, and return it."""
        version = len(self.commits)
        commit = Commit(
            version,
            self.clock(),
            operation,
            parameters or {},
            metrics or {},
            metadata,
            version - 1,
        )
        self.commits.append(commit)
        return commit

    def read_by(self, durable: Callable[[], int]) -> Reader:
        """Return a new reader of the log, which has missed what is gone."""
        self.readers.append(Reader(self, durable, missed=self.commits[: self.begins]))
        return self.readers[-1]

    def history(self, after: int) -> list[Commit]:
        """Return the commits above ``after`` that are left."""
        return self.commits[max(after + 1, self.begins) :]

    def cut(self, end: int) -> None:
        """Let the log end before a version: it is that of an older state, or of a new table."""
        del self.commits[end:]
        self.begins, self.cuts = min(self.begins, end), self.cuts + 1
        for reader in self.readers:
            reader.seen = min(reader.seen, end - 1)
            reader.missed = [commit for commit in reader.missed if commit.version < end]

    def clean(self) -> bool:
        """Remove commits that are older than the log's retention, never the newest. Returns whether
        there were any."""
        old = self.clock() - LOG_RETENTION
        removed = []
        for commit in self.commits[self.begins : -1]:
            if commit.time > old:
                break
            removed.append(commit)
        self.begins += len(removed)
        for reader in self.readers:
            reader.removed(removed)
        return bool(removed)
