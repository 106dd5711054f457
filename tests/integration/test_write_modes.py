"""The ways to write an apply leave the same rows: MERGE, MERGE with a list of keys, replace.

Random batches of several epochs insert, update, delete and write unchanged rows. Each way has a
table of its own, and gets the same frames. Values are compared to the bit. ``SPARK_WAN_SEED``
chooses other values.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Any

import exact
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from fakes import HEADER, manifest
from ledgers import mark
from pyspark.sql.pandas.types import from_arrow_schema
from sites import SEATTLE, Sites

import spark_wan.target.decode as decode_module
import spark_wan.target.delta_table as target_module
from spark_wan.apply.change import Change
from spark_wan.apply.plan import PlannedEpoch
from spark_wan.channels.base import new_attempt
from spark_wan.channels.registry import open_channel
from spark_wan.delta.key_list import MAX_KEYS
from spark_wan.delta.sessions import CurrentSession
from spark_wan.delta.sql import reference
from spark_wan.events.operations import OP, VERSION, Operation
from spark_wan.ledger.applied_columns import AppliedColumns
from spark_wan.target.delta_table import DeltaTarget
from spark_wan.target.write import MarkedWrite
from spark_wan.wire.frame import FrameRef, encode_frame, frame_checksum
from spark_wan.wire.manifest import Manifest

WAYS = ("merge", "merge with keys", "replace")
TEXTS = [
    "", " ", "a", "a ", "A", "'", "\\", "\\'", '"', "`", "${env:HOME}", "$", "\0", "a\0", "\n",
    "e\u0301", "\u00e9", "\ufffd", "\U0001f6b2", "null", "%", "_", "x" * 40, "x" * 39 + "y",
]  # fmt: skip
TABLES: dict[str, dict[str, tuple[pa.DataType, Sequence[Any]]]] = {
    # Names that must be quoted; case decides nothing.
    "text": {"odd `name.of` Key": (pa.string(), TEXTS)},
    "several": {
        "a": (pa.int64(), [-(2**63), -1, 0, 2**63 - 1]),
        "B": (pa.string(), ["a", "b'", "$"]),
        "day": (pa.date32(), [-25_567, 0]),
    },
    "more": {
        "flag": (pa.bool_(), [True, False]),
        "small": (pa.int16(), [-(2**15), 2**15 - 1]),
        "money": (pa.decimal128(7, 2), [Decimal(n).scaleb(-2) for n in (-10, 0, 10, 9_999_999)]),
        "raw": (pa.binary(), [b"", b"\0", b"\xff'"]),
    },
}
SEED = int(exact.SEED or 1)


def note_writes(patch: pytest.MonkeyPatch) -> list[str]:
    """Return a list to which each later write adds how it writes."""
    written: list[str] = []

    def noting(method: str, write: Callable[..., None]) -> Callable[..., None]:
        def noted(*given: Any) -> None:
            written.append(method + " with keys" * bool(given[1].key_list))
            write(*given)

        return noted

    for method in ("merge", "replace"):
        patch.setattr(MarkedWrite, method, noting(method, getattr(MarkedWrite, method)))
    return written


Event = tuple[Operation, int]
"""An operation, and the number of its key."""


class Ways:
    """One table for each way, and the rows that they must hold, by number of the key."""

    def __init__(self, spark: Any, folder: Path, name: str, partitioned: bool) -> None:
        self.spark, self.folder, self.random = spark, folder, random.Random(f"{SEED} {name}")
        keys = TABLES[name]
        kinds = {key: kind for key, (kind, _) in keys.items()}
        kinds |= {f"c{n}": kind for n, kind in enumerate(exact.LEAVES)}
        self.columns = pa.schema([("id", pa.int64()), *kinds.items()])
        self.schema = from_arrow_schema(self.columns, prefer_timestamp_ntz=True)
        self.keys = [
            dict(zip(keys, values, strict=True))
            for values in product(*(values for _, values in keys.values()))
        ]
        self.drawn = {
            column: [None, *exact.generated(exact.values(kind), 8)]
            for column, kind in kinds.items()
            if column not in keys
        }
        self.rows: dict[int, dict[str, Any]] = {}
        self.applies = 0
        self.channel = open_channel(str(folder / "channel"))
        nothing: Any = None
        self.targets = {
            way: DeltaTarget(
                CurrentSession(spark),
                "seattle",
                "orders",
                str(folder / way),
                channel=self.channel,
                ledger=nothing,
            )
            for way in WAYS
        }
        for target in self.targets.values():
            if partitioned:
                writer = spark.createDataFrame([], self.schema).write.format("delta")
                writer.partitionBy(next(iter(keys))).save(target.location)
            else:
                target.create(PlannedEpoch(self.manifest(1, []), -1))

    def manifest(self, epoch: int, events: Sequence[Event]) -> Manifest:
        """Return the manifest of an epoch of these events, in one frame. Changes the rows."""
        changed = []
        for operation, number in events:
            old = self.rows.pop(number, None)
            row: dict[str, Any] = {"id": number, **self.keys[number]}
            row |= {name: self.random.choice(values) for name, values in self.drawn.items()}
            if operation == Operation.PUT and old is not None and self.random.random() < 0.3:
                row = old
            if operation != Operation.DESTROY:
                self.rows[number] = row
            changed.append({OP: int(operation), VERSION: epoch, **row})
        columns = [(OP, pa.int8()), (VERSION, pa.int64()), *self.columns]
        batch = pa.RecordBatch.from_pylist(changed, pa.schema(columns))
        header = replace(HEADER, attempt=new_attempt("b" * 32), events=len(changed))
        data = encode_frame(header, batch)
        path = self.channel.put_frame(HEADER.stream, header.attempt, 0, data)
        return manifest(
            epoch,
            keys=tuple(self.keys[0]),
            schema=self.schema.jsonValue(),
            frames=(FrameRef(path, len(changed), len(data), frame_checksum(data)),),
        )

    def apply(self, *epochs: Sequence[Event]) -> dict[str, str]:
        """Apply epochs in one commit in each way; return the method that wrote, by way."""
        self.applies += 1
        planned = [PlannedEpoch(self.manifest(n, each), -1) for n, each in enumerate(epochs, 1)]
        used = {}
        for way, target in self.targets.items():
            with pytest.MonkeyPatch.context() as patch:
                if way == "merge":
                    patch.setattr(decode_module, "SMALL_BYTES", 0)
                if way == "merge with keys":
                    patch.setattr(target_module, "may_replace", lambda *_: False)
                change = Change(planned)
                target.read(change, AppliedColumns())
                target.resolve(change)
                written = note_writes(patch)
                target.write(change, mark(self.applies, token=uuid.uuid4().hex))
                target.done(change)
                (used[way],) = written
        return used

    def random_epoch(self, sizes: int) -> list[Event]:
        numbers = self.random.sample(range(len(self.keys)), sizes)
        operations = self.random.choices(
            [Operation.PUT, Operation.CREATE, Operation.DESTROY], [3, 1, 1], k=sizes
        )
        return list(zip(operations, numbers, strict=True))

    def assert_equal(self) -> None:
        wanted = exact.rows(pa.Table.from_pylist(list(self.rows.values()), self.columns), "id")
        for way, target in self.targets.items():
            table = self.spark.read.format("delta").load(target.location).toArrow()
            assert exact.rows(table, "id") == wanted, way


@pytest.mark.parametrize("name", [pytest.param("text", marks=pytest.mark.core), "several", "more"])
def test_each_way_to_write_leaves_the_same_rows(spark: Any, tmp_path: Path, name: str) -> None:
    """New keys only; then two epochs with keys in common; then deletes only.

    Fails when a condition lists other keys than those of the rows, or one column's values alone,
    and when Spark divides a few rows among its cores.
    """
    ways = Ways(spark, tmp_path, name, partitioned=name == "several")
    count = len(ways.keys)
    used = ways.apply([(Operation.CREATE, number) for number in range(0, count, 2)])
    assert used == {
        "merge": "merge",
        "merge with keys": "merge with keys",
        "replace": "replace with keys",
    }
    ways.assert_equal()
    if name == "text":
        rows = spark.read.format("delta").load(str(tmp_path / "replace"))
        files = rows.select("_metadata.file_path").distinct().count()
        assert files == 1, "a small apply adds one file, whatever the number of cores"
    ways.apply(ways.random_epoch(count // 2), ways.random_epoch(count // 2))
    ways.assert_equal()
    if name == "text":
        ways.apply([(Operation.DESTROY, number) for number in range(0, count, 3)])
        ways.assert_equal()


@pytest.mark.core
def test_f30_a_refused_event_leaves_the_row_of_its_key(spark: Any, wan: Sites) -> None:
    """An update that breaks a constraint is a dead letter; the row keeps its values, and the other
    events of the apply are written.

    Fails when rows are replaced by keys that were decoded and not written.
    """
    target = reference(str(wan.path("orders", SEATTLE)))
    spark.sql(f"CREATE TABLE {target} (id BIGINT, item STRING, amount DOUBLE) USING delta")
    spark.sql(f"ALTER TABLE {target} ADD CONSTRAINT paid CHECK (amount >= 0)").collect()
    wan.append("orders", [{"id": n, "item": "old", "amount": 1.0} for n in range(2)])
    wan.append("readings", [{"sensor": "attic", "value": 1.0}])
    wan.replicate(spark)
    wan.upsert("orders", [{"id": n, "item": "new", "amount": n - 1.0} for n in range(2)])
    assert wan.replicate(spark)["orders"].dead_letters == 1
    assert sorted(row[1:] for row in wan.rows("orders", SEATTLE)) == [(0, "old"), (1, "new")]


def test_the_longest_lists_of_keys_can_be_read(spark: Any, wan: Sites) -> None:
    """Rows are replaced; then they are merged, since the target has a change feed.

    Fails when they are one IN list, which Parquet's reader gets as thousands of nested comparisons:
    the JVM ends with a StackOverflowError."""
    wan.append("orders", [{"id": n, "item": "old", "amount": 1.0} for n in range(MAX_KEYS)])
    wan.append("readings", [{"sensor": "attic", "value": 1.0}])
    wan.replicate(spark)
    target = reference(str(wan.path("orders", SEATTLE)))
    for item, operation in (("replaced", "WRITE"), ("merged", "MERGE")):
        if operation == "MERGE":
            feed = "'delta.enableChangeDataFeed' = 'true'"
            spark.sql(f"ALTER TABLE {target} SET TBLPROPERTIES ({feed})")
        wan.upsert("orders", [{"id": n, "item": item, "amount": 2.0} for n in range(MAX_KEYS)])
        wan.replicate(spark)
        wan.assert_equal("orders")
        newest = DeltaTable(wan.path("orders", SEATTLE)).history(1)[0]
        assert newest["operation"] == operation
        assert " OR " in str(newest["operationParameters"])
