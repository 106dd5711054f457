"""Tables with odd names, unreadable files, and a table that is a target in one topology and a
source in another.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from inline import inbound_of
from pair import Pair
from sites import NEWARK, SEATTLE

from spark_wan import Sender, load_topology
from spark_wan.delta.sessions import CurrentSession
from spark_wan.delta.sql import reference
from spark_wan.delta.tables import load, table_id
from spark_wan.errors import WanError
from spark_wan.ledger.tables import LedgerTables
from spark_wan.receiver.job import Receiver
from spark_wan.topology.values import catalog_parts
from spark_wan.wire.decisions import Decisions

ODD = [
    "main.`my schema`.`t.1`",
    "`a.b`.`c``d`.e",
    "`a-b`.`c/d`",
    "x.`.hidden`",
    "x.````",
    "`select`.`1st`",
    "größe.`ÄÖ ü`",
]


SECOND_TOPOLOGY = """
version: 1
sites: {seattle: {state: ./seattle/_wan}, tacoma: {state: ./tacoma/_wan}}
senders: {next: {site: seattle, remotes: [tacoma], channel: ./channel-next}}
tables:
  orders:
    keys: [id]
    writers: [seattle]
    senders: [next]
    at: {seattle: ./seattle/orders, tacoma: ./tacoma/orders}
"""


@pytest.mark.parametrize("name", ODD)
def test_an_odd_name_has_the_same_parts_in_spark(spark: Any, name: str) -> None:
    """As SQL text and as the user wrote it. Spark's own catalog has no tables of these names."""
    parser = spark._jsparkSession.sessionState().sqlParser()
    parts = parser.parseMultipartIdentifier(reference(name))
    assert tuple(parts.apply(place) for place in range(parts.length())) == catalog_parts(name)
    assert table_id(spark, "default.`t.1`") is None


def test_tables_with_odd_names_in_the_catalog_are_replicated(spark: Any, tmp_path: Path) -> None:
    """Keywords, leading digits, capitals, with and without backticks and catalog: history, feed,
    snapshot, CREATE, MERGE, append, added columns.
    """
    pair = Pair.of(
        tmp_path / "wan",
        {
            "orders": {
                "at": {NEWARK: "default.`1st_orders`", SEATTLE: "`spark_catalog`.default.`select`"}
            },
            "readings": {"keys": [], "at": {NEWARK: "`default`.`From`", SEATTLE: "default.`2`"}},
        },
    )
    tables = ("orders", "readings")
    try:
        for table in tables:
            pair.make(spark, table, "id bigint, item string")
            pair.sql(spark, table, "INSERT INTO {t} SELECT id, 'item' FROM range(10)")
        pair.replicate(spark)
        pair.assert_same(spark, *tables)
        pair.sql(spark, "orders", "UPDATE {t} SET item = 'changed' WHERE id > 5")
        for table in tables:
            pair.sql(spark, table, "ALTER TABLE {t} ADD COLUMNS (more int)")
            pair.sql(spark, table, "INSERT INTO {t} VALUES (10, 'new', 1)")
        pair.replicate(spark)
        pair.assert_same(spark, *tables)
    finally:
        for table in tables:
            for site in (NEWARK, SEATTLE):
                spark.sql(f"DROP TABLE IF EXISTS {pair.name(table, site)}")


def test_f09_an_unreadable_source_file_is_not_taken_for_a_deleted_one(
    spark: Any, tmp_path: Path
) -> None:
    """Damaged, or a directory in its place: the stream waits, and continues once the file is
    restored. (Deleted: the remote site gets a copy, see test_resync.py.)
    """
    pair = Pair.of(tmp_path / "wan", {"orders": {}})
    pair.make(spark, "orders", "id bigint, item string")
    pair.sql(spark, "orders", "INSERT INTO {t} SELECT id, 'item' FROM range(4)")
    pair.replicate(spark)
    pair.sql(spark, "orders", "UPDATE {t} SET item = 'changed' WHERE id = 2")
    (file,) = (pair.path("orders") / "_change_data").glob("*.parquet")
    checksum, kept = file.with_name(f".{file.name}.crc"), file.read_bytes()
    checksum.unlink()

    file.write_bytes(kept[: len(kept) // 2])
    with pytest.raises(
        WanError, match=r"orders: files of the table at .* cannot be read now .*waits and retries"
    ):
        pair.send(spark)
    file.unlink()
    file.mkdir()
    with pytest.raises(WanError, match=r"cannot be read now .*waits and retries"):
        pair.send(spark)
    file.rmdir()
    file.write_bytes(kept)
    pair.replicate(spark)
    pair.assert_same(spark, "orders")


def test_a_chain_of_two_topologies_is_held_at_the_middle_site(spark: Any, tmp_path: Path) -> None:
    """Newark to seattle by one file, seattle to tacoma by another: tacoma has the rows of the
    snapshot. Then seattle's sender reports that newark's changes go no further, instead of
    leaving them out. A decision distributes them.
    """
    pair = Pair.of(tmp_path / "wan", {"orders": {}})
    pair.make(spark, "orders", "id bigint, item string")
    pair.sql(spark, "orders", "INSERT INTO {t} SELECT id, 'item' FROM range(4)")
    pair.replicate(spark)
    here = pair.name("orders", SEATTLE)
    spark.sql(f"ALTER TABLE {here} SET TBLPROPERTIES (delta.enableChangeDataFeed = true)")
    second = tmp_path / "wan" / "second.yaml"
    second.write_text(SECOND_TOPOLOGY)
    topology = load_topology(second)
    LedgerTables(CurrentSession(spark), topology.site("tacoma").state).ensure()
    inbound = inbound_of(Receiver(spark, topology, "tacoma"))

    def send(**settings: Any) -> None:
        Sender(spark, topology, SEATTLE, **settings).start(available_now=True).await_termination()

    def rows(location: str) -> list[tuple[Any, ...]]:
        return sorted((row["id"], row["item"]) for row in load(spark, location).collect())

    def at_tacoma() -> list[tuple[Any, ...]]:
        inbound.apply(spark)
        return rows(topology.table("orders").location("tacoma"))

    send()
    assert at_tacoma() == [(number, "item") for number in range(4)]
    spark.sql(f"INSERT INTO {here} VALUES (100, 'of seattle')")
    send()
    assert at_tacoma()[-1] == (100, "of seattle")

    pair.sql(spark, "orders", "UPDATE {t} SET item = 'changed' WHERE id = 2")
    pair.replicate(spark)
    newest = pair.version("orders")
    with pytest.raises(
        WanError,
        match=rf"version {newest} was written by a receiver .* rows from site newark.* to tacoma "
        rf".*decide orders@{newest}=",
    ):
        send()
    assert at_tacoma()[2] == (2, "item")
    send(decisions={"orders": Decisions({newest: "distribute"})})
    assert at_tacoma() == rows(str(pair.path("orders", SEATTLE)))
    shutil.rmtree(tmp_path / "wan")
