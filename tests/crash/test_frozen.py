"""Senders and receivers frozen (SIGSTOP) at each numbered step and inside an append, overtaken by
others, then thawed.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from sites import NEWARK, Sites
from waiting import wait_until

from crash.processes import Worker

TABLES = ("orders", "readings")


def change(sites: Sites, key: int) -> None:
    """Make a commit to both tables: an update and an insert; equal rows in the keyless one."""
    sites.upsert("orders", [{"id": i, "item": "new", "amount": 0.0} for i in (key - 1, key)])
    sites.append("readings", [{"sensor": "attic", "value": 20.5}] * 2)


def is_frozen(worker: Worker) -> bool:
    return Path(f"/proc/{worker.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def all_is_applied(sites: Sites) -> bool:
    return all(sites.acked(t) == sites.numbers(t)[-1] for t in TABLES) and sites.are_equal()


def all_is_published(sites: Sites) -> bool:
    newest = [sites.log(table).newest_manifest() for table in TABLES]
    return all(
        last is not None and last.last_version == sites.version(table, NEWARK)
        for table, last in zip(TABLES, newest, strict=True)
    )


def test_f47_a_receiver_frozen_at_any_step_applies_nothing_twice(
    spark: Any, replicated: Sites, worker: Worker
) -> None:
    """At each freeze, another receiver applies everything. Nothing is applied twice or acked too
    early, and no stream is held.
    """
    steps = [f"apply.{n}" for n in range(1, 9)]
    worker.send(folder=str(replicated.folder), do="receive", freeze_at=" ".join(steps))
    for n in range(len(steps)):
        change(replicated, 50 + n)
        replicated.send(spark)
        wait_until(lambda: is_frozen(worker), f"freeze {n + 1}")
        replicated.apply(spark)
        os.kill(worker.pid, signal.SIGCONT)
    wait_until(lambda: all_is_applied(replicated), "equal sites")
    replicated.assert_equal()


def test_f47_a_sender_frozen_at_any_step_loses_and_doubles_nothing(
    spark: Any, replicated: Sites, worker: Worker
) -> None:
    """At each freeze, another sender publishes everything. Epochs are applied in between, so that
    the frozen sender also trims and is frozen there.
    """
    steps = {f"publish.{n}" for n in range(1, 7)} | {f"acks.{n}" for n in range(1, 5)}
    worker.send(folder=str(replicated.folder), do="send", freeze_at=" ".join(steps))
    frozen = 0
    for key in range(50, 100):
        change(replicated, key)
        wait_until(
            lambda: is_frozen(worker) or all_is_published(replicated),
            "the sender publishes or freezes",
        )
        while is_frozen(worker):
            frozen += 1
            replicated.send(spark)
            os.kill(worker.pid, signal.SIGCONT)
            wait_until(
                lambda: is_frozen(worker) or all_is_published(replicated),
                "the thawed sender continues",
            )
        if frozen == len(steps):
            break
        replicated.apply(spark)
    assert frozen == len(steps)
    worker.end()
    replicated.send(spark)
    replicated.apply(spark)
    replicated.assert_equal()


def test_f47_a_sender_frozen_inside_an_append_leaves_no_manifest(
    spark: Any, replicated: Sites, worker: Worker
) -> None:
    """Another sender appends that epoch; it is acked and trimmed before the frozen write completes.
    The late manifest is removed, and no stream is held.

    Fails without `StreamLog._counts`, at the last comparison of the log with the listing.
    """
    worker.send(folder=str(replicated.folder), do="send", tables=["orders"], freeze_in_append=True)
    change(replicated, 50)
    wait_until(lambda: is_frozen(worker), "the freeze")
    for key in (60, 70, 80):
        change(replicated, key)
        replicated.send(spark)
        replicated.apply(spark)
    replicated.send(spark)  # trims the acked epochs
    before = replicated.numbers("orders")
    os.kill(worker.pid, signal.SIGCONT)
    change(replicated, 90)
    wait_until(lambda: replicated.numbers("orders")[-1] > before[-1], "the thawed sender continues")
    worker.end()
    log = replicated.log("orders")
    assert log.channel.stream_epochs(log.stream) == log.since(0)
    replicated.send(spark)
    status = replicated.apply(spark)
    assert [status[table].held for table in TABLES] == [None, None]
    replicated.assert_equal()
