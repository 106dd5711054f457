"""Senders killed with SIGKILL at the steps of serving a copy: one process, which works at as many
pairs of sites as there are steps."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import pytest
from sites import SEATTLE, Sites

from crash.processes import Killed
from spark_wan.log.stream_log import StreamLog
from spark_wan.sync.request import request_copy
from spark_wan.topology.model import copy_name


@pytest.fixture(scope="module")
def killed(
    _replicated: Sites, killed_at: Callable[..., Killed], tmp_path_factory: pytest.TempPathFactory
) -> Killed:
    """By step: killed while it serves a copy, in four parts, of a table that seattle has lost."""
    sites = _replicated.copy(tmp_path_factory.mktemp("lost") / "wan")
    shutil.rmtree(sites.path("orders", SEATTLE))
    request_copy(sites.topology, "orders", SEATTLE)
    return killed_at(sites, do="send", tables=["orders"], in_parts=True)


@pytest.mark.parametrize(
    "step", ["copy.1", "copy.2", "copy.3", "copy.4", "copy.3:2", "copy.4:2", "copy.4:4"]
)
def test_a_sender_killed_while_it_serves_a_copy_serves_one(
    spark: Any, killed: Killed, step: str
) -> None:
    sites = killed[step]
    sites.send(spark)
    sites.apply(spark, rounds=3)
    sites.assert_equal("orders")
    sites.send(spark)
    name = copy_name(sites.log("orders").stream, SEATTLE)
    newest = StreamLog(sites.channel(), name).newest_manifest()
    assert newest is not None and newest.frames == ()
