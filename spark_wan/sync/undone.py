"""What may be undone, and what undoing has done. Imports no Spark."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from spark_wan.delta.commits import Commit
from spark_wan.errors import OptionError, UndoError
from spark_wan.topology.model import Table, Topology

_RANGE = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")


class Action(str, Enum):
    """What undoing does with a row."""

    SET_BACK = "set back"
    """The row has the values again that it had before."""
    DELETE = "delete"
    """It was inserted since."""
    INSERT = "insert"
    """It was deleted since."""


@dataclass(frozen=True)
class UndoneRow:
    """One row that undoing concerns."""

    key: str
    """As JSON."""
    action: Action
    changed_since: bool
    """A commit after the undone versions has changed the key again."""


@dataclass(frozen=True)
class Undone:
    """What undoing versions of a table has done, or would do."""

    table: str
    site: str
    first: int
    last: int
    version: int | None = None
    """The commit that undoes them; None: none was made."""
    counts: Mapping[Action, int] = field(default_factory=dict)
    """Rows by what is done with them."""
    changed_since: int = 0
    """How many of these were changed again by a commit after ``last``."""
    examples: tuple[UndoneRow, ...] = ()

    @property
    def versions(self) -> str:
        """The undone versions, for people."""
        return versions_text(self.first, self.last)

    @property
    def rows(self) -> int:
        return sum(self.counts.values())


def versions_text(first: int, last: int) -> str:
    """Return a range of versions for people.

    >>> versions_text(3, 3), versions_text(3, 5)
    ('version 3', 'versions 3 to 5')
    """
    return f"version {first}" if first == last else f"versions {first} to {last}"


def parse_versions(text: str) -> tuple[int, int]:
    """Return the first and the last of the versions in ``A-B`` or ``A``. Raises OptionError.

    >>> parse_versions("3-5"), parse_versions("7")
    ((3, 5), (7, 7))
    """
    parts = _RANGE.fullmatch(text.strip())
    if parts is None:
        raise OptionError(f"--versions {text!r} is not understood; write A-B, or A for one version")
    first = int(parts[1])
    return first, int(parts[2]) if parts[2] else first


def undoable_table(topology: Topology, name: str) -> Table:
    """Return a table of which versions can be undone. Raises TopologyError, UndoError."""
    table = topology.table(name)
    if table.source != "table":
        raise UndoError(
            f"{topology.file}: table {table.name} is written by a sink: its writer has no table "
            "whose versions could be undone. Write events that take back what the others did."
        )
    if not table.keys:
        raise UndoError(
            f"{topology.file}: table {table.name} has no keys: without keys only inserts are "
            "replicated, and an undo has to delete. Give the table `keys:`, or correct the rows at "
            "each site."
        )
    return table


def check_versions(table: str, first: int, last: int, commits: Sequence[Commit]) -> None:
    """Check that the versions are there and may be undone. Raises UndoError.

    ``commits``: those from ``first`` on that the history has, ascending."""
    if first > last or first < 1:
        raise UndoError(
            f"{table}: {versions_text(first, last)} cannot be undone: the first must be 1 or more "
            "(there is no table before version 0), and not above the last."
        )
    newest = commits[-1].version if commits else None
    if newest is None or newest < last:
        there = "" if newest is None else f", and the newest is {newest}"
        raise UndoError(
            f"{table}: version {last} is not there{there}. DESCRIBE HISTORY lists them."
        )
    if commits[0].version > first:
        raise UndoError(
            f"{table}: version {first} is not in the history any more: log cleanup has deleted it. "
            f"The oldest that is left is {commits[0].version}."
        )
    for commit in commits:
        if commit.version <= last and commit.received_from is not None:
            raise UndoError(
                f"{table}: version {commit.version} was written by a receiver: it applied events "
                "of another site. Undo them where they were committed."
            )


def changes_rows(first: int, last: int, commits: Sequence[Commit]) -> bool:
    """Whether one of the versions may have changed a row."""
    return any(first <= each.version <= last and each.changes_rows for each in commits)
