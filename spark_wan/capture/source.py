"""A Delta table as a source: Spark reads its history, its change feed and its rows."""

from __future__ import annotations

import math
import re
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa

from spark_wan.capture.altered_values import ACROSS_SCHEMAS, feed_settings, refuse, refused
from spark_wan.capture.arrow_batches import ArrowBatches
from spark_wan.capture.backlog import Backlog
from spark_wan.capture.netting import (
    CHANGE_TYPE,
    COMMIT_VERSION,
    KEY_HASH,
    RANK_COLUMN,
    STILL_THERE,
)
from spark_wan.capture.ranges import (
    ALL_PARTS,
    CaptureRange,
    CaptureResult,
    Part,
    check_columns_follow,
)
from spark_wan.capture.remaining import DESTROYED_AT, Destroyed
from spark_wan.capture.tasks import (
    REPORT_SCHEMA,
    CapturedTable,
    CaptureReport,
    CaptureTask,
)
from spark_wan.channels.base import Channel
from spark_wan.delta.commits import Commit
from spark_wan.delta.dataframes import map_in_arrow, schema_json, select_columns
from spark_wan.delta.errors import (
    ErrorKind,
    feed_off,
    newest_version,
    source_error,
    source_unreadable,
    table_missing,
)
from spark_wan.delta.jobs import watched_jobs
from spark_wan.delta.log_files import LogFiles, adds_rows
from spark_wan.delta.sessions import CurrentSession
from spark_wan.delta.tables import (
    Retention,
    change_feed_and_size,
    history,
    load,
    newest_commit,
    table_id,
)
from spark_wan.errors import (
    SOURCE,
    HistoryLostError,
    KeylessChangeError,
    SchemaError,
    SourceError,
)
from spark_wan.events.dead_letters import beyond_maximum
from spark_wan.log.frames import BatchLimits
from spark_wan.runtime.progress import under_way
from spark_wan.wire.frame import FrameHeader
from spark_wan.wire.ledger import DeadLetter

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

ROWS_PER_TASK = 500_000
"""Approximate number of events that a task nets and encodes."""
MOST_HASHES = 4_000_000
"""Rows of a version, at most, of which the driver compares the keys by their hashes, in 8 bytes for
each. Of more, the rows of each key are brought together."""
HASHED_TYPES = re.compile(
    r"(tinyint|smallint|int|bigint|boolean|date|timestamp|timestamp_ntz|binary|string"
    r"|decimal\(\d+,\d+\)|(var)?char\(\d+\))"
)
"""Of keys. Equal values have equal hashes; of numbers with a fraction in base 2, NaN has not, and
of strings with a collation, netting compares bytes."""
CHECK_INTERVAL = 3_600.0
"""Seconds after which an idle source is compared with what was published."""


