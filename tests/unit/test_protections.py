"""The list of protections, each of which is taken out once in a while, follows the code."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from mutations import DoesNotFitError, mutated
from protections import PROTECTIONS

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", [name for name, _, _ in PROTECTIONS])
def test_a_protection_stands_where_the_list_says(name: str) -> None:
    _, mutations, tests = next(each for each in PROTECTIONS if each[0] == name)
    assert mutated(ROOT / "spark_wan", mutations)
    for test in tests:
        file, _, function = test.partition("::")
        assert f"def {function.partition('[')[0]}(" in (ROOT / file).read_text(), test


CODE = """
class Log:
    def append(self, number):
        if number <= self.last:  # a guard
            raise ValueError(
                number
            )
        self.last = number

    def trim(self, number):
        if number <= self.last:
            self.first = number
        return [self.first, self.last]
"""


@pytest.mark.parametrize(
    ("mutation", "after"),
    [
        (("Log.append", "number <= self.last", "False"), "if False:\n            raise ValueError(number)"),
        (("Log.append", "if number <= self.last: ...", "if number: ..."), "if number:\n            raise ValueError(number)"),
        (("Log.append", "if number <= self.last: ...", "pass"), "pass\n        self.last = number"),
        (("Log.append", "self.last = number", "self.first = number\nself.last = 0"), "self.last = 0"),
        (("Log.trim", "self.first", "0"), None),  # assigned to, and read
        (("Log.trim", "[self.first, self.last]", "[]"), "return []"),
        (("Log.trim", "raise ValueError(number)", "pass"), None),
        (("trim", "return [self.first, self.last]", "return []"), None),  # not the whole name
    ],
)  # fmt: skip
def test_a_guard_is_found_by_its_function_and_its_syntax(
    tmp_path: Path, mutation: tuple[str, str, str], after: str | None
) -> None:
    module = tmp_path / "channels" / "log.py"
    module.parent.mkdir()
    module.write_text(CODE)
    if after is None:
        with pytest.raises(DoesNotFitError):
            mutated(tmp_path, [mutation])
    else:
        changed = mutated(tmp_path, [mutation])
        assert list(changed) == [module]
        assert textwrap.dedent(after) in changed[module]
