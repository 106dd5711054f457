"""A Spark standalone cluster on loopback, and jobs given to it with spark-submit.

Nothing of a job is on the machines but Python, Spark and the packages that spark_wan requires:
spark_wan itself comes with ``--py-files``, in an archive that :func:`build_archive` makes.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import pyspark
from waiting import ENDS_WITH_US, wait_until

from spark_wan.local import cached_jars, ensure_java
from spark_wan.local.classes import java_options

ROOT = Path(__file__).parents[2]
SPARK_HOME = Path(pyspark.__file__).parent
CORES = 2
"""Cores of a worker: two jobs have an executor there."""

PYTHON = """\
#!/bin/sh
# The interpreter without .pth files: an editable install of spark_wan is not seen.
PYTHONPATH="{packages}${{PYTHONPATH:+:$PYTHONPATH}}" exec {python} -S "$@"
"""

SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.codegen.cache.maxEntries": 2_000,
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.memory": "1g",
    "spark.executor.memory": "768m",
    "spark.executor.cores": 1,
    "spark.cores.max": 2,
    "spark.ui.enabled": "false",
    "spark.log.level": "WARN",
    # These make short runs fast.
    "spark.sql.shuffle.partitions": 2,
    "spark.databricks.delta.snapshotPartitions": 2,
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # A busy machine takes long to start a Python.
    "spark.python.authenticate.socketTimeout": "300s",
}


def build_archive(folder: Path) -> Path:
    """Pack what setup.cfg says into an archive for ``--py-files``: the content of a wheel."""
    folder.mkdir(parents=True)
    for name in ("setup.cfg", "setup.py", "README.md", "pyspark_wan.py"):
        shutil.copy2(ROOT / name, folder)
    shutil.copytree(
        ROOT / "spark_wan", folder / "spark_wan", ignore=shutil.ignore_patterns("__pycache__")
    )
    # Without pyproject.toml, which names a setuptools that the environment may lack.
    subprocess.run(
        [sys.executable, "setup.py", "--quiet", "build_py", "--build-lib", "built"],
        cwd=folder,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
        check=True,
        capture_output=True,
    )
    built = folder / "built"
    archive = folder / "spark_wan.zip"
    with zipfile.ZipFile(archive, "w") as zipped:
        for path in sorted(built.rglob("*")):
            zipped.write(path, path.relative_to(built))
    return archive


class Process:
    """A process in a session of its own, with its output in a file."""

    def __init__(
        self, words: Iterable[object], log: Path, folder: Path, environment: Mapping[str, str]
    ) -> None:
        self.log = log
        folder.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as file:
            self.process = subprocess.Popen(
                [*ENDS_WITH_US, *map(str, words)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
                cwd=folder,
                env=dict(environment),
                start_new_session=True,
            )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        self.lines.extend(self.process.stdout)

    @property
    def pid(self) -> int:
        return self.process.pid

    def has_logged(self, pattern: str) -> str | None:
        """Return what the log has for a pattern's first group; None: not yet. Fail when the process
        has ended without."""
        ended = self.process.poll() is not None
        match = re.search(pattern, self.log.read_text(errors="replace"))
        if match is None and ended:
            raise AssertionError(f"it has ended: {self.tail()}")
        return None if match is None else match[1]

    def wait_for_log(self, pattern: str) -> str:
        wait_until(lambda: self.has_logged(pattern) is not None, f"{self.log.name}: {pattern}")
        return self.has_logged(pattern) or ""

    def kill(self) -> None:
        """Kill the process and all that it has started, as when a machine loses power."""
        kill_session(self.pid)
        self.process.wait()
        self._reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def tail(self) -> str:
        return "".join(self.lines[-20:]) + self.log.read_text(errors="replace")[-4000:]


class Job(Process):
    """A job of spark-submit: its driver is here, its executors are at the workers."""

    def __init__(self, app: str, *started: Any) -> None:
        super().__init__(*started)
        self.app = app

    def printed(self) -> list[dict[str, Any]]:
        """Return what it has printed as JSON. Fail when it has ended with an error."""
        code = self.process.poll()
        assert not code, self.tail()
        return [json.loads(line) for line in list(self.lines) if line.startswith("{")]

    def wait_for(self, matches: Callable[[dict[str, Any]], bool], what: str) -> None:
        wait_until(lambda: any(map(matches, self.printed())), what)

    def wait_until_started(self) -> None:
        self.wait_for(lambda line: line["event"] == "started", f"{self.app} starts")

    def executors(self) -> list[int]:
        """Return the process IDs of its executors' JVMs, oldest first."""
        mine = f"\0-Dwan.app={self.app}\0"
        return sorted(pid for pid, line in command_lines().items() if mine in line)


