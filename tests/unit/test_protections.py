"""The list of protections matches the code, and guards are found by function and syntax."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest
from collecting import collected
from mutations import DoesNotFitError, mutated
from protections import PROTECTIONS, Protection, parsed

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("protection", PROTECTIONS, ids=lambda protection: protection.name)
def test_each_guard_of_the_list_exists(protection: Protection) -> None:
    assert mutated(ROOT / "spark_wan", protection.mutations)


def test_each_test_of_the_list_exists() -> None:
    """With its parameters."""
    assert [protection.name for protection in PROTECTIONS if not protection.tests] == []
    named = {test for protection in PROTECTIONS for test in protection.tests}
    found = collected(*sorted({test.partition("::")[0] for test in named}))
    assert named - found - {test.partition("[")[0] for test in found} == set()


def test_no_test_of_the_list_is_named_by_the_place_of_its_parameter() -> None:
    """Fails for ``test_…[data16]``, which is another test once a parameter is added before it."""
    numbered = []
    for test in sorted({test for protection in PROTECTIONS for test in protection.tests}):
        path, _, name = test.partition("::")
        for argument, digits in re.findall(r"(?:\[|-)([a-z_]+)(\d+)(?=\]|-)", name):
            if re.search(
                rf"""parametrize\([^\[]*["' (,]{argument}["',]""", (ROOT / path).read_text()
            ):
                numbered.append(f"{test}: {argument}{digits}")
    assert numbered == []


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
RAISE = " " * 12 + "raise ValueError(number)"
ASSIGN = " " * 8 + "self.last = number"


@pytest.mark.parametrize(
    ("mutation", "after"),
    [
        (("Log.append", "number <= self.last", "False"), f"if False:\n{RAISE}"),
        (("Log.append", "number\n<= self.last", "False"), f"if False:\n{RAISE}"),
        (("Log.append", "if number <= self.last: ...", "if number: ..."), f"if number:\n{RAISE}"),
        (("Log.append", "if number <= self.last: ...", "pass"), f"pass\n{ASSIGN}"),
        (("Log.append", "self.last = number", "self.first = number\nself.last = 0"), "last = 0"),
        (("Log.trim", "self.first", "0"), None),  # assigned to, and read
        (("Log.trim", "[self.first, self.last]", "[]"), "return []"),
        (("Log.trim", "raise ValueError(number)", "pass"), None),
        (("trim", "return [self.first, self.last]", "return []"), None),  # not the whole name
    ],
)
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


def test_an_entry_of_the_list_has_a_name_tests_and_changes() -> None:
    text = """
    [f01]
    test_one[a b]
    unit/test_other.py::test_two
    Log.append
    - if number <= self.last:
    -     ...
    + pass
    - number
    + 0
    Log.trim
    - self.first
    + 0

    [f02]
    test_three
    Log
    - last
    + first
    """
    one, two = parsed("unit/test_log.py", text)
    assert one == Protection(
        "f01",
        [
            ("Log.append", "if number <= self.last:\n    ...", "pass"),
            ("Log.append", "number", "0"),
            ("Log.trim", "self.first", "0"),
        ],
        ["tests/unit/test_log.py::test_one[a b]", "tests/unit/test_other.py::test_two"],
    )
    assert two == Protection(
        "f02", [("Log", "last", "first")], ["tests/unit/test_log.py::test_three"]
    )
