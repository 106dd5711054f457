"""Receivers killed with SIGKILL at each numbered step of an apply."""

from __future__ import annotations

from typing import Any

import pytest
from processes import Worker
from sites import Sites

TABLES = ("orders", "readings")


def versions(sites: Sites) -> list[int]:
    return [sites.version(table) for table in TABLES]


def acked(sites: Sites) -> list[int]:
    return [sites.acked(table) for table in TABLES]


@pytest.mark.parametrize("step", ["apply.1", "apply.2", "apply.3", "apply.4", "apply.5"])
def test_f23_killed_before_the_table_commit(
    spark: Any, waiting: Sites, worker: Worker, step: str
) -> None:
    """Nothing is written and nothing acked; the next receiver applies the epoch, in one commit a table.

    Taken out once: the place of the ack behind the write (given after apply.3).
    """
    before = versions(waiting)
    worker.killed_by(waiting, do="receive", crash_at=step)
    assert versions(waiting) == before
    assert acked(waiting) == [2, 2]

    waiting.apply(spark)
    waiting.assert_equal()
    assert versions(waiting) == [version + 1 for version in before]
    assert acked(waiting) == [3, 3]


def test_f24_killed_after_commit_before_ack(spark: Any, waiting: Sites, worker: Worker) -> None:
    """The rows are there and the ledger says so, the sender does not know it yet: the next receiver answers without writing again.

    Taken out once: the plan from the ledger (an empty progress instead).
    """
    before = versions(waiting)
    worker.killed_by(waiting, do="receive", crash_at="apply.7")
    assert versions(waiting) != before
    assert 2 in acked(waiting)
    _applied_once_and_acked(spark, waiting, before)


def test_f25_killed_between_table_commit_and_ledger_commit(
    spark: Any, waiting: Sites, worker: Worker
) -> None:
    """The ledger does not know what the table has: it is taken up from the marked commits, and not applied again.

    Taken out once: the catch-up from marked commits in `Ledger.catch_up`.
    """
    before = versions(waiting)
    worker.killed_by(waiting, do="receive", crash_at="apply.6")
    assert versions(waiting) != before
    assert 2 in acked(waiting)
    _applied_once_and_acked(spark, waiting, before)


def test_killed_after_the_ack(spark: Any, waiting: Sites, worker: Worker) -> None:
    """What was acked is durable: nothing is left to do for that table."""
    before = versions(waiting)
    worker.killed_by(waiting, do="receive", crash_at="apply.8")
    assert 3 in acked(waiting)
    for table, version, ack in zip(TABLES, before, acked(waiting), strict=True):
        if ack == 3:
            assert waiting.version(table) == version + 1
            waiting.assert_equal(table)
    _applied_once_and_acked(spark, waiting, before)


def _applied_once_and_acked(spark: Any, sites: Sites, before: list[int]) -> None:
    sites.receive(spark)
    sites.assert_equal()
    assert versions(sites) == [version + 1 for version in before]
    assert acked(sites) == [3, 3]
