"""Cancelled jobs, checkpoint conflicts, ended sessions: known by class and condition, not text."""

from __future__ import annotations

from typing import Any

import pytest

from spark_wan.delta.errors import ErrorKind, condition
from spark_wan.delta.sessions import lost_session
from spark_wan.errors import SessionLostError, SourceError, StoppedError, TargetError


class Java:
    """A Java exception in py4j: methods that it lacks have names, and fail when called."""

    def __init__(self, name: str, condition: str | None = None, cause: Java | None = None) -> None:
        self.name, self.condition, self.cause = name, condition, cause

    def getClass(self) -> Any:
        return self

    def getName(self) -> str:
        return self.name

    def getCause(self) -> Java | None:
        return self.cause

    def getCondition(self) -> str:
        if self.condition is None:
            raise RuntimeError("Method getCondition([]) does not exist")
        return self.condition


class Py4JJavaError(Exception):
    def __init__(self, text: str, java: Java) -> None:
        super().__init__(text)
        self.java_exception = java


class PySparkError(Exception):
    """An exception of pyspark, of a Java one or (``condition`` alone) a Spark Connect server."""

    def __init__(self, text: str, condition: str | None = None, origin: Java | None = None) -> None:
        super().__init__(text)
        self.condition, self._origin = condition, origin

    def getCondition(self) -> str | None:
        return self.condition


JOB = Java("org.apache.spark.SparkException", "SPARK_JOB_CANCELLED")


def with_cause(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    "error",
    [
        Py4JJavaError("calling o75.collectToPython", JOB),
        Py4JJavaError("calling o60.sql", Java("org.apache.spark.SparkException", None, JOB)),
        Py4JJavaError("calling o75.collect", Java("java.lang.InterruptedException")),
        PySparkError("[OPERATION_CANCELED]", "OPERATION_CANCELED"),
        PySparkError(
            "the write failed",
            "TASK_WRITE_FAILED",
            Java("org.apache.spark.SparkException", "A", JOB),
        ),
        with_cause(TargetError("cannot be written now"), Py4JJavaError("o1.save", JOB)),
        StoppedError("stopped"),
    ],
)
def test_f50_a_cancelled_job_is_recognised_by_its_condition_or_its_causes(
    error: Exception,
) -> None:
    assert ErrorKind.CANCELLED.matches(error)


@pytest.mark.parametrize(
    "text", ["was cancelled", "InterruptedException", "SPARK_JOB_CANCELLED", "SESSION_CLOSED"]
)
def test_f50_a_row_value_that_says_cancelled_cancels_nothing(text: str) -> None:
    """Spark quotes values in its errors.

    Fails when the text of an error is searched: the stream of such a row ended for good.
    """
    java = Java("org.apache.spark.SparkNumberFormatException", "CAST_INVALID_INPUT")
    error = PySparkError(
        f"[CAST_INVALID_INPUT] The value '{text}' of the type STRING cannot be cast", None, java
    )
    assert not ErrorKind.CANCELLED.matches(error)
    assert not ErrorKind.CANCELLED.matches(SourceError(f"orders: {text}"))
    assert not ErrorKind.CANCELLED.matches(with_cause(TargetError("cannot be written"), error))
    assert not ErrorKind.CANCELLED.matches(Py4JJavaError(f"o1: {text}", java))


def test_circular_causes_end() -> None:
    java = Java("a.B")
    java.cause = Java("c.D", None, java)
    assert not ErrorKind.CANCELLED.matches(Py4JJavaError("o1", java))


def test_an_error_has_the_condition_of_its_java_exception() -> None:
    """pyspark passes on a plain SparkException as it came from py4j."""
    assert condition(Py4JJavaError("o1", JOB)) == "SPARK_JOB_CANCELLED"


def test_a_cancellation_is_found_among_the_causes() -> None:
    cancelled = Java("org.apache.spark.SparkException", "SPARK_JOB_CANCELLED")
    failed = Java("org.apache.spark.SparkException", "FAILED", cancelled)
    assert ErrorKind.CANCELLED.matches(PySparkError("[FAILED]", "FAILED", failed))
    assert not ErrorKind.CANCELLED.matches(PySparkError("order '[SPARK_JOB_CANCELLED]'", "FAILED"))


class ConcurrentAppendException(Exception):
    """A conflict of delta-spark, which has no condition."""


class ConnectError(PySparkError):
    """An error of a Spark Connect server, which sends the causes as text."""


ConnectError.__module__ = "pyspark.errors.exceptions.connect"


@pytest.mark.parametrize(
    ("error", "kinds"),
    [
        (PySparkError("", "DELTA_CONCURRENT_WRITE"), {ErrorKind.CONFLICT}),
        (ConcurrentAppendException(), {ErrorKind.CONFLICT}),
        (ValueError("[CONCURRENT_WRITE] x"), {ErrorKind.CONFLICT}),
        (PySparkError("", "DELTA_TABLE_NOT_FOUND"), {ErrorKind.MISSING}),
        (ValueError("x is not a Delta table"), {ErrorKind.MISSING}),
        (
            PySparkError("doesn't exist", "CONCURRENT_WRITE"),
            {ErrorKind.MISSING, ErrorKind.CONFLICT},
        ),
        (ValueError("[DELTA_EXCEED_CHAR_VARCHAR_LIMIT] x"), {ErrorKind.ROW_REFUSED}),
        (PySparkError("[SPARK_JOB_CANCELLED] x"), set()),
        (with_cause(ValueError("x"), ValueError("[CONCURRENT_WRITE] x")), set()),
    ],
)
def test_an_error_is_of_the_kinds_whose_signs_it_bears(
    error: Exception, kinds: set[ErrorKind]
) -> None:
    assert {kind for kind in ErrorKind if kind.matches(error)} == kinds


class Session:
    def __init__(self, error: Exception | None = None) -> None:
        self.error = error

    def range(self, _: int) -> Any:
        if self.error is not None:
            raise self.error


@pytest.mark.parametrize(
    ("error", "reported"),
    [
        (ConnectionRefusedError(111, "Connection refused"), "Connection refused"),
        (
            Py4JJavaError(
                "o60.defaultParallelism.\n"
                ": java.lang.IllegalStateException: Cannot call methods on a stopped X.\nat",
                JOB,
            ),
            "java.lang.IllegalStateException: Cannot call methods on a stopped X.",
        ),
        (AttributeError(), "AttributeError"),
    ],
)
def test_f50_a_session_that_does_not_answer_has_ended(error: Exception, reported: str) -> None:
    spark: Any = Session(error)
    lost = lost_session(spark)
    assert isinstance(lost, SessionLostError)
    assert reported in str(lost) and "Start again" in str(lost)
    answering: Any = Session()
    assert lost_session(answering) is None
