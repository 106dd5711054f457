"""Hashes of the rows of a DataFrame, and of their columns: in SQL where that is exact, in Python
(:mod:`spark_wan.sync.hashes`) for structs, arrays, maps and variants."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, LongType, StructField, StructType

from spark_wan.delta.dataframes import map_in_arrow, select_columns
from spark_wan.delta.sql import quoted
from spark_wan.sync.columns import ComparedColumns, fitted_type
from spark_wan.sync.hashes import HashTask
from spark_wan.sync.read_rate import ReadRate

HASHES = "hashes"
_BITS = 60
"""Marks of columns in one number."""


@dataclass(frozen=True)
class HashedRows:
    """The rows of one version of a table, for comparison with those of another one."""

    frame: DataFrame
    columns: ComparedColumns
    other: StructType
    """The columns of the other version."""
    keeps: bool = True
    """Nested fields that the other version does not have count. Those of a target do not."""
    read_rate: ReadRate | None = None
    """How fast rows are to be read; None: without a maximum."""

    def column(self, name: str) -> Column:
        """Return a flat column as it is compared."""
        column = F.col(quoted(name))
        if name in self.columns.casts:
            column = column.cast(self.columns.casts[name])
        if name in self.columns.chars:
            column = F.rpad(column, self.columns.chars[name], " ")
        return column.alias(name)

    def hash_of(self, names: Sequence[str]) -> Column:
        """Return the hash of flat columns. SQL's own passes over nulls and takes -0.0 for 0.0, so
        which columns are that is hashed, too."""
        columns = [self.column(name) for name in names]
        marks = [
            self._mark(name, column, 1 << place % (_BITS // 2))
            for place, (name, column) in enumerate(zip(names, columns, strict=True))
        ]
        half = _BITS // 2
        sums = (reduce(add, marks[place : place + half]) for place in range(0, len(marks), half))
        return F.xxhash64(*columns, *sums)

    def _mark(self, name: str, column: Column, bit: int) -> Column:
        mark = F.when(column.isNull(), F.lit(bit))
        if name in self.columns.floats:
            # An addition or a comparison does not show the sign of zero.
            negative = (column == 0) & (column.cast("string") == "-0.0")
            mark = mark.when(negative, F.lit(bit << _BITS // 2))
        return mark.otherwise(F.lit(0)).cast("bigint")

    def select(self, kept: Sequence[Column], where: Column | None = None) -> DataFrame:
        """Return ``kept``, and :data:`HASHES` of the nested columns: an array, empty without
        any."""
        frame, nested = self.frame, self.columns.nested
        if where is not None:
            frame = frame.where(where)
        if not nested:
            return frame.select(*kept, F.array().cast("array<bigint>").alias(HASHES))
        chosen = frame.select(*kept, *select_columns(nested))
        own = to_arrow_schema(chosen.schema, timezone="UTC")
        other = {field.name.lower(): field for field in self.other}
        fields = [other[name.lower()] for name in nested]
        theirs = to_arrow_schema(StructType(fields), timezone="UTC")
        first = len(kept)
        types = tuple(
            fitted_type(own.field(first + place).type, theirs.field(place).type, self.keeps)
            for place in range(len(nested))
        )
        schema = StructType(
            [
                *(StructField(f.name, f.dataType) for f in chosen.schema.fields[:first]),
                StructField(HASHES, ArrayType(LongType())),
            ]
        )
        return map_in_arrow(chosen, HashTask(first, tuple(nested), types), schema)

    def row_hash(self, kept: Sequence[Column], where: Column | None = None) -> DataFrame:
        """Return ``kept`` and ``hash``, that of the whole row."""
        flat = self.hash_of(self.columns.flat) if self.columns.flat else F.lit(0).cast("bigint")
        rows = self.select([*kept, flat.alias("flat")], where)
        names = [name for name in rows.columns if name not in ("flat", HASHES)]
        whole = F.xxhash64("flat", HASHES) if self.columns.nested else F.col("flat")
        return rows.select(*select_columns(names), whole.alias("hash"))

    def column_hashes(self, kept: Sequence[Column], where: Column | None = None) -> DataFrame:
        """Return ``kept`` and :data:`HASHES` of all columns, the flat ones first."""
        flat = F.array(*(self.hash_of([name]) for name in self.columns.flat))
        rows = self.select([*kept, flat.cast("array<bigint>").alias("flat")], where)
        names = [name for name in rows.columns if name not in ("flat", HASHES)]
        return rows.select(*select_columns(names), F.concat("flat", HASHES).alias(HASHES))


def bucket_of(rows: HashedRows, names: Iterable[str], buckets: int) -> Column:
    """Return the bucket of a row by flat columns; 0 without any."""
    names = list(names)
    if not names:
        return F.lit(0)
    return F.pmod(rows.hash_of(names), F.lit(buckets)).cast("int")
