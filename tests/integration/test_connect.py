"""Spark Connect: the same sender and receiver, where there is no SparkContext."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from sites import Sites
from spark_connect import run_script
from waiting import DEADLINE

import spark_wan

SCRIPT = Path(__file__).with_name("over_connect.py")
FORBIDDEN = {
    "sparkContext", "_sc", "rdd", "_jvm", "_jdf", "_jsparkSession", "_jvm_helper", "SparkContext",
    "RDD", "toDebugString",
}  # fmt: skip


def test_sender_and_receiver_replicate_over_connect(wan: Sites, tmp_path: Path) -> None:
    """In a process of its own, which ends by itself once it has stopped them.

    A keyed and a keyless table, stopped in the middle of work and started again. An idle sender
    runs no jobs.

    Fails when a look at a quiet table begins a round, which reads the history.
    """
    report = run_script(SCRIPT, tmp_path, wan.folder, timeout=3 * DEADLINE)
    assert report["connect"] is True
    for side in ("sender", "receiver"):
        assert [row[:2] for row in report[side]] == [["orders", None], ["readings", None]]
    assert report["errors"] == []
    assert report["active"] == [False, False]
    assert report["threads"] == []
    assert report["histories_while_idle"] == 0
    assert report["rows"] > 0


def test_the_package_uses_nothing_that_connect_lacks() -> None:
    """No SparkContext, no RDD, no access to the JVM, by any name."""
    forbidden = [
        use for path in sorted(Path(spark_wan.__file__).parent.rglob("*.py")) for use in uses(path)
    ]
    assert forbidden == []


def uses(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        names = [node.attr] if isinstance(node, ast.Attribute) else []
        names += [node.id] if isinstance(node, ast.Name) else []
        names += (
            [alias.name for alias in node.names]
            if isinstance(node, (ast.Import, ast.ImportFrom))
            else []
        )
        yield from (
            f"{path.name}:{getattr(node, 'lineno', 0)}: {name}"
            for name in names
            if name in FORBIDDEN
        )
