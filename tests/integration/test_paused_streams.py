"""A stream is paused while its source is written to, and resumed: real tables, and jobs that know
nothing of each other but what is durable."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pair import Pair
from sites import NEWARK

from spark_wan.control.verbs import pause, resume
from spark_wan.status.reports import read_status


def test_b18_b19_f10_what_queues_in_a_pause_arrives_in_order_afterwards(
    spark: Any, tmp_path: Path
) -> None:
    """Also what was deleted again meanwhile, and where a sender is to stop, too. Fails when
    something of it is delivered, or lost."""
    pair = Pair.of(tmp_path / "wan", {"orders": {}, "prices": {}})
    for table in ("orders", "prices"):
        pair.make(spark, table, "id bigint, item string")
        pair.sql(spark, table, "INSERT INTO {t} VALUES (1, 'pear'), (2, 'plum')")
    pair.send(spark)
    pair.receive(spark)
    before = pair.hashes(spark, "orders")

    pause(pair.topology, NEWARK, table="orders")
    for table in ("orders", "prices"):
        pair.sql(spark, table, "INSERT INTO {t} VALUES (3, 'fig')")
        pair.sql(spark, table, "DELETE FROM {t} WHERE id = 1")
    pair.send(spark)
    assert max(pair.numbers("orders")) > 1  # it has queued
    pair.receive(spark)
    assert pair.hashes(spark, "orders") == before
    pair.assert_same(spark, "prices")
    [channel] = read_status(pair.topology)
    states = {stream.table: stream.sites[0].state for stream in channel.streams}
    assert states == {"orders": "paused", "prices": "up to date"}

    pause(pair.topology, NEWARK, table="orders", capture=True)
    queued = pair.numbers("orders")
    pair.sql(spark, "orders", "UPDATE {t} SET item = 'quince' WHERE id = 2")
    pair.send(spark)
    assert pair.numbers("orders") == queued

    resume(pair.topology, NEWARK)
    pair.send(spark)
    status = pair.receive(spark)["orders"]
    assert status.held is None
    pair.assert_same(spark, "orders")
