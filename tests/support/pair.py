"""Two sites with tables of a test's own: what :class:`sites.Sites` does, for any topology of newark and seattle."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import yaml
from pyspark.sql import functions as F
from sites import NEWARK, SEATTLE, Sites

from spark_wan.channels.log import StreamLog
from spark_wan.delta.dataframes import map_in_arrow
from spark_wan.delta.sql import reference
from spark_wan.delta.tables import load
from spark_wan.events.row_hash import hex_ids, row_hashes
from spark_wan.topology.model import stream_name
from spark_wan.wire.frame import decode_frame
from spark_wan.wire.manifest import Manifest

Settings = Mapping[str, Any]


class Pair(Sites):
    """Everything below ``folder``. What a table or sender does not say of itself is filled in."""

    @classmethod
    def of(
        cls,
        folder: Path,
        tables: Mapping[str, Settings],
        senders: Mapping[str, Settings] | None = None,
    ) -> Pair:
        """``tables``: name -> keys, senders (``[east]``), start, at. ``senders``: name -> settings; ``east`` alone by default."""
        folder.mkdir(parents=True)
        found = cls(folder)
        named = senders if senders is not None else {"east": {}}
        content = {
            "version": 1,
            "sites": {site: {"state": f"./{site}/_wan"} for site in (NEWARK, SEATTLE)},
            "senders": {
                name: {
                    "site": NEWARK,
                    "remotes": [SEATTLE],
                    "channel": f"./channel-{name}",
                    "batch_interval": "100ms",
                    **settings,
                }
                for name, settings in named.items()
            },
            "tables": {
                name: {
                    "keys": ["id"],
                    "writers": [NEWARK],
                    "senders": [next(iter(named))],
                    "at": {site: f"./{site}/{name}" for site in (NEWARK, SEATTLE)},
                    **table,
                }
                for name, table in tables.items()
            },
        }
        (folder / "wan.yaml").write_text(yaml.safe_dump(content))
        return found

    def log(self, table: str) -> StreamLog:
        sender = self.topology.table(table).senders[0]
        return StreamLog(self.channel(sender), stream_name(NEWARK, sender, table))

    def manifests(self, table: str) -> list[Manifest]:
        """The epochs in a table's log."""
        return [self.log(table).read(number) for number in self.numbers(table)]

    def events(self, table: str, number: int) -> pa.Table:
        """The events of one epoch, as they travel."""
        log = self.log(table)
        paths = [frame.path for frame in log.read(number).frames]
        return pa.Table.from_batches(
            [decode_frame(log.channel.get_frame(path), path)[1] for path in paths]
        )

    # --- through Spark

    def location(self, table: str, site: str = NEWARK) -> str:
        return self.topology.table(table).location(site)

    def name(self, table: str, site: str = NEWARK) -> str:
        """A table's name in SQL."""
        return reference(self.location(table, site))

    def make(self, spark: Any, table: str, columns: str, properties: str = "") -> None:
        """Make a source table, its change feed on."""
        more = f", {properties}" if properties else ""
        spark.sql(
            f"CREATE TABLE {self.name(table)} ({columns}) USING delta TBLPROPERTIES (delta.enableChangeDataFeed = true{more})"
        )

    def sql(self, spark: Any, table: str, statement: str) -> None:
        """Run a statement on a source table; ``{t}`` stands for its name."""
        spark.sql(statement.replace("{t}", self.name(table))).collect()

    def hashes(self, spark: Any, table: str, site: str = SEATTLE) -> list[str]:
        """The content hashes of a table's rows, sorted."""
        return hashes(load(spark, self.location(table, site)))

    def assert_same(self, spark: Any, *tables: str) -> None:
        """Both sites have the same columns and the same rows, bit for bit, each as often."""
        frames = {
            (table, site): load(spark, self.location(table, site))
            for table in tables
            for site in (NEWARK, SEATTLE)
        }
        found = dict(zip(frames, all_hashes(list(frames.values())), strict=True))
        for table in tables:
            assert sorted(frames[table, SEATTLE].columns) == sorted(frames[table, NEWARK].columns)
            assert found[table, SEATTLE] == found[table, NEWARK], table


def hashes(frame: Any) -> list[str]:
    """The content hashes of rows, sorted."""
    return all_hashes([frame])[0]


def all_hashes(frames: Sequence[Any]) -> list[list[str]]:
    """The content hashes of the rows of each frame, sorted; computed by tasks of one job, since ``toArrow`` fails on nulls among nested variants."""

    def hashed(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.record_batch([hex_ids(row_hashes(batch))], names=["hash"])

    each = (
        map_in_arrow(frame, hashed, "hash string").withColumn("n", F.lit(n))
        for n, frame in enumerate(frames)
    )
    rows = reduce(lambda one, other: one.unionAll(other), each).collect()
    return [sorted(row["hash"] for row in rows if row["n"] == n) for n in range(len(frames))]
