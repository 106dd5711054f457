"""A run that is ended by a clock skips what it has no time for, and says so."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("minutes", "counted"), [("0", "skipped"), ("60", "passed")])
def test_tests_that_have_not_begun_in_time_are_skipped(minutes: str, counted: str) -> None:
    environment = {**os.environ, "SPARK_WAN_TEST_MINUTES": minutes}
    environment.pop("SPARK_WAN_TESTS_BEGAN", None)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "tests/unit/test_steps.py"]
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout
    last = ended.stdout.splitlines()[-1]
    assert counted in last and {"skipped", "passed"} & {*last.split()} == {counted}
    assert (f"SPARK_WAN_TEST_MINUTES={minutes} on this machine" in ended.stdout) == (minutes == "0")
