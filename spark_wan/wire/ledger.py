"""The rows of a site's ledger: Delta tables in the folder ``ledger`` of its ``state``.

Receivers append to all three; appends do not conflict with each other. Maintenance deletes expired
event IDs and folds marks (:mod:`spark_wan.ledger.folding`). Each row has ``version int``, the
version of the row's format (1; 2 for summaries), and ``table string``, the table's name in the
topology. Delta enforces no key; the keys below are logical ones.

A later spark_wan may add columns. A job that starts adds those that a ledger of an
earlier version lacks; they are null in the rows that are there, and in those that the earlier
version still writes. Columns that this version does not know are left alone.

``applied``: the marks, written by receivers after each commit to a target table. Key: ``token``.
Duplicate rows do no harm.

==============  =======  ==========================================================================
target_id       string   Delta's ID of the target table
target_version  bigint   the version of the marked commit
apply           bigint   the apply number, from 1 without gaps per table: ``txnVersion``
token           string   a random ID of this apply, also in the other two tables
mark            string   JSON of :class:`spark_wan.wire.mark.Mark`, with the columns as known now
==============  =======  ==========================================================================

A row of version 2, without ``token``, is a :class:`Summary` of the applies up to ``apply``, or a
claim of one. Its ``mark`` is ``{"summary": {…}}`` or ``{"claim": {…}}``, with the fields of the
class that have no column.

A row without ``apply`` and ``token`` is a :class:`HistoryPosition`: the target's history was read
through ``target_version``. Its ``mark`` is ``{"seen": <identity of that commit>}``, with
``"moved"`` if columns were moved, and with ``"local"``, the number of commits to the table so far
that change rows and that no receiver made, if it is known, and with ``"apply"``, the newest apply
then.

Unknown fields in ``mark`` are ignored, unless its ``requires`` lists them
(:mod:`spark_wan.wire.records`).

``event_ids``: the IDs of applied events of user streams, written by receivers before the commit to
the target. A row counts when ``applied`` has its token, or when its token is ``marked
<first>-<last>``: that of folded applies. Key: (table, origin, event_id, token).

========  =======  ================================================================================
origin    string   the site that the event comes from
event_id  string   the event's ID; null in a floor (see below)
content   string   hash of operation and columns: another one under the same ID is a dead letter
time      bigint   the event's time in microseconds since 1970 UTC, or null
token     string   of the apply that recorded it
========  =======  ================================================================================

A row without ``event_id``, with the token ``floor``, is a floor: event IDs with a ``time`` at or
before its own have expired and were deleted.

``dead_letters``: events that could not be applied or sent. Key: (side, stream, event_id, token).
Rows of a receiver count as event IDs do. Rows of a sender always count; a sender
adds an event ID of a stream once.

==============  =======  ==========================================================================
side            string   ``receiver`` or ``sender``
stream          string   the stream's name
event_id        string   the event's ID; computed for captured streams
origin_version  bigint   source version of the change; the epoch in a user stream
operation       string   ``create``, ``put`` or ``destroy``
key             string   JSON of the key columns, of which a sender cuts long values; null
                         without keys, and in a sender's rows of version 0.1.0
cause           string   why the event could not be applied or sent
row             string   JSON of the row, for people to read
payload         binary   the row as an Arrow IPC stream, exact in every type; null for rows of a
                         sender beyond 32 MiB in one task: the source has them
token           string   of the apply that recorded it; null for a sender
at              bigint   when it was recorded, in milliseconds since 1970 UTC; null: by an earlier
                         version
==============  =======  ==========================================================================
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from spark_wan.events.dead_letters import row_values
from spark_wan.wire.mark import LogEntry, Mark, VectorEntry
from spark_wan.wire.records import (
    check_requires,
    from_fields,
    known_names,
    read_json,
    written_fields,
)

SCHEMAS = {
    "applied": (
        "version int, table string, target_id string, target_version bigint, apply bigint, "
        "token string, mark string"
    ),
    "event_ids": (
        "version int, table string, origin string, event_id string, content string, time bigint, "
        "token string"
    ),
    "dead_letters": (
        "version int, side string, table string, stream string, event_id string, "
        "origin_version bigint, operation string, key string, cause string, row string, "
        "payload binary, token string, at bigint"
    ),
}
LEDGER_VERSION = 1
SUMMARY_VERSION = 2
"""Of rows of ``applied`` that are summaries or claims, which version 1 does not have."""
FLOOR = "floor"
"""The token of floors in ``event_ids``."""
_RANGE = re.compile(r"marked ([0-9]+)-([0-9]+)")


def range_token(first: int, last: int) -> str:
    """Return the token of rows that folded applies recorded. They count: their applies are marked.

    Random tokens have only digits and the letters a to f, so each of them sorts before this one.

    >>> range_token(1, 500)
    'marked 1-500'
    """
    return f"marked {first}-{last}"


def token_range(token: str) -> tuple[int, int] | None:
    """Return the first and the last of the folded applies with a token; None: it is of one apply,
    or of a floor."""
    found = _RANGE.fullmatch(token)
    return None if found is None else (int(found[1]), int(found[2]))


def ledger_location(state: str, name: str) -> str:
    """Return where a table of the ledger is, in the ``state`` of a site."""
    return f"{state.rstrip('/')}/ledger/{name}"


@dataclass(frozen=True)
class FoldedIds:
    """Event IDs of one origin that the folded applies ``first`` to ``last`` recorded."""

    origin: str
    first: int
    last: int
    count: int | None
    """None: unknown, by marks of version 0.1.0."""
    until: int | None
    """The newest event time among them, in microseconds; None: one has none, and never expires."""

    @property
    def token(self) -> str:
        return range_token(self.first, self.last)

    def joined(self, later: FoldedIds) -> FoldedIds:
        """Return this range and a later one of the same origin as one."""
        counts = [count for count in (self.count, later.count) if count is not None]
        times = [self.until, later.until]
        return FoldedIds(
            self.origin,
            self.first,
            last=later.last,
            count=sum(counts) if counts else None,
            until=None if None in times else max(time for time in times if time is not None),
        )


@dataclass(frozen=True)
class LedgerRow:
    """A mark, with the ID of the target table and the version of the commit that carries it."""

    target_id: str
    target_version: int
    mark: Mark


@dataclass(frozen=True)
class HistoryPosition:
    """How far a target's history was read: the ledger has all marks through ``target_version``.

    That commit itself has no mark; ``identity`` is the commit's. Log cleanup may then remove
    commits without marks. Stored after the marks: a ledger restored to an older state loses both.
    """

    target_id: str
    target_version: int
    identity: str
    moved: Mapping[str, str | None] = field(default_factory=dict)
    """Applied columns that were elsewhere at that version (see :class:`Mark`)."""
    local: int | None = None
    """Commits through that version that change rows and are no receiver's; None: unknown."""
    apply: int = 0
    """The newest apply that the ledger knew then; 0: unknown."""


