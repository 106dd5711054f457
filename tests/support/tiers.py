"""Tiers of tests, and their parts of equal length; a pytest plugin.

``core`` is what ``make test`` runs, ``rest`` is everything else. A test below ``unit/``, ``fuzz/``
or ``simulation/`` is core unless it is marked ``rest``; elsewhere a test is in the rest unless it
is marked ``core``. With channels on S3 or Kafka, every test is in the rest. The core needs no
network, and no server but the one broker whose jars ``make env`` has downloaded.

The rest of some files also runs with channels on S3 and Kafka: see :data:`ON_ALL_KINDS`.

``durations.json`` has the seconds that each file's tests of a tier took, by kind of channel. By
them ``--part k/n`` deals files into parts, and the longest file of a run begins first.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

import default_channel
import pytest

CORE, REST = "core", "rest"
TESTS = Path(__file__).parents[1]
DURATIONS = TESTS / "durations.json"
CORE_FOLDERS = ("unit", "fuzz", "simulation")
ON_ALL_KINDS = (
    "cluster/test_cluster.py",
    "crash/test_forwarder_killed.py",
    "crash/test_receiver_killed.py",
    "crash/test_sender_killed.py",
    "crash/test_sink_killed.py",
    "crash/test_two_at_once.py",
    "integration/test_copy_in_parts.py",
    "integration/test_dropped_sites.py",
    "integration/test_forwarding.py",
    "integration/test_lifecycle.py",
    "integration/test_propagation.py",
    "integration/test_refused_events.py",
    "integration/test_sink.py",
    "integration/test_source.py",
)
"""What a channel can break. Types, DDL and constraints do not depend on its kind."""
UNKNOWN = 20.0
"""Seconds of a file of which nothing was recorded."""

Run = tuple[str, str]
"""A kind of channel, and a file."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("tiers")
    group.addoption("--tier", choices=(CORE, REST), help="only the tests of a tier")
    group.addoption("--part", type=_part, help="k/n: only the k-th of n parts of equal length")
    group.addoption("--no-skips", action="store_true", help="a skipped test fails the run")
    group.addoption("--record-durations", action="store_true", help="write tests/durations.json")


def _part(text: str) -> tuple[int, int]:
    part, parts = map(int, text.split("/"))
    if not 1 <= part <= parts:
        raise ValueError(text)
    return part, parts


def tier_of(item: pytest.Item) -> str:
    """Return the tier of a test: by its marker, or by its folder."""
    if default_channel.KIND != "directory":
        return REST
    for tier in (CORE, REST):
        if item.get_closest_marker(tier) is not None:
            return tier
    return CORE if _file(item).startswith(CORE_FOLDERS) else REST


def has_kind(item: pytest.Item, kind: str) -> bool:
    """Return whether a test can run with channels of a kind."""
    of_kinds = item.get_closest_marker("channels")
    return of_kinds is None or kind in of_kinds.args


def _file(item: pytest.Item) -> str:
    return os.path.relpath(item.path, TESTS)


class Durations:
    """Seconds by tier, kind of channel and file."""

    def __init__(self, path: Path = DURATIONS) -> None:
        self.path = path
        self.seconds: dict[str, dict[str, dict[str, float]]] = (
            json.loads(path.read_text()) if path.exists() else {}
        )

    def of(self, tier: str, kind: str, file: str) -> float:
        """Return those of a file's tests in a tier."""
        known = self.seconds.get(tier, {}).get(kind, {}).get(file)
        if known is not None:
            return known
        return UNKNOWN if (tier == CORE) == file.startswith(CORE_FOLDERS) else 0.0

    def runs(self) -> dict[Run, float]:
        """Return the seconds of each run of a file's tests of the rest."""
        files = [path.relative_to(TESTS).as_posix() for path in TESTS.rglob("test_*.py")]
        return {
            (kind, file): self.of(REST, kind, file)
            for file in files
            for kind in default_channel.KINDS
            if kind == "directory" or file.startswith(ON_ALL_KINDS)
        }

    def record(self, measured: Mapping[tuple[str, str], float], kind: str) -> None:
        """Write what a run took, by tier and file. What it did not run keeps its seconds."""
        for (tier, file), seconds in measured.items():
            self.seconds.setdefault(tier, {}).setdefault(kind, {})[file] = round(seconds, 1)
        kept = {
            tier: {
                kind: {file: files[file] for file in sorted(files) if (TESTS / file).exists()}
                for kind, files in sorted(kinds.items())
            }
            for tier, kinds in sorted(self.seconds.items())
        }
        self.path.write_text(json.dumps(kept, indent=1) + "\n")


def dealt(runs: Mapping[Run, float], parts: int) -> dict[Run, int]:
    """Deal files to parts 1 to ``parts`` of equal length. Each kind of channel is in as few parts
    as can be: wherever it is, Spark and a server have to start."""
    total, done = sum(runs.values()) or 1.0, 0.0
    found = {}
    for run in sorted(runs):
        found[run] = min(parts, 1 + int((done + runs[run] / 2) / total * parts))
        done += runs[run]
    return found


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take the tests of the tier, the part and the kind of channel, the longest files first."""
    durations, kind = Durations(), default_channel.KIND
    tier, part = config.option.tier, config.option.part

    def is_chosen(item: pytest.Item) -> bool:
        file = _file(item)
        return (
            tier in (None, tier_of(item))
            and has_kind(item, kind)
            and (tier is None or kind == "directory" or file.startswith(ON_ALL_KINDS))
            and (part is None or place[kind, file] == part[0])
        )

    place = dealt(durations.runs(), part[1]) if part else {}
    chosen = [item for item in items if is_chosen(item)]
    left = {*items} - {*chosen}
    if left:
        config.hook.pytest_deselected(items=[item for item in items if item in left])
    if tier is not None:
        chosen.sort(key=lambda item: (-durations.of(tier, kind, _file(item)), _file(item)))
    items[:] = chosen


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item):  # type: ignore[no-untyped-def]
    outcome = yield
    outcome.get_result().tier = tier_of(item)


class Recorder:
    """Adds up what the tests of a run take, in the process that reports."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.measured: dict[tuple[str, str], float] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        file = report.nodeid.partition("::")[0].removeprefix("tests/")
        key = (report.tier, file)  # type: ignore[attr-defined]
        self.measured[key] = self.measured.get(key, 0.0) + report.duration

    def pytest_sessionfinish(self) -> None:
        Durations().record(self.measured, default_channel.KIND)


def pytest_configure(config: pytest.Config) -> None:
    is_worker = hasattr(config, "workerinput")
    if config.option.record_durations and not is_worker:
        config.pluginmanager.register(Recorder(config))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """A part may have nothing of a kind of channel; with ``--no-skips``, nothing is skipped."""
    option, reporter = (
        session.config.option,
        session.config.pluginmanager.get_plugin("terminalreporter"),
    )
    if option.part and session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
        session.exitstatus = pytest.ExitCode.OK
    if option.no_skips and reporter is not None and reporter.stats.get("skipped"):
        reporter.write_line("--no-skips: each test that was skipped counts as failed", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
