"""Rows that a source table still has of keys whose last change took a row away.

Keys should be unique, but a Delta table cannot enforce it. Where a key has two rows and one is
deleted, the change feed shows the deletion alone: netted, it is a destroy, and the remote sites
would lose a key that the source has. So the keys whose last event in a range is a destroy are
looked up in the table, at the range's last version. A row that is found is captured in place of
the destroy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from spark_wan.capture.netting import COMMIT_VERSION, LastDestroys, net, without_key
from spark_wan.capture.ranges import CaptureRange
from spark_wan.delta.dataframes import map_in_arrow, select_columns
from spark_wan.delta.key_list import KeyList
from spark_wan.events.arrow_types import arrow_ready
from spark_wan.events.columns import SchemaJson, char_lengths
from spark_wan.events.operations import RESERVED_PREFIX

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

DESTROYED_AT = f"{RESERVED_PREFIX}destroyed_at"
"""The version of a key's last event, a destroy."""
_KEY, _OTHER = f"{RESERVED_PREFIX}key_", f"{RESERVED_PREFIX}other_"


@dataclass(frozen=True)
class Destroyed:
    """Keys whose last event in a range is a destroy."""

    rows: DataFrame
    """The key columns under other names, and :data:`DESTROYED_AT`."""
    condition: str | None
    """That a row has one of the keys, in SQL; None: they are too many to list, or of a type that
    cannot be listed."""

    @classmethod
    def few(
        cls, spark: SparkSession, found: pa.Table, keys: StructType, schema: SchemaJson
    ) -> Destroyed:
        """Return the keys in ``found``: the key columns and the version. ``schema``: the source's
        columns."""
        from pyspark.sql import functions as F

        listed = KeyList.of(found, found.schema.names[:-1], char_lengths(schema))
        renamed = _renamed(keys)
        rows = spark.createDataFrame(found.rename_columns(renamed.names), renamed)
        return cls(F.broadcast(rows), listed.condition() if listed is not None else None)

    @classmethod
    def many(cls, changes: DataFrame, keys: StructType) -> Destroyed:
        """Return the keys in change rows, sorted as :func:`net` needs them: netted once more."""
        return cls(map_in_arrow(changes, _DestroyedTask(tuple(keys.names)), _renamed(keys)), None)

    def remaining(
        self,
        at: Callable[[int], DataFrame],
        planned: CaptureRange,
        changes: DataFrame,
        keys: Sequence[str],
    ) -> DataFrame | None:
        """Return the rows that the table has of the keys, with :data:`DESTROYED_AT`. None: it has
        none. ``at``: reads the table at a version. ``changes``: the range's change feed.

        What commits that are not distributed did after a key's destroy is left out: such keys are
        looked up in the table as the destroy left it.
        """
        from pyspark.sql import functions as F

        found = self._rows_of(at(planned.last_version), self.rows, planned, keys)
        if planned.left_out:
            version = F.col(COMMIT_VERSION)
            others = changes.where(version.isin(list(planned.left_out))).select(
                *(each.alias(f"{_OTHER}{n}") for n, each in enumerate(select_columns(keys))),
                version.alias(f"{_OTHER}at"),
            )
            later = F.col(f"{_OTHER}at") > F.col(DESTROYED_AT)
            same = _equal([f"{_KEY}{n}" for n in range(len(keys))], _OTHER)
            touched = self.rows.join(others, same & later, "left_semi")
            versions = [row[0] for row in touched.select(DESTROYED_AT).distinct().collect()]
            if versions and found is not None:
                found = found.join(others, _equal(keys, _OTHER) & later, "left_anti")
            for each in sorted(versions):
                those = touched.where(F.col(DESTROYED_AT) == each)
                there = self._rows_of(at(each), those, planned, keys)
                if there is not None:
                    found = there if found is None else found.union(there)
        return None if found is None or _is_empty(found) else found

    def _rows_of(
        self, table: DataFrame, destroyed: DataFrame, planned: CaptureRange, keys: Sequence[str]
    ) -> DataFrame | None:
        """Return the rows of a table that have one of the keys; None if there are surely none."""
        if self.condition is not None:
            table = table.where(self.condition)
            if _is_empty(table):  # nearly always: a join would be a job of its own
                return None
        columns = select_columns([*planned.column_names, DESTROYED_AT])
        return table.join(destroyed, _equal(keys, _KEY)).select(*columns)


def _is_empty(frame: DataFrame) -> bool:
    """Whether there are no rows, in one Spark job: ``DataFrame.isEmpty`` looks at one partition,
    then at some more, and so on, until it finds a row."""
    from pyspark.sql import functions as F

    return bool(frame.agg(F.count(F.lit(1))).collect()[0][0] == 0)


def _equal(keys: Sequence[str], prefix: str) -> Column:
    from pyspark.sql import functions as F

    pairs = enumerate(select_columns(keys))
    return reduce(and_, [column == F.col(f"{prefix}{n}") for n, column in pairs])


def _renamed(keys: StructType) -> StructType:
    from pyspark.sql.types import LongType, StructType

    renamed = StructType()
    for n, field in enumerate(keys.fields):
        renamed = renamed.add(f"{_KEY}{n}", field.dataType)
    return renamed.add(DESTROYED_AT, LongType())


@dataclass(frozen=True)
class _DestroyedTask:
    """Nets the change rows of one Spark task for the keys whose last event is a destroy."""

    keys: tuple[str, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        destroys = LastDestroys(self.keys)
        ready = map(arrow_ready, batches)
        keyed = (rows.filter(pc.invert(without_key(rows, self.keys))) for rows in ready)
        for netted in net(keyed, self.keys):
            if (found := destroys.of(netted)) is not None:
                yield found
        if (found := destroys.end()) is not None:
            yield found
