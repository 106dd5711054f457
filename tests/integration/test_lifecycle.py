"""Starting and stopping: nothing hangs, nothing is left behind, nothing is lost."""

from __future__ import annotations

import gc
import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sites import NEWARK, SEATTLE, Sites
from waiting import children, connections, wait_until, wan_threads, workers

import spark_wan.receiver.table as receiver_table
import spark_wan.sender.outbound_stream as sender_stream
from spark_wan import Receiver, Sender
from spark_wan.log.notes import sender_record
from spark_wan.runtime.handle import JobHandle
from spark_wan.steps import reached

TABLES = ("orders", "readings")
PACE = 0.2
"""Seconds between commits of the writers: few commits keep the tests short."""


def start(spark: Any, sites: Sites) -> tuple[JobHandle[Any], JobHandle[Any]]:
    return (
        Sender(spark, sites.topology, NEWARK, senders=["east"]).start(),
        Receiver(spark, sites.topology, SEATTLE, senders=["east"], interval=0.2).start(),
    )


def acked_through(sites: Sites, epoch: int) -> Callable[[], bool]:
    """Return a check that every table's log has ``epoch`` and seattle has acked its newest
    epoch.
    """
    return lambda: all(
        sites.numbers(table)[-1:] >= [epoch] and sites.acked(table) == sites.numbers(table)[-1]
        for table in TABLES
    )


@contextmanager
def writing(sites: Sites, start: int) -> Iterator[Callable[[], int]]:
    """Commit to both tables in turn, in a thread; yields a count of the commits."""
    ended, made = threading.Event(), itertools.count(1)
    counted = [0]

    def write() -> None:
        for number in made:
            if ended.is_set():
                return
            key = start + number
            sites.append("orders", [{"id": key, "item": "new", "amount": float(number)}])
            sites.append("readings", [{"sensor": "attic", "value": float(number % 3)}])
            if number % 3 == 0:
                sites.upsert("orders", [{"id": key - 1, "item": "changed", "amount": 0.0}])
            counted[0] = number
            ended.wait(PACE)

    thread = threading.Thread(target=write, name="writer")
    thread.start()
    try:
        yield lambda: counted[0]
    finally:
        ended.set()
        thread.join()


def is_py4j(thread: threading.Thread) -> bool:
    """Whether a thread serves a connection of py4j, which keeps those of ended callbacks for
    reuse.
    """
    served = getattr(getattr(thread, "_target", None), "__self__", None)
    return type(served).__module__.startswith("py4j")


def thread_names() -> set[str]:
    return {thread.name for thread in threading.enumerate() if not is_py4j(thread)}


def test_b14_b15_b17_nothing_is_left_behind_after_stop(spark: Any, wan: Sites) -> None:
    """No thread, no process, no connection. Before a sender has ever run, nothing is sent, and a
    receiver finds nothing.

    Fails when `JobHandle.stop` does not wait for the threads.
    """
    wan.change(10)
    assert wan.receive(spark) == {}
    assert wan.numbers("orders") == []
    wan.send(spark)
    wan.receive(spark)  # starts what a session starts once and keeps
    gc.collect()
    processes, connected = set(workers()), connections(spark)
    threads = thread_names()

    handles = start(spark, wan)
    wan.change(30)
    wait_until(
        lambda: acked_through(wan, 2)() and wan.are_equal(), "all is applied and acked", *handles
    )
    assert wan_threads()
    for handle in handles:
        handle.stop()
        assert not handle.is_active
        assert handle.exception() is None
    channel = wan.channel()
    record = sender_record(channel, wan.log("orders").stream)
    channel.close()
    assert record is not None and record.stopped is not None

    assert not wan_threads()
    wait_until(lambda: thread_names() <= threads, "all threads end")
    wait_until(lambda: not set(workers()) - processes, f"all processes end {children()}")
    gc.collect()
    wait_until(
        lambda: connections(spark) <= connected,
        f"connections are closed {connections(spark) - connected}",
    )
    wan.assert_equal()


@pytest.mark.parametrize(("side", "step"), [("sender", "publish.2"), ("receiver", "apply.3")])
def test_b27_b38_b39_stop_never_hangs_while_writers_run_and_a_restart_delivers_everything(
    spark: Any, wan: Sites, monkeypatch: pytest.MonkeyPatch, side: str, step: str
) -> None:
    """Stopped right after a step, and started again, while commits go on; commits made in between
    arrive too.

    Each guard of a stop has a unit test: ``runtime/test_handle.py``, ``test_steps.py``.
    """
    wan.change(10)
    at_step = threading.Event()

    def reached_here(name: str) -> None:
        reached(name)
        if name.startswith(step):
            at_step.set()

    with writing(wan, 100) as made:
        if side == "sender":
            monkeypatch.setattr(sender_stream, "reached", reached_here)
        else:
            wan.send(spark)
            monkeypatch.setattr(receiver_table, "reached", reached_here)
        handles = start(spark, wan)
        try:
            wait_until(at_step.is_set, f"the step {step}", *handles)
        finally:
            for handle in handles:
                handle.stop()
        assert not any(handle.is_active for handle in handles)
        assert [handle.exception() for handle in handles] == [None, None]
        monkeypatch.undo()
        wait_until(lambda: not wan_threads(), "our threads end")
        before = made()
        wait_until(lambda: made() > before, "more commits")
        wan.send(spark)
    wan.replicate(spark)
    wan.assert_equal()
    assert {status.duplicates for status in wan.receive(spark).values()} <= {0}
