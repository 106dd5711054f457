"""Delta tables as Spark shows them: how they are named, described, read by version, and how their errors are told apart.

Shared by sender and receiver. Uses SQL and DataFrames only, so classic sessions and Spark Connect work alike.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from spark_wan.columns import CHAR_VARCHAR
from spark_wan.commits import DAY, Commit
from spark_wan.errors import (
    COPY,
    ChangeFeedError,
    HistoryLostError,
    SourceError,
    SourceUnreadableError,
    StoppedError,
    WanError,
)
from spark_wan.running import is_connect
from spark_wan.topology import catalog_parts, is_path

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_FIRST_LOOK = 20
LOG_RETENTION = 30 * DAY
"""Delta's default, in milliseconds."""
_UNITS = {"week": 7 * DAY, "day": DAY, "hour": 3_600_000, "minute": 60_000, "second": 1_000}
_MISSING = (
    "DELTA_TABLE_NOT_FOUND",
    "DELTA_MISSING_DELTA_TABLE",
    "DELTA_PATH_DOES_NOT_EXIST",
    "TABLE_OR_VIEW_NOT_FOUND",
    "PATH_NOT_FOUND",
)
_MISSING_TEXTS = (
    "_delta_log does not exist",
    "is not a Delta table",
    "DELTA_ONLY_OPERATION",
    "doesn't exist",
    "cannot be found",
)
_FEED_OFF = ("DELTA_MISSING_CHANGE_DATA", "DELTA_CHANGE_TABLE_FEED_DISABLED", "DELTA_CHANGE_DATA_FEED_DISABLED")
_HISTORY_LOST = (
    "DELTA_LOG_FILE_NOT_FOUND",
    "FAILED_READ_FILE.FILE_NOT_EXIST",
    "DELTA_FILE_NOT_FOUND",
    "DELTA_UNSUPPORTED_TIME_TRAVEL_BEYOND_DELETED_FILE_RETENTION",
    "DELTA_VERSIONS_NOT_CONTIGUOUS",
    "DELTA_VERSION_NOT_FOUND",
    "DELTA_TRUNCATED_TRANSACTION_LOG",
)
_NOT_THERE = "FileNotFoundException: "
_THERE = re.compile(_NOT_THERE + r"/[^\n]* \((?!No such file or directory\))[^()\n]+\)$", re.MULTILINE)
"""Java's FileNotFoundException of a file that is there and cannot be opened: ``/path (Permission denied)``, ``(Too many open files)``."""
_READ_FAILED = re.compile(
    r"FAILED_READ_FILE|FileNotFoundException|AccessDeniedException|\bjava\.(?:io|net)\.\w*(?:IO|Socket|Timeout|Connect|UnknownHost)\w*Exception"
    r"|\bSlowDown\b|Throttl\w*|TooManyRequests|ServiceUnavailable|Status Code: (?:429|5\d\d)|Connection reset|Read timed out"
)
"""What Hadoop's file systems and the stores' clients say when they could not read for now."""
_CONFLICTS = ("DELTA_CONCURRENT", "DELTA_METADATA_CHANGED", "DELTA_PROTOCOL_CHANGED", "CONCURRENT_WRITE")
_CANCELLED = ("SPARK_JOB_CANCELLED", "OPERATION_CANCELED")
_INTERRUPTED = (
    "java.lang.InterruptedException",
    "java.io.InterruptedIOException",
    "java.nio.channels.ClosedByInterruptException",
    "java.util.concurrent.CancellationException",
)
_MOST_CAUSES = 20
_CHECKPOINT_CONFLICT = "CONCURRENT_STREAM_LOG_UPDATE"
_PYTHON_MISSING = "Python worker failed to connect back"
_CONFLICT_TEXTS = (
    "ConcurrentTransactionException",
    "ConcurrentAppendException",
    "ConcurrentDeleteReadException",
    "ConcurrentDeleteDeleteException",
    "ConcurrentWriteException",
    "ConcurrentModificationException",
    "MetadataChangedException",
    "ProtocolChangedException",
    "DeltaConcurrentModificationException",
)

_REFUSALS = (
    "DeltaInvariantViolationException",
    "[DELTA_EXCEED_CHAR_VARCHAR_LIMIT]",
    "[DELTA_NOT_NULL_CONSTRAINT_VIOLATED]",
    "[DELTA_VIOLATE_CONSTRAINT_WITH_VALUES]",
)


