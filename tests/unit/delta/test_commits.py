"""Commits of a history: rows that change, commits that stay here, table operations."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from fakes import commit

from spark_wan.delta.commits import SAME_TIME, Commit, is_same_commit
from spark_wan.wire.mark import LOCAL_ONLY

WRITE = Commit(5, 1_700_000_000_000, "WRITE", {"mode": "Append"}, {"numOutputRows": "3"}, None, 4)


def test_the_identity_of_a_commit_is_frozen() -> None:
    """It is in the manifests: another form of it would hold every stream."""
    assert WRITE.identity == "ccdb5956fac2f751845e8fe5@1700000000000"


def test_a_compaction_says_nothing_of_the_write_before() -> None:
    """Delta gives an automatic one the metadata of the session that wrote. Fails when the ledger
    would count the apply twice."""
    own = Commit(5, 0, "OPTIMIZE", {"auto": "true"}, {}, user_metadata=LOCAL_ONLY)
    assert own.metadata is None and not own.stays_here
    assert replace(own, operation="MERGE").stays_here


def test_every_field_of_the_history_counts_for_the_identity() -> None:
    others = [
        replace(WRITE, version=6),
        replace(WRITE, time=1),
        replace(WRITE, operation="MERGE"),
        replace(WRITE, parameters={"mode": "Overwrite"}),
        replace(WRITE, metrics={"numOutputRows": "4"}),
        replace(WRITE, user_metadata="x"),
        replace(WRITE, read_version=3),
    ]
    assert len({WRITE.identity, *(other.identity for other in others)}) == len(others) + 1
    assert not any(is_same_commit(WRITE.identity, other.identity) for other in others)


def test_a_commit_is_the_same_if_its_time_differs_a_little() -> None:
    """The time depends on the commits that are read with it.

    Delta moves a time that is not after that of the commit before.
    """
    assert is_same_commit(WRITE.identity, replace(WRITE, time=WRITE.time + 1).identity)
    assert is_same_commit(replace(WRITE, time=WRITE.time + SAME_TIME).identity, WRITE.identity)
    assert not is_same_commit(
        WRITE.identity, replace(WRITE, time=WRITE.time + SAME_TIME + 1).identity
    )
    assert not is_same_commit(WRITE.identity, "")
    assert not is_same_commit(WRITE.identity, WRITE.identity.partition("@")[0] + "@soon")


def test_a_time_that_was_moved_is_a_bound() -> None:
    """After a commit by a machine whose clock was an hour ahead, later ones are moved behind it;
    when they are asked for without it, they have their own time. Fails (the stream is held as if
    the source was restored) when both are compared as they are."""
    moved = replace(WRITE, time=WRITE.time + 3_600_000, moved=True)
    for own in (WRITE, replace(WRITE, time=moved.time + SAME_TIME)):
        assert is_same_commit(moved.identity, own.identity)
        assert is_same_commit(own.identity, moved.identity)
    again = replace(moved, time=WRITE.time + 1)
    assert is_same_commit(moved.identity, again.identity)
    later = replace(WRITE, time=moved.time + SAME_TIME + 1)  # another table's, as after a restore
    assert not is_same_commit(moved.identity, later.identity)
    assert not is_same_commit(moved.identity, replace(moved, version=6).identity)


def test_the_order_of_parameters_and_metrics_does_not_count() -> None:
    one = replace(WRITE, metrics={"a": "1", "b": "2"}, parameters={"c": "3", "d": "4"})
    other = replace(WRITE, metrics={"b": "2", "a": "1"}, parameters={"d": "4", "c": "3"})
    assert one.identity == other.identity


@pytest.mark.parametrize(
    ("metadata", "stays"),
    [
        (None, False),
        ("nightly job", False),
        (LOCAL_ONLY, True),
        (json.dumps({"spark_wan": {"local_only": False}}), False),
        (json.dumps({"spark_wan": {"site": "seattle", "apply": 1}}), True),
        (json.dumps({"job": "x", "spark_wan": {"local_only": True}}), True),
    ],
)
def test_b84_receiver_made_and_local_only_commits_stay_here(
    metadata: str | None, stays: bool
) -> None:
    assert replace(WRITE, user_metadata=metadata).stays_here is stays


@pytest.mark.parametrize(
    ("metadata", "origin"),
    [
        (None, None),
        (LOCAL_ONLY, None),
        (json.dumps({"spark_wan": {"site": "seattle"}}), set()),
        (json.dumps({"spark_wan": {"site": "seattle", "applied": 5}}), set()),
        (json.dumps({"spark_wan": {"site": "seattle", "origin": "newark"}}), {"newark"}),
        pytest.param(
            json.dumps({"spark_wan": {"site": "seattle", "applied": [{"origin": "x"}]}}),
            {"x"},
            id="version 2",
        ),
        (
            json.dumps({"spark_wan": {"site": "a", "applied": [{"origin": "x"}, {"origin": "y"}]}}),
            {"x", "y"},
        ),
    ],
)
def test_a_receivers_commit_names_the_origins_of_its_rows(
    metadata: str | None, origin: set[str] | None
) -> None:
    """In both versions: marks of version 1 name one. Fails when only version 1 is looked at: a
    stream to a third site would lack the rows of version 2, and say nothing."""
    assert replace(WRITE, user_metadata=metadata).received_from == origin


@pytest.mark.parametrize(
    "operation", ["OPTIMIZE", "VACUUM END", "ADD COLUMNS", "SET TBLPROPERTIES", "CREATE TABLE"]
)
def test_b83_maintenance_and_ddl_change_no_row(operation: str) -> None:
    assert not commit(5, operation).changes_rows


@pytest.mark.parametrize(
    "operation", ["WRITE", "MERGE", "DELETE", "UPDATE", "SOMETHING NEW", "RESTORE", "TRUNCATE"]
)
def test_unknown_operations_may_change_rows(operation: str) -> None:
    assert commit(5, operation).changes_rows


def test_rows_are_estimated_from_the_metrics() -> None:
    assert WRITE.rows == 3
    merge = {
        "numTargetRowsInserted": "2",
        "numTargetRowsUpdated": "3",
        "numTargetRowsDeleted": "4",
        "numSourceRows": "99",
    }
    assert replace(WRITE, operation="MERGE", metrics=merge).rows == 9
    assert replace(WRITE, metrics={}).rows == 1
    assert replace(WRITE, metrics={"numOutputRows": "many"}).rows == 1


@pytest.mark.parametrize(
    ("operation", "parameters", "expected"),
    [
        ("TRUNCATE", {}, "TRUNCATE"),
        ("RESTORE", {"version": "1"}, "RESTORE"),
        ("CREATE OR REPLACE TABLE AS SELECT", {}, "CREATE OR REPLACE TABLE AS SELECT"),
        ("DELETE", {"predicate": "[]"}, "DELETE without a condition"),
        ("DELETE", {"predicate": '["true"]'}, "DELETE without a condition"),
        ("DELETE", {}, "DELETE without a condition"),
        ("DELETE", {"predicate": '["(id#1L = 5)"]'}, None),
        ("WRITE", {"mode": "Overwrite"}, None),
        ("UPDATE", {}, None),
    ],
)
def test_table_operations_are_recognised(
    operation: str, parameters: dict[str, str], expected: str | None
) -> None:
    assert replace(WRITE, operation=operation, parameters=parameters).table_operation == expected


def test_creating_the_table_is_no_table_operation() -> None:
    """Spark's saveAsTable creates a table with CREATE OR REPLACE TABLE AS SELECT.

    Fails without the exception for version 0.
    """
    assert commit(0, "CREATE OR REPLACE TABLE AS SELECT").table_operation is None
