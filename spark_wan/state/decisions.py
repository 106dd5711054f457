"""A user's decisions about a table at a site, recorded so that a restart does not ask again.

A decision is written ``<table>@<what>=<action>``:

===========================  =======================================================================
``orders@12=distribute``     send the whole-table operation of version 12 (TRUNCATE, RESTORE …)
``orders@12=skip``           leave it out: the remote sites keep their rows
``orders@41=resync``         at the sender: what follows version 41 cannot be sent; each site that
                             lacks it is to get a copy of the table
``orders@13=no-restore``     at a receiver: of the commits through version 13 of its table that log
                             cleanup has deleted unread, none was a RESTORE
``orders@<log ID>=new-log``  at the sender: a new log may begin in place of that one, which is lost;
                             at a receiver: apply that log in place of an earlier one
===========================  =======================================================================
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from spark_wan.errors import OptionError
from spark_wan.state.objects import StateObjects
from spark_wan.wire.decisions import NEW_LOG, NO_RESTORE, RESYNC, Decisions, Entry

OPERATION_ACTIONS = ("distribute", "skip")

_LOG_ID = re.compile("[0-9a-f]{32}")


class StoredDecisions:
    """The decisions of a site, in its ``state``: a log for each table, to which the site's sender
    and receiver may add at the same time (:mod:`spark_wan.wire.decisions`). What earlier versions
    kept, one object, is read before it.
    """

    def __init__(self, state: str, storage: Mapping[str, str] | None = None) -> None:
        self._objects = StateObjects(f"{state.rstrip('/')}/decisions", "the decisions", storage)

    def load(self, table: str) -> Decisions:
        """Return the decisions about ``table``. Raises ChannelError, LedgerError."""
        decisions = Decisions()
        for entry in self.entries(table):
            decisions |= entry.decisions
        return replace(decisions, withdrawn=frozenset())

    def entries(self, table: str) -> list[Entry]:
        """Return what was decided about ``table``, oldest first. Raises ChannelError,
        LedgerError."""
        earlier = self._objects.read(table)
        found = [] if earlier is None else [(f"{self._objects.url}/{table}.json", earlier)]
        found += self._objects.entries(table)
        return [Decisions.entry(data, where) for where, data in found]

    def record(self, table: str, new: Decisions, by: str | None = None, at: int = 0) -> bool:
        """Add ``new`` to the recorded decisions; ``by``, ``at``: who decided, and when. Returns
        whether that changes anything. Raises ChannelError, LedgerError. When nothing was decided,
        the state is not read: a start asks for each table."""
        if new == Decisions():
            return False
        before = self.load(table)
        if replace(before | new, withdrawn=frozenset()) == before:
            return False
        self._objects.append(table, new.encode(by, at))
        return True


def parse_decisions(texts: Iterable[str]) -> dict[str, Decisions]:
    """Return the decisions in ``texts``, by table.

    >>> parse_decisions(["flights@12=skip"])["flights"].operations
    {12: 'skip'}

    Raises OptionError for any other text.
    """
    decisions: dict[str, Decisions] = {}
    for text in texts:
        place, _, action = text.partition("=")
        table, _, what = place.rpartition("@")
        if table and what.isdecimal() and action in OPERATION_ACTIONS:
            decision = Decisions({int(what): action})
        elif table and what.isdecimal() and action == RESYNC:
            decision = Decisions(resyncs=frozenset((int(what),)))
        elif table and what.isdecimal() and action == NO_RESTORE:
            decision = Decisions(read=frozenset((int(what),)))
        elif table and _LOG_ID.fullmatch(what) and action == NEW_LOG:
            decision = Decisions(new_logs=frozenset((what,)))
        else:
            raise OptionError(
                f"--decide {text!r} is not understood; write <table>@<version>=distribute, "
                f"<table>@<version>=skip, <table>@<version>={RESYNC}, "
                f"<table>@<version>={NO_RESTORE} or <table>@<log ID>={NEW_LOG}"
            )
        decisions[table] = decisions.get(table, Decisions()) | decision
    return decisions
