"""Says in a channel that a job is there: every 90 s for each sender, whatever the number of
streams (:mod:`spark_wan.wire.heartbeat`)."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from spark_wan.channels.base import Channel
from spark_wan.errors import WanError
from spark_wan.log.notes import heartbeat, put_heartbeat
from spark_wan.messages import Refusals, message_log
from spark_wan.wire.heartbeat import Heartbeat

log = message_log(__name__)

EVERY = 90_000
"""Milliseconds between heartbeats."""


@dataclass
class Heart:
    """The heartbeats of one job in one channel."""

    channel: Channel
    site: str
    clock: Callable[[], int]
    """Milliseconds since 1970 UTC."""
    senders: set[str]
    """Names of the senders that the job runs, or receives from, through the channel."""
    _began: int = field(init=False)
    _next_at: int = field(init=False)
    _written: dict[str, Heartbeat] = field(default_factory=dict)
    _refused: Refusals = field(default_factory=Refusals)
    """Whether the channel has refused the last one."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._began = self._next_at = self.clock()

    def add(self, sender: str) -> None:
        """Say so for one more sender, at once."""
        with self._lock:
            if sender not in self.senders:
                self.senders.add(sender)
                self._next_at = self.clock()

    def left(self) -> float:
        """Return the seconds until the next heartbeat is due."""
        if not self.senders:
            return math.inf
        return min(EVERY, max(0, self._next_at - self.clock())) / 1000

    def beat(self, every: int = EVERY) -> None:
        """Write a heartbeat for each sender, if it is time. ``every``: 0 for a job that ends by
        itself."""
        with self._lock:
            now = self.clock()
            if 0 < self._next_at - now <= EVERY:
                return
            self._next_at, refused = now + EVERY, None
            for sender in sorted(self.senders):
                record = Heartbeat(sender, self.site, self._began, every, now)
                try:
                    put_heartbeat(self.channel, record)
                    self._written[sender] = record
                except WanError as error:
                    refused = error
            if refused is None:
                self._refused.end()
            else:
                log.log(
                    self._refused.level(),
                    "%s: the heartbeat is not written: %s",
                    self.channel.url,
                    refused,
                    event="heartbeat-refused",
                    channel=self.channel.url,
                    cause=str(refused),
                    what_to_do="Let this job write heartbeats/ in the channel. It goes on without.",
                )

    def stop(self, is_late: Callable[[], bool] = lambda: False) -> None:
        """Write that the job was stopped, unless another one has written since, or it is too late:
        one that is started now may write."""
        with self._lock:
            try:
                for sender, mine in self._written.items():
                    there = heartbeat(self.channel, sender, self.site)
                    if there == mine and not is_late():
                        now = self.clock()
                        put_heartbeat(self.channel, replace(mine, stopped=now, written=now))
            except WanError as error:
                log.debug("%s: the heartbeat is not written: %s", self.channel.url, error)
