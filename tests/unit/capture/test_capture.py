"""Which commits become an epoch: whole ones, in order, cut at schema changes, held at whole-table operations."""

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
    found = plan(commits, published, max_rows, **more)
    assert found is not None
    return found


def test_nothing_newer_is_nothing_to_do() -> None:
    assert plan([]) is None
    assert plan([commit(0), commit(1)], published=1) is None


def test_all_newer_commits_become_one_range() -> None:
    commits = [commit(version, rows=10) for version in range(5)]
    found = planned(commits, published=1)
    assert (found.first_version, found.last_version, found.rows, found.left_out) == (2, 4, 30, ())
    assert found.commits == tuple(commits[2:])
    assert found.identity == commits[4].identity
    assert not found.quiet


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
    found = planned(commits, max_rows=20)
    assert (found.last_version, found.rows, found.quiet) == (2, 20, False)


def test_b83_only_maintenance_is_quiet() -> None:
    assert planned([commit(0, "OPTIMIZE"), commit(1, "SET TBLPROPERTIES")]).quiet


def test_b84_receiver_made_and_local_only_commits_are_left_out() -> None:
    received = commit(1, "MERGE", user_metadata='{"spark_wan": {"site": "newark"}}')
    local = commit(2, user_metadata=LOCAL_ONLY)
    found = planned([commit(0), received, local, commit(3)])
    assert (found.first_version, found.last_version, found.left_out, found.rows) == (
        0,
        3,
        (1, 2),
        2,
    )
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
def test_what_another_site_wrote_holds_a_stream_to_sites_that_lack_it(
    origin: str | None, addressees: tuple[str, ...], lacking: str
) -> None:
    """Newark to denver by one file, denver to seattle by another: seattle had the rows of the snapshot, and then no more, without a word.
    A site gets nothing back that it wrote itself."""
    commits = [commit(0), received(1, origin), commit(2)]
    if not lacking:
        assert planned(commits, addressees=addressees).left_out == (1,)
        return
    assert planned(commits, addressees=addressees).last_version == 0
    with pytest.raises(
        ForwardingError,
        match=f"version 1 was written by a receiver .* not send them on to {lacking} .*--decide orders@1=dis",
    ):
        plan(commits, published=0, addressees=addressees)


def test_what_another_site_wrote_can_be_sent_or_left_out_by_decision_alone() -> None:
    """`on_table_operation` is about the site's own commits."""
    commits = [commit(0), received(1), commit(2)]
    for action, left_out in (("distribute", ()), ("skip", (1,))):
        found = planned(commits, addressees=("seattle",), decision={1: action}.get)
        assert (found.last_version, found.left_out) == (2, left_out)
        with pytest.raises(ForwardingError):
            plan(
                commits,
                published=0,
                addressees=("seattle",),
                on_table_operation=action,
                decision={2: action}.get,
            )


def test_a_receivers_commit_without_rows_holds_nothing() -> None:
    """It adds the columns that came."""
    assert (
        planned(
            [commit(0), received(1, operation="ADD COLUMNS")], addressees=("seattle",)
        ).last_version
        == 1
    )


def test_what_is_left_out_does_not_end_a_range() -> None:
    local = commit(1, rows=1_000, user_metadata=LOCAL_ONLY)
    assert planned([commit(0), local, commit(2)], max_rows=2).last_version == 2


# --- history ----------------------------------------------------------------------------------------------------------


def test_f09_a_history_that_no_longer_reaches_back_is_an_error() -> None:
    """Fails when the first commit found is taken for the next one."""
    with pytest.raises(HistoryLostError, match=r"versions 3 to 6 are no longer.*full copy"):
        plan([commit(7), commit(8)], published=2)


def test_a_version_missing_in_the_middle_is_an_error() -> None:
    with pytest.raises(HistoryLostError, match="version 2 is missing"):
        plan([commit(0), commit(1), commit(3)])


# --- whole-table operations -------------------------------------------------------------------------------------------

TRUNCATE = [commit(0), commit(1), commit(2, "TRUNCATE"), commit(3)]


