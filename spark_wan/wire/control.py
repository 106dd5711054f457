"""Control: what people want of the streams that a site sends. The log
``control/<number, 20 digits>.json`` in the site's state, of which each entry is created only if
absent.

An entry is a JSON object:

===========  ===============  =====================================================================
``version``  int              1
``verb``     string           what was asked for: ``pause``, ``resume``, ``drain``, ``stop`` or
                              ``clean``
``sender``   string or null   of which sender; null: of all of the site
``table``    string or null   of which table; null: of all
``by``       string           who asked
``at``       int              when, in milliseconds since 1970 UTC
``rules``    list of objects  what is wanted now, the newest rule last; see below
``ends``     list of objects  where streams are to end, the newest last; see below; absent: nowhere
``cleans``   list of objects  which streams are to go on without what waited when that was asked
                              for, the newest last; see below; absent: none
===========  ===============  =====================================================================

A rule has ``sender`` and ``table`` as above, and says of these streams:

===============  ======  ==========================================================================
``paused``       bool    whether no site is to take anything of them
``capture``      bool    of a pause: whether the sender is to add nothing to them, either
``generation``   int     the number of the entry that brought the rule
``by``, ``at``           of that entry
===============  ======  ==========================================================================

An end has ``sender``, ``table``, ``generation``, ``by`` and ``at`` as a rule, and ``end``: where
these streams end, an object, or null if they go on behind an end:

===========  ======  ==============================================================================
``kind``     string  ``newest``: with the version that is the newest one when the sender reads this;
                     ``version``: with that version; ``time``: with the last commit until then
``point``    int     the version, or the time in milliseconds since 1970 UTC; of ``newest`` 0
===========  ======  ==============================================================================

A clean has ``sender``, ``table``, ``generation``, ``by`` and ``at`` as a rule, ``remote``, the site
for which something is dropped (null: any), and ``sites``, a list of lists (stream, log ID, site,
epoch): what the site has not acked through that epoch is dropped. So a clean that was done changes
nothing. An earlier version takes no notice, and drops nothing.

Of several rules that cover a stream, the last one counts; of none, nothing is wanted. So it is with
ends and cleans. The newest entry says everything, so older ones may be gone. Its number is the
*generation*. Unknown fields are ignored, unless ``requires`` lists them
(:mod:`spark_wan.wire.records`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TypeVar

from spark_wan.errors import LedgerError, NewerRecordError
from spark_wan.wire.manifest import Manifest
from spark_wan.wire.records import UNREADABLE, strict_record

VERSION = 1
PAUSE, RESUME, DRAIN, STOP, CLEAN = "pause", "resume", "drain", "stop", "clean"
NEWEST, AT_VERSION, AT_TIME = "newest", "version", "time"


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
class Scoped:
    """What is wanted of the streams of a scope."""

    sender: str | None
    table: str | None

    @property
    def scope(self) -> Scope:
        return Scope(self.sender, self.table)


S = TypeVar("S", bound=Scoped)


@dataclass(frozen=True)
class Rule(Scoped):
    """Whether the streams of a scope are paused."""

    paused: bool
    capture: bool
    generation: int
    by: str
    at: int


@dataclass(frozen=True)
class End:
    """Where a captured stream ends."""

    kind: str
    point: int = 0

    def is_passed_by(self, last: Manifest) -> bool:
        """Whether a log that ends with ``last`` goes beyond it. The newest version is not known
        here."""
        if self.kind == AT_TIME:
            times = [commit["time"] for commit in last.commits]
            known = last.clock.time if last.clock is not None else 0
            return max(times, default=known) > self.point
        return self.kind == AT_VERSION and last.last_version > self.point


@dataclass(frozen=True)
class Ending(Scoped):
    """Where the streams of a scope end."""

    end: End | None
    generation: int
    by: str
    at: int


@dataclass(frozen=True)
class Clean(Scoped):
    """That the streams of a scope go on without what waited."""

    remote: str | None
    sites: tuple[tuple[str, str, str, int], ...]
    """Stream, log ID and site, and through which epoch nothing is kept for it."""
    generation: int
    by: str
    at: int

    def dropped(self, last: Manifest) -> dict[str, int]:
        """Return the sites without which the log that ends with ``last`` is to go on, with the
        epoch through which nothing is kept for them."""
        log = last.stream, last.log_id
        return {site: epoch for *of, site, epoch in self.sites if (*of,) == log}

    def and_earlier(self, earlier: Iterable[Clean]) -> Clean:
        """Return this request with what others have named, which may wait still: whoever asks may
        have been shown what waited before that."""
        through: dict[tuple[str, str, str], int] = {}
        for each in (*earlier, self):
            for stream, log_id, site, epoch in each.sites:
                place = stream, log_id, site
                through[place] = max(epoch, through.get(place, 0))
        return replace(self, sites=tuple((*place, epoch) for place, epoch in through.items()))


@dataclass(frozen=True)
class WantedEnd:
    """What is wanted of a captured stream, beside a pause."""

    generation: int = 0
    """The number of the newest entry in the control log."""
    ending: Ending | None = None
    """The last request for an end, or for going on behind one; None: there was none."""
    cleans: tuple[Clean, ...] = ()
    """The requests to go on without what waited."""

    @property
    def end(self) -> End | None:
        """Where it is to end; None: it goes on."""
        return self.ending.end if self.ending is not None else None

    def has_ended(self, last: Manifest | None) -> bool:
        """Whether an operator has ended the log that ends with ``last``, and nobody has asked for
        more since. So it stays ended if the control log was lost, or restored to an older state."""
        if last is None or not last.end:
            return False
        return self.ending is None or last.control >= self.ending.generation


@dataclass(frozen=True)
class Control:
    """An entry of the log, and so what is wanted of all streams of a site."""

    verb: str = RESUME
    sender: str | None = None
    table: str | None = None
    by: str = ""
    at: int = 0
    rules: tuple[Rule, ...] = ()
    ends: tuple[Ending, ...] = ()
    cleans: tuple[Clean, ...] = ()

    def wanted(self, sender: str, table: str, generation: int) -> WantedEnd:
        """Return what is wanted of a captured stream, beside a pause."""
        cleans = tuple(each for each in self.cleans if each.scope.covers(Scope(sender, table)))
        return WantedEnd(generation, self.end_of(sender, table), cleans)

    def pause_of(self, sender: str, table: str) -> Rule | None:
        """Return the rule that pauses a stream; None: it is not paused."""
        rule = _last_of(self.rules, Scope(sender, table))
        return rule if rule is not None and rule.paused else None

    def end_of(self, sender: str, table: str) -> Ending | None:
        """Return what was wanted last of the end of a stream; None: nothing."""
        return _last_of(self.ends, Scope(sender, table))

    @property
    def meaning(self) -> tuple[tuple[object, ...], ...]:
        """What the rules and ends say, whoever asked for it, and when."""
        rules = [(each.scope, each.paused, each.capture) for each in self.rules]
        ends = ((each.scope, each.end) for each in self.ends)
        return (*rules, *ends, *((each.generation,) for each in self.cleans))

    def following(
        self,
        verb: str,
        scope: Scope,
        *,
        generation: int,
        by: str,
        at: int,
        capture: bool = False,
        end: End | None = None,
        has_ended: bool = False,
        clean: Clean | None = None,
    ) -> Control:
        """Return the entry after this one, which another request leads to: of ``drain`` and
        ``stop``, with ``end``, which also resume what is paused. ``has_ended``: the logs of some of
        these streams end by an earlier request. ``clean``: of a ``clean``, what it drops."""
        asked = scope.sender, scope.table
        if clean is not None:
            earlier = [
                each
                for each in self.cleans
                if scope.covers(each.scope) and clean.remote in (None, each.remote)
            ]
            cleans = [each for each in self.cleans if each not in earlier]
            clean = clean.and_earlier(earlier)
            cleans.append(replace(clean, generation=generation, by=by, at=at))
            return replace(
                self, verb=verb, sender=asked[0], table=asked[1], by=by, at=at, cleans=(*cleans,)
            )
        rules = [each for each in self.rules if not scope.covers(each.scope)]
        # To resume what no rule pauses needs no rule.
        if verb == PAUSE or any(each.paused and each.scope.meets(scope) for each in rules):
            paused = verb == PAUSE
            rules.append(Rule(*asked, paused, capture, generation=generation, by=by, at=at))
        ends = [*self.ends]
        if verb != PAUSE:  # what has ended stays so
            ends = [each for each in ends if not scope.covers(each.scope)]
            is_exception = any(each.end is not None and each.scope.meets(scope) for each in ends)
            # Whoever has ended a stream goes on only by a request that is younger.
            is_needed = has_ended or is_exception or len(ends) < len(self.ends)
            if end is not None or is_needed:
                ends.append(Ending(*asked, end, generation, by=by, at=at))
        return Control(verb, *asked, by, at, tuple(rules), tuple(ends), self.cleans)

    def encode(self) -> bytes:
        record = {"version": VERSION, **asdict(self)}
        if self.ends:  # who does not know of them would go on
            record["requires"] = ["ends"]
        else:
            del record["ends"]
        if not self.cleans:
            del record["cleans"]
        return json.dumps(record, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes, where: str) -> Control:
        """Raises LedgerError for any other record: no pause may be forgotten silently."""
        try:
            control = strict_record(Control, data, VERSION, renamed=False)
            for each in control.ends:
                if each.end is not None and each.end.kind not in (NEWEST, AT_VERSION, AT_TIME):
                    raise NewerRecordError(f"written by a newer spark_wan: it ends {each.end}")
            return control
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


def _last_of(found: Sequence[S], scope: Scope) -> S | None:
    """Return the last one that covers a stream."""
    return next((each for each in reversed(found) if each.scope.covers(scope)), None)
