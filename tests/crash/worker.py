"""A process for senders and receivers, until it is killed. One JSON command a line comes in, one answer a line goes out.

Commands name what to run (``send``, ``receive``, ``sink``, ``both``), ``folder`` (see :mod:`sites`) and ``crash_at``, the step at which this
process kills itself (:mod:`spark_wan.steps`).
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from armed_sink import ArmedDataSource
from sites import NEWARK, SEATTLE, Sites
from waiting import started

import spark_wan.sender.job as sender_job
from spark_wan.channels.base import Channel
from spark_wan.local import local_session
from spark_wan.receiver.job import Receiver
from spark_wan.sender.job import Sender
from spark_wan.steps import CRASH_VARIABLE, FREEZE_VARIABLE


class DeadlyChannel:
    """Kills the driver and its JVM from within a task, once frame ``index`` is written: in the middle of an epoch."""

    def __init__(self, inner: Channel, index: int, driver: int) -> None:
        self.inner, self.index, self.driver = inner, index, driver

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "inner" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self.inner, name)

    def put_frame(self, stream: str, attempt: str, index: int, data: bytes) -> str:
        path = self.inner.put_frame(stream, attempt, index, data)
        if index == self.index:
            os.killpg(self.driver, signal.SIGKILL)
            time.sleep(600)
        return path


class FrozenChannel:
    """Stops its process inside the first append, after the last look at the log."""

    def __init__(self, inner: Channel) -> None:
        self.inner, self.frozen = inner, False

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "inner" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self.inner, name)

    def append(self, stream: str, number: int, manifest: bytes) -> None:
        if not self.frozen:
            self.frozen = True
            os.kill(os.getpid(), signal.SIGSTOP)
        self.inner.append(stream, number, manifest)


def run(spark: Any, command: dict[str, Any]) -> None:
    sites = Sites(Path(command["folder"]))
    if command.get("crash_at"):
        os.environ[CRASH_VARIABLE] = command["crash_at"]
    if command.get("freeze_at"):
        os.environ[FREEZE_VARIABLE] = command["freeze_at"]
    if (index := command.get("crash_at_frame")) is not None:
        opened = sender_job.open_channel
        sender_job.open_channel = lambda url, storage=None: DeadlyChannel(
            opened(url, storage), index, os.getpid()
        )
    if command.get("freeze_in_append"):
        opened = sender_job.open_channel
        sender_job.open_channel = lambda url, storage=None: FrozenChannel(opened(url, storage))
    senders = command.get("senders", ["east"])
    what = command["do"]
    if what == "sink":
        spark.dataSource.register(ArmedDataSource)
        rows = spark.readStream.format("delta").load(str(sites.path("clicks")))
        ArmedDataSource.start(rows, sites, command["checkpoint"]).awaitTermination()
    elif what == "send":
        Sender(
            spark, sites.topology, NEWARK, senders=senders, tables=command.get("tables")
        ).start().await_termination()
    elif what == "receive":
        started(Receiver(spark, sites.topology, SEATTLE, senders=senders)).await_termination()
    else:
        handles = [
            Sender(spark, sites.topology, NEWARK, senders=senders).start(),
            started(Receiver(spark, sites.topology, SEATTLE, senders=senders, interval=0.1)),
        ]
        answer({"running": os.getpid()})
        while json.loads(sys.stdin.readline())["do"] != "stop":
            answer(
                {
                    "held": [
                        status.held
                        for handle in handles
                        for status in handle.status()
                        if status.held
                    ]
                }
            )
        for handle in handles:
            handle.stop()
        held = [status.held for handle in handles for status in handle.status() if status.held]
        answer(
            {
                "held": held,
                "errors": [str(handle.exception()) for handle in handles if handle.exception()],
            }
        )


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
