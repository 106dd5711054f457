"""The hourly work on a site's ledger: it keeps as much as is needed, in few files.

Event IDs expire, marks are folded, small files are compacted, and once a day unused files are
deleted. All of it can be left to the next hour: nothing that is applied depends on it. Receivers of
a site may do it at the same time; one of two conflicting commits is tried again, or left.

With nothing to do it costs five small queries. A fold costs one to three commits per table and a
rewrite of the event IDs of the last hour, and now and then of earlier ones. VACUUM lists the
ledger's folders.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark_wan.delta.errors import ErrorKind, error_text
from spark_wan.delta.sessions import CurrentSession, lost_session, temporary_settings
from spark_wan.delta.sql import literal, reference
from spark_wan.delta.tables import table_detail
from spark_wan.errors import StoppedError
from spark_wan.ledger.applied_ids import AppliedEventIds
from spark_wan.ledger.folding import LEAST_MARKS, fold
from spark_wan.ledger.store import DeltaLedgerStore
from spark_wan.ledger.tables import LedgerTables
from spark_wan.messages import message_log
from spark_wan.runtime.scheduler import Activity, Found, Lane, Next, Turn
from spark_wan.steps import run

log = message_log(__name__)

FIRST_INTERVAL = 300.0
"""Seconds from the start of a process to its first run."""
INTERVAL = 3_600.0
"""Seconds between two runs of a process."""
VACUUM_INTERVAL = 86_400.0
"""Seconds between two deletions of unused files by a process."""
FEW_TASKS = {"spark.sql.sources.parallelPartitionDiscovery.parallelism": "8"}
"""A VACUUM lists folders in so many tasks, by default 10,000: for three small tables on two cores
that took a minute, in which the MERGEs beside it took ten times as long."""
MOST_FILES = 20
"""Maximum number of files of a table before it is compacted."""


@dataclass(eq=False)
class LedgerMaintenance(Activity):
    """The maintenance of a site's ledger by one process. ``state``: as of LedgerTables."""

    site: str
    state: str
    event_id_ttl: Mapping[str, float]
    """Table -> seconds for which its event IDs are kept. Other tables keep them for ever."""
    check_stopped: Callable[[], None] = lambda: None
    """Raises StoppedError when the process is to end."""
    _due: float = field(default_factory=lambda: time.monotonic() + FIRST_INTERVAL)
    _vacuum_due: float = 0.0
    _once: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.name = f"ledger of site {self.site}"

    def run_once(self, spark: SparkSession) -> None:
        """Do the work unless it was done before: for processes that end before it is time."""
        if self._once.acquire(blocking=False):
            self.run(spark)

    def look(self, spark: SparkSession) -> Turn:
        """Find out whether it is time."""
        self.check_stopped()
        wait = self._due - time.monotonic()
        return Next(wait) if wait > 0 else Found(self._work, Lane.LARGE)

    def _work(self, spark: SparkSession) -> Turn:
        self._due = time.monotonic() + INTERVAL
        self.run(spark)
        return Next(INTERVAL)

    def run(self, spark: SparkSession) -> None:
        """Do the work now.

        Raises StoppedError, and errors of cancelled jobs and ended sessions. Other errors are
        logged: the next run tries again.
        """
        tables = LedgerTables(CurrentSession(spark), self.state)
        changed = False
        with self._left_to_next_run(spark, "event IDs could not be expired"):
            changed |= self._expire(tables)
        with self._left_to_next_run(spark, "marks could not be folded"):
            changed |= self._fold(tables)
        with self._left_to_next_run(spark, "old positions could not be deleted"):
            changed |= self._delete_positions(tables)
        for name in ("applied", "dead_letters"):  # folds compact event_ids
            with self._left_to_next_run(spark, f"{name} could not be compacted"):
                changed |= self._compact(tables, name)
        if changed and time.monotonic() >= self._vacuum_due:
            with self._left_to_next_run(spark, "unused files could not be deleted"):
                for name in ("applied", "event_ids", "dead_letters"):
                    self.check_stopped()
                    tables.shorten_log(name)
                    # With the table's own retention, a week: an older commit may be unfinished.
                    with temporary_settings(spark, FEW_TASKS):
                        spark.sql(f"VACUUM {reference(tables.location(name))}").collect()
                self._vacuum_due = time.monotonic() + VACUUM_INTERVAL

    def _expire(self, tables: LedgerTables) -> bool:
        """Delete event IDs that are older than their table keeps them."""
        if not self.event_id_ttl:
            return False
        now = time.time()
        before = {table: int((now - ttl) * 1_000_000) for table, ttl in self.event_id_ttl.items()}
        too_old = F.lit(False)
        for table, newest in before.items():
            too_old = too_old | ((F.col("table") == table) & (F.col("time") <= newest))
        expired = tables.read("event_ids").where(too_old & F.col("event_id").isNotNull())
        places = expired.select("table", "origin").distinct().collect()
        for table, origin in places:
            self.check_stopped()
            AppliedEventIds(tables, table, origin).expire(before[table])
        return bool(places)

    def _fold(self, tables: LedgerTables) -> bool:
        """Fold the tables that have enough marks."""
        marks = tables.read("applied").where(F.col("token").isNotNull()).groupBy("table").count()
        grown = [row[0] for row in marks.where(F.col("count") >= LEAST_MARKS).collect()]
        store = DeltaLedgerStore(tables)
        folded = False
        for table in sorted(grown):
            with self._left_to_next_run(tables.spark, f"{table}: marks could not be folded"):
                while run(fold(store, self.site, table), self.check_stopped):
                    folded = True
        return folded

    def _delete_positions(self, tables: LedgerTables) -> bool:
        """Delete the positions of idle tables that newer ones replace: a table gets one a day."""
        positions = tables.read("applied").where(F.col("apply").isNull()).groupBy("table")
        counted = positions.agg(
            F.count("*").alias("count"), F.max("target_version").alias("newest")
        )
        grown = counted.where(F.col("count") >= LEAST_MARKS).collect()
        for table, _, newest in grown:
            self.check_stopped()
            tables.spark.sql(
                f"DELETE FROM {reference(tables.location('applied'))} WHERE `table` = "
                f"{literal(table)} AND apply IS NULL AND target_version < {newest}"
            ).collect()
        return bool(grown)

    def _compact(self, tables: LedgerTables, name: str) -> bool:
        self.check_stopped()
        location = tables.location(name)
        if table_detail(tables.spark, location, "numFiles") <= MOST_FILES:
            return False
        tables.spark.sql(f"OPTIMIZE {reference(location)}").collect()
        return True

    @contextmanager
    def _left_to_next_run(self, spark: SparkSession, what: str) -> Iterator[None]:
        try:
            yield
        except StoppedError:
            raise
        except Exception as error:
            self.check_stopped()
            if ErrorKind.CANCELLED.matches(error) or lost_session(spark) is not None:
                raise
            log.warning(
                "the ledger of site %s: %s now (will retry in an hour): %s",
                self.site,
                what,
                error_text(error),
                event="ledger-not-maintained",
                site=self.site,
                what_to_do="The ledger grows until then. If this stays, check that the receiver "
                "may write to the site's state.",
            )
