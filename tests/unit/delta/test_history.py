"""A table's history, without Spark."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from spark_wan.delta.tables import newest_commit


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


class History:
    """A session whose history has one commit, at ``milliseconds``. Spark returns local times."""

    def __init__(self, milliseconds: int) -> None:
        seconds, rest = divmod(milliseconds, 1000)
        when = datetime.fromtimestamp(seconds).replace(microsecond=rest * 1000)
        self.row = dict.fromkeys(
            ("operationParameters", "operationMetrics", "userMetadata", "readVersion")
        )
        self.row |= {"version": 3, "timestamp": when, "operation": "WRITE"}

    def sql(self, _: str) -> History:
        return self

    def collect(self) -> list[Any]:
        return [self.row]


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
