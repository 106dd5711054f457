"""The dead letters of a site, read with ``deltalake``: without Spark, and without a running job.

>>> for letter in dead_letters(load_topology("wan.yaml"), "seattle"):
...     print(letter.table, letter.operation, letter.cause, letter.values)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from typing import Any

import pyarrow as pa

from spark_wan.errors import LedgerError, WanError
from spark_wan.topology.model import Site, Topology
from spark_wan.wire.ledger import (
    LEDGER_VERSION,
    DeadLetter,
    copied_in,
    ledger_location,
    token_range,
)
from spark_wan.wire.records import UNREADABLE


def dead_letters(topology: Topology, site: str, table: str | None = None) -> list[DeadLetter]:
    """Return the events that a site could not apply or send, in the order of table, stream and
    version. Both ends record an event with the same ID and payload.

    Those of an apply that was not finished are left out: it is repeated, and records them again.

    Args:
        topology: Says where the site's state is.
        site: The site that has the letters: a sender's are at its own site.
        table: Only those of this table of the topology.

    Raises:
        TopologyError: the topology has no such site or table.
        LedgerError: the ledger cannot be read, or a newer spark_wan has written it.
        WanError: ``deltalake`` is not installed.
    """
    return [letter for letter, _ in letters_and_copies(topology, site, table)]


@dataclass
class Applies:
    """The applies of a table, as far as its dead letters need them."""

    tokens: dict[str, int] = field(default_factory=dict)
    """Token -> apply, of those that are not folded."""
    copied: int = 0
    """The newest of the applies that took a copy; 0: none."""

    def counts(self, letter: DeadLetter) -> bool:
        """Whether a letter is a sender's, or of an apply that is in the target."""
        return letter.token is None or self._apply(letter.token) is not None

    def is_before_copy(self, letter: DeadLetter) -> bool:
        """Whether a copy has come since, which has the rows as they should be."""
        apply = None if letter.token is None else self._apply(letter.token)
        return apply is not None and apply < self.copied

    def _apply(self, token: str) -> int | None:
        """Return the apply with a token, of folded ones the last; None: it is not in the target."""
        folded = token_range(token)
        return self.tokens.get(token) if folded is None else folded[1]


def letters_and_copies(
    topology: Topology, site: str, table: str | None = None
) -> list[tuple[DeadLetter, bool]]:
    """Return what :func:`dead_letters` does, each with whether a copy of its table has come
    since."""
    place = topology.site(site)
    name = None if table is None else topology.table(table).name
    # The tokens first: a fold that ends meanwhile has given the letters one that always counts.
    applies = _applies(place, name)
    columns = ["version", *(each.name for each in fields(DeadLetter))]
    found = []
    for row in _rows(place, "dead_letters", columns, name):
        if row["version"] > LEDGER_VERSION:
            raise LedgerError(
                f"{ledger_location(place.state, 'dead_letters')} has rows of version "
                f"{row['version']}; this spark_wan reads version {LEDGER_VERSION}. Update "
                "spark_wan here."
            )
        letter = DeadLetter(**{column: row[column] for column in columns[1:]})
        of_table = applies[letter.table]
        if of_table.counts(letter):
            found.append((letter, of_table.is_before_copy(letter)))
    return sorted(found, key=lambda each: (each[0].table, each[0].stream, each[0].origin_version))


def _applies(place: Site, table: str | None) -> Mapping[str, Applies]:
    """Return the applies of each table."""
    found: defaultdict[str, Applies] = defaultdict(Applies)
    for row in _rows(place, "applied", ["table", "token", "apply", "mark"], table):
        of_table, apply = found[row["table"]], row["apply"] or 0
        if row["token"] is not None:
            of_table.tokens[row["token"]] = apply
        # What cannot be read tells of no copy: then letters are listed that need nothing.
        with suppress(WanError, *UNREADABLE):
            of_table.copied = max(of_table.copied, copied_in(apply, row["mark"]))
    return found


def _rows(site: Site, name: str, columns: list[str], table: str | None) -> list[dict[str, Any]]:
    """Return the rows about a table (None: all) of the ledger's table ``name``; none while there is
    no such table."""
    try:
        from deltalake import DeltaTable, QueryBuilder
        from deltalake.exceptions import TableNotFoundError
    except ModuleNotFoundError as error:
        raise WanError("dead letters are read with deltalake: pip install deltalake") from error
    location = ledger_location(site.state, name)
    try:
        found = DeltaTable(location, storage_options=dict(site.storage))
        # By its engine, which knows deletion vectors.
        # A ledger of an earlier version has fewer columns, until a job adds them.
        there = {field.name for field in found.schema().fields}
        named = [f'"{each}"' if each in there else f'NULL AS "{each}"' for each in columns]
        query = "SELECT " + ", ".join(named) + " FROM ledger"
        if table is not None:
            query += f""" WHERE "table" = '{table.replace("'", "''")}'"""
        result = QueryBuilder().register("ledger", found).execute(query).read_all()
        rows: list[dict[str, Any]] = pa.table(result).to_pylist()
    except TableNotFoundError:
        return []
    except Exception as error:
        raise LedgerError(
            f"the ledger at {location} cannot be read ({error}). Check that the site's `state` can "
            "be read from here, and its storage options."
        ) from error
    return rows
