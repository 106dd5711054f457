"""A sender far behind its table reads each commit of the history once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from capturing import delta_source, orders
from deltalake import write_deltalake
from pyspark.sql.classic.dataframe import DataFrame

COMMITS, ROUNDS = 300, 20


def test_the_commits_collected_for_n_epochs_grow_with_the_backlog_alone(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each round looks at the last published commit and at the next ones, as the publisher does.

    Fails when each round collects the history from there to its end: 5 600 commits.
    """
    table = tmp_path / "orders"
    for number in range(COMMITS):
        write_deltalake(table, pa.table({"id": [number]}), mode="append")
    collected: list[int] = []
    collect = DataFrame.collect

    def counted(frame: Any) -> Any:
        rows = collect(frame)
        if "operationMetrics" in frame.columns:
            collected.append(len(rows))
        return rows

    monkeypatch.setattr(DataFrame, "collect", counted)
    source = delta_source(spark, orders(str(table)))
    for published in range(ROUNDS):
        commit = source.commit(published)
        assert commit is not None and commit.version == published
        assert [each.version for each in source.history(published)] == list(
            range(published + 1, COMMITS)
        )
    assert sum(collected) <= COMMITS + 16 + 8 * ROUNDS
