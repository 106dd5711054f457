"""Fixtures of tests with Spark. Two sites as a test sees them are in :mod:`sites`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import default_channel
import pytest
from hypothesis import HealthCheck, settings
from sites import Sites

pytest_plugins = ["tiers", "failures"]

# How long generating an example takes depends on the machine, not on the code.
settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")


MEMORY = 4 << 30
"""Maximum memory of a test process, in bytes, with its Spark session and the processes it kills."""


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """One process per core, as far as memory allows. More are no faster and slow each test down."""
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = Path("/sys/fs/cgroup/memory.max")  # a container's
    if limit.is_file() and (text := limit.read_text().strip()).isdigit():
        memory = min(memory, int(text))
    return max(1, min(cores, memory // MEMORY))


@pytest.fixture(scope="session", autouse=True)
def _servers() -> Iterator[None]:
    """End the server or broker of the channels with the process."""
    yield
    default_channel.stop_servers()


@pytest.fixture(autouse=True)
def _clients(tmp_path: Path) -> Iterator[None]:
    """Close the clients of the channels after each test."""
    with default_channel.closing_clients(tmp_path):
        yield


@pytest.fixture(scope="session")
def spark(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Any]:
    """One classic session for all tests in this process. Failed tasks are retried once, as on a
    cluster.
    """
    from spark_wan.local import local_session

    # Tasks import these modules when they unpickle objects of tests.
    folders = [
        str(Path(__file__).parent),
        str(Path(__file__).parent / "support"),
        os.environ.get("PYTHONPATH", ""),
    ]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, folders))
    session = local_session(
        "spark_wan tests",
        quick=True,
        **{
            "spark.master": "local[2,2]",
            # A session keeps its last thousand queries: half an hour of tests needs more than 1 GB.
            "spark.driver.memory": "4g",
            # In a long session all of the JVM's compilers pay: 80 tests took 0.82 of the time.
            "spark.driver.extraJavaOptions": (
                "-XX:TieredStopAtLevel=4" if request.config.option.tier == "rest" else ""
            ),
            "spark.sql.ui.retainedExecutions": 50,
            "spark.ui.retainedJobs": 100,
            "spark.ui.retainedStages": 100,
            "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
            "spark.databricks.delta.retentionDurationCheck.enabled": "false",
            # The number of tasks of a VACUUM.
            "spark.sql.sources.parallelPartitionDiscovery.parallelism": 2,
        },
    )
    yield session
    session.stop()


@pytest.fixture(autouse=True)
def _active_session(request: pytest.FixtureRequest) -> Iterator[None]:
    """Make the test session active again. A sender or receiver that runs in a test's thread
    leaves its own session active, without the data sources that tests register.
    """
    yield
    if "spark" in request.fixturenames:
        request.getfixturevalue("spark").createDataFrame([], "n int")


@pytest.fixture
def sites(tmp_path: Path) -> Callable[..., Sites]:
    """``sites(**settings of the sender)``: newark sends to seattle, in the test's own folders."""
    return lambda **settings: Sites.make(tmp_path / "wan", **settings)


@pytest.fixture
def wan(sites: Callable[..., Sites]) -> Sites:
    """Newark and seattle, with default settings."""
    return sites()
