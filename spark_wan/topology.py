"""The topology: which sites there are, what their senders carry, and where each table lives.

The file is read with YAML's safe loader into frozen dataclasses. Nothing is guessed: every problem becomes a line of
one TopologyError that names the file, the key path and the fix. ``conf/two_sites.yaml`` is a commented example.

>>> topology = load_topology("conf/two_sites.yaml")
>>> topology.sent_to("flights", origin="newark")
('seattle',)
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Literal, TextIO, TypeVar, cast, get_args

import yaml

from spark_wan.errors import TopologyError
from spark_wan.units import parse_bytes, parse_count, parse_seconds

VERSION = 1
CHANNEL_SCHEMES = ("file", "memory", "s3", "s3a", "gs", "az", "abfs", "abfss")
STATE_SCHEMES = ("file", "s3", "s3a", "gs", "abfs", "abfss")
"""Of those, what Spark knows as well: the ledger and the checkpoints are Spark's, the sender's memory is not."""

AckPolicy = Literal["none", "all"]
OnTableOperation = Literal["hold", "distribute", "skip"]
Source = Literal["table", "sink"]

T = TypeVar("T")

_LATER_POLICIES = ("quorum", "one", "one_peer", "all_peers")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/")
_CATALOG_PART = re.compile(r"(\w+)|`((?:[^`]|``)+)`")
_CATALOG_NAME = re.compile(rf"(?:{_CATALOG_PART.pattern})(?:\.(?:{_CATALOG_PART.pattern})){{1,3}}")
_INSTEAD = {
    "dbfs": "write its mount /dbfs/..., or a volume /Volumes/...",
    "hdfs": "write the path of an HDFS mount (NFS gateway), or the URL of an object store",
    "wasb": "write abfs://container@account.dfs.core.windows.net/...",
    "wasbs": "write abfss://container@account.dfs.core.windows.net/...",
}
"""What to write for a scheme that Spark knows and a channel does not."""
_UNKNOWN_TO_SPARK = {
    "az": "Spark does not know it; write abfss://container@account.dfs.core.windows.net/...",
    "memory": "Spark does not know it; write a directory or the URL of an object store",
}


@dataclass(frozen=True)
class Site:
    """One deployment with its own tables."""

    name: str
    state: str  # directory (absolute) or URL of the site's ledger and checkpoints
    storage: Mapping[str, str] = field(
        default_factory=dict, repr=False
    )  # for the sender's memory there; may hold secrets
    priority: int = 1  # 0 = never a primary


@dataclass(frozen=True)
class Sender:
    """A gateway sender: carries the tables attached to it from its site to its remotes."""

    name: str
    site: str
    remotes: tuple[str, ...]
    channel: str  # directory (absolute) or URL of the gateway queue
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)  # for the object store; may hold secrets
    ack_policy: AckPolicy = "all"  # whose acks an epoch needs before it counts as done
    batch_size: int = 10_000  # rows a gateway batch
    batch_bytes: int = 8 * 2**20  # bytes a gateway batch
    batch_interval: float = 1.0  # seconds between looks at the source tables
    max_epoch_rows: int = 1_000_000  # rows an epoch; soft, as a commit is never split
    ack_timeout: float = 60.0  # seconds until an epoch without its acks is overdue
    block_on_ack: float = 0.0  # seconds that commit waits for the ack policy; 0 = it does not


@dataclass(frozen=True)
class Start:
    """Where the first contact begins: with a snapshot (``version`` is None) or with the changes of a version."""

    version: int | None = None


MAX_DEAD_LETTERS = 10_000


@dataclass(frozen=True)
class Table:
    """A replicated table: its key, who writes it, who carries it and where it lives."""

    name: str
    keys: tuple[str, ...]  # () = keyless
    writers: tuple[str, ...]
    senders: tuple[str, ...]
    at: Mapping[str, str]  # site -> path (absolute), URL or catalog name
    start: Start
    on_table_operation: OnTableOperation = "hold"  # what TRUNCATE, RESTORE and the like do to the sender
    event_id_ttl: float | None = None  # seconds that receivers keep event IDs of users' streams; None: for ever
    source: Source = "table"  # where its rows come from at the writer: the table there, or a sink that sends events
    max_dead_letters: int = MAX_DEAD_LETTERS  # so many of one epoch are no accident: beyond, the stream is held

    def location(self, site: str) -> str:
        """Return the path, URL or catalog name of the table at ``site``; TopologyError when it is not there."""
        return _look_up(self.at, site, f"table {self.name!r}: site")


@dataclass(frozen=True)
class Topology:
    """All sites, senders and tables by name. Every method raises TopologyError for a name that it does not know."""

    file: str
    sites: Mapping[str, Site]
    senders: Mapping[str, Sender]
    tables: Mapping[str, Table]

    def site(self, name: str) -> Site:
        """Return the site ``name``."""
        return _look_up(self.sites, name, f"{self.file}: site")

    def sender(self, name: str) -> Sender:
        """Return the sender ``name``."""
        return _look_up(self.senders, name, f"{self.file}: sender")

    def table(self, name: str) -> Table:
        """Return the table ``name``."""
        return _look_up(self.tables, name, f"{self.file}: table")

    def senders_at(self, site: str) -> tuple[Sender, ...]:
        """Return the senders that start from ``site``."""
        origin = self.site(site).name
        return tuple(sender for sender in self.senders.values() if sender.site == origin)

    def tables_of(self, sender: str) -> tuple[Table, ...]:
        """Return the tables attached to ``sender``."""
        carrier = self.sender(sender).name
        return tuple(table for table in self.tables.values() if carrier in table.senders)

    def inbound_channels(self, site: str) -> tuple[Sender, ...]:
        """Return the senders that serve ``site``: a receiver there reads the channel of each."""
        target = self.site(site).name
        return tuple(sender for sender in self.senders.values() if target in sender.remotes)

    def sent_to(self, table_name: str, origin: str) -> tuple[str, ...]:
        """Return, sorted, all sites that any sender attached to the table at ``origin`` serves (a header's sent-to)."""
        attached = self.table(table_name).senders
        return tuple(
            sorted({site for sender in self.senders_at(origin) if sender.name in attached for site in sender.remotes})
        )


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
        raise TopologyError(f"{file}: cannot be read ({error.strerror}); give the path of a topology file") from error
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, RecursionError) as error:
        # All but the first two: what PyYAML raises for tagged values such as `!!int ""`, and for thousands of nested brackets.
        raise TopologyError(f"{file}: is not valid YAML; correct it: {error}") from error
    if loader.repeated:
        raise TopologyError("\n".join(f"{file}: {path}: is given twice; keep one" for path in loader.repeated))
    return parse_topology(data, file)


