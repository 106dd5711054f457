"""What a failed test says beside its traceback: the behaviour that broke, the seed, and the command
that runs it alone. A pytest plugin.
"""

from __future__ import annotations

import inspect
import os
import re
import shlex
from functools import cache
from pathlib import Path

import default_channel
import pytest
import seeds

README = Path(__file__).parents[1] / "README.md"


@cache
def codes() -> dict[str, str]:
    """Return the behaviours and faults by their codes (b01, f01), as the README explains them."""
    return dict(re.findall(r"(?m)^\| ([bf]\d\d) \| (.*?) \|$", README.read_text()))


def behaviour(item: pytest.Item) -> str:
    """Return what a test claims: its codes, its name as a sentence, and its docstring."""
    function = getattr(item, "originalname", None) or item.name.partition("[")[0]
    words = function.removeprefix("test_").split("_")
    named = [f"{word}: {codes()[word]}" for word in words if word in codes()]
    sentence = " ".join(word for word in words if word not in codes())
    case = f" [{item.callspec.id}]" if hasattr(item, "callspec") else ""
    explained = inspect.getdoc(getattr(item, "obj", None)) or ""
    return "\n".join(filter(None, [*named, f"{sentence}{case}", explained]))


def command(item: pytest.Item) -> str:
    """Return the command that runs a test alone, with the same seed and kind of channel."""
    variables = {seeds.VARIABLE: str(seeds.seed())}
    if default_channel.KIND != "directory":
        variables["SPARK_WAN_TEST_CHANNEL"] = default_channel.KIND
    variables |= {
        name: os.environ[name]
        for name in ("SPARK_WAN_SCHEDULES", "SPARK_WAN_FUZZ_INPUTS")
        if name in os.environ
    }
    given = " ".join(f"{name}={value}" for name, value in variables.items())
    return f"{given} .venv/bin/python -m pytest {shlex.quote(item.nodeid)}"


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item):  # type: ignore[no-untyped-def]
    outcome = yield
    report = outcome.get_result()
    if report.failed:
        report.sections += [("What broke", behaviour(item)), ("Run it alone", command(item))]


def pytest_report_header() -> str:
    return f"seed: {seeds.VARIABLE}={seeds.seed()}, channels: {default_channel.KIND}"
