"""What commands print: text for people, or JSON for scripts. Commands say what; an output decides how."""

from __future__ import annotations

import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence, Sized
from dataclasses import asdict
from datetime import datetime, timezone
from typing import Any

from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from spark_wan.cli.launcher import describe
from spark_wan.status.reports import ChannelReport, SiteReport, StreamReport
from spark_wan.topology.model import Table, Topology, stream_name
from spark_wan.units import megabytes

_WIDE = 200
"""Columns when nobody looks: a pipe has no width to wrap at."""


class Output(ABC):
    """One method per thing that a command has to say."""

    @abstractmethod
    def topology(self, topology: Topology) -> None:
        """A valid topology: what goes where."""

    @abstractmethod
    def problems(self, file: str, problems: Sequence[str]) -> None:
        """What is wrong with a topology file."""

    @abstractmethod
    def status(self, channels: Sequence[ChannelReport]) -> None:
        """What the channels tell."""

    @abstractmethod
    def note(self, event: str, **what: Any) -> None:
        """A job has started or stopped."""

    @abstractmethod
    def progress(self, status: Mapping[str, Any]) -> None:
        """A stream of a running job has changed."""

    @abstractmethod
    def error(self, error: Exception) -> None:
        """The command failed."""


class JsonOutput(Output):
    """JSON on standard output: one object per command, or one per line while a job runs."""

    def topology(self, topology: Topology) -> None:
        self._print(
            {
                "valid": True,
                "file": topology.file,
                "sites": [asdict(site) for site in topology.sites.values()],
                "streams": streams_of(topology),
            }
        )

    def problems(self, file: str, problems: Sequence[str]) -> None:
        self._print({"valid": False, "file": file, "problems": list(problems)})

    def status(self, channels: Sequence[ChannelReport]) -> None:
        self._print({"channels": [asdict(channel) for channel in channels]})

    def note(self, event: str, **what: Any) -> None:
        self._print({"event": event, "time": _now(), **what})

    def progress(self, status: Mapping[str, Any]) -> None:
        self.note("progress", **status)

    def error(self, error: Exception) -> None:
        self._print(
            {"event": "error", "time": _now(), "type": type(error).__name__, "message": str(error)}
        )

    def _print(self, content: Mapping[str, Any]) -> None:
        print(json.dumps(content), flush=True)


