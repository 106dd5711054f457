"""Signs of life: that a sender or a receiver of a site runs, for the jobs that would run in its
place. ``alive/<kind of job>/<term, 20 digits>.json`` in the site's state. A job creates the entry
of a term only if it is absent, so each term has one job, and then renews its own.

A JSON object. Times are by the job's clock, in milliseconds since 1970 UTC, and for people only:

===========  ======  ==============================================================================
``version``  int     2
``job``      string  random ID of the job
``host``     string  name of its machine
``process``  int     its process ID there
``began``    int     when the job took the term
``every``    int     the job renews the sign within so many milliseconds
``at``       int     when this sign was written
``stopped``  bool    whether the job was stopped; one that was killed cannot say so
===========  ======  ==============================================================================

Whether a job is silent, others measure by their own clocks: by whether the object changes. Nothing
but who waits is decided by it (decision 62), so it may be lost, and it is not signed. Unknown
fields are ignored, unless ``requires`` lists them (:mod:`spark_wan.wire.records`).
"""

from __future__ import annotations

from dataclasses import dataclass

from spark_wan.errors import NewerRecordError
from spark_wan.wire.records import is_time, read_record, write_record


@dataclass(frozen=True)
class SignOfLife:
    """That a job runs, with the fields of the format."""

    job: str
    host: str
    process: int
    began: int
    every: int
    at: int
    stopped: bool = False

    def encode(self) -> bytes:
        return write_record(self)

    @classmethod
    def of(cls, data: bytes) -> SignOfLife | None:
        """Return the sign in ``data``; None when it cannot be read, or is of a newer spark_wan:
        then all that is known is whether it changes."""
        try:
            record = read_record(cls, data)
        except NewerRecordError:
            return None
        if record is None or record.every < 0:
            return None
        return record if is_time(record.began) and is_time(record.at) else None
