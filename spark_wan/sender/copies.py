"""The copies that sites ask for through one channel of a sender: served one after the other."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from spark_wan.delta.errors import error_text
from spark_wan.delta.sessions import CurrentSession, lost_session
from spark_wan.errors import ChannelError, StoppedError
from spark_wan.log.ack_watch import AckWatch
from spark_wan.runtime.scheduler import UNTIL_WOKEN, Activity, Found, Job, Lane, Next, Turn
from spark_wan.sender.serve import CopyServer
from spark_wan.steps import reached

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

RETRY = 10.0
"""Seconds until a copy that could not be served is tried again."""
TIDY_INTERVAL = 3600.0
"""Seconds until what earlier copies have left in the channel is looked for again."""


@dataclass(eq=False)
class OutboundCopies(Activity):
    """Serves the requests that the acks of a channel have. The channel's listing wakes it."""

    job: Job
    watch: AckWatch
    servers: Mapping[str, CopyServer]
    """By the name of the copies' stream."""
    session: CurrentSession
    """Of the sources of all servers."""
    available_now: bool
    """Serve what is asked for now, and end."""
    _seen: dict[str, tuple[object, float]] = field(default_factory=dict)
    """Stream -> how its acks looked when it was served, or had nothing to serve; and when."""
    _held: dict[str, tuple[str, float]] = field(default_factory=dict)
    """Stream -> why its copy could not be served, and when it is tried again."""

    def __post_init__(self) -> None:
        self.name = f"copies through {self.watch.channel.url}"

    def is_due(self) -> bool:
        """Whether acks of copies have changed since they were looked at, or that was long ago, or a
        copy is tried again."""
        return bool(self._due())

    def _due(self) -> list[str]:
        now = time.monotonic()
        return [
            name
            for name in sorted(self.servers.keys() & set(self.watch.streams()))
            if (name not in self._held or now >= self._held[name][1])
            and not self._is_done(name, now)
        ]

    def _is_done(self, name: str, now: float) -> bool:
        tag, at = self._seen.get(name, (None, 0.0))
        return self.watch.tag(name) == tag and now < at + TIDY_INTERVAL

    def look(self, spark: SparkSession) -> Turn:
        self.job.check_stopped()
        if self.available_now:
            try:
                self.watch.look()
            except ChannelError as error:
                log.debug("%s: %s", self.name, error)  # it holds the streams, which say so
                return None
        due = self._due()
        if due:
            return Found(partial(self._serve, due), Lane.LARGE)
        return None if self.available_now else UNTIL_WOKEN

    def _serve(self, due: list[str], spark: SparkSession) -> Turn:
        self.session.spark = spark
        for name in due:
            tag = self.watch.tag(name)
            try:
                for step in self.servers[name].round():
                    self.job.check_stopped()
                    reached(step)
                self._held.pop(name, None)
                self._seen[name] = tag, time.monotonic()
            except StoppedError:
                raise
            except Exception as error:
                lost = lost_session(spark)
                if lost is not None:
                    raise lost from error
                cause = error_text(error)
                if self._held.get(name, ("", 0.0))[0] != cause:
                    log.error("%s: the copy is not served: %s", name, cause)
                self._held[name] = cause, time.monotonic() + RETRY
        return None if self.available_now else Next(RETRY if self._held else 0.0)
