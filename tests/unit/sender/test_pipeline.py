"""When the next capture begins: how many commits travel together."""

from __future__ import annotations

import time

import pytest

from spark_wan.sender.pipeline import LONGEST_GATHER, LONGEST_JOIN, Pipeline
from spark_wan.topology.values import Optimize


class Clock:
    """Seconds, instead of ``time.monotonic``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1_000.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def known(clock: Clock, optimize: Optimize, capture: float, ack: float) -> Pipeline:
    """A pipeline that knows how long captures and acks take, with an epoch published just now."""
    pipeline = Pipeline(optimize)
    pipeline.capture_took(capture / 0.3)  # the first one weighs as much as each later one
    pipeline.published()
    clock.now += ack
    pipeline.acked()
    pipeline.published()
    return pipeline


@pytest.mark.parametrize("optimize", ["latency", "throughput"])
def test_nothing_waits_before_an_ack_has_shown_how_long_it_takes(
    clock: Clock, optimize: Optimize
) -> None:
    """A site that is away may never ack. Fails when its queue grows by one epoch a minute only."""
    pipeline = Pipeline(optimize)
    assert pipeline.wait() == 0
    pipeline.published()
    assert pipeline.wait() == 0


def test_a_capture_ends_when_the_receiver_is_ready_for_it(clock: Clock) -> None:
    """Fails when captures run ahead of what can be applied."""
    pipeline = known(clock, "latency", capture=1.0, ack=5.0)
    assert pipeline.wait() == pytest.approx(4.0)
    clock.now += 2.0
    assert pipeline.wait() == pytest.approx(2.0)
    pipeline.acked()  # sooner than expected
    assert pipeline.wait() == 0


def test_commits_do_not_wait_long_for_a_slow_receiver(clock: Clock) -> None:
    assert known(clock, "latency", capture=1.0, ack=300.0).wait() == LONGEST_JOIN
    assert known(clock, "throughput", capture=1.0, ack=300.0).wait() == LONGEST_GATHER


def test_throughput_gathers_commits_for_as_long_as_they_take(clock: Clock) -> None:
    """Whether acked or not: so a receiver rests for half of the time. Fails when it does not."""
    pipeline = known(clock, "throughput", capture=1.0, ack=5.0)
    assert pipeline.wait() == pytest.approx(10.0)
    clock.now += 5.0
    pipeline.acked()
    assert pipeline.wait() == pytest.approx(5.0)
    clock.now += 5.0
    assert pipeline.wait() == 0


def test_an_epoch_that_is_acked_counts_once(clock: Clock) -> None:
    """Each look at the acks finds that of the newest epoch again."""
    pipeline = known(clock, "throughput", capture=1.0, ack=5.0)
    for _ in range(4):
        clock.now += 5.0
        pipeline.acked()
    pipeline.published()
    assert pipeline.wait() == pytest.approx(10.0)
