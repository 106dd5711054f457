"""A site is drained, and a table is cut over at a version: real tables, and jobs that run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from delta.tables import DeltaTable
from pair import Pair
from sites import NEWARK, SEATTLE

from spark_wan.control.verbs import drain, resume, stop_at
from spark_wan.receiver.job import Receiver
from spark_wan.sender.job import Sender
from spark_wan.status.reports import read_status


def states(pair: Pair) -> dict[str, str]:
    [channel] = read_status(pair.topology)
    return {stream.table: stream.sites[0].state for stream in channel.streams}


def version(spark: Any, pair: Pair, table: str) -> int:
    history = DeltaTable.forPath(spark, pair.location(table)).history(1)
    return int(history.first()["version"])


def test_b19_b21_b25_a_drained_site_has_sent_all_and_sends_nothing_more(
    spark: Any, tmp_path: Path
) -> None:
    """Until it is resumed, also by jobs that start later. Fails when something is sent behind the
    end, or is lost."""
    pair = Pair.of(tmp_path / "wan", {"orders": {}, "prices": {}})
    tables = ("orders", "prices")
    for table in tables:
        pair.make(spark, table, "id bigint, item string")
        pair.sql(spark, table, "INSERT INTO {t} VALUES (1, 'pear'), (2, 'plum')")
    receiver = Receiver(spark, pair.topology, SEATTLE).start()
    sender = Sender(spark, pair.topology, NEWARK).start()
    try:
        for table in tables:
            pair.sql(spark, table, "INSERT INTO {t} VALUES (3, 'fig')")
            pair.sql(spark, table, "DELETE FROM {t} WHERE id = 1")
        ends = {table: version(spark, pair, table) for table in tables}
        answer = drain(pair.topology, NEWARK, timeout=300)
        assert answer.arrived, answer
        assert {each.table: each.version for each in answer.ends} == ends
        pair.assert_same(spark, *tables)
        drained = pair.hashes(spark, "orders")
    finally:
        sender.stop()
        receiver.stop()
    assert states(pair) == {"orders": "finished", "prices": "finished"}
    pair.sql(spark, "orders", "INSERT INTO {t} VALUES (4, 'quince')")
    epochs = pair.numbers("orders")
    pair.send(spark)
    pair.receive(spark)
    assert (pair.numbers("orders"), pair.hashes(spark, "orders")) == (epochs, drained)

    resume(pair.topology, NEWARK)
    pair.send(spark)
    pair.receive(spark)
    pair.assert_same(spark, *tables)
    assert states(pair) == {"orders": "up to date", "prices": "up to date"}


def test_b21_a_table_is_cut_over_at_a_version(spark: Any, tmp_path: Path) -> None:
    """What is committed behind it is not sent, though it was there before the sender ran."""
    pair = Pair.of(tmp_path / "wan", {"orders": {}})
    pair.make(spark, "orders", "id bigint, item string")
    for n in range(3):
        pair.sql(spark, "orders", f"INSERT INTO {{t}} VALUES ({n}, 'pear')")
    pair.send(spark)
    for n in range(3, 7):
        pair.sql(spark, "orders", f"INSERT INTO {{t}} VALUES ({n}, 'plum')")
    stop_at(pair.topology, NEWARK, 5, table="orders")
    pair.send(spark)
    status = pair.receive(spark)["orders"]
    assert status.held is None
    place = pair.location("orders")
    expected = spark.read.format("delta").option("versionAsOf", 5).load(place)
    there = spark.read.format("delta").load(pair.location("orders", SEATTLE))
    assert sorted(map(tuple, there.collect())) == sorted(map(tuple, expected.collect()))
    assert states(pair) == {"orders": "finished"}
    assert drain(pair.topology, NEWARK, table="orders", timeout=0).ends[0].version == 5
    pair.send(spark)  # a drain is of what was committed when it was asked for
    pair.receive(spark)
    pair.assert_same(spark, "orders")
