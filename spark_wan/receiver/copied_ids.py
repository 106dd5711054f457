"""The event IDs of the rows of a copy: what the ledger of a site that serves it has of them."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_wan.capture.ranges import CaptureResult
from spark_wan.capture.source import DeltaSource
from spark_wan.delta.tables import load, newest_commit
from spark_wan.events.operations import EVENT_ID_COLUMNS
from spark_wan.ledger.event_ids import tokens_through
from spark_wan.ledger.ledger import Ledger
from spark_wan.ledger.tables import LedgerTables
from spark_wan.wire.frame import FrameHeader
from spark_wan.wire.ledger import FLOOR


@dataclass(frozen=True)
class IdsCut:
    """The event IDs of a table that count at a version of the ledger."""

    version: int
    tokens: frozenset[str]
    floor: int | None


@dataclass
class RecordedEventIds:
    """The event IDs of a user stream's table, in the ledger of a site that serves copies of it."""

    tables: LedgerTables
    table: str
    origin: str
    source: DeltaSource
    """Of the ledger's table of event IDs."""

    def cut(self, ledger: Ledger) -> IdsCut:
        """Return the IDs of the applies that a ledger knows, and no others. Raises
        SourceUnreadableError when a later apply was folded with them since."""
        # Marks first: a fold renames tokens, and then deletes the marks.
        marks = ledger.stored_marks()
        location = self.tables.location("event_ids")
        with self.tables.errors():
            version = newest_commit(self.tables.spark, location).version
            found = self._at(load(self.tables.spark, location, versionAsOf=version))
            counts = found.groupBy("token").agg(F.max("time")).collect()
        floors = [time for token, time in counts if token == FLOOR]
        found_tokens = [token for token, _ in counts if token != FLOOR]
        tokens = tokens_through(
            ledger.last_apply, found_tokens, marks, table=self.table, since=ledger.copied
        )
        return IdsCut(version, tokens, max(floors, default=None))

    def write(self, cut: IdsCut, header: FrameHeader) -> CaptureResult:
        """Write the frames with the IDs of a cut."""

        def choose(rows: DataFrame) -> DataFrame:
            schema = "token string"
            tokens = rows.sparkSession.createDataFrame([(each,) for each in cut.tokens], schema)
            return self._at(rows).join(F.broadcast(tokens), "token", "left_semi")

        return self.source.rows_at(
            cut.version, EVENT_ID_COLUMNS, header, source_version=-1, choose=choose
        )

    def _at(self, rows: DataFrame) -> DataFrame:
        return rows.where((F.col("table") == self.table) & (F.col("origin") == self.origin))
