"""Netting, against a simple model: at most one event per commit and key, whatever the batches."""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from arrow_values import VALUES
from hypothesis import example, given, settings
from hypothesis import strategies as st

from spark_wan.capture.netting import RANK, Netted, net
from spark_wan.events.operations import Operation

randomly = settings(derandomize=True, deadline=None, max_examples=150, print_blob=True)

CREATE, PUT, DESTROY = Operation.CREATE, Operation.PUT, Operation.DESTROY
PRE, POST, INSERT, DELETE = "update_preimage", "update_postimage", "insert", "delete"
OTHER_NAN = struct.unpack("<d", struct.pack("<Q", 0x7FF8000000000001))[0]

Change = tuple[int, int, str, Any, Any]
"""(key, version, change type, an amount, a note)"""

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("amount", pa.float64()),
        ("note", pa.string()),
        ("_commit_version", pa.int64()),
        ("_wan_rank", pa.int8()),
    ]
)


def rows(changes: list[Change]) -> pa.RecordBatch:
    """Change rows as Spark returns them: sorted by key, version, rank.

    Rows that are equal in these come in any order.
    """
    ordered = sorted(changes, key=lambda change: (change[0], change[1], RANK[change[2]]))
    columns = [
        [change[0] for change in ordered],
        [change[3] for change in ordered],
        [change[4] for change in ordered],
        [change[1] for change in ordered],
        [RANK[change[2]] for change in ordered],
    ]
    return pa.record_batch(
        [pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
    )


def netted(changes: list[Change], cuts: list[int] | None = None) -> list[Netted]:
    batch = rows(changes)
    places = [0, *sorted(cut for cut in cuts or [] if cut <= batch.num_rows), batch.num_rows]
    pieces = [batch.slice(start, end - start) for start, end in itertools.pairwise(places)]
    return list(net(pieces, ["id"]))


def bits(value: Any) -> Any:
    """A value such that only values with the same bits are equal."""
    return struct.pack("<d", value) if isinstance(value, float) else value


def events(changes: list[Change], cuts: list[int] | None = None) -> list[tuple[Any, ...]]:
    """(operation, version, key, amount, note) of all events, in order."""
    return [
        (Operation(row["_wan_op"]), row["_wan_version"], row["id"], row["amount"], row["note"])
        for part in netted(changes, cuts)
        for row in part.events.to_pylist()
    ]


def test_rows_that_are_replaced_by_equal_ones_are_counted() -> None:
    """Fails when an update that arrives nowhere leaves no trace."""
    same = [(1, 5, PRE, 2.5, "a"), (1, 5, POST, 2.5, "a"), (1, 6, DELETE, 2.5, "a")]
    same += [(1, 6, INSERT, 2.5, "a"), (2, 6, PRE, 2.5, "a"), (2, 6, POST, 2.5, "b")]
    for cuts in ([], [1], [2, 3, 5]):
        found = netted(same, cuts)
        assert sum(part.unchanged for part in found) == 2
        assert sum(part.events.num_rows for part in found) == 1


def test_an_insert_is_a_create() -> None:
    assert events([(1, 5, INSERT, 2.5, "a")]) == [(CREATE, 5, 1, 2.5, "a")]


def test_an_update_is_a_put_of_the_new_row() -> None:
    assert events([(1, 5, PRE, 1.0, "a"), (1, 5, POST, 2.0, "a")]) == [(PUT, 5, 1, 2.0, "a")]


def test_a_delete_is_a_destroy_with_the_old_row() -> None:
    assert events([(1, 5, DELETE, 1.0, "a")]) == [(DESTROY, 5, 1, 1.0, "a")]


def test_a_key_change_is_a_destroy_and_a_create() -> None:
    assert events([(1, 5, PRE, 1.0, "a"), (2, 5, POST, 1.0, "a")]) == [
        (DESTROY, 5, 1, 1.0, "a"),
        (CREATE, 5, 2, 1.0, "a"),
    ]


def test_a_swap_of_two_keys_is_two_puts() -> None:
    changes = [
        (1, 5, PRE, 1.0, "a"),
        (2, 5, POST, 1.0, "a"),
        (2, 5, PRE, 2.0, "b"),
        (1, 5, POST, 2.0, "b"),
    ]
    assert events(changes) == [(PUT, 5, 1, 2.0, "b"), (PUT, 5, 2, 1.0, "a")]


def test_an_overwrite_is_the_difference() -> None:
    """One commit deletes and inserts all rows. Fails when an insert does not beat a delete."""
    old = [(1, 5, DELETE, 1.0, "a"), (2, 5, DELETE, 2.0, "b"), (3, 5, DELETE, 3.0, "c")]
    new = [(2, 5, INSERT, 2.0, "b"), (3, 5, INSERT, 3.5, "c"), (4, 5, INSERT, 4.0, "d")]
    assert events(old + new) == [
        (DESTROY, 5, 1, 1.0, "a"),
        (PUT, 5, 3, 3.5, "c"),
        (CREATE, 5, 4, 4.0, "d"),
    ]


def test_b50_every_version_of_a_key_is_an_event() -> None:
    changes = [
        (1, 5, INSERT, 1.0, "a"),
        (1, 6, PRE, 1.0, "a"),
        (1, 6, POST, 2.0, "a"),
        (1, 7, DELETE, 2.0, "a"),
    ]
    assert [event[:2] for event in events(changes)] == [(CREATE, 5), (PUT, 6), (DESTROY, 7)]


@pytest.mark.parametrize("value", [None, -0.0, 0.0, math.nan, math.inf, 1e-300])
@pytest.mark.parametrize("note", [None, "", "ü\0"])
def test_equal_images_are_no_event(value: float | None, note: str | None) -> None:
    """Fails when equal images become events."""
    assert events([(1, 5, PRE, value, note), (1, 5, POST, value, note)]) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ((0.0, "a"), (-0.0, "a")),
        ((None, "a"), (0.0, "a")),
        ((0.0, "a"), (None, "a")),
        ((math.nan, "a"), (None, "a")),
        ((1.0, None), (1.0, "")),
        ((1.0, ""), (1.0, None)),
        ((1.0, "a"), (1.0, "b")),
        ((None, None), (None, "")),
    ],
)
def test_images_that_differ_in_a_bit_are_an_event(
    old: tuple[Any, Any], new: tuple[Any, Any]
) -> None:
    """Fails when images are compared by value: 0.0 equals -0.0."""
    ((op, _, _, amount, note),) = events([(1, 5, PRE, *old), (1, 5, POST, *new)])
    assert (op, bits(amount), note) == (PUT, bits(new[0]), new[1])


