"""Arrow arrays of every type that travels: two values that differ, and a null."""

from __future__ import annotations

from datetime import date, datetime, timezone
from decimal import Decimal

import pyarrow as pa

VALUES = {
    "tiny": pa.array([-128, 127, None], pa.int8()),
    "long": pa.array([-(2**63), 2**63 - 1, None]),
    "float": pa.array([-0.0, float("nan"), None], pa.float32()),
    "double": pa.array([-0.0, float("inf"), None]),
    "decimal": pa.array(
        [Decimal("-12345678901234567890.123456789012345678"), Decimal(0), None],
        pa.decimal128(38, 18),
    ),
    "string": pa.array(["", "nul\0 ü", None]),
    "binary": pa.array([b"", b"\0\xff", None]),
    "bool": pa.array([True, False, None]),
    "date": pa.array([date(1, 1, 1), date(9999, 12, 31), None]),
    "instant": pa.array(
        [
            datetime(1, 1, 1, tzinfo=timezone.utc),
            datetime(9999, 12, 31, 23, 59, 59, 999999, timezone.utc),
            None,
        ],
        pa.timestamp("us", "UTC"),
    ),
    "local": pa.array([datetime(1, 1, 1), datetime(9999, 12, 31), None], pa.timestamp("us")),
    "list": pa.array([[], [None, 1], None], pa.list_(pa.int32())),
    "map": pa.array([[], [("a", None)], None], pa.map_(pa.string(), pa.float64())),
    "struct": pa.array([{"a": None, "b": [{"c": ""}]}, {"a": 1, "b": None}, None]),
    "variant": pa.array(
        [{"value": b"\x0c", "metadata": b"\x01"}] * 2 + [None],
        pa.struct(
            [pa.field("value", pa.binary(), False), pa.field("metadata", pa.binary(), False)]
        ),
    ),
    "void": pa.nulls(3),
}
