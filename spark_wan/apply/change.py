"""Changes to a target table: what an apply writes in one commit, and the table that takes it.

A change is epochs of one stream, or a copy of the whole table, from the channel or a backup. The
table takes it in four calls, one for each step between the plan and the ledger
(:mod:`spark_wan.apply.applier`, :mod:`spark_wan.apply.replace`): ``read``, ``resolve``, ``record``,
``write``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Protocol

from spark_wan.apply.plan import PlannedEpoch
from spark_wan.ledger.applied_columns import AppliedColumns
from spark_wan.ledger.interfaces import TargetHistory
from spark_wan.ledger.progress import origin_of
from spark_wan.sync.place import Place
from spark_wan.wire.certificate import Certificate
from spark_wan.wire.manifest import COPY, EVENTS, Manifest
from spark_wan.wire.mark import AppliedStream, Mark


class Replan(Exception):
    """The plan is out of date: start over with step 1."""


class WriteConflict(Replan):
    """Another writer was faster."""


@dataclass(frozen=True)
class Backup:
    """A backup that is adopted: where it is, and what it has."""

    place: Place
    certificate: Certificate


@dataclass
class Change:
    """Planned epochs on their way into the table, in one commit."""

    epochs: Sequence[PlannedEpoch]
    rows: Any = None
    """Their events, in the form that the target's adapter gives them."""
    _: KW_ONLY
    dead_letters: int = 0
    """This count and those below are set by ``resolve``."""
    duplicates: int = 0
    superseded: int | None = None
    """Events in whose place a later one of the same key is written; None: it is not known."""
    covered: int = 0
    """Events that the table has already: those of a version through which all is applied."""
    new_ids: int = 0
    ids_until: int | None = None
    """See :mod:`spark_wan.wire.mark`."""
    compared: bool = False
    """Set by ``write``: a copy was compared with an earlier version of the table than the one that
    was written to, perhaps."""
    ids_since: int = 0
    """The apply from which on event IDs in the ledger count: that of the newest copy."""
    copied_ids: Manifest | None = None
    """Of a copy of a user stream's table: the part that has the event IDs."""
    backup: Backup | None = None
    """The backup that has the rows; None: the frames of the epochs have them."""

    @property
    def rows_and_bytes(self) -> tuple[int, int]:
        """The number of events, and the size of what has them."""
        if self.backup is not None:
            return self.backup.certificate.rows, self.backup.certificate.bytes
        manifests = [epoch.manifest for epoch in self.epochs]
        return sum(each.rows for each in manifests), sum(each.bytes for each in manifests)

    @property
    def newest(self) -> Manifest:
        """The manifest of the last epoch; all have its columns, keys and origin."""
        return self.epochs[-1].manifest

    @property
    def is_copy(self) -> bool:
        """Whether the rows are those of a whole table, and take the place of all that is there."""
        return self.newest.kind == COPY

    @property
    def only_differences(self) -> bool:
        """Whether a copy is to change only the rows that differ."""
        return self.newest.copy is not None and self.newest.copy.difference

    @property
    def has_event_ids(self) -> bool:
        """Whether the epochs are those of a user stream, whose events have IDs."""
        return self.newest.kind == EVENTS

    @property
    def is_of_users(self) -> bool:
        """Whether users' queries write the events, or wrote those of which a copy has the rows."""
        return self.has_event_ids or self.copied_ids is not None

    def applied(self, before: int) -> AppliedStream:
        """Return what a mark says of the stream. ``before``: the dead letters that it had here."""
        newest = self.newest
        origin, table_id, selection = origin_of(newest)
        stamps = [epoch.manifest.highest_stamp for epoch in self.epochs]
        return AppliedStream(
            origin=origin,
            table_id=table_id,
            selection=selection,
            through=-1 if self.is_of_users else newest.last_version,
            stream=newest.stream,
            log_id=newest.log_id,
            epoch=newest.epoch,
            fingerprint=newest.fingerprint,
            ids=self.is_of_users,
            dead_letters=before + self.dead_letters,
            new_ids=self.new_ids if self.is_of_users else None,
            ids_until=self.ids_until,
            clock=max((stamp for stamp in stamps if stamp is not None), default=None),
            via=newest.via,
        )


@dataclass
class Recorder:
    """Records what belongs to the applies of a table before they are written."""

    target: TargetTable
    _last: tuple[tuple[object, ...], str] | None = None
    """What identifies the apply that was recorded last, and its token."""

    def record(self, change: Change, mark: Mark) -> Mark:
        """Record what belongs to the mark, and return the mark to write.

        An apply whose write failed is recorded once: its retry uses the same token.
        """
        epochs = tuple(epoch.manifest.fingerprint for epoch in change.epochs)
        same = mark.apply, change.new_ids, epochs
        if self._last is not None and self._last[0] == same and not change.dead_letters:
            return replace(mark, token=self._last[1])
        self._last = None
        self.target.record(change, mark)
        if not change.dead_letters:  # the retry may have other dead letters
            self._last = same, mark.token
        return mark


class TargetTable(TargetHistory, Protocol):
    """A target table. The Spark adapter and the simulation each implement it."""

    def create(self, epoch: PlannedEpoch) -> None:
        """Create the table with the epoch's columns. Called on first contact only."""

    def read(self, change: Change, applied: AppliedColumns) -> None:
        """Fetch, check and decode the frames of a change.

        Checks that all ``applied`` columns are still there, then reconciles the columns and finds
        the constraints that rows must satisfy. If it raises, ``change`` holds nothing.
        """

    def resolve(self, change: Change) -> None:
        """Drop redelivered events and keep one event per key. Raises DeadLettersError."""

    def record(self, change: Change, mark: Mark) -> None:
        """Record dead letters and event IDs under the mark's token."""

    def write(self, change: Change, mark: Mark) -> None:
        """Make one commit with the mark, under transaction number ``mark.apply``.

        Raises WriteConflict and TargetError.
        """

    def done(self, change: Change) -> None:
        """Release what ``change`` holds."""

    def check_frames(self, epoch: PlannedEpoch) -> None:
        """Fetch and check every frame of an epoch. Raises FrameError."""
