"""What a receiver's handle says of its queries, which are none of Spark's here."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from spark_wan.errors import SessionLostError, StoppedError
from spark_wan.receiver.handle import ReceiverHandle, SupervisedQuery
from spark_wan.receiver.stream import TableStatus


class Query:
    """A streaming query that ends with ``error`` when it is stopped, or has ended with it."""

    def __init__(self, error: Exception | None, active: bool = True) -> None:
        self.error, self.isActive = error, active
        self.waited: list[float | None] = []

    def stop(self) -> None:
        self.isActive = False

    def exception(self) -> Exception | None:
        return None if self.isActive else self.error

    def awaitTermination(self, timeout: float | None = None) -> bool:
        self.waited.append(timeout)
        if self.isActive:
            return False
        if self.error is not None:
            raise self.error
        return True


def handle(*queries: Any) -> ReceiverHandle:
    return ReceiverHandle(
        [SupervisedQuery(Channel(), query) for query in queries],  # type: ignore[arg-type]
        threading.Event(),
        classic=True,
        restart=never,
        available_now=True,
    )


def never(_: Any) -> Any:
    raise AssertionError("a query started again")


GIVEN_UP = RuntimeError(
    f"Traceback …\nspark_wan.errors.{StoppedError.__name__}: the receiver was stopped"
)


def test_a_micro_batch_that_gave_up_for_a_stop_is_no_error() -> None:
    """Fails when the query's own error is told: it gives up before Spark's stop has come."""
    stopped = handle(Query(GIVEN_UP))
    stopped.stop()
    assert (stopped.is_active, stopped.exception(), stopped.await_termination()) == (
        False,
        None,
        True,
    )


def test_a_query_that_had_ended_before_the_stop_keeps_its_error() -> None:
    """Somebody cancelled its job. Fails when any stop makes it a good end."""
    ended = handle(Query(GIVEN_UP, active=False))
    ended.stop()
    assert ended.exception() is GIVEN_UP
    with pytest.raises(RuntimeError, match="was stopped"):
        ended.await_termination()


def test_other_errors_are_told_after_a_stop_too() -> None:
    error = ValueError("something else")
    stopped = handle(Query(error))
    stopped.stop()
    assert stopped.exception() is error


def test_waiting_ends_after_its_time_however_short() -> None:
    """Fails when the time is rounded: Spark refuses to wait for 0 seconds."""
    assert not handle(Query(None)).await_termination(0.01)
    ended = Query(None, active=False)
    assert handle(ended).await_termination(0.0)
    assert all(seconds is not None and seconds > 0 for seconds in ended.waited)


class Channel:
    """What a handle knows of an inbound channel: one stream."""

    def __init__(self, failure: BaseException | None = None) -> None:
        self.url, self.failure, self.idle, self.forgot = "/channel", failure, threading.Event(), 0
        self.idle.set()

    def statuses(self) -> list[TableStatus]:
        return [TableStatus("newark.east.orders", "orders", applied=3)]

    def forget(self) -> None:
        self.forgot += 1


class CheckpointConflict(Exception):
    def getCondition(self) -> str:
        return "CONCURRENT_STREAM_LOG_UPDATE"


CANCELLED = Query(RuntimeError("FOREACH_BATCH_USER_FUNCTION_ERROR"), active=False)


def supervised(channel: Any, query: Any, *later: Any, **more: Any) -> ReceiverHandle:
    following: Iterator[Any] = iter(later)
    return ReceiverHandle(
        [SupervisedQuery(channel, query)],
        threading.Event(),
        classic=True,
        restart=lambda _: next(following),
        **more,
    )


def due(receiver: ReceiverHandle) -> None:
    """Start again what has ended, as if its time had come."""
    if receiver.is_active:
        for supervised in receiver._supervised:
            if supervised.restart_at is not None:
                receiver._restart_now(supervised)


@pytest.mark.parametrize(
    ("query", "failure", "told"),
    [
        (
            CANCELLED,
            StoppedError("its Spark job was cancelled"),
            "its Spark job was cancelled from outside",
        ),
        (
            Query(GIVEN_UP, active=False),
            None,
            "its Spark job was cancelled from outside",
        ),  # said by a Connect server
        (
            Query(CheckpointConflict("x"), active=False),
            None,
            "another receiver used its checkpoint",
        ),
    ],
)
def test_f50_a_query_that_ended_by_no_fault_of_its_own_starts_again(
    query: Query, failure: BaseException | None, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A cancelled job; a receiver that was frozen while another one took over. Fails when the end of a query is the receiver's."""
    channel, second = Channel(failure), Query(None)
    receiver = supervised(channel, query, second)
    assert receiver.is_active and receiver.exception() is None
    [status] = receiver.status()
    assert status.held is not None and told in status.held and "Will restart in 5 s." in status.held
    assert status.applied == 3
    assert told in caplog.text
    due(receiver)
    assert receiver.queries == [second] and receiver.is_active
    assert [status.held for status in receiver.status()] == [None]
    assert channel.forgot == 1
    receiver.stop()
    assert (receiver.is_active, receiver.exception()) == (False, None)


