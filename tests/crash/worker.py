"""Run senders and receivers until the process is killed.

Reads one JSON command per line and prints one answer per line. A command has ``do`` (``send``,
``receive``, ``sink``, ``both`` or ``each``), ``folder`` (see :mod:`sites`) and
``crash_at`` or ``freeze_at``, the step at which this process kills or freezes itself
(:mod:`spark_wan.steps`). ``receive`` may name a ``site``, else it is seattle. ``each`` has a list
of commands, ``commands``, of which one may also be ``fold``: see :func:`run_each`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextvars import ContextVar, copy_context
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
sys.path.insert(0, str(Path(__file__).parents[1]))

from sites import NEWARK, SEATTLE, Sites

import spark_wan.receiver.table
import spark_wan.sender.job as sender_job
import spark_wan.sender.stream
from crash.armed_sink import ArmedDataSource
from crash.wrapped_channels import ChannelWrapper
from spark_wan import steps
from spark_wan.channels.base import Channel
from spark_wan.ledger.folding import fold
from spark_wan.ledger.store import DeltaLedgerStore
from spark_wan.ledger.tables import LedgerTables
from spark_wan.local import local_session
from spark_wan.receiver.job import Receiver
from spark_wan.sender.job import Sender
from spark_wan.steps import CRASH_VARIABLE, FREEZE_VARIABLE


class DeadlyChannel(ChannelWrapper):
    """Kills the driver and its JVM from within a task that has written frame ``index``."""

    def __init__(self, inner: Channel, index: int, driver: int) -> None:
        super().__init__(inner)
        self.index, self.driver = index, driver

    def put_frame(self, stream: str, attempt: str, index: int, data: bytes) -> str:
        path = self.inner.put_frame(stream, attempt, index, data)
        if index == self.index:
            os.killpg(self.driver, signal.SIGKILL)
            time.sleep(600)
        return path


class FrozenChannel(ChannelWrapper):
    """Freezes its process inside the first append, after the log was read."""

    def __init__(self, inner: Channel) -> None:
        super().__init__(inner)
        self.frozen = False

    def append(self, *manifest: Any) -> None:
        if not self.frozen:
            self.frozen = True
            os.kill(os.getpid(), signal.SIGSTOP)
        self.inner.append(*manifest)


def wrap_channels(wrapper: Callable[[Channel], Any]) -> None:
    """Wrap every channel that a sender opens from now on."""
    opened = sender_job.open_channel
    sender_job.open_channel = lambda url, storage=None: wrapper(opened(url, storage))


def run(spark: Any, command: dict[str, Any]) -> None:
    sites = Sites(Path(command["folder"]))
    if command.get("crash_at"):
        os.environ[CRASH_VARIABLE] = command["crash_at"]
    if command.get("freeze_at"):
        os.environ[FREEZE_VARIABLE] = command["freeze_at"]
    if (index := command.get("crash_at_frame")) is not None:
        wrap_channels(lambda channel: DeadlyChannel(channel, index, os.getpid()))
    if command.get("freeze_in_append"):
        wrap_channels(FrozenChannel)
    senders = command.get("senders", ["east"])
    what = command["do"]
    if what == "sink":
        spark.dataSource.register(ArmedDataSource)
        rows = spark.readStream.format("delta").load(str(sites.path("clicks")))
        ArmedDataSource.start(rows, sites, command["checkpoint"]).awaitTermination()
    elif what in ("send", "receive"):
        start(spark, sites, command).await_termination()
    else:
        handles = [
            Sender(spark, sites.topology, NEWARK, senders=senders).start(),
            Receiver(spark, sites.topology, SEATTLE, senders=senders, interval=0.1).start(),
        ]
        answer({"running": os.getpid()})
        while json.loads(sys.stdin.readline())["do"] != "stop":
            answer({"held": held_by(handles)})
        for handle in handles:
            handle.stop()
        errors = [str(handle.exception()) for handle in handles if handle.exception()]
        answer({"held": held_by(handles), "errors": errors})


class Barrier:
    """Where the threads of one command wait for the end of the process. ``steps``: ``name`` or
    ``name:n``, when the step is reached for the n-th time; or several, with ``+`` between them."""

    def __init__(self, steps: str) -> None:
        parts = (step.partition(":") for step in steps.split("+"))
        self.left = {name: int(nth or 1) for name, _, nth in parts}
        self.lock = threading.Lock()
        self.is_reached = threading.Event()
        """Set once all the steps are."""

    def reached(self, step: str) -> None:
        name = step.split()[0]
        with self.lock:
            if name not in self.left:
                return
            self.left[name] -= 1
            if self.left[name] > 0:
                return
            if max(self.left.values()) <= 0:
                self.is_reached.set()
        time.sleep(600)


_barrier: ContextVar[Barrier] = ContextVar("barrier")
"""That of the command for which a thread works: a thread has the context of who started it."""


def run_each(spark: Any, commands: Sequence[dict[str, Any]]) -> None:
    """Run all commands at once. The threads of each wait at its ``crash_at``; when all commands
    are there, the process kills itself. So one process is killed at many steps."""
    begin_thread = threading.Thread.start

    def start_in_context(thread: threading.Thread) -> None:
        context, own = copy_context(), thread.run
        thread.run = lambda: context.run(own)  # type: ignore[method-assign]
        begin_thread(thread)

    threading.Thread.start = start_in_context  # type: ignore[method-assign]
    for module in (steps, spark_wan.sender.stream, spark_wan.receiver.table):
        module.reached = lambda step: _barrier.get().reached(step)  # type: ignore[attr-defined]
    waiting: list[tuple[Barrier, Callable[[], BaseException | None]]] = []
    for command in commands:
        _barrier.set(Barrier(command["crash_at"]))
        waiting.append((_barrier.get(), begin(spark, command)))
    for barrier, error in waiting:
        while not barrier.is_reached.wait(0.1):
            if raised := error():
                raise raised
    os.kill(os.getpid(), signal.SIGKILL)


def begin(spark: Any, command: dict[str, Any]) -> Callable[[], BaseException | None]:
    """Start what ``command`` says; return how to ask for its error."""
    sites = Sites(Path(command["folder"]))
    if command["do"] != "fold":
        return start(spark, sites, command).exception
    store = DeltaLedgerStore(LedgerTables(spark, sites.topology.site(SEATTLE).state))
    folding = fold(store, SEATTLE, command["table"], least=1)
    threading.Thread(target=lambda: steps.run(folding), daemon=True).start()
    return lambda: None


def start(spark: Any, sites: Sites, command: dict[str, Any]) -> Any:
    """Start a sender or a receiver; return its handle."""
    senders = command.get("senders", ["east"])
    if command["do"] == "receive":
        site = command.get("site", SEATTLE)
        return Receiver(spark, sites.topology, site, senders=senders).start()
    tables = command.get("tables")
    return Sender(spark, sites.topology, NEWARK, senders=senders, tables=tables).start()


def held_by(handles: Sequence[Any]) -> list[str]:
    return [status.held for handle in handles for status in handle.status() if status.held]


def answer(content: dict[str, Any]) -> None:
    sys.stdout.write(f"@{json.dumps(content)}\n")
    sys.stdout.flush()


def main() -> None:
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)
    spark = local_session("spark_wan crash", quick=True, **{"spark.master": "local[2]"})
    for line in sys.stdin:
        command = json.loads(line)
        if command["do"] == "each":
            run_each(spark, command["commands"])
        else:
            run(spark, command)
    spark.stop()


if __name__ == "__main__":
    main()
