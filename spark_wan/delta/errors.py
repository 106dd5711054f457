"""What errors of Spark and Delta mean: the only place that knows their words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from spark_wan.delta.sql import reference
from spark_wan.errors import (
    COPY,
    ChangeFeedError,
    HistoryLostError,
    SourceError,
    SourceUnreadableError,
    StoppedError,
    WanError,
)

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
_FEED_OFF = (
    "DELTA_MISSING_CHANGE_DATA",
    "DELTA_CHANGE_TABLE_FEED_DISABLED",
    "DELTA_CHANGE_DATA_FEED_DISABLED",
)
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
_THERE = re.compile(
    _NOT_THERE + r"/[^\n]* \((?!No such file or directory\))[^()\n]+\)$", re.MULTILINE
)
"""Java's FileNotFoundException of a file that is there and cannot be opened: ``/path (Permission denied)``, ``(Too many open files)``."""
_READ_FAILED = re.compile(
    r"FAILED_READ_FILE|FileNotFoundException|AccessDeniedException|\bjava\.(?:io|net)\.\w*(?:IO|Socket|Timeout|Connect|UnknownHost)\w*Exception"
    r"|\bSlowDown\b|Throttl\w*|TooManyRequests|ServiceUnavailable|Status Code: (?:429|5\d\d)|Connection reset|Read timed out"
)
"""What Hadoop's file systems and the stores' clients say when they could not read for now."""
_CONFLICTS = (
    "DELTA_CONCURRENT",
    "DELTA_METADATA_CHANGED",
    "DELTA_PROTOCOL_CHANGED",
    "CONCURRENT_WRITE",
)
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


def refuses_a_row(error: BaseException) -> bool:
    """Delta has found a row that one of the table's constraints refuses."""
    return any(name in str(error) for name in _REFUSALS)


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
    return condition(error).startswith(_MISSING) or any(
        text in str(error) for text in _MISSING_TEXTS
    )


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
            waiting += [
                each.__cause__,
                getattr(each, "java_exception", None),
                getattr(each, "_origin", None),
            ]
        else:
            waiting.append(_from_java(each, "getCause"))
        waiting = [
            cause
            for cause in waiting
            if cause is not None and not any(cause is known for known in seen)
        ]


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
