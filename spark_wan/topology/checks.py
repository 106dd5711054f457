"""Checks across the entries of a topology: places, streams, and one delivery of every row."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress

from spark_wan.channels.registry import check_options
from spark_wan.errors import ChannelError, nearest
from spark_wan.topology.entries import Entry, Problems
from spark_wan.topology.model import (
    MAX_DEAD_LETTERS,
    QueueLimits,
    Sender,
    Site,
    Stream,
    Table,
    Topology,
)
from spark_wan.topology.routes import all_streams, streams_of
from spark_wan.topology.values import catalog_parts, is_path

MOST_STREAMS = 1_000
"""Number of streams of a table, at most."""
_SAME_PLACE = (
    ("file://", ""),
    ("dbfs:/", "/dbfs/"),
    ("s3a://", "s3://"),
    ("abfss://", "abfs://"),
)
LONGEST_NAME = 240
"""Number of characters in the name of a stream, at most: file names have at most 255."""


def check_sites(
    entry: Entry, table: Table, sites: Mapping[str, Site], senders: Mapping[str, Sender]
) -> None:
    """Check one table against the sites that write it, hold it and receive it."""
    writers = entry.values.get("writers")
    if isinstance(writers, list) and len(writers) != 1:
        advice = "several writers need conflict resolution, which this version lacks; "
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
        forwarder = senders[sender].site
        if forwarder and forwarder not in located and forwarder not in table.writers:
            entry.add_problem(
                f"at.{forwarder}",
                f"is missing, but sender {sender!r} there forwards the table; add its location or "
                "detach the sender",
            )
        for site in senders[sender].remotes:
            if site not in located:
                entry.add_problem(
                    f"at.{site}",
                    f"is missing, but sender {sender!r} serves the site; "
                    "add its location or detach the sender",
                )


def check_topology(topology: Topology, problems: Problems) -> None:
    """Check that sites, channels and tables do not share places."""
    _check_states(topology, problems)
    _check_tables(topology, problems)
    _check_folders(topology, problems)
    _check_accepted(topology, problems)
    _check_frame_sizes(topology, problems)


def _check_states(topology: Topology, problems: Problems) -> None:
    """A ledger belongs to one site, and a channel is not a site's state."""
    owners: dict[str, str] = {}
    for site in topology.sites.values():
        if site.storage and "://" not in site.state.removeprefix("file://"):
            problems.add(
                f"sites.{site.name}.storage",
                f"is for object stores, but the state is the directory {site.state!r}; take it out",
            )
        else:
            _check_storage(f"sites.{site.name}", site.state, site.storage, problems)
        if site.state and (owner := owners.setdefault(_bare(site.state), site.name)) != site.name:
            problems.add(
                f"sites.{site.name}.state",
                f"{site.state!r} is the state of site {owner!r} already; "
                "give each site a directory of its own",
            )
    for sender in topology.senders.values():
        try:
            check_options(sender.channel, sender.storage)
        except ChannelError as error:
            problems.add(f"senders.{sender.name}.channel", str(error))
        if not sender.channel.startswith("kafka://"):
            _check_storage(f"senders.{sender.name}", sender.channel, sender.storage, problems)
        if _bare(sender.channel) in owners:
            problems.add(
                f"senders.{sender.name}.channel",
                f"{sender.channel!r} is the state of site {owners[_bare(sender.channel)]!r}; "
                "give the channel a place of its own",
            )


def _check_storage(entry: str, place: str, storage: Mapping[str, str], problems: Problems) -> None:
    if not storage:
        return
    from spark_wan.channels.object_store import check_storage  # most topologies need none of it

    try:
        check_storage(place, storage)
    except ValueError as error:
        problems.add(f"{entry}.storage", f"{error}; correct it or take it out")


def _check_accepted(topology: Topology, problems: Problems) -> None:
    for site in topology.sites.values():
        for index, name in enumerate(site.accept_from or ()):
            if name not in topology.sites:
                problems.add(
                    f"sites.{site.name}.accept_from[{index}]",
                    f"unknown site {name!r}; {nearest(name, topology.sites)}",
                )


def _check_frame_sizes(topology: Topology, problems: Problems) -> None:
    """What a sender sends in the ordinary way must not be too large for its remotes."""
    for sender in topology.senders.values():
        if sender.batch_bytes > sender.max_frame_bytes:
            problems.add(
                f"senders.{sender.name}.batch_bytes",
                f"{sender.batch_bytes} is more than its max_frame_bytes, {sender.max_frame_bytes}; "
                "lower it, or raise max_frame_bytes",
            )
        for name in sender.remotes:
            _check_received(topology, sender, name=name, problems=problems)


