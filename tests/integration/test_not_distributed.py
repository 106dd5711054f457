"""What is not distributed: commits that change no rows, and commits that their writer marks as
local.
"""

from __future__ import annotations

import shutil
from typing import Any

import pytest
from pair import Pair
from sites import NEWARK, SEATTLE, Sites

from spark_wan import LOCAL_ONLY
from spark_wan.delta.tables import load
from spark_wan.errors import WanError

METADATA = "spark.databricks.delta.commitInfo.userMetadata"


def test_b83_reads_maintenance_and_ddl_send_nothing(spark: Any, tmp_path: Any) -> None:
    """No epoch, no frame, no commit at the target; only the next change of a row is sent.

    Fails without the test for a quiet range in `Publisher._plan`, or for no frames in
    `Publisher._write`: each send adds an epoch.
    """
    pair = Pair.of(tmp_path / "wan", {"orders": {}, "readings": {"keys": []}})
    for table in ("orders", "readings"):
        pair.make(spark, table, "id bigint, item string", "delta.enableDeletionVectors = true")
        for part in range(2):
            pair.sql(
                spark,
                table,
                f"INSERT INTO {{t}} SELECT id, 'item' FROM range({10 * part}, {10 * part + 10})",
            )
    pair.sql(spark, "orders", "DELETE FROM {t} WHERE id = 3")
    pair.replicate(spark)
    versions = {table: pair.version(table) for table in ("orders", "readings")}
    newest = {table: pair.numbers(table)[-1] for table in versions}
    frames = {table: pair.frames(table) for table in versions}

    load(spark, pair.location("orders")).where("id > 3").count()
    for table, statements in {
        "readings": ("OPTIMIZE {t}", "VACUUM {t} RETAIN 0 HOURS"),
        "orders": (
            "OPTIMIZE {t} ZORDER BY (item)",
            "REORG TABLE {t} APPLY (PURGE)",
            "VACUUM {t} RETAIN 0 HOURS",
            "ALTER TABLE {t} SET TBLPROPERTIES ('of' = 'no account')",
            "ALTER TABLE {t} ALTER COLUMN item COMMENT 'what it is'",
            "ALTER TABLE {t} ADD CONSTRAINT positive CHECK (id >= 0)",
            "UPDATE {t} SET item = item WHERE id = 4",
        ),
    }.items():
        began = pair.version(table, NEWARK)
        for statement in statements:
            pair.sql(spark, table, statement)
        assert pair.version(table, NEWARK) >= began + len(statements) - 1
    for _ in range(2):
        pair.replicate(spark)
        assert {table: pair.numbers(table)[-1] for table in newest} == newest
        assert all(pair.frames(table) <= frames[table] for table in frames)
        assert {table: pair.version(table) for table in versions} == versions

    pair.sql(spark, "orders", "UPDATE {t} SET item = 'changed' WHERE id = 5")
    pair.sql(spark, "readings", "INSERT INTO {t} VALUES (99, 'new')")
    pair.replicate(spark)
    assert [pair.manifests(table)[-1].rows for table in newest] == [1, 1]
    pair.assert_same(spark, "orders", "readings")


def test_b83_dropping_the_source_table_is_not_distributed(spark: Any, wan: Sites) -> None:
    """The sender reports that it is missing, the other table is not affected, and seattle keeps
    its rows.
    """
    wan.change(10)
    wan.replicate(spark)
    rows = wan.rows("orders")
    shutil.rmtree(wan.path("orders"))
    wan.append("readings", [{"sensor": "attic", "value": 1.0}])
    with pytest.raises(WanError, match=r"orders: .*no Delta table at"):
        wan.send(spark)
    wan.apply(spark)
    assert wan.rows("orders") == rows
    wan.assert_equal("readings")


def test_b84_changes_marked_local_only_stay(spark: Any, tmp_path: Any) -> None:
    """Between commits that are sent, alone, and as the last ones; by writer option and by session
    setting.

    Fails when `Commit.stays_here` is always false: the rows arrive at seattle.
    """
    pair = Pair.of(tmp_path / "wan", {"orders": {}, "readings": {"keys": []}})
    for table in ("orders", "readings"):
        pair.make(spark, table, "id bigint, item string")
    pair.send(spark)

    def local(table: str, rows: str) -> None:
        writer = (
            spark.sql(rows).write.format("delta").mode("append").option("userMetadata", LOCAL_ONLY)
        )
        writer.save(pair.location(table))

    for table in ("orders", "readings"):
        pair.sql(spark, table, "INSERT INTO {t} VALUES (1, 'travels')")
        local(table, "SELECT 2L AS id, 'stays' AS item")
        pair.sql(spark, table, "INSERT INTO {t} VALUES (3, 'travels')")
    spark.conf.set(METADATA, LOCAL_ONLY)
    try:
        pair.sql(spark, "orders", "DELETE FROM {t} WHERE id = 1")
        pair.sql(spark, "readings", "DELETE FROM {t} WHERE id = 1")
    finally:
        spark.conf.unset(METADATA)
    pair.replicate(spark)
    published = {table: pair.numbers(table)[-1] for table in ("orders", "readings")}
    local("orders", "SELECT 4L AS id, 'stays, alone' AS item")
    local("readings", "SELECT 4L AS id, 'stays, alone' AS item")
    pair.replicate(spark)
    assert {table: pair.numbers(table)[-1] for table in published} == published
    for table in published:
        arrived = load(spark, pair.location(table, SEATTLE)).collect()
        rows = sorted((row["id"], row["item"]) for row in arrived)
        assert rows == [(1, "travels"), (3, "travels")]
        assert sorted(row["id"] for row in load(spark, pair.location(table)).collect()) == [2, 3, 4]


def test_a_commit_without_its_commit_info_that_empties_the_table_is_held(
    spark: Any, tmp_path: Any
) -> None:
    """Delta's protocol allows that, and the history then shows no operation. Fails when the target
    is emptied."""
    pair = Pair.of(tmp_path / "wan", {"orders": {}})
    pair.make(spark, "orders", "id bigint, item string")
    pair.sql(spark, "orders", "INSERT INTO {t} VALUES (1, 'one')")
    pair.replicate(spark)
    pair.sql(spark, "orders", "DELETE FROM {t}")
    log = pair.path("orders") / "_delta_log"
    (newest,) = log.glob("*2.json")
    lines = newest.read_text().splitlines()
    newest.write_text("".join(f"{line}\n" for line in lines if "commitInfo" not in line))
    for crc in log.glob("*2*.crc"):
        crc.unlink()
    with pytest.raises(WanError, match="does not say what it is, and empties the table"):
        pair.send(spark)
    pair.apply(spark)
    assert pair.rows("orders") == {(1, "one"): 1}
