"""The marks of a receiver's tables on their way to the ledger: several in one commit.

A commit to the ledger takes about as long for ten marks as for one. So a table whose commit is made
waits, without a worker, and its mark is written with those of other tables. Then it goes on, and
acks. While no other work waits for a worker, its mark is written at once.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from spark_wan.delta.errors import error_text
from spark_wan.delta.sessions import CurrentSession
from spark_wan.ledger.ledger import Ledger
from spark_wan.ledger.store import DeltaLedgerStore
from spark_wan.ledger.tables import LedgerTables
from spark_wan.messages import message_log
from spark_wan.runtime.scheduler import UNTIL_WOKEN, Activity, Found, Next, Scheduler, Turn

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = message_log(__name__)

LONGEST_WAIT = 3.0
"""Longest time in seconds for which marks wait for others, and for a worker."""
POLL_INTERVAL = 0.2
"""Seconds between looks whether a worker is free."""


@dataclass(eq=False)
class LedgerWriter(Activity):
    """Writes marks to the ledger of a site. ``state``: as of LedgerTables."""

    state: str
    scheduler: Scheduler
    _waiting: dict[Activity, Ledger] = field(default_factory=dict)
    _since: float = 0.0
    """When the first of them was given."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.name = f"ledger in {self.state}"

    def give(self, table: Activity, ledger: Ledger) -> None:
        """Write the unwritten rows of a table's ledger, which must not change until then; then wake
        the table."""
        with self._lock:
            if not self._waiting:
                self._since = time.monotonic()
            self._waiting[table] = ledger
        self.scheduler.wake(self)

    def has(self, table: Activity) -> bool:
        """Whether the rows of a table still wait. Afterwards, its ledger has those that could not
        be written."""
        return table in self._waiting

    def look(self, spark: SparkSession) -> Turn:
        """Find out whether it is time to write."""
        if not self._waiting:
            return UNTIL_WOKEN
        if self.scheduler.is_busy and time.monotonic() - self._since < LONGEST_WAIT:
            return Next(POLL_INTERVAL)
        return Found(self._work, first=True)

    def _work(self, spark: SparkSession) -> Turn:
        self.write(spark)
        return Next(0.0) if self._waiting else UNTIL_WOKEN

    def write(self, spark: SparkSession) -> None:
        """Write all marks that wait. If that fails, each table tries alone, and reports why; after
        a stop, the next start finds the marks in the tables' histories."""
        with self._lock:
            taken = dict(self._waiting)
        if not taken:
            return
        rows = [(each.table, row) for each in taken.values() for row in each.unwritten]
        try:
            DeltaLedgerStore(LedgerTables(CurrentSession(spark), self.state)).append_all(rows)
        except Exception as error:
            log.info(
                "%d marks could not be written together, so each table writes its own: %s",
                len(rows),
                error_text(error),
                event="marks-not-written",
            )
        else:
            for ledger in taken.values():
                ledger.written()
        with self._lock:
            for table in taken:
                del self._waiting[table]
            self._since = time.monotonic()
        for table in taken:
            self.scheduler.wake(table)
