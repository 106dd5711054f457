"""The requests of a site for copies: a site that does not answer is passed over."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from spark_wan.channels.base import Version
from spark_wan.errors import ChannelError, WanError
from spark_wan.messages import message_log
from spark_wan.runtime.scheduler import Activity, Next, Turn
from spark_wan.sync.automatic import Synchronizer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = message_log(__name__)

INTERVAL = 10.0
"""Longest wait, in seconds, between looks at open requests."""


@dataclass(eq=False)
class OpenRequests(Activity):
    """Looks after the requests of a site that have not ended."""

    synchronizers: Mapping[str, Synchronizer]
    """Those of all tables of which copies may come, by the copies' stream."""
    acks: Callable[[], Mapping[str, Version | None]]
    """Returns the version of this site's ack of each stream, as it was listed last."""
    timeout: float
    """The site's ``sync_timeout``."""
    _ended: dict[str, Version | None] = field(default_factory=dict)
    """Stream of copies -> the version of its ack, when no request was open."""

    def __post_init__(self) -> None:
        self.name = "requests for copies"

    def look(self, spark: SparkSession) -> Turn:
        """Look at the requests whose acks have changed, and at those that were open before."""
        acks = self.acks()
        for stream, synchronizer in self.synchronizers.items():
            if stream not in acks or self._ended.get(stream, ()) == acks[stream]:
                continue
            try:
                is_open = synchronizer.pass_over(stream)
            except ChannelError as error:
                log.debug("%s: %s", stream, error)  # its channel says so
            except WanError as error:
                log.warning(
                    "%s: %s",
                    stream,
                    error,
                    event="request-unreadable",
                    stream=stream,
                    cause=str(error),
                )
            else:
                if not is_open:
                    self._ended[stream] = acks[stream]
        return Next(min(INTERVAL, self.timeout / 2))
