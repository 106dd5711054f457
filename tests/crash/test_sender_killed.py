"""Senders killed with SIGKILL at each numbered step of publishing and of keeping the channel."""

from __future__ import annotations

from typing import Any

import pytest
from processes import Worker
from sites import Sites

TABLES = ("orders", "readings")


@pytest.mark.parametrize("step", ["publish.1", "publish.2", "publish.3", "publish.4"])
def test_f01_killed_before_publish(
    spark: Any, replicated: Sites, worker: Worker, step: str
) -> None:
    """Nothing is in the log, nothing is lost: the next sender publishes the same commits, and never names an orphaned frame.

    Taken out once: frames before manifest in `Publisher.round` (the manifest added first): the log had the epoch of the killed sender.
    """
    replicated.change(50)
    worker.killed_by(replicated, do="send", crash_at=step)
    assert [replicated.numbers(table) for table in TABLES] == [[1, 2], [1, 2]]
    orphans = {table: replicated.frames(table) - replicated.named_frames(table) for table in TABLES}
    assert any(orphans.values()) or step != "publish.4"

    replicated.send(spark)
    assert [replicated.numbers(table)[-1] for table in TABLES] == [3, 3]
    assert not any(replicated.named_frames(table) & orphans[table] for table in TABLES)
    replicated.apply(spark)
    replicated.assert_equal()


@pytest.mark.parametrize("step", ["publish.5", "publish.6"])
def test_f02_killed_after_publish_before_its_checkpoint(
    spark: Any, replicated: Sites, worker: Worker, step: str
) -> None:
    """The epoch exists: the next sender goes on behind it, whatever its own checkpoint says.

    Taken out once: that the log says how far it is (the sender's checkpoint did).
    """
    replicated.change(50)
    worker.killed_by(replicated, do="send", crash_at=step)
    published = {table: replicated.numbers(table) for table in TABLES}
    assert [1, 2, 3] in published.values()

    replicated.send(spark)
    assert [replicated.numbers(table)[-1] for table in TABLES] == [3, 3]
    replicated.apply(spark)
    replicated.assert_equal()
    assert [replicated.acked(table) for table in TABLES] == [3, 3]


def test_f03_killed_mid_batch(spark: Any, replicated: Sites, worker: Worker) -> None:
    """Driver and JVM die while a task writes the frames of an epoch: some are there, none is ever named.

    Taken out once: the fresh attempt in the names of frames: later frames took the places of earlier ones, and rows were missing.
    """
    replicated.write_topology(batch_size=3)
    replicated.change(50)
    worker.killed_by(replicated, do="send", crash_at_frame=1, tables=["orders"])
    half = replicated.frames("orders") - replicated.named_frames("orders")
    assert half
    assert replicated.numbers("orders") == [1, 2]

    replicated.send(spark)
    assert not half & replicated.named_frames("orders")
    replicated.apply(spark)
    replicated.assert_equal()


@pytest.mark.parametrize("step", ["acks.1", "acks.2", "acks.3:2", "acks.4", "acks.5"])
def test_the_ack_manager_is_killed_at_each_of_its_steps(
    spark: Any, replicated: Sites, worker: Worker, step: str
) -> None:
    """Two epochs are acked and may go, the third is not: it stays readable, is announced again, and goes once it is acked.

    Taken out once: the order of frames and manifest in `AckManager.round`, and the question whether every site has an epoch.
    """
    replicated.write_topology(ack_timeout="1ms")
    replicated.change(50)
    worker.killed_by(replicated, do="send", crash_at=step, tables=["orders"])
    log = replicated.log("orders")
    assert replicated.numbers("orders")[-1] == 3
    assert {frame.path for frame in log.read(3).frames} <= replicated.frames("orders")
    assert log.channel.announcements().get(log.stream, []) == (
        [(3, 1)] if step == "acks.3:2" else []
    )

    replicated.send(spark)
    replicated.apply(spark)
    replicated.assert_equal()
    replicated.send(spark)
    assert [replicated.numbers(table) for table in TABLES] == [[3], [3]]
    assert not replicated.frames("orders")