def _check_tables(topology: Topology, problems: Problems) -> None:
    """Two tables at one place would overwrite each other, also at two sites. Names of a catalog
    are those of each site."""
    owners: dict[tuple[str, str | tuple[str, ...]], tuple[str, str]] = {}
    for table in topology.tables.values():
        for site, location in table.at.items():
            place = _table_place(location)
            at = site if isinstance(place, tuple) else ""
            owner, owning = owners.setdefault((at, place), (table.name, site))
            if (owner, owning) == (table.name, site):
                continue
            where = f"tables.{table.name}.at.{site}"
            if owning == site:
                problems.add(
                    where,
                    f"table {owner!r} is at {location!r} already; "
                    "give each table a place of its own",
                )
            else:
                problems.add(
                    where,
                    f"site {owning!r} has table {owner!r} at {location!r} already; "
                    "give the table a place of its own at each site",
                )


def _check_folders(topology: Topology, problems: Problems) -> None:
    """What is in the folder of a table is deleted by a VACUUM of the table, or with it."""
    tables: dict[str, str] = {}
    places: list[tuple[str, str, str]] = []
    for table in topology.tables.values():
        for site, location in table.at.items():
            if is_path(location):
                tables.setdefault(_bare(location), f"table {table.name!r} at site {site!r}")
                places.append((f"tables.{table.name}.at.{site}", "the table", location))
    places += [(f"sites.{s.name}.state", "the state", s.state) for s in topology.sites.values()]
    places += [
        (f"senders.{s.name}.channel", "the channel", s.channel) for s in topology.senders.values()
    ]
    for where, what, place in places:
        bare = _bare(place)
        if what != "the table" and bare in tables:
            problems.add(
                where, f"{place!r} is the folder of {tables[bare]}; give {what} another place"
            )
        while "/" in bare.rstrip("/"):
            bare = bare.rpartition("/")[0]
            if bare in tables:
                problems.add(
                    where,
                    f"{place!r} is in the folder of {tables[bare]}, whose VACUUM deletes what is "
                    f"not the table's; give {what} a place outside of it",
                )
                break


def check_ack_policies(topology: Topology, problems: Problems) -> None:
    """Refuse an ack policy that a sender's remotes can never meet, or that promises nothing. Of a
    sender that only forwards no policy is asked: no writer waits for it."""
    for sender in topology.senders.values():
        if not any(sender.site in table.writers for table in topology.tables_of(sender.name)):
            continue
        problem = sender.ack_policy.problem(sender.remotes, sender.site, topology.never_primary)
        if problem is not None:
            problems.add(f"senders.{sender.name}.ack_policy", problem)


def check_queue_limits(topology: Topology, problems: Problems) -> None:
    """Refuse a policy for full queues that has no limit, and one that would drop a site from a user
    stream: no table has its events from which the site could get all that it lacks."""
    for sender in topology.senders.values():
        tables = topology.tables_of(sender.name)
        limits = {table.name: QueueLimits.of(sender, table) for table in tables}
        if sender.on_queue_limit != "block" and not any(each.exist for each in limits.values()):
            problems.add(
                f"senders.{sender.name}.on_queue_limit",
                f"is {sender.on_queue_limit}, but nothing limits its queues; set max_queue_bytes "
                "or max_queue_age, or take it out",
            )
        for table in tables:
            policy = limits[table.name].policy
            if table.on_queue_limit not in (None, "block") and not limits[table.name].exist:
                problems.add(
                    f"tables.{table.name}.on_queue_limit",
                    f"is {policy}, but nothing limits the queue in sender {sender.name!r}; set "
                    "max_queue_bytes or max_queue_age, or take it out",
                )
            if table.source == "sink" and policy == "drop_reader":
                problems.add(
                    f"tables.{table.name}.on_queue_limit",
                    f"would be drop_reader in sender {sender.name!r}, but a query writes the "
                    "table's events: a site that is dropped would have no source table to copy "
                    "them from; set it to block or hold for the table",
                )


def check_failures(topology: Topology, problems: Problems) -> None:
    """Refuse a maximum of dead letters for a table that has none."""
    for table in topology.tables.values():
        if table.on_failure == "retry" and table.max_dead_letters != MAX_DEAD_LETTERS:
            problems.add(
                f"tables.{table.name}.max_dead_letters",
                "has no effect, since on_failure is retry; take one of them out",
            )


def check_delays(topology: Topology, problems: Problems) -> None:
    """Refuse a delay where nothing is captured: it would not delay anything."""
    for table in topology.tables.values():
        if table.delay and table.source == "sink":
            problems.add(
                f"tables.{table.name}.delay",
                "is for captured tables, and a sink sends these rows when a query writes them; "
                "take it out",
            )
    for sender in topology.senders.values():
        written = [
            table for table in topology.tables_of(sender.name) if sender.site in table.writers
        ]
        if not sender.delay:
            continue
        if not written:
            problems.add(
                f"senders.{sender.name}.delay",
                f"no table that site {sender.site!r} writes is attached to it; give the delay to "
                "the sender of the site that writes the table",
            )
        for table in written:
            if table.source == "sink" and table.delay is None:
                problems.add(
                    f"senders.{sender.name}.delay",
                    f"does not delay table {table.name!r}, which a sink sends; give that table "
                    "`delay: 0`, or give the delay to other tables alone",
                )


