"""Which of the event IDs in the ledger count."""

from __future__ import annotations

import pytest
from ledgers import mark

from spark_wan.errors import SourceUnreadableError
from spark_wan.ledger.event_ids import tokens_through
from spark_wan.wire.ledger import range_token


def through(apply: int, *tokens: str, since: int = 0) -> set[str]:
    """Of a ledger with the marks of applies 1 to 9, whose tokens are t1 to t9."""
    marks = [mark(number) for number in range(1, 10)]
    return {*tokens_through(apply, tokens, marks, table="orders", since=since)}


def test_ids_of_later_applies_do_not_count() -> None:
    """Fails when a copy has the IDs of events that are not in its rows: they would be dropped."""
    assert through(4, "t3", "t4", "t5", "t77") == {"t3", "t4"}


def test_ids_of_applies_before_a_copy_do_not_count() -> None:
    """Marked, or folded: the rows that they stand for are gone."""
    tokens = ("t3", "t4", range_token(1, 2), range_token(1, 4))
    assert through(9, *tokens, since=4) == {"t4", range_token(1, 4)}


def test_ids_that_were_folded_with_later_ones_have_to_be_read_again() -> None:
    """Nothing tells them apart any more."""
    assert through(9, range_token(1, 9)) == {range_token(1, 9)}
    with pytest.raises(SourceUnreadableError, match="was folded meanwhile"):
        through(8, range_token(1, 9))