def parse_topology(data: object, file: str) -> Topology:
    """Make a Topology of the mapping ``data`` that was read from ``file``, whose directory relative paths start from.

    Raises TopologyError with all problems found, one a line. How events would travel is looked at only when
    everything else is right.
    """
    problems = _Problems(file)
    base = os.path.dirname(os.path.abspath(file))
    root = _Entry(data, "", ("version", "sites", "senders", "tables"), problems)
    root.read("version", _version, default=VERSION, required=f"version: {VERSION}")
    problems.raise_any()
    sites = {entry.name: _site(entry, base) for entry in root.entries("sites", Site)}
    senders = {entry.name: _sender(entry, base, sites) for entry in root.entries("senders", Sender)}
    tables = {entry.name: _table(entry, base, sites, senders) for entry in root.entries("tables", Table)}
    _check_states(sites, senders, problems)
    _check_places(tables, problems)
    _check_streams(tables, senders, problems)
    problems.raise_any()
    for table in tables.values():
        _check_delivery(table, senders, problems)
    problems.raise_any()
    return Topology(file, sites, senders, tables)


def stream_name(site: str, sender: str, table: str) -> str:
    """Return the name of the stream of one table of one sender."""
    return f"{site}.{sender}.{table}"


def is_path(location: str) -> bool:
    """Say whether a table's location is a path or URL; otherwise it is a catalog name."""
    return ("/" in location or location.startswith((".", "~"))) and not _CATALOG_NAME.fullmatch(location)


