"""Two Spark standalone clusters, one per site, and jobs given to them with spark-submit.

The jobs of a module run on: a test takes those that are there. Each can run alone.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import default_channel
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from sites import COLUMNS, KEYS, NEWARK, SEATTLE, Sites, at, write_topology
from spark_cluster import (
    ROOT,
    Cluster,
    Job,
    build_archive,
    connected_ports,
    descendants,
    signal_all,
)
from waiting import DEADLINE, wait_until

TRIES = 10
"""How often a test looks for a fault that hits the right moment."""
ROWS = 60_000
"""Rows of a large commit: more than the driver decodes by itself."""
FRAME = 40
"""Rows of a frame: writing those of a large commit takes a while."""
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": 0.5,
    "spark.speculation.multiplier": 1.1,
    "spark.speculation.minTaskRuntime": "100ms",
}
DYNAMIC = {
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.timeout": "2s",
    "spark.dynamicAllocation.cachedExecutorIdleTimeout": "2s",
    "spark.dynamicAllocation.executorIdleTimeout": "2s",
    "spark.dynamicAllocation.minExecutors": 0,
    "spark.dynamicAllocation.maxExecutors": 2,
}


@dataclass
class Deployment:
    """Both sites with their clusters, and the jobs that run there."""

    wan: Sites
    newark: Cluster
    seattle: Cluster
    jobs: dict[str, Job] = field(default_factory=dict)
    settings: dict[str, dict[str, object]] = field(default_factory=dict)
    committed: int = 0

    @property
    def config(self) -> Path:
        return self.wan.folder / "wan.yaml"

    # --- jobs

    def start(
        self,
        name: str,
        address: str = "127.0.0.1",
        environment: Mapping[str, str] | None = None,
        **settings: object,
    ) -> Job:
        """Start ``send``, ``receive`` or ``query``."""
        words: tuple[object, ...]
        if name == "query":
            job = Path(__file__).with_name("stream_job.py")
            words = (self.config, self.wan.path("clicks"), self.wan.folder / "checkpoint")
        else:
            job = ROOT / "jobs" / f"{name}.py"
            site = NEWARK if name == "send" else SEATTLE
            words = ("--config", self.config, "--site", site, "--output", "json")
        cluster = self.seattle if name == "receive" else self.newark
        self.jobs[name] = cluster.submit(
            job, *words, address=address, settings=settings, environment=environment
        )
        self.settings[name] = settings
        return self.jobs[name]

    def started(self, name: str, **settings: object) -> Job:
        """Return a job with these settings: the one that runs, or a new one in its place."""
        if name in self.jobs and self.settings[name] != settings:
            self.jobs.pop(name).kill()
        return self.jobs[name] if name in self.jobs else self.start(name, **settings)

    def running(self, *names: str) -> list[Job]:
        """Return jobs, started if they are not there, with two executors each. With both ends, what
        was written before has arrived."""
        jobs = [self.started(name, **SPECULATION) for name in names]
        for job in jobs:
            job.wait_until_started()
            wait_until(lambda job=job: len(job.executors()) == 2, f"{job.app} has executors")
        if {"send", "receive"} <= {*names}:
            self.wait_for_acks("orders", "readings")
        return jobs

    def alive(self) -> list[str]:
        """Return what the jobs say that have ended."""
        return [job.tail() for job in self.jobs.values() if job.process.poll() is not None]

    # --- tables

    def commit(self, table: str = "readings") -> None:
        """Append a large commit in two files: two tasks read it."""
        chance = random.Random(self.committed)
        first = self.committed * ROWS
        if table == "readings":
            rows = [
                {"sensor": f"{chance.getrandbits(64):x}", "value": float(n)} for n in range(ROWS)
            ]
        elif table == "orders":
            rows = [
                {"id": 10_000 + first + n, "item": f"{chance.getrandbits(64):x}", "amount": n / 3}
                for n in range(ROWS)
            ]
        else:
            rows = [
                {"event": f"{table} {first + n}", "at": at(n), "page": f"{chance.getrandbits(64)}"}
                for n in range(ROWS)
            ]
        content = pa.Table.from_pylist(rows, schema=COLUMNS[table])
        path = self.wan.path(table)
        before = len(DeltaTable(path).file_uris()) if path.exists() else 0
        write_deltalake(
            path,
            content.to_batches(ROWS // 2),
            mode="append",
            configuration={"delta.enableChangeDataFeed": "true"},
            target_file_size=1,
        )
        assert len(DeltaTable(path).file_uris()) >= before + 2
        self.committed += 1

    def is_settled(self, table: str) -> bool:
        """Whether seattle has acked the newest commit of a captured table."""
        assert not self.alive(), self.alive()
        log = self.wan.log(table)
        newest = log.newest_manifest()
        done = newest is not None and newest.last_version == self.wan.version(table, NEWARK)
        return done and newest is not None and self.wan.acked(table) == newest.epoch

    def wait_for_acks(self, *tables: str) -> None:
        for table in tables:
            wait_until(lambda table=table: self.is_settled(table), f"{table} arrives")

    def settle(self, *tables: str) -> None:
        tables = tables or ("orders", "readings")
        self.wait_for_acks(*tables)
        self.wan.assert_equal(*tables)

    def published(self, table: str) -> int:
        newest = self.wan.log(table).newest_manifest()
        return newest.epoch if newest is not None else 0

    def attempts(self, table: str) -> set[str]:
        """Return the attempts of tasks of which there are frames."""
        channel, stream = self.wan.channel(_sender(table)), self.wan.log(table).stream
        if "://" in channel.url:
            names = [Path(path).name for path in self.wan.frames(table)]
        else:  # faster: what is looked for does not last
            folder = Path(channel.url) / "frames" / stream
            names = os.listdir(folder) if folder.exists() else []
        return {name.rpartition("-")[0] for name in names}

    def unnamed(self, table: str) -> set[str]:
        """Return the attempts of tasks with frames of which no manifest knows."""
        named = self.wan.named_frames(table)
        left = {Path(path).name for path in self.wan.frames(table) - named}
        ours = {Path(path).name.rpartition("-")[0] for path in named}
        attempts = {name.rpartition("-")[0] for name in left}
        assert not attempts & ours, "some frames of an attempt are named, and some are not"
        return attempts

    def loose_files(self, table: str) -> set[str]:
        """Return the data files at seattle that no version of the table has."""
        folder = self.wan.path(table, SEATTLE)
        return data_files(folder) - {Path(uri).name for uri in DeltaTable(folder).file_uris()}

    # --- faults

    def until_lost(self, work: Callable[[], set[str]]) -> Iterator[None]:
        """Yield until there is new work that was lost: a fault may hit a task that is done."""
        before = work()
        for _ in range(TRIES):
            yield
            if work() > before:
                return
        raise AssertionError(f"no work was lost in {TRIES} tries")

    def catch_writing(self, job: Job, table: str) -> list[int]:
        """Commit, and freeze the job's executors when two tasks have frames and no manifest names
        them. Returns the executors."""
        for _ in range(TRIES):
            before, epoch, executors = self.attempts(table), self.published(table), job.executors()
            self.commit(table)
            soon(lambda before=before: len(self.attempts(table) - before) >= 2, job)
            freeze(executors)
            if len(executors) == 2 and self.published(table) == epoch:
                return executors
            signal_all(tree(executors), signal.SIGCONT)
        raise AssertionError(f"no task was caught in {TRIES} tries")

    def catch_applying(self, job: Job, table: str) -> list[int]:
        """The same for tasks that write data files of an apply: some executor has one open. It is
        the first that is returned."""
        folder, files = self.wan.path(table, SEATTLE), 1 if KEYS[table] else 2
        for _ in range(TRIES):
            version, executors = self.wan.version(table), job.executors()
            before = data_files(folder)
            self.commit(table)
            soon(lambda before=before: len(data_files(folder) - before) >= files, job)
            freeze(executors)
            executors.sort(key=lambda pid: not is_writing(pid, folder))
            caught = len(executors) == 2 and is_writing(executors[0], folder)
            if caught and self.wan.version(table) == version:
                return executors
            signal_all(tree(executors), signal.SIGCONT)
        raise AssertionError(f"no task was caught in {TRIES} tries")


def _sender(table: str) -> str:
    return "events" if table == "clicks" else "east"


def data_files(folder: Path) -> set[str]:
    """Return the names of a table's data files, also of those that no version has."""
    return {name for name in os.listdir(folder) if name.endswith(".parquet")}


