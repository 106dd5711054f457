"""Ranges of commits: whole, in order, cut at schema changes, held at table operations."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from fakes import commit, schema
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_wan.capture.ranges import (
    CaptureRange,
    RangePlanner,
    RenamedColumns,
    check_columns_follow,
)
from spark_wan.delta.commits import Commit
from spark_wan.errors import ForwardingError, HistoryLostError, SchemaError, TableOperationError
from spark_wan.events.columns import fingerprint
from spark_wan.wire.mark import LOCAL_ONLY

randomly = settings(derandomize=True, deadline=None, max_examples=300, print_blob=True)


def plan(
    commits: list[Commit],
    published: int = -1,
    max_rows: int = 1_000_000,
    published_schema: Mapping[str, Any] | None = None,
    **rules: Any,
) -> CaptureRange | None:
    rules.setdefault("schema_at", lambda version: schema())
    return RangePlanner("orders", max_rows=max_rows, **rules).plan(
        commits, published, published_schema
    )


def planned(
    commits: list[Commit], published: int = -1, max_rows: int = 1_000_000, **more: Any
) -> CaptureRange:
    chosen = plan(commits, published, max_rows, **more)
    assert chosen is not None
    return chosen


def test_there_is_no_range_without_newer_commits() -> None:
    assert plan([]) is None
    assert plan([commit(0), commit(1)], published=1) is None


def test_all_newer_commits_become_one_range() -> None:
    commits = [commit(version, rows=10) for version in range(5)]
    chosen = planned(commits, published=1)
    assert (chosen.first_version, chosen.last_version, chosen.rows, chosen.left_out) == (
        2,
        4,
        30,
        (),
    )
    assert chosen.commits == tuple(commits[2:])
    assert chosen.identity == commits[4].identity
    assert not chosen.quiet


def test_a_range_ends_before_it_has_too_many_rows() -> None:
    commits = [commit(version, rows=10) for version in range(5)]
    assert planned(commits, max_rows=25).last_version == 1
    assert planned(commits, max_rows=20).last_version == 1
    assert planned(commits, max_rows=30).last_version == 2


def test_b56_a_commit_is_never_split() -> None:
    commits = [commit(0, rows=1_000_000), commit(1)]
    assert planned(commits, max_rows=10).last_version == 0


def test_commits_that_change_no_row_cost_nothing() -> None:
    commits = [commit(0, rows=10), commit(1, "OPTIMIZE", rows=5), commit(2, rows=10)]
    chosen = planned(commits, max_rows=20)
    assert (chosen.last_version, chosen.rows, chosen.quiet) == (2, 20, False)


def test_b83_only_maintenance_is_quiet() -> None:
    assert planned([commit(0, "OPTIMIZE"), commit(1, "SET TBLPROPERTIES")]).quiet


def test_b84_receiver_made_and_local_only_commits_are_left_out() -> None:
    received = commit(1, "MERGE", user_metadata='{"spark_wan": {"site": "newark"}}')
    local = commit(2, user_metadata=LOCAL_ONLY)
    chosen = planned([commit(0), received, local, commit(3)])
    assert (chosen.first_version, chosen.last_version, chosen.left_out, chosen.rows) == (
        0,
        3,
        (1, 2),
        2,
    )
    assert chosen.why_left_out == {1: "received", 2: "local_only"}
    assert planned([received, local], published=0).quiet


def received(version: int, origin: str | None = "newark", operation: str = "MERGE") -> Commit:
    mark = {"site": "denver", **({} if origin is None else {"origin": origin})}
    return commit(version, operation, user_metadata=json.dumps({"spark_wan": mark}))


@pytest.mark.parametrize(
    ("origin", "addressees", "lacking"),
    [
        ("newark", ("newark",), ""),
        ("newark", ("seattle",), "seattle"),
        ("newark", ("newark", "seattle", "tacoma"), "seattle, tacoma"),
        (None, ("newark",), "newark"),
    ],
)
def test_rows_of_another_site_hold_a_stream_to_sites_that_lack_them(
    origin: str | None, addressees: tuple[str, ...], lacking: str
) -> None:
    """Newark sends to denver by one topology, denver to seattle by another.

    Seattle silently got the rows of the snapshot and no later ones. A site does not get back what
    it wrote itself.
    """
    commits = [commit(0), received(1, origin), commit(2)]
    if not lacking:
        assert planned(commits, addressees=addressees).left_out == (1,)
        return
    assert planned(commits, addressees=addressees).last_version == 0
    with pytest.raises(
        ForwardingError,
        match="version 1 was written by a receiver .* "
        f"not send them on to {lacking} .*decide orders@1=dis",
    ):
        plan(commits, published=0, addressees=addressees)


def test_only_a_decision_sends_or_skips_rows_of_another_site() -> None:
    """`on_table_operation` is about the site's own commits only."""
    commits = [commit(0), received(1), commit(2)]
    for action, left_out in (("distribute", ()), ("skip", (1,))):
        chosen = planned(commits, addressees=("seattle",), decision={1: action}.get)
        assert (chosen.last_version, chosen.left_out) == (2, left_out)
        with pytest.raises(ForwardingError):
            plan(
                commits,
                published=0,
                addressees=("seattle",),
                on_table_operation=action,
                decision={2: action}.get,
            )


