"""Whose turn it is to have a first look."""

from __future__ import annotations

import pytest

from spark_wan.runtime import first_looks as module
from spark_wan.runtime.first_looks import FirstLooks
from spark_wan.runtime.scheduler import Activity, Turn


class Named(Activity):
    def __init__(self, name: str) -> None:
        self.name = name

    def look(self, spark: object) -> Turn:
        raise NotImplementedError


A, B, C = map(Named, "abc")


@pytest.fixture
def woken() -> list[Activity]:
    return []


@pytest.fixture
def looks(woken: list[Activity]) -> FirstLooks:
    return FirstLooks(woken.append)


def test_one_at_a_time_in_the_order_in_which_they_asked(
    looks: FirstLooks, woken: list[Activity]
) -> None:
    assert [looks.may_begin(each) for each in (A, B, C, B)] == [True, False, False, False]
    looks.done(A)
    assert woken == [B]
    assert [looks.may_begin(each) for each in (B, C)] == [True, False]
    looks.done(B)
    assert woken == [B, C]


def test_one_that_did_not_wait_takes_no_turn(looks: FirstLooks, woken: list[Activity]) -> None:
    """It had something to do meanwhile. Fails when its turn comes nevertheless, and nobody ends
    it, or when two have their turn."""
    assert [looks.may_begin(each) for each in (A, B, C)] == [True, False, False]
    looks.done(B)
    assert woken == []
    looks.done(A)
    assert woken == [C]


def test_the_next_is_woken_though_the_turn_was_nobodys(
    looks: FirstLooks, woken: list[Activity]
) -> None:
    """The one that was woken had ended. Fails when all that wait do so until they ask again."""
    assert [looks.may_begin(each) for each in (A, B, C)] == [True, False, False]
    looks.done(A)
    looks.done(B)
    assert woken == [B, C]


def test_one_that_is_woken_and_does_not_come_stops_no_other(
    looks: FirstLooks, woken: list[Activity]
) -> None:
    """It has got something to do, and waits for a worker. Fails when it is woken again and again,
    in place of those behind it."""
    assert [looks.may_begin(each) for each in (A, B, C)] == [True, False, False]
    looks.done(A)
    looks.done(Named("another"))
    assert woken == [B, C]


def test_a_slow_one_delays_no_other(
    looks: FirstLooks, woken: list[Activity], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor one that an error has ended."""
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    assert [looks.may_begin(each) for each in (A, B)] == [True, False]
    now[0] = module.RETRY
    assert looks.may_begin(B)
    looks.done(A)
    assert [looks.may_begin(C), woken] == [False, []]
