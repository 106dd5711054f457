"""Checks that the ledger still has the event IDs of every apply, and their marks.

A Delta table that loses a whole commit (its newest log files deleted, or a RESTORE) reports no
error. Redelivered events behind the lost IDs would then be applied again. So each mark says how
many IDs its apply recorded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from spark_wan.errors import RESEND, LedgerError

if TYPE_CHECKING:
    from spark_wan.wire.mark import Mark


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

    def has(self, mark: Mark) -> bool:
        """Whether the IDs of an apply are recorded, or may have expired."""
        if mark.token in self.tokens:
            return True
        floor = self.floors.get(mark.origin)
        return floor is not None and mark.ids_until is not None and mark.ids_until <= floor


def lost_applies(marks: Sequence[Mark]) -> list[int]:
    """Return the numbers of applies without a mark: numbers begin with 1 and have no gap."""
    numbers = {mark.apply for mark in marks}
    return sorted(set(range(1, max(numbers, default=0) + 1)) - numbers)


def check_event_ids(table: str, site: str, marks: Sequence[Mark], recorded: RecordedIds) -> None:
    """Raise LedgerError when IDs, or marks that make them count, are lost.

    ``marks``: all of the table.
    """
    ledger = f"{table}: the ledger at site {site}"
    for mark in marks:
        if mark.new_ids and not recorded.has(mark):
            raise LedgerError(
                f"{ledger} has lost the {mark.new_ids} event IDs of apply {mark.apply}: "
                f"{_RESTORE.format('event_ids')}"
            )
    # Marks of version 0.1.0, which did not say how many.
    uncounted = [mark for mark in marks if mark.ids and mark.new_ids is None]
    if uncounted and not any(recorded.has(mark) for mark in uncounted):
        raise LedgerError(
            f"{ledger} has none of the event IDs of {len(uncounted)} applies: "
            f"{_RESTORE.format('event_ids')}"
        )
    lost = lost_applies(marks)
    users = any(mark.ids for mark in marks) or recorded.tokens - {mark.token for mark in marks}
    if lost and users:
        raise LedgerError(
            f"{ledger} has lost the marks of {len(lost)} applies, the first of them apply "
            f"{lost[0]}, and the table's history no longer has them. Event IDs that these applies "
            f"recorded do not count without them: {_RESTORE.format('applied')}"
        )
