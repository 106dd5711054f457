"""Two sites in a folder: newark writes (with ``deltalake``, which needs no Spark), seattle
receives.

Tables of sender ``east``: ``orders`` (keyed by ``id``) and ``readings`` (keyless). User streams of
sender ``events``: ``prices`` (keyed by ``id``) and ``clicks`` (keyless).
"""

from __future__ import annotations

import atexit
import datetime
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import yaml
from default_channel import channel_settings, copy_channels, frames
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from inline import Inbound, Running, inbound_of

from spark_wan.apply.applier import TableApplier
from spark_wan.channels.base import Channel
from spark_wan.channels.registry import open_channel
from spark_wan.control.keeper import ControlKeeper
from spark_wan.delta.sessions import CurrentSession
from spark_wan.errors import ChannelError, StreamsHeldError
from spark_wan.events.row_hash import digest, row_hashes
from spark_wan.ledger.tables import LedgerTables
from spark_wan.log.ack_watch import AckWatch
from spark_wan.log.stream_log import StreamLog
from spark_wan.receiver.job import Receiver
from spark_wan.receiver.stream import InboundStream, TableStatus
from spark_wan.sender.job import Sender
from spark_wan.sender.outbound_stream import StreamStatus
from spark_wan.sender.publish import Publisher
from spark_wan.topology.model import Topology, stream_name
from spark_wan.topology.parsing import load_topology
from spark_wan.wire.ack import Ack
from spark_wan.wire.decisions import Decisions
from spark_wan.wire.ledger import SCHEMAS

NEWARK, SEATTLE = "newark", "seattle"
KEYS: Mapping[str, list[str]] = {"orders": ["id"], "readings": [], "prices": ["id"], "clicks": []}
SENDERS = {"orders": "east", "readings": "east", "prices": "events", "clicks": "events"}
COLUMNS = {
    "orders": pa.schema([("id", pa.int64()), ("item", pa.string()), ("amount", pa.float64())]),
    "readings": pa.schema([("sensor", pa.string()), ("value", pa.float64())]),
    "clicks": pa.schema(
        [("event", pa.string()), ("at", pa.timestamp("us", "UTC")), ("page", pa.string())]
    ),
    "prices": pa.schema(
        [("event", pa.string()), ("turn", pa.int64()), ("id", pa.int64()), ("price", pa.float64())]
    ),
}
Row = Mapping[str, Any]
_empty_ledgers: list[Path] = []


def write_topology(folder: Path, senders: Mapping[str, Row], tables: Mapping[str, Row]) -> None:
    """Write a topology of newark and seattle, with defaults for what senders and tables omit."""
    sites = (NEWARK, SEATTLE)
    sender = {"site": NEWARK, "remotes": [SEATTLE], "batch_interval": "100ms"}
    content = {
        "version": 1,
        "sites": {site: {"state": f"./{site}/_wan", "sync": "manual"} for site in sites},
        "senders": {name: {**sender, **settings} for name, settings in senders.items()},
        "tables": {
            name: {"writers": [NEWARK], "at": {site: f"./{site}/{name}" for site in sites}, **table}
            for name, table in tables.items()
        },
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "wan.yaml").write_text(yaml.safe_dump(content))


def make_ledger(spark: Any, state: str) -> None:
    """Create a site's ledger, empty: a copy of the first one of this process, which saves over a
    second.
    """
    ledger = Path(state) / "ledger"
    if all((ledger / name / "_delta_log").exists() for name in SCHEMAS):
        return
    if ledger.exists():
        LedgerTables(CurrentSession(spark), state).ensure()
    elif _empty_ledgers:
        shutil.copytree(_empty_ledgers[0], ledger)
    else:
        LedgerTables(CurrentSession(spark), state).ensure()
        kept = Path(tempfile.mkdtemp()) / "ledger"
        shutil.copytree(ledger, kept)
        atexit.register(shutil.rmtree, kept.parent, ignore_errors=True)
        _empty_ledgers.append(kept)


