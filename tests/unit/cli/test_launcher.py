"""How a command watches a sender or receiver."""

from __future__ import annotations

import threading
from types import SimpleNamespace
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


@pytest.mark.parametrize(
    "tables, conf, memory",
    [(2, {}, "1032m"), (1_000, {}, "5024m"), (1_000, {"spark.driver.memory": "2g"}, "2g")],
)
def test_a_local_session_has_memory_for_all_tables(
    monkeypatch: pytest.MonkeyPatch, tables: int, conf: dict[str, Any], memory: str
) -> None:
    """Delta keeps the state of each. With Spark's 1 GB, a receiver of 350 tables mostly collects
    garbage. What the user says counts."""
    asked: list[dict[str, Any]] = []

    def local_session(name: str, **settings: Any) -> Any:
        asked.append(settings)
        raise WanError("enough is known")

    monkeypatch.setattr("spark_wan.local.local_session", local_session)
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    monkeypatch.setattr("pyspark.sql.SparkSession.getActiveSession", lambda: None)
    for name in ("_on_signals", "_set_up_logging"):
        monkeypatch.setattr(launcher, name, lambda _: None)
    options: Any = SimpleNamespace(
        site="newark", verbose=False, submitted=False, session_settings=lambda: conf
    )
    job = SimpleNamespace(topology=SimpleNamespace(tables=range(tables)))
    with pytest.raises(WanError, match="enough is known"):
        launcher.launch("sender", lambda _: job, options, Any, Any)  # type: ignore[arg-type]
    assert asked == [{"spark.driver.memory": memory}]