def test_what_is_before_a_table_operation_is_sent_first() -> None:
    assert planned(TRUNCATE).last_version == 1


def test_a_table_operation_holds_the_stream_and_says_how_to_decide() -> None:
    """Fails when on_table_operation is not asked."""
    with pytest.raises(
        TableOperationError, match=r"version 2 is a TRUNCATE.*--decide orders@2=distribute"
    ):
        plan(TRUNCATE, published=1)


def test_a_table_operation_is_distributed_or_skipped_by_the_topology() -> None:
    sent = planned(TRUNCATE, published=1, on_table_operation="distribute")
    assert (sent.last_version, sent.left_out) == (3, ())
    skipped = planned(TRUNCATE, published=1, on_table_operation="skip")
    assert (skipped.last_version, skipped.left_out) == (3, (2,))


def test_a_decision_counts_for_its_version_only() -> None:
    commits = [*TRUNCATE, commit(4, "RESTORE")]
    found = planned(commits, decision={2: "skip"}.get)
    assert (found.last_version, found.left_out) == (3, (2,))
    with pytest.raises(TableOperationError, match="version 4 is a RESTORE"):
        plan(commits, published=3, decision={2: "skip"}.get)
    assert planned(commits, decision={2: "distribute", 4: "distribute"}.get).last_version == 4
    with pytest.raises(TableOperationError):
        plan(TRUNCATE, published=1, on_table_operation="distribute", decision={2: "hold"}.get)


def test_a_table_operation_that_stays_here_is_nobodys_business() -> None:
    own = commit(1, "TRUNCATE", user_metadata=LOCAL_ONLY)
    assert planned([commit(0), own]).left_out == (1,)


# --- columns ----------------------------------------------------------------------------------------------------------


def columns_since(changes: Mapping[int, Mapping[str, Any]]) -> Any:
    return lambda version: changes[max(since for since in changes if since <= version)]


def test_f41_a_range_is_cut_where_the_columns_change() -> None:
    """Fails when the schema of the range's end is taken for all of it."""
    wider = schema(id="long", city="string", zip="string")
    commits = [commit(version) for version in range(8)]
    at = columns_since({0: schema(), 5: wider})
    first = planned(commits, schema_at=at)
    assert (first.last_version, first.schema, len(first.commits)) == (4, schema(), 5)
    second = planned(commits, published=4, schema_at=at)
    assert (second.first_version, second.last_version, second.schema) == (5, 7, wider)


def test_what_is_left_out_behind_the_cut_is_left_to_the_next_range() -> None:
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
    """However the columns grow and whatever the limit: every version is in one range, in order."""
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
    while (found := plan(commits, published, max_rows, schema_at=at)) is not None:
        assert found.first_version == published + 1
        versions = range(found.first_version, found.last_version + 1)
        assert {fingerprint(at(version)) for version in versions} == {fingerprint(found.schema)}
        assert sum(rows[version] for version in versions) <= max_rows or len(versions) == 1
        seen += versions
        published = found.last_version
    assert seen == list(range(count))


def test_added_columns_follow() -> None:
    check_columns_follow(schema(), schema(id="long", city="string", zip="string"), "orders", 3)
    check_columns_follow(schema(), schema(City="string", id="long"), "orders", 3)


def test_dropped_and_retyped_columns_hold_the_stream_by_name() -> None:
    with pytest.raises(
        SchemaError, match=r"at version 3 .*city is gone.*id was long and is string"
    ):
        check_columns_follow(schema(), schema(id="string", town="string"), "orders", 3)


# --- columns that are renamed, dropped or wider ------------------------------------------------------------------------


def rename(version: int, old: str, new: str) -> Commit:
    return replace(
        commit(version, "RENAME COLUMN"), parameters={"oldColumnPath": old, "newColumnPath": new}
    )


def drop(version: int, operation: str = "DROP COLUMNS") -> Commit:
    return replace(commit(version, operation), parameters={"columns": '["city"]'})


