"""Spark Connect: the same sender and receiver, where there is no SparkContext."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from waiting import DEADLINE

import spark_wan

SCRIPT = Path(__file__).with_name("over_connect.py")
FORBIDDEN = {
    "sparkContext",
    "_sc",
    "rdd",
    "_jvm",
    "_jdf",
    "_jsparkSession",
    "_jvm_helper",
    "SparkContext",
    "RDD",
    "toDebugString",
}


def test_sender_and_receiver_replicate_over_connect(tmp_path: Path) -> None:
    """In a process of its own (a remote and a classic session do not mix), which ends by itself once it has stopped them.

    A keyed and a keyless table, stopped in the middle of work and started again. While there is nothing to send, no job is run for it.

    Taken out once: that a look asks for the feed's columns. A Connect session then puts the question off, and every look read the history.
    """
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SPARK_", "PYSPARK_"))
    }
    process = subprocess.run(
        [sys.executable, str(SCRIPT), str(tmp_path / "wan")],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=3 * DEADLINE,
    )
    assert process.returncode == 0, process.stderr[-6000:]
    found = json.loads(process.stdout.splitlines()[-1])
    assert found["connect"] is True
    assert [(table, held) for table, held, _ in found["sender"]] == [
        ("orders", None),
        ("readings", None),
    ]
    assert [(table, held) for table, held, _ in found["receiver"]] == [
        ("orders", None),
        ("readings", None),
    ]
    assert found["errors"] == []
    assert found["active"] == [False, False]
    assert (found["queries"], found["threads"]) == (0, [])
    assert found["histories_while_idle"] == 0
    assert found["rows"] > 0


def test_the_package_uses_nothing_that_connect_lacks() -> None:
    """No SparkContext, no RDD, no way into the JVM, by any name."""
    found = [
        use for path in sorted(Path(spark_wan.__file__).parent.rglob("*.py")) for use in uses(path)
    ]
    assert found == []


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