def check_delivery(topology: Topology, problems: Problems) -> None:
    """Send an event of each table through the topology: each other site must get it exactly once,
    or at least once if the table allows duplicates."""
    for table in topology.tables.values():
        _check_ways(topology, table, problems)


def check_streams(topology: Topology, problems: Problems) -> None:
    """Check the names of streams, which are those of folders and files. Names may contain dots,
    which also join them: ``b.c`` + ``d`` and ``b`` + ``c.d`` collide."""
    owners: dict[str, Stream] = {}
    for stream in all_streams(topology):
        where = f"tables.{stream.table.name}.senders"
        owner = owners.setdefault(stream.name, stream)
        if owner is not stream:
            problems.add(
                where,
                f"its stream would be {stream.name!r}, as for sender {owner.sender.name!r} "
                f"and table {owner.table.name!r}; rename one",
            )
        if len(stream.name) > LONGEST_NAME:
            problems.add(
                where,
                f"the stream {stream.way(stream.addressees[0])} would have a name of "
                f"{len(stream.name)} characters, more than {LONGEST_NAME}; give sites and senders "
                "shorter names",
            )


def _check_ways(topology: Topology, table: Table, problems: Problems) -> None:
    senders = f"tables.{table.name}.senders"
    ways: dict[str, list[str]] = {site: [] for site in table.at if site not in table.writers}
    for number, stream in enumerate(streams_of(topology, table), 1):
        if number > MOST_STREAMS:
            problems.add(
                senders,
                f"it would have more than {MOST_STREAMS} streams, one for each way of an event; "
                "detach senders",
            )
            return
        _check_forwarded_size(topology, stream, problems)
        for site in stream.addressees:
            found = ways.setdefault(site, [])
            found.append(stream.way(site))
            if len(found) > 1 and not table.allow_duplicates:
                problems.add(
                    senders,
                    f"site {site!r} would get every event twice "
                    f"({'; '.join(found)}): detach a sender; or set `allow_duplicates: true` for "
                    "the table, and the site applies each event once",
                )
                return
    for site, found in ways.items():
        if not found:
            problems.add(
                f"tables.{table.name}.at.{site}",
                f"site {site!r} would never get the table; "
                f"{_missing_sender(topology, table, site, ways)}, or take the site out of `at`",
            )


def _check_forwarded_size(topology: Topology, stream: Stream, problems: Problems) -> None:
    """What the first sender sends must not be too large for the sites behind others either: a
    frame is forwarded as it is."""
    for name in stream.addressees if stream.inbound is not None else ():
        _check_received(
            topology, stream.senders[0], name=name, problems=problems, way=f" ({stream.way(name)})"
        )


def _check_received(
    topology: Topology, sender: Sender, *, name: str, problems: Problems, way: str = ""
) -> None:
    """What a sender may send must not be more than a site takes that it reaches."""
    site = topology.sites.get(name)
    if site is not None and sender.max_frame_bytes > site.max_frame_bytes:
        problems.add(
            f"senders.{sender.name}.max_frame_bytes",
            f"{sender.max_frame_bytes} is more than site {name!r} receives{way}; set it to "
            f"{site.max_frame_bytes}, or raise sites.{name}.max_frame_bytes",
        )


def _missing_sender(
    topology: Topology, table: Table, site: str, ways: Mapping[str, list[str]]
) -> str:
    """Return which sender would bring a table to a site that does not get it."""
    having = [*table.writers, *(each for each, found in ways.items() if found)]
    serving = topology.senders_to(site)
    for sender in serving:
        if sender.site in having and sender.name not in table.senders:
            return f"attach sender {sender.name!r} ({sender.site} -> {site})"
    lost = sorted({sender.site for sender in serving if sender.name in table.senders})
    if lost:
        return (
            f"its senders are at {' and '.join(lost)}, where the table never arrives: attach a "
            f"sender that serves {' or '.join(lost)}"
        )
    return f"attach a sender that serves it, at a site that has it ({', '.join(having)})"


def _bare(place: str) -> str:
    """Return what all spellings of one place have in common. Links are followed, as far as they are
    on this machine."""
    for scheme, same in _SAME_PLACE:
        if place.startswith(scheme):
            place = same + place.removeprefix(scheme)
    if place.startswith("/"):
        with suppress(ValueError):  # no name of a file
            place = os.path.realpath(place)
    return place.rstrip("/")


def _table_place(location: str) -> str | tuple[str, ...]:
    """Return what all spellings of one table's place have in common.

    A name without a catalog means Spark's own catalog, unless the session chose another one.
    """
    if is_path(location):
        return _bare(location)
    parts = tuple(part.lower() for part in catalog_parts(location))
    return parts[1:] if len(parts) == 3 and parts[0] == "spark_catalog" else parts
