"""Two sites with a test's own tables: :class:`sites.Sites` for any topology of newark and
seattle.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
from default_channel import channel_settings
from pyspark.sql import functions as F
from sites import NEWARK, SEATTLE, Sites, write_topology

from spark_wan.delta.dataframes import map_in_arrow
from spark_wan.delta.sql import reference
from spark_wan.delta.tables import load
from spark_wan.events.row_hash import hex_ids, row_hashes
from spark_wan.log.stream_log import StreamLog
from spark_wan.topology.model import stream_name
from spark_wan.wire.frame import decode_frame
from spark_wan.wire.manifest import Manifest

Settings = Mapping[str, Any]


class Pair(Sites):
    """Everything below ``folder``. Settings that a table or sender leaves out get defaults."""

    @classmethod
    def of(
        cls,
        folder: Path,
        tables: Mapping[str, Settings],
        senders: Mapping[str, Settings] | None = None,
    ) -> Pair:
        """``tables``: name -> keys, senders (``[east]``), start, at. ``senders``: name ->
        settings (``east`` alone).
        """
        folder.mkdir(parents=True)
        senders = senders if senders is not None else {"east": {}}
        first = next(iter(senders))
        write_topology(
            folder,
            {
                name: channel_settings(folder, f"channel-{name}", settings)
                for name, settings in senders.items()
            },
            {name: {"keys": ["id"], "senders": [first], **table} for name, table in tables.items()},
        )
        return cls(folder)

    def log(self, table: str) -> StreamLog:
        sender = self.topology.table(table).senders[0]
        return StreamLog(self.channel(sender), stream_name(NEWARK, sender, table))

    def manifests(self, table: str) -> list[Manifest]:
        """Return the manifests in a table's log."""
        return [self.log(table).read(number) for number in self.numbers(table)]

    def events(self, table: str, number: int) -> pa.Table:
        """Return the events of one epoch, as the frames have them."""
        log = self.log(table)
        paths = [frame.path for frame in log.read(number).frames]
        return pa.Table.from_batches(
            [decode_frame(log.channel.get_frame(path), path)[1] for path in paths]
        )

    # --- through Spark

    def location(self, table: str, site: str = NEWARK) -> str:
        return self.topology.table(table).location(site)

    def name(self, table: str, site: str = NEWARK) -> str:
        """Return a table's name in SQL."""
        return reference(self.location(table, site))

    def make(self, spark: Any, table: str, columns: str, properties: str = "") -> None:
        """Create a source table, with its change feed on."""
        more = f", {properties}" if properties else ""
        feed = f"TBLPROPERTIES (delta.enableChangeDataFeed = true{more})"
        spark.sql(f"CREATE TABLE {self.name(table)} ({columns}) USING delta {feed}")

    def sql(self, spark: Any, table: str, statement: str) -> None:
        """Run a statement on a source table; ``{t}`` stands for its name."""
        spark.sql(statement.replace("{t}", self.name(table))).collect()

    def hashes(self, spark: Any, table: str, site: str = SEATTLE) -> list[str]:
        """Return the content hashes of a table's rows, sorted."""
        return hashes(load(spark, self.location(table, site)))

    def assert_same(self, spark: Any, *tables: str) -> None:
        """Check that both sites have the same columns and the same rows, bit for bit, each as
        often.
        """
        frames = {
            (table, site): load(spark, self.location(table, site))
            for table in tables
            for site in (NEWARK, SEATTLE)
        }
        hashed = dict(zip(frames, all_hashes(list(frames.values())), strict=True))
        for table in tables:
            assert sorted(frames[table, SEATTLE].columns) == sorted(frames[table, NEWARK].columns)
            assert hashed[table, SEATTLE] == hashed[table, NEWARK], table


def hashes(frame: Any) -> list[str]:
    """Return the content hashes of rows, sorted."""
    return all_hashes([frame])[0]


def all_hashes(frames: Sequence[Any]) -> list[list[str]]:
    """Return the content hashes of the rows of each frame, sorted. Computed by tasks of one job,
    since ``toArrow`` fails on nulls among nested variants.
    """

    def hashed(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.record_batch([hex_ids(row_hashes(batch))], names=["hash"])

    parts = (
        map_in_arrow(frame, hashed, "hash string").withColumn("n", F.lit(n))
        for n, frame in enumerate(frames)
    )
    rows = reduce(lambda one, other: one.unionAll(other), parts).collect()
    return [sorted(row["hash"] for row in rows if row["n"] == n) for n in range(len(frames))]
