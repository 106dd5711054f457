"""Waiting for a condition, and what a process holds while it runs."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

DEADLINE = 600.0
"""Seconds after which a wait fails: long enough for one busy core."""
LONG = 60.0
"""The same for what needs no Spark."""

ENDS_WITH_US = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
"""Before a command: its process is killed when the process of the tests is, however that ends."""


def wait_until(true: Callable[[], bool], what: str, *handles: Any) -> None:
    """Wait until ``true()``. Fail with the status of the handles after the deadline, or when one
    of them has ended with an error.
    """
    end = time.monotonic() + DEADLINE
    while not true():
        ended = any(handle.exception() is not None for handle in handles)
        if (ended and not true()) or time.monotonic() > end:
            reports = [[*map(str, handle.status()), handle.exception()] for handle in handles]
            raise AssertionError(f"never happened: {what}; {reports}")
        time.sleep(0.05)


def until(true: Callable[[], object]) -> None:
    """Wait until ``true()``, looking often. Fail after :data:`LONG` seconds."""
    end = time.monotonic() + LONG
    while not true():
        assert time.monotonic() < end, "never happened"
        time.sleep(0.005)


def wan_threads() -> list[str]:
    return sorted(thread.name for thread in threading.enumerate() if thread.name.startswith("wan"))


def children() -> dict[int, str]:
    """Return all descendants of this process: ID -> command line."""
    parents: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        try:
            parents[int(folder.name)] = int(
                (folder / "stat").read_text().rpartition(")")[2].split()[1]
            )
        except (ValueError, OSError):
            continue
    commands: dict[int, str] = {}
    parents_now = {os.getpid()}
    while parents_now:
        parents_now = {child for child, parent in parents.items() if parent in parents_now}
        for child in parents_now:
            try:
                commands[child] = (
                    (Path("/proc") / str(child) / "cmdline").read_text().replace("\0", " ")
                )
            except OSError:
                continue
    return commands


def workers() -> list[str]:
    """Return Spark's Python processes that serve one streaming source or sink, without reusable
    ones.
    """
    return sorted(
        command
        for command in children().values()
        if "streaming" in command or "data_source" in command
    )


def connections(spark: Any) -> set[tuple[str, str]]:
    """Return this process's TCP connections as (own end, other end), without those of py4j,
    which keeps connections of ended calls and callbacks for reuse.
    """
    gateway = spark.sparkContext._gateway
    own = {
        gateway.gateway_parameters.port,
        gateway.java_gateway_server.getCallbackClient().getPort(),
    }
    held = set()
    for entry in Path("/proc/self/fd").iterdir():
        try:
            held.add(os.readlink(entry).removeprefix("socket:[").rstrip("]"))
        except OSError:
            continue
    ends_held = set()
    for table in ("tcp", "tcp6"):
        for line in (Path("/proc/self/net") / table).read_text().splitlines()[1:]:
            words = line.split()
            ends = words[1], words[2]
            if words[9] in held and not own & {int(end.rpartition(":")[2], 16) for end in ends}:
                ends_held.add(ends)
    return ends_held
