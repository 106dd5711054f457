"""Sender and receiver as processes of their own, and the death of one at a moment that matters."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spark_wan.channels.log import StreamLog
from spark_wan.channels.registry import open_channel
from spark_wan.errors import WanError
from spark_wan.local.classes import QUICK
from spark_wan.wire.mark import Mark

_STOP_WAIT = 60
_HELD_WAIT = 30


class Job:
    """``spark-wan send`` or ``receive`` as a child process. Its progress is kept, its log goes to a file."""

    def __init__(self, command: str, config: Path, site: str, log: Path) -> None:
        self.name = f"{command} at {site}"
        self.log = log
        self.progress: dict[str, dict[str, Any]] = {}
        """What it last said of each stream."""
        self.started = threading.Event()
        self.killed = False
        self._error: str | None = None
        words = [
            sys.executable,
            "-m",
            "spark_wan.cli",
            command,
            "--config",
            str(config),
            "--site",
            site,
        ]
        words += [
            "--output",
            "json",
            "--verbose",
            "--conf",
            f"spark.driver.extraJavaOptions={QUICK}",
        ]
        with log.open("ab") as file:
            # A session of its own: an interrupt at the keyboard is for the demo, which then stops its jobs.
            self.process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
                start_new_session=True,
            )
        self._reader = threading.Thread(target=self._read, name=self.name, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            try:
                told = json.loads(line)
            except ValueError:
                continue
            if told["event"] == "progress":
                held_before = self.progress.get(told["stream"], {}).get("held_since")
                told["held_since"] = (held_before or time.monotonic()) if told["held"] else None
                self.progress[told["stream"]] = told
            elif told["event"] == "started":
                self.started.set()
            elif told["event"] == "error":
                self._error = told["message"]

    def check(self) -> None:
        """Raise WanError when the process has ended, or has held a stream for long."""
        if self.killed:
            return
        if self.process.poll() is not None:
            self._reader.join(_STOP_WAIT)
            cause = self._error or f"it ended with code {self.process.returncode}"
            raise WanError(f"{self.name}: {cause} (more in {self.log})")
        for stream, told in list(self.progress.items()):
            if (
                told["held_since"] is not None
                and time.monotonic() - told["held_since"] > _HELD_WAIT
            ):
                raise WanError(
                    f"{self.name}: {stream} is held: {told['held']} (more in {self.log})"
                )

    def freeze(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        self.killed = True
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """SIGTERM, as an operator would. Raises WanError when that does not end it with exit code 0."""
        self.process.terminate()
        try:
            code = self.process.wait(_STOP_WAIT)
        except subprocess.TimeoutExpired:
            self.kill()
            raise WanError(
                f"{self.name}: did not stop within {_STOP_WAIT} s (more in {self.log})"
            ) from None
        self._reader.join(_STOP_WAIT)
        if code != 0:
            raise WanError(f"{self.name}: ended with code {code} (more in {self.log})")

    def end(self) -> None:
        """Leave nothing behind: the process and its Java."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@dataclass(frozen=True)
class Strike:
    """A receiver was killed after a commit to a table and before its ack."""

    table: str
    epoch: int
    """Through this epoch the table has everything."""
    acked: int
    """Through this epoch the sender knows."""
    events: int
    """Events of the epochs in between."""


def strike(
    receiver: Job, table: Path, channel: str, stream: str, site: str, over: Callable[[], bool]
) -> Strike | None:
    """Kill ``receiver`` when a marked commit is in the table and the ack for it is not yet in the channel.

    The process is stopped (SIGSTOP) as soon as a commit appears, looked at, and killed (SIGKILL) if it has not acked;
    else it goes on until the next commit. So the moment is right, however fast the machine. None when ``over`` says to
    give up.
    """
    seen = _newest(table)
    log = StreamLog(open_channel(channel), stream)
    while not over():
        newest = _newest(table)
        if newest == seen:
            time.sleep(0.005)
            continue
        seen = newest
        receiver.freeze()
        mark = _mark(table, newest, site)
        ack = log.acks().get(site)
        acked = ack.applied if ack is not None else 0
        if mark is not None and acked < mark.epoch:
            receiver.kill()
            events = sum(
                log.read(number).rows for number in log.since(acked) if number <= mark.epoch
            )
            return Strike(table.name, mark.epoch, acked, events)
        receiver.thaw()
    return None


def _newest(table: Path) -> int:
    versions = (
        int(path.stem) for path in (table / "_delta_log").glob("*.json") if path.stem.isdecimal()
    )
    return max(versions, default=-1)


def _mark(table: Path, version: int, site: str) -> Mark | None:
    lines = (table / "_delta_log" / f"{version:020d}.json").read_text().splitlines()
    infos = (action["commitInfo"] for action in map(json.loads, lines) if "commitInfo" in action)
    return next((Mark.read(info.get("userMetadata"), site, table.name) for info in infos), None)
