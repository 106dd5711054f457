"""The codes in names of tests (b01 …, f01 …) are explained in tests/README.md."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]


def test_the_readme_explains_exactly_the_codes_in_use() -> None:
    texts = [path.read_text() for path in TESTS.rglob("test_*.py")]
    prefixes = re.findall(r"def test_((?:[bf]\d\d_)+)", "".join(texts))
    used = {code for prefix in prefixes for code in re.findall(r"[bf]\d\d", prefix)}
    used |= set(re.findall(r'["[]([bf]\d\d)', (TESTS / "protections.py").read_text()))
    explained = re.findall(r"(?m)^\| ([bf]\d\d) \| \S", (TESTS / "README.md").read_text())
    assert explained == sorted(used)
