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
``since``         int             since when it is held, and ``passes`` is as it is, by the site's
                                  clock, in milliseconds since 1970 UTC; absent: it is not, or
                                  that is not known
``passes``        bool            the cause may pass though nobody does anything: the site retries;
                                  absent: false
``dead_letters``  int             events of the stream that the site could not apply, and keeps
                                  with their causes in its ledger
``ahead``         int             epochs above ``applied`` that are in the site's table already, and
                                  wait to be forwarded; absent: 0
``working``       int or null     the epoch that the site has begun to apply, if that may take
                                  long; absent: none
``needs``         object          why the site needs a copy of the table (see below); absent: it
                                  does not
``wanted``        object          in the log of a copy: the site asks for one (see below); absent:
                                  it does not, or has it
``signature``     object          by the site (:mod:`spark_wan.wire.signature`); absent: it has no
                                  keys
================  ==============  =============================================================

What a site needs:

=========  =============  =========================================================================
``why``    string         ``epochs``, ``source``, ``table``, ``columns`` or ``ledger``, see
                          :mod:`spark_wan.errors`; or what a later version adds
``least``  list of lists  what the copy has to have: (origin site, table ID, selection, version),
                          as the vector of a mark; empty: anything will do
``since``  int            by the site's clock, in milliseconds since 1970 UTC
=========  =============  =========================================================================

A request for a copy:

==============  =============  ====================================================================
``request``     string         a random ID: a copy answers this request and no other
``least``       list of lists  what the copy has to have, as above
``since``       int            when the site asked, in milliseconds since 1970 UTC; absent: unknown
``again``       int            how many sites were asked before this one; absent: 0
``difference``  bool           the copy is to change only the rows that differ; absent: false
``logs``        list of lists  of a user stream: what the copy has to have of logs that it has
                               anything of, as in a mark (stream, log ID, epoch, fingerprint);
                               absent: nothing
==============  =============  ====================================================================

Version 1 has ``incarnation`` for ``log_id``. An ack is cumulative, and replaces the one before it.
Unknown fields are ignored, unless ``requires`` lists them (:mod:`spark_wan.wire.records`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from spark_wan.errors import NewerRecordError, SigningKeyError
from spark_wan.wire.mark import LogEntry, VectorEntry
from spark_wan.wire.names import printable
from spark_wan.wire.records import VERSION, is_time, read_record, written_fields
from spark_wan.wire.signature import KeyReference, Signature, Signer, is_signed_with

_KIND = "ack"


@dataclass(frozen=True)
class Need:
    """What a site needs a copy of a table for, with the fields of the format."""

    why: str
    least: tuple[VectorEntry, ...]
    since: int

    def since_before(self, earlier: Need | None) -> Need:
        """Return the same need, with the time of an ``earlier`` report of it."""
        same = earlier is not None and earlier.why == self.why
        return replace(self, since=earlier.since) if same and earlier is not None else self


@dataclass(frozen=True)
class Wanted:
    """A site's request for a copy of a table, with the fields of the format."""

    request: str
    least: tuple[VectorEntry, ...] = ()
    since: int = 0
    again: int = 0
    difference: bool = False
    logs: tuple[LogEntry, ...] = ()


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
    working: int | None = None
    needs: Need | None = None
    wanted: Wanted | None = None
    since: int | None = None
    passes: bool = False
    signature: Signature | None = field(default=None, compare=False)

    def held_since(self, before: Ack | None, now: int) -> Ack:
        """Return the ack with the time at which its hold began. ``before``: the ack that it
        replaces; ``now``: milliseconds since 1970 UTC."""
        if self.held is None:
            return replace(self, since=None, passes=False)
        same = before is not None and before.held is not None and before.passes == self.passes
        since = before.since if same and before is not None else None
        return replace(self, since=now if since is None else since)

    def has(self, log_id: str, epoch: int) -> bool:
        """Whether the site has an epoch of a log, and all before it."""
        return self.log_id == log_id and self.in_table >= epoch

    @property
    def in_table(self) -> int:
        """Through this epoch everything is in the site's table."""
        return self.applied + self.ahead

    def encode(self) -> bytes:
        absent = {
            "ahead": 0,
            "passes": False,
            **dict.fromkeys(("working", "needs", "wanted", "since", "signature")),
        }
        content = {"version": VERSION, **written_fields(self, **absent)}
        if self.wanted is not None:
            content["wanted"] = written_fields(
                self.wanted, since=0, again=0, difference=False, logs=()
            )
        return json.dumps(content, separators=(",", ":")).encode()

    def signed_by(self, signer: Signer) -> Ack:
        """Return the ack with a signature. Raises SigningKeyError."""
        record = json.loads(replace(self, signature=None).encode())
        return replace(self, signature=signer.sign(_KIND, record))

    @classmethod
    def decode(cls, data: bytes) -> Ack | None:
        """Return the ack in ``data``, or None when it cannot be read. Raises NewerRecordError.

        An unreadable ack is no ack: the sender announces the epoch again.
        """
        ack = read_record(cls, data)
        if ack is None or not ack._is_valid():
            return None
        if ack.needs is not None:
            ack = replace(ack, needs=replace(ack.needs, why=printable(ack.needs.why)))
        return ack if ack.cause is None else replace(ack, cause=printable(ack.cause))

    def _is_valid(self) -> bool:
        numbers = (self.applied, self.ahead, self.dead_letters, self.held, self.working)
        since = None if self.needs is None else self.needs.since
        return (
            is_time(since)
            and is_time(self.since)
            and all(number is None or number >= 0 for number in numbers)
        )

    @classmethod
    def of(
        cls, data: bytes, site: str, stream: str, keys: Sequence[KeyReference] = ()
    ) -> Ack | None:
        """Return the ack of ``site`` for ``stream`` in ``data``; None when it is none.

        An ack of a newer spark_wan, and one that is not signed with one of ``keys`` (if there are
        any), is one for no log, with its cause: it acks nothing, and the status shows why.
        """
        try:
            ack = cls.decode(data)
            if ack is None or (ack.site, ack.stream) != (site, stream):
                return None
            wrong = ack._not_signed_with(data, keys) if keys else None
        except NewerRecordError as error:
            wrong = f"was {error}. Update spark_wan at the sender's site"
            ack = None
        except SigningKeyError as error:
            wrong = f"cannot be checked: {error.args[0].rstrip('.')}"
        if wrong is None:
            return ack
        cause = (
            f"the ack of site {site} {wrong}. It counts as none: nothing is trimmed, and epochs "
            "are announced again."
        )
        return cls(site, stream, log_id="", applied=0, held=0, cause=cause)

    def _not_signed_with(self, data: bytes, keys: Sequence[KeyReference]) -> str | None:
        advice = (
            f"Site {self.site} has signing_keys here: check that its receiver runs with the same "
            "topology and keys, and who else may write to the channel"
        )
        if self.signature is None:
            return f"is not signed. {advice}"
        if self.signature.site != self.site:
            return f"is signed by another site, {self.signature.site!r}. {advice}"
        wrong = is_signed_with(_KIND, json.loads(data), self.signature, keys)
        return None if wrong is None else f"does not count: {wrong}. {advice}"