def test_a_receivers_commit_without_rows_holds_nothing() -> None:
    """It adds columns to the table."""
    assert (
        planned(
            [commit(0), received(1, operation="ADD COLUMNS")], addressees=("seattle",)
        ).last_version
        == 1
    )


def test_a_skipped_commit_does_not_end_a_range() -> None:
    local = commit(1, rows=1_000, user_metadata=LOCAL_ONLY)
    assert planned([commit(0), local, commit(2)], max_rows=2).last_version == 2


# --- history --------------------------------------------------------------------------------------


def test_f09_a_history_that_does_not_reach_back_is_an_error() -> None:
    """Fails when the first commit of the history is taken for the next one."""
    with pytest.raises(HistoryLostError, match=r"versions 3 to 6 are no longer"):
        plan([commit(7), commit(8)], published=2)


def test_a_version_missing_in_the_middle_is_an_error() -> None:
    with pytest.raises(HistoryLostError, match="version 2 is missing"):
        plan([commit(0), commit(1), commit(3)])


# --- whole-table operations -----------------------------------------------------------------------

TRUNCATE = [commit(0), commit(1), commit(2, "TRUNCATE"), commit(3)]


def test_commits_before_a_table_operation_are_sent_first() -> None:
    assert planned(TRUNCATE).last_version == 1


def test_a_table_operation_holds_the_stream_and_says_how_to_decide() -> None:
    """Fails when `on_table_operation` is ignored."""
    with pytest.raises(
        TableOperationError, match=r"version 2 is a TRUNCATE.*decide orders@2=distribute"
    ):
        plan(TRUNCATE, published=1)


def test_a_table_operation_is_distributed_or_skipped_by_the_topology() -> None:
    sent = planned(TRUNCATE, published=1, on_table_operation="distribute")
    assert (sent.last_version, sent.left_out) == (3, ())
    skipped = planned(TRUNCATE, published=1, on_table_operation="skip")
    assert (skipped.last_version, skipped.left_out) == (3, (2,))


def test_a_decision_counts_for_its_version_only() -> None:
    commits = [*TRUNCATE, commit(4, "RESTORE")]
    chosen = planned(commits, decision={2: "skip"}.get)
    assert (chosen.last_version, chosen.left_out) == (3, (2,))
    with pytest.raises(TableOperationError, match="version 4 is a RESTORE"):
        plan(commits, published=3, decision={2: "skip"}.get)
    assert planned(commits, decision={2: "distribute", 4: "distribute"}.get).last_version == 4
    with pytest.raises(TableOperationError):
        plan(TRUNCATE, published=1, on_table_operation="distribute", decision={2: "hold"}.get)


