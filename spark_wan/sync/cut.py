"""The same cut at two sites: which versions of a table have to be equal.

The newest mark of a target names the version of the origin through which everything is applied.
What came to the target after that mark was committed by others, and changes nothing of this: so the
target's newest version is compared, and a commit of a user at the target is found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spark_wan.delta.commits import Commit
from spark_wan.errors import SYNC, CompareError, TopologyError
from spark_wan.topology.model import Table, Topology
from spark_wan.wire.mark import Mark


@dataclass(frozen=True)
class Cut:
    """Versions of a table at two sites that have to be equal."""

    origin_version: int
    target_version: int
    local: int
    """Commits to the target since its newest mark that change rows and are no receiver's."""


def compared_table(topology: Topology, name: str) -> Table:
    """Return a table whose copies can be compared. Raises TopologyError, CompareError."""
    table = topology.table(name)
    if table.source != "table":
        raise CompareError(
            f"{topology.file}: table {table.name} is written by a sink: no site has the table that "
            "its copies could be compared with. It cannot be verified yet."
        )
    return table


def compared_sites(
    topology: Topology, table: Table, sites: Sequence[str] | None
) -> tuple[str, ...]:
    """Return the sites whose copies of a table are compared; None: all. Raises TopologyError."""
    others = tuple(site for site in table.at if site not in table.writers)
    if sites is None:
        if not others:
            raise TopologyError(
                f"{topology.file}: table {table.name} is at no other site than {table.writers[0]}, "
                "which writes it: there is nothing to compare."
            )
        return others
    for site in sites:
        name = topology.site(site).name
        if name in table.writers:
            raise TopologyError(
                f"{topology.file}: site {name} writes table {table.name}: its rows are what the "
                f"others are compared with. Name other sites: {', '.join(others) or 'none'}."
            )
        if name not in table.at:
            raise TopologyError(
                f"{topology.file}: table {table.name} is not at site {name}. It is at: "
                f"{', '.join(others) or 'no other site'}."
            )
    return tuple(dict.fromkeys(sites))


def newest_mark(commits: Sequence[Commit], site: str, table: str) -> tuple[int, Mark] | None:
    """Return the newest mark of ``commits``, which ascend, and the version that has it."""
    for commit in reversed(commits):
        mark = Mark.read(commit.metadata, site, table)
        if mark is not None:
            return commit.version, mark
    return None


def cut_of(commits: Sequence[Commit], site: str, table: Table, table_id: str) -> Cut:
    """Return the cut that a target's newest commits tell. Raises CompareError.

    Args:
        commits: Of the target, ascending to its newest one.
        table_id: Of the origin's table, as it is now.
    """
    origin, found = table.writers[0], newest_mark(commits, site, table.name)
    if found is None:
        raise CompareError(
            f"{table.name}: no commit at site {site} says what is applied there. Either nothing is "
            "yet: wait until its receiver has applied something (`spark-wan status`). Or log "
            "cleanup has deleted that commit: verify again after the next apply."
        )
    marked, mark = found
    through = _through(mark, origin)
    if not through:
        raise CompareError(
            f"{table.name}: the newest mark at site {site} (version {marked}) names nothing that "
            f"comes from {origin}. If the topology has another writer now, for a copy run {SYNC}."
        )
    if table_id not in through:
        raise CompareError(
            f"{table.name}: site {site} has the rows of another table at {origin}: that was "
            f"replaced since (its ID is {table_id}, and version {marked} at {site} names "
            f"{', '.join(sorted(through))}). Nothing can be compared. Once the sender sends the "
            f"new table, for a copy run {SYNC}."
        )
    local = sum(each.changes_rows_here for each in commits if each.version > marked)
    return Cut(through[table_id], commits[-1].version, local)


def _through(mark: Mark, origin: str) -> dict[str, int]:
    """Return the versions of the origin through which a mark has everything, by table ID."""
    if mark.vector is not None:
        return {table: version for site, table, _, version in mark.vector if site == origin}
    # Earlier versions wrote no vector: what an apply applied is the newest there is.
    return {part.table_id: part.through for part in mark.applied if part.origin == origin}