@dataclass
class DeltaSource:
    """The publisher's view of a Delta table (see :class:`spark_wan.sender.publish.SourceTable`)."""

    session: CurrentSession
    table: CapturedTable
    channel: Channel
    limits: BatchLimits
    record_dead_letters: Callable[[Sequence[DeadLetter]], None]
    note_duplicates: Callable[[int], None]
    """Takes a number of rows whose key has another row."""
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Options of the object store that has the table."""
    _history: tuple[int, list[Commit]] | None = None
    """A version, and the commits after it, which the publisher reads next."""
    _retention: Retention = field(init=False)
    log_files: LogFiles = field(init=False)
    _backlog: Backlog = field(init=False)
    _batches: ArrowBatches = field(init=False)

    def __post_init__(self) -> None:
        self._retention = Retention(self.table.location)
        self.log_files = LogFiles(self.table.location, self.storage)
        self._backlog = Backlog(self._read_history)
        self._batches = ArrowBatches(self.session, self.table.name)

    @property
    def spark(self) -> SparkSession:
        return self.session.spark

    def table_id(self) -> str:
        with self._errors():
            identity = table_id(self.spark, self.table.location)
        if identity is None:
            raise table_missing(self.table.name, self.table.location, "nothing is there")
        return identity

    def look(self, version: int) -> object:
        """Now and then the answer differs though nothing has changed: then the table is compared
        with what was published, and Spark decides."""
        seen = self.log_files.look(version)
        if seen is None:
            seen = self._ask_spark(version)
        # Tables that were opened together are not compared at the same moment.
        turn = zlib.crc32(self.table.location.encode()) % CHECK_INTERVAL
        return seen, (time.monotonic() + turn) // CHECK_INTERVAL

    def _ask_spark(self, version: int) -> object:
        """Do the same without the log's files. Takes 0.1 s of a core."""
        newer = True
        # Loading the feed from the next version runs no Spark job and reads only the log's end.
        try:
            feed = load(
                self.spark, self.table.location, readChangeFeed="true", startingVersion=version + 1
            )
            _ = feed.columns  # a Connect session sends nothing before it must
        except Exception as error:
            newest = newest_version(error)
            newer = newest is None or newest > version
        return object() if newer else version

    def newest(self) -> Commit:
        with self._errors():
            return newest_commit(self.spark, self.table.location)

    def history(self, after: int) -> list[Commit]:
        if self._history is not None and self._history[0] == after:
            commits, self._history = self._history[1], None
            return commits
        commits = self._backlog.above(after)
        return commits

    def _read_history(self, after: int) -> list[Commit]:
        with self._errors():
            return history(self.spark, self.table.location, after, limit=8)

    def commit(self, version: int) -> Commit | None:
        commits = self.history(version - 1)
        if not commits or commits[0].version != version:
            return None
        self._history = (version, commits[1:])
        return commits[0]

    def log_retention(self) -> int:
        with self._errors():
            return self._retention.of_log(self.spark)

    def history_retention(self, afresh: bool = False) -> int:
        with self._errors():
            return self._retention.of_history(self.spark, afresh)

    def schema_at(self, version: int) -> Mapping[str, Any]:
        with self._errors():
            return schema_json(self._at(version))

    def _at(self, version: int) -> DataFrame:
        return load(self.spark, self.table.location, versionAsOf=version)

    def is_empty_at(self, version: int) -> bool:
        with self._errors():
            adds = adds_rows(self.spark, self.table.location, version)
            return not adds and self._at(version).isEmpty()

    def capture(self, planned: CaptureRange, header: FrameHeader) -> CaptureResult:
        with self._errors(planned.schema):
            try:
                return self._capture(planned, header)
            except Exception as error:
                if not ErrorKind.FEED_INCOMPATIBLE.matches(error):
                    raise
                # Columns became wider since, or were renamed and renamed back. Delta refuses what
                # it cannot judge by the schemas alone. The names that files have for their columns
                # are lost with the column mapping.
                if not planned.keeps_columns or any(
                    commit.operation == "REMOVE COLUMN MAPPING"
                    for commit in history(self.spark, self.table.location, planned.last_version)
                ):
                    raise SchemaError(
                        f"{self.table.name}: the change feed of versions {planned.first_version} "
                        f"to {planned.last_version} cannot be read: the columns were replaced in "
                        "between or since (DELTA_CHANGE_DATA_FEED_INCOMPATIBLE). The stream is "
                        "held.",
                        needs=SOURCE,
                    ) from error
            return self._capture(planned, header, across=True)

    def _capture(
        self, planned: CaptureRange, header: FrameHeader, across: bool = False
    ) -> CaptureResult:
        """``across``: read the feed with the newest columns although they changed in the range."""
        from pyspark.sql import functions as F

        settings = [ACROSS_SCHEMAS] if across else []
        with feed_settings(self.spark, *settings):
            changes = load(
                self.spark,
                self.table.location,
                readChangeFeed="true",
                startingVersion=planned.first_version,
                endingVersion=planned.last_version,
            )
            version, change_type = F.col(COMMIT_VERSION), F.col(CHANGE_TYPE)
            feed = changes
            if planned.left_out:
                feed = feed.where(~version.isin(list(planned.left_out)))
            selected = (
                self._as_planned(feed, planned) if across else select_columns(planned.column_names)
            )
            feed = refuse(feed, planned.schema, version, text=False)

            def check_text() -> None:
                refuse(feed, planned.schema, version, text=True).count()

            name, kind = CHANGE_TYPE, change_type
            if self.table.keys:
                old = change_type.isin("update_preimage", "delete")
                name, kind = RANK_COLUMN, F.when(old, 0).otherwise(1).cast("tinyint")

            def select(guard: Callable[[Column], Column]) -> DataFrame:
                return feed.select(*selected, version, guard(kind).alias(name))

            def publish(rows: DataFrame) -> CaptureReport:
                return self._publish(rows, header, planned.rows, check_text=check_text)

            report = self._batches.publish(planned.schema, select, publish)
            if report.destroyed:
                found = self._still_there(planned, changes, select(lambda column: column), report)
                if found is not None:
                    self._trim(header, report)
                    report = self._batches.publish(
                        planned.schema, lambda guard: select(guard).union(found(guard)), publish
                    )
            return self._noted(report)

    def _still_there(
        self,
        planned: CaptureRange,
        changes: DataFrame,
        rows: DataFrame,
        report: CaptureReport,
    ) -> Callable[[Callable[[Column], Column]], DataFrame] | None:
        """Return what selects the rows, like ``rows`` of the feed, that the table still has of keys
        whose last event in a range is a destroy (:mod:`spark_wan.capture.remaining`). None: there
        are none."""
        from pyspark.sql import functions as F

        keys = self.table.keys
        key_types = rows.select(*select_columns(keys)).schema
        if report.destroyed_keys is None:
            destroyed = Destroyed.many(self._sorted(rows, planned.rows), key_types)
        else:
            listed = pa.Table.from_batches(report.destroyed_keys)
            destroyed = Destroyed.few(self.spark, listed, key_types, planned.schema)
        found = destroyed.remaining(self._at, planned, changes, keys)
        if found is None:
            return None
        found = refuse(found, planned.schema, F.col(DESTROYED_AT), text=True)

        def select(guard: Callable[[Column], Column]) -> DataFrame:
            return found.select(
                *select_columns(planned.column_names),
                F.col(DESTROYED_AT).alias(COMMIT_VERSION),
                guard(F.lit(STILL_THERE).cast("tinyint")).alias(RANK_COLUMN),
            )

        return select

    def _as_planned(self, feed: DataFrame, planned: CaptureRange) -> list[Column]:
        """The columns of a feed of a later schema, which may be wider, with their planned types.

        Raises SchemaError when that schema cannot hold them.
        """
        fields = {field["name"].lower(): field for field in schema_json(feed)["fields"]}
        names = [name.lower() for name in planned.column_names]
        read = {**planned.schema, "fields": [fields[name] for name in names if name in fields]}
        check_columns_follow(planned.schema, read, self.table.name, planned.last_version)
        columns = select_columns(planned.column_names)
        for place, entry in enumerate(planned.schema["fields"]):
            kind = entry["type"]
            if isinstance(kind, str) and fields[entry["name"].lower()]["type"] != kind:
                columns[place] = columns[place].cast(kind).alias(entry["name"])
        return columns

    def amount(self, version: int) -> tuple[int, int | None]:
        with self._errors():
            _, size = change_feed_and_size(self.spark, self.table.location)
            return self._at(version).count(), size

    def snapshot(
        self,
        version: int,
        schema: Mapping[str, Any],
        header: FrameHeader,
        part: Part = ALL_PARTS,
    ) -> CaptureResult:
        with self._errors(schema):
            size = self._size_if_fed()
        return self.rows_at(version, schema, header, part=part, size=size)

    def check_feed(self) -> None:
        with self._errors():
            self._size_if_fed()

    def _size_if_fed(self) -> int | None:
        """Return the size of the newest version's files. Raises ChangeFeedError without a feed:
        nothing could ever follow."""
        feed, size = change_feed_and_size(self.spark, self.table.location)
        if not feed:
            raise feed_off(self.table.name, self.table.location, "its change feed is off")
        return size

    def rows_at(
        self,
        version: int,
        schema: Mapping[str, Any],
        header: FrameHeader,
        *,
        part: Part = ALL_PARTS,
        source_version: int | None = None,
        size: int | None = None,
        choose: Callable[[DataFrame], DataFrame] = lambda rows: rows,
    ) -> CaptureResult:
        """Publish the columns of ``schema`` of the rows of a version, or of a part of it, as
        ``create`` events of the ``source_version``; None: of this one. ``size``: of the version's
        files, in bytes, if it is known. ``choose`` returns which rows."""
        from pyspark.sql import functions as F

        number = F.lit(version if source_version is None else source_version)
        with self._errors(schema):
            frame = choose(self._at(version))
            estimate = frame.count() // part.of
            size = None if size is None else size // part.of
            frame = self._part_of(frame, part)
            # Once sent, such rows could never change: the feed would not return them as they are.
            frame = refuse(frame, schema, number, text=True)
            rows = frame.select(
                *select_columns([field["name"] for field in schema["fields"]]),
                number.cast("bigint").alias(COMMIT_VERSION),
                F.lit(1).cast("tinyint").alias(RANK_COLUMN)
                if self.table.keys
                else F.lit("insert").alias(CHANGE_TYPE),
            )
            report = self._publish_stored(rows, header, estimate, size)
            if report is None:
                report = self._publish(rows, header, estimate, size=size)
            return self._noted(report)

    def _publish_stored(
        self, rows: DataFrame, header: FrameHeader, estimate: int, size: int | None
    ) -> CaptureReport | None:
        """Publish the rows of a version as they are stored, which takes neither a shuffle nor a
        sort, and leaves those together that the table has together. None: the table has no keys, or
        perhaps rows that share one, or is too large."""
        from pyspark.sql import functions as F

        keys = self.table.keys
        kinds = [rows.schema[key].dataType.simpleString() for key in keys]
        if not keys or estimate > MOST_HASHES or not all(map(HASHED_TYPES.fullmatch, kinds)):
            return None
        hashed = rows.withColumn(KEY_HASH, F.xxhash64(*select_columns(keys)))
        hashed = hashed.coalesce(_tasks(estimate))  # of many files, a table would have many frames
        report = self._publish(hashed, header, estimate, size=size, hashed=True)
        if report.keys_differ():
            return report
        self._trim(header, report)
        return None

    def _part_of(self, frame: DataFrame, part: Part) -> DataFrame:
        """Return the rows of a part: dealt by the hash of their keys, without keys by that of their
        file's name, they are the same however often the version is read, and by which address."""
        from pyspark.sql import functions as F

        if part.of == 1:
            return frame
        keys = select_columns(self.table.keys)
        dealt = keys or [frame.metadataColumn("_metadata")["file_name"]]
        return frame.where(F.pmod(F.xxhash64(*dealt), F.lit(part.of)) == part.number - 1)

    def _publish(
        self,
        rows: DataFrame,
        header: FrameHeader,
        estimate: int,
        *,
        check_text: Callable[[], None] | None = None,
        size: int | None = None,
        hashed: bool = False,
    ) -> CaptureReport:
        """Run the tasks. If strings have U+FFFD, ``check_text`` raises if the feed put it there.
        ``size``: of the files that are read, in bytes, if it is known. ``hashed``: as of
        :class:`CaptureTask`."""
        task = CaptureTask(
            self.channel,
            self.limits,
            self.table,
            header,
            watch_text=check_text is not None,
            hashed=hashed,
            tasks=_tasks(estimate),
        )
        is_sorted = bool(self.table.keys) and not hashed
        if is_sorted:
            rows = self._sorted(rows, estimate)
        report = CaptureReport()
        stages = 2 if is_sorted else 1
        query = map_in_arrow(rows, task, REPORT_SCHEMA)
        with (
            watched_jobs(query, stages) as share,
            under_way(
                "capturing", header.stream, header.origin, rows=estimate, size=size, share=share
            ),
        ):
            reported = query.collect()
        for row in reported:
            report.add(*row)
        try:
            if report.replaced and check_text is not None:
                check_text()
            self._check(report)
        except Exception:
            # The stream is held and retried: its useless frames must not pile up.
            self._trim(header, report)
            raise
        return report

    def _sorted(self, rows: DataFrame, estimate: int) -> DataFrame:
        """Return change rows as :func:`spark_wan.capture.netting.net` needs them."""
        keys = select_columns(self.table.keys)
        # Set the number: adaptive execution would make one task of what seems little to it.
        rows = rows.repartition(_tasks(estimate), *keys)
        return rows.sortWithinPartitions(*keys, COMMIT_VERSION, RANK_COLUMN)

    def _trim(self, header: FrameHeader, report: CaptureReport) -> None:
        self.channel.trim_frames(header.stream, [frame.path for frame in report.frames])

    def _noted(self, report: CaptureReport) -> CaptureResult:
        """Record what could not be sent, and return what a manifest says of the rest."""
        if report.dead_letters:
            self.record_dead_letters(report.dead_letters)
        if report.duplicates:
            self.note_duplicates(report.duplicates)
        return report.result()

    def _check(self, report: CaptureReport) -> None:
        """Raise SourceError when the stream must be held."""
        table, keys, limit = self.table.name, list(self.table.keys), self.table.max_dead_letters
        if report.changes:
            version, change = min(report.changes, key=lambda change: change[0])
            raise KeylessChangeError(
                f"{table}: version {version} changes rows other than by inserting ({change}), and "
                "the table has no key by which a remote site could find them. The stream stops "
                f"before that commit. Commits that need not travel can be marked local-only when "
                "they are made (spark_wan.LOCAL_ONLY as userMetadata). Give the table `keys:`, or "
                "the next such commit stops the stream again.",
                version,
                needs=SOURCE,
            )
        if len(report.dead_letters) > limit:
            report.too_many = str(report.dead_letters[0])
        if report.too_many:
            found = f"more than {limit} rows" if limit else "some rows"
            why, way_out = beyond_maximum(limit, "That is no accident")
            raise SourceError(
                f"{table}: {found} of one epoch have no usable key {keys} or are too large (for "
                f"example: {report.too_many}). {why}; the stream is held. If they are too large, "
                "raise max_frame_bytes of the receiving sites, then of the sender. Else repair the "
                f"rows at the source, or correct `keys:`. Or {way_out} in the topology: such rows "
                "then become dead letters.",
                needs=SOURCE,
            )

    @contextmanager
    def _errors(self, schema: Mapping[str, Any] | None = None) -> Iterator[None]:
        """Raise what an error means for the stream. ``schema``: of a job of :func:`refuse`."""
        try:
            yield
        except Exception as error:
            self._backlog.forget()  # what it has may no longer be there
            refusal = None if schema is None else refused(error, self.table.name, schema)
            meant = refusal or source_error(error, self.table.name, self.table.location)
            if meant is error:
                raise
            if isinstance(meant, HistoryLostError) and self._names_file_in_use(error):
                meant = source_unreadable(self.table.name, self.table.location, error)
            raise meant from error

    def _names_file_in_use(self, error: Exception) -> bool:
        """Whether an error names a file that the newest version cannot be read without. Neither
        VACUUM nor log cleanup takes one: it is lost or hidden, and no copy could be made."""
        from pyspark.sql import functions as F

        try:
            newest = load(self.spark, self.table.location)
            names = {file.rpartition("/")[2] for file in newest.inputFiles()}
            named = [name for name in map(unquote, names) if name in str(error)]
            if named:
                # Of a file with a deletion vector, it may be an earlier one that is gone. The
                # filter reads no column.
                of_file = newest.metadataColumn("_metadata")["file_name"].isin(named)
                newest.where(of_file).select(F.lit(1)).count()
        except Exception as another:
            if ErrorKind.CANCELLED.matches(another):
                raise
            return True  # only a version that can be read proves that the file is not missed
        return False


def _tasks(estimate: int) -> int:
    """Return how many tasks capture so many change rows of a table with keys."""
    return max(1, math.ceil(estimate / ROWS_PER_TASK))
