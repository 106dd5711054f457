"""What ``status`` shows to people: each channel with its streams, below each stream its links::

/data/channel
  newark.east.orders  epoch 15, through version 41, 3.2 s ago
    -> denver   behind by 3 epochs, 1,200 events, 24.6 MB, 5 min
                denver holds it at epoch 13 since 12:03:11 (5 min): the table is missing. …
    -> seattle  up to date
2 links: 1 held, 1 up to date
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from rich.console import Console, ConsoleOptions
from rich.text import Text

from spark_wan.status.reports import ChannelReport, SiteReport, StreamReport
from spark_wan.units import format_bytes, format_duration

STATES = {
    "held": "red",
    "no answer": "red",
    "no longer served": "yellow",
    "behind": "yellow",
    "up to date": "green",
    "nothing sent yet": "dim",
}
"""What a link can be, the worst first, and its color."""
_FINE = ("up to date", "nothing sent yet")
_DEAD_LETTERS = "rows and causes are in ledger/dead_letters in the state"
_DAY = 86_400_000
_NARROWEST = 20
"""Columns that a text gets at least, beside its label."""


@dataclass(frozen=True)
class _Line:
    """``label``, and ``text`` beside it: one line, or several where the text is too long."""

    label: str
    text: Text
    is_fine: bool = False
    """Nothing of the stream that it belongs to needs attention."""

    def broken(self, console: Console, width: int) -> Iterator[Text]:
        """Yield lines of at most ``width`` columns; the text continues below itself."""
        room = max(_NARROWEST, width - len(self.label))
        for n, part in enumerate(self.text.wrap(console, room)):
            part.rstrip()
            yield Text.assemble(" " * len(self.label) if n else self.label, part)


@dataclass
class StatusView:
    """The status, for rich to print.

    In a terminal, long lines are broken. Elsewhere they stay whole, so that they can be searched.
    """

    channels: Sequence[ChannelReport]
    file: str
    """The topology file that the status was read for."""
    now: int
    """When it was read, in milliseconds since 1970 UTC."""
    title: str = ""
    """Of a status that is shown again and again. It comes first, with the summary; and streams that
    need no attention are left out where the terminal is too low for all."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        lines = list(self._lines())
        if not console.is_terminal:
            yield from (Text.assemble(line.label, line.text) for line in lines)
            return
        broken = [list(line.broken(console, options.max_width)) for line in lines]
        if self.title and sum(map(len, broken)) >= options.size.height:
            pairs = zip(lines, broken, strict=True)
            broken = [parts for line, parts in pairs if not line.is_fine]
            broken.insert(1, [Text("Not shown for lack of room: what is up to date.", "dim")])
        for parts in broken:
            yield from parts

    def _lines(self) -> Iterator[_Line]:
        if self.title:
            yield _Line("", Text.assemble((f"{self.title}: ", "dim"), self._summary()))
        for channel in self.channels:
            yield _Line("", Text(channel.url, "bold"))
            if channel.problem:
                yield _Line("  ", Text(channel.problem, "red"))
            for stream in channel.streams if not channel.problem else ():
                yield from self._stream(stream)
            for path in channel.foreign:
                text = f"{path} is in the channel and not spark_wan's. It is never read; remove it."
                yield _Line("  ", Text(text, "yellow"))
        if not self.title:
            yield _Line("", self._summary())

    def _stream(self, stream: StreamReport) -> Iterator[_Line]:
        notes = list(self._stream_notes(stream))
        is_fine = not notes and all(_state(stream, site) in _FINE for site in stream.sites)
        head = Text.assemble(stream.stream, "  ", (self._published(stream), "dim"))
        yield _Line("  ", head, is_fine)
        yield from (_Line("    ", note) for note in notes)
        widest = max((len(site.site) for site in stream.sites), default=0)
        for site in stream.sites:
            state = _state(stream, site)
            text = Text.assemble((_backlog(state, stream, site), STATES[state]))
            path = Text(site.path or "", "dim")
            if path and state in _FINE:
                text.append("  ").append_text(path)
            yield _Line(f"    -> {site.site:{widest}}  ", text, is_fine)
            if path and state not in _FINE:
                yield _Line(" " * (widest + 9), path)
            for note in self._link_notes(stream, site):
                yield _Line(" " * (widest + 9), note, is_fine)

    def _published(self, stream: StreamReport) -> str:
        if stream.epoch == 0:
            return "nothing published yet"
        parts = [f"epoch {stream.epoch}"]
        if stream.version is not None:
            parts.append(f"through version {stream.version}")
        if stream.published_at_ms is not None:
            parts.append(f"{format_duration(self.now - stream.published_at_ms)} ago")
        return ", ".join(parts)

    def _stream_notes(self, stream: StreamReport) -> Iterator[Text]:
        """Yield what is wrong with a stream at its sender."""
        if stream.problem:
            yield Text(stream.problem, "red")
        if stream.sender_problem:
            yield Text(stream.sender_problem, "yellow")
        sender, at = stream.sender, stream.from_site or "its sender"
        if sender is None:
            return
        if sender.held is not None:
            yield Text(f"{at} holds it{self._since(sender.held_since_ms)}: {sender.held}", "red")
        if sender.alert is not None:
            yield Text(sender.alert, "yellow")
        if sender.dead_letters:
            yield Text(
                f"{_count(sender.dead_letters, 'row')} could not be sent"
                f"{self._since(sender.began_ms)}; {_DEAD_LETTERS} of {at}",
                "yellow",
            )
        if sender.duplicates:
            query = sender.duplicates_query
            yield Text(
                f"the keys of {stream.table} are not unique at {at}: "
                f"{_count(sender.duplicates, 'row')} had the key of another"
                f"{self._since(sender.began_ms)}. Of several rows one is sent."
                + (f" This finds them: {query}" if query else ""),
                "yellow",
            )
        if sender.other_settings:
            yield Text(
                f"{at} sends it with other settings than {self.file} has (generation "
                f"{sender.settings_generation} of its settings). Restart the sender with this "
                "file, or read the status with the file that the sender has.",
                "yellow",
            )

    def _link_notes(self, stream: StreamReport, site: SiteReport) -> Iterator[Text]:
        """Yield what is wrong with a link at its receiver."""
        if site.cause is not None:
            at = f" at epoch {site.held_at}" if site.held_at else ""
            since = self._since(site.answered_at_ms)
            yield Text(f"{site.site} holds it{at}{since}: {site.cause}", "red")
        if site.overdue_since_ms is not None:
            never = ", and never before" if site.answered_at_ms is None else ""
            yield Text(
                f"{site.site} has not answered{self._since(site.overdue_since_ms)}{never}. Check "
                f"that a receiver of {site.site} runs, and reads and writes this channel. A large "
                "epoch takes its time.",
                "red",
            )
        if site.dead_letters:
            yield Text(
                f"{_count(site.dead_letters, 'event')} could not be applied; {_DEAD_LETTERS} of "
                f"{site.site}",
                "yellow",
            )

    def _since(self, moment: int | None) -> str:
        """Return since when, as local time, and for how long."""
        if moment is None:
            return ""
        ago = self.now - moment
        form = "%H:%M:%S" if ago < _DAY else "%Y-%m-%d %H:%M"
        clock = datetime.fromtimestamp(moment / 1000).strftime(form)
        return f" since {clock} ({format_duration(ago)})"

    def _summary(self) -> Text:
        """Return how many links there are, and in which state."""
        links = [
            _state(stream, site)
            for channel in self.channels
            if not channel.problem
            for stream in channel.streams
            for site in stream.sites
        ]
        counts = Counter(links)
        parts: list[str | tuple[str, str]] = [_count(len(links), "link")]
        for state, style in STATES.items():
            if counts[state]:
                parts += [", " if len(parts) > 1 else ": ", (f"{counts[state]} {state}", style)]
        unread = sum(channel.problem is not None for channel in self.channels)
        if unread:
            parts += ["; ", (f"{_count(unread, 'channel')} cannot be read", "red")]
        return Text.assemble(*parts)


def _state(stream: StreamReport, site: SiteReport) -> str:
    """Return the state of a link, one of :data:`STATES`."""
    if not site.served:
        return "no longer served"
    if site.cause is not None or (stream.sender is not None and stream.sender.held is not None):
        return "held"
    if site.overdue_since_ms is not None:
        return "no answer"
    if site.backlog_epochs:
        return "behind"
    return "up to date" if stream.epoch else "nothing sent yet"


def _backlog(state: str, stream: StreamReport, site: SiteReport) -> str:
    """Return what a site has not acked, as text."""
    if site.behind_ms is None:
        known = "has all epochs" if stream.epoch else "nothing sent yet"
        return state if state in _FINE else f"{state}; {known}"
    parts = (
        _count(site.backlog_epochs, "epoch"),
        _count(site.backlog_events, "event"),
        format_bytes(site.backlog_bytes),
        format_duration(site.behind_ms),
    )
    behind = f"behind by {', '.join(parts)}"
    return behind if state == "behind" else f"{state}; {behind}"


def _count(number: int, name: str) -> str:
    return f"{number:,} {name}{'' if number == 1 else 's'}"
