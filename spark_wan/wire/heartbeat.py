"""Heartbeats: that a job is there. ``heartbeats/<sender>/<site>.json`` in the channel: of the job
that captures for a sender, by the sender's own site, and of a site's receiver, for each sender that
it receives from. A receiver that forwards has one for each sender that it forwards through, too,
``heartbeats/<sender>~/<site>.json``: the sender of the site may be another job.

A JSON object. Times are by the job's clock, in milliseconds since 1970 UTC:

===========  ===========  =========================================================================
``version``  int          2
``sender``   string       name of the sender in the topology; of a job that forwards with ``~``
``site``     string       the site of the job
``began``    int          when the job began
``every``    int          the next heartbeat comes within so many milliseconds; 0: or never, as of a
                          run with ``--available-now``
``stopped``  int or null  when the job was stopped; null: it was not, or could not say so
``written``  int          when this record was written
===========  ===========  =========================================================================

A report for people and scripts, so it may be lost, old, or written by two jobs in turn. Nothing is
decided by it, and it is not signed. Unknown fields are ignored, unless ``requires`` lists them
(:mod:`spark_wan.wire.records`).
"""

from __future__ import annotations

from dataclasses import dataclass

from spark_wan.wire.records import is_time, read_record, write_record

MISSED = 3
"""A job that has missed so many heartbeats is silent."""


def forwarding(sender: str) -> str:
    """Return the name in heartbeats of a job that forwards through a sender."""
    return f"{sender}~"


@dataclass(frozen=True)
class Heartbeat:
    """That a job is there, with the fields of the format."""

    sender: str
    site: str
    began: int
    every: int
    written: int
    stopped: int | None = None

    def is_silent(self, now: int) -> bool:
        """Whether the job was to write another one, and has not."""
        late = now - self.written > MISSED * self.every
        return self.every > 0 and self.stopped is None and late

    def encode(self) -> bytes:
        return write_record(self)

    @classmethod
    def of(cls, data: bytes, sender: str, site: str) -> Heartbeat | None:
        """Return the heartbeat of a job in ``data``; None when it cannot be read, as if it were
        lost. Raises NewerRecordError."""
        record = read_record(cls, data)
        if record is None or (record.sender, record.site) != (sender, site):
            return None
        times = all(map(is_time, (record.began, record.written, record.stopped)))
        return record if times and record.every >= 0 else None
