"""A ledger like that of version 0.1.0 gains the columns of a later version. One that 0.1.0 has made
does so in ``test_update.py``."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from spark_wan.delta.sessions import CurrentSession
from spark_wan.ledger import tables as ledger_tables
from spark_wan.ledger.tables import LedgerTables

SCHEMAS_0_1_0 = {
    "applied": (
        "version int, table string, target_id string, target_version bigint, apply bigint, "
        "token string, mark string"
    ),
    "event_ids": (
        "version int, table string, origin string, event_id string, content string, time bigint, "
        "token string"
    ),
    "dead_letters": (
        "version int, side string, table string, stream string, event_id string, "
        "origin_version bigint, operation string, key string, cause string, row string, "
        "payload binary, token string"
    ),
}
"""Never change them."""
LETTER = {"side": "sender", "table": "orders", "stream": "newark.east.orders", "event_id": "e1"}


def grown() -> dict[str, str]:
    """Return the schemas of a version after this one."""
    return {
        name: f"{schema}, later string, count bigint"
        for name, schema in ledger_tables.SCHEMAS.items()
    }


def make_0_1_0(spark: Any, state: str) -> None:
    """Make a ledger as version 0.1.0 does, with a row in each table."""
    for name, schema in SCHEMAS_0_1_0.items():
        row = {"version": 1, "table": "orders", "event_id": "e0", "token": "t0", **LETTER}
        names = [part.split()[0] for part in schema.split(", ")]
        spark.createDataFrame([tuple(row.get(each) for each in names)], schema).write.format(
            "delta"
        ).save(f"{state}/ledger/{name}")


def names(tables: LedgerTables, name: str) -> list[str]:
    return tables.read(name).columns


def ensure_at_once(spark: Any, state: str, monkeypatch: pytest.MonkeyPatch) -> list[BaseException]:
    """Two receivers look before one of them changes the table. Return their errors."""
    both = threading.Barrier(2, timeout=120)
    looked = LedgerTables._lacks_columns

    def lacks_columns(self: LedgerTables, name: str) -> bool:
        lacks = looked(self, name)
        both.wait()
        return lacks

    errors: list[BaseException] = []

    def ensure() -> None:
        try:
            LedgerTables(CurrentSession(spark), state).ensure()
        except BaseException as error:
            errors.append(error)
            both.abort()

    with monkeypatch.context() as patch:
        patch.setattr(LedgerTables, "_lacks_columns", lacks_columns)
        # The lock serves receivers of one process.
        patch.setattr(ledger_tables, "_creating", threading.Semaphore(2))
        threads = [threading.Thread(target=ensure) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return errors


def test_a_ledger_of_version_0_1_0_gains_columns(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From two receivers at the same time, and not again. Rows of the earlier version have nulls
    there, also those that it still writes while both run.

    Fails when `ensure` only creates tables that are missing, or when the conflict of the slower
    receiver is an error.
    """
    state = str(tmp_path / "_wan")
    make_0_1_0(spark, state)
    earlier = LedgerTables(CurrentSession(spark), state)
    earlier.ensure()
    before = {name: names(earlier, name) for name in SCHEMAS_0_1_0}

    monkeypatch.setattr(ledger_tables, "SCHEMAS", grown())
    assert ensure_at_once(spark, state, monkeypatch) == []
    later = LedgerTables(CurrentSession(spark), state)
    versions = [DeltaTable(later.location(name)).version() for name in before]
    later.ensure()
    assert versions == [DeltaTable(later.location(name)).version() for name in before]
    for name in SCHEMAS_0_1_0:
        assert names(later, name) == [*before[name], "later", "count"]
        assert later.read(name).count() == 1
    later.append("applied", [{"table": "orders", "token": "t1", "later": "x", "count": 5}])
    later.merge_dead_letters([{**LETTER, "event_id": "e2", "later": "y"}])

    monkeypatch.undo()
    earlier.ensure()
    earlier.append("applied", [{"table": "orders", "token": "t2"}])
    earlier.append("event_ids", [{"table": "orders", "event_id": "e9", "token": "t2"}])
    earlier.merge_dead_letters(
        [{**LETTER, "event_id": event_id} for event_id in ("e1", "e2", "e3")]
    )
    applied = later.read("applied").select("token", "later", "count").collect()
    assert sorted(map(tuple, applied)) == [("t0", None, None), ("t1", "x", 5), ("t2", None, None)]
    letters = later.read("dead_letters").select("event_id", "later").collect()
    assert sorted(map(tuple, letters)) == [("e1", None), ("e2", "y"), ("e3", None)]
    assert later.read("event_ids").count() == 2
