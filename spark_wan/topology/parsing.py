"""The topology file: sites, what their senders carry, and where each table is.

The file is read with YAML's safe loader into frozen dataclasses. Nothing is guessed: every problem
becomes a line of one TopologyError that names the file, the key path and the fix.
``conf/two_sites.yaml`` is a commented example.

>>> topology = load_topology("conf/two_sites.yaml")
>>> topology.sent_to("flights", origin="newark")
('seattle',)
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import partial

import yaml

from spark_wan.errors import TopologyError
from spark_wan.topology.checks import (
    check_ack_policies,
    check_delays,
    check_delivery,
    check_failures,
    check_queue_limits,
    check_sites,
    check_streams,
    check_topology,
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
MAX_FILE = 8_000_000
"""Characters of a topology file, at most: of some 20,000 tables."""
MAX_VALUES = 1_000_000
"""Values in a topology file, at most, with what its aliases repeat."""
MAX_DEPTH = 50
"""Levels of a topology file, at most."""

_NUMBERS = {
    "tag:yaml.org,2002:int": re.compile(r"[-+]?(?:0|[1-9][0-9_]*)$"),
    "tag:yaml.org,2002:float": re.compile(
        r"(?:[-+]?(?:[0-9][0-9_]*\.[0-9_]*(?:[eE][-+]?[0-9]+)?|\.[0-9]+|\.(?:inf|Inf|INF))"
        r"|\.(?:nan|NaN|NAN))$"
    ),
}
_NOT_YAML = (
    yaml.YAMLError,
    ValueError,
    LookupError,
    AttributeError,
    TypeError,
    ArithmeticError,
    RecursionError,
)
"""What PyYAML raises. Those after the first two: for tagged values such as ``!!int ""``, and for
thousands of nested brackets."""


def load_topology(path: str | os.PathLike[str]) -> Topology:
    """Read the topology file at ``path`` (``~`` is expanded).

    Raises TopologyError when the file cannot be read, is not YAML, gives a key twice, or is
    refused by `parse_topology`.
    """
    file = os.path.expanduser(path)
    try:
        with open(file, encoding="utf-8") as content:
            text = content.read(MAX_FILE + 1)
        if len(text) > MAX_FILE:
            raise TopologyError(
                f"{file}: has more than {MAX_FILE:,} characters, so it is no topology; give the "
                "path of a topology file"
            )
        loader = _TopologyLoader(text, file)
        data = loader.get_single_data()
    except OSError as error:
        raise TopologyError(
            f"{file}: cannot be read ({error.strerror}); give the path of a topology file"
        ) from error
    except TopologyError:
        raise
    except _NOT_YAML as error:
        raise TopologyError(f"{file}: is not valid YAML; correct it: {error}") from error
    if loader.repeated:
        raise TopologyError(
            "\n".join(f"{file}: {path}: is given twice; keep one" for path in loader.repeated)
        )
    return parse_topology(data, file)


def parse_topology(data: object, file: str) -> Topology:
    """Return the Topology of the mapping ``data`` from ``file``. Paths are relative to the file.

    Raises TopologyError with all problems, one a line. How events travel is checked only once
    everything else is valid.
    """
    problems = Problems(file)
    base = os.path.dirname(os.path.abspath(file))
    known = ("version", "sites", "senders", "tables")
    root = Entry(data, "", known=known, problems=problems)
    root.read("version", _version, default=VERSION, required=f"version: {VERSION}")
    problems.raise_any()
    sites = {entry.name: _site(entry, base) for entry in root.entries("sites", Site)}
    senders = {entry.name: _sender(entry, base, sites) for entry in root.entries("senders", Sender)}
    tables = {
        entry.name: _table(entry, base, sites, senders) for entry in root.entries("tables", Table)
    }
    topology = Topology(file, sites, senders, tables)
    for check in (
        check_topology,
        check_queue_limits,
        check_delays,
        check_failures,
        check_ack_policies,
        check_delivery,
        check_streams,
    ):
        check(topology, problems)
        problems.raise_any()
    return topology


def _version(value: object) -> int:
    if parse_count(value) != VERSION:
        raise ValueError(f"{value} is unknown; this spark_wan reads version {VERSION}")
    return VERSION


class _TopologyLoader(yaml.SafeLoader):
    """The safe loader; also notes the paths of repeated keys, of which YAML keeps the last one.

    Numbers are decimal: YAML 1.1 takes ``010`` for 8 and ``1:30`` for 90. Here these are texts."""

    def __init__(self, text: str, file: str) -> None:
        super().__init__(text)
        self.name = self.file = file
        self.repeated: list[str] = []

    def construct_document(self, node: yaml.Node) -> object:
        self._check_size(node, {}, 0)
        self._note_repeated(node, "", set())
        return super().construct_document(node)

    def _check_size(self, node: yaml.Node, known: dict[int, int], depth: int) -> int:
        """Return how many values a node stands for, with what aliases in it repeat: a few lines
        of aliases of aliases may stand for more than any memory holds. Raises TopologyError."""
        if depth > MAX_DEPTH:
            raise TopologyError(
                f"{self.file}: is nested more than {MAX_DEPTH} levels deep, or has an alias inside "
                "its own anchor; flatten it"
            )
        if id(node) not in known:
            size, inner = 1, node.value if isinstance(node, yaml.CollectionNode) else []
            for each in inner:
                for part in each if isinstance(each, tuple) else (each,):
                    size += self._check_size(part, known, depth + 1)
            if size > MAX_VALUES:
                raise TopologyError(
                    f"{self.file}: its aliases expand to more than {MAX_VALUES:,} values; write "
                    "them out"
                )
            known[id(node)] = size
        return known[id(node)]

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
                if isinstance(key, yaml.ScalarNode):
                    if key.value in keys:
                        self.repeated.append(here)
                    keys.add(key.value)
                self._note_repeated(value, here, seen)


_TopologyLoader.yaml_implicit_resolvers = {
    first: [(tag, _NUMBERS.get(tag, pattern)) for tag, pattern in resolvers]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _site(entry: Entry, base: str) -> Site:
    state = partial(parse_state, base=base)
    return Site(
        name=entry.name,
        state=entry.read("state", state, default="", required="the site's state directory"),
        storage=entry.mapping("storage", parse_text),
        **entry.settings(Site),
    )


def _sender(entry: Entry, base: str, sites: Mapping[str, Site]) -> Sender:
    known_site = partial(known_name, kind="site", known=sites)
    site = entry.read("site", known_site, default="", required="the site it sends from")

    def remote(value: object) -> str:
        if value == site:
            raise ValueError(f"{site!r} is the sender's own site; take it out")
        return known_site(value)

    remotes = entry.items("remotes", remote, required="the sites it sends to")
    if entry.values.get("remotes") == []:
        entry.add_problem("remotes", "is empty; name at least one site")
    channel = partial(parse_channel, base=base)
    return Sender(
        name=entry.name,
        site=site,
        remotes=remotes,
        channel=entry.read("channel", channel, default="", required="a directory or URL"),
        storage=entry.mapping("storage", parse_text),
        **entry.settings(Sender),
    )


def _table(
    entry: Entry, base: str, sites: Mapping[str, Site], senders: Mapping[str, Sender]
) -> Table:
    keyless = entry.values.get("keys", []) == []
    known_site = partial(known_name, kind="site", known=sites)
    location = partial(parse_location, base=base)
    writers = entry.items("writers", known_site, required="the site that writes it")

    attached = partial(known_name, kind="sender", known=senders)

    table = Table(
        name=entry.name,
        keys=entry.items("keys", parse_text, same=str.lower),
        writers=writers,
        senders=entry.items("senders", attached, required="the senders it is attached to"),
        at=entry.mapping("at", location, required="where it lives, {site: location}"),
        start=entry.read(
            "start",
            partial(_parse_start, keyless=keyless),
            default=Start(0 if keyless else None),
        ),
        **entry.settings(Table),
    )
    if table.source == "sink" and "start" in entry.values:
        entry.add_problem(
            "start", "is for captured tables, and a sink sends these rows; take it out"
        )
    check_sites(entry, table, sites, senders)
    return table


def _parse_start(value: object, keyless: bool) -> Start:
    if value == "snapshot" and keyless:
        raise ValueError("a snapshot needs keys; name them, or give {version: N}")
    if value == "snapshot":
        return Start()
    if isinstance(value, Mapping) and set(value) == {"version"}:
        return Start(parse_count(value["version"], minimum=0))
    raise ValueError(f"must be snapshot or {{version: N}}, not {value!r}")
