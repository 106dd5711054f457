"""Sites, senders, tables and streams, as the rest of the code sees a topology."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from spark_wan.errors import TopologyError, nearest
from spark_wan.topology.ack_policy import POLICY_NAMES, AckPolicy, parse_ack_policy
from spark_wan.topology.settings import setting, store_options
from spark_wan.topology.values import (
    OnAckTimeout,
    OnFailure,
    OnQueueLimit,
    OnTableOperation,
    Optimize,
    OrderPolicy,
    Source,
    Sync,
    SyncFrom,
    parse_accept_from,
    parse_flag,
    parse_name,
    parse_on_ack_timeout,
    parse_on_failure,
    parse_on_queue_limit,
    parse_on_table_operation,
    parse_optimize,
    parse_order_policy,
    parse_signing_keys,
    parse_source,
    parse_sync,
    parse_sync_from,
    parse_table_priority,
)
from spark_wan.units import parse_bytes, parse_count, parse_seconds
from spark_wan.wire.frame import MAX_FRAME_BYTES
from spark_wan.wire.signature import KeyReference

T = TypeVar("T")

MAX_DEAD_LETTERS = 10_000


@dataclass(frozen=True)
class Site:
    """One deployment with its own tables."""

    name: str
    state: str  # directory (absolute) or URL of the site's ledger and checkpoints
    storage: Mapping[str, str] = store_options()  # for that state, and the logs of its tables
    priority: int = setting(
        1,
        partial(parse_count, minimum=0),
        "Priority for becoming the primary. 0: never, and then the site is no peer.",
    )
    receive_interval: float = setting(
        0.5,
        parse_seconds,
        "Interval at which the receiver polls a channel: seconds, or 500ms, 1m.",
    )
    receive_parallel: int = setting(
        2, parse_count, "Maximum number of tables that the receiver writes concurrently."
    )
    receive_max_bytes: int = setting(
        256 * 2**20,
        parse_bytes,
        "Maximum size of the frames that the receiver applies at once: bytes, or 256MiB, 1GB.",
    )
    send_parallel: int = setting(
        2, parse_count, "Maximum number of tables that the site's senders capture concurrently."
    )
    idle_interval: float = setting(
        5.0,
        parse_seconds,
        "Longest interval at which a quiet table or channel is polled: seconds, or 500ms, 1m.",
    )
    signing_keys: tuple[KeyReference, ...] = setting(
        (),
        parse_signing_keys,
        "Where the site's keys are: env:NAME or file:/path, one or two. The first signs what the"
        " site sends and acks. Other sites accept both, and nothing unsigned. Default: no"
        " signatures.",
    )
    accept_from: tuple[str, ...] | None = setting(
        None,
        parse_accept_from,
        "Sites whose events the site accepts, as their sender or writer; default: all.",
    )
    max_frame_bytes: int = setting(
        MAX_FRAME_BYTES,
        parse_bytes,
        "Maximum unpacked size of a frame that the site receives: bytes, or 1GiB, 64MB. A larger"
        " one is refused before it is unpacked.",
    )
    retry_timeout: float = setting(
        600.0,
        parse_seconds,
        "For how long the site retries before a link counts as failed, if the cause may pass by"
        " itself: seconds, or 10m, 1h. It retries after that, too.",
    )
    sync: Sync = setting(
        "auto",
        parse_sync,
        "When the site asks for a copy of a table that it needs: auto, at once; delayed, after"
        " sync_after; manual, never, `spark-wan sync` does.",
    )
    sync_after: float = setting(
        3_600.0,
        parse_seconds,
        "How long a site whose sync is delayed waits: seconds, or 30m, 1h.",
    )
    auto_init: bool = setting(
        True,
        parse_flag,
        "Whether the site may get a copy of a whole table without `spark-wan sync --full`: true or"
        " false.",
    )
    sync_from: SyncFrom = setting(
        "any",
        parse_sync_from,
        "Who serves the site copies: any, first sites that have copies themselves; primary, only"
        " the site that writes the table.",
    )
    sync_timeout: float = setting(
        60.0,
        parse_seconds,
        "After how long without a sign of life the site asks the next one for a copy: seconds, or"
        " 500ms, 1m.",
    )
    max_copies: int = setting(
        1, parse_count, "Maximum number of copies that the site serves concurrently."
    )
    standby_after: float = setting(
        60.0,
        parse_seconds,
        "After how long without a sign of life of the running job a job with --standby has taken"
        " over: seconds, or 30s, 5m.",
    )


@dataclass(frozen=True)
class Sender:
    """Carries the tables attached to it from its site to its remotes."""

    name: str
    site: str
    remotes: tuple[str, ...]
    channel: str  # directory (absolute) or URL
    storage: Mapping[str, str] = store_options()  # for the channel
    ack_policy: AckPolicy = setting(
        AckPolicy.QUORUM,
        parse_ack_policy,
        f"Whose acks block_on_ack waits for: {POLICY_NAMES}.",
    )
    batch_size: int = setting(10_000, parse_count, "Maximum number of rows in a frame.")
    batch_bytes: int = setting(
        8 * 2**20, parse_bytes, "Maximum size of a frame: bytes, or 8MiB, 500kB."
    )
    max_frame_bytes: int = setting(
        MAX_FRAME_BYTES,
        parse_bytes,
        "Maximum size of a frame with a single event, which batch_bytes does not limit: bytes, or"
        " 1GiB, 64MB. A larger event is not sent.",
    )
    channel_id: str | None = setting(
        None,
        parse_name,
        "Name of the channel in signatures, the same at both ends; default: the sender's name.",
    )
    copy_rate: int | None = setting(
        None,
        parse_bytes,
        "Maximum bytes per second of a copy that the site serves through the sender, over a minute"
        " or more: bytes, or 10MiB, 1MB. Default: no maximum.",
    )
    batch_interval: float = setting(
        1.0, parse_seconds, "Interval at which a source table is polled: seconds, or 500ms, 1m."
    )
    max_epoch_rows: int = setting(
        1_000_000, parse_count, "Number of rows after which an epoch ends. A commit is never split."
    )
    ack_timeout: float = setting(
        60.0, parse_seconds, "Seconds until an epoch without its acks is announced again."
    )
    on_ack_timeout: OnAckTimeout = setting(
        "wait",
        parse_on_ack_timeout,
        "What happens when the ack policy is not met within ack_timeout: wait, or continue with an"
        " alert. Either way the epoch stays in the channel, and later acks count.",
    )
    block_on_ack: float = setting(
        0.0,
        partial(parse_seconds, zero=True),
        "Seconds that a commit waits for the ack policy; 0: it does not wait.",
    )
    max_queue_bytes: int | None = setting(
        None,
        parse_bytes,
        "Maximum size of what waits for acks in a stream, at which no epoch is added to it: bytes,"
        " or 10GiB, 500MB. Default: no maximum.",
    )
    max_queue_age: float | None = setting(
        None,
        parse_seconds,
        "Maximum age of what waits for acks in a stream, at which no epoch is added to it: seconds,"
        " or 30m, 12h. Default: no maximum.",
    )
    on_queue_limit: OnQueueLimit = setting(
        "block",
        parse_on_queue_limit,
        "What happens when a queue is full: block, wait for acks; hold, also report a hold;"
        " drop_reader, go on without the sites that lag, which then need a copy.",
    )
    max_bytes_per_second: int | None = setting(
        None,
        parse_bytes,
        "Maximum bytes of frames per second that a job publishes through the sender, on average:"
        " bytes, or 10MiB, 1MB. Default: no maximum.",
    )
    max_rows_per_second: int | None = setting(
        None,
        parse_count,
        "Maximum number of rows per second that a job publishes through the sender, on average."
        " Default: no maximum.",
    )
    delay: float = setting(
        0.0,
        partial(parse_seconds, zero=True),
        "How old a commit of a captured table is when it is published, at least: seconds, or 30m,"
        " 4h. 0: it is published at once.",
    )
    optimize: Optimize = setting(
        "latency",
        parse_optimize,
        "What captures of tables are timed for: latency, commits arrive as soon as possible;"
        " throughput, more of them in one epoch, and half of the time without work.",
    )
    order_policy: OrderPolicy = setting(
        "commit",
        parse_order_policy,
        "In which order sites see events: commit, whole commits in their order. There is no other.",
    )

    @property
    def channel_name(self) -> str:
        """The channel's name in signatures."""
        return self.channel_id or self.name