class TextOutput(Output):
    """Lines and tables for people; errors on standard error."""

    def __init__(self) -> None:
        width = None if sys.stdout.isatty() else _WIDE
        self.console = Console(width=width, highlight=False, soft_wrap=True)

    def topology(self, topology: Topology) -> None:
        streams = streams_of(topology)
        print_ = self.console.print
        parts = {
            "site": topology.sites,
            "sender": topology.senders,
            "table": topology.tables,
            "stream": streams,
        }
        counts = ", ".join(_count(things, name) for name, things in parts.items())
        print_(f"[green]{topology.file} is valid[/]: {counts}")
        for site in topology.sites.values():
            print_(f"\n[bold]{site.name}[/]  priority {site.priority}, state in {site.state}")
            for stream in streams:
                if stream["from"] == site.name:
                    place = "a sink" if stream["source"] == "sink" else stream["at"][site.name]
                    sites = ", ".join(stream["to"])
                    print_(
                        f"  sends     {stream['table']} from {place} to {sites} as {stream['stream']}"
                    )
                if site.name in stream["to"]:
                    print_(
                        f"  receives  {stream['table']} from {stream['from']} into {stream['at'][site.name]}"
                    )
        grid = _grid("stream", "keys", "begins with", "ack policy", "channel")
        for stream in streams:
            keys = ", ".join(stream["keys"]) or "none (inserts only)"
            grid.add_row(
                stream["stream"], keys, stream["start"], stream["ack_policy"], stream["channel"]
            )
        print_()
        print_(grid)

    def problems(self, file: str, problems: Sequence[str]) -> None:
        for problem in problems:
            print(problem)

    def status(self, channels: Sequence[ChannelReport]) -> None:
        for channel in channels:
            self.console.print(f"[bold]{channel.url}[/]")
            if channel.problem:
                self._problem(channel.problem)
                continue
            grid = _grid(
                "stream",
                "published",
                "through version",
                "site",
                "has",
                "backlog",
                "dead letters",
                "",
            )
            for stream in channel.streams:
                for index, site in enumerate(stream.sites):
                    grid.add_row(
                        *(_published(stream) if index == 0 else ("", "", "")),
                        *_site_cells(stream, site),
                    )
            self.console.print(grid)
            for stream in channel.streams:
                if stream.problem:
                    self._problem(f"{stream.stream}: {stream.problem}")
                for site in stream.sites:
                    if site.cause:
                        self._problem(
                            f"{stream.stream}: {site.site} holds it at epoch {site.held_at}: {site.cause}"
                        )
            for path in channel.foreign:
                self._problem(
                    f"{path} is in the channel and not spark_wan's. It is never read; take it away."
                )

    def note(self, event: str, **what: Any) -> None:
        self.console.print(f"[dim]{_clock()}[/] {what['job']} at {what['site']} {event}")

    def progress(self, status: Mapping[str, Any]) -> None:
        held = status["held"] or status.get("remote_holds")
        self.console.print(
            Text.assemble((f"{_clock()} ", "dim"), (describe(status), "red" if held else ""))
        )

    def error(self, error: Exception) -> None:
        print(f"spark-wan: {error}", file=sys.stderr, flush=True)

    def _problem(self, text: str) -> None:
        self.console.print(Text(f"  {text}", style="red"))


def streams_of(topology: Topology) -> list[dict[str, Any]]:
    """All streams of a topology: what goes where."""
    return [
        {
            "stream": stream_name(sender.site, sender.name, table.name),
            "table": table.name,
            "sender": sender.name,
            "from": sender.site,
            "to": [site for site in sender.remotes if site in table.at],
            "keys": list(table.keys),
            "at": dict(table.at),
            "source": table.source,
            "start": _start(table),
            "ack_policy": sender.ack_policy.value,
            "channel": sender.channel,
        }
        for sender in topology.senders.values()
        for table in topology.tables_of(sender.name)
    ]


def _start(table: Table) -> str:
    if table.source == "sink":
        return "its first events"
    return "a snapshot" if table.start.version is None else f"version {table.start.version}"


def _grid(*columns: str) -> Grid:
    grid = Grid(box=None, pad_edge=False, header_style="dim")
    for column in columns:
        grid.add_column(column, overflow="fold")
    return grid


def _count(things: Sized, name: str) -> str:
    return f"{len(things)} {name}{'' if len(things) == 1 else 's'}"


def _published(stream: StreamReport) -> tuple[str, str, str]:
    if stream.epoch == 0:
        return stream.stream, "nothing yet", ""
    return (
        stream.stream,
        f"epoch {stream.epoch}",
        "" if stream.version is None else str(stream.version),
    )


def _site_cells(stream: StreamReport, site: SiteReport) -> tuple[str, str, str, str, Text]:
    epochs = _count(range(site.backlog_epochs), "epoch")
    backlog = f"{epochs}, {megabytes(site.backlog_bytes)}" if site.backlog_epochs else "none"
    if not site.served:
        state = Text("no longer served", "red")
    elif site.held_at is not None:
        state = Text("held", "red")
    elif site.backlog_epochs:
        state = Text("behind", "yellow")
    else:
        state = Text("has all that was sent" if stream.epoch else "", "green")
    return (
        site.site,
        f"epoch {site.acked}" if site.acked else "nothing",
        backlog,
        str(site.dead_letters),
        state,
    )


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")


def _clock() -> str:
    return datetime.now().strftime("%H:%M:%S")
