"""How far a site has applied the streams of a table."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from spark_wan.wire.manifest import Manifest
from spark_wan.wire.mark import LogEntry, Origin, VectorEntry


class LogEpoch(Protocol):
    """An epoch of a log: a manifest, or what a mark says of its stream."""

    @property
    def stream(self) -> str: ...
    @property
    def log_id(self) -> str: ...
    @property
    def epoch(self) -> int: ...
    @property
    def fingerprint(self) -> str:
        """The fingerprint of the epoch's manifest."""


@dataclass
class Progress:
    """How far a site's table is, by its marked commits."""

    through: dict[Origin, int] = field(default_factory=dict)
    positions: dict[tuple[str, str], int] = field(default_factory=dict)
    """(stream, log_id) -> the last epoch that was applied, or skipped as not for this site."""
    fingerprints: dict[tuple[str, str], str] = field(default_factory=dict)
    """(stream, log_id) -> the fingerprint of that epoch's manifest."""
    lost: bool = False
    """Marks are lost of which no later one says what they applied: a stream without progress may
    have been applied before."""

    @classmethod
    def of(
        cls, vector: Iterable[VectorEntry], logs: Iterable[LogEntry], lost: bool = False
    ) -> Progress:
        """Return the progress that a mark or a summary states."""
        progress = cls(lost=lost)
        progress.add(vector, logs)
        return progress

    @property
    def vector(self) -> tuple[VectorEntry, ...]:
        return tuple((*origin, version) for origin, version in self.through.items())

    @property
    def logs(self) -> tuple[LogEntry, ...]:
        return tuple(
            (*place, epoch, self.fingerprints[place]) for place, epoch in self.positions.items()
        )

    def copy(self) -> Progress:
        return Progress(
            dict(self.through), dict(self.positions), dict(self.fingerprints), self.lost
        )

    def advance(
        self, origin: Origin, through: int, applied: LogEpoch, root: LogEpoch | None = None
    ) -> None:
        """Take up an applied epoch; ``through``: the origin's version, or -1; ``root``: of a user
        stream that was forwarded, the epoch as its origin wrote it. Never goes back."""
        vector = [(*origin, through)] if through >= 0 else []
        self.add(vector, [entry_of(each) for each in (applied, root) if each is not None])

    def has(self, epoch: LogEpoch) -> bool:
        """Whether an epoch of a log is applied."""
        return self.position(epoch.stream, epoch.log_id) >= epoch.epoch

    def position(self, stream: str, log_id: str) -> int:
        """Return through which epoch a log is applied; 0: nothing is."""
        return self.positions.get((stream, log_id), 0)

    def add(self, vector: Iterable[VectorEntry], logs: Iterable[LogEntry]) -> None:
        """Take up what a mark says of some origins and logs. Never goes back."""
        for site, table_id, selection, version in vector:
            origin = (site, table_id, selection)
            self.through[origin] = max(version, self.through.get(origin, -1))
        for stream, log_id, epoch, fingerprint in logs:
            place = (stream, log_id)
            if epoch > self.position(stream, log_id):
                self.positions[place] = epoch
                self.fingerprints[place] = fingerprint


def entry_of(epoch: LogEpoch) -> LogEntry:
    """Return what a mark says of the log of an epoch that was applied."""
    return (epoch.stream, epoch.log_id, epoch.epoch, epoch.fingerprint)


def origin_of(manifest: Manifest) -> Origin:
    return (manifest.origin, manifest.table_id, manifest.selection)
