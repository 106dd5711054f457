"""Keeps the sender's record of a stream in the channel: on change only, and sparingly.

A hold and its release are written at once. Mere counters are written every few seconds while they
change, so the last few seconds of a sender that is killed are missing. What was not sent, by
reason, is written with the next record that is written anyway. A stream where nothing
happens costs a request an hour: without it, nobody could tell a sender that was killed. What the
channel refuses is written later: the record is a report (:mod:`spark_wan.wire.sender_record`), and
no reason to stop sending.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from spark_wan.channels.base import Channel
from spark_wan.errors import QueueFullError, WanError, may_pass
from spark_wan.log.notes import put_sender_record, sender_record
from spark_wan.messages import Refusals, message_log
from spark_wan.runtime.progress import LONG
from spark_wan.wire.manifest import Manifest
from spark_wan.wire.records import LongWork
from spark_wan.wire.sender_record import NotSent, SenderRecord

log = message_log(__name__)

RECORD_INTERVAL = 5_000
"""Milliseconds between two records of a stream of which only counters differ."""
REFUSED_INTERVAL = 60_000
"""Milliseconds until a record is tried again that could not be read or written."""
NEXT_WITHIN = 3_600_000
"""Milliseconds after which a record is written again though nothing has happened."""
IN_PASSING = "history_from", "not_sent"
"""What moves though nothing is published, and waits for the next record: so a source that is quiet,
or has nothing to send, costs no more than one that rests."""
_HOLD = ("held", "passes", "not_served", "alert")
"""What a sender knows of a stream that a sink publishes."""


@dataclass
class SenderRecordKeeper:
    """Keeps the record of one stream of a running sender."""

    channel: Channel
    stream: str
    settings: str
    """Fingerprint of the settings with which the sender began."""
    clock: Callable[[], int]
    """Milliseconds since 1970 UTC."""
    by_sink: bool = False
    """A sink publishes the stream and keeps the record; this sender adds what holds it."""
    _record: SenderRecord | None = None
    """As it was last written here. None: not yet."""
    _told: dict[str, Any] | None = None
    """What was passed to :meth:`keep` when the record was written, or compared, last."""
    _expected: tuple[int, dict[str, Any]] | None = None
    """What is to be written while work is under way, and when."""
    _next_at: int = 0
    """When the next record may be written, unless it is urgent."""
    _refused: Refusals = field(default_factory=Refusals)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._began = self.clock()
        self._alive_at = self._began + RECORD_INTERVAL
        """When the record is to say that the sender is there, if nothing else is written."""

    def keep(self, last: bool = False, **fields: Any) -> float | None:
        """Write the record if ``fields`` (of :class:`SenderRecord`) are news and it is time.

        ``last``: there is no other call, so it is time. Returns the seconds until it is time to
        write what was left out; None when nothing was.
        """
        with self._lock:
            self._expected = None
            told = fields
            if self.by_sink:
                # The sink has written the record anew with each epoch.
                told = {name: fields[name] for name in (*_HOLD, "epoch") if name in fields}
                fields = {name: fields[name] for name in _HOLD if name in fields}
            else:
                told = fields = {**fields, "next_within": 0 if last else NEXT_WITHIN}
            if not self._is_news(told):
                self._told = told
                return None
            now = self.clock()
            wait = self._next_at - now
            if 0 < wait <= REFUSED_INTERVAL and not last and not self._is_urgent(fields):
                return wait / 1000
            try:
                self._write(fields, now)
            except WanError as error:
                _log_refused(self.stream, error, self._refused.level())
                self._next_at = now + REFUSED_INTERVAL
                return REFUSED_INTERVAL / 1000
            self._told = told
            self._refused.end()
            return None

    def expect(self, **fields: Any) -> None:
        """Take note of ``fields`` when work begins, which are to be written if it takes long."""
        with self._lock:
            fields = {**fields, "next_within": NEXT_WITHIN}
            if not self.by_sink and self._is_news(fields):
                self._expected = max(self._next_at, self.clock() + RECORD_INTERVAL), fields

    def report(self, work: LongWork | None) -> None:
        """Have :meth:`keep_alive` write how far the capture under way is, if it takes long: when
        that is news, and again and again. Without such work, no lock is waited for."""
        if work is None or self.by_sink:
            return
        with self._lock:
            if self._expected is not None:
                at, told = self._expected
            elif self._told is not None:
                at, told = self._next_at, self._told
            else:
                return
            written = self._record.written if self._record is not None else 0
            if told.get("work") != work or self.clock() - written >= LONG * 1000:
                self._expected = at, {**told, "work": work}

    @property
    def last(self) -> SenderRecord | None:
        """The record as it was last written here; None: not yet."""
        return self._record

    def _is_news(self, told: Mapping[str, Any]) -> bool:
        """Whether to write a record for this."""
        return self._told is None or _news(told) != _news(self._told)

    def _is_urgent(self, fields: dict[str, Any]) -> bool:
        """Whether the stream is held or released since the last record, or waits for room."""
        told = self._told
        if self._refused or told is None:
            return False
        return any(
            (fields.get(name) is None) != (told.get(name) is None)
            for name in ("held", "queue_full")
        )

    def is_due(self) -> bool:
        """Whether :meth:`keep_alive` would write something."""
        if self.by_sink:
            return False
        expected, now = self._expected, self.clock()
        return now >= self._alive_at or (expected is not None and now >= expected[0])

    def keep_alive(self) -> None:
        """Write the record if none was written for :data:`NEXT_WITHIN`, or since work has begun.
        Any thread may: a capture may take longer than that."""
        if not self._lock.acquire(blocking=False):
            return  # it is being written
        try:
            if not self.is_due():
                return
            now = self.clock()
            expected = self._expected[1] if self._expected is not None else None
            fields = self._told if expected is None else expected
            try:
                if fields is None:
                    self._take_over(now)
                else:
                    self._write(fields, now)
            except WanError as error:
                log.debug("%s: the sender's record is not written: %s", self.stream, error)
                self._alive_at = now + REFUSED_INTERVAL
                if expected is not None:
                    self._expected = now + REFUSED_INTERVAL, expected
                return
            self._told, self._expected = fields, None
        finally:
            self._lock.release()

    def stop(self, is_late: Callable[[], bool] = lambda: False) -> None:
        """Write that the sender was stopped, unless another one has written the record since, or it
        is too late: one that is started now may write it."""
        with self._lock:
            if self.by_sink or self._record is None:
                return
            now, mine = self.clock(), self._record
            try:
                there = sender_record(self.channel, self.stream)
                is_mine = there is not None and (
                    (there.began, there.written) == (mine.began, mine.written)
                )
                if is_mine and not is_late():
                    told = self._told or {}
                    passing = {name: told[name] for name in IN_PASSING if name in told}
                    last = replace(mine, **passing, work=None, stopped=now, next_within=0)
                    self._put(replace(last, written=now))
            except WanError as error:
                log.debug("%s: the sender's record is not written: %s", self.stream, error)

    def _take_over(self, now: int) -> None:
        """Say that the sender is there, before it knows anything of the stream."""
        self._alive_at = now + NEXT_WITHIN
        there = sender_record(self.channel, self.stream)
        if there is not None:
            self._put(replace(there, work=None, stopped=None, next_within=NEXT_WITHIN, written=now))

    def _write(self, fields: dict[str, Any], now: int) -> None:
        before = self._record
        if before is None or self.by_sink:
            before = sender_record(self.channel, self.stream)
        if self.by_sink:
            known = before or SenderRecord(self.stream, self._began, now)
            if all(getattr(known, name) == value for name, value in fields.items()):
                self._next_at = now + RECORD_INTERVAL
                return
        else:
            fields = {"stopped": None, **fields, "began": self._began}
        settings = "" if self.by_sink else self.settings
        self._put(following(before, self.stream, now=now, settings=settings, fields=fields))

    def _put(self, record: SenderRecord) -> None:
        put_sender_record(self.channel, record)
        self._record = record
        self._next_at = record.written + RECORD_INTERVAL
        self._alive_at = record.written + NEXT_WITHIN


def _news(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the fields that are written once they change."""
    return {name: value for name, value in fields.items() if name not in IN_PASSING}


