"""Run senders and receivers until the process is killed.

Reads one JSON command per line and prints one answer per line. A command has ``do`` (``send``,
``receive``, ``sink``, ``fold`` or ``both``), ``folder`` (see :mod:`sites`) and ``crash_at`` or
``freeze_at``, the step at which this process kills or freezes itself (:mod:`spark_wan.steps`).
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from armed_sink import ArmedDataSource
from sites import NEWARK, SEATTLE, Sites
from wrapped_channels import ChannelWrapper

import spark_wan.sender.job as sender_job
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

    def append(self, stream: str, number: int, manifest: bytes) -> None:
        if not self.frozen:
            self.frozen = True
            os.kill(os.getpid(), signal.SIGSTOP)
        self.inner.append(stream, number, manifest)


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
    elif what == "send":
        tables = command.get("tables")
        sender = Sender(spark, sites.topology, NEWARK, senders=senders, tables=tables)
        sender.start().await_termination()
    elif what == "fold":
        store = DeltaLedgerStore(LedgerTables(spark, sites.topology.site(SEATTLE).state))
        steps.run(fold(store, SEATTLE, command["table"], least=1))
    elif what == "receive":
        receiver = Receiver(spark, sites.topology, SEATTLE, senders=senders)
        receiver.start().await_termination()
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


def held_by(handles: Sequence[Any]) -> list[str]:
    return [status.held for handle in handles for status in handle.status() if status.held]


def answer(content: dict[str, Any]) -> None:
    sys.stdout.write(f"@{json.dumps(content)}\n")
    sys.stdout.flush()


def main() -> None:
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [str(Path(__file__).parents[1] / "support"), str(Path(__file__).parent), *sys.path]
    )
    spark = local_session("spark_wan crash", quick=True, **{"spark.master": "local[2]"})
    for line in sys.stdin:
        run(spark, json.loads(line))
    spark.stop()


if __name__ == "__main__":
    main()