def quoted(name: str) -> str:
    """An identifier for SQL.

    >>> quoted("a`b")
    '`a``b`'
    """
    return "`" + name.replace("`", "``") + "`"


def literal(text: str) -> str:
    """A string for SQL, where a statement takes no parameters (Delta's DELETE).

    >>> literal("a'b")
    "'a\\\\'b'"
    """
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def reference(location: str) -> str:
    """A table's name in SQL, for a path, a URL or a catalog name.

    >>> reference("main.`my schema`.`t.1`")
    '`main`.`my schema`.`t.1`'
    """
    if is_path(location):
        return f"delta.{quoted(location)}"
    return ".".join(quoted(part) for part in catalog_parts(location))


def commit_file(location: str, version: int) -> str:
    """Where a table that lies in a folder here keeps what a version's commit did."""
    return f"{location.removeprefix('file://')}/_delta_log/{version:020d}.json"


def commit_identity(location: str, version: int) -> tuple[int, ...] | None:
    """What tells the file of a commit from another one's in its place; None when there is none, here."""
    try:
        found = os.stat(commit_file(location, version))
    except OSError:
        return None
    # A copy can keep the time of the last change (cp -p) and be given the same inode; this time nobody sets.
    return found.st_dev, found.st_ino, found.st_size, found.st_ctime_ns


def load(spark: SparkSession, location: str, **options: object) -> DataFrame:
    """A DataFrame of a Delta table, with reader options."""
    reader = spark.read.format("delta").options(**{name: str(value) for name, value in options.items()})
    return reader.load(location) if is_path(location) else reader.table(reference(location))


def table_id(spark: SparkSession, location: str) -> str | None:
    """The table's ID, or None when there is no Delta table."""
    try:
        rows = spark.sql(f"DESCRIBE DETAIL {reference(location)}").select("id").collect()
    except Exception as error:
        if is_missing(error):
            return None
        raise
    return str(rows[0][0]) if rows and rows[0][0] is not None else None


def is_there(spark: SparkSession, location: str) -> bool:
    """Whether there is a Delta table. Cheaper than its ID, for which Delta counts its files."""
    try:
        _ = load(spark, location).columns  # a Connect session asks only when it must
        return True
    except Exception as error:
        if is_missing(error):
            return False
        raise


def has_change_feed(spark: SparkSession, location: str) -> bool:
    """Whether the table keeps a change feed for what is written from now on."""
    properties = _detail(spark, location, "properties") or {}
    return str(properties.get("delta.enableChangeDataFeed", "false")).lower() == "true"


def log_retention(spark: SparkSession, location: str) -> int:
    """How long a table's log keeps a commit, in milliseconds (``delta.logRetentionDuration``)."""
    told = (_detail(spark, location, "properties") or {}).get("delta.logRetentionDuration")
    return LOG_RETENTION if told is None else milliseconds_of(told)


def milliseconds_of(interval: str) -> int:
    """The length of an interval as Delta's table properties write it. What is no such text has no length.

    >>> milliseconds_of("interval 1 week 12 hours"), milliseconds_of("30 days"), milliseconds_of("soon")
    (648000000, 2592000000, 0)
    """
    parts = re.findall(r"([0-9]+(?:\.[0-9]+)?) +(week|day|hour|minute|second)s?\b", interval.lower())
    return round(sum(float(number) * _UNITS[unit] for number, unit in parts))


def last_transaction(spark: SparkSession, location: str, application: str) -> int | None:
    """The newest transaction number of an application that a table's log tells of, or None. Delta keeps it in every checkpoint, so it outlives the
    commits that log cleanup takes. Delta has no statement that shows it: the log's files are read, where they may be read."""
    from pyspark.sql import functions as F

    numbers = [
        actions.where(F.col("txn.appId") == application).agg(F.max("txn.version")).collect()[0][0]
        for actions in _logged(spark, location, "txn struct<appId: string, version: bigint>")
    ]
    return max((number for number in numbers if number is not None), default=None)


def _detail(spark: SparkSession, location: str, column: str) -> Any:
    """One column of DESCRIBE DETAIL."""
    return spark.sql(f"DESCRIBE DETAIL {reference(location)}").select(column).collect()[0][0]


