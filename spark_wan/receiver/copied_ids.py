"""The event IDs of the rows of a copy: what the ledger of a site that serves it has of them."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_wan.capture.ranges import CaptureResult
from spark_wan.capture.source import DeltaSource
from spark_wan.delta.tables import load, newest_commit
from spark_wan.errors import SourceUnreadableError
from spark_wan.events.operations import EVENT_ID_COLUMNS
from spark_wan.ledger.ledger import Ledger
from spark_wan.ledger.tables import LedgerTables
from spark_wan.ledger.total import sorted_rows
from spark_wan.wire.frame import FrameHeader
from spark_wan.wire.ledger import FLOOR, token_range


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
        _, rows, _ = sorted_rows(ledger.store.load(self.table))
        marks = [row.mark for row in (*rows, *ledger.unwritten)]
        own = range(ledger.copied, ledger.last_apply + 1)
        marked = {mark.token for mark in marks if mark.apply in own}
        location = self.tables.location("event_ids")
        with self.tables.errors():
            version = newest_commit(self.tables.spark, location).version
            found = self._at(load(self.tables.spark, location, versionAsOf=version))
            counts = found.groupBy("token").agg(F.max("time")).collect()
        floors = [time for token, time in counts if token == FLOOR]
        ranges = {token: of for token, _ in counts if (of := token_range(token)) is not None}
        if any(last > ledger.last_apply for _, last in ranges.values()):
            raise SourceUnreadableError(
                f"{self.table}: no copy is served yet: the ledger was folded meanwhile. The "
                "request is tried again."
            )
        counting = {token for token, (_, last) in ranges.items() if last >= ledger.copied}
        tokens = counting | (marked & {token for token, _ in counts})
        return IdsCut(version, frozenset(tokens), max(floors, default=None))

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
