"""Which epochs of an inbound log a forwarder takes next: by the outbound log's newest ``via``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from spark_wan.errors import LogGapError, resend_advice
from spark_wan.state.decisions import NEW_LOG
from spark_wan.wire.manifest import EVENTS, Manifest
from spark_wan.wire.records import EpochRef


def reference(manifest: Manifest) -> EpochRef:
    """Return what the next site's log says of an epoch that was forwarded."""
    return EpochRef(manifest.stream, manifest.log_id, manifest.epoch, manifest.fingerprint)


@dataclass(frozen=True)
class ForwardPlanner:
    """Plans what is forwarded of one inbound stream. Every error is a LogGapError, which holds the
    forwarding of that stream."""

    stream: str
    """The inbound stream."""
    read: Callable[[int], Manifest]
    accepts: Callable[[str], bool] = lambda log_id: False
    """Whether the user has accepted the log with an ID in place of an earlier one."""
    peek: Callable[[int], Manifest] | None = None
    """Reads the manifest of an epoch of which nothing is forwarded, whoever has signed it."""

    def after(self, via: EpochRef, epochs: Sequence[int]) -> Sequence[int]:
        """Return those of ``epochs`` that follow ``via``, the last one that was forwarded.

        ``epochs``: ascending, without gaps, all that lead to the log's end; at least one.
        """
        newest = (self.peek or self.read)(epochs[-1])
        if newest.log_id != via.log_id:
            # Rows of a table are numbered by its versions: whoever gets them sees what is missing.
            if newest.kind == EVENTS and not self.accepts(newest.log_id):
                raise LogGapError(
                    f"{self.stream}: its log is {newest.log_id}; the log {via.log_id} was "
                    f"forwarded through epoch {via.epoch}. The channel was deleted, or the stream "
                    "was started over: what was not forwarded of the earlier log may be lost. "
                    "Restore the earlier log; or accept the new one with `spark-wan receive "
                    f"--decide {newest.table}@{newest.log_id}={NEW_LOG}`."
                )
            return epochs
        if newest.epoch < via.epoch:
            raise LogGapError(
                f"{self.stream}: the log ends at manifest {newest.epoch}, but it was forwarded "
                f"through {via.epoch}: the channel was restored to an older state. Restore the "
                "channel's log."
            )
        if newest.epoch == via.epoch and newest.fingerprint != via.fingerprint:
            raise self._rewritten(newest)
        if epochs[0] > via.epoch + 1:
            raise LogGapError(
                f"{self.stream}: the log begins at manifest {epochs[0]}, but it was forwarded only "
                f"through {via.epoch}: those between were deleted. Restore them in the channel; or "
                f"{resend_advice(newest.kind == EVENTS)}."
            )
        return [epoch for epoch in epochs if epoch > via.epoch]

    def next(self, epoch: int, before: EpochRef | None) -> Manifest:
        """Return the manifest of an epoch, which follows the one ``before`` (None: the first)."""
        manifest = self.read(epoch)
        follows = before is None or before.log_id != manifest.log_id
        if not follows and before is not None and manifest.previous != before.fingerprint:
            raise self._rewritten(manifest)
        return manifest

    def _rewritten(self, manifest: Manifest) -> LogGapError:
        return LogGapError(
            f"{self.stream}: manifest {manifest.epoch} is not the one that was forwarded, or does "
            "not follow it: the log was rewritten. Restore the channel's log; or, without a copy "
            f"of it, {resend_advice(manifest.kind == EVENTS)}."
        )
