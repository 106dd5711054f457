"""What the notebooks for Databricks import, install and say, as far as it can be checked without
Spark. ``tests/integration/test_documents.py`` runs them."""

from __future__ import annotations

import ast
import configparser
import re
from pathlib import Path

import pytest

import spark_wan

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.py"))
DATABRICKS_RUNTIME = {"4.2": "19"}
"""Spark -> the Databricks Runtime that has it."""

every_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)


def cells(path: Path) -> list[str]:
    return path.read_text().split("\n# COMMAND ----------\n")


@every_notebook
def test_a_notebook_uses_only_what_is_public(path: Path) -> None:
    used: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            imported = [alias.name for alias in node.names]
            assert [name for name in imported if name.startswith("spark_wan.")] == []
        if isinstance(node, ast.ImportFrom):
            assert not str(node.module).startswith("spark_wan."), node.module
            if node.module == "spark_wan":
                used |= {alias.name for alias in node.names}
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "spark_wan":
            used.add(node.attr)
    assert used <= set(spark_wan.__all__)
    assert "load_topology" in used


@every_notebook
def test_a_notebook_installs_the_wheel_before_it_imports_the_package(path: Path) -> None:
    _, heading, widget, pip, restart, first, *_ = cells(path)
    assert "%md" in heading
    assert widget.count("dbutils.widgets.text(") == path.read_text().count("dbutils.widgets.text(")
    assert f"/spark_wan-{spark_wan.__version__}-py3-none-any.whl" in widget
    assert pip.strip() == "# MAGIC %pip install $wheel"
    assert restart.strip() == "dbutils.library.restartPython()"
    assert "\nimport spark_wan\n" in first


@every_notebook
def test_a_notebook_names_the_runtime_that_has_the_supported_spark(path: Path) -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    extra = setup["options.extras_require"]["spark"]
    version = dict(re.findall(r"^(\S+?)>=([0-9.]+),", extra, re.MULTILINE))
    said = " ".join(cells(path)[0].replace("# MAGIC", "").split())
    runtime = DATABRICKS_RUNTIME[version["pyspark"]]
    assert f"Databricks Runtime {runtime} (Spark {version['pyspark']})" in said
    assert f"Spark {version['pyspark']} and Delta {version['delta-spark']}" in said


def test_the_notebooks_say_the_same_of_what_they_need() -> None:
    beginnings = {re.split(r"Set\s+`place`", cells(path)[0])[0] for path in NOTEBOOKS}
    [needs] = {text[text.index("# MAGIC **You need**") :] for text in beginnings}
    for word in ("*dedicated*", "*Serverless*", "*standard*", "`Function not implemented`"):
        assert word in needs
