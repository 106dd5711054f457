"""``spark-wan send`` and ``receive`` under a service manager: signals to the whole process
group, a dying JVM, a frozen process.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from commands import running
from sites import SEATTLE, Sites
from waiting import wait_until

PACE = 0.5
"""Seconds between commits of the writer."""


@contextmanager
def writing(here: Sites) -> Iterator[None]:
    """Commit to the source without end."""
    ended = threading.Event()

    def write() -> None:
        number = 1_000
        while not ended.is_set():
            number += 1
            here.append("orders", [{"id": number, "item": "new", "amount": 1.0}])
            here.append("readings", [{"sensor": "attic", "value": 1.0}])
            ended.wait(PACE)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@pytest.fixture(scope="module")
def _with_epochs(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Sites:
    here = Sites.make(tmp_path_factory.mktemp("epochs") / "wan")
    for start in (10, 30, 50, 70):
        here.change(start)
        here.send(spark)
    return here


@pytest.fixture
def with_epochs(_with_epochs: Sites, tmp_path: Path) -> Sites:
    """Published epochs that keep a receiver busy for a while."""
    return _with_epochs.copy(tmp_path / "with epochs")


def is_started(line: dict[str, Any]) -> bool:
    return bool(line["event"] == "started")


def has_events(line: dict[str, Any]) -> bool:
    return line["event"] == "progress" and bool(line["events"])


@pytest.mark.parametrize(("name", "number"), [("send", signal.SIGTERM), ("receive", signal.SIGINT)])
def test_a_signal_to_the_process_group_stops_the_command_cleanly(
    spark: Any, wan: Sites, with_epochs: Sites, tmp_path: Path, name: str, number: int
) -> None:
    """As systemd and Ctrl-C do: JVM and Python workers get the signal at the same moment, in the
    middle of work. What was in progress arrives after a restart.

    Fails (traceback, exit code 1) when Python takes the end of its JVM for an error.
    """
    if name == "receive":
        wan = with_epochs
    else:
        wan.change(10)
    with running(name, wan, tmp_path / "errors") as command:
        if name == "send":
            with writing(wan):
                wait_until(lambda: command.has_printed(has_events), "it publishes")
                command.signal(number)
                assert command.code() == 0, command.errors()
        else:
            wait_until(lambda: command.has_printed(is_started), "it starts")
            wait_until(lambda: bool(wan.path("orders", SEATTLE).exists()), "it applies")
            command.signal(number)
            assert command.code() == 0, command.errors()
        assert command.lines[-1]["event"] == "stopped"
        assert "Traceback" not in command.errors()
        if number == signal.SIGINT:
            assert " ERROR " not in command.errors()
    wan.replicate(spark)
    wan.assert_equal()


def test_stopping_a_busy_receiver_logs_no_spark_errors(
    spark: Any, with_epochs: Sites, tmp_path: Path
) -> None:
    """SIGTERM to Python alone. Spark logs an error with a stack trace for a cancelled write, so the
    running step may end.
    """
    wan = with_epochs
    with running("receive", wan, tmp_path / "errors") as command:
        wait_until(lambda: command.has_printed(is_started), "it starts")
        wait_until(lambda: bool(wan.path("orders", SEATTLE).exists()), "it applies")
        command.signal(signal.SIGTERM, group=False)
        assert command.code() == 0, command.errors()
        for word in ("Traceback", " ERROR ", "StackOverflowError"):
            assert word not in command.errors()
    wan.apply(spark)
    wan.assert_equal()


def test_f50_a_jvm_that_dies_ends_the_command_with_an_error(wan: Sites, tmp_path: Path) -> None:
    """For lack of memory, say. Exit code 1 and one message, so that a service manager starts it
    again.

    Fails when the streams are held forever instead, or when the ended session is asked for its
    state.
    """
    wan.change(10)
    with running("receive", wan, tmp_path / "errors") as command:
        wait_until(lambda: command.has_printed(is_started), "it starts")
        os.kill(command.java(), signal.SIGKILL)
        assert command.code() == 1
        assert command.lines[-1]["event"] == "error"
        assert command.lines[-1]["type"] == "SessionLostError"
        assert "the Spark session has ended" in command.lines[-1]["message"]
        assert "Traceback" not in command.errors()
