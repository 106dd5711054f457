"""Backups: made while writes go on, carried as files, adopted; the streams go on behind them."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from default_channel import frames
from deltalake import DeltaTable
from pair import Pair
from sites import NEWARK, SEATTLE, Sites
from small_disk import small_disk
from waiting import wait_until

from spark_wan import adopt_backup, make_backup
from spark_wan.apply.replace import Outcome
from spark_wan.backup.job import plan_adoption, plan_backup
from spark_wan.errors import BackupError
from spark_wan.receiver.job import Receiver
from spark_wan.sync.place import Place
from spark_wan.sync.request import request_copy
from spark_wan.topology.model import copy_name
from spark_wan.wire.certificate import CERTIFICATE
from spark_wan.wire.mark import Mark

TABLES = ("orders", "readings")


def backup(spark: Any, sites: Sites, table: str, site: str = NEWARK) -> str:
    """Make a backup, and carry it; return where it is."""
    made = sites.folder / "disk" / f"made at {site}" / table
    make_backup(spark, sites.topology, table, site, str(made))
    carried = sites.folder / f"carried from {site}" / table
    shutil.copytree(made, carried)
    shutil.rmtree(made)
    return str(carried)


def adopt(spark: Any, sites: Sites, table: str, place: str) -> Outcome:
    return adopt_backup(spark, sites.topology, table, SEATTLE, place).outcome


@pytest.mark.core
def test_a_disk_is_carried_to_a_site_that_lacks_epochs(spark: Any, tmp_path: Path) -> None:
    """b06, f16: its rows take the place of all that the site has, in one commit. What came after it
    comes through the channel, which is trimmed then."""
    sites = Sites.make(tmp_path / "wan")
    sites.change(10)
    sites.replicate(spark)
    sites.change(30)
    places = {table: backup(spark, sites, table) for table in TABLES}
    sites.send(spark)
    for table in TABLES:
        log = sites.log(table)
        for epoch in log.since(0)[:-1]:
            log.channel.trim_manifest(log.stream, epoch)
    sites.append("orders", [{"id": 900, "item": "own", "amount": 0.0}], SEATTLE)
    sites.change(50)
    sites.send(spark)
    before = sites.version("orders")
    for table, place in places.items():
        plan = plan_adoption(spark, sites.topology, table, SEATTLE, place)
        assert (plan.outcome, plan.begun) == (Outcome.WRITTEN, True)
    assert sites.version("orders") == before
    for table, place in places.items():
        assert adopt(spark, sites, table, place) is Outcome.WRITTEN
        assert adopt(spark, sites, table, place) is Outcome.KNOWN
    assert sites.version("orders") == before + 1
    newest, *_ = sites.history("orders")
    mark = Mark.read(newest, SEATTLE, "orders")
    assert mark is not None and (mark.replaced, mark.local) == (before, 0)
    sites.apply(spark)
    sites.assert_equal()
    assert adopt(spark, sites, "orders", places["orders"]) is Outcome.KNOWN
    sites.send(spark)
    for table in TABLES:
        assert sites.acked(table) == sites.log(table).newest_epoch()
        assert len(sites.numbers(table)) == 1
    sites.change(70)
    sites.replicate(spark)
    sites.assert_equal()


def test_a_backup_is_one_version_while_writes_go_on(spark: Any, tmp_path: Path) -> None:
    """Nothing is locked. Fails when the rows are read as they are at the end."""
    sites = Sites.make(tmp_path / "wan")
    sites.change(10)
    sites.replicate(spark)
    ended, errors = threading.Event(), []

    def write() -> None:
        start = 30
        while not ended.wait(1.0):
            try:
                sites.upsert("orders", [{"id": start, "item": "meanwhile", "amount": 1.0}])
            except Exception as error:
                errors.append(error)
                return
            start += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        place = backup(spark, sites, "orders")
    finally:
        ended.set()
        writer.join()
    assert errors == []
    made = Place(place).certificate()
    assert made.through < sites.version("orders", NEWARK)
    there = DeltaTable(sites.path("orders"), version=made.through).to_pyarrow_table()
    in_backup = DeltaTable(place).to_pyarrow_table().select(there.column_names)
    assert in_backup.sort_by("id") == there.sort_by("id")
    assert made.rows == there.num_rows
    sites.send(spark)
    adopt(spark, sites, "orders", place)
    sites.apply(spark)
    sites.assert_equal()


def test_a_receiver_may_run(spark: Any, tmp_path: Path) -> None:
    """It goes on behind the backup by itself, though it was held."""
    sites = Sites.make(tmp_path / "wan")
    sites.change(10)
    sites.replicate(spark)
    for start in (30, 50):
        sites.change(start)
        sites.send(spark)
    log = sites.log("orders")
    log.channel.trim_manifest(log.stream, log.since(0)[0])
    shutil.rmtree(sites.path("orders", SEATTLE))
    receiver = Receiver(spark, sites.topology, SEATTLE, senders=["east"], interval=0.1).start()
    try:
        wait_until(lambda: any(each.held for each in receiver.status()), "held")
        place = backup(spark, sites, "orders")
        assert adopt(spark, sites, "orders", place) is Outcome.WRITTEN
        sites.change(70)
        sites.send(spark)
        wait_until(sites.are_equal, "the receiver to go on")
    finally:
        receiver.stop()
    assert receiver.exception() is None
    assert sum("replaced" in each for each in sites.history("orders")) == 1


def test_a_new_site_begins_with_a_backup(spark: Any, tmp_path: Path) -> None:
    """Before its first epoch: the sender begins behind the backup, and sends nothing before it. A
    dry run leaves nothing at the site."""
    sites = Sites.make(tmp_path / "wan")
    sites.change(10)
    place = backup(spark, sites, "orders")
    through = Place(place).certificate().through
    plan = plan_adoption(spark, sites.topology, "orders", SEATTLE, place)
    assert (plan.outcome, plan.begun) == (Outcome.WRITTEN, False)
    assert not (sites.folder / SEATTLE).exists()
    assert adopt(spark, sites, "orders", place) is Outcome.WRITTEN
    text = (sites.folder / "wan.yaml").read_text()
    begins = text.replace("start: snapshot", f"start: {{version: {through + 1}}}")
    (sites.folder / "wan.yaml").write_text(begins)
    sites.change(30)
    sites.send(spark, tables=["orders"])
    assert [sites.log("orders").read(1).first_version] == [through + 1]
    sites.apply(spark)
    sites.assert_equal("orders")
    assert sites.acked("orders") == 1


def test_a_site_that_asked_for_a_copy_no_longer_does(spark: Any, tmp_path: Path) -> None:
    """Fails when the whole table crosses the network all the same."""
    sites = Sites.make(tmp_path / "wan")
    sites.change(10)
    sites.replicate(spark)
    shutil.rmtree(sites.path("orders", SEATTLE))
    request_copy(sites.topology, "orders", SEATTLE)
    adopt(spark, sites, "orders", backup(spark, sites, "orders"))
    sites.send(spark)
    assert frames(sites.channel(), copy_name(sites.log("orders").stream, SEATTLE)) == set()
    sites.change(30)
    sites.replicate(spark)
    sites.assert_equal()


# --- at a site that receives the table


def test_a_site_that_receives_a_table_backs_it_up(spark: Any, tmp_path: Path) -> None:
    """Its rows are those of its newest mark's vector, and its own columns stay."""
    sites = Sites.make(tmp_path / "wan")
    sites.change(10)
    sites.replicate(spark)
    through = sites.version("orders", NEWARK)
    there = f"delta.`{sites.path('orders', SEATTLE)}`"
    spark.sql(f"ALTER TABLE {there} ADD COLUMNS (note STRING)")
    before = sites.version("orders")
    place = backup(spark, sites, "orders", SEATTLE)
    assert sites.version("orders") == before
    made = Place(place).certificate()
    assert (made.site, made.origin, made.through) == (SEATTLE, NEWARK, through)
    assert made.source.version == before
    assert [field["name"] for field in made.schema["fields"]] == ["id", "item", "amount"]
    shutil.rmtree(sites.path("orders", SEATTLE))
    sites.change(30)
    sites.send(spark)
    assert adopt(spark, sites, "orders", place) is Outcome.WRITTEN
    sites.apply(spark)
    sites.assert_equal()


