"""The examples of README, docs and notebooks run as they are printed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from chispa import assert_df_equality

ROOT = Path(__file__).parents[2]


def run(page: str, names: dict[str, Any]) -> None:
    """Run the Python blocks of a page, one after another."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    assert len(blocks) >= 2
    for block in blocks:
        exec(compile(block, page, "exec"), names)


def test_the_notebook_replicates_its_table(spark: Any) -> None:
    names: dict[str, Any] = {"spark": spark}
    exec(
        compile((ROOT / "notebooks" / "quickstart.py").read_text(), "quickstart.py", "exec"), names
    )
    assert [tuple(row) for row in names["replicated"]] == [(1, "pear"), (2, "quince")]


def test_the_python_of_the_readme_and_of_user_streams_runs(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"spark": spark}
    run("README.md", names)
    assert [tuple(row) for row in names["arrived"]] == [(1, "pear"), (2, "quince")]
    orders = [
        spark.read.format("delta").load(f"{names['folder']}/{site}/orders")
        for site in ("newark", "seattle")
    ]
    assert_df_equality(*orders, ignore_row_order=True)
    run("docs/user-streams.md", names)
    assert list((tmp_path / "try-it" / "clicks-channel" / "log").rglob("*.json"))
    assert [tuple(row) for row in names["received"]] == [("c1", 1, "home"), ("c2", 2, "cart")]
