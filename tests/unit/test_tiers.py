"""Which tests run in which tier and part, and what a failed test says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import failures
import pytest
import seeds
from collecting import collected
from hypothesis import given
from hypothesis import strategies as st
from tiers import CORE, ON_ALL_KINDS, REST, TESTS, UNKNOWN, Durations, dealt

ROOT = TESTS.parent
RUNS = st.dictionaries(
    st.tuples(st.sampled_from(["directory", "kafka", "s3"]), st.text("abc", max_size=3)),
    st.floats(0, 300),
)


@given(RUNS, st.integers(1, 5))
def test_every_file_is_in_one_part_and_parts_differ_by_one_file_at_most(
    runs: dict[tuple[str, str], float], parts: int
) -> None:
    found = dealt(runs, parts)
    assert found.keys() == runs.keys()
    assert set(found.values()) <= set(range(1, parts + 1))
    assert list(dict(sorted(found.items())).values()) == sorted(found.values())
    lengths = [sum(runs[run] for run in runs if found[run] == n) for n in range(1, parts + 1)]
    fair = sum(runs.values()) / parts
    assert max(lengths) <= fair + max(runs.values(), default=0) + 0.001


def test_a_file_without_a_record_has_a_length_in_the_tier_of_its_folder(tmp_path: Path) -> None:
    durations = Durations(tmp_path / "durations.json")
    assert durations.of(REST, "directory", "integration/test_new.py") == UNKNOWN
    assert durations.of(CORE, "directory", "integration/test_new.py") == 0
    assert durations.of(CORE, "directory", "unit/test_new.py") == UNKNOWN
    durations.record({(CORE, "unit/test_tiers.py"): 1.25, (REST, "unit/gone.py"): 1}, "directory")
    assert Durations(durations.path).of(CORE, "directory", "unit/test_tiers.py") == 1.2
    assert "gone" not in durations.path.read_text()


def test_what_runs_on_all_kinds_of_channel_exists() -> None:
    assert [name for name in ON_ALL_KINDS if not (TESTS / name).exists()] == []


def channels(*options: str) -> set[str]:
    """Return those with which a run tests the contract of channels."""
    tests = collected(*options, "tests/unit/channels/test_channels.py")
    return {test.partition("[")[2].rstrip("]") for test in tests if "[" in test}


def test_the_core_has_one_broker_and_no_other_server() -> None:
    assert channels("--tier", "core") == {"directory", "memory", "dict", "topics", "kafka"}
    assert channels("--tier", "rest") == {"s3"}


FAILS = """
import pytest

@pytest.mark.parametrize("color", ["red"])
def test_b01_a_color_arrives(color):
    '''Even red.'''
    assert color == "blue"
"""
SKIPS = "def test_nothing():\n    import pytest\n    pytest.skip('not here')\n"


def ran(folder: Path, code: str, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_it.py").write_text(code)
    (folder / "pytest.ini").write_text("[pytest]\n")
    paths = os.pathsep.join(map(str, (ROOT, TESTS, TESTS / "support")))
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tiers", "-p", "failures", *options, "test_it.py"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": paths, seeds.VARIABLE: "7"},
        capture_output=True,
        text=True,
    )


def test_a_failed_test_says_what_broke_and_how_to_run_it_alone(tmp_path: Path) -> None:
    ended = ran(tmp_path, FAILS)
    assert ended.returncode == 1
    for line in (
        "b01: Creates, updates and deletes arrive.",
        "a color arrives [red]",
        "Even red.",
        "SPARK_WAN_SEED=7 .venv/bin/python -m pytest 'test_it.py::test_b01_a_color_arrives[red]'",
    ):
        assert line in ended.stdout.splitlines(), ended.stdout
    assert "seed: SPARK_WAN_SEED=7" in ended.stdout


@pytest.mark.parametrize(("options", "code"), [((), 0), (("--no-skips",), 1)])
def test_a_skipped_test_fails_the_run_where_nothing_may_be_skipped(
    tmp_path: Path, options: tuple[str, ...], code: int
) -> None:
    assert ran(tmp_path, SKIPS, *options).returncode == code


def test_the_names_of_tests_are_sentences(request: pytest.FixtureRequest) -> None:
    assert failures.behaviour(request.node) == "the names of tests are sentences"


def test_the_seed_is_that_of_the_commit() -> None:
    environment = {name: text for name, text in os.environ.items() if name != seeds.VARIABLE}
    code = "import seeds; print(seeds.seed())"
    found = subprocess.run(
        [sys.executable, "-c", code],
        cwd=TESTS / "support",
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    head = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True
    ).stdout
    assert int(found.stdout) == (int(head[:8], 16) if head else 1)