def catalog_parts(name: str) -> tuple[str, ...]:
    """Return the parts of a catalog name, without the backticks around them.

    >>> catalog_parts("main.`my schema`.`a.``b`")
    ('main', 'my schema', 'a.`b')
    """
    if not _CATALOG_NAME.fullmatch(name):
        raise TopologyError(f"{name!r} is not a catalog name; write catalog.schema.table, odd names in backticks")
    return tuple(plain or quoted.replace("``", "`") for plain, quoted in _CATALOG_PART.findall(name))


def nearest(name: object, known: Collection[str]) -> str:
    """Return the end of a message about an unknown name: the one that was probably meant, else all there are."""
    by_lower = {word.lower(): word for word in known}
    close = difflib.get_close_matches(str(name).lower(), by_lower, n=1)
    if close:
        return f"did you mean {by_lower[close[0]]!r}?"
    return f"known: {', '.join(sorted(known)) or 'none'}"


# Values. Each takes what stands in the file (or in an option) and raises ValueError when that is wrong.


def parse_text(value: object) -> str:
    """Return text that is not empty; ValueError otherwise."""
    if not isinstance(value, str):
        raise ValueError(f"must be text, not {value!r}; give it a value in quotes")
    if not value.strip():
        raise ValueError("is empty; give it a value or leave it out")
    return value


def parse_name(value: object) -> str:
    """Return a name that can be part of a path; ValueError otherwise."""
    if not _NAME.fullmatch(parse_text(value)):
        raise ValueError(f"{value!r} is not a name; use letters, digits, _ . - and begin with a letter or digit")
    return str(value)


def parse_ack_policy(value: object) -> AckPolicy:
    """Return the ack policy, ``none`` or ``all``; ValueError otherwise."""
    if value in _LATER_POLICIES:
        raise ValueError(f"{value!r} is not available in this version, use none or all")
    return cast(AckPolicy, _one_of(value, get_args(AckPolicy)))


def parse_channel(value: object, base: str) -> str:
    """Return a channel's URL, or its directory made absolute from ``base``; ValueError when the scheme is unknown."""
    return _stored(value, base, CHANNEL_SCHEMES, _INSTEAD)


def _state(value: object, base: str) -> str:
    return _stored(value, base, STATE_SCHEMES, {**_INSTEAD, **_UNKNOWN_TO_SPARK})


def _stored(value: object, base: str, schemes: Collection[str], instead: Mapping[str, str]) -> str:
    """A directory made absolute, or a URL with one of the schemes. ``instead``: what to write for some of the others."""
    place = _place(value, base)
    url = _URL.match(place)
    if url and url[1].lower() in instead:
        raise ValueError(f"{value!r}: the scheme {url[1]!r} cannot be used here; {instead[url[1].lower()]}")
    if url and url[1] not in schemes:
        raise ValueError(f"unknown scheme {url[1]!r} in {value!r}; {nearest(url[1], schemes)}")
    return _checked_url(value, place)


def _checked_url(value: object, place: str) -> str:
    url = _URL.match(place)
    if url and "://" not in place:
        raise ValueError(f"{value!r} is not a URL; write {url[1]}://...")
    if url and url[1] == "file" and not place.startswith("file:///"):
        raise ValueError(f"{value!r} is not absolute; write file:///... or a path")
    return place


def parse_each(
    values: Iterable[object], parse: Callable[[object], str], same: Callable[[str], str] = str
) -> tuple[tuple[str, ...], list[tuple[int, str]]]:
    """Return the values that ``parse`` accepts, each once, and index and problem of the others.

    ``same`` gives what two equal values have in common (``str.lower``: names that do not differ by case).
    """
    good: list[str] = []
    wrong: list[tuple[int, str]] = []
    for index, value in enumerate(values):
        try:
            parsed = parse(value)
            if same(parsed) in map(same, good):
                raise ValueError(f"{parsed!r} is given twice; keep one")
            good.append(parsed)
        except ValueError as problem:
            wrong.append((index, str(problem)))
    return tuple(good), wrong


def _place(value: object, base: str) -> str:
    place = parse_text(value)
    return place if _URL.match(place) else os.path.normpath(os.path.join(base, os.path.expanduser(place)))


