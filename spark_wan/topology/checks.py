"""How the entries of a topology go together: places, streams, and that every row arrives once."""

from __future__ import annotations

from collections.abc import Mapping

from spark_wan.errors import nearest
from spark_wan.topology.entries import Entry, Problems
from spark_wan.topology.model import Sender, Site, Table, stream_name
from spark_wan.topology.values import catalog_parts, is_path


def check_sites(
    entry: Entry, table: Table, sites: Mapping[str, Site], senders: Mapping[str, Sender]
) -> None:
    """Check one table against the sites it is written at, lives at and is sent to."""
    given = entry.values.get("writers")
    if isinstance(given, list) and len(given) != 1:
        advice = (
            "several need conflict resolution, which this version does not have; " if given else ""
        )
        entry.problems.add(f"{entry.path}.writers", f"{advice}name exactly one site")
    located = entry.values.get("at")
    if not isinstance(located, Mapping):
        return
    for site in table.at:
        if site not in sites:
            entry.problems.add(
                f"{entry.path}.at.{site}", f"unknown site {site!r}; {nearest(site, sites)}"
            )
    for site in table.writers:
        if site not in located and table.source == "table":
            entry.problems.add(
                f"{entry.path}.at.{site}",
                "is missing, but the site writes the table; add its location",
            )
    for sender in table.senders:
        for site in senders[sender].remotes:
            if site not in located:
                problem = f"is missing, but sender {sender!r} serves the site; add its location or detach the sender"
                entry.problems.add(f"{entry.path}.at.{site}", problem)


def check_states(
    sites: Mapping[str, Site], senders: Mapping[str, Sender], problems: Problems
) -> None:
    """A ledger belongs to one site, and a channel is no site's state."""
    taken: dict[str, str] = {}
    for site in sites.values():
        if site.storage and "://" not in site.state.removeprefix("file://"):
            problem = (
                f"is for object stores, but the state is the directory {site.state!r}; take it out"
            )
            problems.add(f"sites.{site.name}.storage", problem)
    for site in filter(lambda site: site.state, sites.values()):
        other = taken.setdefault(_bare(site.state), site.name)
        if other != site.name:
            problem = f"{site.state!r} is the state of site {other!r} already; give each site a directory of its own"
            problems.add(f"sites.{site.name}.state", problem)
    for sender in senders.values():
        owner = taken.get(_bare(sender.channel))
        if owner is not None:
            problem = f"{sender.channel!r} is the state of site {owner!r}; give the channel a place of its own"
            problems.add(f"senders.{sender.name}.channel", problem)


def _bare(place: str) -> str:
    """What two spellings of one place have in common."""
    for scheme, same in (("file://", ""), ("s3a://", "s3://"), ("abfss://", "abfs://")):
        if place.startswith(scheme):
            place = same + place.removeprefix(scheme)
    return place.rstrip("/")


def _table_place(location: str) -> str | tuple[str, ...]:
    """What two spellings of one table's place have in common. Spark's own catalog is the one that a name without a catalog means, unless
    the session chose another."""
    if is_path(location):
        return _bare(location)
    parts = tuple(part.lower() for part in catalog_parts(location))
    return parts[1:] if len(parts) == 3 and parts[0] == "spark_catalog" else parts


def check_places(tables: Mapping[str, Table], problems: Problems) -> None:
    """Two tables at one place of a site would overwrite each other."""
    taken: dict[tuple[str, str | tuple[str, ...]], str] = {}
    for table in tables.values():
        for site, location in table.at.items():
            other = taken.setdefault((site, _table_place(location)), table.name)
            if other != table.name:
                problem = f"table {other!r} is at {location!r} already; give each table a place of its own"
                problems.add(f"tables.{table.name}.at.{site}", problem)


def check_streams(
    tables: Mapping[str, Table], senders: Mapping[str, Sender], problems: Problems
) -> None:
    """Names may contain dots, stream names are joined by them: ``b.c`` + ``d`` must not meet ``b`` + ``c.d``."""
    taken: dict[str, tuple[str, str]] = {}
    for table in tables.values():
        for sender in table.senders:
            stream = stream_name(senders[sender].site, sender, table.name)
            other = taken.setdefault(stream, (sender, table.name))
            if other != (sender, table.name):
                problem = f"its stream would be {stream!r}, as for sender {other[0]!r} and table {other[1]!r}; rename one"
                problems.add(f"tables.{table.name}.senders", problem)


def check_delivery(table: Table, senders: Mapping[str, Sender], problems: Problems) -> None:
    """Send one event from the writer along the attached senders: each other site must get it exactly once."""
    paths: dict[str, list[str]] = {site: [] for site in table.at if site not in table.writers}
    for name in table.senders:
        for remote in senders[name].remotes:
            paths[remote].append(f"{senders[name].site} -> {name} -> {remote}")
    for site, ways in paths.items():
        if not ways:
            problem = f"site {site!r} would never get the table; attach a sender that serves it, or take it out of `at`"
            problems.add(f"tables.{table.name}.at.{site}", problem)
        if len(ways) > 1:
            problem = f"site {site!r} would get every event {len(ways)} times ({', '.join(ways)}); detach a sender"
            problems.add(f"tables.{table.name}.senders", problem)