@dataclass(frozen=True)
class Start:
    """Where the first contact begins: the changes of ``version``, or a snapshot (None)."""

    version: int | None = None


@dataclass(frozen=True)
class Table:
    """A replicated table: its key, who writes it, who carries it and where it is."""

    name: str
    keys: tuple[str, ...]  # () = keyless
    writers: tuple[str, ...]
    senders: tuple[str, ...]
    at: Mapping[str, str]  # site -> path (absolute), URL or catalog name
    start: Start
    on_table_operation: OnTableOperation = setting(
        "hold",
        parse_on_table_operation,
        "What the sender does with a TRUNCATE, RESTORE and the like: hold, distribute or skip.",
    )
    event_id_ttl: float | None = setting(
        None,
        parse_seconds,
        "Seconds that receivers keep event IDs of a user stream; default: forever.",
    )
    source: Source = setting(
        "table",
        parse_source,
        "Where the writer's rows come from: table, or sink for a stream that a sink writes.",
    )
    max_dead_letters: int = setting(
        MAX_DEAD_LETTERS,
        parse_count,
        "Maximum number of dead letters in one epoch; with more, the stream is held.",
    )
    on_failure: OnFailure = setting(
        "dead_letter",
        parse_on_failure,
        "What becomes of a row that cannot be sent or applied: dead_letter, the stream goes on"
        " without it; retry, the stream is held until it can be.",
    )
    deletion_vectors: bool = setting(
        True,
        parse_flag,
        "Whether receivers create the table with deletion vectors: true or false.",
    )
    allow_duplicates: bool = setting(
        False,
        parse_flag,
        "Whether a site may get an event by several ways, and applies it once: true or false.",
    )

    sync: Sync | None = setting(
        None, parse_sync, "When sites ask for a copy of this table; default: as the site's sync."
    )
    sync_after: float | None = setting(
        None, parse_seconds, "How long sync: delayed waits; default: as the site's sync_after."
    )
    max_queue_bytes: int | None = setting(
        None, parse_bytes, "Of the table's streams; default: as the sender's max_queue_bytes."
    )
    max_queue_age: float | None = setting(
        None, parse_seconds, "Of the table's streams; default: as the sender's max_queue_age."
    )
    on_queue_limit: OnQueueLimit | None = setting(
        None,
        parse_on_queue_limit,
        "Of the table's streams; default: as the sender's on_queue_limit.",
    )
    delay: float | None = setting(
        None,
        partial(parse_seconds, zero=True),
        "Of the table's commits; default: as the sender's delay.",
    )
    priority: int = setting(
        0,
        parse_table_priority,
        "Where workers are scarce, work on tables with a higher priority is taken first: -100 to"
        " 100.",
    )

    @property
    def letters_allowed(self) -> int:
        """How many dead letters an epoch may have."""
        return 0 if self.on_failure == "retry" else self.max_dead_letters

    def location(self, site: str) -> str:
        """Return the path, URL or catalog name of the table at ``site``."""
        return _look_up(self.at, site, f"table {self.name!r}: site")


