"""Whether the rows of a table at a site are those of its origin: only then may other sites get them
from there, as a copy or a backup."""

from __future__ import annotations

from collections.abc import Iterator

from spark_wan.ledger.total import Total


def doubts(total: Total) -> Iterator[str]:
    """Yield why the rows are not, or may not be, those that the origin had at the version that the
    newest mark names; by a ledger that has caught up with the table."""
    letters = sum(total.dead_letters.values())
    if not (total.progress.vector or total.progress.logs):
        yield "the site has applied nothing of it"
    if total.progress.lost:
        yield "the ledger has lost marks"
    if letters:
        yield f"{letters:,} rows became dead letters here"
    if total.known_local is None:
        yield "an earlier spark_wan applied to it, so it is not known whether others wrote to it"
    if total.known_local:
        yield f"{total.known_local:,} commits here are not the receiver's"
    if moved := sorted(total.columns.moved):
        yield f"column {moved[0]} was renamed or dropped here"
