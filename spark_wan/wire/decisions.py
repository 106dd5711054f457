"""Decisions: what the operator of a site has decided about a table. The log
``decisions/<table>/<number, 20 digits>.json`` in the site's state, of which each entry is created
only if absent.

An entry is a JSON object:

==============  ===============  ==================================================================
``version``     int              1
``operations``  object           version of a whole-table operation -> ``distribute`` or ``skip``
``new_logs``    list of strings  log IDs: lost ones (sender), accepted ones (receiver)
``resyncs``     list of ints     versions behind which sites get copies (sender); absent: none
``read``        list of ints     versions through which nobody has read the target, and no commit
                                 was a RESTORE (receiver); absent: none
``withdrawn``   list of strings  versions and log IDs: what earlier entries say of these counts no
                                 more; absent: none
``by``          string           who decided; absent: not known
``at``          int              when, in milliseconds since 1970 UTC; absent: not known
==============  ===============  ==================================================================

The entries count in the order of their numbers: a later one takes away what it withdraws, adds to
those before, and replaces what they say of the same version. Unknown fields are ignored, unless
``requires`` lists them (:mod:`spark_wan.wire.records`).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from spark_wan.errors import LedgerError, NewerRecordError
from spark_wan.wire.names import printable
from spark_wan.wire.records import UNREADABLE, is_time, strict_record

VERSION = 1
NEW_LOG, RESYNC, NO_RESTORE = "new-log", "resync", "no-restore"


@dataclass(frozen=True)
class Decisions:
    """The decisions about one table at one site: of one entry, or of all."""

    operations: Mapping[int, str] = field(default_factory=dict)
    """Version of a whole-table operation -> ``distribute`` or ``skip``."""
    new_logs: frozenset[str] = frozenset()
    """Log IDs: lost ones (sender), accepted ones (receiver)."""
    resyncs: frozenset[int] = frozenset()
    """Versions of the source behind which sites are to get copies."""
    read: frozenset[int] = frozenset()
    """Versions of the target: no commit through one of them that nobody has read was a RESTORE."""
    withdrawn: frozenset[str] = frozenset()
    """Versions and log IDs of which nothing counts that was decided before."""

    def __or__(self, later: Decisions) -> Decisions:
        """Return what both come to."""
        kept = self._without(later.withdrawn)
        return Decisions(
            {**kept.operations, **later.operations},
            kept.new_logs | later.new_logs,
            kept.resyncs | later.resyncs,
            kept.read | later.read,
            self.withdrawn | later.withdrawn,
        )

    def _without(self, withdrawn: Collection[str]) -> Decisions:
        def kept(versions: frozenset[int]) -> frozenset[int]:
            return frozenset(each for each in versions if str(each) not in withdrawn)

        return Decisions(
            {each: what for each, what in self.operations.items() if str(each) not in withdrawn},
            self.new_logs.difference(withdrawn),
            kept(self.resyncs),
            kept(self.read),
        )

    def texts(self, table: str) -> list[str]:
        """Return the decisions as ``--decide`` takes them.

        >>> Decisions({12: "skip"}).texts("flights")
        ['flights@12=skip']
        """
        by_version = [
            *sorted(self.operations.items()),
            *((each, RESYNC) for each in sorted(self.resyncs)),
            *((each, NO_RESTORE) for each in sorted(self.read)),
        ]
        found = [f"{table}@{version}={what}" for version, what in by_version]
        return found + [f"{table}@{log}={NEW_LOG}" for log in sorted(self.new_logs)]

    def encode(self, by: str | None = None, at: int = 0) -> bytes:
        """Return an entry of the log. ``by``, ``at``: who decided, and when."""
        record: dict[str, Any] = {
            "version": VERSION,
            "operations": {str(v): action for v, action in sorted(self.operations.items())},
            "new_logs": sorted(self.new_logs),
        }
        if self.resyncs:
            record["resyncs"] = sorted(self.resyncs)
        if self.read:
            record["read"] = sorted(self.read)
        if self.withdrawn:  # who does not know of that would act on what was withdrawn
            record |= {"withdrawn": sorted(self.withdrawn), "requires": ["withdrawn"]}
        if by is not None:
            record |= {"by": by, "at": at}
        return json.dumps(record, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes, where: str) -> Decisions:
        """Raises LedgerError for any other record: no decision may be forgotten silently."""
        return cls.entry(data, where).decisions

    @classmethod
    def entry(cls, data: bytes, where: str) -> Entry:
        """Return an entry of the log with who made it. Raises LedgerError as :meth:`decode`."""
        try:
            entry = strict_record(_Entry, data, VERSION, renamed=False)
            operations = {int(version): action for version, action in entry.operations.items()}
            decided = cls(
                operations,
                frozenset(entry.new_logs),
                frozenset(entry.resyncs),
                frozenset(entry.read),
                frozenset(entry.withdrawn),
            )
            by = None if entry.by is None else printable(entry.by)
            return Entry(decided, by, entry.at if is_time(entry.at) else 0)
        except NewerRecordError as error:
            raise LedgerError(
                f"{where}: the recorded decisions were {error}. Update spark_wan at this site."
            ) from error
        except UNREADABLE as error:
            raise LedgerError(
                f"{where}: the recorded decisions cannot be read ({error}). "
                "Restore the file, or delete it and decide again with --decide."
            ) from error


@dataclass(frozen=True)
class Entry:
    """An entry of the log."""

    decisions: Decisions
    by: str | None
    """Who decided; None: not known."""
    at: int
    """When, in milliseconds since 1970 UTC; 0: not known."""


@dataclass(frozen=True)
class _Entry:
    """An entry as JSON has it."""

    operations: Mapping[str, str]
    new_logs: tuple[str, ...]
    resyncs: tuple[int, ...] = ()
    read: tuple[int, ...] = ()
    withdrawn: tuple[str, ...] = ()
    by: str | None = None
    at: int = 0
