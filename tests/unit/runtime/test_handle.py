"""The handle of a running job, with a Connect session that is a fake."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from fakes import ConnectSession
from waiting import LONG, until

from spark_wan.channels.registry import open_channel
from spark_wan.errors import SessionLostError, StoppedError, StreamsHeldError
from spark_wan.runtime import handle as module
from spark_wan.runtime.handle import JobHandle
from spark_wan.runtime.life import Life
from spark_wan.runtime.scheduler import Activity, Found, Next, Turn
from spark_wan.state.objects import StateObjects
from spark_wan.wire.sign_of_life import SignOfLife


class Does(Activity):
    def __init__(self, look: Callable[[Any], Turn], name: str = "orders") -> None:
        self.name, self.look = name, look  # type: ignore[method-assign]

    def look(self, spark: Any) -> Turn: ...


def job(session: ConnectSession, held: str | None = None, **settings: Any) -> JobHandle[Any]:
    status = SimpleNamespace(stream="orders", held=held, epochs=2, events=30)
    spark: Any = session
    return JobHandle(spark, "sender", 2, lambda: [status], **settings)


def test_a_stop_cancels_running_spark_jobs_and_waits_for_all_threads() -> None:
    """Fails when a stop waits for a job that takes hours, or leaves threads behind."""
    session, at_work = ConnectSession(), threading.Event()

    def work(spark: Any) -> Turn:
        at_work.set()
        assert session.interrupted.wait(LONG)
        handle.check_stopped()
        return None

    handle = job(session)
    handle.begin([Does(lambda spark: Found(work))])
    assert at_work.wait(LONG)
    assert handle.is_active and not handle.is_stopping
    handle.stop()
    assert (handle.is_active, handle.exception(), handle.scheduler.threads) == (False, None, 0)


def test_a_stop_leaves_time_to_running_work() -> None:
    """Fails when it is cancelled at once: the next start would do it again."""
    session, at_work, go = ConnectSession(), threading.Event(), threading.Event()

    def work(spark: Any) -> Turn:
        at_work.set()
        assert go.wait(LONG)
        return None

    handle = job(session, grace=LONG)
    handle.begin([Does(lambda spark: Found(work))])
    assert at_work.wait(LONG)
    stopping = threading.Thread(target=handle.stop)
    stopping.start()
    until(lambda: handle.is_stopping)
    go.set()
    stopping.join(LONG)
    assert not session.interrupted.is_set() and not handle.is_active


def test_the_last_thing_is_done_after_a_stop_and_cancelled_if_it_takes_too_long() -> None:
    """Fails when it runs beside work that is under way, or when a stop waits for it for ever."""
    session, at_work, done = ConnectSession(), threading.Event(), list[str]()

    def work(spark: Any) -> Turn:
        at_work.set()
        assert session.interrupted.wait(LONG)
        session.interrupted.clear()
        done.append("work")
        return None

    def last(spark: Any) -> None:
        assert session.interrupted.wait(LONG)
        done.append("last")

    handle = job(session)
    handle.begin([Does(lambda spark: Found(work))], last)
    assert at_work.wait(LONG)
    handle.stop()
    assert done == ["work", "last"]


def test_a_job_that_is_stopped_twice_does_the_last_thing_once() -> None:
    """A notebook stops a job that its user has stopped. Fails when the second stop writes again."""
    handle, done = job(ConnectSession()), list[str]()
    handle.begin([Does(lambda spark: Next(3_600))], lambda spark: done.append("last"))
    handle.stop()
    handle.stop()
    assert done == ["last"]


def test_a_job_whose_follower_does_not_start_does_the_last_thing_once_more() -> None:
    """The first time it says nothing of its end. Fails when its status then shows it as running."""
    handle, done = job(ConnectSession()), list[bool]()
    handle.begin([Does(lambda spark: Next(3_600))], lambda spark: done.append(handle.gives_way))
    handle.stop(gives_way=True)
    handle.stop()
    handle.stop()
    assert done == [True, False]


def test_a_job_gives_a_sign_of_life_until_it_has_ended() -> None:
    """Fails when a standby begins while the job still works, or waits for one that was stopped."""
    state = StateObjects(f"memory://{uuid.uuid4().hex}", "the signs of life")
    life = Life(state, "sender", "newark", 60)
    handle, at_the_end = job(ConnectSession(), life=life), list[bool]()

    def is_stopped() -> bool:
        entry = state.entry(life.name, 1)
        sign = None if entry is None else SignOfLife.of(entry[1])
        assert sign is not None
        return sign.stopped

    handle.begin([Does(lambda spark: Next(3_600))], lambda spark: at_the_end.append(is_stopped()))
    until(lambda: state.numbers(life.name))
    handle.stop(gives_way=True)
    assert not is_stopped()
    handle.stop()
    assert at_the_end == [False, False] and is_stopped()


def test_f50_the_last_thing_needs_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails when a stop raises because the session has ended before it: Connect's threads then
    cannot start."""
    session, started = ConnectSession(), list[str]()
    handle = job(session)
    monkeypatch.setattr(module, "SESSION_INTERVAL", 0.01)
    handle.begin([Does(lambda spark: Next(3_600))], lambda spark: None)
    session.ended = True
    until(lambda: not handle.is_active)
    monkeypatch.setattr(handle.sessions, "thread", lambda name, _: started.append(name))
    handle.stop()
    assert started == [] and isinstance(handle.exception(), SessionLostError)


