"""A site that lacks something gets a copy of the table, from the site that writes it."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from default_channel import frames
from deltalake import DeltaTable
from many_sites import ManySites
from pair import Pair
from sites import NEWARK, SEATTLE, Sites

from spark_wan.ledger.ledger import Ledger
from spark_wan.sync.automatic import SiteNeed
from spark_wan.sync.request import request_copy
from spark_wan.topology.model import copy_name
from spark_wan.wire.mark import Mark

TABLES = ("orders", "readings")


def table_deleted(sites: Sites) -> None:
    for table in TABLES:
        shutil.rmtree(sites.path(table, SEATTLE))


def table_made_again(sites: Sites) -> None:
    """By somebody else, with rows of its own."""
    table_deleted(sites)
    sites.append("orders", [{"id": 5_000, "item": "foreign", "amount": 1.0}], SEATTLE)
    sites.append("readings", [{"sensor": "foreign", "value": 1.0}], SEATTLE)


def table_restored(sites: Sites) -> None:
    for table in TABLES:
        DeltaTable(sites.path(table, SEATTLE)).restore(0)


def ledger_deleted(sites: Sites) -> None:
    """Together with the history that would tell the same: another writer's commit is the last."""
    shutil.rmtree(Path(sites.topology.site(SEATTLE).state) / "ledger")
    sites.append("orders", [{"id": 5_000, "item": "own", "amount": 1.0}], SEATTLE)
    sites.append("readings", [{"sensor": "own", "value": 1.0}], SEATTLE)
    for table in TABLES:
        log = sites.path(table, SEATTLE) / "_delta_log"
        DeltaTable(sites.path(table, SEATTLE)).create_checkpoint()
        newest = DeltaTable(sites.path(table, SEATTLE)).version()
        for version in range(newest):
            (log / f"{version:020}.json").unlink(missing_ok=True)


def epochs_deleted(sites: Sites) -> None:
    """Those that the site has not applied."""
    for table in TABLES:
        log = sites.log(table)
        for epoch in log.since(0)[:-1]:
            log.channel.trim_manifest(log.stream, epoch)


FAULTS = [table_deleted, table_made_again, table_restored, ledger_deleted, epochs_deleted]


@pytest.mark.parametrize("fault", FAULTS, ids=[fault.__name__ for fault in FAULTS])
def test_a_site_that_lacks_something_gets_a_copy(
    spark: Any, tmp_path: Path, fault: Callable[[Sites], None]
) -> None:
    """b06, f28, f32: and the stream goes on behind it. Rows that are gone at the origin vanish."""
    sites = Sites.make(tmp_path)
    sites.change(10)
    sites.replicate(spark)
    sites.change(30)
    sites.send(spark)
    sites.change(50)
    sites.send(spark)
    fault(sites)
    held = sites.apply(spark)
    for table in TABLES:
        assert held[table].held is not None
        assert sites.ack(table).needs is not None  # type: ignore[union-attr]
        request_copy(sites.topology, table, SEATTLE)
    sites.send(spark)
    sites.apply(spark, rounds=3)
    sites.assert_equal()
    sites.change(70)
    sites.replicate(spark)
    sites.assert_equal()
    assert {sites.ack(table).held for table in TABLES} == {None}  # type: ignore[union-attr]
    sites.send(spark)
    for table in TABLES:
        name = copy_name(sites.log(table).stream, SEATTLE)
        assert frames(sites.channel(), name) == set()


def test_a_copy_is_one_commit(spark: Any, tmp_path: Path) -> None:
    """f46: nobody reads half a table, and time travel shows what was there."""
    sites = Sites.make(tmp_path)
    sites.change(10)
    sites.replicate(spark)
    before = sites.version("orders")
    sites.append("orders", [{"id": 900, "item": "own", "amount": 0.0}], SEATTLE)
    request_copy(sites.topology, "orders", SEATTLE)
    sites.send(spark)
    sites.apply(spark, rounds=2)
    sites.assert_equal()
    table = DeltaTable(sites.path("orders", SEATTLE))
    assert table.version() == before + 2
    (newest, *_) = table.history(1)
    mark = Mark.read(newest["userMetadata"], SEATTLE, "orders")
    assert mark is not None and mark.replaced == before + 1 and mark.local == 0