@dataclass(frozen=True)
class QueueLimits:
    """How much of a stream may wait in its channel, and what happens then."""

    bytes: int | None = None
    """Size of the frames that some site has not acked; None: any."""
    age: float | None = None
    """Seconds since the oldest epoch that waits was added; None: any."""
    policy: OnQueueLimit = "block"

    @classmethod
    def of(cls, sender: Sender, table: Table) -> QueueLimits:
        """Return the limits of the streams of a table that a sender adds to."""
        size, age, policy = table.max_queue_bytes, table.max_queue_age, table.on_queue_limit
        return cls(
            sender.max_queue_bytes if size is None else size,
            sender.max_queue_age if age is None else age,
            sender.on_queue_limit if policy is None else policy,
        )

    @property
    def exist(self) -> bool:
        """Whether there is a limit."""
        return self.bytes is not None or self.age is not None


@dataclass(frozen=True)
class Stream:
    """One table of one sender, or one inbound stream that a sender forwards: the unit of order."""

    sender: Sender
    table: Table
    origin: str
    """The site that writes the events."""
    sent_to: tuple[str, ...]
    """As its manifests say: sites that get these events from this sender, from another of its
    site, or from senders before."""
    addressees: tuple[str, ...]
    """The sites that it is for."""
    inbound: Stream | None = None
    """The stream that is forwarded; None: the sender's site writes the events."""

    @property
    def name(self) -> str:
        if self.inbound is None:
            return stream_name(self.sender.site, self.sender.name, self.table.name)
        return forwarded_name(self.sender.site, self.sender.name, self.inbound.name)

    @property
    def senders(self) -> tuple[Sender, ...]:
        """The senders on the way from the origin, the first one first."""
        before = self.inbound.senders if self.inbound is not None else ()
        return (*before, self.sender)

    @property
    def delay(self) -> float:
        """How old its commits are when they are published at the origin, in seconds."""
        return delay_of(self.senders[0], self.table)

    def way(self, site: str) -> str:
        """Return the way of an event to an addressee, for people."""
        hops = [each.site for each in self.senders[1:]] + [site]
        ways = (f"-> {sender.name} -> {to}" for sender, to in zip(self.senders, hops, strict=True))
        return " ".join((self.origin, *ways))


