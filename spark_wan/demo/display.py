"""Terminal output of the demo: events as lines, progress per table below them, then the result."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from spark_wan.demo.compare import Comparison
from spark_wan.units import format_bytes

_PLAIN_INTERVAL = 5.0
"""Seconds between progress lines when the output is not a terminal."""


@dataclass
class TableProgress:
    """Progress of one table, in events."""

    table: str
    total: int = 0
    written: int = 0
    published: int = 0
    applied: dict[str, int] = field(default_factory=dict)
    """Receiving site -> events."""
    events_through: dict[int, int] = field(default_factory=dict)
    """Epoch -> events published through it, as the sender reported them."""


@dataclass(frozen=True)
class TwoSitesSummary:
    """Result of the demo with two sites. ``seconds``: from newark's first commit to seattle's last
    ack."""

    equal: bool
    tables: list[Comparison]
    events: int
    epochs: int
    batches: int
    channel_bytes: int
    redelivered: int
    """Events without an ack when the receiver was killed."""
    duplicates_discarded: int
    seconds: float
    events_per_second: int
    total_seconds: float
    directory: str


@dataclass(frozen=True)
class FourSitesSummary:
    """Result of the demo with four sites. ``seconds``: from newark's first commit to the last ack
    of all sites."""

    equal: bool
    tables: dict[str, list[Comparison]]
    """Site -> its tables, each compared with newark's."""
    events: int
    epochs: int
    channel_bytes: int
    """What newark sent; chicago sends on as much."""
    kills: int
    duplicates: dict[str, int]
    """Site -> events that came again, since its receiver was started last."""
    seconds: float
    total_seconds: float
    directory: str


@dataclass(frozen=True)
class JoiningSummary:
    """Result of the demo with a site that joins. ``seconds``: from newark's first commit to the
    last ack of both sites."""

    equal: bool
    tables: dict[str, list[Comparison]]
    """Site -> its tables, each compared with newark's."""
    events: int
    epochs: int
    channel_bytes: int
    """Without the copies."""
    copies: dict[str, list[str]]
    """Site -> the tables of which it got a copy."""
    seconds: float
    total_seconds: float
    directory: str


Summary = TwoSitesSummary | JoiningSummary | FourSitesSummary