def is_writing(pid: int, folder: Path) -> bool:
    """Whether a process has a data file in a folder open."""
    with suppress(FileNotFoundError):  # it has ended
        for opened in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(FileNotFoundError):  # closed meanwhile
                path = opened.readlink()
                if path.parent == folder and path.suffix == ".parquet":
                    return True
    return False


def soon(true: Callable[[], bool], job: Job) -> None:
    """Wait, looking often: what is awaited does not last."""
    end = time.monotonic() + DEADLINE
    while not true():
        assert job.process.poll() is None and time.monotonic() < end, job.tail()
        time.sleep(0.001)


def freeze(executors: list[int]) -> None:
    """Stop executors at once, and then what they have started, which takes longer to find."""
    signal_all(executors, signal.SIGSTOP)
    signal_all(tree(executors), signal.SIGSTOP)


def tree(processes: list[int]) -> list[int]:
    """Return processes with all that they have started."""
    return [pid for process in processes for pid in (process, *descendants(process))]


@contextmanager
def killed(executors: list[int]) -> Iterator[int]:
    """Kill the JVM of one of the frozen executors. Its Python workers and the other executor go
    on."""
    victim = executors[0]
    frozen = tree(executors)
    os.kill(victim, signal.SIGKILL)
    signal_all(frozen, signal.SIGCONT)
    yield victim


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    folder = tmp_path_factory.mktemp("cluster")
    archive = build_archive(folder / "package")
    senders = {
        name: {**default_channel.channel_settings(folder / "wan", name), "batch_size": FRAME}
        for name in ("east", "events")
    }
    write_topology(
        folder / "wan",
        senders,
        {
            "orders": {"keys": KEYS["orders"], "senders": ["east"], "start": "snapshot"},
            "readings": {"keys": [], "senders": ["east"], "start": {"version": 0}},
            "clicks": {"keys": [], "senders": ["events"], "source": "sink"},
        },
    )
    with Cluster(folder / NEWARK, archive) as newark, Cluster(folder / SEATTLE, archive) as seattle:
        made = Deployment(Sites(folder / "wan"), newark, seattle)
        made.wan.change(10)
        made.commit("clicks")
        yield made


