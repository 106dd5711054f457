"""The examples of README, docs and notebooks run as they are printed."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
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


class Widgets:
    """Databricks' widgets: a text, by name, in place of each default."""

    def __init__(self, values: dict[str, str]) -> None:
        self.values = values

    def text(self, name: str, default: str) -> None:
        assert name in self.values, f"{name} ({default}) would be a place on this machine"

    def get(self, name: str) -> str:
        return self.values[name]


def notebook(spark: Any, name: str, folder: Path) -> dict[str, Any]:
    """Run the cells of a notebook, and return its names. ``shown``: what it displays."""
    text = (ROOT / "notebooks" / name).read_text()
    first, *cells = text.split("\n# COMMAND ----------\n")
    assert first.startswith("# Databricks notebook source\n# MAGIC %md\n")
    shown: list[list[Any]] = []
    names: dict[str, Any] = {
        "spark": spark,
        "dbutils": SimpleNamespace(widgets=Widgets({"folder": str(folder)})),
        "display": lambda frame: shown.append(frame.collect()),
        "shown": shown,
    }
    for number, cell in enumerate(cells, 2):
        exec(compile(cell, f"{name}, cell {number}", "exec"), names)
    return names


def test_the_notebook_replicates_its_table(spark: Any, tmp_path: Path) -> None:
    names = notebook(spark, "quickstart.py", tmp_path)
    assert [tuple(row) for row in names["replicated"]] == [(1, "pear"), (2, "quince")]


def test_the_notebooks_of_two_sites_replicate_every_change(spark: Any, tmp_path: Path) -> None:
    for _ in range(2):
        [sent] = notebook(spark, "send.py", tmp_path)["shown"]
        received, history = notebook(spark, "receive.py", tmp_path)["shown"]
        assert len(sent) == 10
        assert received == sent
    assert history[-1].version == 0
    assert len(history) >= 3


def test_the_notebook_of_user_streams_sends_each_event_once(spark: Any, tmp_path: Path) -> None:
    [arrived] = notebook(spark, "user_streams.py", tmp_path)["shown"]
    assert [tuple(row) for row in arrived] == [
        (f"c{n}", n % 3, f"/page/{n % 4}") for n in range(10)
    ]
    assert len(list((tmp_path / "channel" / "log").rglob("*.json"))) == 2  # sent twice


def test_the_notebook_of_dead_letters_shows_one_and_mends_it(spark: Any, tmp_path: Path) -> None:
    names = notebook(spark, "status_and_dead_letters.py", tmp_path)
    assert [tuple(row) for row in names["refused"]] == [(1, 10.0), (3, 30.0)]
    [letter] = names["shown"][1]
    assert "positive" in letter.cause
    assert '"amount":-5.0' in letter.row
    assert [tuple(row) for row in names["mended"]] == [(1, 10.0), (2, 5.0), (3, 30.0)]
    [site] = names["reports"][0].streams[0].sites
    assert (site.site, site.acked) == ("seattle", names["reports"][0].streams[0].epoch)


@pytest.mark.core
def test_every_notebook_is_run() -> None:
    run_here = set(re.findall(r'notebook\(spark, "(\w+\.py)"', Path(__file__).read_text()))
    assert run_here == {path.name for path in (ROOT / "notebooks").glob("*.py")}


@pytest.mark.core
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