@dataclass(frozen=True)
class Summary:
    """What the marks of applies 1 to ``apply`` come to: a row of ``applied`` of version 2.

    A claim (``claimed``) announces the next summary: it says which applies are being folded, and
    counts for nothing else.
    """

    target_id: str
    target_version: int
    """The target's version with the newest of the marks."""
    apply: int
    """The newest of the marks."""
    token: str
    """That one's."""
    number: int
    """Of this fold of the table, from 1. The summary with the highest number counts."""
    through: tuple[VectorEntry, ...]
    logs: tuple[LogEntry, ...]
    """The vector of the table and its logs; see :class:`spark_wan.wire.mark.Mark`."""
    dead_letters: Mapping[str, int]
    """Per stream."""
    user_streams: tuple[bool, ...]
    """The kinds of streams: whether user streams."""
    columns: tuple[str, ...]
    moved: Mapping[str, str | None]
    """See :class:`spark_wan.wire.mark.Mark`."""
    ids: tuple[FoldedIds, ...]
    lost: tuple[tuple[int, int], ...]
    """Ranges of applies whose marks were lost before they were folded."""
    vector_apply: int = 0
    """The newest of the applies whose mark has a vector; 0: none."""
    local: int | None = None
    """As in the newest of the marks."""
    copied: int = 0
    """The newest of the applies that took a copy; 0: none."""
    claimed: bool = field(default=False, compare=False)

    @property
    def lost_applies(self) -> list[int]:
        return [number for first, last in self.lost for number in range(first, last + 1)]

    def as_claim(self) -> Summary:
        return replace(self, claimed=True)

    def accepted(self) -> Summary:
        """Return the summary that a claim announces."""
        return replace(self, claimed=False)

    def encode(self) -> str:
        """Return the JSON for the column ``mark``. The row's columns have the first fields."""
        content = written_fields(self, vector_apply=0, local=None, copied=0)
        for name in ("target_id", "target_version", "apply", "claimed"):
            del content[name]
        return json.dumps({"claim" if self.claimed else "summary": content})


