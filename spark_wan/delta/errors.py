"""What errors of Spark and Delta mean, by their conditions, classes and texts.

:class:`ErrorKind` lists the kinds, each with the signs by which it is recognised. A new error is
one more sign there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

from spark_wan.delta.sql import reference
from spark_wan.errors import (
    SOURCE,
    ChangeFeedError,
    HistoryLostError,
    SourceError,
    SourceUnreadableError,
    StoppedError,
    WanError,
)

_MAX_CAUSES = 20
_LOST = (
    "DELTA_LOG_FILE_NOT_FOUND",
    "FAILED_READ_FILE.FILE_NOT_EXIST",
    "DELTA_FILE_NOT_FOUND",
    "DELTA_UNSUPPORTED_TIME_TRAVEL_BEYOND_DELETED_FILE_RETENTION",
    "DELTA_VERSIONS_NOT_CONTIGUOUS",
    "DELTA_VERSION_NOT_FOUND",
    "DELTA_TRUNCATED_TRANSACTION_LOG",
)
_CONFLICTS = (
    "DELTA_CONCURRENT",
    "DELTA_METADATA_CHANGED",
    "DELTA_PROTOCOL_CHANGED",
    "CONCURRENT_WRITE",
)
# Delta's conflicts have no common Python class, and delta-spark's own exceptions no condition.
_CONFLICT_CLASSES = (
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


UNSTORABLE = "spark_wan: a value that cannot be stored in partition column"
"""Raised by a write (:mod:`spark_wan.target.partitions`)."""


@dataclass(frozen=True)
class Signs:
    """The signs of one kind of error. Any one of them is enough."""

    conditions: tuple[str, ...] = ()
    """Spark's error conditions, or how they begin."""
    classes: tuple[str, ...] = ()
    """Python classes by name (subclasses count), Java classes by full name."""
    text: str | None = None
    """Regular expression for the message. A message may quote the values of a row."""
    connect_text: str | None = None
    """The same, for errors of a Spark Connect server: it sends the causes as text only."""
    unless: str | None = None
    """Regular expression for messages of another kind, whatever the signs."""
    causes: bool = False
    """Look for the signs in the causes of an error too."""

    def match(self, error: Any) -> bool:
        """Whether ``error``, of Python or Java, shows one of the signs itself; not its causes."""
        return (
            condition(error).startswith(self.conditions)
            or any(name in self.classes for name in _class_names(error))
            or (self.text is not None and re.search(self.text, str(error)) is not None)
        )