def test_a_copy_of_equal_rows_changes_nothing_that_readers_see(spark: Any, tmp_path: Path) -> None:
    """The difference form: the target has a change feed."""
    sites = Sites.make(tmp_path)
    sites.change(10)
    sites.replicate(spark)
    place = f"delta.`{sites.path('orders', SEATTLE)}`"
    spark.sql(f"ALTER TABLE {place} SET TBLPROPERTIES (delta.enableChangeDataFeed = true)")
    spark.sql(f"ALTER TABLE {place} ADD COLUMNS (note STRING)")
    spark.sql(f"UPDATE {place} SET note = 'mine'")
    spark.sql(f"UPDATE {place} SET item = 'wrong' WHERE id = 12")
    spark.sql(f"INSERT INTO {place} VALUES (777, 'too many', 1.0, null)")
    before = sites.version("orders")
    request_copy(sites.topology, "orders", SEATTLE)
    sites.send(spark)
    sites.apply(spark, rounds=2)
    feed = spark.read.option("readChangeFeed", "true").option("startingVersion", before + 1)
    changes = feed.format("delta").load(str(sites.path("orders", SEATTLE))).collect()
    assert sorted((row["id"], row["_change_type"]) for row in changes) == [
        (12, "update_postimage"),
        (12, "update_preimage"),
        (777, "delete"),
    ]
    rows = spark.sql(f"SELECT id, note FROM {place}").collect()
    assert {row["note"] for row in rows} == {"mine"}
    there = sites.table("orders", SEATTLE, ["amount", "id", "item"]).to_pylist()
    assert Counter(tuple(row.values()) for row in there) == sites.rows("orders", NEWARK)


def test_a_copy_of_values_that_spark_does_not_compare(spark: Any, tmp_path: Path) -> None:
    """In the difference form, beside a column of the target's own. Fails when the MERGE compares a
    map: Spark refuses that, and the copy is tried again for ever."""
    pair = Pair.of(tmp_path / "wan", {"orders": {}})
    columns = "id bigint, m map<string, int>, v variant, s struct<a: int, b: array<map<int, int>>>"
    pair.make(spark, "orders", columns)
    rows = "(1, map('a', 1), parse_json('[1]'), named_struct('a', 1, 'b', array(map(1, 2))))"
    pair.sql(spark, "orders", f"INSERT INTO {{t}} VALUES {rows}, (2, null, null, null)")
    pair.replicate(spark)
    there = pair.name("orders", SEATTLE)
    spark.sql(f"ALTER TABLE {there} SET TBLPROPERTIES (delta.enableChangeDataFeed = true)")
    spark.sql(f"UPDATE {there} SET m = map('wrong', 0), s = null")
    request_copy(pair.topology, "orders", SEATTLE)
    pair.send(spark)
    assert pair.apply(spark, rounds=2)["orders"].held is None
    pair.assert_same(spark, "orders")


def test_a_ledger_knows_its_table_after_a_copy_and_a_restart(spark: Any, tmp_path: Path) -> None:
    sites = Sites.make(tmp_path)
    sites.change(10)
    sites.replicate(spark)
    shutil.rmtree(sites.path("orders", SEATTLE))
    request_copy(sites.topology, "orders", SEATTLE)
    sites.send(spark)
    sites.apply(spark, rounds=2)
    applier = sites.applier(spark, "orders")
    assert isinstance(applier.ledger, Ledger)
    number = applier.ledger.catch_up(applier.target)
    again = sites.applier(spark, "orders")
    assert again.ledger.catch_up(again.target) == number == 3


