"""Spark Connect: the same sender and receiver, where there is no SparkContext."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
from sites import Sites
from spark_connect import run_script
from waiting import DEADLINE

import spark_wan
from spark_wan.capture.altered_values import JAVA_TIME

SCRIPT = Path(__file__).with_name("over_connect.py")
FORBIDDEN = {
    "sparkContext", "_sc", "rdd", "_jvm", "_jdf", "_jsparkSession", "_jvm_helper", "SparkContext",
    "RDD", "toDebugString",
}  # fmt: skip


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What was seen in a process with a session over Connect. It ends by itself once it has stopped
    sender and receiver."""
    folder = tmp_path_factory.mktemp("connect")
    sites = Sites.make(folder / "wan")
    report = run_script(SCRIPT, folder, sites.folder, folder / "dates", timeout=3 * DEADLINE)
    assert (report["connect"], report["threads"]) == (True, [])
    return report


def test_sender_and_receiver_replicate_over_connect(report: Any) -> None:
    """A keyed and a keyless table, stopped in the middle of work and started again. An idle sender
    runs no jobs.

    Fails when a look at a quiet table begins a round, which reads the history.
    """
    seen = report["replicated"]
    for side in ("sender", "receiver"):
        assert [row[:2] for row in seen[side]] == [["orders", None], ["readings", None]]
    assert seen["errors"] == []
    assert seen["active"] == [False, False]
    assert seen["histories_while_idle"] == 0
    assert seen["rows"] > 0


def test_f45_dates_arrive_exactly_over_connect_in_another_time_zone(report: Any) -> None:
    """The server's JVM is in Monrovia, whose time was 44 minutes and 30 seconds behind until
    1972. The user's session keeps its settings.
    """
    assert report["dates"]["rows"] > 100
    settings = {JAVA_TIME: "false", "spark.sql.readSideCharPadding": "true"}
    assert report["dates"]["settings"] == settings


def test_f50_the_end_of_a_session_over_connect_ends_sender_and_receiver(report: Any) -> None:
    """Both report the error, neither hangs, and no stream is held."""
    ended = {"active": False, "exception": "SessionLostError", "raised": "SessionLostError"}
    assert report["ended"] == {name: {**ended, "held": []} for name in ("sender", "receiver")}


@pytest.mark.core
def test_the_package_uses_nothing_that_connect_lacks() -> None:
    """No SparkContext, no RDD, no access to the JVM, by any name. Only `watched_jobs` has them, and
    asks first whether there are any: over Connect, nobody is told how far a job is.
    """
    package = Path(spark_wan.__file__).parent
    forbidden = {
        path.relative_to(package).as_posix(): uses(path) for path in sorted(package.rglob("*.py"))
    }
    assert {path for path, names in forbidden.items() if names} == {"delta/jobs.py"}


def uses(path: Path) -> list[str]:
    return [
        f"{getattr(node, 'lineno', 0)}: {name}"
        for node in ast.walk(ast.parse(path.read_text()))
        for name in names_of(node)
        if name in FORBIDDEN
    ]


def names_of(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Attribute):
        return [node.attr]
    if isinstance(node, ast.Name):
        return [node.id]
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return [alias.name for alias in node.names]
    return []
