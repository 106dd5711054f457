"""What a receiver's handle says of its queries, which are none of Spark's here."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from spark_wan.errors import StoppedError
from spark_wan.receiver.job import ReceiverHandle


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
    return ReceiverHandle(queries, [], threading.Event(), classic=True)


GIVEN_UP = RuntimeError(f"{StoppedError.__name__}: the receiver was stopped")


def test_a_micro_batch_that_gave_up_for_a_stop_is_no_error() -> None:
    """Fails when the query's own error is told: it gives up before Spark's stop has come."""
    stopped = handle(Query(GIVEN_UP))
    stopped.stop()
    assert (stopped.is_active, stopped.exception(), stopped.await_termination()) == (False, None, True)


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
    query = Query(None)
    assert not handle(query).await_termination(0.01)
    assert query.waited[0] is not None and 0 < query.waited[0] <= 0.01
