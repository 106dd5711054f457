"""Two senders on one checkpoint, two receivers at one site, at the same time."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from deltalake import DeltaTable
from sites import SEATTLE, Sites
from waiting import wait_until

from crash.processes import Worker
from spark_wan.steps import Steps, run
from spark_wan.wire.mark import Mark

TABLES = ("orders", "readings")


def until(steps: Steps[Any], name: str) -> None:
    """Run numbered steps through the one called ``name``."""
    while next(steps).split()[0] != name:
        pass


def marks(sites: Sites, table: str) -> list[Mark]:
    """Return the marks of a target's commits, oldest first."""
    history = DeltaTable(sites.path(table, SEATTLE)).history()
    marks_or_none = [Mark.read(commit.get("userMetadata"), SEATTLE, table) for commit in history]
    return [mark for mark in reversed(marks_or_none) if mark is not None]


def test_f08_two_senders_and_two_receivers_apply_each_epoch_once(
    replicated: Sites, workers: Callable[[], Worker]
) -> None:
    """Two processes send and receive on the same checkpoints while the source is written. Each
    commit is in one epoch, and each epoch takes effect once.

    Fails without create-if-absent and transaction numbers together.
    """
    pair = [workers(), workers()]
    for worker in pair:
        worker.send(folder=str(replicated.folder), do="both")
    assert all(worker.answer()["running"] for worker in pair)
    for start in (50, 70):
        replicated.change(start)
        wait_until(
            lambda: (
                all(replicated.acked(t) == replicated.numbers(t)[-1] for t in TABLES)
                and replicated.are_equal()
            ),
            "equal sites",
        )
    # The loser of a race may hold a stream until its next retry.
    wait_until(lambda: not any(worker.held() for worker in pair), "no hold")
    for worker in pair:
        worker.send(do="stop")
    for worker in pair:
        answer = worker.answer()
        assert answer["held"] == []
        # When two queries share a checkpoint, Spark ends one of them; what it has applied counts.
        assert all("CONCURRENT_STREAM_LOG_UPDATE" in error for error in answer["errors"]), answer
    replicated.assert_equal()
    for table in TABLES:
        log = replicated.log(table)
        ranges = [(m.first_version, m.last_version) for m in map(log.read, log.since(0))]
        assert all(after[0] == before[1] + 1 for before, after in pairwise(ranges))
        applies = [mark.apply for mark in marks(replicated, table)]
        assert applies == list(range(1, len(applies) + 1))


@pytest.mark.core
def test_f08_a_receiver_that_loses_the_race_writes_nothing(spark: Any, waiting: Sites) -> None:
    """A receiver is about to write when another one writes the same epoch under the same apply
    number. Delta accepts one of the writes, and the loser plans again.

    Fails without the transaction number of the append.
    """
    version = waiting.version("readings")
    slow = waiting.applier(spark, "readings").round()
    until(slow, "apply.5")
    assert run(waiting.applier(spark, "readings").round()).applied == 3
    outcome = run(slow)
    assert (outcome.applied, outcome.held) == (3, None)
    assert waiting.version("readings") == version + 1
    waiting.assert_equal("readings")
    assert [mark.apply for mark in marks(waiting, "readings")] == [1, 2]
