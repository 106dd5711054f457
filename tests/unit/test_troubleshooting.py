"""The page for troubleshooting quotes the messages of the code, and leaves out no hold."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_wan import errors

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text()
NO_HOLDS = {
    "AckTimeoutError",  # raised to a writer that waits
    "BackupError",  # to who makes or adopts a backup
    "EventError",  # the following two: to a user's query
    "StaleWriteError",
    "ManifestExists",  # the following two: the writer plans again
    "EndMovedError",
    "CompareError",  # the following six: end a command or a job
    "UndoError",
    "OptionError",
    "SessionLostError",
    "StoppedError",
    "StreamsHeldError",
    "TopologyError",
}
ELSEWHERE = ("cli", "datasource", "demo", "local", "status", "topology")
"""Packages that raise no holds of their own."""
CALLED_BY_USERS = (
    "row_hash.py",
    "wait.py",
    "datasource/events.py",
    "kafka/options.py",
    "ledger/dead_letters.py",
)
FEWEST_LETTERS = 40
"""A message with fewer consists of others, which are given to it."""


def text_of(node: ast.AST) -> str | None:
    """Return a text of the code, with ``…`` for what is filled in."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(
            str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values
        )
    return None


def sources() -> Iterator[tuple[Path, ast.Module]]:
    for file in sorted((ROOT / "spark_wan").rglob("*.py")):
        yield file.relative_to(ROOT / "spark_wan"), ast.parse(file.read_text())


def holds() -> Iterator[tuple[str, str]]:
    """Yield the messages with which a stream may be held, and where they are in the code."""
    kinds = {
        name
        for name, kind in vars(errors).items()
        if inspect.isclass(kind) and issubclass(kind, errors.WanError)
    }
    for file, tree in sources():
        if file.parts[0] in ELSEWHERE or str(file).endswith(CALLED_BY_USERS):
            continue
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id in kinds - NO_HOLDS
                and node.args
                and (text := text_of(node.args[0])) is not None
                and len(re.findall(r"[a-z]", text)) >= FEWEST_LETTERS
            ):
                yield f"{file}:{node.lineno}", text


def quoted() -> list[str]:
    """Return what the page quotes of messages: in the first column, in quotation marks."""
    rows = [line.split(" | ")[0] for line in PAGE.splitlines() if line.startswith('| "')]
    return sorted({phrase for row in rows for phrase in re.findall(r'"([^"]+)"', row)})


def is_in(phrase: str, text: str) -> bool:
    return re.search(".*?".join(map(re.escape, phrase.split("…"))), text, re.DOTALL) is not None


@pytest.fixture(scope="module")
def texts() -> list[str]:
    nodes = (node for _, tree in sources() for node in ast.walk(tree))
    return [text for node in nodes if (text := text_of(node)) is not None]


@pytest.mark.parametrize("phrase", quoted())
def test_what_the_page_quotes_is_in_a_message(phrase: str, texts: list[str]) -> None:
    assert any(is_in(phrase, text) for text in texts)


def test_every_message_of_a_hold_is_on_the_page() -> None:
    phrases, found = quoted(), list(holds())
    assert len(found) > 100
    missing = [
        f"{where}: {text}" for where, text in found if not any(is_in(p, text) for p in phrases)
    ]
    assert missing == []
