"""Waiting for what must come, and what a process holds while it runs."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

DEADLINE = 600.0
"""Seconds after which something is believed never to come. Not a measure: one busy core must do."""


def wait_until(true: Callable[[], bool], what: str, *handles: Any) -> None:
    """Wait until ``true()``; fail with what the handles say of themselves when it never is, or when one of them has ended by an error."""
    end = time.monotonic() + DEADLINE
    while not true():
        ended = any(handle.exception() is not None for handle in handles)
        if (ended and not true()) or time.monotonic() > end:
            told = [
                str(part) for handle in handles for part in (*handle.status(), handle.exception())
            ]
            raise AssertionError(f"never happened: {what}; {told}")
        time.sleep(0.05)


def started(receiver: Any) -> Any:
    """The handle of a receiver whose queries have their sources' processes."""
    handle = receiver.start()
    wait_until(lambda: all(map(has_source, handle.queries)), "the sources come up", handle)
    return handle


def has_source(query: Any) -> bool:
    return query.isActive and not query.status["message"].startswith("Initializing")


def wan_threads() -> list[str]:
    return sorted(thread.name for thread in threading.enumerate() if thread.name.startswith("wan"))


def children() -> dict[int, str]:
    """All processes that descend from this one: ID -> command line."""
    parents: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        try:
            parents[int(folder.name)] = int(
                (folder / "stat").read_text().rpartition(")")[2].split()[1]
            )
        except (ValueError, OSError):
            continue
    found, parents_now = {}, {os.getpid()}
    while parents_now:
        parents_now = {child for child, parent in parents.items() if parent in parents_now}
        for child in parents_now:
            try:
                found[child] = (
                    (Path("/proc") / str(child) / "cmdline").read_text().replace("\0", " ")
                )
            except OSError:
                continue
    return found


def workers() -> list[str]:
    """Python processes of Spark that serve one streaming source or sink; not those that any task may use again."""
    return sorted(
        command
        for command in children().values()
        if "streaming" in command or "data_source" in command
    )


def connections(spark: Any) -> set[tuple[str, str]]:
    """The TCP connections that this process holds, as (own end, other end); without py4j's, which keeps those of ended calls and
    callbacks for the next ones."""
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
    found = set()
    for table in ("tcp", "tcp6"):
        for line in (Path("/proc/self/net") / table).read_text().splitlines()[1:]:
            words = line.split()
            ends = words[1], words[2]
            if words[9] in held and not own & {int(end.rpartition(":")[2], 16) for end in ends}:
                found.add(ends)
    return found
