"""Senders killed with SIGKILL at the steps of publishing and trimming after which the next sender
finds something else: one process, which works at as many pairs of sites as there are steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sites import Sites

from crash.processes import Killed
from spark_wan.steps import run

pytestmark = pytest.mark.core


@pytest.fixture(scope="module")
def killed(
    spark: Any,
    _replicated: Sites,
    killed_at: Callable[..., Killed],
    tmp_path_factory: pytest.TempPathFactory,
) -> Killed:
    """By step: killed while it trims two acked epochs of orders, or then publishes a fourth. The
    third has not arrived yet."""
    sites = _replicated.copy(tmp_path_factory.mktemp("changed") / "wan")
    sites.change(50)
    run(sites.publisher(spark, "orders").round())
    assert sites.numbers("orders") == [1, 2, 3]
    sites.change(70)
    return killed_at(sites, do="send", tables=["orders"])


@pytest.mark.parametrize("step", ["publish.4"])
def test_f01_f03_a_sender_killed_before_publish_loses_nothing(
    spark: Any, killed: Killed, step: str
) -> None:
    """The log is unchanged. The next sender publishes the same commits and names no orphaned frame.

    Fails when `Publisher.round` appends the manifest before the frames: the log then has the epoch
    of the killed sender. And without a new attempt ID in the names of frames: later frames replace
    earlier ones.
    """
    sites = killed[step]
    assert sites.numbers("orders")[-1] == 3
    orphans = sites.frames("orders") - sites.named_frames("orders")
    assert orphans

    sites.send(spark)
    assert sites.numbers("orders")[-1] == 4
    assert not sites.named_frames("orders") & orphans
    sites.apply(spark)
    sites.assert_equal()


@pytest.mark.parametrize("step", ["publish.5"])
def test_f02_a_sender_killed_after_publish_publishes_nothing_twice(
    spark: Any, killed: Killed, step: str
) -> None:
    """The epoch exists: the next sender continues after it, whatever its own checkpoint says.

    Fails when the sender's checkpoint decides, instead of the log, how far it has published.
    """
    sites = killed[step]
    assert sites.numbers("orders")[-1] == 4

    sites.send(spark)
    assert sites.numbers("orders")[-1] == 4
    sites.apply(spark)
    sites.assert_equal()
    assert sites.acked("orders") == 4


@pytest.mark.parametrize("step", ["acks.4"])
def test_an_ack_manager_killed_while_it_trims_trims_nothing_unacked(
    spark: Any, killed: Killed, step: str
) -> None:
    """Two epochs are acked and trimmed. The third stays readable, and is trimmed once it is acked.

    Fails when `AckManager.round` does not ask whether every site has acked the epoch, or leaves
    what the killed one has begun.
    """
    sites = killed[step]
    assert sites.numbers("orders") == [3]
    third = {frame.path for frame in sites.log("orders").read(3).frames}
    assert third and third == sites.frames("orders")

    sites.send(spark)
    sites.apply(spark)
    sites.assert_equal()
    sites.send(spark)
    assert sites.numbers("orders") == [4]
    assert not sites.frames("orders")
