"""The log of an inbound stream, as those read it that take it over: the apply, and forwarders.

Both take its epochs in order, from the one that they took last, and say so in a log of their own.
A manifest is trusted before anything is done because of it (:meth:`InboundLog.read`). Of an epoch
that was taken before, only the place is needed (:meth:`InboundLog.peek`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import Enum

from spark_wan.errors import ManifestError, UntrustedError
from spark_wan.log.stream_log import StreamLog
from spark_wan.wire.manifest import COPY, Manifest
from spark_wan.wire.records import EpochRef


@dataclass(frozen=True)
class InboundLog:
    """The log of an inbound stream of a table. Raises ManifestError for one of another table."""

    log: StreamLog
    table: str
    new_logs: Callable[[], Collection[str]] = frozenset
    """Loads the IDs of the logs that the user has accepted in place of earlier ones. Called only
    when a decision is needed."""
    writers: Collection[str] | None = None
    """The sites that write the table, by the topology; None: any site."""
    copies: bool = False
    """It has copies of the table, and nothing else."""

    @property
    def stream(self) -> str:
        return self.log.stream

    def accepts(self, log_id: str) -> bool:
        """Whether the user has accepted a log in place of an earlier one."""
        return log_id in self.new_logs()

    def after(self, known: int) -> Sequence[int]:
        """Return the epochs from ``known`` on, ascending without a gap; all of them if the log has
        not got so far."""
        epochs = self.log.since(known - 1) if known > 1 else []
        epochs = epochs or self.log.since(0)
        if epochs:
            self.log.reread(epochs[-1])  # another log may have begun under this name
        return epochs

    def read(self, epoch: int) -> Manifest:
        """Return the manifest of an epoch. Raises UntrustedError when it must not be acted on."""
        manifest = self._checked(self.log.read(epoch))
        if self.writers is not None and manifest.origin not in self.writers:
            raise UntrustedError(
                f"{self.stream}: the events of manifest {epoch} begin at site {manifest.origin}, "
                f"and the topology has {', '.join(self.writers)} as the writer of table "
                f"{self.table}. Nothing of it is applied. If it is right, correct `writers:`; if "
                f"not, find out who wrote the stream, and remove it: `spark-wan remove "
                f"{self.stream}`."
            )
        return manifest

    def peek(self, epoch: int) -> Manifest:
        """Return the manifest of an epoch that was taken before, whoever has signed it."""
        return self._checked(self.log.peek(epoch))

    def _checked(self, manifest: Manifest) -> Manifest:
        if manifest.table != self.table:
            raise ManifestError(
                f"{self.stream}: manifest {manifest.epoch} is for table {manifest.table}, not "
                f"{self.table}."
            )
        if (manifest.kind == COPY) != self.copies:
            # Taken for events, the rows of a copy would be added to those that are there.
            raise ManifestError(
                f"{self.stream}: manifest {manifest.epoch} is of kind {manifest.kind}, which does "
                "not belong into this log. spark_wan did not write it. The stream is held."
            )
        return manifest


class Standing(Enum):
    """How a log stands to the epoch of it that was taken last."""

    GOES_ON = "it has that epoch, or continues from it"
    ANOTHER_LOG = "the stream has another log now"
    ENDS_BEFORE = "it ends before that epoch: the channel was restored to an older state"
    REWRITTEN = "it has another epoch under that number"


def standing(taken: EpochRef, newest: Manifest) -> Standing:
    """Return how a log, by its newest manifest, stands to the epoch that was taken last."""
    if newest.log_id != taken.log_id:
        return Standing.ANOTHER_LOG
    if newest.epoch < taken.epoch:
        return Standing.ENDS_BEFORE
    if newest.epoch == taken.epoch and newest.fingerprint != taken.fingerprint:
        return Standing.REWRITTEN
    return Standing.GOES_ON


def follows(taken: EpochRef | None, manifest: Manifest) -> bool:
    """Whether a manifest may follow the epoch that was taken last: only the one right after it, in
    the same log, names it."""
    return (
        taken is None
        or (manifest.log_id, manifest.epoch) != (taken.log_id, taken.epoch + 1)
        or manifest.previous == taken.fingerprint
    )


def reference(manifest: Manifest) -> EpochRef:
    """Return what another log says of an epoch that was taken."""
    return EpochRef(manifest.stream, manifest.log_id, manifest.epoch, manifest.fingerprint)
