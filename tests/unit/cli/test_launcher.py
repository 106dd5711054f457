"""How a command watches a sender or receiver."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from spark_wan.cli import launcher
from spark_wan.cli.launcher import watch
from spark_wan.errors import SessionLostError, WanError


class Job:
    """A job whose other streams still run after ``error`` has ended one."""

    def __init__(self, error: BaseException | None) -> None:
        self.error, self.stopped = error, False

    @property
    def is_active(self) -> bool:
        return not self.stopped

    def status(self) -> list[Any]:
        return []

    def exception(self) -> BaseException | None:
        return self.error

    def stop(self) -> None:
        self.stopped = True


def test_f50_a_stream_that_ends_with_an_error_ends_the_command_while_others_run() -> None:
    """Fails (hangs) when the exception is read only once nothing is active."""
    job = Job(ValueError("a thread has died"))
    with pytest.raises(WanError, match="a thread has died"):
        watch(job, threading.Event(), lambda _: None)
    assert job.stopped


def test_f50_an_ended_session_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launcher, "SIGNAL_WAIT", 0.0)
    with pytest.raises(SessionLostError):
        watch(
            Job(SessionLostError("the Spark session has ended")), threading.Event(), lambda _: None
        )


def test_a_signal_that_ends_the_jvm_first_is_a_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGTERM to the process group: Python may see the end of the session before its own signal."""
    monkeypatch.setattr(launcher, "SIGNAL_WAIT", 60.0)
    stopped = threading.Event()

    class Slow(Job):
        def stop(self) -> None:
            super().stop()
            stopped.set()

    watch(Slow(SessionLostError("the Spark session has ended")), stopped, lambda _: None)