class ErrorKind(Enum):
    """The kinds of errors that spark_wan treats differently. An error may be of several kinds."""

    _value_: Signs

    CANCELLED = Signs(  # no text: a row may hold the same words
        conditions=("SPARK_JOB_CANCELLED", "OPERATION_CANCELED"),
        classes=(
            StoppedError.__name__,
            KeyboardInterrupt.__name__,
            "java.lang.InterruptedException",
            "java.io.InterruptedIOException",
            "java.nio.channels.ClosedByInterruptException",
            "java.util.concurrent.CancellationException",
        ),
        causes=True,
    )
    """A Spark job or this process was asked to stop."""
    CONFLICT = Signs(
        conditions=_CONFLICTS,
        classes=_CONFLICT_CLASSES,
        text="|".join((*_CONFLICT_CLASSES, *(rf"\[{name}" for name in _CONFLICTS))),
    )
    """Another writer has committed to the table first."""
    ROW_REFUSED = Signs(
        text=r"DeltaInvariantViolationException|\[DELTA_EXCEED_CHAR_VARCHAR_LIMIT\]"
        r"|\[DELTA_NOT_NULL_CONSTRAINT_VIOLATED\]|\[DELTA_VIOLATE_CONSTRAINT_WITH_VALUES\]"
        rf"|{UNSTORABLE}|File name too long|Mkdirs failed|Nul character not allowed|KeyTooLong"
    )
    """A constraint of the table refuses a row, or a partition column cannot store its value."""
    MISSING = Signs(
        conditions=(
            "DELTA_TABLE_NOT_FOUND",
            "DELTA_MISSING_DELTA_TABLE",
            "DELTA_PATH_DOES_NOT_EXIST",
            "TABLE_OR_VIEW_NOT_FOUND",
            "PATH_NOT_FOUND",
        ),
        text="_delta_log does not exist|is not a Delta table|DELTA_ONLY_OPERATION|doesn't exist"
        "|cannot be found",
    )
    """There is no Delta table at the place."""
    FEED_OFF = Signs(
        conditions=(
            "DELTA_MISSING_CHANGE_DATA",
            "DELTA_CHANGE_TABLE_FEED_DISABLED",
            "DELTA_CHANGE_DATA_FEED_DISABLED",
        ),
        text="DELTA_MISSING_CHANGE_DATA",
    )
    """The table has no change feed for the versions that were asked for."""
    FEED_INCOMPATIBLE = Signs(
        conditions=("DELTA_CHANGE_DATA_FEED_INCOMPATIBLE",),
        text="DELTA_CHANGE_DATA_FEED_INCOMPATIBLE",
    )
    """The columns have changed such that Delta does not read the change feed across the change."""
    HISTORY_LOST = Signs(
        conditions=_LOST,
        text="|".join((*map(re.escape, _LOST), "FileNotFoundException: ")),
        # Java reports a file that exists but cannot be opened in the same way:
        # "/path (Permission denied)", "/path (Too many open files)".
        unless=r"(?m)FileNotFoundException: /[^\n]* \((?!No such file or directory\))[^()\n]+\)$",
    )
    """Files that the table's log or rows need are deleted."""
    STORE_UNAVAILABLE = Signs(
        text="FAILED_READ_FILE|FileNotFoundException|AccessDeniedException"
        r"|\bjava\.(?:io|net)\.\w*(?:IO|Socket|Timeout|Connect|UnknownHost)\w*Exception"
        r"|\bSlowDown\b|Throttl\w*|TooManyRequests|ServiceUnavailable"
        r"|Status Code: (?:429|5\d\d)|Connection reset|Read timed out",
        unless="PythonException",  # a task's own error, for example of the channel
    )
    """Hadoop's file system or the store's client cannot read for now."""

    def matches(self, error: BaseException) -> bool:
        """Whether ``error`` is of this kind. Only kinds that have text look at the message."""
        signs = self.value
        if signs.unless is not None and re.search(signs.unless, str(error)):
            return False
        errors = _with_causes(error) if signs.causes else (error,)
        return any(signs.match(each) for each in errors) or (
            signs.connect_text is not None
            and type(error).__module__.startswith("pyspark.errors.exceptions.connect")
            and re.search(signs.connect_text, str(error)) is not None
        )


def condition(error: Any) -> str:
    """Return Spark's error condition (``DELTA_…``), or ''."""
    for each in (error, getattr(error, "java_exception", None)):
        try:
            getter = getattr(each, "getCondition", None)
            if getter is not None and (name := getter()):
                return str(name)
        except Exception:
            continue  # py4j offers any name of a Java exception
    return ""


def _class_names(error: Any) -> list[str]:
    if isinstance(error, BaseException):
        return [each.__name__ for each in type(error).__mro__]
    java_class = _from_java(error, "getClass")
    return [] if java_class is None else [str(java_class.getName())]


def _with_causes(error: BaseException) -> Iterator[Any]:
    """An error and its causes, in Python and in Java."""
    waiting: list[Any] = [error]
    seen: list[Any] = []
    while waiting and len(seen) < _MAX_CAUSES:
        each = waiting.pop(0)
        if each is None or any(each is known for known in seen):
            continue
        seen.append(each)
        yield each
        if isinstance(each, BaseException):
            java = (getattr(each, name, None) for name in ("java_exception", "_origin"))
            waiting += [each.__cause__, *java]
        else:
            waiting.append(_from_java(each, "getCause"))


