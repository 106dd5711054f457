"""A user's decisions about a table at a site, recorded so that a restart does not ask again.

A decision is written ``<table>@<what>=<action>``:

===========================  =======================================================================
``orders@12=distribute``     send the whole-table operation of version 12 (TRUNCATE, RESTORE …)
``orders@12=skip``           leave it out: the remote sites keep their rows
``orders@<log ID>=new-log``  at the sender: a new log may begin in place of that one, which is lost;
                             at a receiver: apply that log in place of an earlier one
===========================  =======================================================================
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from spark_wan.errors import LedgerError, OptionError
from spark_wan.state.objects import StateObjects

DECISIONS_VERSION = 1
OPERATION_ACTIONS = ("distribute", "skip")
NEW_LOG = "new-log"

_LOG_ID = re.compile("[0-9a-f]{32}")


@dataclass(frozen=True)
class Decisions:
    """The decisions about one table at one site."""

    operations: Mapping[int, str] = field(default_factory=dict)
    """Version of a whole-table operation -> ``distribute`` or ``skip``."""
    new_logs: frozenset[str] = frozenset()
    """Log IDs: lost ones (sender), accepted ones (receiver)."""

    def __or__(self, later: Decisions) -> Decisions:
        """Merge both; of two decisions about one version the later one counts."""
        return Decisions({**self.operations, **later.operations}, self.new_logs | later.new_logs)

    def encode(self) -> bytes:
        operations = {str(version): action for version, action in sorted(self.operations.items())}
        fields = {
            "version": DECISIONS_VERSION,
            "operations": operations,
            "new_logs": sorted(self.new_logs),
        }
        return json.dumps(fields, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes, where: str) -> Decisions:
        """Raises LedgerError for any other record: no decision may be forgotten silently."""
        try:
            fields = json.loads(data)
            if fields["version"] != DECISIONS_VERSION:
                raise ValueError(
                    f"version {fields['version']}; this spark_wan reads version {DECISIONS_VERSION}"
                )
            operations = {
                int(version): str(action) for version, action in fields["operations"].items()
            }
            return cls(operations, frozenset(map(str, fields["new_logs"])))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise LedgerError(
                f"{where}: the recorded decisions cannot be read ({error}). "
                "Restore the file, or delete it and decide again with --decide."
            ) from error


class StoredDecisions:
    """The decisions of a site, in its ``state``: a log for each table, to which the site's sender
    and receiver may add at the same time. What earlier versions kept, one object, is read, too.
    """

    def __init__(self, state: str, storage: Mapping[str, str] | None = None) -> None:
        self._objects = StateObjects(f"{state.rstrip('/')}/decisions", "the decisions", storage)

    def load(self, table: str) -> Decisions:
        """Return the decisions about ``table``. Raises ChannelError, LedgerError."""
        earlier = self._objects.read(table)
        entries = [] if earlier is None else [(f"{self._objects.url}/{table}.json", earlier)]
        decisions = Decisions()
        for where, data in [*entries, *self._objects.entries(table)]:
            decisions |= Decisions.decode(data, where)
        return decisions

    def record(self, table: str, new: Decisions) -> None:
        """Add ``new`` to the recorded decisions. Raises ChannelError, LedgerError."""
        if new == Decisions():
            return
        before = self.load(table)
        if before | new != before:
            self._objects.append(table, new.encode())


def parse_decisions(texts: Iterable[str]) -> dict[str, Decisions]:
    """Return the decisions in ``texts``, by table.

    >>> parse_decisions(["flights@12=skip"])
    {'flights': Decisions(operations={12: 'skip'}, new_logs=frozenset())}

    Raises OptionError for any other text.
    """
    decisions: dict[str, Decisions] = {}
    for text in texts:
        place, _, action = text.partition("=")
        table, _, what = place.rpartition("@")
        if table and what.isdecimal() and action in OPERATION_ACTIONS:
            decision = Decisions({int(what): action})
        elif table and _LOG_ID.fullmatch(what) and action == NEW_LOG:
            decision = Decisions(new_logs=frozenset((what,)))
        else:
            raise OptionError(
                f"--decide {text!r} is not understood; write <table>@<version>=distribute, "
                f"<table>@<version>=skip or <table>@<log ID>={NEW_LOG}"
            )
        decisions[table] = decisions.get(table, Decisions()) | decision
    return decisions
