"""How far a site has applied the streams of a table."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from spark_wan.wire.manifest import Manifest
from spark_wan.wire.mark import Origin


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
    """How far a site's table is: the sum of its marked commits."""

    through: dict[Origin, int] = field(default_factory=dict)
    positions: dict[tuple[str, str], int] = field(default_factory=dict)
    """(stream, log_id) -> the last epoch that was applied, or skipped as not for this site."""
    fingerprints: dict[tuple[str, str], str] = field(default_factory=dict)
    """(stream, log_id) -> the fingerprint of that epoch's manifest."""
    lost: bool = False
    """Some marks are lost: a stream without progress may have been applied before."""

    def copy(self) -> Progress:
        return Progress(
            dict(self.through), dict(self.positions), dict(self.fingerprints), self.lost
        )

    def advance(self, origin: Origin, through: int, applied: LogEpoch) -> None:
        """Take up an applied epoch; ``through``: the origin's version, or -1. Never goes back."""
        if through >= 0:
            self.through[origin] = max(through, self.through.get(origin, -1))
        place = (applied.stream, applied.log_id)
        if applied.epoch > self.positions.get(place, 0):
            self.positions[place] = applied.epoch
            self.fingerprints[place] = applied.fingerprint


def origin_of(manifest: Manifest) -> Origin:
    return (manifest.origin, manifest.table_id, manifest.selection)