def test_a_commit_that_does_not_say_what_it_is_may_empty_the_table() -> None:
    """Some writers leave out its commitInfo. Fails when table operations are known by name only."""
    commits = [commit(0, ""), commit(1), commit(2, ""), commit(3, ""), commit(4)]
    asked: list[int] = []

    def is_empty_at(version: int) -> bool:
        asked.append(version)
        return version == 3

    assert planned(commits, is_empty_at=is_empty_at).last_version == 2
    with pytest.raises(TableOperationError, match=r"version 3 is a commit that does not say what"):
        plan(commits, published=2, is_empty_at=is_empty_at)
    skipped = planned(commits, published=2, is_empty_at=is_empty_at, decision={3: "skip"}.get)
    assert (skipped.last_version, skipped.left_out) == (4, (3,))
    asked.clear()
    sent = planned(commits, is_empty_at=is_empty_at, on_table_operation="distribute")
    assert (sent.last_version, sent.left_out) == (4, ())
    assert not asked, "nothing needs to be known, and nothing is read"
    empty = planned([commit(0), commit(1, "")], is_empty_at=lambda version: True)
    assert empty.left_out == (), "it was empty before"


def test_a_local_only_table_operation_is_skipped() -> None:
    own = commit(1, "TRUNCATE", user_metadata=LOCAL_ONLY)
    assert planned([commit(0), own]).left_out == (1,)


# --- columns --------------------------------------------------------------------------------------


def columns_since(changes: Mapping[int, Mapping[str, Any]]) -> Any:
    return lambda version: changes[max(since for since in changes if since <= version)]


def test_f41_a_range_is_cut_where_the_columns_change() -> None:
    """Fails when the schema at the end of the range is used for all of it."""
    wider = schema(id="long", city="string", zip="string")
    commits = [commit(version) for version in range(8)]
    at = columns_since({0: schema(), 5: wider})
    first = planned(commits, schema_at=at)
    assert (first.last_version, first.schema, len(first.commits)) == (4, schema(), 5)
    second = planned(commits, published=4, schema_at=at)
    assert (second.first_version, second.last_version, second.schema) == (5, 7, wider)


def test_commits_skipped_after_the_cut_belong_to_the_next_range() -> None:
    commits = [
        commit(0),
        commit(1, user_metadata=LOCAL_ONLY),
        commit(2),
        commit(3, user_metadata=LOCAL_ONLY),
    ]
    at = columns_since({0: schema(), 2: schema(id="long")})
    assert planned(commits, schema_at=at).left_out == (1,)
    assert planned(commits, published=1, schema_at=at).left_out == (3,)


@randomly
@given(st.integers(1, 40), st.sets(st.integers(1, 39), max_size=5), st.integers(1, 30), st.data())
def test_ranges_follow_each_other_and_each_has_one_schema(
    count: int, changes: set[int], max_rows: int, data: st.DataObject
) -> None:
    """Every version is in one range, in order, whatever the columns and the limit."""
    rows = data.draw(st.lists(st.integers(1, 10), min_size=count, max_size=count))
    commits = [commit(version, rows=rows[version]) for version in range(count)]
    widths = {0: 1, **{version: place + 2 for place, version in enumerate(sorted(changes))}}
    at = columns_since(
        {
            since: schema(**{f"c{n}": "long" for n in range(width)})
            for since, width in widths.items()
        }
    )
    published, seen = -1, []
    while (chosen := plan(commits, published, max_rows, schema_at=at)) is not None:
        assert chosen.first_version == published + 1
        versions = range(chosen.first_version, chosen.last_version + 1)
        assert {fingerprint(at(version)) for version in versions} == {fingerprint(chosen.schema)}
        assert sum(rows[version] for version in versions) <= max_rows or len(versions) == 1
        seen += versions
        published = chosen.last_version
    assert seen == list(range(count))


