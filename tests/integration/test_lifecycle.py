"""Starting and stopping: nothing hangs, nothing is left behind, nothing is lost."""

from __future__ import annotations

import gc
import itertools
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sites import NEWARK, SEATTLE, Sites
from waiting import children, connections, wait_until, wan_threads, workers

import spark_wan.receiver.stream as receiver_stream
import spark_wan.receiver.table as receiver_table
import spark_wan.sender.stream as sender_stream
from spark_wan import Receiver, Sender, register
from spark_wan.errors import WanError
from spark_wan.runtime.handle import JobHandle
from spark_wan.sender.acks import AckManager
from spark_wan.sender.checkpoints import NoCheckpoints
from spark_wan.steps import reached, run
from spark_wan.topology.ack_policy import AckPolicy

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


def test_b15_nothing_is_left_behind_after_stop(spark: Any, wan: Sites) -> None:
    """No thread, no process, no connection.

    Fails when `JobHandle.stop` does not wait for the threads.
    """
    wan.change(10)
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

    assert not wan_threads()
    wait_until(lambda: thread_names() <= threads, "all threads end")
    wait_until(lambda: not set(workers()) - processes, f"all processes end {children()}")
    gc.collect()
    wait_until(
        lambda: connections(spark) <= connected,
        f"connections are closed {connections(spark) - connected}",
    )
    wan.assert_equal()


@pytest.mark.parametrize(
    ("side", "step"),
    [
        ("sender", "publish.2"),
        ("sender", "publish.4"),
        ("sender", "acks.1"),
        ("receiver", "apply.1"),
        ("receiver", "apply.3"),
        ("receiver", "apply.6"),
    ],
)
def test_b27_stop_never_hangs_while_writers_run(
    spark: Any, wan: Sites, monkeypatch: pytest.MonkeyPatch, side: str, step: str
) -> None:
    """Stopped right after a step, while commits go on; then started again, and everything arrives
    (b39).

    Fails without the stop event in `JobHandle.stop`.
    """
    wan.change(10)
    at_step = threading.Event()

    def reached_here(name: str) -> None:
        reached(name)
        if name.startswith(step):
            at_step.set()

    with writing(wan, 100):
        if side == "sender":
            monkeypatch.setattr(sender_stream, "reached", reached_here)
            monkeypatch.setattr(
                sender_stream, "run", lambda steps: run_through(steps, reached_here)
            )
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
    monkeypatch.undo()
    wait_until(lambda: not wan_threads(), "our threads end")
    wan.replicate(spark)
    wan.assert_equal()


def run_through(steps: Any, reached_here: Callable[[str], None]) -> Any:
    while True:
        try:
            reached_here(next(steps))
        except StopIteration as end:
            return end.value


def test_b38_b39_restarts_during_writes_deliver_everything(spark: Any, wan: Sites) -> None:
    """Sender and receiver are stopped and started in turn while commits go on; commits made while
    both are stopped arrive too.

    Fails when a range follows the newest commit instead of the log, or the plan starts from an
    empty progress instead of the ledger's.
    """
    wan.change(10)
    with writing(wan, 100) as made:
        for turn in (1, 2, 3):
            handles = start(spark, wan)
            wait_until(
                lambda turn=turn: min(map(wan.acked, TABLES)) >= turn,
                "something is acked",
                *handles,
            )
            for handle in handles[::-1] if turn % 2 else handles:
                handle.stop()
                assert handle.exception() is None
            before = made()
            wait_until(lambda before=before: made() > before + 1, "more commits")
    assert wan.rows("orders") != wan.rows("orders", NEWARK)
    wan.replicate(spark)
    wan.assert_equal()
    assert {status.duplicates for status in wan.receive(spark).values()} <= {0}