def _location(value: object, base: str) -> str:
    location = parse_text(value)
    if is_path(location):
        return _table_path(location, base)
    if not _CATALOG_NAME.fullmatch(location):
        raise ValueError(
            f"{value!r} is neither; write a path (./{location}) or a catalog name (catalog.schema.table, odd names in backticks)"
        )
    parts = catalog_parts(location)
    if parts[0].lower() == "delta" and len(parts) == 2 and "/" in parts[1]:
        raise ValueError(f"{value!r} is Spark's way to name a path; write {parts[1]}")
    return location


def _table_path(location: str, base: str) -> str:
    """A table's path or URL. Spark reads it, so any scheme that Spark knows will do."""
    place = _place(location, base)
    url = _URL.match(place)
    if url and url[1] in _UNKNOWN_TO_SPARK:
        raise ValueError(f"{location!r}: the scheme {url[1]!r} cannot be used here; {_UNKNOWN_TO_SPARK[url[1]]}")
    return place if url and url[1] == "dbfs" else _checked_url(location, place)


def _one_of(value: object, words: Collection[str]) -> str:
    if value not in words:
        raise ValueError(f"unknown value {value!r}; {nearest(value, words)}")
    return str(value)


def _known(value: object, kind: str, known: Collection[str]) -> str:
    name = parse_text(value)
    if name not in known:
        raise ValueError(f"unknown {kind} {name!r}; {nearest(name, known)}")
    return name


def _version(value: object) -> int:
    if parse_count(value) != VERSION:
        raise ValueError(f"{value} is not known here; this spark_wan reads version {VERSION}")
    return VERSION


def _on_table_operation(value: object) -> OnTableOperation:
    return cast(OnTableOperation, _one_of(value, get_args(OnTableOperation)))


def _source(value: object) -> Source:
    return cast(Source, _one_of(value, get_args(Source)))


def _start(value: object, keyless: bool) -> Start:
    if value == "snapshot" and keyless:
        raise ValueError("a snapshot needs keys; name them, or give {version: N}")
    if value == "snapshot":
        return Start()
    if isinstance(value, Mapping) and set(value) == {"version"}:
        return Start(parse_count(value["version"], minimum=0))
    raise ValueError(f"must be snapshot or {{version: N}}, not {value!r}")


# Reading the file


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
                here = _join(path, key.value)
                if isinstance(key, yaml.ScalarNode) and key.value in keys:
                    self.repeated.append(here)
                elif isinstance(key, yaml.ScalarNode):
                    keys.add(key.value)
                self._note_repeated(value, here, seen)


