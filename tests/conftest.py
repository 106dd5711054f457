"""Fixtures that tests with Spark share. What a test sees of two sites is in :mod:`sites`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from sites import Sites

# How long an example takes to make says something of the machine, and nothing of us.
settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")


MEMORY = 4 << 30
"""Bytes that a test process takes at most, with its Spark session and the processes that it kills."""


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """One process for each core, as far as memory goes. One more took just as long, and leaves each test less of a busy machine."""
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = Path("/sys/fs/cgroup/memory.max")  # a container's
    if limit.is_file() and (text := limit.read_text().strip()).isdigit():
        memory = min(memory, int(text))
    return max(1, min(cores, memory // MEMORY))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One classic session for all tests in this process. A failed task is tried once more, as on a cluster."""
    from spark_wan.local import local_session

    # Tasks unpickle what tests hand them by reference.
    folders = [
        str(Path(__file__).parent / "support"),
        str(Path(__file__).parent / "crash"),
        os.environ.get("PYTHONPATH", ""),
    ]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, folders))
    session = local_session(
        "spark_wan tests",
        quick=True,
        **{
            "spark.master": "local[2,2]",
            # Half an hour of tests is more than the usual gigabyte takes, with what a session keeps of its last thousand queries.
            "spark.driver.memory": "4g",
            "spark.sql.ui.retainedExecutions": 50,
            "spark.ui.retainedJobs": 100,
            "spark.ui.retainedStages": 100,
            "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
            "spark.databricks.delta.retentionDurationCheck.enabled": "false",
            "spark.sql.sources.parallelPartitionDiscovery.parallelism": 2,  # so many tasks a VACUUM has
        },
    )
    yield session
    session.stop()


@pytest.fixture(autouse=True)
def _active_session(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test that advances a sender or a receiver in its own thread leaves their session active there. Spark looks for data sources in the active one, so
    later tests would not find those that they register."""
    yield
    if "spark" in request.fixturenames:
        request.getfixturevalue("spark").createDataFrame([], "n int")


@pytest.fixture
def sites(tmp_path: Path) -> Callable[..., Sites]:
    """``sites(**settings of the sender)``: newark sends to seattle, in folders of the test's own."""
    return lambda **settings: Sites.make(tmp_path / "wan", **settings)
