"""Maintenance of the ledger killed with SIGKILL in the middle of a fold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sites import SEATTLE, Sites, at

import spark_wan
from crash.processes import Killed
from spark_wan.delta.sessions import CurrentSession
from spark_wan.ledger.folding import fold
from spark_wan.ledger.store import DeltaLedgerStore
from spark_wan.ledger.tables import LedgerTables
from spark_wan.steps import run
from spark_wan.wire.ledger import Summary


@pytest.fixture(scope="module")
def _applied(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Sites:
    """Three applies of five clicks each."""
    spark_wan.register(spark)
    sites = Sites.make(tmp_path_factory.mktemp("applied") / "wan")
    for first in (0, 5, 10):
        write(spark, sites, range(first, first + 5))
        sites.apply(spark, "events")
    return sites


def write(spark: Any, sites: Sites, numbers: range) -> None:
    """Add clicks to the source, and send all that it has."""
    sites.append(
        "clicks", [{"event": f"click {n}", "at": at(n), "page": f"/{n % 2}"} for n in numbers]
    )
    rows = spark.read.format("delta").load(str(sites.path("clicks")))
    sites.write_events("clicks", rows, eventTime="at")


@pytest.fixture(scope="module")
def folding(_applied: Sites, killed_at: Callable[..., Killed]) -> Killed:
    return killed_at(_applied, do="fold", table="clicks")


@pytest.mark.parametrize("step", ["fold.2"])
def test_a_fold_killed_after_it_renamed_event_ids_loses_none(
    spark: Any, folding: Killed, step: str
) -> None:
    """They have their range's token, and the marks are not folded yet. Events that are sent again
    are still recognised, and the next fold goes on.

    Fails when marks are deleted before the event IDs have their range's token.
    """
    sites = folding[step]
    write(spark, sites, range(15, 17))
    status = sites.apply(spark, "events")["clicks"]
    assert (status.duplicates, status.dead_letters) == (15, 0)
    sites.assert_equal("clicks")

    state = sites.topology.site(SEATTLE).state
    store = DeltaLedgerStore(LedgerTables(CurrentSession(spark), state))
    while run(fold(store, SEATTLE, "clicks", least=1)):
        pass
    [summary] = store.load("clicks")
    assert isinstance(summary, Summary) and (summary.apply, summary.claimed) == (4, False)
    write(spark, sites, range(17, 18))
    status = sites.apply(spark, "events")["clicks"]
    assert (status.duplicates, status.dead_letters) == (17, 0)
    sites.assert_equal("clicks")
