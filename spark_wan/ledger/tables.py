"""The Delta tables of a site's ledger, below its ``state`` folder. Written by receivers, and by senders for dead letters.

``ledger/applied``       one row per marked commit: where in which target table, and the mark; now and then, how far the history was seen
``ledger/event_ids``     event IDs of users' streams with their content hash; a row counts when its token is marked
``ledger/dead_letters``  events that could not be applied or sent, with their cause; those of receivers count when their token is marked

All are append-only. Appends do not conflict with each other.
"""

from __future__ import annotations

import re
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from spark_wan.delta.errors import ErrorKind, error_text
from spark_wan.delta.sessions import lost_session
from spark_wan.delta.sql import reference
from spark_wan.delta.tables import load, table_exists
from spark_wan.errors import LedgerError, WanError, anew

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


SCHEMAS = {
    "applied": "version int, table string, target_id string, target_version bigint, apply bigint, token string, mark string",
    "event_ids": "version int, table string, origin string, event_id string, content string, time bigint, token string",
    "dead_letters": (
        "version int, side string, table string, stream string, event_id string, origin_version bigint, operation string, "
        "key string, cause string, row string, payload binary, token string"
    ),
}
LEDGER_VERSION = 1
_NAMED = re.compile(rf"/ledger/({'|'.join(SCHEMAS)})\b")
_ATTEMPTS = 5
_creating = threading.Lock()


class LedgerTables:
    """The ledger's tables of one site. ``state`` is the site's state folder or URL."""

    def __init__(self, spark: SparkSession, state: str) -> None:
        self.spark = spark
        self.state = state.rstrip("/")

    def with_session(self, spark: SparkSession) -> LedgerTables:
        return LedgerTables(spark, self.state)

    def location(self, name: str) -> str:
        return f"{self.state}/ledger/{name}"

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Raise what goes wrong inside as LedgerError, but for conflicts, cancelled jobs and sessions that have ended."""
        try:
            yield
        except Exception as error:
            if (
                isinstance(error, WanError)
                or ErrorKind.CANCELLED.matches(error)
                or ErrorKind.CONFLICT.matches(error)
                or lost_session(self.spark)
            ):
                raise
            raise self.error(error) from error

    def error(self, error: Exception) -> LedgerError:
        """What a failure to read or write the ledger means, and what to do."""
        return LedgerError(
            f"the ledger at {self.location('')} cannot be read or written now: {error_text(error)}. Nothing is applied without it, and it is tried "
            f"again. If something is missing or damaged, stop this site's receivers and restore it from a backup. Without one, give this site another "
            f"`state`, which forgets its decisions and what it has applied of all tables: then {anew(False)}; for users' streams, {anew(True)}."
        )

    def is_told_of(self, error: Exception) -> bool:
        """Whether an error names a file of the ledger: one statement reads its tables and others."""
        return _NAMED.search(str(error)) is not None

    def ensure(self) -> None:
        """Make the tables that are not there yet. Raises LedgerError when that is not possible."""
        with _creating, self.errors():
            for name, schema in SCHEMAS.items():
                if not table_exists(self.spark, self.location(name)):
                    self._create(name, schema)

    def _create(self, name: str, schema: str) -> None:
        empty = self.spark.createDataFrame([], schema)
        try:
            empty.write.format("delta").mode("ignore").save(self.location(name))
        except Exception as error:
            if ErrorKind.CONFLICT.matches(error) and table_exists(self.spark, self.location(name)):
                return  # another receiver of the site has made it at the same moment
            if ErrorKind.CANCELLED.matches(error) or ErrorKind.CONFLICT.matches(error):
                raise
            raise LedgerError(
                f"the ledger at {self.location(name)} cannot be made ({error_text(error)}). Check that the site's `state` can be written to."
            ) from error

    def append(self, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Add rows (without their ``version``), durably."""
        names = [part.split()[0] for part in SCHEMAS[name].split(", ")]
        values = [
            tuple({"version": LEDGER_VERSION, **row}.get(column) for column in names)
            for row in rows
        ]
        self.append_frame(name, self.spark.createDataFrame(values, SCHEMAS[name]).coalesce(1))

    def append_frame(self, name: str, frame: DataFrame) -> None:
        """Add the rows of a DataFrame that has the table's columns. Tried again when another writer was faster."""
        for attempt in range(_ATTEMPTS):
            try:
                frame.write.format("delta").mode("append").save(self.location(name))
                return
            except Exception as error:
                if not ErrorKind.CONFLICT.matches(error) or attempt == _ATTEMPTS - 1:
                    raise

    def merge_dead_letters(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Add dead letters of the sender; one that is there already (by its event ID) is not added twice."""
        names = [part.split()[0] for part in SCHEMAS["dead_letters"].split(", ")]
        values = [
            tuple({"version": LEDGER_VERSION, **row}.get(column) for column in names)
            for row in rows
        ]
        view = f"wan_{uuid.uuid4().hex}"  # of this call alone: streams record at the same time, in one session
        self.spark.createDataFrame(values, SCHEMAS["dead_letters"]).createOrReplaceTempView(view)
        try:
            with self.errors():
                self.spark.sql(
                    f"MERGE INTO {reference(self.location('dead_letters'))} t USING {view} s "
                    "ON t.event_id = s.event_id AND t.side = s.side AND t.stream = s.stream WHEN NOT MATCHED THEN INSERT *"
                ).collect()
        finally:
            self.spark.catalog.dropTempView(view)

    def read(self, name: str) -> DataFrame:
        """The rows of a table. Raises LedgerError when they cannot be told."""
        with self.errors():
            return load(self.spark, self.location(name))
