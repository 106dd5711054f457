"""What becomes of rows that cannot be sent or applied, and in which order sites see events."""

from __future__ import annotations

import pytest
from topologies import refusal, topology

SENDER, TABLE = "senders.east", "tables.flights"


def test_rows_become_dead_letters_unless_the_table_is_to_wait() -> None:
    """Fails when a table whose `on_failure` is retry goes on without a row."""
    assert topology().table("flights").letters_allowed == 10_000
    assert topology((f"{TABLE}.max_dead_letters", 7)).table("flights").letters_allowed == 7
    waits = topology((f"{TABLE}.on_failure", "retry")).table("flights")
    assert waits.letters_allowed == 0
    assert "did you mean 'retry'" in refusal((f"{TABLE}.on_failure", "retri"))


def test_a_maximum_says_nothing_of_a_table_that_waits() -> None:
    """Fails when `max_dead_letters` looks as if some rows were left out."""
    message = refusal((f"{TABLE}.on_failure", "retry"), (f"{TABLE}.max_dead_letters", 7))
    assert f"{TABLE}.max_dead_letters: has no effect, since on_failure is retry" in message


def test_the_order_is_that_of_commits() -> None:
    assert topology((f"{SENDER}.order_policy", "commit")).sender("east").order_policy == "commit"


@pytest.mark.parametrize("policy", ["key", "thread", "partition", "none"])
def test_b48_weaker_orders_are_refused_with_what_is_kept(policy: str) -> None:
    message = refusal((f"{SENDER}.order_policy", policy))
    assert f"{SENDER}.order_policy: {policy!r} is not supported: write commit" in message
    assert "the events of each key" in message


def test_b48_an_unknown_order_policy_is_refused() -> None:
    message = refusal((f"{SENDER}.order_policy", "comit"))
    assert f"{SENDER}.order_policy: unknown value 'comit'; did you mean 'commit'?" in message