def test_f05_an_executor_killed_while_it_writes_frames(deployment: Deployment) -> None:
    """SIGKILL to one of two executors that write. Its task runs again; the frames of the lost
    attempt stay, and no manifest names them. With a channel on Kafka, executors of both jobs have
    connections to the broker: frames travel through no driver.

    Fails (doubled rows) when the manifest names all frames of the write, in place of those that the
    accepted attempts report; or when a task cannot open the channel that it was given.
    """
    send, receive = deployment.running("send", "receive")
    for _ in deployment.until_lost(lambda: deployment.unnamed("readings")):
        with killed(deployment.catch_writing(send, "readings")) as victim:
            deployment.settle("readings")
        wait_until(lambda: len({*send.executors()} - {victim}) == 2, "another executor")
    deployment.settle()
    if default_channel.KIND == "kafka":
        server = deployment.wan.channel().url.split("/")[2]
        for job in (send, receive):
            ports = connected_ports(tree(job.executors()))
            assert int(server.rpartition(":")[2]) in ports


def test_f05_a_slow_task_is_overtaken_by_its_copy(deployment: Deployment) -> None:
    """Speculation: one of two executors stands still while it writes frames. Spark runs its task
    again at the other one, whose frames are named. The slow one goes on too late.

    Fails as the one above does.
    """
    send, _ = deployment.running("send", "receive")
    for _ in deployment.until_lost(lambda: deployment.unnamed("readings")):
        slow, other = deployment.catch_writing(send, "readings")
        epoch = deployment.published("readings")
        python = descendants(slow)
        signal_all([slow, *tree([other])], signal.SIGCONT)
        wait_until(lambda epoch=epoch: deployment.published("readings") > epoch, "a copy")
        signal_all(python, signal.SIGCONT)
        deployment.settle("readings")
    deployment.settle()