def _logged(spark: SparkSession, location: str, schema: str) -> Iterator[DataFrame]:
    """The actions of a table's log that have ``schema``: those of its commits, then those of its checkpoints."""
    folder = location if is_path(location) else _detail(spark, location, "location")
    for kind, names in (("json", "*.json"), ("parquet", "*.checkpoint*.parquet")):
        reader = spark.read.format(kind).option("pathGlobFilter", names).schema(schema)
        yield reader.load(f"{folder}/_delta_log")


def history(spark: SparkSession, location: str, after: int, limit: int = _FIRST_LOOK) -> list[Commit]:
    """The commits above version ``after`` that the history still has, ascending. Looks back no further than it must."""
    while True:
        commits = _last_commits(spark, location, limit)
        if len(commits) < limit or commits[0].version <= after + 1:
            return [commit for commit in commits if commit.version > after]
        limit *= 8


def newest(spark: SparkSession, location: str) -> Commit:
    """The table's newest commit."""
    return _last_commits(spark, location, 1)[0]


def _last_commits(spark: SparkSession, location: str, limit: int) -> list[Commit]:
    told = spark.sql(f"DESCRIBE HISTORY {reference(location)} LIMIT {limit}")
    if is_connect(spark):
        # Its local times do not know which side of a change of clocks they are on.
        told = told.selectExpr("* EXCEPT (timestamp)", "unix_millis(timestamp) AS milliseconds")
    rows = told.collect()  # as they come: any projection would be a Spark job of its own
    return [
        Commit(
            version=row["version"],
            time=row["milliseconds"] if "milliseconds" in row else round(row["timestamp"].timestamp() * 1000),
            operation=row["operation"] or "",
            parameters=row["operationParameters"] or {},
            metrics=row["operationMetrics"] or {},
            user_metadata=row["userMetadata"],
            read_version=row["readVersion"],
        )
        for row in reversed(rows)
    ]


def schema_json(frame: DataFrame) -> dict[str, Any]:
    """A DataFrame's columns as Spark's schema JSON."""
    content: dict[str, Any] = json.loads(frame.schema.json())
    return content


def logged_schema(spark: SparkSession, location: str) -> dict[str, Any]:
    """The columns as the table's log has them: with the expressions of generated columns and with identity columns, which Delta shows nowhere
    else. Reads the whole log: ask seldom."""
    from pyspark.sql import functions as F

    # Each commit since the newest checkpoint is there as JSON: a schema in one of them is newer than any checkpoint's.
    for actions in _logged(spark, location, "metaData struct<schemaString: string>"):
        found = (
            actions.where("metaData IS NOT NULL")
            .select(F.col("_metadata.file_name").substr(1, 20).alias("version"), "metaData.schemaString")
            .orderBy(F.desc("version"))
            .limit(1)
            .collect()
        )
        if found:
            content: dict[str, Any] = json.loads(found[0][1])
            return content
    raise ValueError(f"the log of {location} has no schema")


def refuses_a_row(error: BaseException) -> bool:
    """Delta has found a row that one of the table's constraints refuses."""
    return any(name in str(error) for name in _REFUSALS)


def portable_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The columns for a new table elsewhere: all nullable, without metadata that belongs to the source alone."""

    def kind(value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        changed = dict(value)
        if changed["type"] == "struct":
            changed["fields"] = [field(entry) for entry in changed["fields"]]
        for name, flag in (("elementType", "containsNull"), ("valueType", "valueContainsNull"), ("keyType", None)):
            if name in changed:
                changed[name] = kind(changed[name])
                if flag:
                    changed[flag] = True
        return changed

    def field(entry: Mapping[str, Any]) -> dict[str, Any]:
        kept = {name: text for name, text in (entry.get("metadata") or {}).items() if name == CHAR_VARCHAR}
        return {"name": entry["name"], "type": kind(entry["type"]), "nullable": True, "metadata": kept}

    return {"type": "struct", "fields": [field(entry) for entry in schema["fields"]]}


def sql_type(kind: Any) -> str:
    """A type of Spark's schema JSON in SQL.

    >>> sql_type({"type": "struct", "fields": [{"name": "a-b", "type": "integer"}]})
    'struct<`a-b`: integer>'
    """
    if not isinstance(kind, Mapping):
        return str(kind)
    if kind["type"] == "array":
        return f"array<{sql_type(kind['elementType'])}>"
    if kind["type"] == "map":
        return f"map<{sql_type(kind['keyType'])}, {sql_type(kind['valueType'])}>"
    fields = (f"{quoted(entry['name'])}: {sql_type(entry['type'])}" for entry in kind["fields"])
    return f"struct<{', '.join(fields)}>"


def needs_column_mapping(kind: Any) -> bool:
    """Whether a name in a type of Spark's schema JSON has characters that Delta takes with a column mapping only."""
    if not isinstance(kind, Mapping):
        return False
    fields = kind.get("fields", ())
    return any(
        set(entry["name"]) & set(" ,;{}()\n\t=") or needs_column_mapping(entry["type"]) for entry in fields
    ) or any(needs_column_mapping(kind.get(part)) for part in ("elementType", "keyType", "valueType"))


