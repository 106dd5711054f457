"""What Spark has cached may be evaluated once more, after a table that it read has changed: when
somebody writes to the table in the same application, or an executor is lost."""

from __future__ import annotations

from typing import Any

import pytest
from sites import SEATTLE, Sites

from spark_wan.target.delta_table import DeltaTarget


def test_f53_what_was_judged_is_what_is_written(
    spark: Any, wan: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A constraint compares a row with a column that only the target has. A user changes that
    column after the events were judged and before they are written.

    Fails when the judgement reads the newest version of the target: the row counts as refused when
    it is written, is no dead letter, and is lost."""
    wan.append("orders", [{"id": n, "item": "pear", "amount": 1.0} for n in range(6)])
    wan.send(spark, tables=["orders"])
    wan.receive(spark)
    table = f"delta.`{wan.path('orders', SEATTLE)}`"
    spark.sql(f"ALTER TABLE {table} ADD COLUMN cap DOUBLE")
    spark.sql(f"UPDATE {table} SET cap = 100")
    spark.sql(f"ALTER TABLE {table} ADD CONSTRAINT capped CHECK (amount <= cap)")
    wan.upsert(
        "orders", [{"id": n, "item": "plum", "amount": 50.0 + 60 * (n == 1)} for n in (0, 1, 2)]
    )
    wan.send(spark, tables=["orders"])
    write, lowered = DeltaTarget.write, list[int]()

    def write_late(target: DeltaTarget, *more: Any) -> None:
        if not lowered:
            lowered.append(1)
            spark.sql(f"UPDATE {table} SET cap = 10 WHERE id = 2")
        write(target, *more)

    monkeypatch.setattr(DeltaTarget, "write", write_late)
    status = wan.receive(spark)
    assert {each.held for each in status.values()} == {None}
    assert lowered
    found = {row[0]: row[1] for row in spark.sql(f"SELECT id, item FROM {table}").collect()}
    refused = {
        int(letter["row"].partition('"id":')[2].partition(",")[0])
        for letter in wan.dead_letters("orders")
    }
    assert found == {0: "plum", 1: "pear", 2: "pear", 3: "pear", 4: "pear", 5: "pear"}
    assert refused == {1, 2}
