"""Run senders and receivers until the process is killed.

Reads one JSON command per line and prints one answer per line. A command has ``do`` and ``folder``
(see :mod:`sites`). ``both`` runs a sender and a receiver, which freeze at the steps in
``freeze_at`` (:mod:`spark_wan.steps`): see :func:`run_both`. ``each`` has a list of commands,
``commands``, whose ``do`` is ``send``, ``receive``, ``fold`` or ``carry``: see :func:`run_each`.
``receive`` may name a ``site``, else it is seattle; ``send`` may serve copies ``in_parts``.
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
import spark_wan.sender.copies
import spark_wan.sender.outbound_stream
import spark_wan.sender.serve
from spark_wan import adopt_backup, make_backup, steps
from spark_wan.delta.sessions import CurrentSession
from spark_wan.ledger.folding import fold
from spark_wan.ledger.store import DeltaLedgerStore
from spark_wan.ledger.tables import LedgerTables
from spark_wan.local import local_session
from spark_wan.receiver.job import Receiver
from spark_wan.sender.job import Sender
from spark_wan.steps import FREEZE_VARIABLE


def run_both(spark: Any, command: dict[str, Any]) -> None:
    """Run a sender and a receiver, and answer what holds them, until the command is ``stop``."""
    sites = Sites(Path(command["folder"]))
    os.environ[FREEZE_VARIABLE] = command.get("freeze_at", "")
    handles = [
        Sender(spark, sites.topology, NEWARK, senders=["east"]).start(),
        Receiver(spark, sites.topology, SEATTLE, senders=["east"], interval=0.1).start(),
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
    modules = (
        steps,
        spark_wan.sender.copies,
        spark_wan.sender.outbound_stream,
        spark_wan.receiver.table,
    )
    for module in modules:
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
    if command["do"] == "carry":
        return carry(spark, sites, command["table"])
    if command["do"] != "fold":
        return start(spark, sites, command).exception
    state = sites.topology.site(SEATTLE).state
    store = DeltaLedgerStore(LedgerTables(CurrentSession(spark), state))
    folding = fold(store, SEATTLE, command["table"], least=1)
    threading.Thread(target=lambda: steps.run(folding), daemon=True).start()
    return lambda: None


def carry(spark: Any, sites: Sites, table: str) -> Callable[[], BaseException | None]:
    """Make a backup of a table and adopt it; return how to ask for the error."""
    place, errors = str(sites.folder / "disk"), []

    def work() -> None:
        try:
            make_backup(spark, sites.topology, table, NEWARK, place)
            adopt_backup(spark, sites.topology, table, SEATTLE, place)
        except BaseException as error:
            errors.append(error)

    threading.Thread(target=work, daemon=True).start()
    return lambda: errors[0] if errors else None


def start(spark: Any, sites: Sites, command: dict[str, Any]) -> Any:
    """Start a sender or a receiver; return its handle."""
    senders = command.get("senders", ["east"])
    if command["do"] == "receive":
        site = command.get("site", SEATTLE)
        return Receiver(spark, sites.topology, site, senders=senders).start()
    tables = command.get("tables")
    if command.get("in_parts"):
        spark_wan.sender.serve.LARGE_BYTES = 0
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
            run_both(spark, command)
    spark.stop()


if __name__ == "__main__":
    main()
