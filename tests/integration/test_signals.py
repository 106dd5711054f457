"""``spark-wan send`` and ``receive`` as a service manager runs them: signals to the whole process group, a JVM that dies, a frozen process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from sites import NEWARK, SEATTLE, Sites
from waiting import wait_until

from spark_wan.local.classes import QUICK

DEADLINE = 180
"""Seconds after which a process is believed to hang. Not a measure."""
PACE = 0.5
"""Seconds that the writer leaves between commits."""
PATIENT = f"import spark_wan.receiver.job as job; job.STOP_WAIT = {DEADLINE}; from spark_wan.cli.app import main; main()"
"""``spark-wan`` that leaves the step at work as long as a busy machine needs for it."""
SITES = {"send": NEWARK, "receive": SEATTLE}


class Command:
    """A running command in a process group of its own: Python, its JVM and their workers."""

    def __init__(self, what: str, here: Sites, errors: Path) -> None:
        words = [sys.executable, "-c", PATIENT, what, "--config", str(here.folder / "wan.yaml")]
        words += ["--site", SITES[what], "--sender", "east", "--output", "json"]
        words += [
            "--conf",
            f"spark.driver.extraJavaOptions={QUICK}",
            "--conf",
            "spark.master=local[2]",
        ]
        self.lines: list[dict[str, Any]] = []
        self._errors = errors
        with errors.open("wb") as file:
            self.process = subprocess.Popen(
                words, stdout=subprocess.PIPE, stderr=file, text=True, start_new_session=True
            )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        self.lines.extend(map(json.loads, self.process.stdout))

    def told(self, true: Callable[[dict[str, Any]], bool]) -> bool:
        """Whether it has said such a thing; fails when it has ended."""
        assert self.process.poll() is None, self.errors()
        return any(map(true, list(self.lines)))

    def signal(self, number: int, group: bool = True) -> None:
        (os.killpg if group else os.kill)(self.process.pid, number)

    def java(self) -> int:
        """The process ID of its JVM."""
        for folder in Path("/proc").iterdir():
            with suppress(ValueError, OSError):
                pid = int(folder.name)
                if (
                    os.getpgid(pid) == self.process.pid
                    and (folder / "comm").read_text().strip() == "java"
                ):
                    return pid
        raise AssertionError("no JVM")

    def code(self) -> int:
        """Its exit code, once it and all that has its standard output have ended."""
        code = self.process.wait(DEADLINE)
        self._reader.join(DEADLINE)
        assert not self._reader.is_alive(), "something of it is left"
        return code

    def errors(self) -> str:
        return self._errors.read_text(errors="replace")

    def end(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()


@contextmanager
def running(what: str, here: Sites, errors: Path) -> Iterator[Command]:
    command = Command(what, here, errors)
    try:
        yield command
    finally:
        command.end()


@contextmanager
def writing(here: Sites) -> Iterator[None]:
    """Commits to the source without end."""
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


def has_events(line: dict[str, Any]) -> bool:
    return line["event"] == "progress" and bool(line["events"])


@pytest.mark.parametrize(
    ("what", "number"),
    [("send", signal.SIGTERM), ("receive", signal.SIGTERM), ("receive", signal.SIGINT)],
)
def test_a_signal_to_the_process_group_stops_the_command_cleanly(
    spark: Any, sites: Any, tmp_path: Path, what: str, number: int
) -> None:
    """As systemd does by default, and Ctrl-C: SIGTERM ends the JVM and Python's workers at the same moment. While there is work to do.

    Failed with a traceback and exit code 1 when Python takes the end of its JVM for an error. What was under way arrives after a restart.
    """
    here: Sites = sites()
    here.change(10)
    if what == "receive":
        for start in (30, 50, 70):
            here.send(spark)
            here.change(start)
        here.send(spark)
    with running(what, here, tmp_path / "errors") as command:
        if what == "send":
            with writing(here):
                wait_until(lambda: command.told(has_events), "it publishes")
                command.signal(number)
                assert command.code() == 0, command.errors()
        else:
            wait_until(lambda: command.told(lambda line: line["event"] == "started"), "it starts")
            wait_until(lambda: bool(here.path("orders", SEATTLE).exists()), "it applies")
            command.signal(number)
            assert command.code() == 0, command.errors()
        assert command.lines[-1]["event"] == "stopped"
        assert "Traceback" not in command.errors()
        if number == signal.SIGINT:
            assert " ERROR " not in command.errors()
    here.replicate(spark)
    here.assert_equal()


def test_stopping_a_busy_receiver_logs_no_spark_errors(
    spark: Any, sites: Any, tmp_path: Path
) -> None:
    """SIGTERM to Python alone. Spark logs an error, with its stack, for a micro-batch that raises and for a write that is cancelled; so the
    step at work may end, and the micro-batch returns once Spark knows that its query is stopped."""
    here: Sites = sites()
    here.change(10)
    for start in (30, 50, 70):
        here.send(spark)
        here.change(start)
    here.send(spark)
    with running("receive", here, tmp_path / "errors") as command:
        wait_until(lambda: command.told(lambda line: line["event"] == "started"), "it starts")
        wait_until(lambda: bool(here.path("orders", SEATTLE).exists()), "it applies")
        command.signal(signal.SIGTERM, group=False)
        assert command.code() == 0, command.errors()
        for word in ("Traceback", " ERROR ", "StackOverflowError"):
            assert word not in command.errors()
    here.apply(spark)
    here.assert_equal()


@pytest.mark.parametrize("what", ["send", "receive"])
def test_f50_a_jvm_that_dies_ends_the_command_with_an_error(
    sites: Any, tmp_path: Path, what: str
) -> None:
    """Killed for want of memory, say. Exit code 1 and one message, so that whoever runs it starts it again.

    Failed when the streams are held instead, for ever; and when the end of the session is asked for what it cannot answer.
    """
    here: Sites = sites()
    here.change(10)
    with running(what, here, tmp_path / "errors") as command:
        wait_until(lambda: command.told(lambda line: line["event"] == "started"), "it starts")
        os.kill(command.java(), signal.SIGKILL)
        assert command.code() == 1
        assert command.lines[-1]["event"] == "error"
        assert command.lines[-1]["type"] == "SessionLostError"
        assert "the Spark session has ended" in command.lines[-1]["message"]
        assert "Traceback" not in command.errors()


def test_a_receiver_overtaken_while_frozen_restarts_its_query(
    spark: Any, sites: Any, tmp_path: Path
) -> None:
    """Frozen with its JVM, while another one takes over its checkpoint. Its query ends with CONCURRENT_STREAM_LOG_UPDATE, which it says, and
    starts again. Fails when the end of the query is the end of the receiver."""
    here: Sites = sites()
    here.change(10)
    here.send(spark)

    def acked() -> bool:
        return all(here.acked(table) == here.numbers(table)[-1] for table in ("orders", "readings"))

    with ExitStack() as ends:
        first = ends.enter_context(running("receive", here, tmp_path / "first"))
        wait_until(lambda: first.told(has_events) and acked(), "the first applies")
        second = ends.enter_context(running("receive", here, tmp_path / "second"))
        wait_until(
            lambda: second.told(lambda line: line["event"] == "started"), "the second starts"
        )
        first.signal(signal.SIGSTOP)
        here.change(30)
        here.send(spark)
        wait_until(acked, "the second takes over")
        first.signal(signal.SIGCONT)
        here.change(50)
        here.send(spark)
        wait_until(acked, "one of them applies")
        second.signal(signal.SIGTERM)
        assert second.code() == 0
        here.change(70)
        here.send(spark)
        wait_until(acked, "the first goes on")
        assert first.told(
            lambda line: "another receiver has used its checkpoint" in str(line.get("held"))
        )
        first.signal(signal.SIGTERM)
        assert first.code() == 0
        assert "Traceback" not in first.errors()
    here.assert_equal()
