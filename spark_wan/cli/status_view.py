"""What ``status`` shows to people: each channel with its streams, below each stream its links::

/data/channel
  newark.east.orders  epoch 15, through version 41, 3.2 s ago
    -> denver   held; behind by 3 epochs, 1,200 events, 24.6 MB, 5 min
                denver holds it at epoch 13 since 12:03:11 (5 min): the table is missing. …
    -> seattle  up to date
2 links: 1 held, 1 up to date
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone

from rich.console import Console, ConsoleOptions
from rich.text import Text

from spark_wan.delta.commits import warn_below
from spark_wan.errors import NEW_SITE, RESEND_TO_NEW_SITE
from spark_wan.status.reports import (
    DRAINING,
    FAILED,
    FINISHED,
    HELD,
    LATE,
    NO_ANSWER,
    NOT_SERVED,
    NOTHING_SENT,
    PAUSED,
    RETRYING,
    STARTING,
    STATES,
    STOPPED,
    UNKNOWN,
    UP_TO_DATE,
    ChannelReport,
    EndReport,
    ReceiverReport,
    SenderReport,
    SiteReport,
    StreamReport,
    WorkReport,
    describe_dropped,
    describe_hold,
)
from spark_wan.units import format_bytes, format_duration
from spark_wan.wire.control import AT_TIME, AT_VERSION, NEWEST
from spark_wan.wire.records import is_time

_STYLES = {
    HELD: "red",
    FAILED: "red",
    RETRYING: "yellow",
    STARTING: "yellow",
    PAUSED: "yellow",
    NO_ANSWER: "red",
    UNKNOWN: "red",
    STOPPED: "yellow",
    NOT_SERVED: "yellow",
    DRAINING: "yellow",
    LATE: "yellow",
    FINISHED: "green",
    UP_TO_DATE: "green",
    NOTHING_SENT: "dim",
}
_FINE = (UP_TO_DATE, NOTHING_SENT)
_DEAD_LETTERS = "rows and causes: `spark-wan dead-letters list --site"
_DAY = 86_400_000
_BAR = 20
"""Characters of a bar that shows how far work is."""
_OLD_WORK = 60_000
"""Milliseconds after which the status says when a job has said last how far it is, or what it has
counted."""
_SENDER_COUNTS = {"unchanged": "row", "replays": "write", "elsewhere": "epoch"}
_RECEIVER_COUNTS = {"elsewhere": "epoch"}
"""What is counted, by the field of the JSON: of a sender else commits, of a receiver events."""
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
    counts: bool = False
    """Also what was sent and applied, and what was not, by reason."""

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
        is_fine = not notes and all(site.state in _FINE for site in stream.sites)
        head = Text.assemble(stream.stream, "  ", (self._published(stream), "dim"))
        yield _Line("  ", head, is_fine)
        yield from (_Line("    ", note) for note in notes)
        if self.counts and stream.sender is not None:
            yield _Line(
                "    ", self._sent(stream.sender, stream.from_site or "its sender"), is_fine
            )
        widest = max((len(site.site) for site in stream.sites), default=0)
        for site in stream.sites:
            state = site.state
            text = Text.assemble((_backlog(stream, site), _STYLES[state]))
            path = Text(site.path or "", "dim")
            if path and state in _FINE:
                text.append("  ").append_text(path)
            yield _Line(f"    -> {site.site:{widest}}  ", text, is_fine)
            if path and state not in _FINE:
                yield _Line(" " * (widest + 9), path)
            for note in self._link_notes(stream, site):
                yield _Line(" " * (widest + 9), note, is_fine)
            if self.counts and site.receiver is not None:
                yield _Line(" " * (widest + 9), self._applied(site.receiver, site.site), is_fine)

    def _sent(self, sender: SenderReport, at: str) -> Text:
        """Return what a sender has sent since its start, and what it has not, by reason."""
        of_rows = {"dead_letters": sender.dead_letters, "duplicates": sender.duplicates}
        reasons = [
            *_counted(of_rows, {}, "row"),
            *_counted(asdict(sender.not_sent), _SENDER_COUNTS, "commit"),
        ]
        sent = f"{_count(sender.epochs, 'epoch')}, {_count(sender.events, 'event')}"
        when = self._since(sender.began_ms) + self._as_of(sender.written_ms)
        text = f"{at}{when}: sent {sent}"
        return Text(text + (f"; not sent: {', '.join(reasons)}" if reasons else ""), "dim")

    def _applied(self, receiver: ReceiverReport, site: str) -> Text:
        """Return the same of a receiver."""
        numbers = {"duplicates": receiver.duplicates, "dead_letters": receiver.dead_letters}
        numbers |= asdict(receiver.not_applied)
        reasons = _counted(numbers, _RECEIVER_COUNTS, "event")
        applied = f"{_count(receiver.epochs, 'epoch')}, {_count(receiver.events, 'event')}"
        when = self._since(receiver.began_ms) + self._as_of(receiver.written_ms)
        text = f"{site}{when}: applied {applied}"
        text += f"; not applied: {', '.join(reasons)}" if reasons else ""
        if receiver.local_commits:
            text += f"; {_count(receiver.local_commits, 'commit')} of other writers in its table"
        return Text(text, "dim")

    def _published(self, stream: StreamReport) -> str:
        if stream.epoch == 0:
            return "nothing published yet"
        parts = [f"epoch {stream.epoch}"]
        if stream.version is not None and stream.version >= 0:
            parts.append(f"through version {stream.version}")
        if stream.sender is not None and stream.sender.waiting:
            parts.append(f"{_count(stream.sender.waiting, 'commit')} to come")
        if stream.sender is not None and stream.sender.delayed:
            delay = format_duration(stream.delay_ms)
            parts.append(f"{_count(stream.sender.delayed, 'commit')} delayed until {delay} old")
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
        if stream.paused is not None:
            since = self._since(stream.paused.since_ms or None)
            what = "nothing is added or taken" if stream.paused.capture else "nothing is taken"
            yield Text(
                f"paused by {stream.paused.by}{since}: {what} until `spark-wan resume` at {at}",
                "yellow",
            )
        if stream.ending is not None:
            yield Text(_describe_ending(stream.ending, at), "yellow")
        if sender is None:
            return
        if sender.held is not None and sender.held_as is not None:
            how, since = describe_hold(sender.held_as), self._since(sender.held_since_ms)
            yield Text(f"{at} {how}{since}: {sender.held}", _hold_style(sender.held_as))
        if sender.queue_full is not None and sender.held is None:
            since = self._since(sender.queue_full_since_ms)
            yield Text(f"{at} adds nothing{since}: {sender.queue_full}", "yellow")
        yield from self._history(stream, sender, at)
        if sender.alert is not None:
            yield Text(sender.alert, "yellow")
        if sender.dead_letters:
            yield Text(
                f"{_count(sender.dead_letters, 'row')} could not be sent"
                f"{self._since(sender.began_ms)}; {_DEAD_LETTERS} {at}`",
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
        if sender.work is not None and sender.stopped_ms is None:
            yield Text(f"{at} captures {self._work(sender.work)}", "dim")
        job = "sender" if stream.from_site in ("", stream.origin) else "receiver"
        has_ended = stream.ending is not None and stream.ending.version is not None
        if sender.stopped_ms is not None and not has_ended:
            yield Text(
                f"the {job} of {at} has been stopped{self._since(sender.stopped_ms)}: what there "
                "is to send since then is not known here. Start it again.",
                "yellow",
            )
        elif sender.silent_since_ms is not None:
            yield Text(
                f"the {job} of {at} has said nothing{self._since(sender.silent_since_ms)}. Check "
                "that it runs, and writes to heartbeats/ in this channel.",
                "red",
            )
        elif sender.other_settings:
            yield Text(
                f"{at} sends it with other settings than {self.file} has (generation "
                f"{sender.settings_generation} of its settings). Send SIGHUP to the job there, "
                "which reads the file again, or restart it; or read the status with the file that "
                "it has.",
                "yellow",
            )

    def _history(self, stream: StreamReport, sender: SenderReport, at: str) -> Iterator[Text]:
        """Yield how long the source keeps what is not sent, where nothing is captured or little of
        that time is left."""
        if sender.history_until_ms is None or sender.retention_ms is None:
            return
        left = sender.history_until_ms - self.now
        is_soon = left < warn_below(sender.retention_ms)
        stands_still = (
            sender.held is not None
            or sender.queue_full is not None
            or sender.stopped_ms is not None
            or sender.silent_since_ms is not None
            or (stream.paused is not None and stream.paused.capture)
        )
        if left <= 0:
            what = f"VACUUM and log cleanup at {at} may have taken what is not sent"
            yield Text(
                f"{what}: {stream.table} keeps it for {format_duration(sender.retention_ms)}", "red"
            )
        elif is_soon or stands_still:
            yield Text(
                f"{at} keeps what is not sent for {format_duration(left)} more: then VACUUM and "
                "log cleanup may take it",
                "yellow" if is_soon else "dim",
            )

    def _link_notes(self, stream: StreamReport, site: SiteReport) -> Iterator[Text]:
        """Yield what is wrong with a link at its receiver."""
        if site.cause is not None and site.held_as is not None:
            at = f" at epoch {site.held_at}" if site.held_at else ""
            since = self._since(site.held_since_ms or site.answered_at_ms)
            how, style = describe_hold(site.held_as), _hold_style(site.held_as)
            yield Text(f"{site.site} {how}{at}{since}: {site.cause}", style)
        if site.needs is not None:
            since = self._since(site.needs_since_ms)
            yield Text(f"{site.site} needs a copy of the table{since} ({site.needs})", "red")
        if site.dropped is not None:
            yield Text(describe_dropped(site), "red")
        if site.lacks_before is not None and site.cause is None:
            if site.lacks_before < 0:
                what, advice = "the events before", RESEND_TO_NEW_SITE
            else:
                what, advice = f"what came before version {site.lacks_before}", NEW_SITE
            yield Text(
                f"{site.site} has acked nothing, and does not get {what}. If it lacks that, its "
                f"receiver will hold the stream. {advice}",
                "red",
            )
        receiver = site.receiver
        work = receiver.work if receiver is not None and receiver.stopped_ms is None else None
        if work is not None and site.backlog_epochs:
            yield Text(f"{site.site} applies {self._work(work)}", "dim")
        elif site.applying is not None:
            yield Text(
                f"{site.site} applies epoch {site.applying}{self._since(site.answered_at_ms)}. A "
                "large epoch takes its time; if it takes too long, check its receiver.",
                "dim",
            )
        if receiver is not None and receiver.stopped_ms is not None:
            since = self._since(receiver.stopped_ms)
            yield Text(f"the receiver of {site.site} has been stopped{since}. Start it.", "yellow")
        elif receiver is not None and receiver.silent_since_ms is not None:
            yield Text(
                f"the receiver of {site.site} has said nothing"
                f"{self._since(receiver.silent_since_ms)}. Check that it runs, and writes to "
                "heartbeats/ in this channel.",
                "yellow",
            )
        elif receiver is None and site.connected is False:
            since = self._since(site.seen_ms)
            text = f"no receiver of {site.site} has said anything{since}. Check that it runs."
            yield Text(text, "yellow")
        stopped = receiver is not None and receiver.stopped_ms is not None
        if site.overdue_since_ms is not None and not stopped:
            never = ", and has never sent one" if site.answered_at_ms is None else ""
            yield Text(
                f"{site.site} owes an ack{self._since(site.overdue_since_ms)}{never}. Check that "
                f"a receiver of {site.site} runs, and reads and writes this channel.",
                "red",
            )
        open_letters = site.open_dead_letters
        if site.dead_letters and open_letters != 0:
            of_them = "" if open_letters is None else f", {open_letters:,} of them open"
            yield Text(
                f"{_count(site.dead_letters, 'event')} could not be applied{of_them}; "
                f"{_DEAD_LETTERS} "
                f"{site.site}`",
                "yellow",
            )

    def _work(self, work: WorkReport) -> str:
        """Return what is done, since when, and how far it was at the last record."""
        since, rate = self._since(work.began_ms), work.rows_per_s
        text = describe_rows(
            work.rows, work.bytes, since, share=work.share, rate=rate, left=work.left_ms
        )
        return text + self._as_of(work.written_ms)

    def _as_of(self, written: int) -> str:
        """Return when a job said so, if that was not just now."""
        ago = self.now - written
        return f", as of {format_duration(ago)} ago" if ago > _OLD_WORK else ""

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
            site.state
            for channel in self.channels
            if not channel.problem
            for stream in channel.streams
            for site in stream.sites
        ]
        counts = Counter(links)
        parts: list[str | tuple[str, str]] = [_count(len(links), "link")]
        for state in STATES:
            if counts[state]:
                shown = (f"{counts[state]} {state}", _STYLES[state])
                parts += [", " if len(parts) > 1 else ": ", shown]
        unread = sum(channel.problem is not None for channel in self.channels)
        if unread:
            parts += ["; ", (f"{_count(unread, 'channel')} cannot be read", "red")]
        return Text.assemble(*parts)


def _counted(numbers: Mapping[str, int], what: Mapping[str, str], usual: str) -> list[str]:
    """Return each number that is not 0, behind the field of the JSON that has it."""
    return [
        f"{name} {_count(number, what.get(name, usual))}"
        for name, number in numbers.items()
        if number
    ]


def _hold_style(held_as: str) -> str:
    return "yellow" if held_as == RETRYING else "red"


def _describe_ending(ending: EndReport, at: str) -> str:
    by = f" by {ending.by}" if ending.by else ""
    if ending.version is None:
        if ending.kind == NEWEST:
            return f"drained{by}: what was committed until then is sent, and nothing more"
        at = "at a point that is not known here"
        if ending.kind == AT_VERSION:
            at = f"with version {ending.point}"
        elif ending.kind == AT_TIME and is_time(ending.point):
            moment = datetime.fromtimestamp(ending.point / 1000, timezone.utc)
            at = f"with the last commit until {moment:%Y-%m-%d %H:%M:%S} UTC"
        return f"asked to end{by} {at}: it goes on until that has come"
    until = f"nothing follows until `spark-wan resume` at {at}"
    return f"ended{by} with version {ending.version}: {until}"


def _backlog(stream: StreamReport, site: SiteReport) -> str:
    """Return the state of a link, and what the site has not acked."""
    state = site.state
    if site.behind_ms is None:
        if site.lacks_before is not None:
            known = "lacks what came before"
        else:
            known = "has all epochs" if stream.epoch else "nothing sent yet"
        return state if state in _FINE else f"{state}; {known}"
    parts = (
        _count(site.backlog_epochs, "epoch"),
        _count(site.backlog_events, "event"),
        format_bytes(site.backlog_bytes),
        format_duration(site.behind_ms),
    )
    return f"{state}; behind by {', '.join(parts)}"


def describe_rows(
    rows: int,
    size: int | None,
    since: str,
    *,
    share: float | None,
    rate: float | None,
    left: int | None,
) -> str:
    """Return how much work there is, since when, how far it is and how long the rest takes, in
    milliseconds; None: not known."""
    text = f"{rows:,} rows" + (f" ({format_bytes(size)})" if size is not None else "") + since
    if share is not None and rate is not None:
        done = int(_BAR * share)
        text += f", [{'#' * done}{'-' * (_BAR - done)}] {share:.0%}, {rate:,.0f} rows/s"
    if left is not None:
        text += f", about {format_duration(left)} left"
    return text


def _count(number: int, name: str) -> str:
    return f"{number:,} {name}{'' if number == 1 else 's'}"
