"""What the command line and ``jobs/*.py`` share: run a Sender or Receiver until it ends or somebody stops it."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, Protocol

from spark_wan.delta.errors import error_text
from spark_wan.errors import SessionLostError, WanError
from spark_wan.units import megabytes

LOOK_INTERVAL = 0.25
"""Seconds between looks at what a job says of itself."""
SIGNAL_WAIT = 1.0
"""Seconds in which a signal that has ended the JVM reaches this process too."""


class Job(Protocol):
    """The part of a handle that is needed here."""

    @property
    def is_active(self) -> bool: ...

    def status(self) -> list[Any]: ...

    def exception(self) -> BaseException | None: ...

    def stop(self) -> None: ...


def stop_on_signals(stopped: threading.Event | None = None) -> threading.Event:
    """An event that SIGINT and SIGTERM set. Call it in the main thread, and after the session was made: Spark has
    handlers of its own."""
    stopped = stopped or threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    return stopped


def quiet_py4j() -> None:
    """Keep py4j from logging what it raises: a stack for each call that was under way when the JVM ended."""
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(
        lambda record: "while sending command" not in str(record.msg)
    )  # logged there, by no name


def watch(job: Job, stopped: threading.Event, say: Callable[[dict[str, Any]], None]) -> None:
    """Say what each stream has to tell whenever that changes, until the job or one of its streams ends, or ``stopped`` is set; then stop it.

    Raises:
        WanError: the job or a stream ended with an error, or the job ended while a stream was held.
    """
    told: dict[str, dict[str, Any]] = {}

    def look() -> None:
        for status in map(asdict, job.status()):
            if told.get(status["stream"]) != status:
                told[status["stream"]] = status
                say(status)

    try:
        while job.is_active and job.exception() is None and not stopped.wait(LOOK_INTERVAL):
            look()
    finally:
        job.stop()
    look()
    if stopped.is_set():
        return
    error = job.exception()
    if isinstance(error, SessionLostError) and stopped.wait(SIGNAL_WAIT):
        return  # SIGTERM to a process group ends the JVM too, which may be faster
    if error is not None:
        raise (
            error
            if isinstance(error, WanError)
            else WanError(f"ended by an error: {error_text(error)}")
        ) from error
    held = [f"{name}: held: {status['held']}" for name, status in told.items() if status["held"]]
    if held:
        raise WanError("\n".join(held))


def describe(status: Mapping[str, Any]) -> str:
    """One line of text for what a sender or receiver says of a stream.

    >>> describe({"stream": "a.b.t", "applied": 3, "events": 1200, "duplicates": 0, "dead_letters": 0, "held": None})
    'a.b.t: applied through epoch 3, 1,200 events'
    """
    parts = [_sent(status) if "published" in status else _applied(status)]
    if status.get("duplicates"):
        parts.append(f"{status['duplicates']:,} duplicates discarded")
    if status["dead_letters"]:
        parts.append(f"{status['dead_letters']:,} dead letters")
    if status.get("local_commits"):
        parts.append(f"{status['local_commits']:,} commits by others")
    parts += [f"{site} is no longer served" for site in status.get("not_served", ())]
    parts += [f"held by {site}: {cause}" for site, cause in status.get("remote_holds", {}).items()]
    if status["held"]:
        parts.append(f"HELD: {status['held']}")
    return f"{status['stream']}: {'; '.join(parts)}"


def _sent(status: Mapping[str, Any]) -> str:
    if not status["published"]:
        return "nothing published yet"
    text = f"published through epoch {status['published']}, {status['events']:,} events, {megabytes(status['bytes'])}"
    acked = ", ".join(f"{site} has {number}" for site, number in sorted(status["acked"].items()))
    return f"{text}; {acked or 'nobody has answered'}"


def _applied(status: Mapping[str, Any]) -> str:
    if not status["applied"]:
        return "nothing applied yet"
    return f"applied through epoch {status['applied']}, {status['events']:,} events"
