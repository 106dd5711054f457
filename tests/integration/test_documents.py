"""The examples of README, docs and notebooks run as they are printed."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from string import Template
from types import SimpleNamespace
from typing import Any

import pytest
from chispa import assert_df_equality

import spark_wan
from spark_wan.delta import log_files
from spark_wan.topology.values import is_path

ROOT = Path(__file__).parents[2]


def run(page: str, names: dict[str, Any]) -> None:
    """Run the Python blocks of a page, one after another."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    assert len(blocks) >= 2
    for block in blocks:
        exec(compile(block, page, "exec"), names)


class Databricks:
    """What Databricks gives to a notebook: ``spark``, ``dbutils``, ``display`` and ``%pip``."""

    def __init__(self, spark: Any, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        self.widgets: dict[str, str] = {}
        self.installed: list[str] = []
        self.shown: list[list[Any]] = []
        self.names: dict[str, Any] = {}
        self.restart()

    def text(self, name: str, default: str) -> None:
        assert default.startswith("/Volumes/")
        self.widgets[name] = str(self.folder)

    def restart(self) -> None:
        """Restart Python: widgets and libraries stay, all names of the notebook are lost."""
        dbutils = SimpleNamespace(
            widgets=SimpleNamespace(text=self.text, get=self.widgets.__getitem__),
            library=SimpleNamespace(restartPython=self.restart),
        )
        self.names = {
            "spark": self.spark,
            "dbutils": dbutils,
            "display": lambda frame: self.shown.append(frame.collect()),
        }

    def run(self, name: str) -> None:
        """Run the cells of a notebook."""
        text = (ROOT / "notebooks" / name).read_text()
        first, *cells = text.split("\n# COMMAND ----------\n")
        assert first.startswith("# Databricks notebook source\n# MAGIC %md\n# MAGIC # ")
        for number, cell in enumerate(cells, 2):
            for package in re.findall(r"^# MAGIC %pip install (.*)$", cell, re.MULTILINE):
                self.installed.append(Template(package).substitute(self.names))
            exec(compile(cell, f"{name}, cell {number}", "exec"), self.names)


@pytest.fixture
def databricks(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str], Databricks]]:
    """Run a notebook with the folder of a volume, ``<tmp>/Volumes/spark_catalog/<schema>/files``.

    As with managed tables of Unity Catalog, the log of a table with a catalog name cannot be read
    by its path.
    """
    schema = f"wan_{uuid.uuid4().hex[:8]}"
    folder = tmp_path / "Volumes" / "spark_catalog" / schema / "files"
    folder.mkdir(parents=True)
    by_path = log_files._log

    def log_folder(spark: Any, location: str) -> str:
        if not is_path(location):
            raise PermissionError(f"{location} is a managed table: read it by its name")
        return by_path(spark, location)

    monkeypatch.setattr(log_files, "_log", log_folder)
    spark.sql(f"CREATE SCHEMA spark_catalog.{schema}")

    def run(name: str) -> Databricks:
        workspace = Databricks(spark, folder)
        workspace.run(name)
        assert workspace.widgets == {"folder": str(folder)}
        assert workspace.installed == [
            f"{folder}/spark_wan-{spark_wan.__version__}-py3-none-any.whl"
        ]
        tables = {log.parent.parent.name for log in folder.rglob("_delta_log")}
        assert tables <= {"ledger"}, "a table in a volume"
        return workspace

    yield run
    spark.sql(f"DROP SCHEMA spark_catalog.{schema} CASCADE")


def tables_of(workspace: Databricks) -> set[str]:
    """The tables in the schema of the notebook's volume."""
    schema = f"spark_catalog.{workspace.folder.parent.name}"
    tables = workspace.spark.sql(f"SHOW TABLES IN {schema}").collect()
    return {table.tableName for table in tables if not table.isTemporary}


def test_the_notebook_replicates_its_table(databricks: Callable[[str], Databricks]) -> None:
    workspace = databricks("quickstart.py")
    copied, followed = workspace.shown
    assert [tuple(row) for row in copied] == [(1, "pear"), (2, "plum"), (3, "fig")]
    assert [tuple(row) for row in followed] == [(1, "pear"), (2, "quince")]
    assert workspace.names["seattle"].startswith(f"spark_catalog.{workspace.folder.parent.name}.")
    assert tables_of(workspace) == set()
    assert list(workspace.folder.iterdir()) == []


def test_the_notebooks_of_two_sites_replicate_every_change(
    databricks: Callable[[str], Databricks],
) -> None:
    for _ in range(2):
        [sent] = databricks("send.py").shown
        received, history = (site := databricks("receive.py")).shown
        assert len(sent) == 10
        assert received == sent
    assert history[-1].version == 0
    assert len(history) >= 3
    assert tables_of(site) == {"orders_newark", "orders_seattle"}
    assert site.names["orders"] == f"spark_catalog.{site.folder.parent.name}.orders_seattle"


def test_the_notebook_of_user_streams_sends_each_event_once(
    databricks: Callable[[str], Databricks],
) -> None:
    workspace = databricks("user_streams.py")
    [arrived] = workspace.shown
    assert [tuple(row) for row in arrived] == [
        (f"c{n}", n % 3, f"/page/{n % 4}") for n in range(10)
    ]
    assert len(list((workspace.folder / "clicks/channel/log").rglob("*.json"))) == 2  # sent twice
    assert tables_of(workspace) == {"clicks_newark", "clicks_seattle"}


def test_the_notebook_of_dead_letters_shows_one_and_mends_it(
    databricks: Callable[[str], Databricks],
) -> None:
    workspace = databricks("status_and_dead_letters.py")
    refused, [letter], mended = workspace.shown
    assert [tuple(row) for row in refused] == [(1, 10.0), (3, 30.0)]
    assert "positive" in letter.cause
    assert '"amount":-5.0' in letter.row
    assert [tuple(row) for row in mended] == [(1, 10.0), (2, 5.0), (3, 30.0)]
    [channel] = workspace.names["reports"]
    [site] = channel.streams[0].sites
    assert (site.site, site.acked) == ("seattle", channel.streams[0].epoch)
    assert tables_of(workspace) == set()
    assert list(workspace.folder.iterdir()) == []


@pytest.mark.core
def test_every_notebook_is_run() -> None:
    run_here = set(re.findall(r'databricks\("(\w+\.py)"', Path(__file__).read_text()))
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