class _Problems:
    """Everything that is wrong with one file, a line each."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._lines: list[str] = []

    def add(self, path: str, problem: object) -> None:
        where = path.replace("\n", "\\n") or "the file"
        self._lines.append(f"{self._file}: {where}: {problem}")

    def raise_any(self) -> None:
        if self._lines:
            raise TopologyError("\n".join(self._lines))


class _Entry:
    """One mapping of the file. Values come out parsed; what is wrong is noted and its default stands in for it."""

    def __init__(self, data: object, path: str, known: Collection[str], problems: _Problems, name: str = "") -> None:
        self.name = name
        self.path = path
        self.problems = problems
        self.values = self._mapping(data, path)
        for key in self.values:
            if key not in known:
                problems.add(_join(path, key), f"unknown key; {nearest(key, known)}")

    def read(self, key: str, parse: Callable[[object], T], *, default: T, required: str = "") -> T:
        """Return the value of ``key`` parsed. ``required`` says what to add when it is missing."""
        if key not in self.values:
            if required:
                self.problems.add(_join(self.path, key), f"is missing; add {required}")
            return default
        try:
            return parse(self.values[key])
        except ValueError as problem:
            self.problems.add(_join(self.path, key), problem)
            return default

    def each(
        self, key: str, parse: Callable[[object], str], *, same: Callable[[str], str] = str, required: str = ""
    ) -> tuple[str, ...]:
        """Return the items of the list at ``key`` parsed, without duplicates; () when there is none."""
        nothing: list[object] = []
        items = self.read(key, _list, default=nothing, required=required)
        good, wrong = parse_each(items, parse, same)
        for index, problem in wrong:
            self.problems.add(f"{_join(self.path, key)}[{index}]", problem)
        return good

    def mapping(self, key: str, parse: Callable[[object], str], *, required: str = "") -> dict[str, str]:
        """Return the mapping at ``key`` with its values parsed; {} when there is none."""
        path, values = _join(self.path, key), self._section(key, required)
        entry = _Entry(values, path, values, self.problems)
        parsed = {name: entry.read(name, parse, default="") for name in values}
        return {name: value for name, value in parsed.items() if value}

    def entries(self, key: str, kind: type) -> Iterator[_Entry]:
        """Yield the named entries of a section; their keys are the fields of the dataclass ``kind``."""
        known = [each.name for each in fields(kind) if each.name != "name"]
        for name, data in self._section(key, f"{key}: {{name: ...}}").items():
            path = _join(key, name)
            try:
                parse_name(name)
            except ValueError as problem:
                self.problems.add(path, problem)
            yield _Entry(data, path, known, self.problems, name)

    def _section(self, key: str, required: str) -> dict[str, object]:
        nothing: dict[str, object] = {}
        return self.read(
            key, lambda value: self._mapping(value, _join(self.path, key)), default=nothing, required=required
        )

    def _mapping(self, data: object, path: str) -> dict[str, object]:
        if not isinstance(data, Mapping):
            self.problems.add(path, f"must be a mapping (key: value), not {data!r}")
            return {}
        for key in data:
            if not isinstance(key, str):
                self.problems.add(_join(path, key), f"the key must be text; write {str(key)!r} in quotes")
        return {key: value for key, value in data.items() if isinstance(key, str)}


def _list(value: object) -> list[object]:
    if not isinstance(value, list):
        raise ValueError(f"must be a list such as [a, b], not {value!r}")
    return value


def _join(path: str, key: object) -> str:
    return f"{path}.{key}" if path else str(key)


def _look_up(known: Mapping[str, T], name: str, what: str) -> T:
    if name not in known:
        raise TopologyError(f"{what} {name!r} is unknown; {nearest(name, known)}")
    return known[name]


def _site(entry: _Entry, base: str) -> Site:
    return Site(
        name=entry.name,
        state=entry.read("state", lambda value: _state(value, base), default="", required="the site's state directory"),
        storage=entry.mapping("storage", parse_text),
        priority=entry.read("priority", lambda value: parse_count(value, minimum=0), default=Site.priority),
    )


def _sender(entry: _Entry, base: str, sites: Mapping[str, Site]) -> Sender:
    site = entry.read("site", lambda value: _known(value, "site", sites), default="", required="the site it sends from")

    def remote(value: object) -> str:
        if value == site:
            raise ValueError(f"{site!r} is the sender's own site; take it out")
        return _known(value, "site", sites)

    remotes = entry.each("remotes", remote, required="the sites it sends to")
    if entry.values.get("remotes") == []:
        entry.problems.add(f"{entry.path}.remotes", "is empty; name at least one site")
    return Sender(
        name=entry.name,
        site=site,
        remotes=remotes,
        channel=entry.read(
            "channel", lambda value: parse_channel(value, base), default="", required="a directory or URL"
        ),
        storage=entry.mapping("storage", parse_text),
        ack_policy=entry.read("ack_policy", parse_ack_policy, default=Sender.ack_policy),
        batch_size=entry.read("batch_size", parse_count, default=Sender.batch_size),
        batch_bytes=entry.read("batch_bytes", parse_bytes, default=Sender.batch_bytes),
        batch_interval=entry.read("batch_interval", parse_seconds, default=Sender.batch_interval),
        max_epoch_rows=entry.read("max_epoch_rows", parse_count, default=Sender.max_epoch_rows),
        ack_timeout=entry.read("ack_timeout", parse_seconds, default=Sender.ack_timeout),
        block_on_ack=entry.read(
            "block_on_ack", lambda value: parse_seconds(value, zero=True), default=Sender.block_on_ack
        ),
    )


def _table(entry: _Entry, base: str, sites: Mapping[str, Site], senders: Mapping[str, Sender]) -> Table:
    keys = entry.each("keys", parse_text, same=str.lower)
    keyless = entry.values.get("keys", []) == []
    writers = entry.each("writers", lambda value: _known(value, "site", sites), required="the site that writes it")
    at = entry.mapping("at", lambda value: _location(value, base), required="where it lives, {site: location}")

    def attached(value: object) -> str:
        sender = senders[_known(value, "sender", senders)]
        if sender.site and writers and sender.site not in writers:
            raise ValueError(f"sender {sender.name!r} is at {sender.site!r}, which does not write the table; detach it")
        return sender.name

    table = Table(
        name=entry.name,
        keys=keys,
        writers=writers,
        senders=entry.each("senders", attached, required="the senders it is attached to"),
        at=at,
        start=entry.read("start", lambda value: _start(value, keyless), default=Start(0 if keyless else None)),
        on_table_operation=entry.read("on_table_operation", _on_table_operation, default=Table.on_table_operation),
        event_id_ttl=entry.read("event_id_ttl", parse_seconds, default=Table.event_id_ttl),
        source=entry.read("source", _source, default=Table.source),
        max_dead_letters=entry.read("max_dead_letters", parse_count, default=Table.max_dead_letters),
    )
    if table.source == "sink" and "start" in entry.values:
        entry.problems.add(f"{entry.path}.start", "is for captured tables, and a sink sends these rows; take it out")
    _check_sites(entry, table, sites, senders)
    return table


def _check_sites(entry: _Entry, table: Table, sites: Mapping[str, Site], senders: Mapping[str, Sender]) -> None:
    """Check one table against the sites it is written at, lives at and is sent to."""
    given = entry.values.get("writers")
    if isinstance(given, list) and len(given) != 1:
        advice = "several need conflict resolution, which this version does not have; " if given else ""
        entry.problems.add(f"{entry.path}.writers", f"{advice}name exactly one site")
    located = entry.values.get("at")
    if not isinstance(located, Mapping):
        return
    for site in table.at:
        if site not in sites:
            entry.problems.add(f"{entry.path}.at.{site}", f"unknown site {site!r}; {nearest(site, sites)}")
    for site in table.writers:
        if site not in located and table.source == "table":
            entry.problems.add(f"{entry.path}.at.{site}", "is missing, but the site writes the table; add its location")
    for sender in table.senders:
        for site in senders[sender].remotes:
            if site not in located:
                problem = f"is missing, but sender {sender!r} serves the site; add its location or detach the sender"
                entry.problems.add(f"{entry.path}.at.{site}", problem)


# How the entries go together


def _check_states(sites: Mapping[str, Site], senders: Mapping[str, Sender], problems: _Problems) -> None:
    """A ledger belongs to one site, and a channel is no site's state."""
    taken: dict[str, str] = {}
    for site in sites.values():
        if site.storage and "://" not in site.state.removeprefix("file://"):
            problem = f"is for object stores, but the state is the directory {site.state!r}; take it out"
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