def test_b33_a_dropped_target_table_is_reported_and_the_others_go_on(
    spark: Any, wan: Sites, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its stream is held: the cause is in the receiver's status, in the ack, and in the sender's
    status. Once the table is restored, the stream continues by itself.

    Fails without the check in `Ledger.catch_up` for a table that the ledger knows: the receiver
    creates the table again, without its older rows.
    """
    monkeypatch.setattr(receiver_stream, "RETRY_INTERVAL", 0.5)
    wan.change(10)
    handles = start(spark, wan)
    sender, receiver = handles
    try:
        wait_until(acked_through(wan, 1), "the first epochs are acked", *handles)
        shutil.move(wan.path("orders", SEATTLE), tmp_path / "away")
        wan.change(30)
        wait_until(
            lambda: any(status.held for status in receiver.status()), "orders is held", *handles
        )
        wait_until(
            lambda: any(status.remote_holds for status in sender.status()),
            "the sender has the cause",
            *handles,
        )
        wait_until(
            lambda: wan.acked("readings") == wan.numbers("readings")[-1],
            "readings continues",
            *handles,
        )

        [held] = [status for status in receiver.status() if status.held]
        assert held.table == "orders"
        assert held.held and "is missing at site seattle" in held.held and "restore it" in held.held
        ack = wan.ack("orders")
        assert ack and ack.held == ack.applied + 1 and ack.cause == held.held
        [sent] = [status for status in sender.status() if status.remote_holds]
        assert (sent.table, sent.held, sent.remote_holds) == ("orders", None, {SEATTLE: held.held})
        assert not wan.path("orders", SEATTLE).exists()

        shutil.move(tmp_path / "away", wan.path("orders", SEATTLE))
        wait_until(
            lambda: not any(status.held for status in receiver.status()),
            "orders continues",
            *handles,
        )
        wait_until(
            lambda: acked_through(wan, 2)() and wan.are_equal(),
            "all is applied and acked",
            *handles,
        )
        wait_until(
            lambda: not any(status.remote_holds for status in sender.status()),
            "the sender sees the release",
            *handles,
        )
    finally:
        for handle in handles:
            handle.stop()
    wan.assert_equal()


def test_b33_a_recreated_target_table_is_held_with_a_remedy(spark: Any, wan: Sites) -> None:
    """It lacks the older rows: nothing is applied to it until the user decides.

    Fails without the comparison of table IDs in `Ledger._check_identity`: only the new rows are
    applied.
    """
    wan.change(10)
    wan.replicate(spark)
    shutil.rmtree(wan.path("orders", SEATTLE))
    wan.change(30)
    wan.send(spark)
    for _ in range(2):
        statuses = wan.receive(spark)
        assert statuses["readings"].held is None
        assert "is missing at site seattle" in str(statuses["orders"].held)

    wan.append("orders", [], site=SEATTLE)
    statuses = wan.receive(spark)
    assert "It was dropped and recreated" in str(statuses["orders"].held)
    assert "full copy" in str(statuses["orders"].held)
    assert wan.table("orders", SEATTLE).num_rows == 0
    ack = wan.ack("orders")
    assert ack and (ack.applied, ack.held, ack.cause) == (1, 2, statuses["orders"].held)
    wan.assert_equal("readings")


def test_b40_redelivered_batches_carry_the_possible_duplicate_mark(
    spark: Any, wan: Sites, tmp_path: Path
) -> None:
    """Re-announced epochs are redelivered with the mark; first deliveries have none.

    Fails without the mark.
    """
    wan.change(10)
    wan.replicate(spark)
    register(spark)

    def read() -> list[tuple[int, bool]]:
        batches = (
            spark.readStream.format("wan")
            .options(**wan.channel_options())
            .option("streams", wan.log("orders").stream)
        )
        rows = batches.load().select("epoch", "possible_duplicate")
        writer = rows.writeStream.format("delta").option(
            "checkpointLocation", str(tmp_path / "checkpoint")
        )
        writer.trigger(availableNow=True).start(str(tmp_path / "batches")).awaitTermination()
        batches_read = (
            spark.read.format("delta").load(str(tmp_path / "batches")).distinct().collect()
        )
        return sorted((row["epoch"], row["possible_duplicate"]) for row in batches_read)

    assert read() == [(1, False)]
    wan.change(30)
    wan.send(spark)
    assert read() == [(1, False), (2, False)]
    times = iter(range(0, 10**9, 1_000))
    manager = AckManager(
        wan.log("orders"), NoCheckpoints(), AckPolicy.ALL, 1, lambda: next(times), [SEATTLE]
    )
    for _ in range(2):
        run(manager.round())  # seattle has acked epoch 1; 2 is overdue
    wan.change(50)
    wan.send(spark)
    assert read() == [(1, False), (2, False), (2, True), (3, False)]
    wan.receive(spark)
    wan.assert_equal()


def test_b17_b14_a_sender_that_was_not_started_ships_nothing_and_a_receiver_may_be_first(
    spark: Any, wan: Sites
) -> None:
    wan.change(10)
    assert wan.receive(spark) == {}
    assert wan.numbers("orders") == []
    wan.replicate(spark)
    wan.assert_equal()


def test_a_held_stream_fails_an_available_now_run(spark: Any, wan: Sites) -> None:
    """``await_termination`` raises the error once the other streams are done."""
    wan.append("readings", [{"sensor": "attic", "value": 1.0}])
    handle = Sender(spark, wan.topology, NEWARK, senders=["east"]).start(available_now=True)
    with pytest.raises(WanError, match="orders: there is no Delta table at"):
        handle.await_termination()
    assert wan.numbers("readings") == [1]
    assert not handle.is_active
