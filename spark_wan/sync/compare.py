"""Comparing a table at two sites, each at one version: hash sums of key buckets, then the rows of
the buckets that differ.

Sums do not depend on the order of rows. Without keys a bucket holds equal contents, and what counts
is how often each is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_wan.delta.dataframes import map_in_arrow, schema_json
from spark_wan.delta.errors import ErrorKind, error_text
from spark_wan.delta.sessions import lost_session
from spark_wan.delta.sql import quoted
from spark_wan.delta.tables import load, table_detail
from spark_wan.errors import CompareError, WanError
from spark_wan.sync.columns import ComparedColumns, compared_columns
from spark_wan.sync.findings import Difference, Kind
from spark_wan.sync.hashed import HASHES, HashedRows, bucket_of
from spark_wan.sync.read_rate import PacedRows, ReadRate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BUCKETS = 10_000
"""A sample is some of them, so its smallest share is a hundredth of a percent."""
SHOWN_BYTES = 200
"""Of a nested value in an example of a table without keys."""
KEY_JSON = {
    "ignoreNullFields": "false",
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""Options of ``to_json`` for keys: as dead letters have them, so that one can be found."""

_ORIGIN, _TARGET = 0, 1
Sums = dict[int, tuple[int, int, int]]
"""Bucket -> number of rows, sums of the lower and of the upper halves of their hashes."""


@dataclass(frozen=True)
class Side:
    """One version of a table at one site."""

    table: str
    site: str
    location: str
    version: int

    def load(self, spark: SparkSession) -> DataFrame:
        frame = load(spark, self.location, versionAsOf=self.version)
        _ = frame.schema  # a Connect session sends nothing before it must
        return frame

    @contextmanager
    def errors(self, spark: SparkSession) -> Iterator[None]:
        """Raise what an error says of this side."""
        try:
            yield
        except WanError:
            raise
        except Exception as error:
            lost = lost_session(spark)
            if lost is not None:
                raise lost from error
            if ErrorKind.CANCELLED.matches(error):
                raise
            raise self._meant(error) from error

    def _meant(self, error: Exception) -> CompareError:
        what = f"{self.table}: version {self.version} at site {self.site} ({self.location})"
        if ErrorKind.HISTORY_LOST.matches(error):
            return CompareError(
                f"{what} can no longer be read: VACUUM or log cleanup has deleted files of it, or "
                f"its retention has passed ({error_text(error)}). Raise the table's "
                "delta.deletedFileRetentionDuration and delta.logRetentionDuration above the time "
                "that a site may be behind."
            )
        if ErrorKind.MISSING.matches(error):
            return CompareError(
                f"{what}: there is no Delta table ({error_text(error)}). Check the place below "
                "`at:` in the topology, and that it can be read from here."
            )
        return CompareError(
            f"{what} cannot be read from here: {error_text(error)}. The places of both sites have "
            "to be readable where the command runs; settings of a store are those of Spark "
            "(--conf)."
        )


@dataclass
class Found:
    """What two sides differ in."""

    columns: ComparedColumns
    origin_rows: int = 0
    target_rows: int = 0
    counts: dict[Kind, int] = field(default_factory=dict)
    by_column: dict[str, int] = field(default_factory=dict)
    examples: list[Difference] = field(default_factory=list)


