"""Every kind of DDL at the source and at the target while an epoch waits in the channel: afterwards
the tables are equal, or the stream is held with a cause that names a remedy.

Each case works on a copy of two sites whose first epoch is applied and whose second waits. After
DDL at the source, more rows follow.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from pair import Pair
from sites import NEWARK, SEATTLE

from spark_wan.delta.tables import load
from spark_wan.errors import WanError
from spark_wan.sender.job import Sender
from spark_wan.state.decisions import parse_decisions
from spark_wan.sync.request import request_copy
from spark_wan.wire.decisions import Decisions

NESTED_COLUMNS = "s struct<x:int>, list array<struct<x:int>>, map map<string,struct<x:int>>"
COLUMNS = f"id bigint, qty int, note string, {NESTED_COLUMNS}"
ROW = (
    "'n{0}', named_struct('x', {0}), array(named_struct('x', {0})), "
    "map('k', named_struct('x', {0}))"
)
MAPPED, PLAIN = "mapped", "plain"
PROPERTIES = {
    MAPPED: "delta.columnMapping.mode = 'name'",
    PLAIN: "delta.enableTypeWidening = true",
}
CLAUSES = ("ADD", "ALTER COLUMN", "CLUSTER", "DROP COL", "DROP CON", "RENAME", "REPLACE", "SET")
"""A statement that starts with one of these, or ``UNSET``, is a clause of ``ALTER TABLE {t}``."""
EQUAL = ""
REMEDY = (
    r"new (table )?name|ALTER TABLE|decide|spark-wan sync|put the old one back|"
    r"restore the old one"
)
SYNC = "for a copy run `spark-wan sync`"
RESYNC = r"decide (t@\d+=resync)`"
WIDEN = "ALTER TABLE {seattle} SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')"


@dataclass(frozen=True)
class Case:
    """Statements at one site (``{t}``), the expected cause or :data:`EQUAL`, and the remedy of a
    held stream.
    """

    name: str
    site: str
    kind: str
    statements: Sequence[str]
    ends: str
    remedy: Sequence[str] = ()
    rows: str = "UPDATE {t} SET id = id WHERE id < 3"
    """Run at the source after the statements."""
    remade: bool = False
    """The target is dropped before it takes a copy, as the cause says there."""
    decide: bool = False
    """Distribute the first commit of the statements, a whole-table operation."""
    core: bool = False
    """Runs in the quick tier."""


def source(name: str, kind: str, *statements: str, ends: str = EQUAL, **more: Any) -> Case:
    return Case(f"source-{name}", NEWARK, kind, statements, ends, **more)


def target(name: str, kind: str, *statements: str, ends: str = EQUAL, **more: Any) -> Case:
    return Case(f"target-{name}", SEATTLE, kind, statements, ends, **more)


HARMLESS = (
    "ALTER COLUMN qty COMMENT 'so many'",
    "ALTER COLUMN qty FIRST",
    "ALTER COLUMN s AFTER qty",
    "SET TBLPROPERTIES ('a.property' = 'b', delta.feature.allowColumnDefaults = 'supported')",
    "UNSET TBLPROPERTIES ('a.property')",
    "COMMENT ON TABLE {t} IS 'a comment'",
    "CLUSTER BY (id)",
    "OPTIMIZE {t}",
    "CLUSTER BY NONE",
    "SET TBLPROPERTIES (delta.enableRowTracking = true, delta.enableDeletionVectors = true)",
    "DELETE FROM {t} WHERE id = -1",
    "REORG TABLE {t} APPLY (PURGE)",
    "SET TBLPROPERTIES (delta.enableRowTracking = false, delta.enableDeletionVectors = false)",
    "ADD CONSTRAINT positive CHECK (id > -5)",
    "DROP CONSTRAINT positive",
    "VACUUM {t}",
    "CREATE TABLE {t2} SHALLOW CLONE {t}",
)
NESTED = "ADD COLUMNS (more int, s.y int, list.element.y int, map.value.y struct<z:int>)"
WITH_NESTED = (
    "INSERT INTO {t} (id, qty, note, more, s, list, map) VALUES (8, 8, 'n', 8, "
    "named_struct('x', 8, 'y', 8), array(named_struct('x', 8, 'y', 8)), "
    "map('k', named_struct('x', 8, 'y', named_struct('z', 8))))"
)
MORE = f"INSERT INTO {{t}} (id, qty, note, s, list, map) VALUES (7, 7, {ROW.format(7)})"
WIDER = (
    MORE,
    "ALTER COLUMN qty TYPE bigint",
    "ALTER COLUMN s.x TYPE decimal(12,2)",
    "UPDATE {t} SET qty = 5000000000 WHERE id = 7",
    "ALTER COLUMN list.element.x TYPE double",
    "ALTER COLUMN map.value.x TYPE bigint",
    "UPDATE {t} SET s = named_struct('x', 1.25) WHERE id = 1",
)

CASES = [
    # --- at the source
    source("harmless", MAPPED, *HARMLESS, "ALTER COLUMN note DROP NOT NULL"),
    source(
        "defaults", PLAIN, *HARMLESS[3:4], "ALTER COLUMN qty SET DEFAULT 5", NESTED, WITH_NESTED
    ),
    source("nested-added", MAPPED, MORE, NESTED, WITH_NESTED, core=True),
    source(
        "mapping-upgrade",
        PLAIN,
        MORE,
        "SET TBLPROPERTIES (delta.columnMapping.mode = 'name')",
        NESTED,
        WITH_NESTED,
    ),
    source(
        "mapping-removed-too-early",
        MAPPED,
        MORE,
        "SET TBLPROPERTIES (delta.columnMapping.mode = 'none')",
        ends=f"columns were replaced in between or since.*{RESYNC}",
    ),
    source(
        "renamed-and-back",
        MAPPED,
        "RENAME COLUMN qty TO amount",
        "RENAME COLUMN s.x TO y",
        "UPDATE {t} SET amount = 77 WHERE id = 2",
        "RENAME COLUMN amount TO qty",
        "RENAME COLUMN s.y TO x",
        core=True,
    ),
    source(
        "renamed",
        MAPPED,
        MORE,
        "RENAME COLUMN qty TO amount",
        ends="renames columns: qty is named amount now.*Rename back",
        remedy=["ALTER TABLE {newark} RENAME COLUMN amount TO qty"],
    ),
    source("dropped", MAPPED, "DROP COLUMN qty", ends=f"drops columns.*qty.*{RESYNC}"),
    source(
        "dropped-and-added",
        MAPPED,
        NESTED,
        "DROP COLUMN s.x",
        "ADD COLUMNS (s.x int)",
        ends="drops columns.*s.x",
        core=True,
    ),
    source(
        "widened",
        PLAIN,
        *WIDER,
        ends=r"qty is integer here and long at the origin.*ALTER TABLE",
        remedy=[WIDEN],
    ),
    source(
        "widened-mapped",
        MAPPED,
        "ALTER TABLE {seattle} SET TBLPROPERTIES (delta.enableTypeWidening = true)",
        "SET TBLPROPERTIES (delta.enableTypeWidening = true)",
        *WIDER[:4],
    ),
    source(
        "retyped",
        PLAIN,
        "OVERWRITE SELECT * EXCEPT (qty), string(qty) qty FROM {t}",
        ends=f"qty was integer and is string.*{RESYNC}",
        remade=True,
    ),
    source("overwritten-mapped", MAPPED, MORE, "OVERWRITE SELECT * FROM {t} WHERE id > 1"),
    source(
        "create-or-replace",
        PLAIN,
        "CREATE OR REPLACE TABLE {t} USING delta AS SELECT 1L id, 1 qty",
        ends="is a CREATE OR REPLACE TABLE AS SELECT.*decide",
        rows="",
    ),
    source(
        "create-or-replace-distributed",
        MAPPED,
        "CREATE OR REPLACE TABLE {t} USING delta TBLPROPERTIES "
        "(delta.enableChangeDataFeed = true, delta.columnMapping.mode = 'name') "
        "AS SELECT * FROM {t} WHERE id > 1",
        decide=True,
    ),
    source(
        "drop-create",
        PLAIN,
        "DROP",
        "CREATE TABLE {t} (id bigint, qty int) USING delta TBLPROPERTIES "
        "(delta.enableChangeDataFeed = true)",
        ends=f"dropped and created again.*{RESYNC}",
        rows="",
    ),
    source(
        "vacuum-too-early",
        PLAIN,
        "UPDATE {t} SET qty = 9 WHERE id < 3",
        "VACUUM {t} RETAIN 0 HOURS",
        rows="",
        ends=f"waits for the versions.*{SYNC}",
    ),
    # --- at the target
    target(
        "harmless",
        MAPPED,
        *HARMLESS,
        "VACUUM {t} RETAIN 0 HOURS",
        "ADD COLUMNS (own int, owner string)",
    ),
    target(
        "harmless-upgrade",
        PLAIN,
        "SET TBLPROPERTIES (delta.columnMapping.mode = 'name', delta.enableTypeWidening = true)",
        "ALTER COLUMN s.x TYPE bigint",
        "ALTER COLUMN qty TYPE double",
        "ALTER COLUMN list.element.x TYPE decimal(12,2)",
        "RENAME COLUMN qty TO q",
        "RENAME COLUMN q TO QTY",
        "SET TBLPROPERTIES (delta.enableChangeDataFeed = true)",
        "SET TBLPROPERTIES (delta.enableChangeDataFeed = false)",
        "ADD COLUMNS (mine int)",
        "DROP COLUMN mine",
    ),
    target("mapping-removed", MAPPED, "SET TBLPROPERTIES (delta.columnMapping.mode = 'none')"),
    target("overwritten", PLAIN, "OVERWRITE SELECT * FROM {t}"),
    target(
        "renamed",
        MAPPED,
        "RENAME COLUMN qty TO amount",
        ends=r"qty is named amount now.*RENAME COLUMN `amount` TO `qty`",
        remedy=["ALTER TABLE {seattle} RENAME COLUMN `amount` TO `qty`"],
        core=True,
    ),
    target(
        "nested-renamed",
        MAPPED,
        "RENAME COLUMN list.element.x TO y",
        ends=r"list.element.x is named list.element.y now.*RENAME COLUMN "
        r"`list`.`element`.`y` TO `x`",
        remedy=["ALTER TABLE {seattle} RENAME COLUMN `list`.`element`.`y` TO `x`"],
    ),
    target(
        "dropped-and-added",
        MAPPED,
        "DROP COLUMNS (qty, s)",
        "ADD COLUMNS (qty int, s struct<x:int>)",
        ends="qty was dropped.*another column has its name now; s was dropped",
        core=True,
    ),
    target(
        "replaced-and-added",
        MAPPED,
        "REPLACE COLUMNS (id bigint, note string)",
        f"ADD COLUMNS (qty int, {NESTED_COLUMNS})",
        ends="qty was dropped.*another column has its name now",
    ),
    target(
        "overwritten-without-a-column",
        PLAIN,
        "OVERWRITE SELECT * EXCEPT (qty) FROM {t}",
        ends="qty is gone",
    ),
    target("drop", PLAIN, "DROP", ends="is missing.*spark-wan sync"),
    target(
        "drop-create",
        PLAIN,
        "DROP",
        f"CREATE TABLE {{t}} ({COLUMNS}) USING delta",
        ends="dropped and recreated.*spark-wan sync",
    ),
    target(
        "create-or-replace",
        MAPPED,
        "CREATE OR REPLACE TABLE {t} USING delta AS SELECT 1L id, 1 qty",
        ends="recreated, or replaced.*spark-wan sync",
    ),
    target(
        "restore",
        PLAIN,
        "RESTORE TABLE {t} TO VERSION AS OF 0",
        ends="is a RESTORE.*spark-wan sync",
    ),
]


@pytest.fixture(scope="module")
def worlds(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Pair]:
    """Two sites whose table has column mapping, and two without it, made when a case first asks.
    The receiver creates the targets.
    """

    @cache
    def world(kind: str) -> Pair:
        pair = Pair.of(tmp_path_factory.mktemp("ddl") / kind, {"t": {}})
        pair.make(spark, "t", COLUMNS, PROPERTIES[kind])
        rows = ", ".join(f"({n}, {n}, {ROW.format(n)})" for n in (1, 2, 3))
        pair.sql(spark, "t", f"INSERT INTO {{t}} VALUES {rows}")
        pair.replicate(spark)
        if kind == MAPPED:
            change(
                spark,
                pair,
                "ALTER TABLE {seattle} SET TBLPROPERTIES (delta.columnMapping.mode = 'name')",
                SEATTLE,
            )
        pair.sql(
            spark, "t", "UPDATE {t} SET qty = 10 * qty, s = named_struct('x', 20) WHERE id > 1"
        )
        pair.send(spark)
        return pair

    return world


def change(spark: Any, pair: Pair, statement: str, site: str) -> None:
    location = Path(pair.location("t", site))
    if statement == "DROP":
        location.rename(location.with_name("dropped"))
        return
    if statement.startswith((*CLAUSES, "UNSET")):
        statement = f"ALTER TABLE {{t}} {statement}"
    names = {"t": pair.name("t", site), "t2": pair.name("t", site).replace("/t`", "/t2`")}
    statement = statement.format(
        **names, seattle=pair.name("t", SEATTLE), newark=pair.name("t", NEWARK)
    )
    if statement.startswith("OVERWRITE "):
        overwrite(spark.sql(statement.removeprefix("OVERWRITE ")).localCheckpoint(), str(location))
    elif statement:
        spark.sql(statement).collect()


def overwrite(rows: Any, location: str) -> None:
    writer = rows.write.format("delta").mode("overwrite").option("overwriteSchema", "true")
    writer.save(location)


def rows(spark: Any, pair: Pair, site: str) -> list[str]:
    """Return the rows in the source's columns and types: those of the target may be wider."""
    table = load(spark, pair.location("t", site))
    fields = load(spark, pair.location("t", NEWARK)).schema.fields
    texts = table.select(*(table[field.name].cast(field.dataType) for field in fields)).selectExpr(
        "string(struct(*)) AS text"
    )
    return sorted(row["text"] for row in texts.collect())