def test_added_columns_follow() -> None:
    check_columns_follow(schema(), schema(id="long", city="string", zip="string"), "orders", 3)
    check_columns_follow(schema(), schema(City="string", id="long"), "orders", 3)


def test_dropped_and_retyped_columns_hold_the_stream_by_name() -> None:
    with pytest.raises(
        SchemaError, match=r"at version 3 .*city is gone.*id was long and is string"
    ):
        check_columns_follow(schema(), schema(id="string", town="string"), "orders", 3)


# --- columns that are renamed, dropped or wider ---------------------------------------------------


def rename(version: int, old: str, new: str) -> Commit:
    return replace(
        commit(version, "RENAME COLUMN"), parameters={"oldColumnPath": old, "newColumnPath": new}
    )


def drop(version: int, operation: str = "DROP COLUMNS") -> Commit:
    return replace(commit(version, operation), parameters={"columns": '["city"]'})


def test_f41_commits_before_a_rename_are_sent_and_the_rename_holds_the_stream() -> None:
    at = columns_since({0: schema(), 3: schema(id="long", town="string")})
    commits = [commit(0), commit(1), commit(2), rename(3, "city", "town"), commit(4)]
    assert planned(commits, schema_at=at, published_schema=schema()).last_version == 2
    with pytest.raises(
        SchemaError, match=r"version 3 renames columns: city is named town now.*Rename back"
    ):
        plan(commits, 2, schema_at=at, published_schema=schema())


@pytest.mark.parametrize("max_rows", [10, 1_000_000])
def test_f41_renames_that_are_undone_are_one_range(
    max_rows: int,
) -> None:
    """Whatever the number of renames, and of rows in between.

    Fails when a range is cut by rows or columns alone: the feed of a part of it has other names.
    """
    wider = schema(id="long", city="string", zip="string")
    names = columns_since(
        {
            0: schema(),
            2: schema(id="long", t="string"),
            4: schema(id="long", t="string", zip="string"),
            6: wider,
        }
    )
    commits = [
        commit(1), rename(2, "city", "t"), commit(3, rows=50), commit(4, "ADD COLUMNS"),
        commit(5, rows=50), rename(6, "t", "city"), commit(7),
    ]  # fmt: skip
    rules = {"schema_at": names, "published_schema": schema(), "max_rows": max_rows}
    assert planned(commits, 0, **rules).last_version == 1
    across = planned(commits, 1, **rules)
    assert (across.first_version, across.last_version, across.schema, across.keeps_columns) == (
        2,
        6,
        wider,
        True,
    )
    assert planned(commits, 6, **rules).last_version == 7


def test_f41_swapped_names_hold_the_stream() -> None:
    """Names and types are the same before and after. Fails when only these are compared."""
    commits = [commit(0), rename(1, "a", "t"), rename(2, "b", "a"), rename(3, "t", "b"), commit(4)]
    same = schema(a="long", b="long")
    with pytest.raises(SchemaError, match="a is named b now; b is named a now"):
        plan(commits, 0, schema_at=lambda _: same, published_schema=same)


TREE: dict[int, tuple[int | None, str]] = {
    0: (None, "c"),
    1: (None, "d"),
    2: (None, "s"),
    3: (2, "a"),
    4: (2, "u"),
    5: (4, "a"),
}