@dataclass(frozen=True)
class TableComparer:
    """Compares a table at its writer with its copy at another site."""

    spark: SparkSession
    """Its time zone is UTC."""
    keys: tuple[str, ...]
    origin: Side
    target: Side
    buckets: int = BUCKETS
    """So many of :data:`BUCKETS` are compared."""
    limit: int = 20
    """Number of examples."""
    rate: int | None = None
    """Bytes of files that are read per second, of each side; None: no maximum."""

    def compare(self) -> Found:
        """Return the differences. Raises CompareError."""
        origin, target = self._rows()
        columns = origin.columns
        found = Found(columns)
        if not columns.names:
            raise CompareError(f"{self.origin.table}: the sites have no column in common.")
        with self.origin.errors(self.spark):
            ours = self._sums(origin)
        with self.target.errors(self.spark):
            theirs = self._sums(target)
        found.origin_rows = sum(rows for rows, *_ in ours.values())
        found.target_rows = sum(rows for rows, *_ in theirs.values())
        differing = sorted(
            bucket for bucket in {*ours, *theirs} if ours.get(bucket) != theirs.get(bucket)
        )
        if differing:
            with self.target.errors(self.spark):
                self._explain(found, origin, target, differing)
        return found

    def _rows(self) -> tuple[HashedRows, HashedRows]:
        with self.origin.errors(self.spark):
            ours = self.origin.load(self.spark)
            our_rate = self._read_rate(self.origin, ours)
        with self.target.errors(self.spark):
            theirs = self.target.load(self.spark)
            their_rate = self._read_rate(self.target, theirs)
        columns = compared_columns(schema_json(ours), schema_json(theirs))
        absent = [key for key in self.keys if key not in columns.flat]
        if absent:
            raise CompareError(
                f"{self.origin.table}: key column {absent[0]!r} is not at both sites, or cannot be "
                f"compared ({'; '.join(columns.not_compared) or 'it is missing'}). Correct the "
                "`keys` of the table in the topology, or the column."
            )
        return (
            HashedRows(ours, columns, theirs.schema, read_rate=our_rate),
            HashedRows(theirs, columns, ours.schema, keeps=False, read_rate=their_rate),
        )

    def _bucket(self, rows: HashedRows) -> Column:
        return bucket_of(rows, self.keys or rows.columns.flat, BUCKETS)

    def _sums(self, rows: HashedRows) -> Sums:
        def hashes(bucket: Column, where: Column | None) -> DataFrame:
            return rows.row_hash([bucket], where)

        def sampled(bucket: Column) -> Column:
            return bucket < self.buckets

        hashed = self._hashed(rows, hashes, sampled if self.buckets < BUCKETS else None)
        # Two sums of halves: one of whole hashes would overflow.
        sums = hashed.groupBy("bucket").agg(
            F.count(F.lit(1)),
            F.sum(F.col("hash").bitwiseAND(F.lit(0xFFFFFFFF))),
            F.sum(F.shiftrightunsigned("hash", 32)),
        )
        return {bucket: (rows, low, high) for bucket, rows, low, high in sums.collect()}

    def _hashed(
        self,
        rows: HashedRows,
        hashes: Callable[[Column, Column | None], DataFrame],
        choose: Callable[[Column], Column] | None,
    ) -> DataFrame:
        """Return the ``hashes`` of the rows whose buckets are chosen (None: of all), which keep the
        column ``bucket``. With a rate, all rows of the table pass at it, and are chosen behind
        it."""
        bucket, rate = self._bucket(rows), rows.read_rate
        kept = bucket.alias("bucket")
        if rate is None:
            return hashes(kept, choose(bucket) if choose is not None else None)
        hashed = hashes(kept, None).coalesce(rate.tasks)
        hashed = map_in_arrow(hashed, PacedRows(rate.rows), hashed.schema)
        return hashed.where(choose(F.col("bucket"))) if choose is not None else hashed

    def _read_rate(self, side: Side, frame: DataFrame) -> ReadRate | None:
        if self.rate is None:
            return None
        size = table_detail(self.spark, side.location, "sizeInBytes")
        return ReadRate.of(self.rate, frame.count(), size)

    def _explain(
        self, found: Found, origin: HashedRows, target: HashedRows, differing: Sequence[int]
    ) -> None:
        """Compare the rows of the buckets that differ."""
        sides = ((_ORIGIN, origin), (_TARGET, target))
        parts = [self._tagged(side, rows, differing) for side, rows in sides]
        both = parts[0].union(parts[1])
        rows = (self._by_key(both) if self.keys else _by_content(both)).persist()
        try:
            self._count(found, rows)
            order = [f"k{n}" for n in range(len(self.keys) or 1)]  # the same ones in each run
            examples = rows.orderBy(*order).limit(self.limit)
            for row in examples.select(self._shown(), *_OUTCOME).collect():
                names = found.columns.names
                kind, at = Kind(row["kind"]), row["differing"]
                columns = tuple(names[place] for place in at) if kind is Kind.DIFFERS else ()
                found.examples.append(
                    Difference(kind, row["shown"], columns, row["ours"], row["theirs"])
                )
        finally:
            rows.unpersist()

    def _tagged(self, side: int, rows: HashedRows, differing: Sequence[int]) -> DataFrame:
        """Return side, keys (without keys the row as text) and column hashes of rows."""
        if self.keys:
            identity = [rows.column(key).alias(f"k{n}") for n, key in enumerate(self.keys)]
        else:
            identity = [_row_text(rows).alias("k0")]

        def hashes(bucket: Column, where: Column | None) -> DataFrame:
            return rows.column_hashes([F.lit(side).alias("side"), *identity, bucket], where)

        def differs(bucket: Column) -> Column:
            return bucket.isin(list(differing))

        return self._hashed(rows, hashes, differs if len(differing) < BUCKETS else None)

    def _by_key(self, both: DataFrame) -> DataFrame:
        """Return a row for each key that differs."""
        mine = F.collect_list(F.when(F.col("side") == _ORIGIN, F.col(HASHES)))
        other = F.collect_list(F.when(F.col("side") == _TARGET, F.col(HASHES)))
        keys = [f"k{n}" for n in range(len(self.keys))]
        grouped = both.groupBy(*keys).agg(
            F.array_sort(mine).alias("mine"), F.array_sort(other).alias("other")
        )
        ours, theirs = F.size("mine"), F.size("other")
        kind = (
            F.when((ours > 1) | (theirs > 1), Kind.REPEATED.value)
            .when(theirs == 0, Kind.MISSING.value)
            .when(ours == 0, Kind.EXTRA.value)
            .otherwise(Kind.DIFFERS.value)
        )
        places = F.expr(
            "filter(sequence(0, size(get(mine, 0)) - 1), i -> get(mine, 0)[i] <> get(other, 0)[i])"
        )
        differing = F.when(kind == Kind.DIFFERS.value, places).otherwise(
            F.array().cast("array<int>")
        )
        return grouped.where("mine <> other").select(
            *keys,
            kind.alias("kind"),
            differing.alias("differing"),
            ours.alias("ours"),
            theirs.alias("theirs"),
            F.lit(1).alias("weight"),
        )

    def _count(self, found: Found, rows: DataFrame) -> None:
        for kind, number in rows.groupBy("kind").agg(F.sum("weight")).collect():
            found.counts[Kind(kind)] = number
        if found.counts.get(Kind.DIFFERS):
            places = rows.select(F.explode("differing").alias("place")).groupBy("place").count()
            names = found.columns.names
            counted = {names[place]: number for place, number in places.collect()}
            found.by_column = {name: counted[name] for name in names if name in counted}

    def _shown(self) -> Column:
        if not self.keys:
            return F.col("k0").alias("shown")
        keys = (F.col(f"k{n}").alias(key) for n, key in enumerate(self.keys))
        return F.to_json(F.struct(*keys), KEY_JSON).alias("shown")


_OUTCOME = ("kind", "differing", "ours", "theirs")


def _by_content(both: DataFrame) -> DataFrame:
    """Return a row for each content that one side has more often."""
    side = F.col("side")
    counted = both.groupBy(HASHES).agg(
        F.first("k0").alias("k0"),
        F.count(F.when(side == _ORIGIN, 1)).cast("int").alias("ours"),
        F.count(F.when(side == _TARGET, 1)).cast("int").alias("theirs"),
    )
    missing = F.col("ours") > F.col("theirs")
    return counted.where("ours <> theirs").select(
        "k0",
        F.when(missing, Kind.MISSING.value).otherwise(Kind.EXTRA.value).alias("kind"),
        F.array().cast("array<int>").alias("differing"),
        "ours",
        "theirs",
        F.abs(F.col("ours") - F.col("theirs")).alias("weight"),
    )


def _row_text(rows: HashedRows) -> Column:
    """Return a row as JSON for people."""
    flat = [rows.column(name) for name in rows.columns.flat]
    nested = [
        F.substring(F.col(quoted(name)).cast("string"), 1, SHOWN_BYTES).alias(name)
        for name in rows.columns.nested
    ]
    return F.to_json(F.struct(*flat, *nested), KEY_JSON)
