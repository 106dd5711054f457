"""Errors while a source is read: lost history, a store that does not answer now, or neither.

The texts are those of Spark 4.2 and Delta 4.4 when files of a table were removed, made unreadable,
cut, or replaced by folders. Those of stores follow their documentation.
"""

from __future__ import annotations

import pytest

from spark_wan.delta.errors import source_error
from spark_wan.errors import (
    ChangeFeedError,
    ChannelError,
    HistoryLostError,
    SourceError,
    SourceUnreadableError,
    StoppedError,
)

CALL = "An error occurred while calling o76.collectToPython.\n: "
SCAN = (
    "\n\tat org.apache.spark.sql.errors.QueryExecutionErrors$.fileNotExistError"
    "(QueryExecutionErrors.scala:835)\n"
)
PART = "/lake/orders/part-00001-16a00f35 (1).snappy.parquet"


def not_exist(cause: str) -> str:
    return (
        f"{CALL}org.apache.spark.SparkException: [FAILED_READ_FILE.FILE_NOT_EXIST] Encountered "
        f"error while reading file file:{PART}. File does not exist. It is possible the underlying "
        f"files have been updated.\n SQLSTATE: KD001{SCAN}"
        f"Caused by: java.io.FileNotFoundException: {cause}{SCAN}"
    )


def no_hint(cause: str) -> str:
    return (
        f"{CALL}org.apache.spark.SparkException: [FAILED_READ_FILE.NO_HINT] Encountered error "
        f"while reading file s3a://lake/orders/part-1.parquet. SQLSTATE: KD001{SCAN}"
        f"Caused by: {cause}{SCAN}"
    )


class Condition(Exception):
    """An exception of Spark with its condition."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(f"[{name}] {text}")
        self.name = name

    def getCondition(self) -> str:
        return self.name


LOST = {
    "a file is deleted": Exception(not_exist(f"File file:{PART} does not exist")),
    "an object is deleted": Exception(
        not_exist("No such file or directory: s3a://lake/orders/part-1.parquet")
    ),
    "a file is deleted, by its system's name": Exception(
        not_exist(f"{PART} (No such file or directory)")
    ),
    "a condition alone": Condition(
        "FAILED_READ_FILE.FILE_NOT_EXIST", "Encountered error while reading file."
    ),
    "a log file is deleted": Exception(
        f"{CALL}org.apache.spark.sql.delta.DeltaIllegalStateException: "
        "[DELTA_VERSIONS_NOT_CONTIGUOUS] Versions (0, 2) are not contiguous.\nA gap in the delta "
        "log between versions 0 and 2 was detected while trying to load version -1."
    ),
    "the log was cleaned": Condition(
        "DELTA_LOG_FILE_NOT_FOUND_FOR_STREAMING_SOURCE", "the table doesn't exist any more"
    ),
    "a task reports it": Exception(
        "Job aborted due to stage failure: Lost task 0.0: "
        f"java.io.FileNotFoundException: File file:{PART} does not exist"
    ),
}
UNREADABLE = {
    "permission denied": Exception(not_exist(f"{PART} (Permission denied)")),
    "permission denied, elsewhere": Exception(not_exist(f"{PART} (Keine Berechtigung)")),
    "permission denied, in the log": Exception(
        f"{CALL}java.io.FileNotFoundException: "
        "/lake/orders/_delta_log/00000000000000000001.json (Permission denied)"
    ),
    "no more files": Exception(not_exist(f"{PART} (Too many open files)")),
    "a directory in its place": Exception(not_exist(f"{PART} (Is a directory)")),
    "damaged": Exception(
        no_hint(
            f"java.lang.RuntimeException: file:{PART} is not a Parquet file. "
            "Expected magic number at tail"
        )
    ),
    "a condition alone": Condition(
        "FAILED_READ_FILE.NO_HINT", "Encountered error while reading file."
    ),
    "S3 throttles": Exception(
        no_hint(
            "org.apache.hadoop.fs.s3a.AWSServiceThrottledException: open "
            "s3a://lake/orders/part-1.parquet: Please reduce your request rate. (Service: "
            "S3, Status Code: 503, Request ID: x):SlowDown"
        )
    ),
    "S3 throttles the log": Exception(
        f"{CALL}org.apache.hadoop.fs.s3a.AWSServiceThrottledException: listStatus on "
        "s3a://lake/orders/_delta_log: SlowDown: Please reduce your request rate. "
        "(Service: S3, Status Code: 503)"
    ),
    "Azure throttles": Exception(
        no_hint(
            'Operation failed: "The server is busy.", 503, GET, '
            "https://a.dfs.core.windows.net/c, ServerBusy"
        )
    ),
    "GCS throttles": Exception(
        no_hint(
            "com.google.cloud.hadoop.repackaged.gcs.HttpResponseException: 429 Too Many Requests"
        )
    ),
    "a timeout": Exception(f"{CALL}java.net.SocketTimeoutException: Read timed out"),
    "a reset": Exception(f"{CALL}java.net.SocketException: Connection reset"),
    "refused": Exception(
        f"{CALL}java.net.ConnectException: Call From vm/127.0.0.1 to localhost:1 "
        "failed on connection exception"
    ),
    "no name": Exception(no_hint("java.net.UnknownHostException: lake.s3.amazonaws.com")),
    "forbidden": Exception(
        f"{CALL}java.nio.file.AccessDeniedException: s3a://lake/orders/_delta_log: "
        "getFileStatus: Forbidden (Service: S3, Status Code: 403)"
    ),
}
OTHERS = {
    "of our own": ChannelError("channel s3://x: cannot write (503 SlowDown). It is tried again."),
    "of a task": Exception(
        f"{CALL}org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
        "spark_wan.errors.ChannelError: channel s3://x: cannot write 'frames' (Connection reset)."
    ),
    "stopped": StoppedError("stopped"),
    "unknown": Exception("something else"),
}


@pytest.mark.parametrize("name", LOST)
def test_f09_a_deleted_file_is_lost_history(name: str) -> None:
    assert type(source_error(LOST[name], "orders", "/lake/orders")) is HistoryLostError


@pytest.mark.parametrize("name", UNREADABLE)
def test_a_file_that_cannot_be_read_now_is_not_lost_history(name: str) -> None:
    """A throttled store was reported as overtaken by VACUUM, and the advice was a full copy."""
    meant = source_error(UNREADABLE[name], "orders", "/lake/orders")
    assert type(meant) is SourceUnreadableError
    assert "the stream waits and retries" in str(meant) and "VACUUM" not in str(meant)


@pytest.mark.parametrize("name", OTHERS)
def test_other_errors_stay_as_they_are(name: str) -> None:
    """Above all the channel's, which a task reports as text."""
    assert source_error(OTHERS[name], "orders", "/lake/orders") is OTHERS[name]


def test_a_missing_table_and_a_missing_feed_have_errors_of_their_own() -> None:
    missing = source_error(
        Condition("DELTA_TABLE_NOT_FOUND", "Delta table `x` doesn't exist."),
        "orders",
        "/lake/orders",
    )
    assert type(missing) is SourceError and "there is no Delta table" in str(missing)
    off = source_error(
        Condition("DELTA_MISSING_CHANGE_DATA", "no change data"), "orders", "/lake/orders"
    )
    assert type(off) is ChangeFeedError