def test_two_receivers_on_one_checkpoint_do_not_fight_in_a_tight_loop() -> None:
    """Each try ends at once. Fails when the wait does not grow, or without bound."""
    queries = [Query(CheckpointConflict("x"), active=False) for _ in range(9)]
    receiver = supervised(Channel(), *queries)
    waits = []
    for _ in range(8):
        assert receiver.is_active
        waits.append(receiver._supervised[0].wait)
        due(receiver)
    assert waits == [5, 10, 20, 40, 80, 160, 300, 300]


def no_python() -> Query:
    cause = RuntimeError("Python worker failed to connect back.")
    error = RuntimeError("[STREAM_FAILED] Query [id = 1] terminated with exception")
    error.__cause__ = cause
    return Query(error, active=False)


@pytest.mark.parametrize("once", [False, True])
def test_a_query_whose_python_did_not_come_up_in_time_starts_again(once: bool) -> None:
    """A busy machine. Fails when the query's end is the receiver's."""
    second = Query(None, active=not once)
    receiver = supervised(Channel(), no_python(), second, available_now=once)
    assert receiver.is_active and receiver.exception() is None
    assert "did not start within the ten seconds" in str(receiver.status()[0].held)
    due(receiver)
    assert receiver.is_active is not once and receiver.exception() is None


@pytest.mark.parametrize("once", [False, True])
def test_a_python_that_never_comes_up_ends_the_receiver(once: bool) -> None:
    queries = [no_python() for _ in range(5)]
    receiver = supervised(Channel(), *queries, available_now=once)
    for _ in range(4):
        assert receiver.is_active
        due(receiver)
    assert receiver.queries == queries[-1:] and not receiver.is_active
    assert receiver.exception() is queries[-1].error


def test_a_run_that_is_to_end_and_was_stopped_from_outside_ends_with_an_error() -> None:
    """Its micro-batch gave up. Fails when a query that ends without an error has done its work."""
    receiver = supervised(
        Channel(StoppedError("the query was stopped")),
        Query(None, active=False),
        available_now=True,
    )
    assert not receiver.is_active
    with pytest.raises(StoppedError, match="was stopped from outside"):
        receiver.await_termination()


@pytest.mark.parametrize("query", [CANCELLED, Query(CheckpointConflict("x"), active=False)])
def test_a_run_that_is_to_end_does_not_start_again_for_other_causes(query: Query) -> None:
    receiver = supervised(
        Channel(StoppedError("its Spark job was cancelled")), query, available_now=True
    )
    assert not receiver.is_active and receiver.exception() is query.error


def test_a_query_that_does_not_start_again_is_tried_later() -> None:
    def refuse(_: Any) -> Any:
        raise ValueError("the state folder is not there")

    receiver = supervised(Channel(), Query(CheckpointConflict("x"), active=False))
    receiver._restart = refuse
    due(receiver)
    assert receiver.is_active and receiver.exception() is None
    assert "did not restart: the state folder is not there" in str(receiver.status()[0].held)


def test_a_stop_ends_the_wait_for_another_start() -> None:
    receiver = supervised(Channel(), Query(CheckpointConflict("x"), active=False))
    assert receiver.is_active
    receiver.stop()
    assert not receiver.is_active


def test_an_unknown_error_of_one_query_is_seen_while_another_is_at_work() -> None:
    error = ValueError("the source's worker was killed")
    receiver = handle(Query(None), Query(error, active=False))
    assert receiver.is_active and receiver.exception() is error
    receiver._available_now = False
    with pytest.raises(ValueError, match="worker was killed"):
        receiver.await_termination()


class Gone(Query):
    """A query of a JVM that has ended."""

    def __init__(self) -> None:
        super().__init__(None)

    @property
    def isActive(self) -> bool:
        raise ConnectionRefusedError(111, "Connection refused")

    @isActive.setter
    def isActive(self, value: bool) -> None: ...

    def stop(self) -> None:
        raise ConnectionRefusedError(111, "Connection refused")


def test_f50_a_session_that_has_ended_ends_the_receiver() -> None:
    """Fails when a query that does not answer raises from `is_active`, or counts as active."""
    lost = SessionLostError("the Spark session has ended")
    receiver = supervised(Channel(), Gone(), lost=lambda: lost)
    assert not receiver.is_active
    assert receiver.exception() is lost
    with pytest.raises(SessionLostError):
        receiver.await_termination()
    receiver.stop()
    assert receiver.exception() is lost


def test_a_session_that_ends_with_a_stop_is_no_error() -> None:
    """SIGTERM to the process group."""
    lost: list[SessionLostError] = []
    query = Query(None)
    receiver = supervised(Channel(), query, lost=lambda: lost[0] if lost else None)
    lost.append(SessionLostError("the Spark session has ended"))
    receiver._stop.set()
    query.error, query.isActive = ConnectionRefusedError(111, "Connection refused"), False
    receiver.stop()
    assert (receiver.is_active, receiver.exception()) == (False, None)


def test_f50_an_idle_receiver_sees_that_its_session_has_ended() -> None:
    """Its query goes on when only the context was stopped. Fails when nothing but a query's end is seen."""
    lost = SessionLostError("the Spark session has ended")
    query = Query(None)
    receiver = supervised(Channel(), query, lost=lambda: lost)
    receiver.watch()
    assert query.isActive
    assert not receiver.is_active and receiver.exception() is lost
    receiver.stop()
    assert receiver.exception() is lost and not query.isActive
