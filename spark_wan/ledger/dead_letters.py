"""The dead letters of a site, read with ``deltalake``: without Spark, and without a running job.

>>> for letter in dead_letters(load_topology("wan.yaml"), "seattle"):
...     print(letter.table, letter.operation, letter.cause, letter.values)
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import fields
from typing import Any

import pyarrow as pa

from spark_wan.errors import LedgerError, WanError
from spark_wan.topology.model import Site, Topology
from spark_wan.wire.ledger import LEDGER_VERSION, DeadLetter, ledger_location, token_range


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
    place = topology.site(site)
    name = None if table is None else topology.table(table).name
    # The tokens first: a fold that ends meanwhile has given the letters one that always counts.
    tokens = {row["token"] for row in _rows(place, "applied", ["token"], name)}
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
        if counts(letter, tokens):
            found.append(letter)
    return sorted(found, key=lambda each: (each.table, each.stream, each.origin_version))


def counts(letter: DeadLetter, tokens: Collection[str]) -> bool:
    """Whether a letter is a sender's, or of an apply that is in the target."""
    token = letter.token
    return token is None or token in tokens or token_range(token) is not None


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
