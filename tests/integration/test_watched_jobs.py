"""How far a query is, by the stages that it has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spark_wan.delta.jobs import watched_jobs


@pytest.mark.core
def test_only_the_stages_of_a_query_count(spark: Any, tmp_path: Path) -> None:
    """A first copy reads its table's files in one stage, and sorts them in another. Fails when the
    job in which Delta lists the files counts too: the copy would be done when it is half done."""
    place = str(tmp_path / "orders")
    spark.range(100).write.format("delta").save(place)
    query = spark.read.format("delta").load(place).repartition(2, "id")
    with watched_jobs(query, stages=4) as share:
        assert share() == 0.0
        assert len(query.collect()) == 100
        assert share() == 0.5  # two of four
