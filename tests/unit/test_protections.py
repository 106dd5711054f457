"""The list of protections, each of which is taken out once in a while, follows the code."""

from __future__ import annotations

from pathlib import Path

import pytest
from protections import PROTECTIONS

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", [name for name, _, _ in PROTECTIONS])
def test_a_protection_stands_where_the_list_says(name: str) -> None:
    _, edits, tests = next(each for each in PROTECTIONS if each[0] == name)
    for file, before, after in edits:
        assert (ROOT / file).read_text().count(before) == 1, f"{before!r} in {file}"
        assert before != after
    for test in tests:
        file, _, function = test.partition("::")
        assert f"def {function.partition('[')[0]}(" in (ROOT / file).read_text(), test
