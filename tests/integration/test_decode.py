"""Decoding: frames become a table's rows, with columns for what each event did."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from sites import COLUMNS, NEWARK, Sites
from users import CLICKS, clicks, write_epoch

import spark_wan
from spark_wan.events.operations import keyed_event_id
from spark_wan.wire.frame import decode_frame, encode_frame

ORDERS = "newark.east.orders"


@pytest.fixture(scope="module")
def sent(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Sites:
    """Orders as a snapshot, then changes, then a new column; and a user stream of two clicks."""
    spark_wan.register(spark)
    wan = Sites.make(tmp_path_factory.mktemp("decode") / "wan")
    wan.append("orders", [{"id": n, "item": f"item {n}", "amount": n / 4} for n in range(3)])
    wan.append("readings", [{"sensor": "attic", "value": 20.5}])
    wan.send(spark)
    wan.upsert("orders", [{"id": 1, "item": "changed", "amount": -1.0}])
    wan.delete("orders", "id = 2")
    wider = COLUMNS["orders"].append(pa.field("Note", pa.string()))
    row = {"id": 4, "item": "new", "amount": 4.0, "Note": "with a note"}
    write_deltalake(
        wan.path("orders"),
        pa.Table.from_pylist([row], schema=wider),
        mode="append",
        schema_mode="merge",
    )
    wan.send(spark)
    write_epoch(wan, "clicks", clicks([1, 2]))
    return wan


def decoded(
    spark: Any, channel: Mapping[str, str], checkpoint: Path, stream: str, schema: Any
) -> list[dict[str, Any]]:
    """Return all rows of a stream, through a streaming query."""
    rows: list[dict[str, Any]] = []
    batches = spark.readStream.format("wan").options(**channel).load().where(f"stream = '{stream}'")
    frame = spark_wan.decode(batches, schema)
    writer = frame.writeStream.foreachBatch(
        lambda batch_rows, batch: rows.extend(row.asDict() for row in batch_rows.collect())
    )
    writer.option("checkpointLocation", str(checkpoint)).trigger(
        availableNow=True
    ).start().awaitTermination()
    return rows


def test_decode_returns_the_rows_of_a_captured_stream(
    spark: Any, sent: Sites, tmp_path: Path
) -> None:
    """With operation, source commit and epoch of each event. A batch without a column has nulls
    in it; names match whatever their case, and columns that are not in the schema are left out.
    """
    schema = spark.createDataFrame([], "note string, id bigint, amount double").schema
    rows = decoded(spark, sent.channel_options(), tmp_path / "checkpoint", ORDERS, schema)
    assert {(row["wan_origin"], row["wan_stream"], row["wan_event_id"]) for row in rows} == {
        (NEWARK, ORDERS, None)
    }
    assert list(rows[0]) == [
        *("wan_operation", "wan_origin", "wan_stream", "wan_epoch", "wan_version", "wan_event_id"),
        *("note", "id", "amount"),
    ]
    rows_seen = sorted(
        tuple(row[name] for name in ("wan_version", "id", "wan_operation", "amount", "note"))
        for row in rows
    )
    assert rows_seen == [
        *((0, n, "create", n / 4, None) for n in range(3)),
        (1, 1, "put", -1.0, None),
        (2, 2, "destroy", 0.5, None),
        (3, 4, "create", 4.0, "with a note"),
    ]
    assert sorted({row["wan_epoch"] for row in rows}) == sent.numbers("orders")
    # The event ID of a captured row is computed at both ends.
    table_id = sent.log("orders").read(1).table_id
    assert table_id == str(DeltaTable(sent.path("orders")).metadata().id)
    assert len(
        {keyed_event_id(table_id, row["wan_version"], (str(row["id"]),)) for row in rows}
    ) == len(rows)


def test_decode_returns_the_rows_of_a_user_stream(spark: Any, sent: Sites, tmp_path: Path) -> None:
    """With their event IDs. The schema may be Spark's JSON, as in the source's rows."""
    manifest = sent.log("clicks").read(1)
    rows = decoded(
        spark,
        sent.channel_options("events"),
        tmp_path / "checkpoint",
        CLICKS,
        json.loads(json.dumps(manifest.schema)),
    )
    rows_seen = sorted(
        (row["wan_event_id"], row["event"], row["page"], row["wan_operation"], row["wan_version"])
        for row in rows
    )
    assert rows_seen == [(f"click {n}", f"click {n}", f"/{n}", "create", None) for n in (1, 2)]


def reencoded(frame: bytes) -> bytes:
    """Encode a valid frame with the same events, which is not the one that the manifest names."""
    header, events = decode_frame(frame, "frame")
    return encode_frame(replace(header, attempt="another"), events)


@pytest.mark.channels("directory", "s3")
def test_f20_another_frame_ends_the_query_and_is_named(
    spark: Any, sent: Sites, tmp_path: Path
) -> None:
    """One that is valid by itself. Fails when the checksum does not reach the task that decodes."""
    wan = sent.copy(tmp_path / "wan")
    manifest = wan.log("clicks").read(1)
    path, channel = manifest.frames[0].path, wan.channel("events")
    channel.put(path, reencoded(channel.get_frame(path)))  # type: ignore[attr-defined]
    with pytest.raises(Exception, match=f"{path}: altered: checksum"):
        decoded(
            spark, wan.channel_options("events"), tmp_path / "checkpoint", CLICKS, manifest.schema
        )


def test_spark_wan_decode_is_the_function_and_imports_no_spark() -> None:
    """Not the module ``spark_wan.datasource.decode``, whichever is imported first."""
    for first in (
        "import spark_wan",
        "import spark_wan.datasource.decode",
        "from spark_wan.datasource.decode import decode",
    ):
        check = "assert callable(spark_wan.decode) and 'pyspark' not in sys.modules"
        code = f"{first}\nimport sys, spark_wan\n{check}"
        subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)
