"""The text of an error is the same at each attempt, as long as the cause is."""

from __future__ import annotations

import pytest

from spark_wan.delta.errors import error_text

PLANS = """[DATATYPE_MISMATCH.CAST_WITHOUT_SUGGESTION] Cannot resolve "a" due to data type \
mismatch. SQLSTATE: 42K09; line 1 pos 0;
'MergeIntoCommand SubqueryAlias s, Delta[version={n}, file:/lake/orders], \
(id#{n}865L = id#{n}862L), [Delete [condition: (op#{n} = 2)]]
+- Exchange SinglePartition, REPARTITION_BY_NUM, [plan_id={n}39]
"""
TASKS = (
    "Job aborted due to stage failure: Task {n} in stage {n}5.0 failed 1 times, "
    "most recent failure: Lost task {n}.0 in stage {n}5.0 "
    "(TID {n}7) (10.0.0.{n} executor {n}): java.io.IOException: disk full"
)
FILES = (
    "[FAILED_READ_FILE] Encountered error while reading file "
    "file:/lake/part-0000{n}-8f1d{n}c3a-1b1c-4c56-9c6e-0d4a4ff53d1{n}.c000.snappy.parquet"
)
JAVA = (
    "An error occurred while calling o{n}45.save. "
    "Value [Ljava.lang.String;@264ec0{n}3 and UnsafeArrayData@264ec0{n}f: too long"
)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (PLANS, ["(id = id)", "file:/lake/orders", "plan_id=…"]),
        (TASKS, ["java.io.IOException: disk full"]),
        (FILES, ["file:/lake/part-…"]),
        (JAVA, ["UnsafeArrayData@…: too long"]),
        (
            "[TABLE_OR_VIEW_NOT_FOUND] "
            "`global_temp`.`wan_{n}0123456789abcdef0123456789abcde` is not there",
            ["`wan_…`"],
        ),
        (
            "waited {n}003 ms for operation 0d4a4ff5-1b1c-4c56-9c6e-8f1d2c3a0d4{n}",
            ["waited … ms for operation …"],
        ),
        ("SlowDown, Request ID: ABC{n}DEF=", ["SlowDown, Request ID: …"]),
    ],
    ids=["plan", "tasks", "files", "java", "view", "connect", "store"],
)
def test_parts_that_change_at_each_attempt_are_left_out(text: str, kept: list[str]) -> None:
    """Fails without ``_VOLATILE``: each attempt logs and acks a new cause."""
    first, second = (error_text(Exception(text.replace("{n}", n))) for n in "12")
    assert first == second
    for part in kept:
        assert part in first


@pytest.mark.parametrize(
    "text",
    [
        "orders: version 9 is a TRUNCATE",
        "CHECK paid: amount >= 0 AND item <> '#12'",
        "file:/lake/_delta_log/00000000000000000012.json does not exist",
        '[DELTA_EXCEED_CHAR_VARCHAR_LIMIT] Value "abcd" exceeds char/varchar type length '
        "limitation. Failed check: (length(v) <= 3).",
        "no answer from 10.0.0.7:9000",
        "user bob@example.com may not write",
    ],
)
def test_the_facts_of_a_message_are_kept(text: str) -> None:
    assert error_text(Exception(text)) == text


def test_the_last_cause_is_shown() -> None:
    """Fails when an error of Java shows where it was called, and nothing of why."""
    text = error_text(
        Exception(
            "An error occurred while calling o62.sql.\n"
            ": org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed\n"
            "\tat org.apache.spark.Some.place(Some.scala:1)\n"
            "Caused by: java.lang.RuntimeException: Job aborted\n"
            "\tat org.apache.spark.Other.place(Other.scala:2)\n"
            "Caused by: java.io.IOException: No space left on device\n"
            "\t... 12 more"
        )
    )
    assert "[TASK_WRITE_FAILED] Task failed" in text
    assert text.endswith("Caused by: java.io.IOException: No space left on device")


def test_a_long_message_is_cut_after_its_changing_parts_are_left_out() -> None:
    """A number with more digits does not change where it ends."""
    first, second = (error_text(Exception(f"id#{n}L " * 200)) for n in (7, 7_000_000))
    assert first == second
