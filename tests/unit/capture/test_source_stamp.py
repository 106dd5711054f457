"""By what a source is recognised while nothing is written to it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from fakes import memory_channel

from spark_wan.capture import source
from spark_wan.capture.source import CHECK_INTERVAL, DeltaSource
from spark_wan.channels.batches import BatchLimits


def source_at(location: str) -> DeltaSource:
    nothing: Any = None
    return DeltaSource(
        nothing, "orders", location, ("id",), memory_channel(), BatchLimits(1_000, 1 << 20), nothing
    )


def make(place: Path) -> None:
    for number in range(2):
        write_deltalake(place, pa.table({"id": [number]}), mode="append")


@pytest.mark.parametrize("what", ["made again", "copied", "copied over", "put back"])
def test_a_table_that_may_be_another_one_has_another_stamp(tmp_path: Path, what: str) -> None:
    """Fails when the number of versions is all that is compared."""
    table, backup = tmp_path / "orders", tmp_path / "backup"
    make(table)
    orders = source_at(f"file://{table}")
    before = orders.stamp(1)
    write_deltalake(table, pa.table({"id": [3]}), mode="append")
    assert before == orders.stamp(1) != orders.stamp(0)
    shutil.copytree(table, backup)
    if what == "copied over":  # the same file, its size and its time of change
        shutil.copytree(backup, table, dirs_exist_ok=True)
    else:
        shutil.rmtree(table)
    if what == "made again":
        make(table)
    elif what == "copied":
        shutil.copytree(backup, table)
    elif what == "put back":
        os.rename(backup, table)
    assert orders.stamp(1) != before


@pytest.mark.parametrize("location", ["s3://lake/orders", "main.sales.orders", "/nowhere/orders"])
def test_a_table_whose_log_cannot_be_seen_has_another_stamp_each_hour(
    monkeypatch: pytest.MonkeyPatch, location: str
) -> None:
    now = 10 * CHECK_INTERVAL
    monkeypatch.setattr(source.time, "monotonic", lambda: now)
    orders = source_at(location)
    before = orders.stamp(1)
    now += CHECK_INTERVAL / 2
    assert orders.stamp(1) == before is not None
    now += CHECK_INTERVAL
    assert orders.stamp(1) != before
