"""Event IDs are frozen, and differ for different events."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from spark_wan.events.operations import Operation, keyed_event_id, keyless_event_id

randomly = settings(derandomize=True, deadline=None, max_examples=200, print_blob=True)
TABLE = "11111111-2222-3333-4444-555555555555"


def test_event_ids_are_frozen() -> None:
    assert keyed_event_id(TABLE, 7, ("1", "Ulm")) == "c8ecd518309a61d3509a770808bce579"
    assert keyless_event_id(TABLE, 7, "ab" * 16, 0) == "4e15e4858db312189f707acae2d4bc9b"
    assert keyed_event_id(TABLE, 7, ("ü\0",)) == "e61d23b78737e7a420e395795c9e360c"


def test_numbers_of_operations_are_frozen() -> None:
    assert {op.name: int(op) for op in Operation} == {"CREATE": 0, "PUT": 1, "DESTROY": 2}


@randomly
@given(
    st.tuples(st.text(), st.integers(0, 2**62), st.lists(st.text(), min_size=1, max_size=3)),
    st.data(),
)
def test_different_events_have_different_ids(
    event: tuple[str, int, list[str]], data: st.DataObject
) -> None:
    other = data.draw(
        st.tuples(st.text(), st.integers(0, 2**62), st.lists(st.text(), min_size=1, max_size=3))
    )
    ids = [keyed_event_id(table, version, tuple(key)) for table, version, key in (event, other)]
    assert (ids[0] == ids[1]) == (event == other)
    assert len(ids[0]) == 32


def test_key_columns_do_not_run_together() -> None:
    assert keyed_event_id(TABLE, 1, ("a", "b")) != keyed_event_id(TABLE, 1, ("ab", ""))
    assert keyed_event_id(TABLE, 1, ('a","b',)) != keyed_event_id(TABLE, 1, ("a", "b"))


def test_two_equal_rows_of_a_keyless_table_are_two_events() -> None:
    assert keyless_event_id(TABLE, 1, "x", 0) != keyless_event_id(TABLE, 1, "x", 1)
    assert keyless_event_id(TABLE, 1, "x", 0) != keyed_event_id(TABLE, 1, ("x",))
