"""Marks: what a receiver applied in a commit to a target table, or that a commit stays at its site.

A mark is a JSON object under the key ``spark_wan`` of a commit's ``userMetadata``, which is a JSON
object. A user's mark is ``{"local_only": true}``. A receiver's mark:

============  ===============  ====================================================================
``version``   int              2
``site``      string           the receiver's site
``table``     string           the table's name in the topology
``apply``     int              number of this apply of the table, from 1
``token``     string           of this apply, as in the ledger
``applied``   list of objects  what was applied: one object per stream (see below)
``columns``   list of strings  columns and fields that were applied to the table, by this apply and
                               all before it; absent: none
``moved``     object           those of them that are elsewhere in the table: column -> its path
                               now, or null; absent: none
``vector``    list of lists    what the table has with this commit: (origin site, table ID,
                               selection, the origin's version through which everything is
                               applied); absent: unknown
``logs``      list of lists    how far each log is applied: (stream, log ID, epoch, fingerprint of
                               the epoch's manifest); absent: unknown
``replaced``  int              a copy: nothing that was in the table before this commit counts any
                               more; the table's version then, -1: it is new. Absent: no copy
``local``     int              commits to the table before this one that change rows, and that no
                               receiver made; absent: unknown
============  ===============  ====================================================================

The mark with the highest apply number says how far the table is: what its vector and logs do not
name is not in the table, whatever earlier marks say. A mark without them adds what it applied to
what the marks before it say. An earlier spark_wan wrote it, or a receiver whose ledger had lost
marks.

What was applied of a stream:

================  =============  ==================================================================
``origin``        string         site where the events come from
``table_id``      string         Delta's ID of the source table
``selection``     string         ``all``
``through``       int            the source's newest version that was applied; -1: a user stream
``stream``        string         the stream that was applied
``log_id``        string         its log
``epoch``         int            its newest epoch that was applied
``fingerprint``   string         of the manifest of ``epoch``
``ids``           bool           a user stream, whose events have IDs
``dead_letters``  int            events of the stream that became dead letters here, by this apply
                                 and all before it
``new_ids``       int or null    event IDs that this apply recorded; absent or null: unknown, or
                                 the stream has none
``ids_until``     int or null    newest event time among them, in microseconds since 1970 UTC;
                                 absent or null: one of them has none, and is kept forever
``clock``         int or null    the highest stamp of what was applied
                                 (:mod:`spark_wan.delta.clock`); absent or null: it has none
``via``           object         the inbound epoch that was forwarded, as in a manifest; absent:
                                 none
================  =============  ==================================================================

A mark of version 1 has one stream, whose fields are beside those of the mark. It has
``incarnation`` for ``log_id``. ``columns``, ``moved``, ``vector``, ``logs``, ``replaced``,
``local``, ``new_ids`` and ``ids_until`` are not in marks of spark_wan 0.1.0. Unknown fields are
ignored, unless ``requires`` lists them (:mod:`spark_wan.wire.records`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from spark_wan.errors import LedgerError, NewerRecordError
from spark_wan.wire.records import (
    UNREADABLE,
    UPDATE,
    VERSION,
    EpochRef,
    check_requires,
    check_version,
    from_fields,
    known_names,
    read_json,
    written_fields,
)

MARK = "spark_wan"
"""The key in a commit's ``userMetadata`` under which spark_wan keeps its marks."""

LOCAL_ONLY = json.dumps({MARK: {"local_only": True}})
"""``userMetadata`` of a commit that must stay at its own site:
``df.write.option("userMetadata", LOCAL_ONLY)``."""

Origin = tuple[str, str, str]
"""(origin site, table ID, selection): what one *applied through version* counts for."""
VectorEntry = tuple[str, str, str, int]
"""(origin site, table ID, selection, version): everything of the origin through it is applied."""
LogEntry = tuple[str, str, int, str]
"""(stream, log ID, epoch, fingerprint): everything in the log through the epoch is applied."""


