"""Event IDs are frozen; marks in commits are found, and nothing else is taken for one."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_wan.events.operations import Operation, keyed_event_id, keyless_event_id
from spark_wan.wire.mark import LOCAL_ONLY, read_mark

randomly = settings(derandomize=True, deadline=None, max_examples=200, print_blob=True)
TABLE = "11111111-2222-3333-4444-555555555555"


def test_ids_are_what_they_always_were() -> None:
    assert keyed_event_id(TABLE, 7, ("1", "Ulm")) == "c8ecd518309a61d3509a770808bce579"
    assert keyless_event_id(TABLE, 7, "ab" * 16, 0) == "4e15e4858db312189f707acae2d4bc9b"
    assert keyed_event_id(TABLE, 7, ("ü\0",)) == "e61d23b78737e7a420e395795c9e360c"


def test_operations_are_what_they_always_were() -> None:
    assert {op.name: int(op) for op in Operation} == {"CREATE": 0, "PUT": 1, "DESTROY": 2}


@randomly
@given(
    st.tuples(st.text(), st.integers(0, 2**62), st.lists(st.text(), min_size=1, max_size=3)),
    st.data(),
)
def test_another_event_has_another_id(
    event: tuple[str, int, list[str]], data: st.DataObject
) -> None:
    other = data.draw(
        st.tuples(st.text(), st.integers(0, 2**62), st.lists(st.text(), min_size=1, max_size=3))
    )
    ids = [keyed_event_id(table, version, tuple(key)) for table, version, key in (event, other)]
    assert (ids[0] == ids[1]) == (event == other)
    assert len(ids[0]) == 32


def test_keys_do_not_run_together() -> None:
    assert keyed_event_id(TABLE, 1, ("a", "b")) != keyed_event_id(TABLE, 1, ("ab", ""))
    assert keyed_event_id(TABLE, 1, ('a","b',)) != keyed_event_id(TABLE, 1, ("a", "b"))


def test_two_equal_rows_of_a_keyless_table_are_two_events() -> None:
    assert keyless_event_id(TABLE, 1, "x", 0) != keyless_event_id(TABLE, 1, "x", 1)
    assert keyless_event_id(TABLE, 1, "x", 0) != keyed_event_id(TABLE, 1, ("x",))


def test_marks_are_found() -> None:
    assert read_mark(LOCAL_ONLY) == {"local_only": True}
    assert read_mark('{"job": "nightly", "spark_wan": {"site": "seattle"}}') == {"site": "seattle"}


@pytest.mark.parametrize(
    "text",
    [None, "", "nightly", "spark_wan", "{spark_wan", '{"job": "x"}', '["spark_wan"]', '"spark_wan"']
    + [json.dumps({"spark_wan": value}) for value in (None, 5, "x", [1])],
)
def test_what_is_no_mark_is_none(text: str | None) -> None:
    assert read_mark(text) is None
