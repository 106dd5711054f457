"""When what failed is retried, and since when it fails."""

from __future__ import annotations

import pytest

from spark_wan.runtime import hold as module
from spark_wan.runtime.hold import LONGEST_WAIT, Hold, next_wait


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1_000.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(module, "milliseconds", lambda: int(now[0] * 1_000))
    return now


def test_each_wait_is_twice_as_long_up_to_the_longest(now: list[float]) -> None:
    hold, waits = Hold("no table", 4.0), list[float]()
    for _ in range(5):
        waits.append(hold.wait)
        hold = Hold("no table", 4.0, hold)
    assert waits == [4, 8, 16, LONGEST_WAIT, LONGEST_WAIT]
    assert next_wait(100, None) == LONGEST_WAIT


def test_a_retry_is_due_after_the_wait_or_at_once(now: list[float]) -> None:
    hold = Hold("no table", 4.0)
    now[0] += 3
    assert hold.left() == 1
    now[0] += 1
    assert hold.left() == 0
    again = Hold("no table", 4.0, hold)
    assert again.left() == 8
    again.retry_now()
    assert (again.left(), Hold("no table", 4.0, again).wait) == (0, 16)


def test_a_hold_lasts_over_its_retries_and_another_cause(now: list[float]) -> None:
    """Fails when it begins again with each failure: an operator would not see how old it is."""
    first = Hold("no table", 4.0)
    now[0] += 60
    assert Hold("no column", 4.0, first).since_ms == first.since_ms == 1_000_000
