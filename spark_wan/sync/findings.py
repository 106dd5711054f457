"""What a comparison of two sites has found, for people and scripts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum


class Kind(str, Enum):
    """How a row differs."""

    MISSING = "missing"
    """The origin has it, the target has not."""
    EXTRA = "extra"
    """The target has it, the origin has not."""
    DIFFERS = "differs"
    """Both have the key, with other values."""
    REPEATED = "repeated"
    """One of the two has the key more than once, and not the same rows as the other."""


@dataclass(frozen=True)
class Difference:
    """One row that differs. Of a table without keys: one content, and how often it is there."""

    kind: Kind
    row: str
    """The key as JSON; of a table without keys the whole row."""
    columns: tuple[str, ...] = ()
    """The columns that differ, of :attr:`Kind.DIFFERS`."""
    at_origin: int = 1
    """Rows with this key, or equal rows."""
    at_target: int = 1
    dead_letter: str | None = None
    """Why an event of this key could not be applied or sent; None: no dead letter names the key."""


@dataclass(frozen=True)
class Comparison:
    """A table at its writer and at one other site, at the same cut."""

    table: str
    site: str
    origin: str
    origin_version: int | None = None
    """The version of the origin's table that was compared; None: see ``problem``."""
    target_version: int | None = None
    share: float = 1.0
    """Of the key buckets that were compared; 1: all."""
    origin_rows: int = 0
    """In what was compared, as ``target_rows``."""
    target_rows: int = 0
    counts: Mapping[Kind, int] = field(default_factory=dict)
    """Rows that differ, by how they do; all of them, however many examples there are."""
    columns: Mapping[str, int] = field(default_factory=dict)
    """Column -> rows of :attr:`Kind.DIFFERS` that differ in it."""
    only_at_origin: tuple[str, ...] = ()
    """Columns and fields that the target lacks."""
    not_compared: tuple[str, ...] = ()
    """Columns whose types do not fit together, with both types."""
    examples: tuple[Difference, ...] = ()
    notes: tuple[str, ...] = ()
    """What explains differences, or limits what was compared."""
    problem: str | None = None
    """Why the site was not compared."""

    @property
    def rows_differ(self) -> bool:
        return any(self.counts.values())

    @property
    def is_equal(self) -> bool:
        """Whether all was compared that was asked for, and is equal."""
        columns = self.only_at_origin or self.not_compared
        return self.problem is None and not self.rows_differ and not columns

    @property
    def has_twins(self) -> bool:
        """Whether keys are there more than once at one of the sites."""
        return bool(self.counts.get(Kind.REPEATED))


@dataclass(frozen=True)
class Repair:
    """What is asked for so that a site becomes equal."""

    table: str
    site: str
    stream: str = ""
    """By which the copy comes."""
    difference: bool = True
    """Only rows that differ are written; else the whole table."""
    problem: str | None = None
    """Why nothing is asked for."""
    dry_run: bool = False
