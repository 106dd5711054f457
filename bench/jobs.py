"""A sender and a receiver as processes of their own, with many small tables on one channel."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import yaml
from deltalake import DeltaTable, write_deltalake

from spark_wan.channels.registry import open_channel
from spark_wan.log.notes import acks, put_ack
from spark_wan.log.stream_log import StreamLog
from spark_wan.topology.model import stream_name

NEWARK, SEATTLE, SENDER = "newark", "seattle", "east"
SCHEMA = pa.schema([("id", pa.int64()), ("item", pa.string()), ("amount", pa.float64())])


@dataclass(frozen=True)
class ManyTables:
    """So many small tables in a folder, at two sites."""

    place: Path
    number: int

    @property
    def names(self) -> list[str]:
        return [f"t{n:04}" for n in range(self.number)]

    @property
    def topology(self) -> Path:
        return self.place / f"wan-{self.number}.yaml"

    def path(self, name: str, site: str = NEWARK) -> Path:
        return self.place / site / name

    def stream(self, name: str) -> str:
        return stream_name(NEWARK, SENDER, name)

    def write_topology(self, **sender: object) -> None:
        content = {
            "version": 1,
            "sites": {site: {"state": f"./{site}/_wan"} for site in (NEWARK, SEATTLE)},
            "senders": {
                SENDER: {"site": NEWARK, "remotes": [SEATTLE], "channel": "./channel", **sender}
            },
            "tables": {
                name: {
                    "keys": ["id"],
                    "writers": [NEWARK],
                    "senders": [SENDER],
                    "at": {site: f"./{site}/{name}" for site in (NEWARK, SEATTLE)},
                }
                for name in self.names
            },
        }
        self.place.mkdir(parents=True, exist_ok=True)
        self.topology.write_text(yaml.safe_dump(content))

    def make(self) -> None:
        """Make the tables, with one epoch of each published, applied, acked and ledgered.

        The first one is replicated. The others are copies of its files under other names, which
        takes seconds where replicating a thousand tables takes an hour.
        """
        first = ManyTables(self.place, 1)
        first.write_topology()
        [name] = first.names
        self.append(name, range(5))
        for job, site in (("send", NEWARK), ("receive", SEATTLE)):
            run = Process.command(job, site, first.topology, "--available-now")
            subprocess.run(run, check=True, stdout=subprocess.DEVNULL)
        self.write_topology()
        for other in self.names[1:]:
            shutil.copytree(self.path(name), self.path(other))
            shutil.copytree(self.path(name, SEATTLE), self.path(other, SEATTLE))
            for file in self.path(other, SEATTLE).glob("_delta_log/*.json"):
                self._rename(file, name, other)
        self._copy_state(name)

    def _rename(self, file: Path, name: str, other: str) -> None:
        status = file.stat()
        file.write_text(file.read_text().replace(name, other))
        os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
        file.with_name(f".{file.name}.crc").unlink(missing_ok=True)

    def _copy_state(self, name: str) -> None:
        channel = open_channel(str(self.place / "channel"))
        log = StreamLog(channel, self.stream(name))
        newest, [(site, ack)] = log.newest_manifest(), acks(channel, log.stream).items()
        assert newest is not None
        checkpoints = self.place / NEWARK / "_wan" / "checkpoints" / "sender" / SENDER
        checkpoint = (checkpoints / f"{log.stream}.json").read_text()
        marks = DeltaTable(self.place / SEATTLE / "_wan" / "ledger" / "applied")
        rows = marks.to_pyarrow_table().to_pylist()
        copies = []
        for other in self.names[1:]:
            stream = self.stream(other)
            fields = {**newest.__dict__, "stream": stream, "table": other}
            fields = {field: fields[field] for field in newest.__dataclass_fields__}
            StreamLog(channel, stream).append(type(newest)(**fields))
            manifest = StreamLog(channel, stream).newest_manifest()
            assert manifest is not None
            put_ack(channel, stream, site, ack.replace(name.encode(), other.encode()))
            (checkpoints / f"{stream}.json").write_text(checkpoint)
            self._replace_fingerprint(other, newest.fingerprint, manifest.fingerprint)
            for row in rows:
                mark = row["mark"].replace(name, other)
                mark = mark.replace(newest.fingerprint, manifest.fingerprint)
                copies.append({**row, "table": other, "mark": mark})
        if copies:
            table = pa.Table.from_pylist(copies, schema=marks.to_pyarrow_table().schema)
            write_deltalake(marks, table, mode="append")

    def _replace_fingerprint(self, name: str, old: str, new: str) -> None:
        for file in self.path(name, SEATTLE).glob("_delta_log/*.json"):
            self._rename(file, old, new)

    def append(self, name: str, ids: Any) -> None:
        """Commit rows to a source table; the first commit creates it."""
        rows = [{"id": n, "item": f"item {n}", "amount": n / 4} for n in ids]
        write_deltalake(
            self.path(name),
            pa.Table.from_pylist(rows, schema=SCHEMA),
            mode="append",
            configuration={"delta.enableChangeDataFeed": "true"},
        )

    def version(self, name: str, site: str) -> int:
        log = self.path(name, site) / "_delta_log"
        return max((int(file.stem) for file in log.glob("*.json")), default=-1)


@dataclass
class Process:
    """``spark-wan send`` or ``receive`` as a process of its own, with counted requests."""

    job: str
    site: str
    topology: Path
    streams: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The newest progress of each stream."""
    prefix: Sequence[str] = ()
    """Before its command: runs it elsewhere."""

    @staticmethod
    def command(job: str, site: str, topology: Path, *words: str) -> list[str]:
        program = [sys.executable, "-m", "spark_wan.cli"]
        return [
            *program,
            job,
            "--config",
            str(topology),
            "--site",
            site,
            "--output",
            "json",
            *words,
        ]

    def __post_init__(self) -> None:
        self.counts_file = self.topology.with_name(f"{self.job}-counts.json")
        self.counts_file.unlink(missing_ok=True)
        _, _, _, *words = self.command(self.job, self.site, self.topology)
        counted = [sys.executable, "-m", "bench.counted", str(self.counts_file)]
        command = [*self.prefix, *counted, *words]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):
                event = json.loads(line)
                if event["event"] == "progress":
                    self.streams[event["stream"]] = event

    @property
    def counts(self) -> dict[str, int]:
        """The requests so far, by kind."""
        content = json.loads(self.counts_file.read_text())
        del content["pid"]
        return dict(content)

    def family(self) -> list[int]:
        """Return the IDs of the process and its descendants."""
        return family(self.process.pid)

    def cpu_seconds(self) -> float:
        """Return the CPU time of the family so far."""
        return cpu_seconds(self.process.pid)

    def status(self, name: str) -> int:
        """Return the sum over the family of a number in ``/proc/<pid>/status``."""
        total = 0
        for pid in self.family():
            try:
                lines = Path(f"/proc/{pid}/status").read_text().splitlines()
            except OSError:
                continue
            total += sum(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))
        return total

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(60)


def family(process: int) -> list[int]:
    """Return the IDs of a process and its descendants."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
            parents[int(stat.parent.name)] = int(fields[1])
        except OSError:
            continue
    found = {process}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return sorted(found)


def cpu_seconds(process: int) -> float:
    """Return the CPU time of a process and its descendants so far."""
    ticks = 0
    for pid in family(process):
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def wait_for(condition: Callable[[], object], seconds: float, what: str) -> None:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(what)
        time.sleep(0.05)
