"""The code in the README and the notebooks runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from chispa import assert_df_equality

ROOT = Path(__file__).parents[2]


def test_the_notebook_replicates_its_table(spark: Any) -> None:
    names: dict[str, Any] = {"spark": spark}
    exec(
        compile((ROOT / "notebooks" / "quickstart.py").read_text(), "quickstart.py", "exec"), names
    )
    assert [tuple(row) for row in names["replicated"]] == [(1, "pear"), (2, "quince")]


def test_the_python_of_the_readme_runs(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"spark": spark}
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert len(blocks) >= 3
    for block in blocks:
        exec(compile(block, "README.md", "exec"), names)
    assert [tuple(row) for row in names["arrived"]] == [(1, "pear"), (2, "quince")]
    orders = [
        spark.read.format("delta").load(f"{names['folder']}/{site}/orders")
        for site in ("newark", "seattle")
    ]
    assert_df_equality(*orders, ignore_row_order=True)
    assert list((tmp_path / "try-it" / "clicks-channel" / "log").rglob("*.json"))


def test_the_topology_of_the_readme_is_valid(tmp_path: Path) -> None:
    from spark_wan import load_topology

    (block,) = re.findall(r"```yaml\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    file = tmp_path / "topology.yaml"
    file.write_text(block)
    assert load_topology(file).table("orders").keys == ("id",)