def _check_places(tables: Mapping[str, Table], problems: _Problems) -> None:
    """Two tables at one place of a site would overwrite each other."""
    taken: dict[tuple[str, str | tuple[str, ...]], str] = {}
    for table in tables.values():
        for site, location in table.at.items():
            other = taken.setdefault((site, _table_place(location)), table.name)
            if other != table.name:
                problem = f"table {other!r} is at {location!r} already; give each table a place of its own"
                problems.add(f"tables.{table.name}.at.{site}", problem)


def _check_streams(tables: Mapping[str, Table], senders: Mapping[str, Sender], problems: _Problems) -> None:
    """Names may contain dots, stream names are joined by them: ``b.c`` + ``d`` must not meet ``b`` + ``c.d``."""
    taken: dict[str, tuple[str, str]] = {}
    for table in tables.values():
        for sender in table.senders:
            stream = stream_name(senders[sender].site, sender, table.name)
            other = taken.setdefault(stream, (sender, table.name))
            if other != (sender, table.name):
                problem = (
                    f"its stream would be {stream!r}, as for sender {other[0]!r} and table {other[1]!r}; rename one"
                )
                problems.add(f"tables.{table.name}.senders", problem)


def _check_delivery(table: Table, senders: Mapping[str, Sender], problems: _Problems) -> None:
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
