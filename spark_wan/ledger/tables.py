"""The Delta tables of a site's ledger: made, read and written. What is in them is
:mod:`spark_wan.wire.ledger`."""

from __future__ import annotations

import re
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from spark_wan.delta.errors import ErrorKind, error_text
from spark_wan.delta.sessions import CurrentSession, lost_session
from spark_wan.delta.sql import quoted, reference
from spark_wan.delta.tables import load, table_detail, table_exists
from spark_wan.errors import (
    DISK_FULL,
    LedgerError,
    LedgerUnavailableError,
    WanError,
    copy_advice,
    is_disk_full,
)
from spark_wan.wire.ledger import LEDGER_VERSION, SCHEMAS, ledger_location

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


LOG_RETENTION = {"delta.logRetentionDuration": "interval 7 days"}
"""Nobody reads older versions of the ledger, and each apply adds a file to its log. Delta demands
as long a time as VACUUM keeps files."""
_NAMED = re.compile(rf"/ledger/({'|'.join(SCHEMAS)})\b")
_ATTEMPTS = 5
_creating = threading.Lock()


class LedgerTables:
    """The ledger's tables of one site. ``state`` is the site's state folder or URL."""

    def __init__(self, session: CurrentSession, state: str) -> None:
        self.session = session
        self.state = state

    @property
    def spark(self) -> SparkSession:
        return self.session.spark

    def location(self, name: str) -> str:
        return ledger_location(self.state, name)

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

    def error(self, error: Exception) -> LedgerUnavailableError:
        """Return what a failure to read or write the ledger means, and what to do."""
        if is_disk_full(error):
            return LedgerUnavailableError(
                f"the ledger at {self.location('')} cannot be written now: {error_text(error)}. "
                f"{DISK_FULL} Nothing is applied without it; it will be retried."
            )
        return LedgerUnavailableError(
            f"the ledger at {self.location('')} cannot be read or written now: {error_text(error)}."
            " Nothing is applied without it; reading or writing it will be retried. If part of it "
            "is missing or damaged, stop this site's receivers and restore it from a backup. "
            "Without one, give this site another `state`, which forgets its decisions and what it "
            f"has applied of all tables: then {copy_advice(False)}; for user streams, "
            f"{copy_advice(True)}."
        )

    def is_named_in(self, error: Exception) -> bool:
        """Whether an error names a file of the ledger: a statement may read other tables too."""
        return _NAMED.search(str(error)) is not None

    def ensure(self) -> None:
        """Create the tables that do not exist yet, and add columns to those of earlier versions.

        Another receiver or sender of the site may do the same at this moment. Raises LedgerError
        when that fails.
        """
        with _creating, self.errors():
            for name in SCHEMAS:
                if not table_exists(self.spark, self.location(name)):
                    self._create(name)
                if self._lacks_columns(name):
                    self.append_frame(name, self.frame(name, []), mergeSchema="true")

    def _lacks_columns(self, name: str) -> bool:
        there = {column.lower() for column in load(self.spark, self.location(name)).columns}
        return not there.issuperset(_columns(name))

    def _create(self, name: str) -> None:
        empty = self.spark.createDataFrame([], SCHEMAS[name])
        try:
            writer = empty.write.format("delta").mode("ignore").options(**LOG_RETENTION)
            writer.save(self.location(name))
        except Exception as error:
            if ErrorKind.CONFLICT.matches(error) and table_exists(self.spark, self.location(name)):
                return  # another receiver of the site created it at the same moment
            if ErrorKind.CANCELLED.matches(error) or ErrorKind.CONFLICT.matches(error):
                raise
            raise LedgerError(
                f"the ledger at {self.location(name)} cannot be created ({error_text(error)}). "
                "Check that the site's `state` can be written to."
            ) from error

    def shorten_log(self, name: str) -> None:
        """Give a table that an earlier version made the retention of new ones, unless someone has
        set another."""
        location = self.location(name)
        [(key, value)] = LOG_RETENTION.items()
        if key not in (table_detail(self.spark, location, "properties") or {}):
            self.spark.sql(
                f"ALTER TABLE {reference(location)} SET TBLPROPERTIES ('{key}' = '{value}')"
            ).collect()

    def append(self, name: str, rows: Sequence[Mapping[str, Any]], **options: object) -> None:
        """Add rows, durably. ``version`` is :data:`LEDGER_VERSION` unless a row has another.

        ``options``: of the writer.
        """
        self.append_frame(name, self.frame(name, rows).coalesce(1), **options)

    def append_frame(self, name: str, frame: DataFrame, **options: object) -> None:
        """Add the rows of a DataFrame with the table's columns. Retries after a conflict."""
        values = {option: str(value) for option, value in options.items()}
        writer = frame.write.format("delta").mode("append").options(**values)
        self._retried(lambda: writer.save(self.location(name)))

    def replace(self, name: str, condition: str, change: Callable[[DataFrame], DataFrame]) -> None:
        """Replace the rows that meet a condition in SQL, in one commit. Retries after a conflict.

        ``change`` returns the new rows, which must meet the condition too, of the old ones.
        """

        def overwrite() -> None:
            old = self.read(name).where(condition)
            writer = change(old).write.format("delta").mode("overwrite")
            writer.option("replaceWhere", condition).save(self.location(name))

        with self.errors():
            self._retried(overwrite)

    def _retried(self, write: Callable[[], object]) -> None:
        for attempt in range(_ATTEMPTS):
            try:
                write()
                return
            except Exception as error:
                if not ErrorKind.CONFLICT.matches(error) or attempt == _ATTEMPTS - 1:
                    raise

    def merge_dead_letters(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Add a sender's dead letters, except those whose event ID the stream already has."""
        # A view for this call only: streams record concurrently in one session.
        view = f"wan_{uuid.uuid4().hex}"
        # By name: a later version may have added columns.
        columns = ", ".join(map(quoted, _columns("dead_letters")))
        values = ", ".join(f"s.{quoted(column)}" for column in _columns("dead_letters"))
        self.frame("dead_letters", rows).createOrReplaceTempView(view)
        try:
            statement = (
                f"MERGE INTO {reference(self.location('dead_letters'))} t USING {view} s "
                "ON t.event_id = s.event_id AND t.side = s.side AND t.stream = s.stream "
                f"WHEN NOT MATCHED THEN INSERT ({columns}) VALUES ({values})"
            )
            with self.errors():
                # A conflict: maintenance has rewritten files meanwhile.
                self._retried(lambda: self.spark.sql(statement).collect())
        finally:
            self.spark.catalog.dropTempView(view)

    def read(self, name: str) -> DataFrame:
        """Return the rows of a table. Raises LedgerError when it cannot be read."""
        with self.errors():
            return load(self.spark, self.location(name))

    def frame(self, name: str, rows: Sequence[Mapping[str, Any]]) -> DataFrame:
        """Return rows of a table as a DataFrame."""
        values = [
            tuple({"version": LEDGER_VERSION, **row}.get(column) for column in _columns(name))
            for row in rows
        ]
        return self.spark.createDataFrame(values, SCHEMAS[name])


def _columns(name: str) -> list[str]:
    return [part.split()[0] for part in SCHEMAS[name].split(", ")]
