"""Processes to kill or to freeze: started, given commands, awaited."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from sites import Sites
from waiting import DEADLINE

WORKER = Path(__file__).with_name("worker.py")
Killed = Mapping[str, Sites]
"""Pairs of sites by the step at which a process was killed there."""


class Worker:
    """A process that runs :mod:`worker`, with its JVM in a process group of its own."""

    def __init__(self, log: Path) -> None:
        self.log = log
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, str(WORKER)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
                bufsize=0,  # select does not see buffered lines
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, **command: object) -> None:
        self._stream(self._process.stdin).write(json.dumps(command).encode() + b"\n")
        self._stream(self._process.stdin).flush()

    def answer(self) -> dict[str, Any]:
        """Return the next answer. Fail with the end of the process's log when there is none."""
        stdout, end = self._stream(self._process.stdout), time.monotonic() + DEADLINE
        while select.select([stdout], [], [], max(0.0, end - time.monotonic()))[0]:
            line = stdout.readline()
            if line.startswith(b"@"):
                answer: dict[str, Any] = json.loads(line[1:])
                return answer
            if not line:
                break
        raise AssertionError(f"no answer from the process: {self._log_tail()}")

    def held(self) -> list[str]:
        """Return what holds the streams of a process that sends and receives."""
        self.send(do="status")
        held: list[str] = self.answer()["held"]
        return held

    def killed_at(self, sites: Mapping[str, Sites], **command: object) -> None:
        """Run ``command`` at each of ``sites`` until all are at the step that names them; there
        the process dies."""
        commands = [
            {"folder": str(pair.folder), "crash_at": step, **command}
            for step, pair in sites.items()
        ]
        self.send(do="each", commands=commands)
        self.wait_until_killed()

    def wait_until_killed(self) -> None:
        try:
            code = self._process.wait(DEADLINE)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the process was not killed: {self._log_tail()}") from None
        # The JVM outlives its Python by half a second.
        self._kill_group()
        assert code == -signal.SIGKILL, f"the process ended by itself ({code}): {self._log_tail()}"

    def end(self) -> None:
        """Kill the process if it still runs."""
        self._kill_group()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            with suppress(BrokenPipeError):
                self._stream(stream).close()

    def _kill_group(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def _log_tail(self) -> str:
        return self.log.read_text(errors="replace")[-3000:]

    @staticmethod
    def _stream(stream: IO[bytes] | None) -> IO[bytes]:
        assert stream is not None
        return stream
