"""How often a source polls Spark for new commits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from capturing import delta_source, orders

from spark_wan.capture import source as module
from spark_wan.capture.source import POLL_INTERVAL


class Feed:
    columns = ("id",)


@pytest.fixture
def polls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """``polls(known)``: how often one call of ``latest`` asks Spark. The log has 0 to 2."""
    calls: list[int] = []

    def load(spark: Any, location: str, **options: Any) -> Feed:
        calls.append(int(options["startingVersion"]))
        return Feed()

    monkeypatch.setattr(module, "load", load)
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    now = [100.0]
    log = tmp_path / "orders" / "_delta_log"
    log.mkdir(parents=True)
    for version in range(3):
        (log / f"{version:020d}.json").touch()
    source = delta_source(table=orders(str(tmp_path / "orders")))

    def latest(known: int, seconds: float = 0.0) -> int:
        now[0] += seconds
        calls.clear()
        source.latest(known)
        return len(calls)

    latest.log, latest.source = log, source  # type: ignore[attr-defined]
    return latest


def test_spark_is_polled_at_intervals_while_the_local_log_shows_nothing_new(polls: Any) -> None:
    assert [polls(2), polls(2), polls(2, POLL_INTERVAL), polls(2)] == [1, 0, 1, 0]
    assert polls.source.latest(2) == 2


def test_reading_the_history_counts_as_a_poll(polls: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "history", lambda *_: [])
    polls.source.history(1)
    assert [polls(2), polls(2, POLL_INTERVAL)] == [0, 1]


def test_a_new_commit_in_the_local_log_needs_no_poll(polls: Any) -> None:
    assert [polls(2), polls(2)] == [1, 0]
    (polls.log / f"{3:020d}.json").touch()
    assert polls(2, POLL_INTERVAL) == 0
    assert polls.source.latest(2) == 3


def test_spark_is_polled_at_once_when_the_local_log_lacks_the_known_version(polls: Any) -> None:
    """The table was restored to an older state, or log cleanup deleted the file."""
    assert [polls(2), polls(2)] == [1, 0]
    (polls.log / f"{2:020d}.json").unlink()
    assert [polls(2), polls(2)] == [1, 1]


def test_a_table_without_local_log_polls_spark_each_time(polls: Any) -> None:
    polls.source.table = orders("s3://bucket/orders")
    assert [polls(2), polls(2)] == [1, 1]
    polls.source.table = orders("main.sales.orders")
    assert [polls(2), polls(2)] == [1, 1]
