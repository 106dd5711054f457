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
==============  ===============  ==================================================================

The entries count in the order of their numbers: a later one adds to those before, and replaces what
they say of the same version. Unknown fields are ignored, unless ``requires`` lists them
(:mod:`spark_wan.wire.records`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from spark_wan.errors import LedgerError, NewerRecordError
from spark_wan.wire.records import UNREADABLE, strict_record

VERSION = 1


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

    def __or__(self, later: Decisions) -> Decisions:
        """Return what both come to."""
        return Decisions(
            {**self.operations, **later.operations},
            self.new_logs | later.new_logs,
            self.resyncs | later.resyncs,
            self.read | later.read,
        )

    def encode(self) -> bytes:
        record: dict[str, Any] = {
            "version": VERSION,
            "operations": {str(v): action for v, action in sorted(self.operations.items())},
            "new_logs": sorted(self.new_logs),
        }
        if self.resyncs:
            record["resyncs"] = sorted(self.resyncs)
        if self.read:
            record["read"] = sorted(self.read)
        return json.dumps(record, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes, where: str) -> Decisions:
        """Raises LedgerError for any other record: no decision may be forgotten silently."""
        try:
            entry = strict_record(_Entry, data, VERSION, renamed=False)
            operations = {int(version): action for version, action in entry.operations.items()}
            return cls(
                operations,
                frozenset(entry.new_logs),
                frozenset(entry.resyncs),
                frozenset(entry.read),
            )
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
class _Entry:
    """An entry as JSON has it."""

    operations: Mapping[str, str]
    new_logs: tuple[str, ...]
    resyncs: tuple[int, ...] = ()
    read: tuple[int, ...] = ()
