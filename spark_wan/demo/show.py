"""What a person sees while the demo runs: a line for what happened, and below it how far each table is."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

_PLAIN_INTERVAL = 5.0
"""Seconds between progress lines where nothing can be drawn over."""


class TableProgress(Protocol):
    """How far one table is, in events."""

    table: str
    written: int
    published: int
    applied: int
    total: int


class Show(Protocol):
    """What the demo tells while it runs."""

    def say(self, text: str, style: str = "") -> None:
        """Something has happened."""

    def tick(self) -> None:
        """Time has passed: called a few times a second."""

    def close(self) -> None: ...


class NoShow:
    """For scripts: nothing but the summary is printed."""

    def say(self, text: str, style: str = "") -> None:
        return None

    def tick(self) -> None:
        return None

    def close(self) -> None:
        return None


class TerminalShow:
    """Drawn with rich on a terminal; plain lines where output goes to a file."""

    def __init__(
        self,
        console: Console,
        progress: Callable[[], list[TableProgress]],
        state: Callable[[], str],
    ) -> None:
        self._console = console
        self._progress = progress
        self._state = state
        self._began = time.monotonic()
        self._plain_at = _PLAIN_INTERVAL
        self._told: list[str] = []
        self._live: Live | None = None
        if console.is_terminal:
            self._live = Live(
                console=console,
                get_renderable=self._draw,
                refresh_per_second=4,
                transient=True,
                redirect_stdout=False,
            )
            self._live.start()

    def say(self, text: str, style: str = "") -> None:
        self._console.print(
            Text.assemble((f"{self._seconds():6.1f} s  ", "dim"), (text, style)),
            soft_wrap=self._live is None,
        )

    def tick(self) -> None:
        if self._live is None and self._seconds() >= self._plain_at:
            self._plain_at = self._seconds() + _PLAIN_INTERVAL
            behind = [
                f"{p.table} {p.applied:,} of {p.written:,}"
                for p in self._progress()
                if p.applied < p.written
            ]
            if behind and behind != self._told:
                self._told = behind
                self.say("at seattle: " + ", ".join(behind), "dim")

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _seconds(self) -> float:
        return time.monotonic() - self._began

    def _draw(self) -> Group:
        grid = Table(box=None, pad_edge=False, header_style="dim")
        grid.add_column("table")
        for name in ("written at newark", "in the channel", "applied at seattle"):
            grid.add_column(name, justify="right", min_width=12)
        grid.add_column("")
        for p in self._progress():
            bar = ProgressBar(total=max(1, p.total), completed=p.applied, width=24)
            grid.add_row(p.table, f"{p.written:,}", f"{p.published:,}", f"{p.applied:,}", bar)
        return Group(Text(), grid, Text(f"{self._seconds():6.1f} s  {self._state()}", "dim"))
