"""The parts of a Delta table as a target that need no Spark."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from fakes import commit, manifest, memory_channel

import spark_wan.target.delta_table as target_module
from spark_wan.apply.change import Change
from spark_wan.apply.plan import PlannedEpoch
from spark_wan.delta.log_files import LogFiles
from spark_wan.delta.sessions import CurrentSession
from spark_wan.target.delta_table import DeltaTarget
from spark_wan.target.rows import EventRows
from spark_wan.target.write import MarkedWrite


def write_log(table: Path, version: int) -> Path:
    file = table / "_delta_log" / f"{version:020d}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"version {version}")
    return file


@pytest.fixture
def read_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[DeltaTarget, Path]:
    """A target with versions 0 and 1 whose history was read, and its folder."""
    table = tmp_path / "orders"
    for version in (0, 1):
        write_log(table, version)
    nothing: Any = CurrentSession()
    target = DeltaTarget(
        nothing, "seattle", "orders", str(table), channel=memory_channel(), ledger=nothing
    )
    assert not target.is_unchanged(1)
    monkeypatch.setattr(target_module, "history", lambda *_, **__: [commit(0), commit(1)])
    target.history(-1)
    return target, table


def test_a_target_is_unchanged_until_its_log_grows(read_target: tuple[DeltaTarget, Path]) -> None:
    target, table = read_target
    assert target.is_unchanged(1)
    assert not target.is_unchanged(0)
    write_log(table, 2)
    assert not target.is_unchanged(1)


def test_a_restored_target_is_not_unchanged(read_target: tuple[DeltaTarget, Path]) -> None:
    """Fails when only the name of the log's file is compared."""
    target, table = read_target
    copied = table.with_name("copied")
    shutil.copytree(table, copied)
    shutil.rmtree(table)
    assert not target.is_unchanged(1)
    os.rename(copied, table)
    assert not target.is_unchanged(1)


def test_a_target_whose_log_cannot_be_seen_never_counts_as_unchanged(
    read_target: tuple[DeltaTarget, Path],
) -> None:
    target, _ = read_target
    target._log_files = LogFiles("main.sales.orders")
    target.history(-1)
    assert not target.is_unchanged(1)


def test_the_transaction_names_the_target_when_another_stream_caught_up_the_ledger(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A second stream of the table finds the ledger caught up.

    Without the ID, the writes of two receivers would not exclude each other.
    """
    nothing: Any = CurrentSession()
    target = DeltaTarget(
        nothing, "seattle", "orders", "/orders", channel=memory_channel(), ledger=nothing
    )
    transactions: list[str] = []
    monkeypatch.setattr(target_module, "table_id", lambda *_: "0123-4567")
    monkeypatch.setattr(
        MarkedWrite, "merge", lambda write, *_: transactions.append(write.transaction)
    )
    rows = EventRows(nothing, ["id"], ("id",))
    target.write(Change([PlannedEpoch(manifest(), -1)], rows), nothing)
    assert transactions == ["spark_wan/seattle/orders/0123-4567"]
