"""The Delta tables of a site's ledger, in the folder ``ledger`` of its ``state``.

All three are append-only, except that expired event IDs are deleted. Appends do not conflict with
each other. Each row has ``version int``, the version of the row's format (now 1), and ``table
string``, the table's name in the topology. Delta enforces no key; the keys below are logical ones.

``applied``: the marks, written by receivers after each commit to a target table. Key: ``token``.
Duplicate rows do no harm.

==============  =======  ==========================================================================
target_id       string   Delta's ID of the target table
target_version  bigint   the version of the marked commit
apply           bigint   the apply number, from 1 without gaps per table: ``txnVersion``
token           string   a random ID of this apply, also in the other two tables
mark            string   JSON of :class:`spark_wan.wire.mark.Mark`, with the columns as known now
==============  =======  ==========================================================================

A row without ``apply`` and ``token`` is a :class:`spark_wan.ledger.records.HistoryPosition`: the
target's history was read through ``target_version``. Its ``mark`` is ``{"seen": <identity of that
commit>}``, with ``"moved"`` if columns were moved.

``event_ids``: the IDs of applied events of user streams, written by receivers before the commit to
the target. A row counts when ``applied`` has its token. Key: (table, origin, event_id, token).

========  =======  ================================================================================
origin    string   the site that the event comes from
event_id  string   the event's ID; null in a floor (see below)
content   string   hash of operation and columns: another one under the same ID is a dead letter
time      bigint   the event's time in microseconds since 1970 UTC, or null
token     string   of the apply that recorded it
========  =======  ================================================================================

A row without ``event_id``, with the token ``floor``, is a floor: event IDs with a ``time`` at or
before its own have expired and were deleted.

``dead_letters``: events that could not be applied or sent. Key: (side, stream, event_id, token).
Rows of a receiver count when ``applied`` has their token. Rows of a sender always count; a sender
adds an event ID of a stream once.

==============  =======  ==========================================================================
side            string   ``receiver`` or ``sender``
stream          string   the stream's name
event_id        string   the event's ID; computed for captured streams
origin_version  bigint   source version of the change; the epoch in a user stream
operation       string   ``create``, ``put`` or ``destroy``
key             string   JSON of the key columns; null without keys, and for a sender
cause           string   why the event could not be applied or sent
row             string   JSON of the row, for people to read
payload         binary   the row as an Arrow IPC stream, exact in every type
token           string   of the apply that recorded it; null for a sender
==============  =======  ==========================================================================
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
from spark_wan.errors import LedgerError, WanError, resend_advice

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


SCHEMAS = {
    "applied": (
        "version int, table string, target_id string, target_version bigint, apply bigint, "
        "token string, mark string"
    ),
    "event_ids": (
        "version int, table string, origin string, event_id string, content string, time bigint, "
        "token string"
    ),
    "dead_letters": (
        "version int, side string, table string, stream string, event_id string, "
        "origin_version bigint, operation string, key string, cause string, row string, "
        "payload binary, token string"
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

    def location(self, name: str) -> str:
        return f"{self.state}/ledger/{name}"

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Raise errors as LedgerError, except conflicts, cancelled jobs and ended sessions."""
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
        """Return what a failure to read or write the ledger means, and what to do."""
        return LedgerError(
            f"the ledger at {self.location('')} cannot be read or written now: {error_text(error)}."
            " Nothing is applied without it; reading or writing it will be retried. If part of it "
            "is missing or damaged, stop this site's receivers and restore it from a backup. "
            "Without one, give this site another `state`, which forgets its decisions and what it "
            f"has applied of all tables: then {resend_advice(False)}; for user streams, "
            f"{resend_advice(True)}."
        )

    def is_named_in(self, error: Exception) -> bool:
        """Whether an error names a file of the ledger: a statement may read other tables too."""
        return _NAMED.search(str(error)) is not None

    def ensure(self) -> None:
        """Create the tables that do not exist yet. Raises LedgerError when that fails."""
        with _creating, self.errors():
            for name in SCHEMAS:
                if not table_exists(self.spark, self.location(name)):
                    self._create(name)

    def _create(self, name: str) -> None:
        empty = self.spark.createDataFrame([], SCHEMAS[name])
        try:
            empty.write.format("delta").mode("ignore").save(self.location(name))
        except Exception as error:
            if ErrorKind.CONFLICT.matches(error) and table_exists(self.spark, self.location(name)):
                return  # another receiver of the site created it at the same moment
            if ErrorKind.CANCELLED.matches(error) or ErrorKind.CONFLICT.matches(error):
                raise
            raise LedgerError(
                f"the ledger at {self.location(name)} cannot be created ({error_text(error)}). "
                "Check that the site's `state` can be written to."
            ) from error

    def append(self, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Add rows (without their ``version``), durably."""
        self.append_frame(name, self._frame(name, rows).coalesce(1))

    def append_frame(self, name: str, frame: DataFrame) -> None:
        """Add the rows of a DataFrame with the table's columns. Retries after a conflict."""
        for attempt in range(_ATTEMPTS):
            try:
                frame.write.format("delta").mode("append").save(self.location(name))
                return
            except Exception as error:
                if not ErrorKind.CONFLICT.matches(error) or attempt == _ATTEMPTS - 1:
                    raise

    def merge_dead_letters(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Add a sender's dead letters, except those whose event ID the stream already has."""
        # A view for this call only: streams record concurrently in one session.
        view = f"wan_{uuid.uuid4().hex}"
        self._frame("dead_letters", rows).createOrReplaceTempView(view)
        try:
            with self.errors():
                self.spark.sql(
                    f"MERGE INTO {reference(self.location('dead_letters'))} t USING {view} s "
                    "ON t.event_id = s.event_id AND t.side = s.side AND t.stream = s.stream "
                    "WHEN NOT MATCHED THEN INSERT *"
                ).collect()
        finally:
            self.spark.catalog.dropTempView(view)

    def read(self, name: str) -> DataFrame:
        """Return the rows of a table. Raises LedgerError when it cannot be read."""
        with self.errors():
            return load(self.spark, self.location(name))

    def _frame(self, name: str, rows: Sequence[Mapping[str, Any]]) -> DataFrame:
        columns = [part.split()[0] for part in SCHEMAS[name].split(", ")]
        values = [
            tuple({"version": LEDGER_VERSION, **row}.get(column) for column in columns)
            for row in rows
        ]
        return self.spark.createDataFrame(values, SCHEMAS[name])
