"""Checks that the ledger still has the event IDs of every apply, and their marks.

A Delta table that loses a whole commit (its newest log files deleted, or a RESTORE) reports no
error. Redelivered events behind the lost IDs would then be applied again. So each mark says how
many IDs its apply recorded. Where marks are folded (:mod:`spark_wan.ledger.folding`), the summary
says so of ranges of applies, and their IDs have the range as their token.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from spark_wan.errors import LEDGER, RESEND, LedgerError, SourceUnreadableError
from spark_wan.wire.ledger import FoldedIds, Summary, token_range
from spark_wan.wire.mark import AppliedStream, Mark

_RESTORE = (
    "replays of those events would not be recognised. Stop this site's receivers and restore the "
    f"ledger's table {{}} from a backup; or send {RESEND}."
)


@dataclass(frozen=True)
class RecordedIds:
    """What the ledger has of a table's event IDs."""

    tokens: frozenset[str] = frozenset()
    """Tokens of the applies with recorded IDs."""
    floors: Mapping[str, int] = field(default_factory=dict)
    """Per origin: IDs of events at or before this time (microseconds) may have expired."""
    ranges: Mapping[str, frozenset[tuple[int, int]]] = field(default_factory=dict)
    """Per origin: first and last of folded applies with recorded IDs."""

    @classmethod
    def of(cls, rows: Iterable[tuple[str, str | None, int | None]]) -> RecordedIds:
        """Return what rows (origin, token, time) say; of a floor, the token is None."""
        tokens: set[str] = set()
        floors: dict[str, int] = {}
        ranges: dict[str, set[tuple[int, int]]] = {}
        for origin, token, time in rows:
            if token is None:
                floors[origin] = max(int(time or 0), floors.get(origin, int(time or 0)))
            elif found := token_range(token):
                ranges.setdefault(origin, set()).add(found)
            else:
                tokens.add(token)
        return cls(
            frozenset(tokens), floors, {origin: frozenset(of) for origin, of in ranges.items()}
        )

    def has(self, mark: Mark, part: AppliedStream) -> bool:
        """Whether the IDs that an apply has of a stream are recorded, or may have expired."""
        return mark.token in self.tokens or self._has(
            part.origin, mark.apply, mark.apply, part.ids_until
        )

    def has_folded(self, ids: FoldedIds) -> bool:
        """Whether the IDs of folded applies are recorded, or may have expired."""
        return self._has(ids.origin, ids.first, ids.last, ids.until)

    def _has(self, origin: str, first: int, last: int, until: int | None) -> bool:
        # A range is written at once, and only of applies that all had their IDs.
        if any(of[0] <= first and last <= of[1] for of in self.ranges.get(origin, ())):
            return True
        floor = self.floors.get(origin)
        return floor is not None and until is not None and until <= floor


def counting_tokens(tokens: Iterable[str], marked: Collection[str], since: int) -> frozenset[str]:
    """Return those of ``tokens`` whose IDs count. ``marked``: the tokens of the marks from the
    apply ``since`` on, that of the newest copy. A range counts without a mark: its applies were
    folded.

    >>> sorted(counting_tokens(["marked 1-4", "marked 5-9", "ab", "cd"], {"ab"}, since=5))
    ['ab', 'marked 5-9']
    """
    counting = set()
    for token in tokens:
        folded = token_range(token)
        if token in marked if folded is None else folded[1] >= since:
            counting.add(token)
    return frozenset(counting)


def tokens_through(
    apply: int, tokens: Sequence[str], marks: Iterable[Mark], *, table: str, since: int
) -> frozenset[str]:
    """Return those of ``tokens`` whose IDs count, of the applies from ``since`` through ``apply``.
    ``marks``: of the table, read before the tokens.

    Raises SourceUnreadableError when a later apply was folded with them."""
    folded = [of for token in tokens if (of := token_range(token)) is not None]
    if any(last > apply for _, last in folded):
        raise SourceUnreadableError(
            f"{table}: no copy is served yet: the ledger was folded meanwhile. The request is "
            "tried again."
        )
    marked = {mark.token for mark in marks if since <= mark.apply <= apply}
    return counting_tokens(tokens, marked, since)


def copied_by(marks: Sequence[Mark]) -> int:
    """Return the apply of the newest copy; 0: there is none. What the applies before it recorded
    does not count: their rows are gone."""
    return max((mark.apply for mark in marks if mark.replaced is not None), default=0)


def lost_applies(marks: Sequence[Mark], folded: Summary | None = None) -> list[int]:
    """Return the numbers of applies without a mark: numbers begin with 1 and have no gap."""
    numbers = {mark.apply for mark in marks}
    through, lost = (folded.apply, folded.lost_applies) if folded is not None else (0, [])
    copied = copied_by(marks)
    if copied > through:  # nothing before the copy counts
        through, lost = copied - 1, []
    newer = range(through + 1, max(numbers, default=0) + 1)
    return sorted({*lost, *newer} - numbers)


def check_event_ids(
    table: str,
    site: str,
    marks: Sequence[Mark],
    recorded: RecordedIds,
    *,
    folded: Summary | None = None,
) -> None:
    """Raise LedgerError when IDs, or marks that make them count, are lost.

    ``marks``: all of the table, except those in the summary ``folded``.
    """
    ledger = f"{table}: the ledger at site {site}"
    copied = copied_by(marks)
    marks = [mark for mark in marks if mark.apply >= copied]
    folded_ids = [ids for ids in (folded.ids if folded is not None else ()) if ids.last >= copied]
    for ids in folded_ids:
        if ids.count and not recorded.has_folded(ids):
            raise LedgerError(
                f"{ledger} has lost the {ids.count} event IDs of applies {ids.first} to "
                f"{ids.last}: {_RESTORE.format('event_ids')} A backup of event_ids that is older "
                "than the table `applied` needs `applied` from the same backup.",
                needs=LEDGER,
            )
    parts = [(mark, part) for mark in marks for part in mark.applied]
    for mark, part in parts:
        if part.new_ids and not recorded.has(mark, part):
            raise LedgerError(
                f"{ledger} has lost the {part.new_ids} event IDs of apply {mark.apply}: "
                f"{_RESTORE.format('event_ids')}",
                needs=LEDGER,
            )
    # Marks of version 0.1.0, which did not say how many.
    uncounted = [each for each in parts if each[1].ids and each[1].new_ids is None]
    old = [ids for ids in folded_ids if ids.count is None]
    there = any(recorded.has(*each) for each in uncounted) or any(map(recorded.has_folded, old))
    if (uncounted or old) and not there:
        raise LedgerError(
            f"{ledger} has none of the event IDs of {len(uncounted) or 'all'} applies: "
            f"{_RESTORE.format('event_ids')}",
            needs=LEDGER,
        )
    lost = lost_applies(marks, folded)
    users = any(part.ids for _, part in parts) or recorded.tokens - {mark.token for mark in marks}
    if lost and (users or recorded.ranges):
        raise LedgerError(
            f"{ledger} has lost the marks of {len(lost)} applies, the first of them apply "
            f"{lost[0]}, and the table's history no longer has them. Event IDs that these applies "
            f"recorded do not count without them: {_RESTORE.format('applied')}",
            needs=LEDGER,
        )
