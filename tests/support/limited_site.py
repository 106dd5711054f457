"""A site that publishes a table of which only so much may wait, for unit tests."""

from __future__ import annotations

from typing import Any

from fakes import ack
from publishing import Site

from spark_wan.errors import QueueFullError
from spark_wan.sender.acks import AckManager, StreamState
from spark_wan.sender.queue import OutboundQueue
from spark_wan.steps import run
from spark_wan.topology.ack_policy import AckPolicy
from spark_wan.topology.model import QueueLimits
from spark_wan.wire.manifest import Manifest

ACK_TIMEOUT = 60_000
"""Milliseconds."""


class LimitedSite(Site):
    """A site that publishes a table of which only so much may wait."""

    def __init__(self, limits: QueueLimits, *sites: str, **settings: Any) -> None:
        self.limits = limits
        super().__init__(addressees=sites or ("seattle",), max_epoch_rows=1, **settings)

    def new(self, **settings: Any) -> Any:
        self.acks = AckManager(
            self.log,
            self.checkpoints,
            AckPolicy.ALL,
            ACK_TIMEOUT,
            self.clock,
            settings.get("addressees", self.settings.addressees),
        )
        publisher = super().new(**settings)
        publisher.queue = OutboundQueue(self.acks, self.limits)
        return publisher

    def commits(self, number: int) -> None:
        for _ in range(number):
            self.source.add()

    def collect(self) -> StreamState:
        return run(self.acks.round())

    def ack(self, site: str, applied: int) -> None:
        newest = self.log.newest_manifest()
        assert newest is not None
        ack(self.log, site, applied, newest.log_id)

    def size(self) -> int:
        """The size of what the channel has."""
        return sum(self.log.read(epoch).bytes for epoch in self.log.epochs())

    def published(self) -> Manifest:
        """Publish the next epoch; where sites are to be dropped for it, once the queue was full for
        so long that they could have acked."""
        try:
            return super().published()
        except QueueFullError:
            if self.limits.policy != "drop_reader":
                raise
            self.clock.pass_seconds(ACK_TIMEOUT / 1000)
            return super().published()

    def is_full(self) -> bool:
        try:
            self.round()
        except QueueFullError:
            return True
        return False


def one_epoch() -> int:
    """Return the size of an epoch of one commit."""
    return LimitedSite(QueueLimits()).published().bytes
