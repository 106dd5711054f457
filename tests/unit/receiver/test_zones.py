"""Which constraints depend on the time zone of a session; integration/test_constraint_family has
those of tables."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.types import StructType

from spark_wan.errors import StoppedError
from spark_wan.receiver import zones

SPARK: Any = None


def having(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """Let each query of a copied session end with ``error``."""

    def sql(query: str) -> object:
        raise error

    @contextmanager
    def copied(spark: object) -> Iterator[object]:
        yield SimpleNamespace(sql=sql, conf=SimpleNamespace(set=lambda *_: None))

    monkeypatch.setattr(zones, "copied_session", copied)


def test_a_row_that_raises_does_not_show_that_zones_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    having(monkeypatch, ArithmeticError("DIVIDE_BY_ZERO"))
    assert zones.depends_on_zone(SPARK, "1 / id > 0", StructType()) is False


def test_a_stop_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails when rows become dead letters because the receiver was stopped while it asked."""
    having(monkeypatch, StoppedError("stopped"))
    with pytest.raises(StoppedError):
        zones.depends_on_zone(SPARK, "id > 0", StructType())
