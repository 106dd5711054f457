"""``spark-wan send`` and ``receive`` as processes that a test signals and whose output it reads."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from sites import NEWARK, SEATTLE, Sites

from spark_wan.local.classes import QUICK

DEADLINE = 180
"""Seconds after which a process counts as hanging."""
PATIENT = (
    f"import spark_wan.receiver.job as job; job.STOP_WAIT = {DEADLINE}; "
    "from spark_wan.cli.app import main; main()"
)
"""``spark-wan``, with a stop that gives the running step as long as a busy machine needs."""
SITES = {"send": NEWARK, "receive": SEATTLE}


class Command:
    """A running command in a process group of its own: Python, its JVM and their workers."""

    def __init__(self, name: str, here: Sites, errors: Path, *more: str) -> None:
        words = [sys.executable, "-c", PATIENT, name, "--config", str(here.folder / "wan.yaml")]
        words += ["--site", SITES[name], "--sender", "east", "--output", "json"]
        words += ["--conf", f"spark.driver.extraJavaOptions={QUICK}"]
        words += ["--conf", "spark.master=local[2]", *more]
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

    def has_printed(self, matches: Callable[[dict[str, Any]], bool]) -> bool:
        """Whether it has printed such a line; fails when it has ended."""
        assert self.process.poll() is None, self.errors()
        return any(map(matches, list(self.lines)))

    def signal(self, number: int, group: bool = True) -> None:
        (os.killpg if group else os.kill)(self.process.pid, number)

    def java(self) -> int:
        """Return the process ID of its JVM."""
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
        """Return its exit code, once all processes that share its standard output have ended."""
        code = self.process.wait(DEADLINE)
        self._reader.join(DEADLINE)
        assert not self._reader.is_alive(), "a process of its group still runs"
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
def running(name: str, here: Sites, errors: Path, *more: str) -> Iterator[Command]:
    """Run a command, with more options, and kill it in the end."""
    command = Command(name, here, errors, *more)
    try:
        yield command
    finally:
        command.end()