def record_write(
    channel: Channel,
    manifest: Manifest,
    settings: str,
    now: int,
    *,
    held: WanError | None,
    not_served: tuple[str, ...],
    alert: str | None,
) -> None:
    """Keep the record of a user stream, once its sink has appended ``manifest``, or found that an
    earlier attempt has. ``held``: why the acks could not be collected.

    Once per write: no process of the sink lives on that could write later. Logs what the channel
    refuses.
    """
    stream = manifest.stream
    try:
        before = sender_record(channel, stream)
        counted = before or SenderRecord(stream, now, now)
        fields: dict[str, Any] = {"not_served": not_served, "alert": alert}
        fields |= {"held": None, "passes": False}
        if held is not None:
            fields |= {"held": str(held), "passes": may_pass(held)}
        fields |= {"queue_full": None, "queue_full_since": None}
        if (counted.log_id, counted.epoch) != (manifest.log_id, manifest.epoch):
            fields |= {
                "log_id": manifest.log_id,
                "epoch": manifest.epoch,
                "epochs": counted.epochs + 1,
                "events": counted.events + manifest.rows,
                "batches": counted.batches + len(manifest.frames),
                "bytes": counted.bytes + manifest.bytes,
            }
        else:
            fields["not_sent"] = counted.not_sent + NotSent(replays=1)
        put_sender_record(
            channel, following(before, stream, now=now, settings=settings, fields=fields)
        )
    except WanError as error:
        _log_refused(stream, error)


def record_wait(
    channel: Channel, stream: str, settings: str, now: int, full: QueueFullError
) -> None:
    """Keep the record of a user stream while its sink waits for acks. Logs what the channel
    refuses."""
    try:
        before = sender_record(channel, stream)
        held, since = (before.held, before.queue_full_since) if before is not None else (None, None)
        fields = {"held": held, "queue_full": str(full), "queue_full_since": since or now}
        put_sender_record(
            channel, following(before, stream, now=now, settings=settings, fields=fields)
        )
    except WanError as error:
        _log_refused(stream, error)


def _log_refused(stream: str, error: WanError, level: int = logging.WARNING) -> None:
    log.log(
        level,
        "%s: the sender's record is not written: %s",
        stream,
        error,
        event="record-not-written",
        stream=stream,
        cause=str(error),
    )


def following(
    before: SenderRecord | None, stream: str, *, now: int, settings: str, fields: dict[str, Any]
) -> SenderRecord:
    """Return the record after ``before`` with ``fields`` changed. ``settings``: those with which
    its writer began; empty: unknown."""
    record = before or SenderRecord(stream, began=now, written=now, settings=settings)
    if settings and record.settings != settings:
        generation = record.settings_generation + 1 if record.settings else 1
        record = replace(record, settings=settings, settings_generation=generation)
    since = None
    if fields["held"] is not None:
        same = record.held is not None and fields.get("passes", record.passes) == record.passes
        since = record.held_since if same else now
    return replace(record, **fields, held_since=since, written=now)
