"""Killed with SIGKILL while a backup is made and adopted: one process, which works at as many pairs
of sites as there are steps."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import pytest
from sites import NEWARK, SEATTLE, Sites

from crash.processes import Killed
from spark_wan import adopt_backup, make_backup
from spark_wan.errors import BackupError

BACKUP = [f"backup.{number}" for number in range(1, 5)]
ADOPT = ["adopt.1", *(f"take.{number}" for number in range(2, 8)), "adopt.8"]


@pytest.fixture(scope="module")
def killed(
    spark: Any,
    _replicated: Sites,
    killed_at: Callable[..., Killed],
    tmp_path_factory: pytest.TempPathFactory,
) -> Killed:
    """By step: killed while the table that seattle has lost is carried there."""
    sites = _replicated.copy(tmp_path_factory.mktemp("carried") / "wan")
    sites.change(50)
    sites.send(spark)
    shutil.rmtree(sites.path("orders", SEATTLE))
    return killed_at(sites, do="carry", table="orders")


@pytest.mark.parametrize("step", [*BACKUP, *ADOPT])
def test_a_process_that_is_killed_changes_all_or_nothing(
    spark: Any, killed: Killed, step: str
) -> None:
    """A backup without its certificate is none, and one is adopted in one commit, however often it
    is begun. Fails when a backup that is in the table is written once more."""
    sites, place = killed[step], killed[step].folder / "disk"
    if step in BACKUP[:-1]:
        with pytest.raises(BackupError, match="no backup at this place"):
            adopt_backup(spark, sites.topology, "orders", SEATTLE, str(place))
        assert not sites.path("orders", SEATTLE).exists()
        place = sites.folder / "another disk"
        make_backup(spark, sites.topology, "orders", NEWARK, str(place))
    adopt_backup(spark, sites.topology, "orders", SEATTLE, str(place))
    sites.apply(spark)
    sites.assert_equal()
    assert sum("replaced" in entry for entry in sites.history("orders")) == 1
    sites.change(70)
    sites.replicate(spark)
    sites.assert_equal()