def test_f23_an_executor_killed_while_it_applies(deployment: Deployment) -> None:
    """SIGKILL to one of two executors that write the target's files, of a MERGE: it loses its
    materialized source and starts again. The apply is committed once.
    """
    _, receive = deployment.running("send", "receive")
    for _ in deployment.until_lost(lambda: deployment.loose_files("orders")):
        with killed(deployment.catch_applying(receive, "orders")) as victim:
            deployment.settle("orders")
        wait_until(lambda: len({*receive.executors()} - {victim}) == 2, "another executor")
    deployment.settle()


def test_b30_b31_drivers_are_killed_and_go_on_elsewhere(deployment: Deployment) -> None:
    """The machine with the receiver's driver is lost while tasks write the target's files; then
    that with the sender's driver while tasks write frames, with one of the workers. Each is started
    again at another address, in other folders, with what the site's state has: the log goes on with
    the next epoch.
    """
    send, receive = deployment.running("send", "receive")
    executors = deployment.catch_applying(receive, "readings")
    receive.kill()
    signal_all(tree(executors), signal.SIGCONT)

    before = deployment.wan.log("readings").newest_manifest()
    assert before is not None
    executors = deployment.catch_writing(send, "readings")
    epoch = deployment.published("readings")
    send.kill()
    deployment.newark.workers.pop().kill()
    signal_all(tree(executors), signal.SIGCONT)
    deployment.newark.workers.append(deployment.newark.add_worker())

    deployment.start("send", "127.0.0.2", **DYNAMIC)
    deployment.start("receive", "127.0.0.3", **DYNAMIC)
    deployment.settle()
    newest = deployment.wan.log("readings").newest_manifest()
    assert newest is not None
    assert (newest.epoch, newest.log_id) == (epoch + 1, before.log_id)


def test_b01_b02_dynamic_allocation_gives_executors_back_and_takes_others(
    deployment: Deployment,
) -> None:
    """An idle job has no executor. What is committed then arrives nevertheless: a large load,
    inserts, updates and deletes.
    """
    jobs = [deployment.started(name, **DYNAMIC) for name in ("send", "receive")]
    for job in jobs:
        job.wait_until_started()
    wait_until(lambda: not any(job.executors() for job in jobs), "no executors")
    deployment.commit()
    deployment.wan.change(50)
    deployment.wan.delete("orders", "id % 7 = 0")
    deployment.settle()


def test_b31_f02_a_query_goes_on_elsewhere_with_its_checkpoint(deployment: Deployment) -> None:
    """A user's own query, with the sink: its driver is lost while tasks write frames, and started
    at another address with the same checkpoint. The micro-batch is sent again, as one epoch.

    Driver and executors have spark_wan from ``--py-files`` alone. Spark's own search for data
    sources does not look there; it does where PYTHONPATH names the archive, too.
    """
    query = deployment.running("query")[0]
    (started,) = query.printed()
    assert "spark_wan.zip/spark_wan/__init__.py" in started["driver"]
    modules = ("spark_wan/__init__.py", "pyspark_wan.py")
    assert started["tasks"] == sorted(f"./spark_wan.zip/{name}" for name in modules)
    assert (started["found_by_spark"], started["registered"]) == (False, True)
    epoch = deployment.published("clicks")
    executors = deployment.catch_writing(query, "clicks")
    query.kill()
    signal_all(tree(executors), signal.SIGCONT)
    path = {"PYTHONPATH": str(deployment.newark.archive)}
    deployment.start("query", "127.0.0.4", path).wait_until_started()
    assert deployment.jobs["query"].printed()[0]["found_by_spark"]
    if "receive" not in deployment.jobs:
        deployment.start("receive")
    rows = sum(deployment.wan.rows("clicks", NEWARK).values())
    wait_until(lambda: _received(deployment, rows) and not deployment.alive(), "the clicks")
    deployment.wan.assert_equal("clicks")
    assert deployment.published("clicks") > epoch
    assert deployment.unnamed("clicks")


def _received(deployment: Deployment, rows: int) -> bool:
    path = deployment.wan.path("clicks", SEATTLE)
    is_there = DeltaTable.is_deltatable(str(path)) and DeltaTable(path).count() >= rows
    return is_there and deployment.wan.acked("clicks") == deployment.published("clicks")
