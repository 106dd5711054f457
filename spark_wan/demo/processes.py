"""Sender and receiver as child processes, and a kill between the receiver's commit and its ack."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spark_wan.errors import WanError
from spark_wan.local.classes import QUICK
from spark_wan.log.stream_log import StreamLog
from spark_wan.wire.mark import Mark

_STOP_TIMEOUT = 60
_HELD_TIMEOUT = 30
_COUNTED = ("epochs", "events", "batches", "bytes")


class Job:
    """``spark-wan send`` or ``receive`` as a child process that logs to a file."""

    def __init__(
        self,
        command: str,
        config: Path,
        *,
        site: str,
        log: Path,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = f"{command} at {site}"
        self.site = site
        self.log = log
        self.progress: dict[str, dict[str, Any]] = {}
        """Stream -> its latest progress, as the process reported it."""
        self.started = threading.Event()
        self.reloaded = threading.Event()
        self.killed = False
        self._error: str | None = None
        self._held_since: dict[str, float] = {}
        self._before_reload: dict[str, dict[str, Any]] = {}
        """Stream -> its progress when the process read the topology again: it counts anew then."""
        arguments = f"-m spark_wan.cli {command} --site {site} --output json --verbose".split()
        java = f"spark.driver.extraJavaOptions={QUICK}"
        with log.open("ab") as file:
            # Its own process group: Ctrl-C reaches the demo alone, which then stops its jobs.
            self.process = subprocess.Popen(
                [sys.executable, *arguments, "--config", str(config), "--conf", java],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
                start_new_session=True,
                env={**os.environ, **(environment or {})},
            )
        self._reader = threading.Thread(target=self._read, name=self.name, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                with contextlib.suppress(ValueError):  # not JSON
                    self._handle(json.loads(line))

    def _handle(self, message: dict[str, Any]) -> None:
        if message["event"] == "progress":
            stream = message["stream"]
            before = self._before_reload.get(stream, {})
            counted = {name: message[name] + before[name] for name in _COUNTED if name in before}
            self.progress[stream] = message | counted
            if message["held"] and not message.get("needs"):  # a copy takes its time
                self._held_since.setdefault(stream, time.monotonic())
            else:
                self._held_since.pop(stream, None)
        elif message["event"] == "started":
            self.started.set()
        elif message["event"] == "reloaded":
            self._before_reload = dict(self.progress)
            self.reloaded.set()
        elif message["event"] == "error":
            self._error = message["message"]

    def check(self) -> None:
        """Raise WanError if the process has exited, or has held a stream for 30 s."""
        if self.killed:
            return
        if self.process.poll() is not None:
            self._reader.join(_STOP_TIMEOUT)
            raise self._failed(self._error or f"exited with code {self.process.returncode}")
        for stream, since in list(self._held_since.items()):
            cause = self.progress[stream]["held"]
            if cause and time.monotonic() - since > _HELD_TIMEOUT:
                raise self._failed(f"{stream} is held: {cause}")

    def reload(self) -> None:
        """Have it read the topology again, as an operator would."""
        self.process.send_signal(signal.SIGHUP)

    def kill(self) -> None:
        """Send SIGKILL and wait for the process to end."""
        self.killed = True
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """Send SIGTERM, as an operator would. Raises WanError unless it exits with code 0."""
        self.process.terminate()
        try:
            code = self.process.wait(_STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            self.kill()
            raise self._failed(f"did not stop within {_STOP_TIMEOUT} s") from None
        self._reader.join(_STOP_TIMEOUT)
        if code != 0:
            raise self._failed(f"exited with code {code}")

    def clean_up(self) -> None:
        """Kill what is left of the process and its JVM."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def _failed(self, cause: str) -> WanError:
        return WanError(f"{self.name}: {cause} (see {self.log})")


@dataclass(frozen=True)
class UnackedCommit:
    """A commit to a target table whose receiver was killed before it acked."""

    epoch: int
    """Newest epoch in the table."""
    acked: int
    """Newest epoch that was acked."""
    events: int
    """Events of the epochs in between."""


def kill_before_ack(
    receiver: Job, table: Path, *, log: StreamLog, site: str, cancelled: Callable[[], bool]
) -> UnackedCommit | None:
    """Kill the receiver when a marked commit is in the table and its ack is not yet in the channel.

    Freezes the receiver (SIGSTOP) as soon as a commit appears. If the commit is not acked yet,
    kills the receiver (SIGKILL); otherwise lets it go on until the next commit. So the moment is
    right on a machine of any speed. Returns None if ``cancelled()`` becomes true first.
    """
    seen = _newest_version(table)
    while not cancelled():
        version = _newest_version(table)
        if version == seen:
            time.sleep(0.005)
            continue
        seen = version
        receiver.process.send_signal(signal.SIGSTOP)
        epoch = _applied(table, version, site, log.stream)
        ack = log.acks().get(site)
        acked = ack.applied if ack is not None else 0
        if acked < epoch:
            receiver.kill()
            unacked = [each for each in log.since(acked) if each <= epoch]
            return UnackedCommit(epoch, acked, sum(log.read(each).rows for each in unacked))
        receiver.process.send_signal(signal.SIGCONT)
    return None


def _newest_version(table: Path) -> int:
    names = (path.stem for path in (table / "_delta_log").glob("*.json"))
    return max((int(name) for name in names if name.isdecimal()), default=-1)


def _applied(table: Path, version: int, site: str, stream: str) -> int:
    """Return the newest epoch that a commit applied of a stream; 0: none."""
    lines = (table / "_delta_log" / f"{version:020d}.json").read_text().splitlines()
    infos = (action["commitInfo"] for action in map(json.loads, lines) if "commitInfo" in action)
    marks = (Mark.read(info.get("userMetadata"), site, table.name) for info in infos)
    parts = (part for mark in marks if mark is not None for part in mark.applied)
    return max((part.epoch for part in parts if part.stream == stream), default=0)
