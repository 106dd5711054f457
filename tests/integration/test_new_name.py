"""The remedies in the causes of holds, followed to the letter: a full copy, or all events of a
user stream, under a new table name. Afterwards the sites are equal.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from pair import Pair
from sites import NEWARK, SEATTLE, Sites
from users import clicks

from spark_wan.cli.upkeep import remove_stream
from spark_wan.errors import FULL_COPY, RESEND, WanError

KEYLESS: Mapping[str, Any] = {"keys": [], "start": {"version": 0}}


def rename(pair: Pair, new: str, **changes: Any) -> None:
    """Rename the table ``orders`` in the topology."""
    file = pair.folder / "wan.yaml"
    content = yaml.safe_load(file.read_text())
    content["tables"] = {new: {**content["tables"].pop("orders"), **changes}}
    file.write_text(yaml.safe_dump(content))


def follow(spark: Any, pair: Pair, remedy: str) -> None:
    """Make a full copy: a new name, and at the remote site what the cause says when the old
    location is kept.
    """
    places = yaml.safe_load((pair.folder / "wan.yaml").read_text())["tables"]["orders"]["at"]
    if remedy == "another place":
        places = {**places, SEATTLE: f"{places[SEATTLE]}-2"}
    if remedy == "remove":
        shutil.rmtree(pair.location("orders", SEATTLE))
    rename(pair, "orders2", at=places)
    status = pair.replicate(spark)["orders2"]
    if remedy == "empty":
        assert "has rows that were applied as table orders at site seattle" in str(status.held)
        (statement,) = re.findall(r"\((DELETE FROM \S+)\)", str(status.held))
        spark.sql(statement).collect()
        status = pair.replicate(spark)["orders2"]
    assert status.held is None


def equal_pair(spark: Any, folder: Path, **table: Any) -> Pair:
    """Return a pair of equal sites."""
    pair = Pair.of(folder / "wan", {"orders": table})
    pair.make(spark, "orders", "id bigint, item string", "delta.columnMapping.mode = 'name'")
    pair.sql(spark, "orders", "INSERT INTO {t} VALUES (1, 'pear'), (2, 'plum'), (3, 'fig')")
    pair.replicate(spark)
    pair.assert_same(spark, "orders")
    return pair


@pytest.mark.parametrize(
    ("table", "remedy"), [({}, "empty"), (KEYLESS, "another place")], ids=["keyed", "keyless"]
)
def test_f54_a_full_copy_of_a_replaced_source_makes_sites_equal(
    spark: Any, tmp_path: Path, table: Mapping[str, Any], remedy: str
) -> None:
    """Rows that the new source lacks are deleted at the remote site too.

    Fails without the table's name in `transaction_name`.
    """
    pair = equal_pair(spark, tmp_path, **table)
    shutil.rmtree(pair.location("orders"))
    pair.make(spark, "orders", "id bigint, item string")
    pair.sql(spark, "orders", "INSERT INTO {t} VALUES (1, 'quince'), (9, 'medlar')")
    with pytest.raises(WanError, match=r"has the ID|its newest version is 1") as held:
        pair.send(spark)
    assert FULL_COPY in str(held.value)
    follow(spark, pair, remedy)
    pair.assert_same(spark, "orders2")
    pair.sql(spark, "orders2", "INSERT INTO {t} VALUES (10, 'sloe')")
    pair.replicate(spark)
    pair.assert_same(spark, "orders2")


def test_f54_a_full_copy_to_a_restored_target_makes_sites_equal(spark: Any, tmp_path: Path) -> None:
    pair = equal_pair(spark, tmp_path)
    spark.sql(f"RESTORE TABLE {pair.name('orders', SEATTLE)} TO VERSION AS OF 0").collect()
    pair.sql(spark, "orders", "DELETE FROM {t} WHERE id = 1")
    assert FULL_COPY in str(pair.replicate(spark)["orders"].held)
    follow(spark, pair, "remove")
    pair.assert_same(spark, "orders2")


def test_f54_a_full_copy_after_a_dropped_column_makes_sites_equal(
    spark: Any, tmp_path: Path
) -> None:
    pair = equal_pair(spark, tmp_path)
    pair.sql(spark, "orders", "ALTER TABLE {t} DROP COLUMN item")
    pair.sql(spark, "orders", "ALTER TABLE {t} ADD COLUMN item string")
    pair.sql(spark, "orders", "INSERT INTO {t} VALUES (5, 'lime')")
    with pytest.raises(WanError, match="drops columns") as held:
        pair.send(spark)
    assert FULL_COPY in str(held.value)
    follow(spark, pair, "another place")
    pair.assert_same(spark, "orders2")


def test_f54_leftovers_of_the_old_stream_are_held_with_a_remedy(spark: Any, tmp_path: Path) -> None:
    pair = equal_pair(spark, tmp_path)
    rename(
        pair,
        "orders2",
        at={**pair.topology.table("orders").at, SEATTLE: str(pair.folder / "elsewhere")},
    )
    pair.send(spark)
    inbound = pair.inbound(spark, "east")
    inbound.apply(spark)
    held = {status.stream: status.held for status in inbound.statuses()}
    assert held["newark.east.orders2"] is None
    remedy = f"spark-wan remove newark.east.orders --config {pair.folder / 'wan.yaml'}"
    assert remedy in str(held["newark.east.orders"])
    assert remove_stream(pair.topology, "newark.east.orders") == [pair.channel().url]
    inbound = pair.inbound(spark, "east")
    inbound.apply(spark)
    assert {status.stream: status.held for status in inbound.statuses()} == {
        "newark.east.orders2": None
    }
    pair.assert_same(spark, "orders2")


@pytest.mark.parametrize("remedy", ["remove", "another place"])
def test_f54_resending_all_events_after_lost_event_ids_makes_sites_equal(
    spark: Any, tmp_path: Path, remedy: str
) -> None:
    """With their IDs, from a new checkpoint. Some are sent twice, and deduplicated."""
    wan = Sites.make(tmp_path / "wan")

    def write(table: str, checkpoint: str) -> None:
        reader = spark.readStream.format("delta").option("maxFilesPerTrigger", 1)
        writer = reader.load(str(wan.path("clicks"))).writeStream.format("wan")
        writer = writer.options(**wan.sink_options(table), checkpointLocation=tmp_path / checkpoint)
        writer.trigger(availableNow=True).start().awaitTermination()

    def click(first: int) -> None:
        wan.append("clicks", clicks(range(first, first + 5)))

    for first in (0, 5):
        click(first)
        write("clicks", "query")
        wan.apply(spark, "events")
    wan.assert_equal("clicks")
    shutil.rmtree(tmp_path / "wan/seattle/_wan/ledger/event_ids")
    click(10)
    write("clicks", "query")
    assert RESEND in str(wan.apply(spark, "events")["clicks"].held)

    file = tmp_path / "wan/wan.yaml"
    content = yaml.safe_load(file.read_text())
    content["tables"]["clicks2"] = renamed = content["tables"].pop("clicks")
    if remedy == "remove":
        shutil.rmtree(wan.path("clicks", SEATTLE))
    else:
        renamed["at"][SEATTLE] = "./seattle/clicks2"
    file.write_text(yaml.safe_dump(content))
    write("clicks2", "query2")
    wan.write_events("clicks2", spark.read.format("delta").load(str(wan.path("clicks"))))
    status = wan.apply(spark, "events")["clicks2"]
    assert status.held is None
    target = "clicks" if remedy == "remove" else "clicks2"
    assert wan.rows(target) == wan.rows("clicks", NEWARK)