_OF_ONE_TRY = [
    (re.compile(pattern), text)
    for pattern, text in (
        (r"\bwan_[0-9a-f]{32}\b", "wan_…"),  # temporary views
        (r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "…"),
        (r"\bpart-\d{5}-…[-.\w]*", "part-…"),  # data files
        (r"(?<=[\w`)\]])#\d+L?\b", ""),  # columns in a plan: id#12L
        (r"\b(plan_id=|Delta\[version=|calling o)\d+", r"\1…"),
        (r"(?<=[\w;$])@[0-9a-f]{5,16}\b", "@…"),  # objects of the JVM
        (r"\b([Tt]ask|[Ss]tage|TID|[Aa]ttempt|[Jj]ob) \d+(?:\.\d+)?\b", r"\1 …"),
        (r"\(TID …\) \([^()]*\)", "(TID …)"),  # where the task ran
        (r"\b\d+(?:\.\d+)?(?= ?(?:ms|milliseconds|seconds)\b)", "…"),
        (r"(?i)\b(request id:? *)[\w/+=-]+", r"\1…"),
    )
]
"""What Spark, Delta and stores name anew at each try."""


def error_text(error: BaseException) -> str:
    """What Spark says, in one line, without the JVM's stack, and the same each time that the same goes wrong: a cause that changes at each
    try would be logged and acked anew each time."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if any(line.startswith("Traceback") for line in lines):
        # An error of a Python worker: what was raised stands in the last line, the stack before it.
        lines = [lines[0], lines[-1]]
    lines = [line for line in lines if not line.startswith(("at ", "JVM stacktrace"))]
    text = " ".join(lines[:3]) if lines else type(error).__name__
    for pattern, steady in _OF_ONE_TRY:
        text = pattern.sub(steady, text)
    return text if len(text) <= 600 else text[:600] + " …"


def condition(error: BaseException) -> str:
    """Spark's error condition (``DELTA_…``), or ''."""
    return _condition(error) or _condition(getattr(error, "java_exception", None))


def _condition(error: object) -> str:
    getter = getattr(error, "getCondition", None)
    try:
        return str(getter() or "") if getter is not None else ""
    except Exception:
        return ""  # py4j offers any name of a Java exception


def is_missing(error: BaseException) -> bool:
    """The table is not there."""
    return condition(error).startswith(_MISSING) or any(text in str(error) for text in _MISSING_TEXTS)


def is_conflict(error: BaseException) -> bool:
    """Another writer was faster. Delta's conflict errors have no common Python class."""
    # delta-spark's own exceptions have no condition: their class or their message tells.
    texts = (*_CONFLICT_TEXTS, *(f"[{name}" for name in _CONFLICTS))
    return (
        condition(error).startswith(_CONFLICTS)
        or type(error).__name__ in _CONFLICT_TEXTS
        or any(text in str(error) for text in texts)
    )


def is_cancelled(error: BaseException) -> bool:
    """Whether a Spark job was cancelled. Conditions and classes of the error and its causes tell, never the text: that may hold a row's value."""
    return any(
        isinstance(each, (StoppedError, KeyboardInterrupt))
        or condition(each) in _CANCELLED
        or _java_class(each) in _INTERRUPTED
        for each in _with_causes(error)
    )


def is_checkpoint_conflict(error: BaseException) -> bool:
    """Whether a streaming query has ended because another one has written to its checkpoint."""
    return any(condition(each) == _CHECKPOINT_CONFLICT for each in _with_causes(error)) or (
        is_connect_error(error) and f"[{_CHECKPOINT_CONFLICT}" in str(error)
    )