def local_commit(spark: Any, pair: Pair) -> str:
    spark.sql(f"INSERT INTO {pair.name('orders', SEATTLE)} VALUES (900, 'own')")
    return "1 commits here are not the receiver's"


def dead_letter(spark: Any, pair: Pair) -> str:
    there = pair.name("orders", SEATTLE)
    spark.sql(f"ALTER TABLE {there} ADD CONSTRAINT short CHECK (length(item) < 6)")
    pair.sql(spark, "orders", "INSERT INTO {t} VALUES (2, 'too long')")
    pair.replicate(spark)
    return "1 rows became dead letters here"


def needs(spark: Any, pair: Pair) -> str:
    for _ in range(2):
        pair.sql(spark, "orders", "UPDATE {t} SET item = concat(item, '.')")
        pair.send(spark)
    log = pair.log("orders")
    log.channel.trim_manifest(log.stream, log.since(0)[-2])
    assert pair.apply(spark)["orders"].held is not None
    return r"the site needs a copy of it \(epochs\)"


def renamed(spark: Any, pair: Pair) -> str:
    there = pair.name("orders", SEATTLE)
    spark.sql(f"ALTER TABLE {there} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
    spark.sql(f"ALTER TABLE {there} RENAME COLUMN item TO goods")
    return "column item was renamed or dropped here"


def lost(spark: Any, pair: Pair) -> str:
    shutil.rmtree(pair.path("orders", SEATTLE))
    return "the table is missing at site seattle"


@pytest.mark.parametrize("fault", [local_commit, dead_letter, needs, renamed, lost])
def test_a_table_that_is_not_the_origins_is_not_backed_up(
    spark: Any, tmp_path: Path, fault: Callable[[Any, Pair], str]
) -> None:
    """Fails when rows that the origin does not have come to other sites."""
    pair = Pair.of(tmp_path / "wan", {"orders": {}})
    pair.make(spark, "orders", "id bigint, item string")
    pair.sql(spark, "orders", "INSERT INTO {t} VALUES (1, 'one')")
    pair.replicate(spark)
    match = fault(spark, pair)
    with pytest.raises(Exception, match=match):
        make_backup(spark, pair.topology, "orders", SEATTLE, str(tmp_path / "b"))
    assert not (tmp_path / "b").exists()


def test_a_table_of_which_nothing_was_applied(spark: Any, tmp_path: Path) -> None:
    sites = Sites.make(tmp_path / "wan")
    sites.append("orders", [{"id": 900, "item": "own", "amount": 0.0}], SEATTLE)
    with pytest.raises(BackupError, match="the site has applied nothing of it"):
        plan_backup(spark, sites.topology, "orders", SEATTLE, str(tmp_path / "b"))
    assert not (sites.folder / SEATTLE / "_wan").exists()


# --- bad input


@pytest.fixture(scope="module")
def made(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Sites, str]:
    """Two sites, and a backup that seattle could adopt."""
    sites = Sites.make(tmp_path_factory.mktemp("backup") / "wan")
    sites.change(10)
    sites.replicate(spark)
    place = backup(spark, sites, "orders")
    return sites, place


def missing(place: Path, spark: Any) -> str:
    next(place.glob("part-*")).unlink()
    return "file .* is missing"


def changed(place: Path, spark: Any) -> str:
    file = next(place.glob("part-*"))
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(bytes(data))
    return "file .* was changed"


def extra(place: Path, spark: Any) -> str:
    """Somebody has written to the table that the backup is."""
    spark.sql(f"INSERT INTO delta.`{place}` VALUES (900, 'forged', 1.0)")
    return "is no part of the backup"


def interrupted(place: Path, spark: Any) -> str:
    (place / CERTIFICATE).unlink()
    return f"it has no {CERTIFICATE}, which is written last"


def damaged(place: Path, spark: Any) -> str:
    text = (place / CERTIFICATE).read_text()
    (place / CERTIFICATE).write_text(text.replace('"rows":', '"rows":1'))
    return "the certificate was altered or damaged"


def outside(place: Path, spark: Any) -> str:
    """Forged: the log of the backup reads the files of another table."""
    certificate = Place(str(place)).certificate()
    shutil.rmtree(place)
    elsewhere = place.parent / "elsewhere"
    spark.sql(
        f"CREATE TABLE delta.`{elsewhere}` (id bigint, item string, amount double) USING delta"
    )
    spark.sql(f"INSERT INTO delta.`{elsewhere}` VALUES (1, 'secret', 1.0)")
    spark.sql(f"CREATE TABLE delta.`{place}` SHALLOW CLONE delta.`{elsewhere}`")
    forged = replace(certificate, files=Place(str(place)).digested(), rows=1)
    (place / CERTIFICATE).write_bytes(forged.encode())
    return "reads the file .*, which is not in its certificate"


@pytest.mark.parametrize("fault", [missing, changed, extra, interrupted, damaged, outside])
def test_a_backup_that_is_not_as_it_was_made_is_refused(
    spark: Any, made: tuple[Sites, str], tmp_path: Path, fault: Callable[[Path, Any], str]
) -> None:
    """The table is as it was, and the stream goes on."""
    sites = made[0].copy(tmp_path / "wan")
    place = tmp_path / "b"
    shutil.copytree(made[1], place)
    match = fault(place, spark)
    before = sites.version("orders")
    with pytest.raises(BackupError, match=match):
        adopt(spark, sites, "orders", str(place))
    assert sites.version("orders") == before
    sites.change(30)
    sites.replicate(spark)
    sites.assert_equal()


def test_a_backup_of_another_table_is_refused(
    spark: Any, made: tuple[Sites, str], tmp_path: Path
) -> None:
    """By its name in the topology, and by its ID."""
    sites = made[0].copy(tmp_path / "wan")
    with pytest.raises(BackupError, match="is of table orders, not of readings"):
        adopt(spark, sites, "readings", made[1])
    shutil.rmtree(sites.path("orders"))
    sites.append("orders", [{"id": 1, "item": "made again", "amount": 0.0}])
    with pytest.raises(BackupError, match="not the table, or not in the state"):
        make_backup(spark, sites.topology, "orders", NEWARK, str(tmp_path / "b"))
    other = Sites.make(tmp_path / "other")
    other.change(10)
    with pytest.raises(BackupError, match="another table, or the source was replaced"):
        adopt(spark, sites, "orders", backup(spark, other, "orders"))
    assert sum("replaced" in each for each in sites.history("orders")) == 0


def test_an_older_backup_is_refused(spark: Any, made: tuple[Sites, str], tmp_path: Path) -> None:
    sites = made[0].copy(tmp_path / "wan")
    sites.change(30)
    sites.replicate(spark)
    before = sites.version("orders")
    with pytest.raises(BackupError, match="seattle has applied through version 7, and the backup"):
        adopt(spark, sites, "orders", made[1])
    shutil.rmtree(sites.path("orders", SEATTLE))
    sites.change(50)
    sites.send(spark)
    log = sites.log("orders")
    for epoch in log.since(0)[:-1]:
        log.channel.trim_manifest(log.stream, epoch)
    # The ledger still knows how far the table was.
    with pytest.raises(BackupError, match="seattle has applied through version 7"):
        adopt(spark, sites, "orders", made[1])
    shutil.rmtree(Path(sites.topology.site(SEATTLE).state))
    with pytest.raises(BackupError, match="what the channel has after it begins with version 8"):
        adopt(spark, sites, "orders", made[1])
    assert before and not sites.path("orders", SEATTLE).exists()


def test_a_place_that_holds_something(spark: Any, made: tuple[Sites, str]) -> None:
    with pytest.raises(BackupError, match="there is something at this place already"):
        make_backup(spark, made[0].topology, "orders", NEWARK, made[1])
    with pytest.raises(BackupError, match="there is something at this place already"):
        plan_backup(spark, made[0].topology, "orders", NEWARK, str(made[0].path("orders")))


def test_a_version_that_is_vacuumed_while_it_is_read(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """f09: no certificate, and it says what to do."""
    from spark_wan.backup.tables import SparkTable

    sites = Sites.make(tmp_path / "wan")
    sites.change(10)
    write = SparkTable.write

    def vacuumed(table: SparkTable, cut: Any, place: str) -> None:
        for file in sites.path("orders").glob("*.parquet"):
            file.unlink()
        write(table, cut, place)

    monkeypatch.setattr(SparkTable, "write", vacuumed)
    with pytest.raises(BackupError, match=r"were deleted meanwhile.*deletedFileRetentionDuration"):
        make_backup(spark, sites.topology, "orders", NEWARK, str(tmp_path / "b"))
    assert not (tmp_path / "b" / CERTIFICATE).exists()


def test_a_disk_that_fills(spark: Any, tmp_path: Path) -> None:
    """f31: what is there is no backup."""
    pair = Pair.of(tmp_path / "wan", {"orders": {}})
    pair.make(spark, "orders", "id bigint, item string")
    pair.sql(spark, "orders", "INSERT INTO {t} SELECT id, uuid() FROM range(20000)")
    with small_disk(tmp_path / "disk", "64k") as disk:
        place = disk.path / "b"
        with pytest.raises(BackupError, match=r"No space left on device.*is no backup\. Remove it"):
            make_backup(spark, pair.topology, "orders", NEWARK, str(place))
        assert not (place / CERTIFICATE).exists()


# --- every kind of table


def test_every_kind_of_table_comes_as_it_is(spark: Any, tmp_path: Path) -> None:
    """Types at any depth, column mapping, deletion vectors, partitions, keys that are there twice
    or null, and no keys at all."""
    tables: dict[str, dict[str, Any]] = {
        "types": {},
        "mapped": {"keys": ["the id"]},
        "vectors": {},
        "parts": {"keys": ["id", "day"]},
        "twice": {},
        "keyless": {"keys": []},
    }
    for settings in tables.values():
        settings["start"] = {"version": 0}
    pair = Pair.of(tmp_path / "wan", tables)
    pair.make(
        spark,
        "types",
        "id bigint, d date, t timestamp, n timestamp_ntz, c decimal(38,18), b binary, s string, "
        "f float, v variant, m map<string,array<struct<x:int,y:date>>>, c5 char(5), vc varchar(9), "
        "e void, w struct<a:tinyint,z:struct<k:string>>",
    )
    pair.sql(
        spark,
        "types",
        """INSERT INTO {t} SELECT id, date'1582-10-10', timestamp'0001-01-01 00:00:00.123456',
        timestamp_ntz'9999-12-31 23:59:59.999999', 0.123456789012345678, X'00ff', concat('a', id,
        char(0)), float('nan'), parse_json('{"a": [1, null]}'),
        map('k', array(struct(1, date'-0044-03-15'), null)), 'ab', 'c ', null,
        named_struct('a', 1Y, 'z', named_struct('k', null)) FROM range(5)""",
    )
    pair.make(
        spark,
        "mapped",
        "`the id` bigint, `a.b` string, `c;d` struct<`e f`:int>",
        "delta.columnMapping.mode = 'name'",
    )
    pair.sql(spark, "mapped", "INSERT INTO {t} VALUES (1, 'x', struct(1)), (2, 'y', null)")
    pair.make(spark, "vectors", "id bigint, item string", "delta.enableDeletionVectors = true")
    pair.sql(spark, "vectors", "INSERT INTO {t} SELECT id, uuid() FROM range(100)")
    pair.sql(spark, "vectors", "DELETE FROM {t} WHERE id % 3 = 0")
    pair.sql(spark, "vectors", "UPDATE {t} SET item = 'changed' WHERE id % 7 = 0")
    feed = "TBLPROPERTIES (delta.enableChangeDataFeed = true)"
    spark.sql(
        f"CREATE TABLE {pair.name('parts')} (id bigint, day date, city string) USING delta "
        f"PARTITIONED BY (day, city) {feed}"
    )
    pair.sql(
        spark, "parts", "INSERT INTO {t} VALUES (1, date'2024-01-01', 'a/b %=x'), (2, null, null)"
    )
    pair.make(spark, "twice", "id bigint, item string")
    pair.sql(spark, "twice", "INSERT INTO {t} VALUES (1, 'a'), (1, 'a'), (2, 'b'), (null, 'c')")
    pair.make(spark, "keyless", "a string, b array<int>")
    pair.sql(spark, "keyless", "INSERT INTO {t} VALUES ('x', null), ('x', null), (null, array(1))")
    for table in tables:
        place = backup(spark, pair, table)
        assert adopt(spark, pair, table, place) is Outcome.WRITTEN
    pair.assert_same(spark, "types", "mapped", "vectors", "keyless")
    there = spark.sql(f"SELECT * FROM {pair.name('parts', SEATTLE)}").collect()
    assert [row["city"] for row in there] == ["a/b %=x"]  # the other has a null in its key
    there = spark.sql(f"SELECT * FROM {pair.name('twice', SEATTLE)} ORDER BY id").collect()
    assert [tuple(row) for row in there] == [(1, "a"), (2, "b")]
    assert not Place(str(pair.folder / f"carried from {NEWARK}" / "twice")).certificate().unique
    pair.sql(spark, "types", "UPDATE {t} SET s = 'changed' WHERE id = 3")
    pair.sql(spark, "keyless", "INSERT INTO {t} VALUES ('y', array())")
    pair.replicate(spark)
    pair.assert_same(spark, "types", "mapped", "vectors", "keyless")


def test_readers_of_the_targets_feed_see_what_differs(spark: Any, tmp_path: Path) -> None:
    """f46, f53: columns of the target's own keep their values, types may be wider there, fields in
    another order, and what it refuses becomes a dead letter."""
    pair = Pair.of(tmp_path / "wan", {"orders": {}})
    pair.make(spark, "orders", "id bigint, item string, n int, s struct<a:int,b:string>")
    pair.sql(spark, "orders", "INSERT INTO {t} SELECT id, 'item', 1, struct(1, 'b') FROM range(9)")
    pair.send(spark)
    there = pair.name("orders", SEATTLE)
    spark.sql(
        f"CREATE TABLE {there} (S struct<b:string,a:bigint>, n bigint, note string, id bigint, "
        "item string) USING delta PARTITIONED BY (n) "
        "TBLPROPERTIES (delta.enableTypeWidening = true)"
    )
    pair.apply(spark)
    spark.sql(f"ALTER TABLE {there} SET TBLPROPERTIES (delta.enableChangeDataFeed = true)")
    spark.sql(f"UPDATE {there} SET note = 'mine'")
    spark.sql(f"UPDATE {there} SET item = 'wrong' WHERE id = 2")
    spark.sql(f"INSERT INTO {there} VALUES (null, 1, null, 777, 'too many')")
    spark.sql(f"ALTER TABLE {there} ADD CONSTRAINT known CHECK (item <> 'refused')")
    pair.sql(spark, "orders", "INSERT INTO {t} VALUES (100, 'refused', 1, null)")
    pair.sql(spark, "orders", "UPDATE {t} SET n = 2 WHERE id = 3")
    before = pair.version("orders")
    done = adopt_backup(spark, pair.topology, "orders", SEATTLE, backup(spark, pair, "orders"))
    assert done.dead_letters == 1
    feed = spark.read.option("readChangeFeed", "true").option("startingVersion", before + 1)
    changes = feed.format("delta").load(str(pair.path("orders", SEATTLE))).collect()
    seen = {(row["id"], row["_change_type"]) for row in changes}
    assert {(777, "delete"), (3, "update_postimage"), (2, "update_postimage")} <= seen
    rows = spark.sql(f"SELECT * FROM {there} ORDER BY id").collect()
    assert [row["id"] for row in rows] == list(range(9))
    assert {row["note"] for row in rows} == {"mine"}
    assert {(row["S"]["a"], row["S"]["b"]) for row in rows} == {(1, "b")}
    (letter,) = pair.dead_letters("orders")
    assert json.loads(letter["key"]) == {"id": 100} and "known" in letter["cause"]
