"""What a ledger asks of its store and of a target table, and how both are named."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from spark_wan.delta.commits import Commit
from spark_wan.ledger.event_ids import RecordedIds
from spark_wan.wire.ledger import FoldedIds, HistoryPosition, LedgerRecord, LedgerRow, Summary


def transaction_name(site: str, table: str, target_id: str) -> str:
    """Return the ``txnAppId`` under which Delta numbers a site's applies to a target.

    It holds the table's name, since the applies of a new name begin at 1 again.
    """
    return f"spark_wan/{site}/{table}/{target_id}"


@dataclass(frozen=True)
class TargetName:
    """How messages name a target table."""

    table: str
    """In the topology."""
    site: str
    sql_name: str
    """In SQL, quoted."""

    @property
    def where(self) -> str:
        return f"{self.table}: at site {self.site}"


class LedgerStore(Protocol):
    """Storage of the rows: Delta tables of the site, or a list in the simulation."""

    def load(self, table: str) -> Sequence[LedgerRecord]:
        """Return all rows of a table, in any order."""

    def append(self, table: str, rows: Sequence[LedgerRow | HistoryPosition]) -> None:
        """Add rows, durably. Duplicate rows do no harm."""

    def names(self, target_id: str) -> set[str]:
        """Return the names of the tables that have rows about a target."""

    def recorded_ids(self, table: str) -> RecordedIds:
        """Return which event IDs of the table are recorded."""

    def claim(self, table: str, claim: Summary) -> None:
        """Add a claim, durably, unless there was one with its number before."""

    def rename_ids(self, table: str, tokens: Mapping[FoldedIds, Collection[str]]) -> None:
        """Replace tokens of event IDs by that of the range, in one commit."""

    def rename_letters(self, table: str, tokens: Collection[str], token: str) -> None:
        """Replace tokens of a receiver's dead letters by ``token``, in one commit."""

    def replace(self, table: str, summary: Summary, before: int) -> None:
        """Add a summary and delete what it replaces, in one commit.

        That is: the rows of applies up to the summary's, and positions before version ``before``.
        """


class TargetHistory(Protocol):
    """The part of a target table that the ledger reads."""

    def table_id(self) -> str | None:
        """Return the table's ID, or None when there is no table."""

    def history(self, after: int) -> Sequence[Commit]:
        """Return the commits above ``after`` that the history still has, ascending."""

    def is_unchanged(self, version: int) -> bool:
        """Whether ``version``, the newest that :meth:`history` returned, is still the newest.

        A hint: a catalog may know of more commits.
        """

    def log_retention(self) -> int:
        """Return for how many milliseconds the log keeps a commit. Cheap: may be a day old."""

    def last_transaction(self, name: str) -> int | None:
        """Return the newest transaction number under ``name`` in the table's log.

        The log keeps it also for commits that log cleanup removed. None: there is none, or it
        cannot be read.
        """

    def is_empty(self) -> bool:
        """Whether the table has no row."""

    @property
    def sql_name(self) -> str:
        """The table's name in SQL."""