class Cluster:
    """A master and workers. All processes end with the ``with`` block."""

    def __init__(self, folder: Path, archive: Path, workers: int = 2) -> None:
        self.folder = folder
        self.archive = archive
        self._workers = workers
        self._processes: list[Process] = []
        self._jobs = 0

    def __enter__(self) -> Cluster:
        ensure_java()
        self.folder.mkdir(parents=True)
        self.python = self.folder / "python"
        packages = SPARK_HOME.parent
        self.python.write_text(PYTHON.format(packages=packages, python=sys.executable))
        self.python.chmod(0o755)
        try:
            master = self._start("master.Master", "--host", "127.0.0.1", "--port", 0)
            self.url = master.wait_for_log(r"Starting Spark master at (spark://\S+)")
            self.workers = [self.add_worker(wait=False) for _ in range(self._workers)]
            for worker in self.workers:
                worker.wait_for_log(r"Successfully registered with (master)")
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def add_worker(self, wait: bool = True) -> Process:
        """Start a worker on a machine of its own: Spark speculates on no other executor of the
        same host."""
        number = len(self._processes)
        size = ("--cores", CORES, "--memory", "2g", "--work-dir", self.folder / f"worker-{number}")
        address = f"127.0.1.{number}"
        worker = self._start("worker.Worker", "--host", address, *size, self.url, address=address)
        if wait:
            worker.wait_for_log(r"Successfully registered with (master)")
        return worker

    def submit(
        self,
        job: Path,
        *options: object,
        address: str = "127.0.0.1",
        settings: Mapping[str, object] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Job:
        """Give a job to the cluster. Its driver is at ``address``, with folders of its own there:
        a loopback address stands for a machine."""
        self._jobs += 1
        app = f"{self.folder.name}-{self._jobs}-{os.getpid()}"
        here = self.folder / address
        conf = {**SETTINGS, **(settings or {})}
        conf |= {"spark.driver.host": address, "spark.driver.bindAddress": address}
        conf["spark.driver.extraJavaOptions"] = java_options(quick=True)
        conf["spark.executor.extraJavaOptions"] = f"{java_options(quick=True)} -Dwan.app={app}"
        words: list[object] = [SPARK_HOME / "bin" / "spark-submit", "--master", self.url]
        words += ["--jars", ",".join(map(str, cached_jars())), "--py-files", self.archive]
        for name, value in conf.items():
            words += ["--conf", f"{name}={value}"]
        variables = {**self._environment(here / "tmp"), "SPARK_LOCAL_IP": address}
        variables |= {"PYSPARK_PYTHON": str(self.python), **(environment or {})}
        log = self.folder / f"{app}.log"
        started = Job(app, [*words, job, *options], log, here / "cwd", variables)
        self._processes.append(started)
        return started

    def _start(self, kind: str, *words: object, address: str = "127.0.0.1") -> Process:
        name = f"{len(self._processes)}-{kind}"
        started = Process(
            [SPARK_HOME / "bin" / "spark-class", f"org.apache.spark.deploy.{kind}"]
            + ["--webui-port", "0", *words],
            self.folder / f"{name}.log",
            self.folder / name,
            {**self._environment(self.folder / name), "SPARK_LOCAL_IP": address},
        )
        self._processes.append(started)
        return started

    def _environment(self, scratch: Path) -> dict[str, str]:
        """The environment of a machine that has no spark_wan, with its temporary files."""
        scratch.mkdir(parents=True, exist_ok=True)
        unwanted = ("SPARK_", "PYSPARK_", "PYTHON", "COV_", "PYTEST_")
        kept = {name: text for name, text in os.environ.items() if not name.startswith(unwanted)}
        return {
            **kept,
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_LOCAL_DIRS": str(scratch),
            "TMPDIR": str(scratch),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": java_options(quick=True).replace('"', ""),
            "SPARK_AUTH_SOCKET_TIMEOUT": "300",
        }

    def _end(self) -> None:
        for process in reversed(self._processes):
            with suppress(ValueError):  # its output was closed when it was killed
                process.kill()


# --- processes


def command_lines() -> dict[int, str]:
    """Return the command lines of all processes, with a zero byte after each word."""
    found = {}
    for entry in Path("/proc").iterdir():
        with suppress(ValueError, OSError):
            found[int(entry.name)] = (entry / "cmdline").read_text()
    return found


def _stat(pid: int) -> list[str]:
    """Return the fields of a process's stat that follow its name: state, parent, group, session."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def descendants(pid: int) -> list[int]:
    """Return what a process has started, and what those have."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        with suppress(ValueError, OSError, IndexError):
            parents[int(entry.name)] = int(_stat(int(entry.name))[1])
    found: list[int] = []
    now = {pid}
    while now:
        now = {child for child, parent in parents.items() if parent in now}
        found += sorted(now)
    return found


def connected_ports(pids: Iterable[int]) -> set[int]:
    """Return the ports to which processes have TCP connections."""
    held: set[str] = set()
    for pid in pids:
        with suppress(OSError):  # it has ended
            for entry in Path(f"/proc/{pid}/fd").iterdir():
                with suppress(OSError):
                    held.add(os.readlink(entry))
    ports = set()
    for table in ("tcp", "tcp6"):
        for line in Path("/proc/net", table).read_text().splitlines()[1:]:
            words = line.split()
            if f"socket:[{words[9]}]" in held:
                ports.add(int(words[2].rpartition(":")[2], 16))
    return ports


def kill_session(session: int) -> None:
    """Kill all processes of a session, also those that have left its process group."""
    while True:
        members = []
        for entry in Path("/proc").iterdir():
            with suppress(ValueError, OSError, IndexError):
                state, _, _, own = _stat(int(entry.name))[:4]
                if int(own) == session and state not in "ZX":
                    members.append(int(entry.name))
        if not members:
            return
        for pid in members:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def signal_all(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
