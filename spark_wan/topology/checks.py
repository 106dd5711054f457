"""Checks across the entries of a topology: places, streams, and one delivery of every row."""

from __future__ import annotations

from collections.abc import Mapping

from spark_wan.errors import nearest
from spark_wan.topology.entries import Entry, Problems
from spark_wan.topology.model import Sender, Site, Stream, Table, Topology
from spark_wan.topology.values import catalog_parts, is_path


def check_sites(
    entry: Entry, table: Table, sites: Mapping[str, Site], senders: Mapping[str, Sender]
) -> None:
    """Check one table against the sites that write it, hold it and receive it."""
    writers = entry.values.get("writers")
    if isinstance(writers, list) and len(writers) != 1:
        advice = "several need conflict resolution, which this version does not have; "
        entry.add_problem("writers", f"{advice if writers else ''}name exactly one site")
    located = entry.values.get("at")
    if not isinstance(located, Mapping):
        return
    for site in table.at:
        if site not in sites:
            entry.add_problem(f"at.{site}", f"unknown site {site!r}; {nearest(site, sites)}")
    for site in table.writers:
        if site not in located and table.source == "table":
            entry.add_problem(
                f"at.{site}", "is missing, but the site writes the table; add its location"
            )
    for sender in table.senders:
        for site in senders[sender].remotes:
            if site not in located:
                entry.add_problem(
                    f"at.{site}",
                    f"is missing, but sender {sender!r} serves the site; "
                    "add its location or detach the sender",
                )


def check_topology(topology: Topology, problems: Problems) -> None:
    """Check that sites, channels, tables and streams do not share places or names."""
    _check_states(topology, problems)
    _check_tables(topology, problems)
    _check_streams(topology, problems)


def _check_states(topology: Topology, problems: Problems) -> None:
    """A ledger belongs to one site, and a channel is not a site's state."""
    owners: dict[str, str] = {}
    for site in topology.sites.values():
        if site.storage and "://" not in site.state.removeprefix("file://"):
            problems.add(
                f"sites.{site.name}.storage",
                f"is for object stores, but the state is the directory {site.state!r}; take it out",
            )
        if site.state and (owner := owners.setdefault(_bare(site.state), site.name)) != site.name:
            problems.add(
                f"sites.{site.name}.state",
                f"{site.state!r} is the state of site {owner!r} already; "
                "give each site a directory of its own",
            )
    for sender in topology.senders.values():
        if _bare(sender.channel) in owners:
            problems.add(
                f"senders.{sender.name}.channel",
                f"{sender.channel!r} is the state of site {owners[_bare(sender.channel)]!r}; "
                "give the channel a place of its own",
            )


def _check_tables(topology: Topology, problems: Problems) -> None:
    """Two tables at one place of a site would overwrite each other."""
    owners: dict[tuple[str, str | tuple[str, ...]], str] = {}
    for table in topology.tables.values():
        for site, location in table.at.items():
            owner = owners.setdefault((site, _table_place(location)), table.name)
            if owner != table.name:
                problems.add(
                    f"tables.{table.name}.at.{site}",
                    f"table {owner!r} is at {location!r} already; "
                    "give each table a place of its own",
                )


def _check_streams(topology: Topology, problems: Problems) -> None:
    """Names may contain dots, which also join them: ``b.c`` + ``d`` and ``b`` + ``c.d`` collide."""
    owners: dict[str, Stream] = {}
    for stream in topology.streams():
        owner = owners.setdefault(stream.name, stream)
        if owner is not stream:
            problems.add(
                f"tables.{stream.table.name}.senders",
                f"its stream would be {stream.name!r}, as for sender {owner.sender.name!r} "
                f"and table {owner.table.name!r}; rename one",
            )


def check_delivery(topology: Topology, problems: Problems) -> None:
    """Follow an event of each table from its writer: each other site must get it exactly once."""
    for table in topology.tables.values():
        paths: dict[str, list[str]] = {site: [] for site in table.at if site not in table.writers}
        for sender in map(topology.sender, table.senders):
            for remote in sender.remotes:
                paths[remote].append(f"{sender.site} -> {sender.name} -> {remote}")
        for site, ways in paths.items():
            if not ways:
                problems.add(
                    f"tables.{table.name}.at.{site}",
                    f"site {site!r} would never get the table; "
                    "attach a sender that serves it, or take it out of `at`",
                )
            if len(ways) > 1:
                problems.add(
                    f"tables.{table.name}.senders",
                    f"site {site!r} would get every event {len(ways)} times ({', '.join(ways)}); "
                    "detach a sender",
                )


def _bare(place: str) -> str:
    """Return what all spellings of one place have in common."""
    for scheme, same in (("file://", ""), ("s3a://", "s3://"), ("abfss://", "abfs://")):
        if place.startswith(scheme):
            place = same + place.removeprefix(scheme)
    return place.rstrip("/")


def _table_place(location: str) -> str | tuple[str, ...]:
    """Return what all spellings of one table's place have in common.

    A name without a catalog means Spark's own catalog, unless the session chose another one.
    """
    if is_path(location):
        return _bare(location)
    parts = tuple(part.lower() for part in catalog_parts(location))
    return parts[1:] if len(parts) == 3 and parts[0] == "spark_catalog" else parts
