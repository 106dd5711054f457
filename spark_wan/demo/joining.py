"""The demo with a site that joins: it gets copies of the tables, and later another one does."""

from __future__ import annotations

import time
from pathlib import Path

from spark_wan.channels.registry import open_channel
from spark_wan.demo import write_topology
from spark_wan.demo.display import Display, JoiningSummary
from spark_wan.demo.flights import KEYS, Commit
from spark_wan.demo.run import Run
from spark_wan.errors import WanError
from spark_wan.topology.model import copied_stream
from spark_wan.topology.parsing import load_topology


class Joining(Run[JoiningSummary]):
    """newark sends to seattle, and portland joins. ``jobs``: the sender, the receiver of seattle
    and, later, that of portland."""

    receiving = ("seattle", "portland")

    def __init__(self, directory: Path, days: int, display: Display) -> None:
        super().__init__(directory, days, display)
        self._lost = False

    def run(self) -> JoiningSummary:
        start = time.monotonic()
        newark = self.make_tables()
        self.display.event(
            "starting `spark-wan send` at newark and `spark-wan receive` at seattle, two processes"
        )
        self.start("send", "newark", "sender.log")
        self.start("receive", "seattle", "seattle.log")
        self.wait("two Spark sessions are starting", self.all_started)
        first_commit = time.monotonic()
        for commit in newark.commits():
            self.follow(commit)
        self.tables["flights"].total = self.tables["flights"].written
        self.wait("waiting for the last acks from seattle and portland", self._all_acked)
        seconds = time.monotonic() - first_commit
        self.display.event("seattle and portland have acked everything")
        copies = self._copies()
        if copies["seattle"] != ["flights"] or copies["portland"] != sorted(KEYS):
            raise WanError(f"these copies were served, and not those that were needed: {copies}")
        self.display.event("stopping the sender and the receivers (SIGTERM)")
        for job in self.jobs:
            job.stop()
        sent = self.sent()
        tables = self.compared()
        return JoiningSummary(
            equal=not any(table.difference for all_of in tables.values() for table in all_of),
            tables=tables,
            events=sent["events"],
            epochs=sent["epochs"],
            channel_bytes=sent["bytes"],
            copies=copies,
            seconds=round(seconds, 1),
            total_seconds=round(time.monotonic() - start, 1),
            directory=str(self.directory),
        )

    def follow(self, commit: Commit) -> None:
        super().follow(commit)
        half = commit.index == max(1, commit.count // 2)
        if half and commit.phase == "scheduled":
            self._join()
        elif half and commit.phase == "actual times":
            self._lose_flights()

    def _join(self) -> None:
        """Add portland to the topology, and start its receiver. What seattle has acked by then is
        no longer sent to anybody."""
        self.wait("waiting for seattle to ack what is there", self._acked)
        (self.directory / "portland").mkdir()
        write_topology(self.directory, KEYS, 3)
        self.topology = load_topology(self.directory / "topology.yaml")
        self.display.event(
            "portland joins: it is in the topology now, which newark's sender reads again (SIGHUP)",
            "bold",
        )
        self.jobs[0].reload()
        self.start("receive", "portland", "portland.log")

    def _lose_flights(self) -> None:
        """Remove the flights of seattle while nothing is being applied to them."""
        self.wait("waiting for portland to have its copies", self._all_acked)
        (self.directory / "seattle" / "flights").rename(self.directory / "seattle-flights-lost")
        self._lost = True
        self.display.event("the disk with seattle's flights is lost", "bold red")

    def _all_acked(self) -> bool:
        """Return whether all that was written is published and acked by all sites, and no copy is
        on its way."""
        copies = self._copies()
        there = len(copies["portland"]) == len(KEYS) and (not self._lost or copies["seattle"])
        return bool(there) and self._acked()

    def _acked(self) -> bool:
        return self.all_published() and not any(
            site.backlog_epochs for stream in self.streams() for site in stream.sites
        )

    def _copies(self) -> dict[str, list[str]]:
        """Return the tables of which each site got a copy, by the streams in the channel."""
        found: dict[str, list[str]] = {site: [] for site in self.receiving}
        for stream in open_channel(self.topology.sender("east").channel).epochs():
            if (copied := copied_stream(stream)) is not None:
                found[copied[1]].append(copied[0].rpartition(".")[2])
        return {site: sorted(tables) for site, tables in found.items()}
