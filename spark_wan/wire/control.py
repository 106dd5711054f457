"""Control: what people want of the streams that a site sends. The log
``control/<number, 20 digits>.json`` in the site's state, of which each entry is created only if
absent.

An entry is a JSON object:

===========  ===============  =====================================================================
``version``  int              1
``verb``     string           what was asked for: ``pause`` or ``resume``
``sender``   string or null   of which sender; null: of all of the site
``table``    string or null   of which table; null: of all
``by``       string           who asked
``at``       int              when, in milliseconds since 1970 UTC
``rules``    list of objects  what is wanted now, the newest rule last; see below
===========  ===============  =====================================================================

A rule has ``sender`` and ``table`` as above, and says of these streams:

===============  ======  ==========================================================================
``paused``       bool    whether no site is to take anything of them
``capture``      bool    of a pause: whether the sender is to add nothing to them, either
``generation``   int     the number of the entry that brought the rule
``by``, ``at``           of that entry
===============  ======  ==========================================================================

Of several rules that cover a stream, the last one counts; of none, nothing is wanted. The newest
entry says everything, so older ones may be gone. Its number is the *generation*. Unknown fields are
ignored, unless ``requires`` lists them (:mod:`spark_wan.wire.records`).
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from spark_wan.errors import LedgerError, NewerRecordError
from spark_wan.wire.records import UNREADABLE, strict_record

VERSION = 1
PAUSE, RESUME = "pause", "resume"


@dataclass(frozen=True)
class Scope:
    """The streams of a sender and a table, of all senders or of all tables of a site."""

    sender: str | None = None
    table: str | None = None

    def covers(self, other: Scope) -> bool:
        """Whether all streams of another scope are in this one."""
        return self.sender in (None, other.sender) and self.table in (None, other.table)

    def meets(self, other: Scope) -> bool:
        """Whether a stream may be in both."""
        senders, tables = {self.sender, other.sender}, {self.table, other.table}
        return len(senders - {None}) < 2 and len(tables - {None}) < 2


@dataclass(frozen=True)
class Rule:
    """What is wanted of the streams of a scope."""

    sender: str | None
    table: str | None
    paused: bool
    capture: bool
    generation: int
    by: str
    at: int

    @property
    def scope(self) -> Scope:
        return Scope(self.sender, self.table)


@dataclass(frozen=True)
class Control:
    """An entry of the log, and so what is wanted of all streams of a site."""

    verb: str = RESUME
    sender: str | None = None
    table: str | None = None
    by: str = ""
    at: int = 0
    rules: tuple[Rule, ...] = ()

    def pause_of(self, sender: str, table: str) -> Rule | None:
        """Return the rule that pauses a stream; None: it is not paused."""
        scope = Scope(sender, table)
        rule = next((each for each in reversed(self.rules) if each.scope.covers(scope)), None)
        return rule if rule is not None and rule.paused else None

    @property
    def meaning(self) -> tuple[tuple[Scope, bool, bool], ...]:
        """What the rules say, whoever asked for it, and when."""
        return tuple((each.scope, each.paused, each.capture) for each in self.rules)

    def following(
        self, verb: str, scope: Scope, *, generation: int, by: str, at: int, capture: bool = False
    ) -> Control:
        """Return the entry after this one, which another request leads to."""
        kept = [each for each in self.rules if not scope.covers(each.scope)]
        rule = Rule(
            scope.sender,
            scope.table,
            paused=verb == PAUSE,
            capture=capture,
            generation=generation,
            by=by,
            at=at,
        )
        # To resume what no rule pauses needs no rule.
        if verb == PAUSE or any(each.paused and each.scope.meets(scope) for each in kept):
            kept.append(rule)
        return Control(verb, scope.sender, scope.table, by, at, tuple(kept))

    def encode(self) -> bytes:
        return json.dumps({"version": VERSION, **asdict(self)}, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes, where: str) -> Control:
        """Raises LedgerError for any other record: no pause may be forgotten silently."""
        try:
            return strict_record(Control, data, VERSION, renamed=False)
        except NewerRecordError as error:
            raise LedgerError(
                f"{where}: the control log was {error}. Update spark_wan at this site."
            ) from error
        except UNREADABLE as error:
            raise LedgerError(
                f"{where}: the control log cannot be read ({error}). Restore the file; or delete "
                "all of control/, and run `spark-wan pause` or `resume` again. Until then, what is "
                "paused stays so."
            ) from error
