"""How the Arrow batches of a capture are bounded."""

from __future__ import annotations

from typing import Any

import pytest
from fakes import memory_channel

from spark_wan.sender.batches import Limits
from spark_wan.sender.source import ARROW_BATCH, ARROW_BYTES, DeltaSource


class Conf(dict[str, str]):
    set = dict.__setitem__


class Session:
    def __init__(self, rows: str) -> None:
        self.conf = Conf({ARROW_BATCH: rows, ARROW_BYTES: "64MB"})


@pytest.mark.parametrize(
    ("users", "row_bytes", "rows", "size"),
    [
        ("10000", 30.0, "4000", "2147483647"),
        ("500", 30.0, "500", "2147483647"),
        ("-1", 30.0, "4000", "2147483647"),
        ("10000", 1_000.0, "1342", "2147483647"),
        ("10000", 2_000.0, "10000", "64MB"),
        ("10000", None, "10000", "64MB"),
    ],
)
def test_arrow_batches_are_bounded_by_bytes_unless_rows_are_known_to_be_small(
    users: str, row_bytes: float | None, rows: str, size: str
) -> None:
    spark: Any = Session(users)
    source = DeltaSource(spark, "orders", "/orders", ("id",), memory_channel(), Limits(10, 10), lambda _: None)
    for before in (None, 30.0, 5_000.0):
        source._size_arrow_batches(before)
        source._size_arrow_batches(row_bytes)
        assert spark.conf == {ARROW_BATCH: rows, ARROW_BYTES: size}
