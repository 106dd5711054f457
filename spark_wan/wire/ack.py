"""Acks: how far a site has applied a stream. ``acks/<stream>/<site>.json`` in the channel.

A JSON object:

================  ==============  =============================================================
``version``       int             2
``site``          string          the site that acks
``stream``        string          the stream that it acks
``log_id``        string          the log that ``applied`` counts for
``applied``       int             through this epoch everything is applied, and forwarded if this
                                  site forwards the stream; 0: nothing is
``held``          int or null     the epoch at which the site holds the stream
``cause``         string or null  why it is held
``dead_letters``  int             events of the stream that the site could not apply, and keeps
                                  with their causes in its ledger
``ahead``         int             epochs above ``applied`` that are in the site's table already, and
                                  wait to be forwarded; absent: 0
================  ==============  =============================================================

Version 1 has ``incarnation`` for ``log_id``. An ack is cumulative, and replaces the one before it.
Unknown fields are ignored, unless ``requires`` lists them (:mod:`spark_wan.wire.records`).
"""

from __future__ import annotations

from dataclasses import dataclass

from spark_wan.errors import NewerRecordError
from spark_wan.wire.records import read_record, write_record


@dataclass(frozen=True)
class Ack:
    """A site's answer for one stream, with the fields of the format."""

    site: str
    stream: str
    log_id: str
    applied: int
    held: int | None = None
    cause: str | None = None
    dead_letters: int = 0
    ahead: int = 0

    @property
    def in_table(self) -> int:
        """Through this epoch everything is in the site's table."""
        return self.applied + self.ahead

    def encode(self) -> bytes:
        return write_record(self, ahead=0)

    @classmethod
    def decode(cls, data: bytes) -> Ack | None:
        """Return the ack in ``data``, or None when it cannot be read. Raises NewerRecordError.

        An unreadable ack is no ack: the sender announces the epoch again.
        """
        ack = read_record(cls, data)
        if ack is None or type(ack.applied) is not int or type(ack.ahead) is not int:
            return None
        return ack

    @classmethod
    def of(cls, data: bytes, site: str, stream: str) -> Ack | None:
        """Return the ack of ``site`` for ``stream`` in ``data``; None when it is none.

        An ack of a newer spark_wan is one for no log, with its cause: it acks nothing, and the
        status shows why.
        """
        try:
            ack = cls.decode(data)
        except NewerRecordError as error:
            cause = (
                f"the ack of site {site} was {error}. It counts as none: nothing is trimmed, and "
                "epochs are announced again. Update spark_wan at the sender's site."
            )
            return cls(site, stream, log_id="", applied=0, held=0, cause=cause)
        return ack if ack is not None and (ack.site, ack.stream) == (site, stream) else None
