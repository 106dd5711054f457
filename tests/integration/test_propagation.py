"""Rows written at newark arrive at seattle: one pair of sites, several tables, two senders,
three rounds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from pair import Pair
from sites import NEWARK, SEATTLE, Sites

from spark_wan.capture import source
from spark_wan.delta.tables import load, table_detail
from spark_wan.errors import WanError
from spark_wan.events.operations import OP, VERSION, Operation
from spark_wan.sender.outbound_stream import StreamStatus
from spark_wan.wire.manifest import CAPTURE, SNAPSHOT

BULK = 60_000
"""Rows of the bulk load: enough for several tasks of the sender."""


@pytest.fixture(scope="module")
def small_tasks() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(source, "ROWS_PER_TASK", 20_000)
        yield


@pytest.fixture(scope="module")
def rounds(
    spark: Any, small_tasks: None, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Pair, Pair, dict[str, StreamStatus]]:
    """Return the sites after three rounds, a copy with all that was queued after the second, and
    the sender's status then.

    Round 1: rows from before the first contact. Round 2: changes. No receiver runs until then.
    Round 3: more changes, to rows that both sites have.
    """
    world = Pair.of(
        tmp_path_factory.mktemp("propagation") / "wan",
        {
            "orders": {},
            "lines": {
                "keys": ["order_id", "line"],
                "at": {NEWARK: "default.newark_lines", SEATTLE: "default.seattle_lines"},
            },
            "late": {"start": {"version": 2}},
            "readings": {"keys": []},
            "bulk": {"senders": ["west"]},
            "stock": {"senders": ["west"], "deletion_vectors": False},
        },
        {"east": {"batch_size": 1_000}, "west": {"batch_size": 10_000}},
    )

    def run(table: str, *statements: str) -> None:
        for statement in statements:
            world.sql(spark, table, statement)

    for table in ("orders", "late", "stock", "bulk"):
        world.make(spark, table, "id bigint, item string, amount double")
    world.make(spark, "lines", "order_id bigint, line int, item string")
    world.make(spark, "readings", "sensor string, value double")
    run(
        "orders",
        "INSERT INTO {t} SELECT id, concat('item ', id), id / 4 FROM range(20)",
        "DELETE FROM {t} WHERE id = 19",
    )
    run("lines", "INSERT INTO {t} SELECT id div 2, id % 2, 'first' FROM range(10)")
    run(
        "late",
        "INSERT INTO {t} VALUES (1, 'before', 1.0)",
        "INSERT INTO {t} VALUES (2, 'from here on', 2.0)",
    )
    run("readings", "INSERT INTO {t} VALUES ('attic', 20.5), ('attic', 20.5)")
    run("stock", "INSERT INTO {t} SELECT id, 'old', 0.0 FROM range(10)")
    world.send(spark, senders=["east", "west"])

    run(
        "orders",
        "INSERT INTO {t} VALUES (100, 'created', 1.0), (101, 'created and gone', 1.0)",
        "UPDATE {t} SET item = 'updated', amount = -0.0D WHERE id < 3",
        "UPDATE {t} SET item = 'updated twice' WHERE id = 2",
        "DELETE FROM {t} WHERE id IN (5, 101)",
        "UPDATE {t} SET id = 200 WHERE id = 6",
        "MERGE INTO {t} t USING (SELECT explode(array(7L, 8L, 300L)) AS id) s ON t.id = s.id "
        "WHEN MATCHED AND s.id = 7 THEN DELETE WHEN MATCHED THEN UPDATE SET item = 'merged' "
        "WHEN NOT MATCHED THEN INSERT (id, item, amount) VALUES (s.id, 'merged in', null)",
    )
    run(
        "lines",
        "UPDATE {t} SET line = 9 WHERE order_id = 1 AND line = 1",
        "DELETE FROM {t} WHERE order_id = 2",
    )
    run(
        "readings",
        "INSERT INTO {t} VALUES ('attic', 20.5)",
        "INSERT INTO {t} VALUES (null, double('NaN'))",
    )
    run("stock", "INSERT OVERWRITE {t} SELECT id, if(id < 4, 'old', 'new'), 0.0 FROM range(2, 12)")
    run(
        "bulk",
        f"INSERT INTO {{t}} SELECT id, concat('item ', id % 100), rand(7) FROM range({BULK})",
    )
    status_while_absent = {
        status.table: status for status in world.send(spark, senders=["east", "west"])
    }
    queued = Pair(world.copy(tmp_path_factory.mktemp("queued") / "wan").folder)
    world.receive(spark, senders=["east", "west"])

    run(
        "late",
        "UPDATE {t} SET amount = 3.0 WHERE id = 2",
        "INSERT INTO {t} VALUES (3, 'later', 3.0)",
    )
    run(
        "orders",
        "UPDATE {t} SET amount = 7.5 WHERE id IN (100, 200)",
        "INSERT INTO {t} VALUES (5, 'back again', 5.0)",
        "DELETE FROM {t} WHERE id = 3",
        "UPDATE {t} SET id = 201 WHERE id = 4",
    )
    world.send(spark, senders=["east", "west"])
    world.receive(spark, senders=["east", "west"])
    return world, queued, status_while_absent


@pytest.fixture(scope="module")
def world(rounds: tuple[Pair, Pair, dict[str, StreamStatus]]) -> Pair:
    return rounds[0]


@pytest.fixture(scope="module")
def queued(rounds: tuple[Pair, Pair, dict[str, StreamStatus]]) -> Pair:
    return rounds[1]


@pytest.mark.core
def test_b01_creates_updates_and_deletes_arrive(spark: Any, world: Pair) -> None:
    """Inserts, updates, deletes and a merge at the source, in one table and several commits."""
    world.assert_same(spark, "orders", "lines")
    rows = {
        row["id"]: row["item"] for row in load(spark, world.location("orders", SEATTLE)).collect()
    }
    assert (rows[100], rows[1], rows[2], rows[8], rows[300]) == (
        "created",
        "updated",
        "updated twice",
        "merged",
        "merged in",
    )
    assert (rows[5], rows[201]) == ("back again", "item 4")
    assert not {3, 4, 7, 19, 101} & rows.keys()


@pytest.mark.core
def test_b01_a_key_change_is_a_destroy_and_a_create(queued: Pair) -> None:
    """The row of the old key is deleted.

    Fails when an old image without a new one is not a destroy (`net`).
    """
    events = queued.events("orders", 2).to_pylist()
    [change] = [event[VERSION] for event in events if event["id"] == 200]
    assert {(event["id"], event[OP]) for event in events if event[VERSION] == change} == {
        (6, Operation.DESTROY),
        (200, Operation.CREATE),
    }


@pytest.mark.core
def test_b01_an_overwrite_arrives(spark: Any, world: Pair, queued: Pair) -> None:
    """As the rows that it changed: rows written again unchanged are no events.

    Fails when an old image without a new one is not a destroy (`net`).
    """
    world.assert_same(spark, "stock")
    events = Counter((event[OP], event["id"]) for event in queued.events("stock", 2).to_pylist())
    assert sorted(events) == sorted(
        [(Operation.DESTROY, id) for id in (0, 1)]
        + [(Operation.PUT, id) for id in range(4, 10)]
        + [(Operation.CREATE, id) for id in (10, 11)]
    )


@pytest.mark.core
def test_b02_a_bulk_load_is_complete(spark: Any, world: Pair, queued: Pair) -> None:
    """Written by several tasks, in frames of at most ``batch_size`` events.

    Fails when the frames of some tasks are not named (`DeltaSource._publish`).
    """
    world.assert_same(spark, "bulk")
    frames = [frame for manifest in queued.manifests("bulk") for frame in manifest.frames]
    assert sum(frame.rows for frame in frames) == BULK
    assert len(frames) >= BULK // 10_000
    assert max(frame.rows for frame in frames) <= 10_000
    assert len({frame.path.split("-")[0] for frame in frames}) > 1


@pytest.mark.core
def test_b03_the_queue_grows_while_the_remote_is_absent(
    rounds: tuple[Pair, Pair, dict[str, StreamStatus]],
) -> None:
    """Two epochs wait for seattle, none is acked, and the sender is not held."""
    _, _, status_while_absent = rounds
    status = status_while_absent["orders"]
    assert (status.published, status.backlog, status.acked, status.held) == (2, 2, {}, None)


@pytest.mark.core
def test_b05_several_tables_on_one_channel_and_a_sender_for_others(spark: Any, world: Pair) -> None:
    """Each stream has its own log, each sender its own channel.

    Fails without the table in a stream's name.
    """
    world.assert_same(spark, "orders", "lines", "readings", "bulk", "stock")
    east, west = (set(world.channel(sender).epochs()) for sender in ("east", "west"))
    assert east == {f"{NEWARK}.east.{table}" for table in ("orders", "lines", "late", "readings")}
    assert west == {f"{NEWARK}.west.{table}" for table in ("bulk", "stock")}


@pytest.mark.core
def test_first_contact_with_a_keyed_table_sends_a_snapshot(world: Pair, queued: Pair) -> None:
    """One epoch of creates covers everything through its version; changes follow in the next."""
    first, second = queued.manifests("orders")
    third = world.manifests("orders")[-1]
    assert (first.kind, first.start) == (SNAPSHOT, True)
    assert (first.first_version, first.last_version) == (0, 2)
    assert (second.kind, second.start, second.first_version) == (CAPTURE, False, 3)
    assert (second.last_version, third.first_version) == (8, 9)


@pytest.mark.core
def test_a_start_at_a_version_sends_no_earlier_commits(
    spark: Any, world: Pair, queued: Pair
) -> None:
    manifests = (*queued.manifests("late"), *world.manifests("late")[-1:])
    assert [manifest.first_version for manifest in manifests] == [2, 3]
    amounts = {
        row["id"]: row["amount"] for row in load(spark, world.location("late", SEATTLE)).collect()
    }
    assert amounts == {2: 3.0, 3: 3.0}


@pytest.mark.core
def test_equal_rows_of_a_keyless_table_all_arrive(spark: Any, world: Pair) -> None:
    world.assert_same(spark, "readings")
    assert len(world.hashes(spark, "readings")) == 4
    assert len(set(world.hashes(spark, "readings"))) == 2


@pytest.mark.core
def test_tables_by_catalog_name_and_by_path_are_replicated(spark: Any, world: Pair) -> None:
    world.assert_same(spark, "lines")
    assert spark.catalog.tableExists("seattle_lines")
    kinds = spark.sql("DESCRIBE TABLE EXTENDED seattle_lines").where("col_name = 'Type'").collect()
    assert [row["data_type"] for row in kinds] == ["MANAGED"]


@pytest.mark.core
def test_a_created_table_has_deletion_vectors_unless_the_topology_says_no(
    spark: Any, world: Pair
) -> None:
    """Fails when the setting does not reach the table."""
    enabled = {
        table: table_detail(spark, world.location(table, SEATTLE), "properties").get(
            "delta.enableDeletionVectors"
        )
        for table in ("orders", "stock")
    }
    assert enabled == {"orders": "true", "stock": "false"}


def test_a_change_of_a_keyless_table_holds_its_stream(spark: Any, wan: Sites) -> None:
    """No site could find the rows. Earlier commits are sent, the cause names the commit, and the
    other table is not affected.
    """
    wan.change(10)
    wan.send(spark)
    wan.append("readings", [{"sensor": "barn", "value": 1.0}])
    Pair(wan.folder).sql(spark, "readings", "UPDATE {t} SET value = 2.0 WHERE sensor = 'barn'")
    version = wan.version("readings", NEWARK)
    wan.append("orders", [{"id": 500, "item": "goes on", "amount": 0.0}])
    with pytest.raises(
        WanError, match=rf"readings: version {version} changes rows other than by inserting"
    ):
        wan.send(spark)
    assert wan.numbers("orders")[-1] == 2
    log = wan.log("readings")
    assert log.read(log.since(0)[-1]).last_version < version
    wan.apply(spark)
    wan.assert_equal("orders")
