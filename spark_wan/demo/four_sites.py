"""The demo with four sites: a site in the middle is killed twice while it forwards."""

from __future__ import annotations

import signal
import time
from dataclasses import dataclass
from pathlib import Path

from spark_wan.channels.registry import open_channel
from spark_wan.demo.display import Display, FourSitesSummary
from spark_wan.demo.flights import Commit
from spark_wan.demo.processes import Job
from spark_wan.demo.run import RESTART_DELAY, Run
from spark_wan.errors import WanError
from spark_wan.log.stream_log import StreamLog
from spark_wan.steps import CRASH_VARIABLE


@dataclass(frozen=True)
class Kill:
    """Where chicago's receiver is killed."""

    step: str
    """The step of forwarding after which it dies, as :mod:`spark_wan.steps` names it."""
    text: str


KILLS = (
    Kill("forward.3:6", "it had copied an epoch's frames to denver and seattle, and no manifest"),
    Kill("forward.4:2", "it had added an epoch's manifest for denver and seattle, and no more"),
)
"""After the fourth table and the second epoch of flights; then in the second epoch after that."""


class FourSites(Run[FourSitesSummary]):
    """newark sends to chicago, whose receiver sends on to denver and seattle."""

    receiving = ("chicago", "denver", "seattle")

    def __init__(self, directory: Path, days: int, display: Display) -> None:
        super().__init__(directory, days, display)
        self.kills = 0
        self._restart_at = 0.0
        self._chicago: Job | None = None

    def run(self) -> FourSitesSummary:
        start = time.monotonic()
        newark = self.make_tables()
        self.display.event(
            "starting `spark-wan send` at newark, `spark-wan receive` at chicago, denver and "
            "seattle, four processes"
        )
        self.start("send", "newark", "sender.log")
        self._start_chicago()
        for site in ("denver", "seattle"):
            self.start("receive", site, f"{site}.log")
        self.wait("four Spark sessions are starting", self.all_started)
        first_commit = time.monotonic()
        for commit in newark.commits():
            self.follow(commit)
        self.tables["flights"].total = self.tables["flights"].written
        self.wait("waiting for the last acks from denver and seattle", self._all_acked)
        seconds = time.monotonic() - first_commit
        self.display.event("chicago, denver and seattle have acked everything")
        self.wait("waiting for newark and chicago to trim their channels", self._trimmed)
        if self.kills < len(KILLS):
            raise WanError("chicago forwarded all before it could be killed. Run the demo again")
        self.display.event("stopping the sender and the receivers (SIGTERM)")
        running = [job for job in self.jobs if not job.killed]
        for job in running:
            job.stop()
        sent = self.sent()
        tables = self.compared()
        return FourSitesSummary(
            equal=not any(table.difference for all_of in tables.values() for table in all_of),
            tables=tables,
            events=sent["events"],
            epochs=sent["epochs"],
            channel_bytes=sent["bytes"],
            kills=self.kills,
            duplicates={
                job.site: sum(stream["duplicates"] for stream in job.progress.values())
                for job in running[1:]
            },
            seconds=round(seconds, 1),
            total_seconds=round(time.monotonic() - start, 1),
            directory=str(self.directory),
        )

    def follow(self, commit: Commit) -> None:
        """Also wait for chicago where the demo calls for it."""
        super().follow(commit)
        last = commit.index == commit.count
        if last and commit.phase in ("scheduled", "actual times"):
            number = 1 if commit.phase == "scheduled" else 2
            self.wait(
                "waiting for chicago to be killed and restarted",
                lambda: (self.kills >= number and self.all_started()) or self._all_acked(),
            )

    def refresh(self) -> None:
        chicago = self._chicago
        if chicago is not None and chicago.process.poll() == -signal.SIGKILL:
            kill = KILLS[self.kills]
            chicago.killed, self._chicago = True, None
            self.kills += 1
            self._restart_at = time.monotonic() + RESTART_DELAY
            self.display.event(f"kill -9: chicago died while it forwarded; {kill.text}", "bold red")
        if self._restart_at and time.monotonic() >= self._restart_at:
            self._restart_at = 0.0
            self._start_chicago()
            self.display.event("chicago is restarted", "bold")
        super().refresh()

    def _start_chicago(self) -> None:
        """Start chicago's receiver, which dies at the next of the kills."""
        hook = {CRASH_VARIABLE: KILLS[self.kills].step} if self.kills < len(KILLS) else {}
        self._chicago = self.start("receive", "chicago", f"chicago-{self.kills + 1}.log", hook)

    def all_started(self) -> bool:
        return self._chicago is not None and super().all_started()

    def _all_acked(self) -> bool:
        """Return whether all that was written is published, forwarded, and acked everywhere."""
        if not self.all_published():
            return False
        streams = self.streams()
        versions: dict[str, set[int | None]] = {}
        for stream in streams:
            versions.setdefault(stream.table, set()).add(stream.version)
        behind = any(site.backlog_epochs for stream in streams for site in stream.sites)
        return not behind and all(len(found) == 1 for found in versions.values())

    def _trimmed(self) -> bool:
        """Return whether no frames are left but those that chicago had copied when it was killed:
        no manifest names them, and they are swept after a day."""
        for sender in self.topology.senders.values():
            channel = open_channel(sender.channel)
            for stream in channel.epochs():
                log = StreamLog(channel, stream)
                named = {frame.path for epoch in log.epochs() for frame in log.read(epoch).frames}
                if any(path in named for path, _ in channel.frames(stream)):
                    return False
        return True
