"""The pages of the documentation, as tests read them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]


def section(page: str, heading: str) -> str:
    """Return a page's text below a heading, up to the next heading of any level."""
    text = (ROOT / "docs" / page).read_text()
    found = re.search(
        rf"^#+ {re.escape(heading)}\n(.*?)(?=^#+ |\Z)", text, re.MULTILINE | re.DOTALL
    )
    assert found is not None, f"{page} has no heading {heading!r}"
    return found[1]


def table_rows(text: str) -> Iterator[list[str]]:
    """Yield the cells of the rows of a text's tables, without the lines below their heads."""
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and not set(line) <= set("|- "):
            yield cells


def names_in(text: str) -> set[str]:
    """Return the words in backticks."""
    return set(re.findall(r"`([^`]+)`", text))
