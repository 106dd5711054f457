"""Marks of several tables that get to the ledger together. Targets are lists of commits."""

from __future__ import annotations

from typing import Any

import pytest
from fakes import memory_channel
from inline import Inbound, Woken, turns
from receivers import SPARK, acked, receiver, send

from spark_wan.channels.base import Channel
from spark_wan.errors import LedgerError
from spark_wan.ledger import writer as module
from spark_wan.ledger.writer import LONGEST_WAIT, POLL_INTERVAL, LedgerWriter
from spark_wan.runtime.scheduler import Found, Lane, Next, Turn

TABLES = ("orders", "readings")


class Here:
    """A receiver, its writer, and the commits that the writer has made."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.channel: Channel = memory_channel()
        self.inbound: Inbound = receiver(self.channel)
        scheduler: Any = Woken()
        self.woken, self.writer = scheduler, LedgerWriter("/seattle", scheduler)
        self.commits: list[list[str]] = []
        self.error: Exception | None = None
        here = self

        class Store:
            def __init__(self, tables: Any) -> None: ...

            def append_all(self, rows: Any) -> None:
                if here.error is not None:
                    raise here.error
                here.commits.append([table for table, _ in rows])
                for table, row in rows:
                    here.rows(table).append(row)

        monkeypatch.setattr(module, "DeltaLedgerStore", Store)

    def table(self, name: str) -> Any:
        table: Any = self.inbound.tables.get(name)
        table.writer = self.writer
        return table

    def rows(self, name: str) -> list[Any]:
        """What is in the store of a table's ledger."""
        rows: list[Any] = self.table(name)._ledger.store.rows
        return rows

    def apply(self, *numbers: int) -> None:
        """Send epochs, and have each table do what it can."""
        for name in TABLES:
            self.table(name)
            send(self.channel, name, *numbers)
        self.inbound.apply(SPARK)

    def acked(self) -> list[int]:
        return [acked(self.channel, name) for name in TABLES]

    def go_on(self) -> None:
        """Give the tables that were woken their turn."""
        while self.woken.woken:
            activity = self.woken.woken.pop(0)
            if activity is not self.writer:
                turns(activity, SPARK)
                turns(activity, SPARK)  # for what has come meanwhile


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Here:
    return Here(monkeypatch)


def work(turn: Turn) -> Turn:
    assert isinstance(turn, Found) and turn.first and turn.lane is Lane.TABLES
    return turn.work(SPARK)


def test_marks_of_several_tables_are_one_commit_and_acks_follow_it(here: Here) -> None:
    """Fails when an ack does not wait until the mark is durable."""
    here.apply(1)
    assert here.acked() == [0, 0] and [here.rows(name) for name in TABLES] == [[], []]
    assert here.writer in here.woken.woken
    work(here.writer.look(SPARK))
    assert here.commits == [list(TABLES)] and here.acked() == [0, 0]
    here.go_on()
    assert here.acked() == [1, 1] and [len(here.rows(name)) for name in TABLES] == [1, 1]
    assert here.writer.look(SPARK) == Next(3_600.0)


def test_a_table_begins_nothing_while_its_mark_waits(here: Here) -> None:
    """Fails when the next apply begins: its number would not be in the ledger."""
    here.apply(1)
    here.apply(2)
    assert [len(here.table(name).target.commits) for name in TABLES] == [2, 2]
    assert here.acked() == [0, 0]
    work(here.writer.look(SPARK))
    here.go_on()
    work(here.writer.look(SPARK))
    here.go_on()
    assert here.acked() == [2, 2] and here.commits == [list(TABLES), list(TABLES)]
    assert [row.mark.apply for row in here.rows("orders")] == [1, 2]


def test_marks_wait_for_others_only_while_workers_are_busy(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fails when a table that is alone waits, or when one among many waits for ever."""
    here.woken.is_busy = True
    here.apply(1)
    assert here.writer.look(SPARK) == Next(POLL_INTERVAL)
    here.woken.is_busy = False
    assert isinstance(here.writer.look(SPARK), Found)
    here.woken.is_busy = True
    now = here.writer._since + LONGEST_WAIT
    monkeypatch.setattr(module.time, "monotonic", lambda: now)
    assert isinstance(here.writer.look(SPARK), Found)


def test_a_commit_that_fails_is_tried_by_each_table_alone(here: Here) -> None:
    """Fails when the tables are not woken, or when they take their marks for written."""
    here.apply(1)
    here.error = LedgerError("the disk is full")
    work(here.writer.look(SPARK))
    here.go_on()
    assert here.commits == [] and here.acked() == [1, 1]
    assert [len(here.rows(name)) for name in TABLES] == [1, 1]


def test_a_table_whose_ledger_cannot_be_written_is_held(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And takes its marks up again once it can. Fails when its next apply acks without them."""
    here.apply(1)
    here.error = LedgerError("the disk is full")
    orders = here.table("orders")
    store = orders._ledger.store

    def fail(*_: object) -> None:
        raise LedgerError("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(store, "append", fail)
        work(here.writer.look(SPARK))
        here.go_on()
    assert here.acked() == [0, 1]
    assert here.inbound.held()["orders"] == "the disk is full"
    here.error = None
    here.inbound.retry(SPARK)
    if here.writer.has(orders):
        work(here.writer.look(SPARK))
        here.go_on()
    assert here.acked() == [1, 1] and len(store.rows) == 1
    assert len(orders.target.commits) == 2
