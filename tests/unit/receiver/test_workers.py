"""Limits on what runs at the same time: slots of a sender, tables of a receiver."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import pytest
from fakes import ThreadOfAnEndedSession

from spark_wan.delta.sessions import spark_thread
from spark_wan.errors import SessionLostError
from spark_wan.receiver.workers import TableWorkers
from spark_wan.sender.slots import Slots

SPARK: Any = None
LONG = 60.0
"""Seconds after which a test gives up waiting."""


def test_a_slot_goes_to_the_longest_waiter() -> None:
    """Also when its holder asks again at once. Fails with a semaphore, which favours the holder."""
    slots, order = Slots(1), list[int]()
    began = [threading.Event() for _ in range(3)]
    go = threading.Event()

    def work(number: int) -> None:
        began[number].set()
        with slots.taken():
            order.append(number)

    def again() -> None:
        with slots.taken():
            began[0].set()
            assert go.wait(LONG)
        work(0)

    threads = [threading.Thread(target=again)]
    threads[0].start()
    assert began[0].wait(LONG)
    for number in (1, 2):
        threads.append(threading.Thread(target=work, args=(number,)))
        threads[-1].start()
        assert began[number].wait(LONG)
        while len(slots._line) < number:
            threads[-1].join(0.01)
    go.set()
    for thread in threads:
        thread.join(LONG)
    assert order == [1, 2, 0]


def test_an_error_frees_its_slot() -> None:
    slots = Slots(1)
    for _ in range(2):
        with pytest.raises(ValueError), slots.taken():
            raise ValueError


def test_one_apply_at_a_time_per_table() -> None:
    pool, at_work, go = TableWorkers(SPARK, 5), threading.Event(), threading.Event()
    done: list[str] = []

    def slow() -> None:
        at_work.set()
        assert go.wait(LONG)
        done.append("slow")

    pool.give("orders", slow)
    assert not pool.wait(0.0)
    assert at_work.wait(LONG)
    pool.give("orders", partial(done.append, "second"))
    assert not pool.wait(0.05)
    go.set()
    assert pool.wait(LONG)
    assert done == ["slow"]  # the next poll finds the second again
    pool.give("orders", partial(done.append, "second"))
    assert pool.wait(LONG)
    assert done == ["slow", "second"]


@pytest.mark.parametrize("slow_after", [0.0, LONG])
def test_slow_tables_do_not_count_towards_the_limit(
    monkeypatch: pytest.MonkeyPatch, slow_after: float
) -> None:
    """Two snapshots that take hours, and a limit of two. Fails when all running tables count."""
    monkeypatch.setattr("spark_wan.receiver.workers.SLOW", slow_after)
    pool, go, done = TableWorkers(SPARK, 2), threading.Event(), list[str]()
    for table in ("first", "second"):
        pool.give(table, partial(_wait_for, go))
    pool.give("quick", partial(done.append, "quick"))
    assert not pool.wait(0.2)
    assert done == (["quick"] if slow_after == 0.0 else [])
    go.set()
    assert pool.wait(LONG)
    assert done == ["quick"]


def _wait_for(go: threading.Event) -> None:
    assert go.wait(LONG)


def test_after_an_error_no_further_work_starts() -> None:
    pool, done = TableWorkers(SPARK, 1), list[str]()

    def fail() -> None:
        raise ValueError("no")

    pool.give("orders", fail)
    pool.give("readings", partial(done.append, "readings"))
    with pytest.raises(ValueError, match="no"):
        pool.wait(LONG)
    pool.join()
    assert done == []


def test_a_thread_that_fails_to_start_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's threads first copy properties, and fail when the session has ended.

    Fails (hangs) when only the work itself reports that it is done.
    """
    monkeypatch.setattr("pyspark.InheritableThread", ThreadOfAnEndedSession)
    pool = TableWorkers(SPARK, 1)
    pool.give("orders", lambda: None)
    with pytest.raises(SessionLostError, match=r"orders could begin \(ConnectionRefusedError"):
        while not pool.wait(0.01):
            pass
    pool.join()


def test_an_error_of_the_work_is_no_lost_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails when every error that ends a thread counts as a lost session."""
    hooked, lost = list[Any](), list[Any]()
    monkeypatch.setattr(threading, "excepthook", lambda args: hooked.append(args.exc_value))

    def fail() -> None:
        raise ValueError("no")

    thread = spark_thread(SPARK, fail, "wan-receiver orders", lost.append)
    thread.start()
    thread.join(LONG)
    assert ([str(error) for error in hooked], lost) == (["no"], [])
