"""Added columns are carried, by name; types that cannot be reconciled hold their stream with a
cause.

Elsewhere: renamed and dropped columns in ``test_ddl_family``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pair import Pair
from sites import SEATTLE

from spark_wan.delta.tables import load

WEIRD = "struct<`a-b`:int,c:array<struct<`e.f`:string>>>"


@pytest.fixture(scope="module")
def pair(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """Columns are added in three steps. ``people`` is applied at each; ``later`` only at the
    end; ``events`` has no key; ``cased`` has a target that the site created.
    """
    pair = Pair.of(
        tmp_path_factory.mktemp("schema") / "wan",
        {"people": {}, "events": {"keys": []}, "cased": {}, "later": {"senders": ["west"]}},
        {"east": {}, "west": {}},
    )
    tables = ("people", "events", "cased", "later")
    for table in tables:
        pair.make(spark, table, "id bigint, name string")
        pair.sql(spark, table, "INSERT INTO {t} VALUES (1, 'one'), (2, 'two')")
    columns = "note string, NAME string, Id bigint"
    spark.sql(f"CREATE TABLE {pair.name('cased', SEATTLE)} ({columns}) USING delta").collect()
    pair.send(spark, senders=["east", "west"])
    pair.apply(spark)
    spark.sql(f"UPDATE {pair.name('cased', SEATTLE)} SET note = 'seattle''s own'").collect()

    for table in tables:
        pair.sql(spark, table, "ALTER TABLE {t} ADD COLUMNS (age int, born date)")
        pair.sql(spark, table, "INSERT INTO {t} VALUES (3, 'three', 3, DATE'2000-01-03')")
    for table in ("people", "cased"):
        pair.sql(spark, table, "UPDATE {t} SET age = 1 WHERE id = 1")
    pair.send(spark, senders=["east", "west"])
    pair.apply(spark)

    for table in ("people", "later"):
        columns = (
            f"code varchar(3), more map<string,{WEIRD}>, said variant, `dotted.Name` string FIRST"
        )
        pair.sql(spark, table, f"ALTER TABLE {{t}} ADD COLUMNS ({columns})")
        pair.sql(
            spark,
            table,
            "INSERT INTO {t} (id, name, code, more, said, `dotted.Name`) VALUES (4, 'four', 'abc',"
            " map('k', named_struct('a-b', 1, 'c', array(named_struct('e.f', 'x')))),"
            " parse_json('[1]'), 'd')",
        )
    pair.send(spark, senders=["east", "west"])
    pair.apply(spark)
    pair.apply(spark, "west")
    return pair


def test_b80_added_columns_reach_the_target(spark: Any, pair: Pair) -> None:
    """Older rows have nulls in them, at both sites.

    Fails when `SchemaEvolution` adds no columns.
    """
    pair.assert_same(spark, "people", "events")
    assert load(spark, pair.location("people", SEATTLE)).where("age IS NULL").count() == 2
    assert dict(load(spark, pair.location("people", SEATTLE)).dtypes)["more"].startswith(
        "map<string,struct<"
    )


def test_b80_added_columns_reach_a_target_that_starts_late(spark: Any, pair: Pair) -> None:
    """All epochs, with different columns, were waiting when seattle received for the first time.

    Fails when `SchemaEvolution` adds no columns.
    """
    assert len({len(manifest.schema["fields"]) for manifest in pair.manifests("later")}) > 2
    pair.assert_same(spark, "later")


def test_columns_unify_by_name_and_a_targets_own_columns_stay(spark: Any, pair: Pair) -> None:
    """Whatever their order and case; only replicated columns are assigned."""
    target = load(spark, pair.location("cased", SEATTLE)).selectExpr(
        "id AS id", "name AS name", "note", "age"
    )
    rows = {row["id"]: row for row in target.collect()}
    assert {id: row["name"] for id, row in rows.items()} == {1: "one", 2: "two", 3: "three"}
    assert {id: row["note"] for id, row in rows.items()} == {
        1: "seattle's own",
        2: "seattle's own",
        3: None,
    }
    assert (rows[1]["age"], rows[3]["age"]) == (1, 3)


def test_names_that_need_a_column_mapping_arrive(spark: Any, tmp_path: Path) -> None:
    """Blanks, commas and the like: Delta allows them only with a column mapping, so the new
    target has one.
    """
    pair = Pair.of(tmp_path / "wan", {"odd": {"keys": ["order no"]}})
    pair.make(spark, "odd", "`order no` bigint, `a,b` string", "delta.columnMapping.mode = 'name'")
    pair.sql(spark, "odd", "INSERT INTO {t} VALUES (1, 'x'), (2, 'y')")
    pair.replicate(spark)
    pair.sql(spark, "odd", "ALTER TABLE {t} ADD COLUMNS (`c;d` int)")
    pair.sql(spark, "odd", "UPDATE {t} SET `c;d` = 7 WHERE `order no` = 1")
    pair.replicate(spark)
    pair.assert_same(spark, "odd")


def test_b81_types_that_cannot_be_reconciled_are_refused_with_names(
    spark: Any, tmp_path: Path
) -> None:
    pair = Pair.of(tmp_path / "wan", {"people": {}})
    pair.make(spark, "people", "id bigint, name string, age string")
    pair.sql(spark, "people", "INSERT INTO {t} VALUES (1, 'one', 'old')")
    spark.sql(
        f"CREATE TABLE {pair.name('people', SEATTLE)} (id bigint, name string, age int) USING delta"
    ).collect()
    pair.send(spark)
    held = pair.apply(spark)["people"].held
    assert held and "age is integer here and string at the origin" in held
    assert "ALTER" in held
    assert load(spark, pair.location("people", SEATTLE)).count() == 0
    assert pair.acked("people") == 0
