"""What a session of ``local_only`` writes stays at its site; everything else travels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pair import Pair

import spark_wan
from spark_wan.delta.local_only import USER_METADATA

CASE = "spark.sql.caseSensitive"


@pytest.mark.core
def test_b84_b85_local_changes_and_expirations_stay_where_they_are_made(
    spark: Any, tmp_path: Path
) -> None:
    """Every kind of commit; also a DataFrame of the session, and one with an error. Fails when they
    reach other sites, or when what others do with the user's session no longer does."""
    pair = Pair.of(tmp_path / "wan", {"orders": {}})
    pair.make(spark, "orders", "id bigint, item string")
    pair.sql(spark, "orders", "INSERT INTO {t} VALUES (1, 'pear'), (2, 'plum'), (3, 'fig')")
    pair.send(spark)
    pair.receive(spark)
    before = pair.hashes(spark, "orders")

    spark.conf.set(CASE, "true")
    spark.conf.set(USER_METADATA, "nightly")
    try:
        with spark_wan.local_only(spark) as session:
            assert session.conf.get(CASE) == "true"
            pair.sql(session, "orders", "DELETE FROM {t} WHERE id = 1")  # expired
            pair.sql(session, "orders", "UPDATE {t} SET item = 'quince' WHERE id = 2")
            pair.sql(session, "orders", "INSERT INTO {t} VALUES (9, 'here')")
            rows = session.range(20, 22).selectExpr("id", "'here' item")
            rows.write.format("delta").mode("append").save(pair.location("orders"))
            assert spark.conf.get(USER_METADATA) == "nightly"
        with pytest.raises(ZeroDivisionError), spark_wan.local_only(spark) as session:
            pair.sql(session, "orders", "INSERT INTO {t} VALUES (10, 'here')")
            raise ZeroDivisionError
        pair.send(spark)
        pair.receive(spark)
        assert pair.hashes(spark, "orders") == before

        pair.sql(spark, "orders", "INSERT INTO {t} VALUES (4, 'kiwi')")
    finally:
        spark.conf.unset(CASE)
        spark.conf.unset(USER_METADATA)
    pair.send(spark)
    pair.receive(spark)
    there = {
        row.id
        for row in spark.read.format("delta").load(pair.location("orders", "seattle")).collect()
    }
    assert there == {1, 2, 3, 4}
