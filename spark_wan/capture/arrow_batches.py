"""Arrow batches from Spark to Python, bounded by their rows alone while rows are small.

Spark bounds Arrow batches by bytes too, and sums up the bytes of the whole batch for each row. That
takes as long as everything else on a row's way into Python. So the bound by bytes is off, and a
guard in the query fails at the first large row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial, reduce
from operator import add
from typing import TYPE_CHECKING, Any, TypeVar

from spark_wan.delta.dataframes import select_columns
from spark_wan.delta.sessions import CurrentSession, is_connect, temporary_settings
from spark_wan.messages import message_log

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

log = message_log(__name__)

T = TypeVar("T")

MAX_ROWS = 4_000
"""Maximum number of rows in a batch that is bounded by its rows alone."""
MAX_ROW_BYTES = 8 * 2**10
"""Maximum size of a row in it, text and bytes."""

_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
_NO_LIMIT = 2**31 - 1
_TOO_LARGE = "spark_wan: a row is too large for Arrow batches that are bounded by their rows"
_OF_ANY_SIZE = ("string", "binary", "char", "varchar")


class ArrowBatches:
    """Settings for the batches of one table's captures, in the stream's own session."""

    def __init__(self, session: CurrentSession, table: str) -> None:
        self.session = session
        self.table = table
        self.large_rows = False
        """This sender has met a large row."""

    @property
    def spark(self) -> SparkSession:
        return self.session.spark

    def publish(
        self,
        schema: Mapping[str, Any],
        select: Callable[[Callable[[Column], Column]], DataFrame],
        publish: Callable[[DataFrame], T],
    ) -> T:
        """Publish what ``select`` returns. It must apply its argument, the guard, to a column."""
        if self._may_be_bounded_by_rows(schema):
            try:
                with self._bounded_by_rows():
                    return publish(select(partial(_guarded, schema=schema)))
            except Exception as error:
                if _TOO_LARGE not in str(error):
                    raise
                log.info(
                    "%s: has rows of more than %d bytes",
                    self.table,
                    MAX_ROW_BYTES,
                    event="large-rows",
                    table=self.table,
                )
                self.large_rows = True
        return publish(select(lambda column: column))

    def _may_be_bounded_by_rows(self, schema: Mapping[str, Any]) -> bool:
        """Whether batches may be bounded by rows.

        False under Connect (not tried there), where the user has set the limit of bytes, after a
        large row, and for columns whose size SQL cannot compute.
        """
        if self.large_rows or is_connect(self.spark) or self.spark.conf.get(_BYTES, None):
            return False
        return all(
            isinstance(field["type"], str) and field["type"] != "variant"
            for field in schema["fields"]
        )

    def _bounded_by_rows(self) -> AbstractContextManager[None]:
        own = int(self.spark.conf.get(_ROWS, None) or 0)
        rows = min(MAX_ROWS, own) if own > 0 else MAX_ROWS
        return temporary_settings(self.spark, {_ROWS: str(rows), _BYTES: str(_NO_LIMIT)})


def _guarded(column: Column, schema: Mapping[str, Any]) -> Column:
    """Return ``column``, whose query fails at a row with more than :data:`MAX_ROW_BYTES`."""
    from pyspark.sql import functions as F

    names = [field["name"] for field in schema["fields"] if field["type"].startswith(_OF_ANY_SIZE)]
    if not names:
        return column
    sizes = [
        F.coalesce(F.octet_length(value), F.lit(0)).cast("bigint")
        for value in select_columns(names)
    ]
    return F.when(reduce(add, sizes) > MAX_ROW_BYTES, F.raise_error(_TOO_LARGE)).otherwise(column)
