"""How a receiver's handle supervises its queries, which are fakes here."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from receivers import ChannelOfOneStream, Query, supervised

from spark_wan.errors import SessionLostError, StoppedError
from spark_wan.receiver.handle import ReceiverHandle, SupervisedQuery


def handle(*queries: Any) -> ReceiverHandle:
    return ReceiverHandle(
        [SupervisedQuery(ChannelOfOneStream(), query) for query in queries],  # type: ignore[arg-type]
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
    """Fails when the query's error is reported: it gave up before Spark's own stop."""
    stopped = handle(Query(GIVEN_UP))
    stopped.stop()
    assert (stopped.is_active, stopped.exception(), stopped.await_termination()) == (
        False,
        None,
        True,
    )


def test_a_query_that_ended_before_the_stop_keeps_its_error() -> None:
    """Its job was cancelled. Fails when any later stop hides the error."""
    ended = handle(Query(GIVEN_UP, active=False))
    ended.stop()
    assert ended.exception() is GIVEN_UP
    with pytest.raises(RuntimeError, match="was stopped"):
        ended.await_termination()


def test_other_errors_are_reported_after_a_stop_too() -> None:
    error = ValueError("something else")
    stopped = handle(Query(error))
    stopped.stop()
    assert stopped.exception() is error


def test_a_wait_of_any_length_ends() -> None:
    """Fails when the time is rounded: Spark refuses to wait for 0 seconds."""
    assert not handle(Query(None)).await_termination(0.01)
    ended = Query(None, active=False)
    assert handle(ended).await_termination(0.0)
    assert all(seconds is not None and seconds > 0 for seconds in ended.waited)


class CheckpointConflict(Exception):
    def getCondition(self) -> str:
        return "CONCURRENT_STREAM_LOG_UPDATE"


CANCELLED = Query(RuntimeError("FOREACH_BATCH_USER_FUNCTION_ERROR"), active=False)


def due(receiver: ReceiverHandle) -> None:
    """Restart what has ended, as if its time had come."""
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
def test_f50_a_query_that_ended_by_no_fault_of_its_own_restarts(
    query: Query, failure: BaseException | None, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A cancelled job; a receiver that was frozen while another one took over.

    Fails when the end of a query ends the receiver.
    """
    channel, second = ChannelOfOneStream(failure), Query(None)
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
    """Each restart fails at once. Fails when the wait does not grow, or grows without bound."""
    queries = [Query(CheckpointConflict("x"), active=False) for _ in range(9)]
    receiver = supervised(ChannelOfOneStream(), *queries)
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
def test_a_query_whose_python_worker_did_not_start_in_time_restarts(once: bool) -> None:
    """On a busy machine. Fails when the end of a query ends the receiver."""
    second = Query(None, active=not once)
    receiver = supervised(ChannelOfOneStream(), no_python(), second, available_now=once)
    assert receiver.is_active and receiver.exception() is None
    assert "did not start within the ten seconds" in str(receiver.status()[0].held)
    due(receiver)
    assert receiver.is_active is not once and receiver.exception() is None


@pytest.mark.parametrize("once", [False, True])
def test_a_python_worker_that_never_starts_ends_the_receiver(once: bool) -> None:
    queries = [no_python() for _ in range(5)]
    receiver = supervised(ChannelOfOneStream(), *queries, available_now=once)
    for _ in range(4):
        assert receiver.is_active
        due(receiver)
    assert receiver.queries == queries[-1:] and not receiver.is_active
    assert receiver.exception() is queries[-1].error


def test_available_now_stopped_from_outside_ends_with_an_error() -> None:
    """Its micro-batch gave up. Fails when a query without an error always counts as done."""
    receiver = supervised(
        ChannelOfOneStream(StoppedError("the query was stopped")),
        Query(None, active=False),
        available_now=True,
    )
    assert not receiver.is_active
    with pytest.raises(StoppedError, match="was stopped from outside"):
        receiver.await_termination()


@pytest.mark.parametrize("query", [CANCELLED, Query(CheckpointConflict("x"), active=False)])
def test_available_now_does_not_restart_for_other_causes(query: Query) -> None:
    receiver = supervised(
        ChannelOfOneStream(StoppedError("its Spark job was cancelled")), query, available_now=True
    )
    assert not receiver.is_active and receiver.exception() is query.error


def test_a_query_that_fails_to_restart_is_retried_later() -> None:
    def refuse(_: Any) -> Any:
        raise ValueError("the state folder is not there")

    receiver = supervised(ChannelOfOneStream(), Query(CheckpointConflict("x"), active=False))
    receiver._restart = refuse
    due(receiver)
    assert receiver.is_active and receiver.exception() is None
    assert "did not restart: the state folder is not there" in str(receiver.status()[0].held)


def test_a_stop_ends_the_wait_for_a_restart() -> None:
    receiver = supervised(ChannelOfOneStream(), Query(CheckpointConflict("x"), active=False))
    assert receiver.is_active
    receiver.stop()
    assert not receiver.is_active


def test_an_unknown_error_of_one_query_is_seen_while_another_runs() -> None:
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
    receiver = supervised(ChannelOfOneStream(), Gone(), lost=lambda: lost)
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
    receiver = supervised(ChannelOfOneStream(), query, lost=lambda: lost[0] if lost else None)
    lost.append(SessionLostError("the Spark session has ended"))
    receiver._stop.set()
    query.error, query.isActive = ConnectionRefusedError(111, "Connection refused"), False
    receiver.stop()
    assert (receiver.is_active, receiver.exception()) == (False, None)


def test_f50_an_idle_receiver_sees_that_its_session_has_ended() -> None:
    """Its query goes on when only the context was stopped. Fails when the handle sees only ends."""
    lost = SessionLostError("the Spark session has ended")
    query = Query(None)
    receiver = supervised(ChannelOfOneStream(), query, lost=lambda: lost)
    receiver.watch()
    assert query.isActive
    assert not receiver.is_active and receiver.exception() is lost
    receiver.stop()
    assert receiver.exception() is lost and not query.isActive
