"""A copy in parts, from asking for it to taking it, through channels of all kinds."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from sites import NEWARK, SEATTLE, Sites

from spark_wan.errors import StoppedError
from spark_wan.log.stream_log import StreamLog
from spark_wan.sender import serve
from spark_wan.sender.serve import CopyServer
from spark_wan.sync.request import request_copy
from spark_wan.topology.model import copy_name
from spark_wan.wire.manifest import Manifest

TABLES = ("orders", "readings")


def test_a_copy_in_parts_has_each_row_once(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With keys and without, from several files, one with a deletion vector. Between the parts the
    sender ends, and rows are deleted and added."""
    sites = Sites.make(tmp_path)
    sites.change(10)
    sites.replicate(spark)
    place = f"delta.`{sites.path('orders', NEWARK)}`"
    spark.sql(f"ALTER TABLE {place} SET TBLPROPERTIES (delta.enableDeletionVectors = true)")
    sites.upsert("orders", [{"id": n, "item": "x", "amount": 1.0} for n in range(2_000, 2_400)])
    spark.sql(f"DELETE FROM {place} WHERE id = 2007")
    for value in range(12):
        sites.append("readings", [{"sensor": f"of file {value}", "value": float(value)}])
    sites.replicate(spark)
    for table in TABLES:
        shutil.rmtree(sites.path(table, SEATTLE))
    monkeypatch.setattr(serve, "LARGE_BYTES", 0)
    for table in TABLES:
        request_copy(sites.topology, table, SEATTLE)
    with monkeypatch.context() as dies:
        dies.setattr(CopyServer, "_keep_to_rate", ended_after_two)
        with pytest.raises(StoppedError):
            sites.send(spark)
    version = sites.version("orders", NEWARK)
    spark.sql(f"DELETE FROM {place} WHERE id > 2300")
    sites.send(spark)
    for table in TABLES:
        log = StreamLog(sites.channel(), copy_name(sites.log(table).stream, SEATTLE))
        parts = [log.reread(epoch) for epoch in log.epochs()]
        assert [part.copy.part for part in parts if part.copy] == [1, 2, 3, 4]
        assert sum(part.rows for part in parts) == sum(sites.rows(table, NEWARK).values()) + (
            99 if table == "orders" else 0
        )
    assert {part.last_version for part in parts} == {sites.version("readings", NEWARK)}
    assert version < sites.version("orders", NEWARK)
    sites.apply(spark, rounds=3)
    sites.assert_equal()


def ended_after_two(server: CopyServer, part: Manifest, *_: Any) -> bool:
    assert part.copy is not None
    if part.copy.part == 2:
        raise StoppedError("the sender ends")
    return True
