"""DataFrames whose columns may have any name."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any

from spark_wan.delta.sql import quoted

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, WindowSpec
    from pyspark.sql.types import StructType


def schema_json(frame: DataFrame) -> dict[str, Any]:
    """Return a DataFrame's columns as Spark's schema JSON."""
    content: dict[str, Any] = json.loads(frame.schema.json())
    return content


def select_columns(names: Sequence[str]) -> list[Column]:
    """Return columns by name."""
    from pyspark.sql import functions as F

    return [F.col(quoted(name)) for name in names]


def has_key(keys: Sequence[str]) -> Column:
    """Return the condition that no column of the key is null."""
    return reduce(and_, (column.isNotNull() for column in select_columns(keys)))


def first_of(frame: DataFrame, window: WindowSpec) -> DataFrame:
    """Return the first row of each partition of a window."""
    from pyspark.sql import functions as F

    placed = frame.withColumn("_wan_place", F.row_number().over(window))
    return placed.where("_wan_place = 1").drop("_wan_place")


def map_in_arrow(
    frame: DataFrame,
    task: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    result: str | StructType,
) -> DataFrame:
    """``frame.mapInArrow(task, result)``, where names may have dots and backticks.

    pyspark's own takes dots for struct fields and fails on backticks.
    """
    names = frame.columns

    def renamed(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return task(batch.rename_columns(names) for batch in batches)

    return frame.toDF(*(f"c{place}" for place in range(len(names)))).mapInArrow(renamed, result)
