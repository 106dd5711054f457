"""Processes to kill, and sites that have replicated before the fault."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sites import Sites

from crash.processes import Killed, Worker


@pytest.fixture(scope="module")
def killed_at(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Killed]:
    """``killed_at(sites, do=…)``: copies of ``sites``, one for each ``step`` of the file's tests,
    after a process that ran there was killed with all its threads at that step."""
    items = [item for item in request.session.items if item.path == request.path]
    parameters = [item.callspec.params for item in items if hasattr(item, "callspec")]
    steps = sorted({each["step"] for each in parameters if "step" in each})

    def kill(sites: Sites, **command: object) -> Killed:
        folder = tmp_path_factory.mktemp("killed")
        copies = {step: sites.copy(folder / step) for step in steps}
        worker = Worker(folder / "worker.log")
        try:
            worker.killed_at(copies, **command)
        finally:
            worker.end()
        return copies

    return kill


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[Callable[[], Worker]]:
    """``workers()``: one more process at work. All are killed after the test."""
    started: list[Worker] = []

    def start() -> Worker:
        started.append(Worker(tmp_path / f"worker-{len(started)}.log"))
        return started[-1]

    yield start
    for worker in started:
        worker.end()


@pytest.fixture(scope="session")
def _replicated(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Sites:
    sites = Sites.make(tmp_path_factory.mktemp("replicated") / "wan")
    for start in (10, 30):
        sites.change(start)
        sites.send(spark)
    sites.receive(spark)
    sites.assert_equal()
    return sites


@pytest.fixture(scope="session")
def _waiting(spark: Any, _replicated: Sites, tmp_path_factory: pytest.TempPathFactory) -> Sites:
    sites = _replicated.copy(tmp_path_factory.mktemp("waiting") / "wan")
    sites.change(50)
    sites.send(spark)
    return sites


@pytest.fixture
def replicated(_replicated: Sites, tmp_path: Path) -> Sites:
    """Two sites with equal tables: two epochs per stream, both acked, nothing trimmed yet."""
    return _replicated.copy(tmp_path / "wan")


@pytest.fixture
def waiting(_waiting: Sites, tmp_path: Path) -> Sites:
    """The same, with a third epoch of each stream in the channel, not yet applied."""
    return _waiting.copy(tmp_path / "wan")