@pytest.mark.parametrize("known", [True, False])
@randomly
@given(data=st.data())
def test_f41_renames_are_undone_when_all_columns_have_their_names_again(
    known: bool, data: st.DataObject
) -> None:
    """Also nested columns under renamed parents, and beside columns added under free names.

    The test follows the columns themselves. Without the published columns an added one may be taken
    for one of them, never the other way round.
    """
    columns = dict(TREE)

    def path(column: int) -> str:
        parent, name = columns[column]
        return name if parent is None else f"{path(parent)}.{name}"

    published = {column: path(column) for column in columns}
    names = RenamedColumns(set(published.values()) if known else None)
    for _ in range(data.draw(st.integers(2, 9))):
        name = data.draw(st.sampled_from("abcdstu"))
        column = data.draw(st.sampled_from([*columns, None] if names.open else [*columns]))
        parent = (
            columns[column][0] if column is not None else data.draw(st.sampled_from([None, 2, 4]))
        )
        if (parent, name) in columns.values():
            continue
        if column is None:
            columns[max(columns) + 1] = (parent, name)
            continue
        old = path(column)
        columns[column] = (parent, name)
        names.rename(old, path(column))
        back = all(path(each) == was for each, was in published.items())
        assert names.undone == back or (back and not known)
        if back:
            break


def test_f41_a_table_operation_between_rename_and_rename_back_waits_for_its_decision() -> None:
    commits = [commit(0), rename(1, "city", "t"), commit(2, "TRUNCATE"), rename(3, "t", "city")]
    with pytest.raises(TableOperationError, match="version 2 is a TRUNCATE"):
        plan(commits, 0, published_schema=schema())
    assert (
        planned(commits, 0, published_schema=schema(), decision={2: "distribute"}.get).last_version
        == 3
    )


def test_replacing_columns_holds_the_stream_if_it_drops_some() -> None:
    """Even if they are added again later, with the same names and types."""
    at = columns_since({0: schema(), 2: schema(id="long"), 3: schema()})
    commits = [commit(0), commit(1), drop(2, "REPLACE COLUMNS"), commit(3, "ADD COLUMNS")]
    assert planned(commits, schema_at=at, published_schema=schema()).last_version == 1
    with pytest.raises(SchemaError, match=r"version 2 drops columns .city."):
        plan(commits, 1, schema_at=at, published_schema=schema())


def test_replacing_columns_holds_nothing_if_it_only_adds_some() -> None:
    wider = schema(id="long", city="string", zip="string")
    commits = [commit(0), commit(1, "REPLACE COLUMNS"), commit(2)]
    chosen = planned(
        commits, 0, schema_at=columns_since({0: schema(), 1: wider}), published_schema=schema()
    )
    assert (chosen.last_version, chosen.schema) == (2, wider)


def test_renames_and_drops_before_the_first_epoch_hold_nothing() -> None:
    for first in (rename(5, "town", "city"), drop(5)):
        assert planned([first, commit(6)], 4, published_schema=None).last_version == 6


def test_a_range_knows_whether_columns_may_have_been_replaced() -> None:
    """If so, its feed must not be read across schemas.

    Delta would look for the values of old rows in new columns.
    """
    overwrite = replace(commit(1), parameters={"mode": "Overwrite", "canOverwriteSchema": "true"})
    for each in (
        overwrite,
        drop(1),
        commit(1, "REMOVE COLUMN MAPPING"),
        commit(1, "CREATE OR REPLACE TABLE AS SELECT"),
    ):
        assert not planned([each], 0, on_table_operation="distribute").keeps_columns
    for each in (
        commit(1, "CHANGE COLUMN"),
        replace(commit(1), parameters={"mode": "Overwrite"}),
        commit(1, "ADD COLUMNS"),
    ):
        assert planned([each], 0).keeps_columns


def test_b81_added_fields_and_wider_types_follow_and_other_changes_are_named() -> None:
    def columns(**fields: Any) -> dict[str, Any]:
        return schema(id="long", s=schema(**fields))

    check_columns_follow(columns(x="integer"), columns(x="decimal(12,2)", y="date"), "orders", 3)
    with pytest.raises(
        SchemaError,
        match=r"s.y is gone.*s.x was long and is integer",
    ):
        check_columns_follow(columns(x="long", y="date"), columns(x="integer"), "orders", 3)
