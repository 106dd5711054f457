"""The remedies in the causes of holds, followed to the letter: a full copy, or all events of a
user stream, under a new table name. Afterwards the sites are equal.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from pair import Pair
from sites import NEWARK, SEATTLE, Sites
from users import clicks

from spark_wan.errors import FULL_COPY, RESEND, WanError


def rename(folder: Path, old: str, new: str) -> None:
    """Rename a table in the topology."""
    file = folder / "wan.yaml"
    content = yaml.safe_load(file.read_text())
    content["tables"][new] = content["tables"].pop(old)
    file.write_text(yaml.safe_dump(content))


def test_f54_a_full_copy_of_a_replaced_source_makes_sites_equal(spark: Any, tmp_path: Path) -> None:
    """In the old table at the remote site, which is emptied as the cause says.

    Fails without the table's name in `transaction_name`.
    """
    pair = Pair.of(tmp_path / "wan", {"orders": {}})
    pair.make(spark, "orders", "id bigint, item string")
    pair.sql(spark, "orders", "INSERT INTO {t} VALUES (1, 'pear'), (2, 'plum'), (3, 'fig')")
    pair.replicate(spark)
    pair.assert_same(spark, "orders")
    shutil.rmtree(pair.location("orders"))
    pair.make(spark, "orders", "id bigint, item string")
    pair.sql(spark, "orders", "INSERT INTO {t} VALUES (1, 'quince'), (9, 'medlar')")
    with pytest.raises(WanError, match=r"has the ID|its newest version is 1") as held:
        pair.send(spark)
    assert FULL_COPY in str(held.value)
    rename(pair.folder, "orders", "orders2")
    cause = str(pair.replicate(spark)["orders2"].held)
    assert "has rows that were applied as table orders at site seattle" in cause
    (statement,) = re.findall(r"\((DELETE FROM \S+)\)", cause)
    spark.sql(statement).collect()
    assert pair.replicate(spark)["orders2"].held is None
    pair.assert_same(spark, "orders2")
    pair.sql(spark, "orders2", "INSERT INTO {t} VALUES (10, 'sloe')")
    pair.replicate(spark)
    pair.assert_same(spark, "orders2")


def test_f54_resending_all_events_after_lost_event_ids_makes_sites_equal(
    spark: Any, tmp_path: Path
) -> None:
    """With their IDs, from a new checkpoint, once the table at the remote site is removed. Some are
    sent twice, and deduplicated."""
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

    shutil.rmtree(wan.path("clicks", SEATTLE))
    rename(wan.folder, "clicks", "clicks2")
    write("clicks2", "query2")
    wan.write_events("clicks2", spark.read.format("delta").load(str(wan.path("clicks"))))
    status = wan.apply(spark, "events")["clicks2"]
    assert status.held is None
    assert wan.rows("clicks") == wan.rows("clicks", NEWARK)