@dataclass(frozen=True)
class Topology:
    """All sites, senders and tables by name.

    Every method raises TopologyError for an unknown name.
    """

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

    def sender_at(self, site: str, name: str) -> Sender:
        """Return the sender ``name``, which starts from ``site``. Raises TopologyError also if it
        starts from another one."""
        sender = self.sender(name)
        if sender.site != site:
            raise TopologyError(
                f"{self.file}: senders.{name} runs at site {sender.site}, not at {site}."
            )
        return sender

    def table(self, name: str) -> Table:
        """Return the table ``name``."""
        return _look_up(self.tables, name, f"{self.file}: table")

    @property
    def never_primary(self) -> frozenset[str]:
        """The sites with priority 0, which are no peers."""
        return frozenset(site.name for site in self.sites.values() if site.priority == 0)

    def senders_at(self, site: str) -> tuple[Sender, ...]:
        """Return the senders that start from ``site``."""
        origin = self.site(site).name
        return tuple(sender for sender in self.senders.values() if sender.site == origin)

    def tables_of(self, sender: str) -> tuple[Table, ...]:
        """Return the tables attached to ``sender``."""
        carrier = self.sender(sender).name
        return tuple(table for table in self.tables.values() if carrier in table.senders)

    def senders_to(self, site: str) -> tuple[Sender, ...]:
        """Return the senders that serve ``site``: a receiver there reads the channel of each."""
        target = self.site(site).name
        return tuple(sender for sender in self.senders.values() if target in sender.remotes)

    def attached(self, table: Table, site: str) -> list[Sender]:
        """Return the senders at ``site`` to which ``table`` is attached."""
        return [sender for sender in self.senders_at(site) if sender.name in table.senders]

    def sent_to(self, table_name: str, origin: str) -> tuple[str, ...]:
        """Return the sites that any sender of the table at ``origin`` serves, sorted."""
        senders = self.attached(self.table(table_name), origin)
        return tuple(sorted({site for sender in senders for site in sender.remotes}))


def delay_of(sender: Sender, table: Table) -> float:
    """Return how old commits of a table are when a sender publishes them, in seconds."""
    if table.source == "sink":
        return 0.0
    return sender.delay if table.delay is None else table.delay


_COPY = "~copy~"
"""In no name of a site, a sender or a table."""


def stream_name(site: str, sender: str, table: str) -> str:
    """Return the name of the stream of one table of one sender."""
    return f"{site}.{sender}.{table}"


def copy_name(stream: str, site: str) -> str:
    """Return the name of the stream by which a site gets a copy of the table of ``stream``."""
    return f"{stream}{_COPY}{site}"


def copied_stream(name: str) -> tuple[str, str] | None:
    """Return whose table a stream of copies has, and for which site; None: it has events."""
    stream, found, site = name.rpartition(_COPY)
    return (stream, site) if found else None


def forwarded_name(site: str, sender: str, inbound: str) -> str:
    """Return the name of the stream by which a sender of ``site`` forwards ``inbound``."""
    return f"{site}.{sender}~{inbound}"


def _look_up(known: Mapping[str, T], name: str, what: str) -> T:
    if name not in known:
        raise TopologyError(f"{what} {name!r} is unknown; {nearest(name, known)}")
    return known[name]