def test_images_of_every_type_are_compared() -> None:
    for name, values in VALUES.items():
        kind = values.type
        for old, new in ((0, 0), (0, 1), (1, 2), (2, 2)):
            batch = pa.record_batch(
                {
                    "id": pa.array([1, 1], pa.int64()),
                    "x": pa.concat_arrays([values.slice(old, 1), values.slice(new, 1)]),
                    "_commit_version": pa.array([5, 5], pa.int64()),
                    "_wan_rank": pa.array([0, 1], pa.int8()),
                }
            )
            (part,) = net([batch], ["id"])
            differ = str(values[old]) != str(values[new])
            assert part.events.num_rows == int(differ), (name, kind, old, new)


def test_of_two_rows_with_one_key_in_a_commit_the_content_decides_which_is_sent() -> None:
    """One row is sent, in whatever order they come; the others are dead letters.

    Fails when the last row wins.
    """
    changes: list[Change] = [
        (1, 5, INSERT, 1.0, "a"),
        (1, 5, INSERT, 2.0, "b"),
        (1, 5, INSERT, 3.0, "c"),
    ]
    (one,), (other,) = netted(changes), netted([*reversed(changes)])
    assert one.events.equals(other.events)
    assert one.events.num_rows == 1
    assert sorted(one.duplicates.column("note").to_pylist()) == sorted(
        other.duplicates.column("note").to_pylist()
    )
    sent = one.events.column("note").to_pylist()[0]
    assert {sent, *one.duplicates.column("note").to_pylist()} == {"a", "b", "c"}
    assert one.duplicates.schema == SCHEMA


def test_equal_rows_of_one_key_are_one_event_and_nothing_is_set_aside() -> None:
    (part,) = netted([(1, 5, INSERT, 1.0, "a"), (1, 5, INSERT, 1.0, "a")])
    assert (part.events.num_rows, part.duplicates.num_rows) == (1, 0)


def test_keys_of_several_columns_are_kept_apart() -> None:
    batch = pa.record_batch(
        {
            "a": pa.array(["x", "x", "y"]),
            "b": pa.array([1, 2, 2], pa.int32()),
            "_commit_version": pa.array([5, 5, 5], pa.int64()),
            "_wan_rank": pa.array([0, 1, 1], pa.int8()),
        }
    )
    parts = list(net([batch], ["a", "b"]))
    assert [op for part in parts for op in part.events.column("_wan_op").to_pylist()] == [
        DESTROY,
        CREATE,
        CREATE,
    ]
    assert [len(part.run_starts) for part in parts] == [2, 1]


def test_events_have_their_operation_and_version_in_front() -> None:
    (part,) = netted([(1, 5, INSERT, 2.5, "a")])
    expected = [
        ("_wan_op", pa.int8()),
        ("_wan_version", pa.int64()),
        *((f.name, f.type) for f in list(SCHEMA)[:3]),
    ]
    assert [(field.name, field.type) for field in part.events.schema] == expected


def test_no_rows_are_no_events() -> None:
    assert list(net([], ["id"])) == []
    assert list(net([rows([])], ["id"])) == []


# --- the model ------------------------------------------------------------------------------------