def is_python_missing(error: BaseException) -> bool:
    """Whether a process of Python that Spark started did not come up within ten seconds: a busy machine, or an interpreter that cannot run."""
    return any(_PYTHON_MISSING in str(each) for each in _with_causes(error))


def is_connect_error(error: BaseException) -> bool:
    """Whether an error comes from a Spark Connect server, which sends the causes as text only."""
    return type(error).__module__.startswith("pyspark.errors.exceptions.connect")


def _with_causes(error: BaseException) -> Iterator[Any]:
    """An error and what caused it, in Python and in Java."""
    waiting: list[Any] = [error]
    seen: list[Any] = []
    while waiting and len(seen) < _MOST_CAUSES:
        each = waiting.pop(0)
        seen.append(each)
        yield each
        if isinstance(each, BaseException):
            waiting += [each.__cause__, getattr(each, "java_exception", None), getattr(each, "_origin", None)]
        else:
            waiting.append(_from_java(each, "getCause"))
        waiting = [cause for cause in waiting if cause is not None and not any(cause is known for known in seen)]


def _java_class(error: object) -> str:
    found = None if isinstance(error, BaseException) else _from_java(error, "getClass")
    return str(found.getName()) if found is not None else ""


def _from_java(error: Any, name: str) -> Any:
    try:
        return getattr(error, name)()
    except Exception:
        return None  # the JVM is gone, and its objects with it


def source_error(error: Exception, table: str, location: str) -> Exception:
    """What an error while a source is read means for its stream, as one of our own; others as they are."""
    if isinstance(error, WanError) or is_cancelled(error):
        return error
    found, text = condition(error), error_text(error)
    if found.startswith(_FEED_OFF) or "DELTA_MISSING_CHANGE_DATA" in text:
        return ChangeFeedError(feed_advice(table, location, text))
    told = str(error)
    lost = found.startswith(_HISTORY_LOST) or (
        any(name in told for name in (*_HISTORY_LOST, _NOT_THERE)) and not is_missing(error)
    )
    if lost and not _THERE.search(told):
        return HistoryLostError(
            f"{table}: changes that were not published yet can no longer be read: VACUUM or log cleanup has overtaken the sender ({text}). "
            f"Nothing after them is sent, so that no site misses them silently. Make {COPY}. Raise "
            "delta.deletedFileRetentionDuration and delta.logRetentionDuration above the longest pause."
        )
    if is_missing(error):
        return SourceError(no_table(table, location, text))
    if _READ_FAILED.search(told) and "PythonException" not in told:
        return SourceUnreadableError(
            f"{table}: files of the table at {location} cannot be read now ({text}). Nothing is skipped; the stream waits and retries. When "
            "it lasts, check the store's limits and its answer, credentials and permissions; a damaged file must be restored from a backup."
        )
    return error


def no_table(table: str, location: str, cause: str) -> str:
    """The error of a table that is not at its place."""
    return (
        f"{table}: there is no Delta table at {location} ({cause}). It is looked for again. If the place is wrong, correct it under `at` in the topology; if a "
        "sink writes the rows, set `source: sink` for the table there."
    )


def feed_advice(table: str, location: str, cause: str) -> str:
    """The error of a table without change feed, with the statement that mends it."""
    return (
        f"{table}: the table keeps no change feed for the versions that are to be sent ({cause}). Switch it on with: "
        f"ALTER TABLE {reference(location)} SET TBLPROPERTIES (delta.enableChangeDataFeed = true). A stream with `start: snapshot`, "
        "the default, then sends the rows that are there; one that starts at a version must start after that one."
    )


def select_columns(names: Sequence[str]) -> list[Any]:
    """Columns by name, whatever characters they have."""
    from pyspark.sql import functions as F

    return [F.col(quoted(name)) for name in names]


def map_in_arrow(
    frame: DataFrame, task: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]], result: str | StructType
) -> DataFrame:
    """``frame.mapInArrow(task, result)`` for columns with any names: pyspark's own takes dots for struct fields and fails on backticks."""
    names = frame.columns

    def named(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return task(batch.rename_columns(names) for batch in batches)

    return frame.toDF(*(f"c{place}" for place in range(len(names)))).mapInArrow(named, result)