def read_mark(user_metadata: str | None) -> dict[str, Any] | None:
    """Return the mark in a commit's ``userMetadata``, a receiver's or a user's, or None."""
    if not user_metadata or MARK not in user_metadata:
        return None
    try:
        mark = read_json(user_metadata).get(MARK)
    except UNREADABLE:
        return None
    return mark if isinstance(mark, dict) else None


def applied_parts(mark: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return what a mark of any version says was applied, as far as it can be read.

    For those who only look at the commits of other sites and tables.
    """
    parts = mark.get("applied", [mark])
    return [part for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []


def newer_mark(mark: Mapping[str, Any]) -> str | None:
    """Return why a mark, a receiver's or a user's, needs a newer spark_wan; None: it does not."""
    try:
        if "version" in mark:
            check_version(mark["version"])
        check_requires(mark, _KNOWN | {"local_only"})
    except NewerRecordError as error:
        return str(error)
    except ValueError:
        return None  # no version of spark_wan wrote it
    return None


@dataclass(frozen=True)
class AppliedStream:
    """What one commit applied of a stream, with the fields of the format."""

    origin: str
    table_id: str
    selection: str
    through: int
    stream: str
    log_id: str
    epoch: int
    fingerprint: str
    ids: bool
    dead_letters: int = 0
    new_ids: int | None = None
    ids_until: int | None = None
    clock: int | None = None
    via: EpochRef | None = None

    @property
    def key(self) -> Origin:
        return (self.origin, self.table_id, self.selection)

    def content(self) -> dict[str, object]:
        """Return the fields that are written."""
        return written_fields(self, new_ids=None, ids_until=None, clock=None, via=None)


@dataclass(frozen=True)
class Mark:
    """What one commit to a target table applied, with the fields of the format."""

    site: str
    table: str
    apply: int
    token: str
    applied: tuple[AppliedStream, ...]
    columns: tuple[str, ...] = ()
    moved: Mapping[str, str | None] = field(default_factory=dict)
    """See :class:`AppliedColumns`."""
    vector: tuple[VectorEntry, ...] | None = None
    logs: tuple[LogEntry, ...] | None = None
    replaced: int | None = None
    local: int | None = None

    def content(self) -> dict[str, object]:
        """Return the fields that are written, without the version."""
        applied = [part.content() for part in self.applied]
        absent = {"vector": None, "logs": None, "local": None, "replaced": None}
        content = {**written_fields(self, columns=(), moved={}, **absent), "applied": applied}
        # Earlier versions would add it to what the marks before it say.
        return content if self.replaced is None else {**content, "requires": ["replaced"]}

    def user_metadata(self) -> str:
        return json.dumps({MARK: {"version": VERSION, **self.content()}}, separators=(",", ":"))

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Mark:
        """Return the mark with these fields, of any version that is readable.

        Raises an UNREADABLE error when one is missing, or is not what the format says;
        NewerRecordError when an unknown one is required.
        """
        check_requires(content, _KNOWN)
        return from_fields(cls, {"applied": [content], **content})

    @classmethod
    def read(cls, user_metadata: str | None, site: str, table: str) -> Mark | None:
        """Return the mark that ``site`` left for ``table``, or None.

        Raises LedgerError for a mark of an unknown version, and for one that lacks fields.
        """
        content = read_mark(user_metadata)
        if content is None or (content.get("site"), content.get("table")) != (site, table):
            return None
        try:
            check_version(content.get("version"))
            return cls.of(content)
        except NewerRecordError as error:
            raise LedgerError(f"{table}: a commit carries a mark {error}. {UPDATE}") from error
        except UNREADABLE as error:
            raise LedgerError(
                f"{table}: a commit carries a mark that spark_wan did not write ({error})."
            ) from error


_KNOWN = known_names(Mark) | known_names(AppliedStream)