class Display:
    """Draws with rich on a terminal, and prints plain lines elsewhere. A quiet console is silent.

    ``state`` is the line below the progress bars: what the demo is doing now.
    """

    def __init__(self, console: Console) -> None:
        self.tables: list[TableProgress] = []
        self.state = ""
        self._console = console
        self._start = time.monotonic()
        self._next_plain_line = _PLAIN_INTERVAL
        self._last_behind: list[str] = []
        self._live: Live | None = None
        if console.is_terminal and not console.quiet:
            self._live = Live(
                console=console,
                get_renderable=self._draw,
                refresh_per_second=4,
                transient=True,
                redirect_stdout=False,
            )
            self._live.start()

    def event(self, text: str, style: str = "") -> None:
        """Print what has just happened, with the time."""
        line = Text.assemble((f"{self._seconds():6.1f} s  ", "dim"), (text, style))
        self._console.print(line, soft_wrap=self._live is None)

    def refresh(self) -> None:
        """Print progress from time to time if nothing is drawn. Called several times a second."""
        if self._live is None and self._seconds() >= self._next_plain_line:
            self._next_plain_line = self._seconds() + _PLAIN_INTERVAL
            written = sum(table.written for table in self.tables)
            sites = [site for table in self.tables[:1] for site in table.applied]
            applied = {site: sum(table.applied[site] for table in self.tables) for site in sites}
            behind = [f"{site} {count:,}" for site, count in applied.items() if count < written]
            if behind and behind != self._last_behind:
                self._last_behind = behind
                self.event(f"applied of {written:,} events: {', '.join(behind)}", "dim")

    def close(self) -> None:
        """Stop drawing."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _seconds(self) -> float:
        return time.monotonic() - self._start

    def _draw(self) -> Group:
        grid = Table(box=None, pad_edge=False, header_style="dim")
        grid.add_column("table")
        sites = [site for row in self.tables[:1] for site in row.applied]
        places = ("written at newark", "in the channel", *(f"at {site}" for site in sites))
        for name in places:
            grid.add_column(name, justify="right", min_width=10)
        grid.add_column("")
        for row in self.tables:
            applied = row.applied.values()
            counts = (f"{count:,}" for count in (row.written, row.published, *applied))
            bar = ProgressBar(total=max(1, row.total), completed=min(applied), width=24)
            grid.add_row(row.table, *counts, bar)
        return Group(Text(), grid, Text(f"{self._seconds():6.1f} s  {self.state}", "dim"))

    def print_summary(self, summary: Summary) -> None:
        """Print the comparison of all tables, the figures, and where to look next."""
        print_ = self._console.print
        verdict = "[bold green]Equal.[/]" if summary.equal else "[bold red]NOT equal.[/]"
        if isinstance(summary, TwoSitesSummary):
            where, compared = "at both sites", summary.tables
            figures = _two_sites_figures(summary)
        else:
            where = f"at newark with {', '.join(summary.tables)}"
            compared = [table for tables in summary.tables.values() for table in tables]
            figures = (
                _joining_figures(summary)
                if isinstance(summary, JoiningSummary)
                else _four_sites_figures(summary)
            )
        print_(f"\n{verdict} deltalake compared all rows and columns of every table {where}:")
        for table in _worst(compared):
            mark = "[red]differs[/]" if table.difference else "[green]equal[/]"
            print_(f"  {table.table:<10} {table.rows:>9,} rows  {table.columns:>2} columns  {mark}")
            if table.difference:
                print_(f"      {table.difference}", style="red", markup=False)
        print_()
        for name, text in figures.items():
            print_(f"  [bold]{name:<12}[/] {text}", soft_wrap=True)
        print_("\nWhere to look next")
        places = _places(summary)
        width = max(map(len, places))
        for place, content in places.items():
            print_(f"  {place:<{width}}  [dim]{content}[/]", soft_wrap=True)


def _worst(compared: Sequence[Comparison]) -> list[Comparison]:
    """Return one comparison for each table: one that differs, if any does."""
    found: dict[str, Comparison] = {}
    for table in compared:
        if table.table not in found or table.difference:
            found[table.table] = table
    return list(found.values())


def _four_sites_figures(summary: FourSitesSummary) -> dict[str, str]:
    again = ", ".join(f"{site} {count:,}" for site, count in summary.duplicates.items())
    return {
        "events": f"{summary.events:,} in {summary.epochs:,} epochs",
        "channels": f"{format_bytes(summary.channel_bytes)} from newark to chicago, and the same "
        "frames once more from chicago on, for denver and seattle together",
        "killed": f"chicago, {summary.kills} times while it forwarded",
        "came twice": f"{again} events",
        "time": f"{summary.seconds:.1f} s from the first commit to the last ack, "
        f"{summary.total_seconds:.1f} s in total",
    }


def _joining_figures(summary: JoiningSummary) -> dict[str, str]:
    return {
        "events": f"{summary.events:,} in {summary.epochs:,} epochs",
        "channel": f"{format_bytes(summary.channel_bytes)}, without the copies",
        "copies": "; ".join(f"{site}: {', '.join(all_)}" for site, all_ in summary.copies.items()),
        "time": f"{summary.seconds:.1f} s from the first commit to the last ack, "
        f"{summary.total_seconds:.1f} s in total",
    }


def _two_sites_figures(summary: TwoSitesSummary) -> dict[str, str]:
    size, per_event = summary.channel_bytes, summary.channel_bytes / max(1, summary.events)
    return {
        "events": f"{summary.events:,} in {summary.batches:,} batches, {summary.epochs:,} epochs",
        "channel": f"{format_bytes(size)}, {per_event:.1f} bytes per event",
        "redelivered": f"{summary.redelivered:,} events, not acked when the receiver was killed",
        "duplicates": f"{summary.duplicates_discarded:,} of them discarded: already applied",
        "time": f"{summary.seconds:.1f} s from the first commit to the last ack, "
        f"{summary.total_seconds:.1f} s in total",
        "speed": f"{summary.events_per_second:,} events per second, "
        "including newark's pauses and seattle's restart",
    }


def _places(summary: Summary) -> dict[str, str]:
    directory, four = summary.directory, isinstance(summary, FourSitesSummary)
    channels = f"{directory}/channels" if four else f"{directory}/channel"
    return {
        f"spark-wan status --config {directory}/topology.yaml": "progress of every stream",
        f"spark-wan topology --config {directory}/topology.yaml": "what is sent where",
        f"{directory}/newark, {directory}/seattle": "tables; in _wan, ledgers and checkpoints",
        channels: "log and acks; frames are deleted once every site has acked",
        f"{directory}/logs": "log files of the sender and of the receivers",
    }
