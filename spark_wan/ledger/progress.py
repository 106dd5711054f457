"""How far a site has applied the streams of a table."""

from __future__ import annotations

from dataclasses import dataclass, field

from spark_wan.wire.manifest import Manifest
from spark_wan.wire.records import Origin


@dataclass
class Progress:
    """How far a site's table is: the sum of its marked commits."""

    through: dict[Origin, int] = field(default_factory=dict)
    positions: dict[tuple[str, str], int] = field(default_factory=dict)
    """(stream, log_id) -> the last epoch of it that was applied."""
    fingerprints: dict[tuple[str, str], str] = field(default_factory=dict)
    """(stream, log_id) -> the fingerprint of that epoch's manifest."""
    lost: bool = False
    """Some marks are lost: a stream without progress may have been applied before."""

    def copy(self) -> Progress:
        return Progress(
            dict(self.through), dict(self.positions), dict(self.fingerprints), self.lost
        )

    def advance(
        self, origin: Origin, through: int, stream: str, log_id: str, epoch: int, fingerprint: str
    ) -> None:
        """Take up an applied epoch. Progress never goes back."""
        if through >= 0:
            self.through[origin] = max(through, self.through.get(origin, -1))
        place = (stream, log_id)
        if epoch > self.positions.get(place, 0):
            self.positions[place] = epoch
            self.fingerprints[place] = fingerprint


def origin_of(manifest: Manifest) -> Origin:
    return (manifest.origin, manifest.table_id, manifest.selection)
