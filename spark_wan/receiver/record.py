"""Keeps the receiver's record of a stream in the channel: on change, sparingly, and once an hour.

The acks say how far the site is and what holds it, so nothing here is urgent. What the channel
refuses is written later: the record is a report (:mod:`spark_wan.wire.receiver_record`), and no
reason to stop applying.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from spark_wan.channels.base import Channel
from spark_wan.errors import WanError
from spark_wan.log.notes import put_receiver_record, receiver_record
from spark_wan.messages import Refusals, message_log
from spark_wan.runtime.progress import LONG, long_work
from spark_wan.sender.record import NEXT_WITHIN, RECORD_INTERVAL, REFUSED_INTERVAL
from spark_wan.wire.receiver_record import ReceiverRecord
from spark_wan.wire.records import LongWork

log = message_log(__name__)

COUNTED = ("epochs", "events", "duplicates", "dead_letters", "local_commits")
"""The counters in a record, called as in the status of a stream. A change of them is written; what
was not applied, by reason, goes with them."""


@dataclass
class ReceiverRecordKeeper:
    """Keeps the record of one stream of a running receiver."""

    channel: Channel
    stream: str
    site: str
    clock: Callable[[], int]
    """Milliseconds since 1970 UTC."""
    _record: ReceiverRecord = field(init=False)
    """As it was last written here."""
    _next_at: int = field(init=False)
    """When the next record may be written."""
    _written: bool = False
    """Whether there is one."""
    _refused: Refusals = field(default_factory=Refusals)
    """Whether the channel has refused the last one."""

    def __post_init__(self) -> None:
        began = self.clock()
        self._record = ReceiverRecord(self.site, self.stream, began, began)
        self._next_at = began + RECORD_INTERVAL

    def is_due(self, counters: Mapping[str, Any]) -> bool:
        """Whether :meth:`keep` has something to write, and it is time. Costs no request.

        ``counters``: those of :data:`COUNTED`, and what goes with them."""
        now = self.clock()
        if 0 < self._next_at - now <= REFUSED_INTERVAL:
            return False
        work = self._work(now)
        within = NEXT_WITHIN if work is None else LONG * 1000
        is_old = not self._written or now >= self._record.written + within
        return is_old or self._changed(counters, work)

    def keep(self, counters: Mapping[str, Any], last: bool = False) -> None:
        """Write what there is to say of the stream. ``last``: the receiver ends by itself."""
        now = self.clock()
        within, fields = 0 if last else NEXT_WITHIN, dict[str, Any](counters)
        fields["work"] = self._work(now)
        record = replace(self._record, **fields, next_within=within, written=now)
        try:
            put_receiver_record(self.channel, record)
        except WanError as error:
            log.log(
                self._refused.level(),
                "%s: the receiver's record is not written: %s",
                self.stream,
                error,
                event="record-not-written",
                stream=self.stream,
                cause=str(error),
            )
            self._next_at = now + REFUSED_INTERVAL
            return
        self._refused.end()
        self._record, self._written = record, True
        self._next_at = now + RECORD_INTERVAL

    def stop(self, is_late: Callable[[], bool] = lambda: False) -> None:
        """Write that the receiver was stopped, unless another one has written the record since, or
        it is too late: one that is started now may write it."""
        if not self._written:
            return
        now, mine = self.clock(), self._record
        try:
            there = receiver_record(self.channel, self.stream, self.site)
            is_mine = there is not None and (
                (there.began, there.written) == (mine.began, mine.written)
            )
            if is_mine and not is_late():
                record = replace(mine, work=None, stopped=now, next_within=0, written=now)
                put_receiver_record(self.channel, record)
        except WanError as error:
            log.debug("%s: the receiver's record is not written: %s", self.stream, error)

    def _work(self, now: int) -> LongWork | None:
        return long_work("applying", self.stream, self.site, now)

    def _changed(self, counters: Mapping[str, Any], work: LongWork | None) -> bool:
        record = self._record
        return work != record.work or any(
            getattr(record, name) != counters[name] for name in COUNTED
        )
