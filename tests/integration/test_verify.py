"""A table is compared with its copies, at the same cut; and what differs is repaired."""

from __future__ import annotations

import json
import shutil
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import exact
import pyarrow as pa
import pytest
from counted_rows import CountedRows
from dates import merge
from deltalake import DeltaTable
from pair import Pair
from sites import NEWARK, SEATTLE, Sites

import spark_wan
from spark_wan.cli import launcher
from spark_wan.cli.app import main
from spark_wan.cli.verify import repairs_of
from spark_wan.delta.tables import load
from spark_wan.sync import compare
from spark_wan.sync.findings import Comparison, Kind
from spark_wan.sync.request import request_copy

ROWS, EXAMPLES = 60, 16


@pytest.fixture(scope="module")
def replicated(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Sites:
    """Two sites that are equal. Copy it before something is changed."""
    sites = Sites.make(tmp_path_factory.mktemp("verify") / "wan")
    sites.change(10)
    sites.replicate(spark)
    return sites


@pytest.fixture
def equal(replicated: Sites, tmp_path: Path) -> Sites:
    return replicated.copy(tmp_path / "wan")


def verified(spark: Any, sites: Sites, table: str = "orders", **options: Any) -> Comparison:
    (found,) = spark_wan.verify(spark, sites.topology, table, **options)
    return found


def place(sites: Sites, table: str = "orders", site: str = SEATTLE) -> str:
    return f"delta.`{sites.path(table, site)}`"


@pytest.mark.core
def test_equal_tables_are_equal_and_what_differs_is_named(spark: Any, equal: Sites) -> None:
    same = verified(spark, equal)
    assert same.is_equal and same.problem is None, same
    assert same.origin_rows == same.target_rows > 0
    assert (same.origin_version, same.target_version) == (3, equal.version("orders"))
    target = place(equal)
    spark.sql(f"DELETE FROM {target} WHERE id = 10")
    spark.sql(f"UPDATE {target} SET amount = null, item = 'x' WHERE id = 12")
    spark.sql(f"UPDATE {target} SET amount = double('-0.0') WHERE id = 11")
    spark.sql(f"INSERT INTO {target} (id) VALUES (900), (901)")
    found = verified(spark, equal)
    assert not found.is_equal
    assert found.counts == {Kind.MISSING: 1, Kind.DIFFERS: 2, Kind.EXTRA: 2}
    assert found.columns == {"item": 1, "amount": 2}
    assert [(each.row, each.kind, each.columns) for each in found.examples] == [
        ('{"id":10}', Kind.MISSING, ()),
        ('{"id":11}', Kind.DIFFERS, ("amount",)),
        ('{"id":12}', Kind.DIFFERS, ("item", "amount")),
        ('{"id":900}', Kind.EXTRA, ()),
        ('{"id":901}', Kind.EXTRA, ()),
    ]
    assert "4 commits of others changed rows" in found.notes[0]
    few = verified(spark, equal, limit=1)
    assert (few.counts, len(few.examples)) == (found.counts, 1)


def test_a_target_is_compared_with_the_version_that_it_has(spark: Any, equal: Sites) -> None:
    """It is behind, and the origin has moved on. Fails when the newest versions are compared."""
    equal.change(40)
    found = verified(spark, equal)
    assert found.is_equal and found.origin_version == 3
    equal.replicate(spark)
    found = verified(spark, equal)
    assert found.is_equal and found.origin_version == 7


def test_keys_of_which_there_are_several_rows(spark: Any, equal: Sites) -> None:
    spark.sql(f"INSERT INTO {place(equal)} SELECT * FROM {place(equal)} WHERE id IN (10, 11)")
    spark.sql(f"DELETE FROM {place(equal)} WHERE id = 12")
    found = verified(spark, equal)
    assert found.counts == {Kind.REPEATED: 2, Kind.MISSING: 1} and found.has_twins
    assert [(each.at_origin, each.at_target) for each in found.examples] == [(1, 2), (1, 2), (1, 0)]
    # A copy of all rows takes the place of the twins.
    (repair,) = repairs_of(equal.topology, [found], dry_run=False)
    assert not repair.difference
    equal.send(spark)
    equal.apply(spark, rounds=2)
    assert verified(spark, equal).is_equal


def test_rows_without_keys_count_as_often_as_they_are_there(spark: Any, equal: Sites) -> None:
    assert verified(spark, equal, "readings").is_equal
    readings = place(equal, "readings")
    spark.sql(f"INSERT INTO {readings} SELECT * FROM {readings} WHERE sensor = 'attic'")
    spark.sql(f"DELETE FROM {readings} WHERE sensor = 'cellar 11'")
    spark.sql(f"INSERT INTO {readings} VALUES (null, 20.5)")
    found = verified(spark, equal, "readings")
    assert found.counts == {Kind.EXTRA: 4, Kind.MISSING: 1}
    shown = {json.loads(each.row)["sensor"]: each for each in found.examples}
    assert (shown["attic"].at_origin, shown["attic"].at_target) == (3, 6)
    assert (shown["cellar 11"].kind, shown[None].kind) == (Kind.MISSING, Kind.EXTRA)


def test_a_sample_is_a_share_of_the_keys(spark: Any, equal: Sites) -> None:
    spark.sql(f"DELETE FROM {place(equal)}")
    spark.sql(f"INSERT INTO {place(equal)} SELECT id, 'x', 1.0 FROM range(1000, 3000)")
    found = verified(spark, equal, sample=10)
    assert found.share == 0.1 and 100 < found.counts[Kind.EXTRA] < 300
    assert found.counts[Kind.EXTRA] == found.target_rows


@pytest.mark.parametrize("sample", [100.0, 50.0])
def test_a_comparison_reads_at_a_rate(
    spark: Any, equal: Sites, monkeypatch: pytest.MonkeyPatch, sample: float
) -> None:
    """Both sides, for the sums and for the rows that differ, and finds the same. All rows of the
    tables pass, whatever is chosen of them."""
    passed = Path(equal.topology.file).parent / "passed"
    passed.mkdir()
    monkeypatch.setattr(compare, "PacedRows", partial(CountedRows, str(passed)))
    target = place(equal)
    spark.sql(f"DELETE FROM {target} WHERE id < 10000 AND id % 2 = 0")
    found = verified(spark, equal, rate=50 * 2**20, sample=sample)
    plain = verified(spark, equal, sample=sample)
    assert found == plain and found.counts[Kind.MISSING] > 0
    whole = [spark.table(place(equal, site=site)).count() for site in (NEWARK, SEATTLE)]
    counts = [int(file.read_text()) for file in passed.iterdir()]
    assert sum(counts) == 2 * sum(whole)


def test_verify_while_both_sites_write(spark: Any, equal: Sites) -> None:
    """Fails when a side is read without its version."""
    done = threading.Event()
    problems: list[BaseException] = []

    def work() -> None:
        try:
            for start in range(40, 400, 10):
                equal.change(start)
                equal.replicate(spark)
                if done.is_set():
                    return
        except BaseException as error:
            problems.append(error)

    writer = threading.Thread(target=work)
    writer.start()
    try:
        found = [verified(spark, equal, table) for table in ("orders", "readings") * 2]
    finally:
        done.set()
        writer.join()
    assert problems == []
    assert [(each.is_equal, each.problem) for each in found] == [(True, None)] * 4
    assert len({each.origin_version for each in found}) > 1


# --- columns and types


def test_columns_of_one_site_alone(spark: Any, tmp_path: Path) -> None:
    pair = Pair.of(tmp_path / "wan", {"t": {}})
    properties = "delta.columnMapping.mode = 'name'"
    pair.make(spark, "t", "id int, a string, b string, s struct<x: int, y: int>", properties)
    pair.sql(spark, "t", "INSERT INTO {t} VALUES (1, 'a', 'b', named_struct('x', 1, 'y', 2))")
    pair.replicate(spark)
    there = pair.name("t", SEATTLE)
    spark.sql(f"ALTER TABLE {there} ADD COLUMNS (mine string, s.mine int)")
    spark.sql(f"UPDATE {there} SET mine = 'm', s.mine = 7")
    assert verified(spark, pair, "t").is_equal
    upgrade = "('delta.columnMapping.mode' = 'name', 'delta.enableTypeWidening' = 'true')"
    spark.sql(f"ALTER TABLE {there} SET TBLPROPERTIES {upgrade}")
    spark.sql(f"ALTER TABLE {there} ALTER COLUMN id TYPE bigint")
    spark.sql(f"ALTER TABLE {there} DROP COLUMN a")
    found = verified(spark, pair, "t")
    assert not found.is_equal and not found.rows_differ
    assert (found.only_at_origin, found.not_compared) == (("a",), ())
    spark.sql(f"ALTER TABLE {there} DROP COLUMN b")
    spark.sql(f"ALTER TABLE {there} ADD COLUMN b int")
    found = verified(spark, pair, "t")
    assert found.not_compared == ("b: string at the origin, integer at the target",)
    spark.sql(f"ALTER TABLE {there} DROP COLUMN id")
    assert "key column 'id' is not at both sites" in str(verified(spark, pair, "t").problem)


def schema_of_values() -> pa.Schema:
    nested = exact.generated(exact.types(), 36)[2::3]
    kinds = [*exact.LEAVES, *nested]
    return pa.schema([("id", pa.int64()), *((f"c{n}", kind) for n, kind in enumerate(kinds))])


def test_a_difference_of_any_type_is_found(spark: Any, tmp_path: Path) -> None:
    """Generated values of each type and of nested ones. Equal tables are equal; then one row
    differs in each column, by as little as can be."""
    schema = schema_of_values()
    drawn = {
        field.name: [None, *exact.generated(exact.values(field.type), EXAMPLES)]
        for field in list(schema)[1:]
    }
    rows = [
        {
            "id": number,
            **{
                name: values[(number + 7 * n) % len(values)]
                for n, (name, values) in enumerate(drawn.items())
            },
        }
        for number in range(ROWS)
    ]
    pair = Pair.of(tmp_path / "wan", {"values": {}})
    pair.make(spark, "values", ", ".join(f"{f.name} {exact.name(f.type)}" for f in schema))
    merge(spark, pair, "values", pa.Table.from_pylist(rows, schema=schema), "id")
    pair.replicate(spark)
    assert verified(spark, pair, "values").is_equal
    shutil.copytree(pair.path("values", SEATTLE), tmp_path / "kept")
    columns = list(schema)[1:]
    for turn in range(2):
        changed = []
        for n, field in enumerate(columns):
            number = (n * 3 + turn * 11) % ROWS
            value = exact.nudged(rows[number][field.name], field.type, n + turn)
            changed.append((number, field, value))
        overwrite(spark, pair, tmp_path, rows, changed)
        found = verified(spark, pair, "values", limit=1_000)
        named = {(json.loads(each.row)["id"], c) for each in found.examples for c in each.columns}
        assert named == {(number, field.name) for number, field, _ in changed}
        assert found.columns == {field.name: 1 for field in columns}


def overwrite(
    spark: Any, pair: Pair, folder: Path, rows: list[dict[str, Any]], changed: list[Any]
) -> None:
    """Write the rows to the target, some with another value."""
    import pyarrow.parquet as pq

    altered = {row["id"]: dict(row) for row in rows}
    for number, field, value in changed:
        altered[number][field.name] = value
    file = folder / "altered.parquet"
    pq.write_table(pa.Table.from_pylist([*altered.values()], schema=schema_of_values()), file)
    frame = spark.read.parquet(str(file))
    frame.write.format("delta").mode("overwrite").save(pair.location("values", SEATTLE))


def test_variants_chars_and_voids(spark: Any, tmp_path: Path) -> None:
    pair = Pair.of(tmp_path / "wan", {"odd": {"keys": ["code"]}})
    pair.make(spark, "odd", "code char(4), v variant, r struct<v: variant, n: void>, n void")
    values = "parse_json(x), named_struct('v', parse_json(x), 'n', null), null"
    rows = f"SELECT c, {values} FROM VALUES ('a', '[1]'), ('b ', '{{}}'), ('c', null) AS t(c, x)"
    pair.sql(spark, "odd", f"INSERT INTO {{t}} {rows}")
    pair.replicate(spark)
    assert verified(spark, pair, "odd").is_equal
    there = pair.name("odd", SEATTLE)
    spark.sql(f"UPDATE {there} SET v = parse_json('[2]') WHERE code LIKE 'a%'")
    spark.sql(f"UPDATE {there} SET r = null WHERE code LIKE 'b%'")
    found = verified(spark, pair, "odd")
    assert [each.columns for each in found.examples] == [("v",), ("r",)]


def test_tables_without_a_flat_column(spark: Any, tmp_path: Path) -> None:
    pair = Pair.of(tmp_path / "wan", {"odd": {"keys": [], "start": {"version": 0}}})
    pair.make(spark, "odd", "m map<string, int>")
    pair.sql(spark, "odd", "INSERT INTO {t} VALUES (map('a', 1, 'b', 2)), (map()), (null)")
    pair.replicate(spark)
    assert verified(spark, pair, "odd").is_equal
    there = pair.name("odd", SEATTLE)
    spark.sql(f"UPDATE {there} SET m = map('b', 2, 'a', 1) WHERE size(m) = 2")
    assert verified(spark, pair, "odd").is_equal
    spark.sql(f"DELETE FROM {there} WHERE m IS NULL")
    assert verified(spark, pair, "odd").counts == {Kind.MISSING: 1}


# --- what explains, and what prevents


def test_a_dead_letter_explains_a_missing_row(spark: Any, equal: Sites) -> None:
    spark.sql(f"ALTER TABLE {place(equal)} ADD CONSTRAINT small CHECK (id < 50)")
    equal.append("orders", [{"id": number, "item": "i", "amount": 1.0} for number in (49, 50)])
    equal.replicate(spark)
    found = verified(spark, equal)
    assert found.counts == {Kind.MISSING: 1}
    (missing,) = found.examples
    assert missing.row == '{"id":50}' and "small" in str(missing.dead_letter)
    assert any("in the ledger of the site: 1;" in note for note in found.notes)


def vacuumed(spark: Any, sites: Sites, site: str) -> None:
    """Rewrite the table, and delete the files that it had before."""
    spark.sql(f"DELETE FROM {place(sites, site=site)} WHERE id = 11")
    spark.sql(f"OPTIMIZE {place(sites, site=site)}")
    spark.sql(f"VACUUM {place(sites, site=site)} RETAIN 0 HOURS")


def source_vacuumed(spark: Any, sites: Sites) -> str:
    vacuumed(spark, sites, NEWARK)
    return "version 3 at site newark .* can no longer be read: VACUUM or log cleanup"


def source_replaced(spark: Any, sites: Sites) -> str:
    shutil.rmtree(sites.path("orders"))
    sites.append("orders", [{"id": 1, "item": "other", "amount": 1.0}])
    return "site seattle has the rows of another table at newark"


def nothing_applied(spark: Any, sites: Sites) -> str:
    shutil.rmtree(sites.path("orders", SEATTLE))
    sites.append("orders", [{"id": 1, "item": "other", "amount": 1.0}], SEATTLE)
    return "no commit at site seattle says what is applied there"


def target_missing(spark: Any, sites: Sites) -> str:
    shutil.rmtree(sites.path("orders", SEATTLE))
    return "there is no Delta table at site seattle"


def source_restored_from_a_backup(spark: Any, sites: Sites) -> str:
    log = sites.path("orders") / "_delta_log"
    (log / f"{3:020}.json").unlink()
    return "version 3 is not at site newark any more, where the newest is 2"


PROBLEMS = [
    source_vacuumed,
    source_replaced,
    nothing_applied,
    target_missing,
    source_restored_from_a_backup,
]


@pytest.mark.parametrize("fault", PROBLEMS, ids=[each.__name__ for each in PROBLEMS])
def test_what_cannot_be_compared_says_why(
    spark: Any, equal: Sites, fault: Callable[[Any, Sites], str]
) -> None:
    import re

    expected = fault(spark, equal)
    found = verified(spark, equal)
    assert found.problem is not None and re.search(expected, found.problem), found.problem
    assert not found.is_equal


def test_a_table_whose_retention_has_passed_is_compared_while_its_files_are_there(
    spark: Any, equal: Sites
) -> None:
    """Delta refuses time travel beyond the retention, but not to the newest version."""
    for site in (NEWARK, SEATTLE):
        properties = "delta.deletedFileRetentionDuration = 'interval 0 seconds'"
        spark.sql(f"ALTER TABLE {place(equal, site=site)} SET TBLPROPERTIES ({properties})")
    found = verified(spark, equal)
    assert found.problem is None or "can no longer be read" in found.problem


# --- repairs


@pytest.mark.core
def test_a_repair_changes_only_what_differs(spark: Any, equal: Sites) -> None:
    """Where a copy would overwrite. Fails when the request, the copy or the write forgets it."""
    feed = f"ALTER TABLE {place(equal)} SET TBLPROPERTIES (delta.enableChangeDataFeed = true)"
    spark.sql(f"UPDATE {place(equal)} SET item = 'wrong' WHERE id = 12")
    spark.sql(f"UPDATE {place(equal)} SET amount = double('-0.0') WHERE id = 11")
    spark.sql(f"INSERT INTO {place(equal)} (id) VALUES (900)")
    spark.sql(f"DELETE FROM {place(equal)} WHERE id = 10")
    found = verified(spark, equal)
    asked = equal.channel().notes("acks")
    (would,) = repairs_of(equal.topology, [found], dry_run=True)
    assert would.dry_run and equal.channel().notes("acks") == asked
    (repair,) = repairs_of(equal.topology, [found], dry_run=False)
    assert repair.difference and repair.stream == would.stream
    equal.send(spark)
    equal.apply(spark, rounds=2)
    assert verified(spark, equal).is_equal
    (newest, *_) = DeltaTable(equal.path("orders", SEATTLE)).history(1)
    assert newest["operation"] == "MERGE"
    metrics = newest["operationMetrics"]
    touched = [int(metrics[f"numTargetRows{what}"]) for what in ("Updated", "Inserted", "Deleted")]
    assert touched == [2, 1, 1]
    spark.sql(feed)
    equal.change(60)
    equal.replicate(spark)
    assert verified(spark, equal).is_equal


def test_a_plain_copy_still_overwrites(spark: Any, equal: Sites) -> None:
    request_copy(equal.topology, "orders", SEATTLE)
    equal.send(spark)
    equal.apply(spark, rounds=2)
    (newest, *_) = DeltaTable(equal.path("orders", SEATTLE)).history(1)
    assert newest["operation"] == "WRITE"


def test_a_repair_of_a_table_without_keys(spark: Any, equal: Sites) -> None:
    spark.sql(f"DELETE FROM {place(equal, 'readings')} WHERE sensor = 'cellar 11'")
    found = verified(spark, equal, "readings")
    (repair,) = repairs_of(equal.topology, [found], dry_run=False)
    assert not repair.difference
    equal.send(spark)
    equal.apply(spark, rounds=2)
    assert verified(spark, equal, "readings").is_equal
    assert load(spark, str(equal.path("readings", SEATTLE))).count() == found.origin_rows


# --- the commands


def test_the_commands_verify_and_undo(
    spark: Any,
    equal: Sites,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In the session that is there, as in a notebook."""
    monkeypatch.setattr(launcher, "_set_up_logging", lambda *_: None)

    def run(*words: str) -> tuple[int, str]:
        config = str(equal.folder / "wan.yaml")
        monkeypatch.setattr(sys, "argv", ["spark-wan", *words, "-c", config, "--table", "orders"])
        with pytest.raises(SystemExit) as end:
            main()
        return int(end.value.code or 0), capsys.readouterr().out

    assert run("verify")[0] == 0
    code, printed = run("undo", "--versions", "1-3", "--dry-run")
    assert code == 0 and "would undo versions 1 to 3 of orders at newark" in printed
    code, printed = run("undo", "--versions", "1-3")
    assert code == 0 and printed.startswith("version 4 undoes versions 1 to 3 of orders")
    assert run("verify")[0] == 0  # seattle is behind, and equal to what it has
    spark.sql(f"DELETE FROM {place(equal)} WHERE id = 12")
    code, printed = run("verify", "--sites", "seattle", "--output", "json")
    assert code == 3 and json.loads(printed)["sites"][0]["counts"] == {"missing": 1}
    code, printed = run("verify", "--repair")
    assert code == 3 and "Nothing is written yet" in printed
    for _ in range(2):
        equal.send(spark)
        equal.apply(spark, rounds=2)
    assert run("verify")[0] == 0
