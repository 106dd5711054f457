"""Senders killed with SIGKILL at each numbered step of publishing and of trimming: one process,
which works at as many pairs of sites as there are steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sites import Sites

from crash.processes import Killed, Worker
from spark_wan.steps import run

TABLES = ("orders", "readings")
BEFORE = ["publish.1", "publish.2", "publish.3", "publish.4"]
AFTER = ["publish.5", "publish.6"]
TRIMMING = ["acks.1", "acks.2", "acks.3:2", "acks.4"]


@pytest.fixture(scope="module")
def publishing(
    _replicated: Sites, killed_at: Callable[..., Killed], tmp_path_factory: pytest.TempPathFactory
) -> Killed:
    """By step: killed while it publishes a third epoch of each stream."""
    sites = _replicated.copy(tmp_path_factory.mktemp("changed") / "wan")
    sites.change(50)
    return killed_at(BEFORE + AFTER, sites, do="send")


@pytest.fixture(scope="module")
def trimming(
    spark: Any,
    _replicated: Sites,
    killed_at: Callable[..., Killed],
    tmp_path_factory: pytest.TempPathFactory,
) -> Killed:
    """By step: killed while it trims two acked epochs, and announces a third one again."""
    sites = _replicated.copy(tmp_path_factory.mktemp("published") / "wan")
    sites.write_topology(ack_timeout="1ms")
    sites.change(50)
    run(sites.publisher(spark, "orders").round())
    assert sites.numbers("orders") == [1, 2, 3]
    return killed_at(TRIMMING, sites, do="send", tables=["orders"])


@pytest.mark.parametrize("step", BEFORE)
def test_f01_a_sender_killed_before_publish_loses_nothing(
    spark: Any, publishing: Killed, step: str
) -> None:
    """The log is unchanged. The next sender publishes the same commits and names no orphaned frame.

    Fails when `Publisher.round` appends the manifest before the frames: the log then has the epoch
    of the killed sender.
    """
    replicated = publishing[step]
    assert [replicated.numbers(table)[-1] for table in TABLES] == [2, 2]
    orphans = {table: replicated.frames(table) - replicated.named_frames(table) for table in TABLES}
    assert any(orphans.values()) or step != "publish.4"

    replicated.send(spark)
    assert [replicated.numbers(table)[-1] for table in TABLES] == [3, 3]
    assert not any(replicated.named_frames(table) & orphans[table] for table in TABLES)
    replicated.apply(spark)
    replicated.assert_equal()


@pytest.mark.parametrize("step", AFTER)
def test_f02_a_sender_killed_after_publish_publishes_nothing_twice(
    spark: Any, publishing: Killed, step: str
) -> None:
    """The epoch exists: the next sender continues after it, whatever its own checkpoint says.

    Fails when the sender's checkpoint decides, instead of the log, how far it has published.
    """
    replicated = publishing[step]
    assert 3 in [replicated.numbers(table)[-1] for table in TABLES]

    replicated.send(spark)
    assert [replicated.numbers(table)[-1] for table in TABLES] == [3, 3]
    replicated.apply(spark)
    replicated.assert_equal()
    assert [replicated.acked(table) for table in TABLES] == [3, 3]


def test_f03_frames_of_a_sender_killed_mid_batch_are_never_named(
    spark: Any, replicated: Sites, worker: Worker
) -> None:
    """Driver and JVM die while a task writes the frames of an epoch.

    Fails without a new attempt ID in the names of frames: later frames replace earlier ones, and
    rows are missing.
    """
    replicated.write_topology(batch_size=3)
    replicated.change(50)
    worker.killed_by(replicated, do="send", crash_at_frame=1, tables=["orders"])
    half = replicated.frames("orders") - replicated.named_frames("orders")
    assert half
    assert replicated.numbers("orders")[-1] == 2

    replicated.send(spark)
    assert not half & replicated.named_frames("orders")
    replicated.apply(spark)
    replicated.assert_equal()


@pytest.mark.parametrize("step", TRIMMING)
def test_an_ack_manager_killed_at_any_step_trims_nothing_unacked(
    spark: Any, trimming: Killed, step: str
) -> None:
    """Two epochs are acked and may be trimmed. The third stays readable, is re-announced, and is
    trimmed once it is acked.

    Fails when `AckManager.round` does not ask whether every site has acked the epoch, or leaves
    what the killed one has begun.
    """
    replicated = trimming[step]
    log = replicated.log("orders")
    assert replicated.numbers("orders")[-1] == 3
    assert {frame.path for frame in log.read(3).frames} <= replicated.frames("orders")
    assert log.channel.announced(log.stream) == ((3, 1) if step == "acks.3:2" else None)

    replicated.send(spark)
    replicated.apply(spark)
    replicated.assert_equal()
    replicated.send(spark)
    assert [replicated.numbers(table) for table in TABLES] == [[3], [3]]
    assert not replicated.frames("orders")
