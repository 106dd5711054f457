"""The demo with two sites: a receiver is killed between a commit and its ack."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from spark_wan.channels.registry import open_channel
from spark_wan.demo.display import Display, TwoSitesSummary
from spark_wan.demo.flights import Commit
from spark_wan.demo.processes import kill_before_ack
from spark_wan.demo.run import RESTART_DELAY, Run
from spark_wan.errors import WanError
from spark_wan.log.stream_log import StreamLog
from spark_wan.topology.model import stream_name


class TwoSites(Run[TwoSitesSummary]):
    """newark sends to seattle. ``jobs``: the sender, the first receiver and, after the kill, the
    second one."""

    receiving = ("seattle",)

    def __init__(self, directory: Path, days: int, display: Display) -> None:
        super().__init__(directory, days, display)
        self.redelivered = 0
        self.already_applied = 0
        self._channel = open_channel(self.topology.sender("east").channel)
        self._closed = threading.Event()
        self._killer = threading.Thread(target=self._kill_and_restart, daemon=True)
        self._failure: BaseException | None = None

    def run(self) -> TwoSitesSummary:
        start = time.monotonic()
        newark = self.make_tables()
        self.display.event(
            "starting `spark-wan send` at newark and `spark-wan receive` at seattle, two processes"
        )
        self.start("send", "newark", "sender.log")
        self.start("receive", "seattle", "receiver-1.log")
        self.wait("two Spark sessions are starting", self.all_started)
        first_commit = time.monotonic()
        for commit in newark.commits():
            self.follow(commit)
        self.tables["flights"].total = self.tables["flights"].written
        self.wait("waiting for the last ack from seattle", self._all_acked)
        seconds = time.monotonic() - first_commit
        self.display.event("seattle has acked everything")
        self.wait("waiting for the sender to trim the channel", self._trimmed)
        if not self._restarted():
            raise WanError(
                "the receiver acked every commit before it could be killed. Run the demo again"
            )
        self.display.event("stopping sender and receiver (SIGTERM)")
        sender, _, receiver = self.jobs
        sender.stop()
        receiver.stop()
        sent = self.sent()
        discarded = sum(stream["duplicates"] for stream in receiver.progress.values())
        if discarded < self.already_applied:
            raise WanError(
                f"{self.already_applied} redelivered events were already in seattle's flights, "
                f"but {discarded} were discarded"
            )
        tables = self.compared()["seattle"]
        return TwoSitesSummary(
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
        self._closed.set()
        if self._killer.ident is not None:
            self._killer.join()
        super().close()

    def follow(self, commit: Commit) -> None:
        """Also wait for the jobs where the demo calls for it."""
        if commit.phase == "scheduled" and commit.index == max(1, commit.count // 3):
            self._killer.start()
        super().follow(commit)
        if commit.table == "weather":
            self.wait("waiting for seattle to apply them", self._all_acked)
        elif commit.phase == "scheduled" and commit.index == commit.count:
            self.wait(
                "waiting for the restarted receiver",
                lambda: self._restarted() or self._all_acked(),
            )

    def refresh(self) -> None:
        if self._failure is not None:
            raise self._failure
        super().refresh()

    def _kill_and_restart(self) -> None:
        """Kill the receiver between a commit to flights and its ack, then start another one."""
        try:
            log = StreamLog(self._channel, stream_name("newark", "east", "flights"))
            table = self.directory / "seattle" / "flights"
            commit = kill_before_ack(
                self.jobs[1], table, log=log, site="seattle", cancelled=self._closed.is_set
            )
            if commit is None:
                return
            self.already_applied = commit.events
            self.redelivered = sum(
                site.backlog_events for stream in self.streams() for site in stream.sites
            )
            self.display.event(
                f"kill -9: the receiver had committed epoch {commit.epoch} of flights and acked "
                f"only epoch {commit.acked}; {self.redelivered:,} events will be redelivered, "
                f"{commit.events:,} of them are in the table",
                "bold red",
            )
            if not self._closed.wait(RESTART_DELAY):
                self.start("receive", "seattle", "receiver-2.log")
                self.display.event("the receiver is restarted", "bold")
        except BaseException as error:
            self._failure = error

    def _restarted(self) -> bool:
        return len(self.jobs) == 3 and self.all_started()

    def _all_acked(self) -> bool:
        """Return whether all that was written is published, and acked by seattle."""
        return self.all_published() and not any(
            site.backlog_epochs for stream in self.streams() for site in stream.sites
        )

    def _trimmed(self) -> bool:
        return not any(self._channel.frames(stream) for stream in self._channel.epochs())