def replicate(spark: Any, pair: Pair, decide: bool = False) -> str | None:
    """Send and apply; return the cause that holds the stream at either end."""
    decisions = {"t": Decisions({3: "distribute"})} if decide else {}
    sender = Sender(spark, pair.topology, NEWARK, senders=["east"], decisions=decisions).start(
        available_now=True
    )
    try:
        sender.await_termination()
    except WanError:
        assert sender.status()[0].held
    return sender.status()[0].held or pair.apply(spark)["t"].held


def copied(spark: Any, pair: Pair, decision: str = "") -> str | None:
    """Let the target get a copy; return the cause that holds the stream there then."""
    pair.send(spark, decisions=parse_decisions([decision] if decision else []))
    request_copy(pair.topology, "t", SEATTLE)
    pair.send(spark)
    return pair.apply(spark, rounds=2)["t"].held


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, id=case.name, marks=[pytest.mark.core] * case.core) for case in CASES],
)
def test_f46_ddl_while_an_epoch_waits_ends_equal_or_held(
    spark: Any, worlds: Callable[[str], Pair], tmp_path: Path, case: Case
) -> None:
    """Afterwards the tables are equal, or the cause of the hold names a remedy, which works."""
    pair = Pair(worlds(case.kind).copy(tmp_path / "wan").folder)
    for statement in case.statements:
        change(spark, pair, statement, case.site)
    if case.site == NEWARK and case.rows:
        change(spark, pair, case.rows, NEWARK)
    held = replicate(spark, pair, case.decide)
    if case.ends == EQUAL:
        assert held is None, held
    else:
        assert held is not None
        assert re.search(case.ends, held), held
        assert re.search(REMEDY, held), held
        if case.site == NEWARK and not case.remedy and re.search(f"{RESYNC}|{SYNC}", held):
            decision = re.search(RESYNC, held)
            held = copied(spark, pair, decision[1] if decision else "")
            if case.remade:
                assert held is not None and "drop the table here" in held, held
                change(spark, pair, "DROP", SEATTLE)
                held = copied(spark, pair)
            assert held is None, held
        elif not case.remedy:
            return
        for statement in case.remedy:
            change(spark, pair, statement, case.site)
        held = replicate(spark, pair)
        assert held is None, held
    assert rows(spark, pair, SEATTLE) == rows(spark, pair, NEWARK)
