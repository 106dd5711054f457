"""A source whose changes cannot be sent any more: every site gets a copy of it, and afterwards the
sites are equal.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from pair import Pair
from sites import SEATTLE

from spark_wan.errors import SYNC, WanError
from spark_wan.state.decisions import parse_decisions
from spark_wan.sync.request import request_copy

COLUMNS = "id bigint, item string"


def world(spark: Any, folder: Path, **table: Any) -> Pair:
    pair = Pair.of(folder / "wan", {"orders": table})
    pair.make(spark, "orders", COLUMNS)
    pair.sql(spark, "orders", "INSERT INTO {t} VALUES (1, 'pear'), (2, 'plum'), (3, 'fig')")
    pair.send(spark)
    assert pair.receive(spark)["orders"].held is None
    return pair


def decided(spark: Any, pair: Pair, match: str) -> None:
    """The sender holds the stream, and is told what it names."""
    with pytest.raises(WanError, match=match) as held:
        pair.send(spark)
    found = re.search(r"decide (orders@\d+=resync)`", str(held.value))
    assert found is not None, held.value
    pair.send(spark, decisions=parse_decisions([found[1]]))


def goes_on(spark: Any, pair: Pair) -> None:
    """The receiver needs a copy, takes it, and applies what comes then."""
    assert SYNC in str(pair.receive(spark)["orders"].held)
    request_copy(pair.topology, "orders", SEATTLE)
    pair.send(spark)
    assert pair.receive(spark)["orders"].held is None
    pair.assert_same(spark, "orders")
    pair.sql(spark, "orders", "INSERT INTO {t} VALUES (10, 'sloe')")
    pair.send(spark)
    assert pair.receive(spark)["orders"].held is None
    pair.assert_same(spark, "orders")


@pytest.mark.core
def test_f54_a_replaced_source_is_sent_once_that_is_decided(spark: Any, tmp_path: Path) -> None:
    """Rows that the new table does not have are gone at the remote site."""
    pair = world(spark, tmp_path)
    shutil.rmtree(pair.location("orders"))
    pair.make(spark, "orders", COLUMNS)
    pair.sql(spark, "orders", "INSERT INTO {t} VALUES (1, 'quince'), (9, 'medlar')")
    decided(spark, pair, r"has the ID|its newest version is 1")
    goes_on(spark, pair)


def test_f09_a_sender_that_vacuum_has_overtaken_goes_on_by_itself(
    spark: Any, tmp_path: Path
) -> None:
    """The files of the change feed are gone; the table has lost nothing."""
    pair = world(spark, tmp_path)
    pair.sql(spark, "orders", "UPDATE {t} SET item = 'changed' WHERE id = 2")
    pair.sql(spark, "orders", "DELETE FROM {t} WHERE id = 3")
    shutil.rmtree(pair.path("orders") / "_change_data")
    pair.send(spark)
    goes_on(spark, pair)


def test_a_keyless_source_that_was_updated_is_sent_once_that_is_decided(
    spark: Any, tmp_path: Path
) -> None:
    pair = world(spark, tmp_path, keys=[], start={"version": 0})
    pair.sql(spark, "orders", "UPDATE {t} SET item = 'changed' WHERE id = 2")
    decided(spark, pair, "changes rows other than by inserting")
    goes_on(spark, pair)


def test_a_feed_that_was_off_for_a_while_is_sent_once_that_is_decided(
    spark: Any, tmp_path: Path
) -> None:
    pair = world(spark, tmp_path)
    feed = "ALTER TABLE {t} SET TBLPROPERTIES (delta.enableChangeDataFeed = %s)"
    pair.sql(spark, "orders", feed % "false")
    pair.sql(spark, "orders", "UPDATE {t} SET item = 'changed' WHERE id = 2")
    pair.sql(spark, "orders", feed % "true")
    decided(spark, pair, "keeps no change feed for the versions that are to be sent")
    goes_on(spark, pair)


@pytest.mark.parametrize("pattern", ["*.parquet", "*.bin"], ids=["data", "vector"])
def test_a_source_that_lacks_a_file_it_needs_waits_for_the_file(
    spark: Any, tmp_path: Path, pattern: str
) -> None:
    """VACUUM does not take such a file, and without it no copy could be made."""
    pair = with_vector(spark, tmp_path)
    file = max(pair.path("orders").glob(pattern), key=lambda found: found.stat().st_mtime_ns)
    kept = file.read_bytes()
    file.unlink()
    with pytest.raises(WanError, match="restore a damaged or missing file"):
        pair.send(spark)
    file.write_bytes(kept)
    pair.send(spark)
    assert pair.receive(spark)["orders"].held is None
    pair.assert_same(spark, "orders")


def test_a_sender_goes_on_where_vacuum_took_an_earlier_deletion_vector_of_a_file(
    spark: Any, tmp_path: Path
) -> None:
    """The table still has the data file, which the error names, too."""
    pair = with_vector(spark, tmp_path)
    [vector] = pair.path("orders").glob("*.bin")
    pair.sql(spark, "orders", "DELETE FROM {t} WHERE id = 102")
    vector.unlink()
    pair.send(spark)
    goes_on(spark, pair)


def with_vector(spark: Any, folder: Path) -> Pair:
    """A file whose deletion vector is not sent yet."""
    pair = Pair.of(folder / "wan", {"orders": {}})
    pair.make(spark, "orders", COLUMNS, "delta.enableDeletionVectors = true")
    pair.sql(spark, "orders", "INSERT INTO {t} SELECT id, 'pear' FROM range(100, 200, 1, 1)")
    pair.send(spark)
    assert pair.receive(spark)["orders"].held is None
    pair.sql(spark, "orders", "DELETE FROM {t} WHERE id = 101")
    return pair
