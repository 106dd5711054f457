"""A process that sends and receives is frozen (SIGSTOP), overtaken by others, then thawed."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sites import Sites
from waiting import wait_until

from crash.processes import Worker

STEPS = ("publish.4", "acks.3", "apply.3", "apply.5", "apply.6")
"""Frames are written; acks are read; an epoch is read; its commit is next; its ledger is next."""


def change(sites: Sites, key: int) -> None:
    """Make a commit to both tables: an update and an insert; equal rows in the keyless one."""
    sites.upsert("orders", [{"id": i, "item": "new", "amount": 0.0} for i in (key - 1, key)])
    sites.append("readings", [{"sensor": "attic", "value": 20.5}] * 2)


def is_frozen(worker: Worker) -> bool:
    return Path(f"/proc/{worker.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def test_f47_a_process_frozen_at_any_step_loses_and_doubles_nothing(
    spark: Any, replicated: Sites, workers: Callable[[], Worker]
) -> None:
    """At each freeze, another sender publishes everything, and another receiver applies it. The
    thawed process then publishes and applies nothing twice, acks and trims nothing too early, and
    holds no stream.
    """
    worker = workers()
    worker.send(folder=str(replicated.folder), do="both", freeze_at=" ".join(STEPS))
    frozen = 0
    for key in range(50, 100):
        change(replicated, key)
        wait_until(
            lambda: is_frozen(worker) or replicated.are_equal(), "the process freezes or goes on"
        )
        while is_frozen(worker):
            frozen += 1
            replicated.send(spark)
            replicated.apply(spark)
            replicated.assert_equal()
            os.kill(worker.pid, signal.SIGCONT)
        if frozen == len(STEPS):
            break
    assert frozen == len(STEPS)
    assert worker.answer()["running"]
    change(replicated, 100)
    wait_until(replicated.are_equal, "equal sites")
    wait_until(lambda: not worker.held(), "no hold")
    worker.send(do="stop")
    assert worker.answer() == {"held": [], "errors": []}
    replicated.assert_equal()