AMOUNTS = st.sampled_from([None, 0.0, -0.0, math.nan, OTHER_NAN, math.inf, 1.5])
CHANGES = st.lists(
    st.tuples(
        st.integers(0, 4),
        st.integers(1, 3),
        st.sampled_from([PRE, POST, INSERT, DELETE]),
        AMOUNTS,
        st.sampled_from([None, "", "a", "b"]),
    ),
    max_size=25,
)
CUTS = st.lists(st.integers(0, 25), max_size=6)


def model(changes: list[Change]) -> Iterator[tuple[Any, int, int, set[tuple[Any, Any]]]]:
    """(operation, version, key, the rows that may be sent), by the rules of the module."""
    for key, version in sorted({(change[0], change[1]) for change in changes}):
        group = [change for change in changes if change[:2] == (key, version)]
        old = [(bits(c[3]), c[4]) for c in group if c[2] in (PRE, DELETE)]
        new = [(bits(c[3]), c[4]) for c in group if c[2] in (POST, INSERT)]
        if len(old) == len(new) == 1 and old == new:
            continue
        op = (PUT if old else CREATE) if new else DESTROY
        yield op, version, key, set(new or old)


@randomly
@given(CHANGES, CUTS)
@example([(1, 1, PRE, -0.0, "a"), (1, 1, POST, 0.0, "a")], [1])
@example([(0, 1, INSERT, None, None), (0, 2, DELETE, None, None)], [0, 1, 1, 2])
def test_netting_agrees_with_the_model(changes: list[Change], cuts: list[int]) -> None:
    expected = list(model(changes))
    sent = events(changes, cuts)
    assert [event[:3] for event in sent] == [event[:3] for event in expected]
    for (*_, amount, note), (*_, allowed) in zip(sent, expected, strict=True):
        assert (bits(amount), note) in allowed


@randomly
@given(CHANGES, CUTS, st.randoms(use_true_random=False))
def test_neither_batch_boundaries_nor_row_order_change_the_result(
    changes: list[Change], cuts: list[int], random: Any
) -> None:
    """Fails when a group is not carried over to the next batch, or the last of equal rows wins."""

    shuffled = list(changes)
    random.shuffle(shuffled)
    if any(isinstance(change[3], float) and math.isnan(change[3]) for change in changes):
        shuffled = (
            changes  # NaNs have one content hash: which of two is sent may depend on their order
        )
    assert result(netted(shuffled, cuts)) == result(netted(changes))


def result(parts: list[Netted]) -> tuple[list[Any], list[Any]]:
    """What is sent, and what is set aside, in any order. Of a destroy only the key counts."""
    sent: list[Any] = []
    for row in (row for part in parts for row in part.events.to_pylist()):
        values = () if row["_wan_op"] == DESTROY else (bits(row["amount"]), row["note"])
        sent.append((row["_wan_op"], row["_wan_version"], row["id"], *values))
    aside = [
        tuple(map(bits, row.values())) for part in parts for row in part.duplicates.to_pylist()
    ]
    return sent, sorted(aside, key=str)


@randomly
@given(CHANGES, CUTS)
def test_runs_begin_where_another_key_begins(changes: list[Change], cuts: list[int]) -> None:
    """A key that continues in the next batch begins no run there.

    Fails when the last key is not carried over.
    """
    parts = netted(changes, cuts)
    keys = [key for part in parts for key in part.events.column("id").to_pylist()]
    starts, before = [], 0
    for part in parts:
        starts += [before + int(start) for start in part.run_starts]
        before += part.events.num_rows
    assert starts == [
        place for place, key in enumerate(keys) if place == 0 or keys[place - 1] != key
    ]


@randomly
@given(CHANGES)
def test_every_row_is_accounted_for(changes: list[Change]) -> None:
    """Each new row of a commit is sent, or equal to the one that is sent, or set aside."""
    parts = netted(changes)
    sent = {(row["id"], row["_wan_version"]) for part in parts for row in part.events.to_pylist()}
    aside = sum(part.duplicates.num_rows for part in parts)
    news = [change for change in changes if change[2] in (POST, INSERT)]
    groups = {(change[0], change[1]) for change in changes}
    assert sent <= groups
    different = sum(
        len([c for c in news if c[:2] == group and not same(c, winner(parts, group))])
        for group in groups & sent
    )
    assert aside == different


def winner(parts: list[Netted], group: tuple[int, int]) -> dict[str, Any]:
    return next(
        row
        for part in parts
        for row in part.events.to_pylist()
        if (row["id"], row["_wan_version"]) == group
    )


def same(change: Change, row: dict[str, Any]) -> bool:
    """Whether they have one content hash, for which there is one NaN."""
    amount, other = change[3], row["amount"]
    both_nan = all(isinstance(value, float) and math.isnan(value) for value in (amount, other))
    return (both_nan or bits(amount) == bits(other)) and change[4] == row["note"]
