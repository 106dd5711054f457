"""How often Spark is asked whether a source table has something new."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from capturing import delta_source, orders

from spark_wan.capture import source as module
from spark_wan.capture.source import POLL_INTERVAL


class Asked:
    columns = ("id",)


@pytest.fixture
def looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """``looks(known)``: how often Spark was asked in one look. Its log has the versions 0 to 2."""
    asked: list[int] = []

    def load(spark: Any, location: str, **options: Any) -> Asked:
        asked.append(int(options["startingVersion"]))
        return Asked()

    monkeypatch.setattr(module, "load", load)
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    now = [100.0]
    log = tmp_path / "orders" / "_delta_log"
    log.mkdir(parents=True)
    for version in range(3):
        (log / f"{version:020d}.json").touch()
    source = delta_source(table=orders(str(tmp_path / "orders")))

    def look(known: int, seconds: float = 0.0) -> int:
        now[0] += seconds
        asked.clear()
        source.latest(known)
        return len(asked)

    look.log, look.source = log, source  # type: ignore[attr-defined]
    return look


def test_a_log_on_disk_that_shows_nothing_new_is_asked_for_now_and_then(looks: Any) -> None:
    assert [looks(2), looks(2), looks(2, POLL_INTERVAL), looks(2)] == [1, 0, 1, 0]
    assert looks.source.latest(2) == 2


def test_whoever_was_told_the_history_need_not_ask(
    looks: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "history", lambda *_: [])
    looks.source.history(1)
    assert [looks(2), looks(2, POLL_INTERVAL)] == [0, 1]


def test_what_the_log_shows_is_there(looks: Any) -> None:
    assert [looks(2), looks(2)] == [1, 0]
    (looks.log / f"{3:020d}.json").touch()
    assert looks(2, POLL_INTERVAL) == 0
    assert looks.source.latest(2) == 3


def test_a_log_that_lacks_the_known_version_is_asked_for_at_once(looks: Any) -> None:
    """It was put back to an older state, or cleaned up: Spark knows."""
    assert [looks(2), looks(2)] == [1, 0]
    (looks.log / f"{2:020d}.json").unlink()
    assert [looks(2), looks(2)] == [1, 1]


def test_a_table_elsewhere_is_asked_for_at_every_look(looks: Any) -> None:
    looks.source.table = orders("s3://bucket/orders")
    assert [looks(2), looks(2)] == [1, 1]
    looks.source.table = orders("main.sales.orders")
    assert [looks(2), looks(2)] == [1, 1]