def test_b06_a_site_asks_for_a_copy_by_itself(spark: Any, tmp_path: Path) -> None:
    """`sync: auto`, which is the default: nobody runs a command."""
    sites = Sites.make(tmp_path)
    sites.set_site(SEATTLE, sync="auto")
    sites.change(10)
    sites.replicate(spark)
    table_deleted(sites)
    sites.change(30)
    sites.send(spark)
    told: list[SiteNeed] = []
    held = sites.receive(spark, on_need=told.append)
    for table in TABLES:
        assert "has asked site newark for a copy" in str(held[table].held)
    assert {(need.table, need.why) for need in told} == {(table, "table") for table in TABLES}
    sites.send(spark)
    sites.receive(spark)
    sites.receive(spark)
    sites.assert_equal()
    sites.change(50)
    sites.replicate(spark)
    sites.assert_equal()


@pytest.mark.parametrize("fault", [table_made_again, ledger_deleted])
def test_rows_of_the_sites_own_are_not_taken_by_a_copy_that_nobody_asked_for(
    spark: Any, tmp_path: Path, fault: Callable[[Sites], None]
) -> None:
    """Somebody made the table at the place of the target, or wrote to it. Fails when the automatic
    copy takes these rows away."""
    sites = Sites.make(tmp_path)
    sites.set_site(SEATTLE, sync="auto")
    sites.change(10)
    sites.replicate(spark)
    fault(sites)
    before = {table: sites.rows(table, SEATTLE) for table in TABLES}
    sites.change(30)
    for _ in range(2):
        sites.send(spark)
        held = sites.receive(spark)
    for table in TABLES:
        assert "rows there that no receiver wrote" in str(held[table].held)
        assert sites.rows(table, SEATTLE) == before[table]


def test_a_site_behind_another_gets_a_copy_from_there(spark: Any, tmp_path: Path) -> None:
    """A chain, whose writer is not read at all: its jobs do not run. Then the stream goes on."""
    sites = ManySites.make(tmp_path, {"a": [["b"]], "b": [["c"]], "c": []}, sync="auto")

    def pass_on(*order: str) -> dict[str, Any]:
        statuses: dict[str, Any] = {}
        for site in order:
            statuses |= sites.receive(spark, site)
        return statuses

    sites.commit("a", "orders", [{"id": 1, "item": "pen", "amount": 1.0}])
    sites.send(spark, "a")
    pass_on("b", "c")
    sites.assert_equal()
    shutil.rmtree(tmp_path / "c" / "orders")
    sites.commit("a", "orders", [{"id": 2, "item": "ink", "amount": 2.0}])
    sites.send(spark, "a")
    pass_on("b", "c")
    pass_on("b", "c", "c")
    sites.assert_equal()
    sites.commit("a", "orders", [{"id": 1, "item": "pencil", "amount": 1.5}])
    sites.send(spark, "a")
    statuses = pass_on("b", "c")
    sites.assert_equal()
    assert {status.held for status in statuses.values()} == {None}


def test_a_peer_whose_rows_are_not_the_writers_serves_no_copy(spark: Any, tmp_path: Path) -> None:
    """The next one is asked. Fails when rows of the peer's own reach the other site."""
    links = {"a": [["b", "c"]], "b": [["c"]], "c": []}
    table = {"keys": ["id"], "senders": ["a0"]}
    sites = ManySites.make(tmp_path, links, tables={"orders": table}, sync="auto")
    sites.commit("a", "orders", [{"id": 1, "item": "pen", "amount": 1.0}])
    sites.send(spark, "a")
    for site in "bc":
        sites.receive(spark, site)
    sites.commit("b", "orders", [{"id": 9, "item": "foreign", "amount": 0.0}])
    shutil.rmtree(tmp_path / "c" / "orders")
    sites.commit("a", "orders", [{"id": 2, "item": "ink", "amount": 2.0}])
    sites.send(spark, "a")
    for site in "cbc":
        sites.receive(spark, site)
    sites.send(spark, "a")
    for _ in range(2):
        sites.receive(spark, "c")
    assert sites.tables.rows("orders", "c") == sites.tables.rows("orders", "a")
