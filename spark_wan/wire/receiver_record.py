"""Receivers' records: what a receiver says of one stream, beside the acks that say how far its site
is. ``receivers/<stream>/<site>.json`` in the channel.

A JSON object. Times are by the receiver's clock, in milliseconds since 1970 UTC:

=================  ==============  ================================================================
``version``        int             2
``site``           string          the receiver's site
``stream``         string          the stream
``began``          int             since when the counters count: the receiver's start
``epochs``         int             epochs that were applied
``events``         int             their events
``duplicates``     int             events that came again, and were dropped
``dead_letters``   int             events that could not be applied
``local_commits``  int             commits to the target that no receiver made, as far as the ledger
                                   knows
``work``           object or null  the apply under way, if it takes long, as in
                                   :mod:`senders' records <spark_wan.wire.sender_record>`; absent:
                                   none
``stopped``        int or null     when the receiver was stopped; null: it was not, or could not say
                                   so
``next_within``    int             the next record comes within so many milliseconds, even if
                                   nothing happens; 0: or never
``written``        int             when this record was written
``not_applied``    object          what was not applied since ``began``, by reason: the fields of
                                   :class:`NotApplied`; absent: nothing, or an earlier version does
                                   not say
=================  ==============  ================================================================

A report for people and scripts, so it may be lost, old, or written by two receivers in turn.
Nothing is decided by it, and it is not signed. Unknown fields are ignored, unless ``requires``
lists them (:mod:`spark_wan.wire.records`).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from spark_wan.wire.records import Counts, LongWork, is_time, read_record, write_record


@dataclass(frozen=True)
class NotApplied(Counts):
    """What a receiver has not applied, by reason, beside duplicates and dead letters. All are 0
    where the record does not have them."""

    superseded: int = 0
    """Events in whose place a later one of the same key was written, by the same apply."""
    covered: int = 0
    """Events that the table had already: from a copy, a backup or another log. Those of whole
    epochs count as duplicates, too."""
    uncounted: int = 0
    """Events of applies of which it is not known how many were superseded or covered."""
    elsewhere: int = 0
    """Epochs that are not for this site."""


@dataclass(frozen=True)
class ReceiverRecord:
    """What a receiver says of one stream, with the fields of the format."""

    site: str
    stream: str
    began: int
    written: int
    epochs: int = 0
    events: int = 0
    duplicates: int = 0
    dead_letters: int = 0
    local_commits: int = 0
    work: LongWork | None = None
    stopped: int | None = None
    next_within: int = 0
    not_applied: NotApplied = NotApplied()

    def encode(self) -> bytes:
        return write_record(self, work=None, not_applied=asdict(NotApplied()))

    @classmethod
    def of(cls, data: bytes, stream: str, site: str) -> ReceiverRecord | None:
        """Return the record of ``site`` for ``stream`` in ``data``; None when it cannot be read, as
        if it were lost. Raises NewerRecordError."""
        record = read_record(cls, data)
        if record is None or (record.stream, record.site) != (stream, site):
            return None
        return record if record._is_valid() else None

    def _is_valid(self) -> bool:
        counted = (self.epochs, self.events, self.duplicates, self.dead_letters)
        return (
            min(*counted, self.local_commits, self.next_within) >= 0
            and self.not_applied.is_valid
            and all(map(is_time, (self.began, self.written, self.stopped)))
            and (self.work is None or self.work.is_valid)
        )
