"""What a receiver says of one stream when an operator's request comes into effect there."""

from __future__ import annotations

from typing import Any

import pytest

from spark_wan.apply.applier import ApplyResult
from spark_wan.apply.plan import StreamPlan
from spark_wan.receiver.stream import InboundStream

NAME = "newark.east.orders"


@pytest.fixture
def stream(caplog: pytest.LogCaptureFixture) -> InboundStream:
    caplog.set_level("INFO", "spark_wan")
    return InboundStream(NAME, "orders")


def result(applied: int, epochs: int = 0, ends: bool = False, **more: Any) -> ApplyResult:
    return ApplyResult(StreamPlan(NAME, ends=ends), applied=applied, epochs=epochs, **more)


def told(caplog: pytest.LogCaptureFixture) -> list[tuple[str, Any]]:
    """The events that were logged, with their epoch; all name stream and table."""
    fields = [vars(record) for record in caplog.records]
    assert all((each["stream"], each["table"]) == (NAME, "orders") for each in fields)
    return [(each["event"], each.get("epoch")) for each in fields]


def test_a_pause_is_told_when_it_begins_and_when_it_ends(
    stream: InboundStream, caplog: pytest.LogCaptureFixture
) -> None:
    """Fails when the log says what was asked for, and not since when nothing is taken."""
    for paused in (False, False):
        stream.pause(paused)
    stream.count(result(3, 3), 0)
    for paused in (True, True, False, False):
        stream.pause(paused)
    assert told(caplog) == [("applied", 3), ("paused", 3), ("resumed", 3)]


def test_the_end_of_a_stream_is_told_once_all_of_it_is_applied(
    stream: InboundStream, caplog: pytest.LogCaptureFixture
) -> None:
    """And that it goes on. Fails when an end is told that is still waited for."""
    held = result(1, 1, ends=True, held=2, cause="full")
    for each in (held, result(3, 2, ends=True), result(3, ends=True), result(3), result(4, 1)):
        stream.count(each, 0)
    events = [each for each in told(caplog) if each[0] != "applied"]
    assert events == [("ended", 3), ("resumed", None)]


def test_a_release_is_told(stream: InboundStream, caplog: pytest.LogCaptureFixture) -> None:
    """Fails when a hold is in the log, and its end is not."""
    stream.hold("the target table is missing", epoch=2)
    stream.count(result(1, held=2, cause="the target table is missing"), 0)
    stream.count(result(2, 1), 0)
    stream.hold("full", epoch=3)
    stream.release()
    stream.release()
    events = [("held", 2), ("released", None), ("applied", 2), ("held", 3), ("released", None)]
    assert told(caplog) == events
