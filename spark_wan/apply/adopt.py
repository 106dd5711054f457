"""Adopting a backup: its rows take the place of all that a site has of a table.

Afterwards the table's streams go on behind it: what its vector covers is known, and is not applied
again. :meth:`Adopter.round` is a numbered path, and a crash between any two steps changes nothing:

    adopt.1 checked     the backup fits the table, the stream goes on behind it, and its files are
                        those of its certificate
    take.2 to take.7    the rows are put in place (:mod:`spark_wan.apply.replace`)
    adopt.8 withdrawn   a request of this site for a copy, if there was one

It may run beside the site's receiver, as a second receiver may.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from spark_wan.apply.change import Backup, Change
from spark_wan.apply.plan import PlannedEpoch, plan_behind
from spark_wan.apply.replace import CopyWriter, Outcome
from spark_wan.delta.commits import is_same_commit
from spark_wan.errors import SYNC, BackupError
from spark_wan.ledger.progress import Progress, origin_of
from spark_wan.log.inbound import InboundLog
from spark_wan.log.stream_log import StreamLog
from spark_wan.steps import Steps
from spark_wan.wire.certificate import Certificate
from spark_wan.wire.manifest import Manifest


@dataclass(frozen=True)
class Adoption:
    """What became of a backup at a site, or what would."""

    certificate: Certificate
    outcome: Outcome
    begun: bool
    """Whether the channel has a log of the table's stream."""
    dead_letters: int = 0
    """Rows that the table refused."""

    @property
    def is_known(self) -> bool:
        """Whether the table has the backup already."""
        return self.outcome is Outcome.KNOWN


@dataclass
class Adopter:
    """Adopts a backup of one table at one site."""

    site: str
    table: str
    backup: Backup
    logs: Sequence[StreamLog]
    """Of the streams by which the site gets the table."""
    copies: StreamLog
    """Where the site asks for copies."""
    writer: CopyWriter
    writers: Collection[str] | None = None
    """The sites that write the table, by the topology; None: any site."""
    withdraw: Callable[[], object] = lambda: None
    """Ends the site's requests for a copy: its rows are here."""

    @property
    def certificate(self) -> Certificate:
        return self.backup.certificate

    @property
    def manifest(self) -> Manifest:
        """What a copy from the channel with these rows would be."""
        return self.certificate.as_copy(self.copies.stream, self.site)

    def check(self) -> Adoption:
        """Return what would become of the backup. Writes nothing. Raises BackupError."""
        outcome = self.writer.outcome(self.manifest)
        if outcome is Outcome.BEHIND:
            raise self._behind()
        begun = self._check_streams()
        if outcome is Outcome.WRITTEN:
            self.backup.place.check(self.certificate)
        return Adoption(self.certificate, outcome, begun)

    def round(self) -> Steps[Adoption]:
        """Adopt the backup, unless the table has it. Raises BackupError for one that does not fit,
        and what holds an apply; then the table is as it was."""
        adoption = self.check()
        yield "adopt.1 checked"
        if adoption.is_known:
            self.withdraw()
            return adoption
        outcome, change = yield from self.writer.put(
            lambda: Change([PlannedEpoch(self.manifest, -1)], backup=self.backup)
        )
        if outcome is Outcome.BEHIND:
            raise self._behind()
        self.withdraw()
        yield "adopt.8 withdrawn"
        return replace(adoption, outcome=outcome, dead_letters=change.dead_letters)

    def _check_streams(self) -> bool:
        """Check that a stream goes on behind the backup, and that none is of another table. Return
        whether there is one: without a log nothing contradicts the backup, and an epoch that does
        not fit it holds the stream later."""
        begun = [log for log in self.logs if log.since(0)]
        gaps = [self._gap(log) for log in begun]
        if begun and None not in gaps:
            raise BackupError(str(gaps[0]))
        return bool(begun)

    def _gap(self, log: StreamLog) -> str | None:
        """Return why a stream would be held behind the backup; None: it would go on."""
        inbound = InboundLog(log, self.table, writers=self.writers)
        epochs = inbound.after(0)
        self._check_same(inbound.read(epochs[-1]))
        self._check_commit(inbound, epochs)
        behind = Progress.of(self.certificate.vector, ())
        plan = plan_behind(inbound, epochs, self.site, behind)
        if plan.held is None:
            return None
        through = self.certificate.through
        first = inbound.peek(plan.held) if plan.needs is not None else None
        cause = plan.cause
        if first is not None:
            kind = f"the {first.kind} of version" if first.start else "version"
            begins = first.last_version if first.start else first.first_version
            cause = f"what the channel has after it begins with {kind} {begins}"
        return (
            f"{log.stream}: the backup ends at version {through}, and {cause}. Behind it the "
            "stream would be held. Nothing of the backup is used. Make a newer one; or, for a copy "
            f"through the channel, run {SYNC}."
        )

    def _check_same(self, newest: Manifest) -> None:
        """Check that a stream is of the table that the backup is of."""
        own = self.certificate
        if origin_of(newest) != (own.origin, own.table_id, own.selection):
            raise BackupError(
                f"{newest.stream}: the backup is of the table with the ID {own.table_id} at site "
                f"{own.origin} (selection {own.selection!r}), and the stream carries the one with "
                f"the ID {newest.table_id} at site {newest.origin} (selection "
                f"{newest.selection!r}): another table, or the source was replaced since. Nothing "
                "of the backup is used. Make a backup of the table that is sent."
            )
        if newest.keys != own.keys:
            raise BackupError(
                f"{newest.stream}: the backup was made with the keys {', '.join(own.keys)}, and "
                f"the stream has {', '.join(newest.keys)}. Nothing of the backup is used. Make "
                "another one with the topology of today."
            )

    def _check_commit(self, inbound: InboundLog, epochs: Sequence[int]) -> None:
        """Check that the version that was backed up at the origin is the one that was sent."""
        own = self.certificate
        if own.site != own.origin:
            return
        place = bisect_left(epochs, own.through, key=lambda e: inbound.peek(e).last_version)
        sent = inbound.peek(epochs[min(place, len(epochs) - 1)])
        if sent.last_version == own.through and not is_same_commit(
            sent.identity, own.source.identity
        ):
            raise BackupError(
                f"{sent.stream}: version {own.through} of the source is another commit in the "
                "backup than in the channel: the source was restored to an older state and written "
                "to again. Nothing of the backup is used. The status of the table's sender says "
                "what to do."
            )

    def _behind(self) -> BackupError:
        own = self.certificate
        through = self.writer.ledger.progress.through
        has = through.get((own.origin, own.table_id, own.selection))
        return BackupError(
            f"{self.table}: site {self.site} has applied through version {has}, and the backup "
            f"ends at version {own.through}: what came after it may no longer be in the channel. "
            "Nothing of the backup is used. If the site needs a copy of the table, make a newer "
            f"backup, or run {SYNC}."
        )
