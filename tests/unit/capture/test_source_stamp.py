"""The stamp by which a source notices that its table was replaced while it is idle."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from capturing import delta_source, orders
from deltalake import write_deltalake

from spark_wan.capture import source as module
from spark_wan.capture.source import CHECK_INTERVAL


def make(place: Path) -> None:
    for number in range(2):
        write_deltalake(place, pa.table({"id": [number]}), mode="append")


@pytest.mark.parametrize("what", ["made again", "copied", "copied over", "put back"])
def test_a_table_that_may_have_been_replaced_has_another_stamp(tmp_path: Path, what: str) -> None:
    """Fails when only the number of versions is compared."""
    table, backup = tmp_path / "orders", tmp_path / "backup"
    make(table)
    source = delta_source(table=orders(f"file://{table}"))
    before = source.stamp(1)
    write_deltalake(table, pa.table({"id": [3]}), mode="append")
    assert before == source.stamp(1) != source.stamp(0)
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
    assert source.stamp(1) != before


@pytest.mark.parametrize("location", ["s3://lake/orders", "main.sales.orders", "/nowhere/orders"])
def test_a_table_without_local_log_has_another_stamp_each_hour(
    monkeypatch: pytest.MonkeyPatch, location: str
) -> None:
    now = 10 * CHECK_INTERVAL
    monkeypatch.setattr(module.time, "monotonic", lambda: now)
    source = delta_source(table=orders(location))
    before = source.stamp(1)
    now += CHECK_INTERVAL / 2
    assert source.stamp(1) == before is not None
    now += CHECK_INTERVAL
    assert source.stamp(1) != before
