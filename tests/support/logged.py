"""The messages that the package logs, as its code has them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2] / "spark_wan"
LEVELS = ("debug", "info", "warning", "error", "exception", "critical", "log")


def sources() -> Iterator[tuple[str, ast.Module]]:
    for file in sorted(ROOT.rglob("*.py")):
        yield str(file.relative_to(ROOT)), ast.parse(file.read_text())


def loggers(tree: ast.Module) -> set[str]:
    """The names that a module gives to its logger."""
    return {
        target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Call)
        and isinstance(node.value.func, ast.Name)
        and node.value.func.id == "message_log"
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def calls() -> Iterator[tuple[str, str, ast.Call]]:
    """Yield where each message is logged, at which level, and the call."""
    for file, tree in sources():
        names = loggers(tree)
        for node in ast.walk(tree):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            logger, level = node.func.value, node.func.attr
            own = isinstance(logger, ast.Name) and logger.id in names
            made = isinstance(logger, ast.Call) and ast.unparse(logger.func) == "message_log"
            if (own or made) and level in LEVELS:
                yield f"{file}:{node.lineno}", level, node


def keywords(call: ast.Call) -> dict[str | None, ast.expr]:
    return {keyword.arg: keyword.value for keyword in call.keywords}