def copied_in(apply: int | None, mark: str) -> int:
    """Return the newest copy that a row of ``applied`` tells of: the number of its apply; 0: none.

    Raises NewerRecordError, and UNREADABLE errors for what spark_wan did not write.
    """
    row = decode_row("", 0, mark, apply)
    if isinstance(row, Summary):
        return 0 if row.claimed else row.copied
    is_copy = isinstance(row, LedgerRow) and row.mark.replaced is not None
    return (apply or 0) if is_copy else 0


LedgerRecord = LedgerRow | HistoryPosition | Summary
"""A row of the ledger's table ``applied``."""


@dataclass(frozen=True)
class DeadLetter:
    """An event that a site could not apply or send, with the columns of ``dead_letters``."""

    side: str
    """``receiver`` or ``sender``."""
    table: str
    """In the topology."""
    stream: str
    event_id: str
    origin_version: int
    """Source version of the change; of a user stream, the epoch."""
    operation: str
    """``create``, ``put`` or ``destroy``."""
    key: str | None
    """The key as JSON, cut as ``row`` is; None: a table without keys."""
    cause: str
    row: str
    """The row as JSON, for people: long values are cut at the sender."""
    payload: bytes | None
    """The row as an Arrow IPC stream; None: only the source has it."""
    token: str | None = None
    """Of the apply that recorded it; None: a sender did."""
    at: int | None = None
    """When it was recorded, in milliseconds since 1970 UTC; None: by an earlier version."""

    def __str__(self) -> str:
        row = self.row if len(self.row) <= 200 else self.row[:200] + " …"
        return f"{self.cause} in version {self.origin_version}: {row}"

    @property
    def values(self) -> dict[str, Any] | None:
        """The row's values by column, exact: :func:`spark_wan.events.dead_letters.row_values`. None
        without a payload."""
        return None if self.payload is None else row_values(self.payload)


def encode_row(row: LedgerRecord) -> dict[str, Any]:
    """Return the values of the columns of ``applied``, without ``table``."""
    place = {"target_id": row.target_id, "target_version": row.target_version}
    if isinstance(row, HistoryPosition):
        seen = {"seen": row.identity, **written_fields(row, moved={}, local=None, apply=0)}
        for name in ("identity", *place):
            del seen[name]
        return {**place, "mark": json.dumps(seen)}
    if isinstance(row, Summary):
        return {**place, "version": SUMMARY_VERSION, "apply": row.apply, "mark": row.encode()}
    mark = row.mark
    return {
        **place,
        "apply": mark.apply,
        "token": mark.token,
        "mark": json.dumps(mark.content()),
    }


def decode_row(
    target_id: str, target_version: int, mark: str, apply: int | None = None
) -> LedgerRecord:
    """Return the row with these columns.

    Raises NewerRecordError, and UNREADABLE errors for what spark_wan did not write.
    """
    content = read_json(mark)
    place = {"target_id": target_id, "target_version": target_version}
    for kind in ("summary", "claim"):
        if kind in content:
            check_requires(content[kind], known_names(Summary))
            columns = {**place, "apply": apply, "claimed": kind == "claim"}
            return from_fields(Summary, {**content[kind], **columns}, renamed=False)
    if "seen" in content:
        check_requires(content, ("seen", "moved", "local", "apply"))
        columns = {**place, "identity": content["seen"]}
        return from_fields(HistoryPosition, {**content, **columns}, renamed=False)
    return LedgerRow(target_id, target_version, Mark.of(content))
