"""How much a producer has under way, over lines of any speed."""

from __future__ import annotations

import threading
from collections import deque

import pytest
from waiting import wait_until

from spark_wan.channels.kafka.window import FIRST_BYTES, LEAST_BYTES, Window

RECORD = 900_000
MOST = 64 * 1024 * 1024
AIM = 7.5


class Line:
    """Carries records one after the other, at some bytes per second, and acknowledges each after a
    round trip. Its clock is the window's."""

    def __init__(self, rate: float, round_trip: float = 0.15) -> None:
        self.rate, self.round_trip, self.now = rate, round_trip, 0.0
        self.window = Window(AIM, MOST, lambda: self.now)
        self._under_way: deque[tuple[float, float, object]] = deque()
        self._free_at = 0.0
        self.took: list[float] = []

    def send(self, records: int) -> None:
        for _ in range(records):
            while self._under_way and not self._has_room():
                self._acknowledge()
            leave = self.window.enter(RECORD)
            self._free_at = max(self._free_at, self.now) + RECORD / self.rate
            self._under_way.append((self.now, self._free_at + self.round_trip, leave))
        while self._under_way:
            self._acknowledge()

    def _has_room(self) -> bool:
        return (len(self._under_way) + 1) * RECORD <= self.window.bytes

    def _acknowledge(self) -> None:
        began, at, leave = self._under_way.popleft()
        self.now = max(self.now, at)
        self.took.append(self.now - began)
        assert callable(leave)
        leave(True)


@pytest.mark.parametrize("rate", [250_000, 700_000, 5_000_000, 100_000_000])
def test_a_record_is_acknowledged_in_time_however_slow_the_line_is(rate: int) -> None:
    """It has 40 s. Fails without the window: of the 64 MB of a task, the last record takes more
    than a minute at 0.7 MB/s, each time that it is tried."""
    line = Line(rate)
    line.send(500)
    assert max(line.took) < 40
    assert max(line.took[50:]) < 2 * AIM


@pytest.mark.parametrize("rate", [700_000, 5_000_000, 200_000_000])
def test_the_line_is_never_idle(rate: int) -> None:
    """Fails when the window does not grow: a fast and long line then waits for each window."""
    line = Line(rate)
    line.send(2_000)
    assert line.now < 1.1 * 2_000 * RECORD / rate + 1


def test_those_of_one_window_halve_it_once() -> None:
    line = Line(FIRST_BYTES / 10)
    line.send(FIRST_BYTES // RECORD)
    assert line.window.bytes == FIRST_BYTES // 2


def test_failures_halve_the_window_down_to_a_minimum() -> None:
    now = 0.0
    window = Window(AIM, MOST, lambda: now)
    for _ in range(20):
        leave = window.enter(RECORD)
        now += 40
        leave(False)
    assert window.bytes == LEAST_BYTES
    window.enter(RECORD)(True)  # alone, a record of any size may be under way


def test_a_window_that_is_not_full_does_not_grow() -> None:
    now = 0.0
    window = Window(AIM, MOST, lambda: now)
    for _ in range(20):
        now += 1
        window.enter(1_000)(True)
    assert window.bytes == FIRST_BYTES


def test_a_record_waits_for_room() -> None:
    """Fails without the wait in ``Window.enter``."""
    window = Window(AIM, RECORD)
    leave, entered = window.enter(RECORD), threading.Event()

    def enter() -> None:
        window.enter(RECORD)
        entered.set()

    thread = threading.Thread(target=enter)
    thread.start()
    wait_until(lambda: bool(window._room._waiters), "the record waits")  # type: ignore[attr-defined]
    assert not entered.is_set()
    leave(True)
    thread.join(10)
    assert entered.is_set()