def _from_java(error: Any, name: str) -> Any:
    try:
        return getattr(error, name)()
    except Exception:
        return None  # the JVM has ended, and its objects with it


_VOLATILE = [
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
"""What Spark, Delta and stores name differently at each attempt."""


def error_text(error: BaseException) -> str:
    """Return Spark's message in one line, without the JVM's stack, equal at each attempt.

    A cause that changed at each attempt would be logged and acked each time.
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if any(line.startswith("Traceback") for line in lines):
        # An error of a Python worker: the last line says what was raised.
        lines = [lines[0], lines[-1]]
    elif causes := [line for line in lines if line.startswith("Caused by: ")]:
        # The outer errors say where it was found, the last one what it was.
        lines = [*[line for line in lines[:2] if line not in causes], causes[-1]]
    lines = [line for line in lines if not line.startswith(("at ", "JVM stacktrace"))]
    text = " ".join(lines[:3]) if lines else type(error).__name__
    for pattern, steady in _VOLATILE:
        text = pattern.sub(steady, text)
    return text if len(text) <= 600 else text[:600] + " …"


def newest_version(error: BaseException) -> int | None:
    """Return the table's newest version, which Delta names when it refuses a higher one."""
    if condition(error) != "DELTA_CDC_START_VERSION_AFTER_LATEST":
        return None
    version = re.search(r"latest table version (-?\d+)", str(error))
    return int(version[1]) if version else None


def source_error(error: Exception, table: str, location: str) -> Exception:
    """Return what an error means for the stream whose source is read; unknown ones as they are."""
    if isinstance(error, WanError) or ErrorKind.CANCELLED.matches(error):
        return error
    text = error_text(error)
    if ErrorKind.FEED_OFF.matches(error):
        return feed_off(table, location, text)
    missing = ErrorKind.MISSING.matches(error)
    # Of errors that show both, only the condition proves that the history is lost.
    lost = condition(error).startswith(ErrorKind.HISTORY_LOST.value.conditions) or not missing
    if lost and ErrorKind.HISTORY_LOST.matches(error):
        return HistoryLostError(
            f"{table}: changes that are not published yet can no longer be read: VACUUM or log "
            f"cleanup has overtaken the sender ({text}). Raise "
            "delta.deletedFileRetentionDuration and delta.logRetentionDuration above the "
            "longest pause.",
            needs=SOURCE,
        )
    if missing:
        return table_missing(table, location, text)
    if ErrorKind.STORE_UNAVAILABLE.matches(error):
        return source_unreadable(table, location, error)
    return error


def source_unreadable(table: str, location: str, error: Exception) -> SourceUnreadableError:
    """Return the error of a table whose files are there, or must be, but cannot be read."""
    return SourceUnreadableError(
        f"{table}: files of the table at {location} cannot be read now ({error_text(error)}). "
        "Nothing is skipped; the stream waits and retries. If this lasts, check the store's "
        "limits, its response, credentials and permissions; restore a damaged or missing file "
        "from a backup."
    )


def table_missing(table: str, location: str, cause: str) -> SourceError:
    """Return the error of a table that is not at its place."""
    return SourceError(
        f"{table}: there is no Delta table at {location} ({cause}). The stream begins once it is "
        "there. If the place is wrong, correct it under `at` in the topology; if a sink writes the "
        "rows, set `source: sink` for the table there."
    )


def feed_off(table: str, location: str, cause: str) -> ChangeFeedError:
    """Return the error of a table without change feed, with the statement that enables it."""
    return ChangeFeedError(
        f"{table}: the table keeps no change feed for the versions that are to be sent ({cause}). "
        f"Enable it with: ALTER TABLE {reference(location)} SET TBLPROPERTIES "
        "(delta.enableChangeDataFeed = true). A stream that has published nothing yet then goes "
        "on: with `start: snapshot`, the default, it sends the rows of the table; with a version, "
        "that must be later than the ALTER. A stream that has published lacks the changes since.",
        needs=SOURCE,
    )