def test_f41_what_is_before_a_rename_is_sent_and_the_rename_holds_the_stream() -> None:
    at = columns_since({0: schema(), 3: schema(id="long", town="string")})
    commits = [commit(0), commit(1), commit(2), rename(3, "city", "town"), commit(4)]
    assert planned(commits, schema_at=at, published_schema=schema()).last_version == 2
    with pytest.raises(
        SchemaError, match=r"version 3 renames columns: city is named town now.*Rename back"
    ):
        plan(commits, 2, schema_at=at, published_schema=schema())


@pytest.mark.parametrize("max_rows", [10, 1_000_000])
def test_f41_renames_that_are_undone_are_one_range_from_the_first_to_the_last(
    max_rows: int,
) -> None:
    """Whatever their number and however many rows came in between. Fails when a range is cut by rows or columns only: the feed of a part of it has
    other names."""
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
        commit(1), rename(2, "city", "t"), commit(3, rows=50), commit(4, "ADD COLUMNS"), commit(5, rows=50), rename(6, "t", "city"), commit(7),
    ]  # fmt: skip
    told = {"schema_at": names, "published_schema": schema(), "max_rows": max_rows}
    assert planned(commits, 0, **told).last_version == 1
    across = planned(commits, 1, **told)
    assert (across.first_version, across.last_version, across.schema, across.keeps_columns) == (
        2,
        6,
        wider,
        True,
    )
    assert planned(commits, 6, **told).last_version == 7


def test_f41_names_that_are_exchanged_hold_the_stream() -> None:
    """Names and types are the same before and after. Fails when only the columns are compared."""
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
def test_f41_columns_have_their_names_again_when_they_have(
    known: bool, data: st.DataObject
) -> None:
    """Nested ones too, under parents that are renamed as well, and beside columns that are added under names that have become free. The truth follows the
    columns themselves. Without the published columns an added one may be taken for one of them, never the other way round."""
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


def test_f41_a_table_operation_between_a_rename_and_its_undoing_waits_for_its_decision() -> None:
    commits = [commit(0), rename(1, "city", "t"), commit(2, "TRUNCATE"), rename(3, "t", "city")]
    with pytest.raises(TableOperationError, match="version 2 is a TRUNCATE"):
        plan(commits, 0, published_schema=schema())
    assert (
        planned(commits, 0, published_schema=schema(), decision={2: "distribute"}.get).last_version
        == 3
    )


def test_columns_that_are_dropped_by_replacing_them_hold_the_stream() -> None:
    """Added again, they have their names and types."""
    at = columns_since({0: schema(), 2: schema(id="long"), 3: schema()})
    commits = [commit(0), commit(1), drop(2, "REPLACE COLUMNS"), commit(3, "ADD COLUMNS")]
    assert planned(commits, schema_at=at, published_schema=schema()).last_version == 1
    with pytest.raises(SchemaError, match=r"version 2 drops columns .city."):
        plan(commits, 1, schema_at=at, published_schema=schema())


def test_replacing_columns_may_add_some() -> None:
    wider = schema(id="long", city="string", zip="string")
    commits = [commit(0), commit(1, "REPLACE COLUMNS"), commit(2)]
    found = planned(
        commits, 0, schema_at=columns_since({0: schema(), 1: wider}), published_schema=schema()
    )
    assert (found.last_version, found.schema) == (2, wider)


def test_what_moved_columns_before_anything_was_sent_holds_nothing() -> None:
    for first in (rename(5, "town", "city"), drop(5)):
        assert planned([first, commit(6)], 4, published_schema=None).last_version == 6


def test_a_range_in_which_columns_may_have_been_replaced_says_so() -> None:
    """Its feed must not be read across schemas: Delta would look for the values of old rows in new columns."""
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


def test_b81_nested_fields_and_wider_types_follow_and_all_else_is_named() -> None:
    def columns(**fields: Any) -> dict[str, Any]:
        return schema(id="long", s=schema(**fields))

    check_columns_follow(columns(x="integer"), columns(x="decimal(12,2)", y="date"), "orders", 3)
    with pytest.raises(
        SchemaError,
        match=r"s.y is gone.*s.x was long and is integer.*a full copy under a new table name",
    ):
        check_columns_follow(columns(x="long", y="date"), columns(x="integer"), "orders", 3)
