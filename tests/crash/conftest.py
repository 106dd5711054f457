"""Processes to kill, and sites that have replicated before the fault."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from sites import Sites

from crash.processes import Killed, Spares, Worker


@pytest.fixture(scope="session")
def spares(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spares]:
    spares = Spares(tmp_path_factory.mktemp("workers"))
    yield spares
    spares.end()


@pytest.fixture(scope="session")
def killed_at(spares: Spares, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Killed]:
    """``killed_at(steps, sites, do=…)``: copies of ``sites`` by step, after a process that ran
    there was killed with all its threads at that step."""

    def kill(steps: Sequence[str], sites: Sites, **command: object) -> Killed:
        folder = tmp_path_factory.mktemp("killed")
        copies = {step: sites.copy(folder / step) for step in steps}
        worker = spares.take(0)
        try:
            worker.killed_at(copies, **command)
        finally:
            worker.end()
        return copies

    return kill


@pytest.fixture
def workers(spares: Spares, request: pytest.FixtureRequest) -> Iterator[Callable[[], Worker]]:
    """``workers()``: a process to kill. Those left are killed after the test."""
    items = request.session.items
    later = [
        item
        for item in items[items.index(request.node) + 1 :]
        if "workers" in getattr(item, "fixturenames", ())
    ]
    taken: list[Worker] = []

    def take() -> Worker:
        taken.append(spares.take(len(later)))
        return taken[-1]

    yield take
    for worker in taken:
        worker.end()


@pytest.fixture
def worker(workers: Callable[[], Worker]) -> Worker:
    return workers()


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
