"""The source of a stream, read as its sender reads it; what that writes goes nowhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from spark_wan.capture.altered_values import feed_settings
from spark_wan.capture.ranges import ALL_PARTS, CaptureRange, CaptureResult, Part
from spark_wan.capture.source import DeltaSource
from spark_wan.delta.dataframes import has_key, select_columns
from spark_wan.delta.sessions import CurrentSession
from spark_wan.delta.tables import load, table_detail
from spark_wan.log.stream_log import StreamLog
from spark_wan.rehearsal.nowhere import NoChannel
from spark_wan.rehearsal.sending import Captured
from spark_wan.sender.job import Sender
from spark_wan.sender.outbound_stream import StreamStatus
from spark_wan.sender.publish import CaptureSettings
from spark_wan.topology import model
from spark_wan.topology.model import Table, Topology
from spark_wan.wire.frame import FrameHeader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass
class RehearsedSource(DeltaSource):
    """A source that is captured, and whose frames nobody gets. Remembers the columns of the next
    epoch."""

    captured: Captured = field(default_factory=Captured)
    rows: bool = True
    """Read the rows, as a capture does. False: only see that their files can be read."""
    schema: Mapping[str, Any] | None = field(default=None, init=False)
    """The columns that were captured last; None: none were."""

    @classmethod
    def of(cls, source: DeltaSource, captured: Captured, *, rows: bool) -> RehearsedSource:
        """Return a sender's source as it is rehearsed."""
        given = {each.name: getattr(source, each.name) for each in fields(source) if each.init}
        given |= {
            "channel": NoChannel("nowhere"),
            "record_dead_letters": captured.note_dead_letters,
            "note_duplicates": lambda rows: None,  # they are counted apart
        }
        return cls(**given, captured=captured, rows=rows)

    def capture(self, planned: CaptureRange, header: FrameHeader) -> CaptureResult:
        self.schema = planned.schema
        if self.rows:
            self.captured.is_read = True
            return super().capture(planned, header)
        with self._errors(planned.schema), feed_settings(self.spark):
            feed = load(
                self.spark,
                self.table.location,
                readChangeFeed="true",
                startingVersion=planned.first_version,
                endingVersion=planned.last_version,
            )
            feed.count()  # opens its files, and reads no column
        return CaptureResult()

    def snapshot(
        self,
        version: int,
        schema: Mapping[str, Any],
        header: FrameHeader,
        part: Part = ALL_PARTS,
    ) -> CaptureResult:
        self.schema = schema
        if self.rows:
            self.captured.is_read = True
            return super().snapshot(version, schema, header, part)
        from pyspark.sql import functions as F

        self.check_feed()
        with self._errors(schema):
            rows = load(self.spark, self.table.location, versionAsOf=version)
            # Opens its files, and reads no column. Of its log alone, Delta would know the number.
            named = F.length(rows.metadataColumn("_metadata")["file_name"])
            rows.where(named > 0).select(F.lit(1)).count()
        return CaptureResult()

    def repeated_keys(self) -> int:
        """Return how many keys have several rows."""
        from pyspark.sql import functions as F

        keys = select_columns(self.table.keys)
        with self._errors():
            rows = load(self.spark, self.table.location).where(has_key(self.table.keys))
            return (
                rows.groupBy(*keys)
                .agg(F.count(F.lit(1)).alias("_wan_rows"))
                .where("_wan_rows > 1")
                .count()
            )

    def properties(self) -> Mapping[str, str]:
        """Return the properties of the table."""
        with self._errors():
            return table_detail(self.spark, self.table.location, "properties") or {}


class RehearsedSender(Sender):
    """A sender's settings and source of one stream, without the sender."""

    def __init__(
        self, spark: SparkSession, topology: Topology, sender: model.Sender, table: Table
    ) -> None:
        super().__init__(spark, topology, sender.site, senders=[sender.name], tables=[table.name])
        self.sender, self.table = sender, table

    @property
    def settings(self) -> CaptureSettings:
        """What the stream is for, and where it begins."""
        return self._settings(self.sender, self.table)

    def source(self, log: StreamLog, captured: Captured, *, rows: bool) -> RehearsedSource:
        """Return the table as it is captured. ``rows``: see :class:`RehearsedSource`."""
        status = StreamStatus(log.stream, self.table.name)
        session = CurrentSession(self.spark)
        source = self._source(self.sender, self.table, log, status=status, session=session)
        return RehearsedSource.of(source, captured, rows=rows)