def test_an_error_ends_its_stream_alone_and_is_reported() -> None:
    error = KeyError("no")

    def fail(spark: Any) -> Turn:
        raise error

    handle = job(ConnectSession())
    handle.begin([Does(fail, "bad"), Does(lambda spark: Next(3_600))])
    with pytest.raises(KeyError):
        handle.await_termination()
    assert handle.is_active and handle.exception() is error
    handle.stop()
    assert handle.exception() is error


def test_with_available_now_all_others_end_before_an_error_is_raised() -> None:
    """Fails when the first error ends the wait: slower tables would never be sent by a job that
    runs now and then."""
    go, done = threading.Event(), threading.Event()

    def fail(spark: Any) -> Turn:
        go.set()
        raise KeyError("no")

    def slow(spark: Any) -> Turn:
        assert go.wait(LONG)
        until(lambda: handle.exception() is not None)
        done.set()
        return None

    handle = job(ConnectSession(), available_now=True)
    handle.begin([Does(fail, "bad"), Does(slow)])
    with pytest.raises(KeyError):
        handle.await_termination()
    assert done.is_set() and not handle.is_active


@pytest.mark.parametrize("available_now", [True, False])
def test_a_run_with_available_now_that_leaves_a_hold_raises_it(available_now: bool) -> None:
    handle = job(ConnectSession(), "orders: there is no table", available_now=available_now)
    handle.begin([Does(lambda spark: None)])
    if available_now:
        with pytest.raises(StreamsHeldError, match="orders: there is no table"):
            handle.await_termination()
    else:
        assert not handle.await_termination(0.05)  # it goes on: the session is watched
        handle.stop()


def test_a_wait_ends_after_its_timeout() -> None:
    handle = job(ConnectSession())
    handle.begin([Does(lambda spark: Next(3_600))])
    assert not handle.await_termination(0.01)
    assert not handle.await_termination(0.0)
    handle.stop()
    assert handle.await_termination(0.0)


def test_b15_channels_are_closed_when_the_last_job_of_the_process_has_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also where another job ended by itself, and was never stopped.

    Fails without `close_channels` in `JobHandle.stop`: threads and connections stay.
    """
    channel = open_channel(f"memory://{uuid.uuid4().hex}")
    closed: list[str] = []
    monkeypatch.setattr(channel, "close", lambda: closed.append(channel.url))
    jobs = [job(ConnectSession()) for _ in range(2)]
    ended = job(ConnectSession(), available_now=True)
    for each in jobs:
        each.begin([Does(lambda spark: Next(3_600))])
    ended.begin([Does(lambda spark: None)])
    assert ended.await_termination(LONG)
    jobs[0].stop()
    assert not closed
    jobs[1].stop()
    assert closed == [channel.url]


@pytest.mark.parametrize("noticed_by", ["its watch", "a table"])
def test_f50_a_session_that_has_ended_ends_the_job(
    noticed_by: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Also an idle one, which needs no session. Fails when only work notices it, or when an error
    of the ended session counts as one of the table."""
    session = ConnectSession()
    if noticed_by == "its watch":
        monkeypatch.setattr(module, "SESSION_INTERVAL", 0.01)

    def look(spark: Any) -> Turn:
        if noticed_by == "a table":
            session.ask()
        return Next(0.01)

    handle = job(session)
    handle.begin([Does(look)])
    session.ended = True
    until(lambda: not handle.is_active)
    assert isinstance(handle.exception(), SessionLostError)
    assert "the Spark session has ended" in caplog.text
    with pytest.raises(SessionLostError):
        handle.await_termination()
    handle.stop()
    assert isinstance(handle.exception(), SessionLostError)


def test_a_session_that_ends_with_a_stop_is_no_error() -> None:
    """SIGTERM to the process group ends the JVM too."""
    session, looked, go = ConnectSession(), threading.Event(), threading.Event()

    def look(spark: Any) -> Turn:
        looked.set()
        assert go.wait(LONG)
        if handle.is_stopping:
            raise StoppedError("stopped")
        return Next(0.0)

    handle = job(session)
    handle.begin([Does(look)])
    assert looked.wait(LONG)
    stopping = threading.Thread(target=handle.stop)
    stopping.start()
    until(lambda: handle.is_stopping)
    session.ended = True
    go.set()
    stopping.join(LONG)
    assert (handle.is_active, handle.exception()) == (False, None)
