"""A table's history, without Spark."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from spark_wan.delta.tables import history, newest_commit


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


class History:
    """A session whose history has commits at these times. Spark returns local times."""

    def __init__(self, *milliseconds: int) -> None:
        self.rows = []
        for version, when in enumerate(milliseconds, 3):
            seconds, rest = divmod(when, 1000)
            local = datetime.fromtimestamp(seconds).replace(microsecond=rest * 1000)
            row = dict.fromkeys(
                ("operationParameters", "operationMetrics", "userMetadata", "readVersion")
            )
            self.rows.append(row | {"version": version, "timestamp": local, "operation": "WRITE"})

    def sql(self, _: str) -> History:
        return self

    def collect(self) -> list[Any]:
        """The newest commit first."""
        return self.rows[::-1]


@pytest.mark.parametrize("hour", range(4))
def test_times_are_exact_in_the_hour_that_a_change_of_clocks_repeats(
    berlin: None, hour: int
) -> None:
    """2026-10-25, 0 to 3 h UTC: 2 h, 2 h, 3 h in Berlin."""
    milliseconds = 1_792_886_400_172 + hour * 3_600_000
    session: Any = History(milliseconds)
    commit = newest_commit(session, "/orders")
    assert (commit.time, commit.version, commit.parameters, commit.metrics) == (
        milliseconds,
        3,
        {},
        {},
    )


def test_a_time_right_behind_the_one_before_may_have_been_moved() -> None:
    """Delta moves a time that is not after that of the commit before, by a millisecond more."""
    ahead = 1_792_890_000_000
    session: Any = History(ahead, ahead + 1, ahead + 2, ahead + 500)
    moved = [commit.moved for commit in history(session, "/orders", 2)]
    assert moved == [False, True, True, False]