@dataclass(frozen=True)
class Sites:
    """Everything below ``folder``: two sites, their channels, their topology. The folder can be
    copied.
    """

    folder: Path

    @classmethod
    def make(cls, folder: Path, **settings: object) -> Sites:
        """Create the folder and the topology; ``settings`` are those of the sender ``east``."""
        sites = cls(folder)
        sites.write_topology(**settings)
        return sites

    def write_topology(self, **settings: object) -> None:
        """Write the topology; ``settings`` are those of the sender ``east``."""
        captured = {
            table: {"start": "snapshot" if KEYS[table] else {"version": 0}}
            for table in ("orders", "readings")
        }
        write_topology(
            self.folder,
            {
                "east": channel_settings(self.folder, "channel", settings),
                "events": channel_settings(self.folder, "events"),
            },
            {
                table: {"keys": keys, "senders": [SENDERS[table]]}
                | captured.get(table, {"source": "sink"})
                for table, keys in KEYS.items()
            },
        )

    def set_site(self, site: str, **settings: object) -> None:
        """Change a site's settings in the topology."""
        file = self.folder / "wan.yaml"
        content = yaml.safe_load(file.read_text())
        content["sites"][site] |= settings
        file.write_text(yaml.safe_dump(content))

    def copy(self, folder: Path) -> Sites:
        """Copy the two sites, as a machine restored from an image has them."""
        shutil.copytree(self.folder, folder)
        copy_channels(self.folder, folder)
        return Sites(folder)

    @property
    def topology(self) -> Topology:
        return load_topology(self.folder / "wan.yaml")

    # --- writers of the source

    def path(self, table: str, site: str = NEWARK) -> Path:
        return self.folder / site / table

    def append(self, table: str, rows: Iterable[Row], site: str = NEWARK) -> None:
        """Insert rows in one commit; the first one creates the table, with its change feed on."""
        write_deltalake(
            self.path(table, site),
            pa.Table.from_pylist([dict(row) for row in rows], schema=COLUMNS[table]),
            mode="append",
            configuration={"delta.enableChangeDataFeed": "true"} if site == NEWARK else None,
        )

    def upsert(self, table: str, rows: Iterable[Row], site: str = NEWARK) -> None:
        """Update the rows with known keys and insert the others, in one commit."""
        on = " AND ".join(f"t.{key} = s.{key}" for key in KEYS[table])
        merge = DeltaTable(self.path(table, site)).merge(
            pa.Table.from_pylist([dict(row) for row in rows], schema=COLUMNS[table]),
            on,
            source_alias="s",
            target_alias="t",
        )
        merge.when_matched_update_all().when_not_matched_insert_all().execute()

    def delete(self, table: str, condition: str, site: str = NEWARK) -> None:
        """Delete in one commit."""
        DeltaTable(self.path(table, site)).delete(condition)

    def change(self, start: int) -> None:
        """Make seven commits to both tables: inserts, updates and deletes of keys from
        ``start``; equal rows in the keyless one.
        """
        ids = range(start, start + 8)
        self.append("orders", [{"id": i, "item": f"item {i}", "amount": i / 4} for i in ids])
        self.append(
            "readings", [{"sensor": "attic", "value": 20.5}, {"sensor": "attic", "value": 20.5}]
        )
        self.upsert(
            "orders",
            [{"id": i, "item": "changed", "amount": -1.0} for i in range(start - 2, start + 4)],
        )
        self.append("readings", [{"sensor": f"cellar {i}", "value": float(i)} for i in ids])
        self.delete("orders", f"id IN ({start + 1}, {start + 7})")
        self.append("readings", [{"sensor": "attic", "value": 20.5}])
        self.upsert("orders", [{"id": start + 1, "item": "back again", "amount": 0.0}])

    # --- senders and receivers in this process

    def send(self, spark: Any, **settings: Any) -> list[StreamStatus]:
        """Run the sender ``east`` until nothing is left to publish. Raises the error that holds
        a stream.
        """
        handle = Sender(spark, self.topology, NEWARK, **{"senders": ["east"], **settings}).start(
            available_now=True
        )
        handle.await_termination()
        return handle.status()

    def receive(self, spark: Any, **settings: Any) -> dict[str, TableStatus]:
        """Run seattle's receiver until nothing is left to apply; return the status of each
        table.
        """
        handle = Receiver(spark, self.topology, SEATTLE, **{"senders": ["east"], **settings}).start(
            available_now=True
        )
        with suppress(StreamsHeldError):
            handle.await_termination()
        return {status.table: status for status in handle.status()}

    def replicate(self, spark: Any) -> dict[str, TableStatus]:
        """Send, and apply in this thread."""
        self.send(spark)
        return self.apply(spark)

    def apply(
        self, spark: Any, sender: str = "east", rounds: int = 1, **decisions: Decisions
    ) -> dict[str, TableStatus]:
        """Do what :meth:`receive` does, in this thread. ``decisions``: by table."""
        self.make_ledger(spark)
        inbound = self.inbound(spark, sender, **decisions)
        for _ in range(rounds):
            inbound.retry(spark)
        return {status.table: status for status in inbound.statuses()}

    def make_ledger(self, spark: Any) -> None:
        """Create seattle's ledger, empty."""
        make_ledger(spark, self.topology.site(SEATTLE).state)

    def inbound(self, spark: Any, sender: str = "east", **decisions: Decisions) -> Inbound:
        receiver = Receiver(spark, self.topology, SEATTLE, senders=[sender], decisions=decisions)
        return inbound_of(receiver)

    def applier(self, spark: Any, table: str) -> TableApplier:
        """Return seattle's applier of a table, to run step by step. Each acts as a receiver of
        its own.
        """
        self.make_ledger(spark)
        log = self.log(table)
        made = self.inbound(spark, SENDERS[table]).tables.get(table)
        made._session.spark = spark
        return made._applier(InboundStream(log.stream, table), log)

    def publisher(self, spark: Any, table: str) -> Publisher:
        """Return newark's publisher of a table, to run step by step. Each acts as a sender of
        its own.
        """
        topology = self.topology
        sender = Sender(spark, topology, NEWARK, senders=["east"])
        watch = AckWatch(self.channel())
        stream = sender._stream(
            Running(),
            topology.sender("east"),
            topology.table(table),
            watch=watch,
            available_now=True,
            control=ControlKeeper(topology, topology.site(NEWARK)),
        )
        assert stream.publisher is not None
        stream.session.spark = spark
        return stream.publisher

    def write_events(self, table: str, frame: Any, **options: object) -> None:
        """Write a batch of user events; ``frame`` has the columns of :data:`COLUMNS`."""
        writer = frame.write.format("wan").mode("append")
        writer.options(**self.sink_options(table), **options).save()

    def sink_options(self, table: str) -> dict[str, str]:
        return {
            "config": str(self.folder / "wan.yaml"),
            "sender": "events",
            "table": table,
            "eventId": "event",
        }

    # --- channel, logs and tables

    def channel(self, sender: str = "east") -> Channel:
        settings = self.topology.sender(sender)
        return open_channel(settings.channel, settings.storage)

    def channel_options(self, sender: str = "east") -> dict[str, str]:
        """Return a channel as a user names it in options of sink and source."""
        channel = self.channel(sender)
        storage = {f"storage.{name}": text for name, text in channel.storage.items()}
        return {"channel": channel.url, **storage}

    def log(self, table: str) -> StreamLog:
        return StreamLog(self.channel(SENDERS[table]), stream_name(NEWARK, SENDERS[table], table))

    def numbers(self, table: str) -> list[int]:
        """Return the epochs in a table's log; none where nobody has made its topics yet."""
        try:
            return self.log(table).since(0)
        except ChannelError as error:
            if "The topics are not there" not in str(error):
                raise
            return []

    def named_frames(self, table: str) -> set[str]:
        log = self.log(table)
        return {frame.path for number in log.since(0) for frame in log.read(number).frames}

    def frames(self, table: str) -> set[str]:
        """Return all frames of a table's stream, named or not."""
        log = self.log(table)
        return frames(log.channel, log.stream)

    def ack(self, table: str) -> Ack | None:
        return self.log(table).acks().get(SEATTLE)

    def acked(self, table: str) -> int:
        """Return the epoch through which seattle has acked; 0 without an ack."""
        ack = self.ack(table)
        return ack.applied if ack is not None else 0

    def history(self, table: str, site: str = SEATTLE) -> list[str]:
        """Return the user metadata of the commits that the history still has."""
        entries = DeltaTable(self.path(table, site)).history()
        return [entry.get("userMetadata") or "" for entry in entries]

    def version(self, table: str, site: str = SEATTLE) -> int:
        return DeltaTable(self.path(table, site)).version()

    def table(self, table: str, site: str, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the rows as an independent reader (deltalake) sees them."""
        names = ", ".join(f'"{name}"' for name in columns) if columns else "*"
        query = QueryBuilder().register("t", DeltaTable(self.path(table, site)))
        rows = pa.table(query.execute(f"SELECT {names} FROM t").read_all())
        plain = [f.with_type(pa.string()) if f.type == pa.string_view() else f for f in rows.schema]
        return rows.cast(pa.schema(plain))

    def rows(self, table: str, site: str = SEATTLE) -> Counter[tuple[Any, ...]]:
        arrow = self.table(table, site)
        names = sorted(arrow.schema.names)
        return Counter(tuple(row[name] for name in names) for row in arrow.to_pylist())

    def dead_letters(self, table: str, site: str = SEATTLE) -> list[dict[str, Any]]:
        """Return a table's rows in a site's ledger of dead letters."""
        letters: list[dict[str, Any]] = self.table("_wan/ledger/dead_letters", site).to_pylist()
        return [letter for letter in letters if letter["table"] == table]

    def digest(self, table: str, site: str) -> str:
        return digest(row_hashes(self.table(table, site)))

    def assert_equal(self, *tables: str) -> None:
        """Check that both sites have the same rows, each as often: by multisets, and by the
        digest of their row hashes.
        """
        for table in tables or ("orders", "readings"):
            here, there = self.rows(table, NEWARK), self.rows(table, SEATTLE)
            assert there == here, (
                f"{table}: missing at seattle {here - there}, too many there {there - here}"
            )
            assert self.digest(table, SEATTLE) == self.digest(table, NEWARK)

    def are_equal(self) -> bool:
        try:
            self.assert_equal()
        except AssertionError:
            return False
        return True


def at(second: int) -> datetime.datetime:
    """Return the time so many seconds after 2024-01-01 UTC."""
    return datetime.datetime(2024, 1, 1, tzinfo=datetime.timezone.utc) + datetime.timedelta(
        seconds=second
    )
