"""The topology: which sites there are, what their senders carry, and where each table lives.

The file is read with YAML's safe loader into frozen dataclasses. Nothing is guessed: every problem becomes a line of
one TopologyError that names the file, the key path and the fix. ``conf/two_sites.yaml`` is a commented example.

>>> topology = load_topology("conf/two_sites.yaml")
>>> topology.sent_to("flights", origin="newark")
('seattle',)
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TextIO

import yaml

from spark_wan.errors import TopologyError
from spark_wan.topology.checks import (
    check_delivery,
    check_places,
    check_sites,
    check_states,
    check_streams,
)
from spark_wan.topology.entries import Entry, Problems, join_path
from spark_wan.topology.model import Sender, Site, Start, Table, Topology
from spark_wan.topology.values import (
    known_name,
    parse_channel,
    parse_location,
    parse_state,
    parse_text,
)
from spark_wan.units import parse_count

VERSION = 1


def load_topology(path: str | os.PathLike[str]) -> Topology:
    """Read the topology file at ``path`` (``~`` is expanded).

    Raises TopologyError when it cannot be read, is not YAML, gives a key twice, or for what `parse_topology` refuses.
    """
    file = os.path.expanduser(path)
    try:
        with open(file, encoding="utf-8") as text:
            loader = _TopologyLoader(text)
            data = loader.get_single_data()
    except OSError as error:
        raise TopologyError(
            f"{file}: cannot be read ({error.strerror}); give the path of a topology file"
        ) from error
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, RecursionError) as error:
        # All but the first two: what PyYAML raises for tagged values such as `!!int ""`, and for thousands of nested brackets.
        raise TopologyError(f"{file}: is not valid YAML; correct it: {error}") from error
    if loader.repeated:
        raise TopologyError(
            "\n".join(f"{file}: {path}: is given twice; keep one" for path in loader.repeated)
        )
    return parse_topology(data, file)


def parse_topology(data: object, file: str) -> Topology:
    """Make a Topology of the mapping ``data`` that was read from ``file``, whose directory relative paths start from.

    Raises TopologyError with all problems found, one a line. How events would travel is looked at only when
    everything else is right.
    """
    problems = Problems(file)
    base = os.path.dirname(os.path.abspath(file))
    root = Entry(data, "", ("version", "sites", "senders", "tables"), problems)
    root.read("version", _version, default=VERSION, required=f"version: {VERSION}")
    problems.raise_any()
    sites = {entry.name: _site(entry, base) for entry in root.entries("sites", Site)}
    senders = {entry.name: _sender(entry, base, sites) for entry in root.entries("senders", Sender)}
    tables = {
        entry.name: _table(entry, base, sites, senders) for entry in root.entries("tables", Table)
    }
    check_states(sites, senders, problems)
    check_places(tables, problems)
    check_streams(tables, senders, problems)
    problems.raise_any()
    for table in tables.values():
        check_delivery(table, senders, problems)
    problems.raise_any()
    return Topology(file, sites, senders, tables)


def _version(value: object) -> int:
    if parse_count(value) != VERSION:
        raise ValueError(f"{value} is not known here; this spark_wan reads version {VERSION}")
    return VERSION


class _TopologyLoader(yaml.SafeLoader):
    """The safe loader, which also notes the key paths that are given twice (YAML keeps the last and says nothing)."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self.repeated: list[str] = []

    def construct_document(self, node: yaml.Node) -> object:
        self._note_repeated(node, "", set())
        return super().construct_document(node)

    def _note_repeated(self, node: yaml.Node, path: str, seen: set[int]) -> None:
        if id(node) in seen:  # an alias
            return
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            for index, item in enumerate(node.value):
                self._note_repeated(item, f"{path}[{index}]", seen)
        elif isinstance(node, yaml.MappingNode):
            keys: set[str] = set()
            for key, value in node.value:
                here = join_path(path, key.value)
                if isinstance(key, yaml.ScalarNode) and key.value in keys:
                    self.repeated.append(here)
                elif isinstance(key, yaml.ScalarNode):
                    keys.add(key.value)
                self._note_repeated(value, here, seen)


def _site(entry: Entry, base: str) -> Site:
    return Site(
        name=entry.name,
        state=entry.read(
            "state",
            lambda value: parse_state(value, base),
            default="",
            required="the site's state directory",
        ),
        storage=entry.mapping("storage", parse_text),
        **entry.settings(Site),
    )


def _sender(entry: Entry, base: str, sites: Mapping[str, Site]) -> Sender:
    site = entry.read(
        "site",
        lambda value: known_name(value, "site", sites),
        default="",
        required="the site it sends from",
    )

    def remote(value: object) -> str:
        if value == site:
            raise ValueError(f"{site!r} is the sender's own site; take it out")
        return known_name(value, "site", sites)

    remotes = entry.each("remotes", remote, required="the sites it sends to")
    if entry.values.get("remotes") == []:
        entry.problems.add(f"{entry.path}.remotes", "is empty; name at least one site")
    return Sender(
        name=entry.name,
        site=site,
        remotes=remotes,
        channel=entry.read(
            "channel",
            lambda value: parse_channel(value, base),
            default="",
            required="a directory or URL",
        ),
        storage=entry.mapping("storage", parse_text),
        **entry.settings(Sender),
    )


def _table(
    entry: Entry, base: str, sites: Mapping[str, Site], senders: Mapping[str, Sender]
) -> Table:
    keys = entry.each("keys", parse_text, same=str.lower)
    keyless = entry.values.get("keys", []) == []
    writers = entry.each(
        "writers",
        lambda value: known_name(value, "site", sites),
        required="the site that writes it",
    )
    at = entry.mapping(
        "at", lambda value: parse_location(value, base), required="where it lives, {site: location}"
    )

    def attached(value: object) -> str:
        sender = senders[known_name(value, "sender", senders)]
        if sender.site and writers and sender.site not in writers:
            raise ValueError(
                f"sender {sender.name!r} is at {sender.site!r}, which does not write the table; detach it"
            )
        return sender.name

    table = Table(
        name=entry.name,
        keys=keys,
        writers=writers,
        senders=entry.each("senders", attached, required="the senders it is attached to"),
        at=at,
        start=entry.read(
            "start",
            lambda value: parse_start(value, keyless),
            default=Start(0 if keyless else None),
        ),
        **entry.settings(Table),
    )
    if table.source == "sink" and "start" in entry.values:
        entry.problems.add(
            f"{entry.path}.start",
            "is for captured tables, and a sink sends these rows; take it out",
        )
    check_sites(entry, table, sites, senders)
    return table


def parse_start(value: object, keyless: bool) -> Start:
    if value == "snapshot" and keyless:
        raise ValueError("a snapshot needs keys; name them, or give {version: N}")
    if value == "snapshot":
        return Start()
    if isinstance(value, Mapping) and set(value) == {"version"}:
        return Start(parse_count(value["version"], minimum=0))
    raise ValueError(f"must be snapshot or {{version: N}}, not {value!r}")
