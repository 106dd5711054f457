"""What a session of ``local_only`` writes stays at its site; everything else travels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pair import Pair

import spark_wan
from spark_wan.delta.local_only import USER_METADATA
from spark_wan.status.reports import read_status
from spark_wan.wire.receiver_record import NotApplied
from spark_wan.wire.sender_record import NotSent

CASE = "spark.sql.caseSensitive"


@pytest.mark.core
def test_b84_b85_local_changes_and_expirations_stay_where_they_are_made(
    spark: Any, tmp_path: Path
) -> None:
    """Every kind of commit; also a DataFrame of the session, and one with an error. Rows that
    expire at one site stay at the other, which deletes its own. Fails when such commits reach other
    sites or are not counted, or when what others do with the user's session no longer arrives."""
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

        # Seattle deletes expired rows of its own.
        with spark_wan.local_only(spark) as session:
            session.sql(f"DELETE FROM {pair.name('orders', 'seattle')} WHERE id = 3").collect()
        pair.sql(spark, "orders", "INSERT INTO {t} VALUES (4, 'kiwi')")
        pair.sql(spark, "orders", "UPDATE {t} SET item = item WHERE id = 4")
    finally:
        spark.conf.unset(CASE)
        spark.conf.unset(USER_METADATA)
    pair.send(spark)
    pair.receive(spark)
    rows = {
        site: spark.read.format("delta").load(pair.location("orders", site)).collect()
        for site in ("newark", "seattle")
    }
    assert {(row.id, row.item) for row in rows["seattle"]} == {
        (1, "pear"),
        (2, "plum"),
        (4, "kiwi"),
    }
    assert {row.id for row in rows["newark"]} == {2, 3, 4, 9, 10, 20, 21}
    [channel] = read_status(pair.topology)
    [stream] = channel.streams
    [site] = stream.sites
    assert stream.sender is not None and site.receiver is not None
    assert stream.sender.not_sent == NotSent(local_only=5, no_events=1, unchanged=1)
    assert (site.receiver.local_commits, site.receiver.not_applied) == (1, NotApplied())
