"""Refused events: which events of a stream a site could not apply, told to the sender.
``refused/<stream>/<site>.json`` in the channel.

A JSON object:

=============  ===============  ===================================================================
``version``    int              2
``site``       string           the site that could not apply them
``stream``     string           the stream
``open``       int              dead letters of the stream about which nothing was done yet, at
                                least: those in ``events``, and older ones
``events``     list of objects  the newest of them, the newest first (see below)
``written``    int              when this record was written, by the site's clock, in milliseconds
                                since 1970 UTC
``signature``  object           by the site (:mod:`spark_wan.wire.signature`); absent: it has no
                                keys
=============  ===============  ===================================================================

An event has fields of the dead letter in the site's ledger (:mod:`spark_wan.wire.ledger`):
``event_id``, ``origin_version``, ``operation``, ``key``, ``cause``, ``row`` and ``at``. ``row`` is
null where it is long: then only the ledger has it.

The site writes the record before the ack that counts its newest event. The ledger is what counts:
the record is a report for people at the sender's site, and may be lost. Unknown fields are ignored,
unless ``requires`` lists them (:mod:`spark_wan.wire.records`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from spark_wan.errors import SigningKeyError, UntrustedError
from spark_wan.wire.ledger import DeadLetter
from spark_wan.wire.names import printable
from spark_wan.wire.records import VERSION, is_time, read_record, written_fields
from spark_wan.wire.signature import KeyReference, Signature, Signer, is_signed_with

MOST_EVENTS = 50
MOST_BYTES = 64 * 1024
"""Size of a record, at most. Those of all streams and sites of a channel on Kafka are in memory."""
MOST_CHARACTERS = 4_000
"""Length of a row, at most, and of a key and a cause, which are cut."""

_KIND = "refused"


@dataclass(frozen=True)
class RefusedEvent:
    """An event that a site could not apply, with the fields of the format."""

    event_id: str
    origin_version: int
    operation: str
    key: str | None
    cause: str
    row: str | None
    at: int | None = None

    @classmethod
    def of(cls, letter: DeadLetter) -> RefusedEvent:
        return cls(
            letter.event_id,
            letter.origin_version,
            operation=letter.operation,
            key=None if letter.key is None else _cut(letter.key),
            cause=_cut(letter.cause),
            row=letter.row if len(letter.row) <= MOST_CHARACTERS else None,
            at=letter.at,
        )

    def printable(self) -> RefusedEvent:
        """Return the event with texts that a terminal may show."""
        return replace(
            self,
            event_id=printable(self.event_id),
            operation=printable(self.operation),
            key=None if self.key is None else printable(self.key),
            cause=printable(self.cause),
            row=None if self.row is None else printable(self.row),
        )


def _cut(text: str) -> str:
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]} …"


@dataclass(frozen=True)
class RefusedEvents:
    """What a site could not apply of a stream, with the fields of the format."""

    site: str
    stream: str
    open: int
    events: tuple[RefusedEvent, ...]
    written: int
    signature: Signature | None = field(default=None, compare=False)

    @classmethod
    def of_letters(
        cls, site: str, stream: str, letters: Sequence[DeadLetter], written: int
    ) -> RefusedEvents:
        """Return the record of open dead letters, the newest first: of as many as fit."""
        events = tuple(map(RefusedEvent.of, letters[:MOST_EVENTS]))
        record = cls(site, stream, len(letters), events, written)
        while len(record.encode()) > MOST_BYTES:
            record = replace(record, events=record.events[: len(record.events) // 2])
        return record

    def encode(self) -> bytes:
        content = {"version": VERSION, **written_fields(self, signature=None)}
        return json.dumps(content, separators=(",", ":")).encode()

    def signed_by(self, signer: Signer) -> RefusedEvents:
        """Return the record with a signature. Raises SigningKeyError."""
        record = json.loads(replace(self, signature=None).encode())
        return replace(self, signature=signer.sign(_KIND, record))

    @classmethod
    def of(
        cls, data: bytes, stream: str, site: str, keys: Sequence[KeyReference] = ()
    ) -> RefusedEvents | None:
        """Return the record of ``site`` for ``stream`` in ``data``; None when it cannot be read, as
        if it were lost. Raises NewerRecordError, and UntrustedError for one that is not signed with
        one of ``keys``, if there are any."""
        record = read_record(cls, data)
        if record is None or (record.stream, record.site) != (stream, site):
            return None
        if record.open < len(record.events) or not is_time(record.written):
            return None
        if not all(is_time(each.at) for each in record.events):
            return None
        if keys:
            record._check_signed(data, keys)
        return replace(record, events=tuple(each.printable() for each in record.events))

    def _check_signed(self, data: bytes, keys: Sequence[KeyReference]) -> None:
        where = f"what site {self.site} says that it could not apply of {self.stream}"
        if self.signature is None or self.signature.site != self.site:
            wrong: str | None = "it is not signed by that site"
        else:
            try:
                wrong = is_signed_with(_KIND, json.loads(data), self.signature, keys)
            except SigningKeyError as error:
                wrong = f"its signature cannot be checked: {error.args[0].rstrip('.')}"
        if wrong is not None:
            raise UntrustedError(
                f"{where} is not shown: {wrong}. Check that its receiver runs with the same "
                "topology and keys, and who else may write to the channel."
            )
