"""Says that a source may soon lose the history of what a sender has not published."""

from __future__ import annotations

from dataclasses import dataclass

from spark_wan.delta.commits import warn_below
from spark_wan.messages import message_log
from spark_wan.sender.publish import Publisher
from spark_wan.units import format_duration
from spark_wan.wire.sender_record import SenderRecord

log = message_log(__name__)

READ_INTERVAL = 3_600_000
"""Milliseconds after which the retention of a table is read again, while a warning depends on
it."""


@dataclass
class HistoryWatch:
    """Warns, once each time, that a stream has stood still for so long that VACUUM or log cleanup
    will soon take what is not published."""

    publisher: Publisher
    stream: str
    table: str
    _told: bool = False
    """Whether it was warned since the stream went on last."""
    _read_at: int | None = None
    """When the retention was read last here, by the clock of the publisher."""

    def look(self, record: SenderRecord | None) -> None:
        """Warn if it is time. To be called while nothing is captured. ``record``: of the stream,
        with what an earlier sender knew."""
        left = self._left(record)
        if left is not None and not self._is_soon(left, record):
            self._told = False
            return
        if self._must_read():
            # The retention may have been raised since: that is what the warning asks for.
            self.publisher.read_retention(afresh=True)
            left = self._left(record)
        if left is None or not self._is_soon(left, record) or self._told:
            return
        self._told = True
        log.warning(
            "%s: %s",
            self.stream,
            f"the source keeps what is not published for {format_duration(left)} more, then VACUUM "
            "and log cleanup may take it"
            if left > 0
            else "VACUUM and log cleanup may have taken what is not published",
            event="history-ends",
            stream=self.stream,
            table=self.table,
            left_ms=max(0, left),
            what_to_do="Have the stream go on, or raise the table's "
            "delta.deletedFileRetentionDuration and delta.logRetentionDuration.",
        )

    def went_on(self) -> None:
        """Note that the stream does not stand still."""
        self._told = False

    def _retention(self, record: SenderRecord | None) -> int | None:
        known = record.retention if record is not None else None
        return known if self.publisher.retention is None else self.publisher.retention

    def _left(self, record: SenderRecord | None) -> int | None:
        """Return for how long the history lasts still, in milliseconds; None: not known."""
        since, retention = self.publisher.unpublished_since, self._retention(record)
        if since is None and record is not None:
            since = record.history_from
        if since is None or retention is None:
            return None
        return since + retention - self.publisher.clock()

    def _is_soon(self, left: int, record: SenderRecord | None) -> bool:
        return left < warn_below(self._retention(record) or 0) or left <= 0

    def _must_read(self) -> bool:
        now = self.publisher.clock()
        if self._read_at is not None and now - self._read_at < READ_INTERVAL:
            return False
        self._read_at = now
        return True
