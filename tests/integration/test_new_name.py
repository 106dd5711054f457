"""The remedy in the causes of holds of a user stream, followed to the letter: all events again,
under a new table name. Afterwards the sites are equal.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import yaml
from sites import NEWARK, SEATTLE, Sites
from users import clicks

from spark_wan.errors import RESEND


def rename(folder: Path, old: str, new: str) -> None:
    """Rename a table in the topology."""
    file = folder / "wan.yaml"
    content = yaml.safe_load(file.read_text())
    content["tables"][new] = content["tables"].pop(old)
    file.write_text(yaml.safe_dump(content))


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
