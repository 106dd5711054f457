"""Receivers killed with SIGKILL at the steps of a copy: one process, which works at as many pairs
of sites as there are steps."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import pytest
from sites import SEATTLE, Sites

from crash.processes import Killed
from spark_wan.sync.request import request_copy

TABLES = ("orders", "readings")


@pytest.fixture(scope="module")
def killed(
    spark: Any,
    _replicated: Sites,
    killed_at: Callable[..., Killed],
    tmp_path_factory: pytest.TempPathFactory,
) -> Killed:
    """By step: killed while it takes copies of tables that seattle has lost."""
    sites = _replicated.copy(tmp_path_factory.mktemp("lost") / "wan")
    sites.change(50)
    for table in TABLES:
        shutil.rmtree(sites.path(table, SEATTLE))
        request_copy(sites.topology, table, SEATTLE)
    sites.send(spark)
    return killed_at(sites, do="receive")


@pytest.mark.parametrize("step", [f"take.{number}" for number in range(2, 8)])
def test_a_receiver_killed_while_it_takes_a_copy_takes_it_once(
    spark: Any, killed: Killed, step: str
) -> None:
    """One commit has the copy, whatever was written before. Fails when a copy that is in the table
    is written once more."""
    sites = killed[step]
    sites.apply(spark, rounds=3)
    sites.assert_equal()
    for table in TABLES:
        marked = [entry for entry in sites.history(table) if "replaced" in entry]
        assert len(marked) == 1
    sites.change(70)
    sites.replicate(spark)
    sites.assert_equal()
