"""Acks: what a site has applied of a stream."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from spark_wan.wire.records import UNREADABLE, known_fields, upgraded

ACK_VERSION = 2


@dataclass(frozen=True)
class Ack:
    """A site's answer, cumulative per stream: applied up to ``applied``, held at ``held`` because of ``cause``.

    ``applied`` counts for ``log_id`` only. ``dead_letters`` is how many of the stream's events this site could not
    apply and keeps, with their causes, in its ledger.
    """

    site: str
    stream: str
    log_id: str
    applied: int
    held: int | None = None
    cause: str | None = None
    dead_letters: int = 0

    def encode(self) -> bytes:
        return json.dumps({"version": ACK_VERSION, **asdict(self)}, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes) -> Ack | None:
        """None for what is no ack of version 1 or 2: an answer that cannot be read is no answer, and asked for again."""
        try:
            fields = json.loads(data)
            if fields.pop("version") not in (1, ACK_VERSION):
                return None
            ack = cls(**known_fields(cls, upgraded(fields)))
        except UNREADABLE:
            return None
        return ack if type(ack.applied) is int else None
