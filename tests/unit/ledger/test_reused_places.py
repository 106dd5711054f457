"""A table gets a new name in the topology, at a place that was written to under another name.

A new name is what many messages advise.
"""

from __future__ import annotations

from typing import Any

import pytest
from fakes import STREAM, Clock, LedgerRows, Target, publish
from ledgers import held, ledger, mark, target

from spark_wan.apply.applier import TableApplier
from spark_wan.errors import TableReplacedError
from spark_wan.ledger.interfaces import transaction_name
from spark_wan.ledger.ledger import Ledger
from spark_wan.log.stream_log import StreamLog
from spark_wan.steps import run
from spark_wan.wire.ledger import HistoryPosition, LedgerRow, decode_row, encode_row

OLD = {"table": "old_orders", "stream": "newark.east.old_orders", "table_id": "the source before"}


def used(empty: bool = False) -> tuple[Target, LedgerRows]:
    """A target with three applies of ``old_orders``, and the site's ledger of it."""
    store = LedgerRows()
    table = target(*(mark(number, **OLD) for number in (1, 2, 3)))
    Ledger("seattle", "old_orders", store, clock=Clock()).catch_up(table)
    table.empty = empty
    return table, store


def applier(table: Target, store: LedgerRows) -> TableApplier:
    log = StreamLog(table.channel, STREAM)
    return TableApplier("seattle", "orders", log, table, ledger(store))


def test_f54_a_new_name_at_an_emptied_place_is_applied() -> None:
    """Its apply numbers begin at 1 again.

    Fails when Delta's transactions lack the table's name: every write is skipped.
    """
    table, store = used(empty=True)
    publish(StreamLog(table.channel, STREAM), 1, 2)
    outcome = run(applier(table, store).round())
    assert (outcome.held, outcome.applied, table.written) == (None, 2, [[1, 2]])
    table.empty = False
    publish(StreamLog(table.channel, STREAM), 3)
    outcome = run(applier(table, store).round())
    assert (outcome.held, outcome.applied, table.written) == (None, 3, [[1, 2], [3]])


@pytest.mark.parametrize("known_by", ["history", "ledger"])
def test_f54_a_new_name_at_a_place_with_rows_of_another_is_held(known_by: str) -> None:
    """Rows that the source no longer has would stay.

    The marks in the history show it or, once log cleanup removed them, the ledger. Fails when marks
    of other names are ignored before the first apply.
    """
    table, store = used()
    if known_by == "history":
        store = LedgerRows()
    else:
        table.put(None, "OPTIMIZE")
        table.commits = table.commits[-1:]
    publish(StreamLog(table.channel, STREAM), 1)
    for _ in range(2):
        outcome = run(applier(table, store).round())
        assert outcome.held == 1
        assert "has rows that were applied as table old_orders at site seattle" in str(
            outcome.cause
        )
        assert "Empty it (DELETE FROM `orders`)" in str(outcome.cause)
    assert table.written == []
    table.empty = True
    assert run(applier(table, store).round()).held is None
    assert table.written == [[1]]


def test_f54_a_place_with_rows_of_another_site_is_held() -> None:
    """A folder that was copied from there, or a site that got another name."""
    table = target(mark(1, site="tacoma"))
    held(
        ledger(),
        table,
        TableReplacedError,
        "has rows that were applied as table orders at site tacoma",
    )


def test_existing_rows_without_marks_are_accepted() -> None:
    """The table exists without any mark: events are merged into it."""
    table = target()
    for _ in range(3):
        table.put(None)
    found = ledger()
    assert (found.catch_up(table), found.local_commits) == (1, 3)


@pytest.mark.parametrize("restarts", [False, True])
def test_two_names_at_one_place_are_held(restarts: bool) -> None:
    """Each would overwrite the other.

    Fails when marks of other names are ignored after the first own mark.
    """
    table, found = target(mark(1)), ledger()
    found.catch_up(table)
    table.put(mark(1, **OLD).user_metadata(), "MERGE")
    if restarts:
        found = ledger(found.store)  # type: ignore[arg-type]
    held(
        found,
        table,
        TableReplacedError,
        "version 2 at site seattle was applied as table old_orders.*share one place",
    )


def test_f25_a_lost_ledger_after_a_new_name_does_not_hold() -> None:
    """The old name's marks are before the new one's."""
    table, _ = used()
    table.put(None, "DELETE")
    table.put(mark(1).user_metadata(), "MERGE")
    assert ledger().catch_up(table) == 2


def test_a_write_skipped_by_delta_without_a_known_apply_holds_with_its_cause() -> None:
    """Ledger and history are lost, Delta's transaction is not, and its log is not readable.

    Fails when it counts as a conflict with other writers, or when a restored ledger is read only
    after a restart.
    """
    table, store = target(mark(1)), LedgerRows()
    table.log_is_readable = False
    table.put(None, "OPTIMIZE")
    table.commits = table.commits[-1:]
    (first,) = publish(StreamLog(table.channel, STREAM), 1)
    running = applier(table, store)
    outcome = run(running.round())
    assert outcome.held == 1
    assert "Delta skipped apply 1 at site seattle" in str(
        outcome.cause
    ) and "spark-wan sync" in str(outcome.cause)
    assert table.written == []
    store.rows.append(LedgerRow("target-1", 1, mark(1, fingerprint=first.fingerprint)))
    assert run(running.round()).applied == 1


def test_transaction_names_differ_by_site_table_and_target() -> None:
    names = {
        transaction_name(*each)
        for each in (("s", "t", "i"), ("r", "t", "i"), ("s", "u", "i"), ("s", "t", "j"))
    }
    assert len(names) == 4


def test_ledger_rows_survive_a_round_trip() -> None:
    """Version 1: a mark, or a position in the history."""
    rows: list[Any] = [LedgerRow("target-1", 7, mark(3)), HistoryPosition("target-1", 9, "abc@123")]
    written = [encode_row(row) for row in rows]
    assert written[1] == {
        "target_id": "target-1",
        "target_version": 9,
        "mark": '{"seen": "abc@123"}',
    }
    assert (written[0]["apply"], written[0]["token"]) == (3, "t3")
    assert [
        decode_row(row["target_id"], row["target_version"], row["mark"]) for row in written
    ] == rows
