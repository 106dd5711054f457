"""Long work in the log: each once per interval, with what machines ask of it."""

from __future__ import annotations

from typing import Any

import pytest

from spark_wan.runtime import progress
from spark_wan.runtime.progress import LONG, WorkWatch, in_log, log_work, under_way


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The time, in milliseconds."""
    now = [1_700_000_000_000]
    monkeypatch.setattr(progress, "milliseconds", lambda: now[0])
    return now


def test_long_work_is_in_the_log_with_its_rate(
    clock: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    """Fails when a first copy of hours looks in the log like a job that hangs."""
    caplog.set_level("INFO", "spark_wan")
    with under_way("capturing", "a.b.t", "a", rows=8_000, size=90, share=lambda: 0.25):
        in_log.poll()
        clock[0] += int(LONG * 1000)
        for _ in range(3):
            in_log.poll()
    (record,) = caplog.records
    names = ("event", "stream", "site", "work", "rows", "bytes", "share", "rows_per_s", "left_ms")
    found: list[Any] = [vars(record)[name] for name in names]
    assert found == ["work", "a.b.t", "a", "capturing", 8_000, 90, 0.25, 200, 30_000]
    assert record.getMessage() == "a.b.t: capturing 8000 rows, 25% done"


def test_what_is_not_known_of_work_is_left_out(
    clock: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "spark_wan")
    with under_way("applying", "a.b.t", "b", rows=3, size=None):
        clock[0] += int(LONG * 1000)
        WorkWatch(log_work).poll()
    (record,) = caplog.records
    assert not {"share", "bytes", "rows_per_s", "left_ms"} & {*vars(record)}
    assert record.getMessage() == "a.b.t: applying 3 rows, an unknown share done"


def test_the_end_of_what_was_reported_is_noted_once(clock: list[int]) -> None:
    """Fails when the line of a terminal is left there after its work, or taken away beside it."""
    told, ended = list[str](), list[int]()
    watch = WorkWatch(lambda work: told.append(work.stream), lambda: ended.append(1), interval=1.0)
    with under_way("applying", "a.b.t", "b", rows=3, size=None):
        with under_way("applying", "a.b.u", "b", rows=3, size=None):
            watch.poll()
            for _ in range(3):
                clock[0] += 5_000
                watch.poll()
        watch.poll()
        assert (sorted(told), ended) == (["a.b.t"] * 2 + ["a.b.u"] * 2, [])
    for _ in range(2):
        watch.poll()
    assert ended == [1]
