"""Receivers killed with SIGKILL at the steps of an apply after which the next receiver finds
something else: one process, which works at as many pairs of sites as there are steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sites import Sites

from crash.processes import Killed

TABLES = ("orders", "readings")


@pytest.fixture(scope="module")
def killed(_waiting: Sites, killed_at: Callable[..., Killed]) -> Killed:
    """By step: killed while it applies a third epoch of each stream."""
    return killed_at(_waiting, do="receive")


def versions(sites: Sites) -> list[int]:
    return [sites.version(table) for table in TABLES]


def acked(sites: Sites) -> list[int]:
    return [sites.acked(table) for table in TABLES]


@pytest.mark.core
@pytest.mark.parametrize("step", ["apply.3"])
def test_f23_a_receiver_killed_before_the_table_commit_acks_nothing(
    spark: Any, _waiting: Sites, killed: Killed, step: str
) -> None:
    """Nothing is written or acked. The next receiver applies the epoch, in one commit per table.

    Fails when the receiver acks before it writes (after apply.3).
    """
    before, waiting = versions(_waiting), killed[step]
    assert versions(waiting) == before
    assert acked(waiting) == [2, 2]

    waiting.apply(spark)
    waiting.assert_equal()
    assert versions(waiting) == [version + 1 for version in before]
    assert acked(waiting) == [3, 3]


@pytest.mark.parametrize("step", ["apply.7"])
def test_f24_a_receiver_killed_before_its_ack_applies_nothing_twice(
    spark: Any, _waiting: Sites, killed: Killed, step: str
) -> None:
    """Table and ledger have the epoch, but the sender has no ack. The next receiver acks without
    another write.

    Fails when the plan starts from an empty progress instead of the ledger's.
    """
    before, waiting = versions(_waiting), killed[step]
    assert versions(waiting) != before
    assert 2 in acked(waiting)
    assert_applied_once_and_acked(spark, waiting, before)


@pytest.mark.core
@pytest.mark.parametrize("step", ["apply.6"])
def test_f25_a_receiver_killed_before_the_ledger_commit_applies_nothing_twice(
    spark: Any, _waiting: Sites, killed: Killed, step: str
) -> None:
    """The next receiver reads the missing mark from the table's commits, and does not apply the
    epoch again.

    Fails without the catch-up from marked commits in `Ledger.catch_up`.
    """
    before, waiting = versions(_waiting), killed[step]
    assert versions(waiting) != before
    assert 2 in acked(waiting)
    assert_applied_once_and_acked(spark, waiting, before)


def assert_applied_once_and_acked(spark: Any, sites: Sites, before: list[int]) -> None:
    sites.receive(spark)
    sites.assert_equal()
    assert versions(sites) == [version + 1 for version in before]
    assert acked(sites) == [3, 3]
