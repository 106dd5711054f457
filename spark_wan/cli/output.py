"""What commands print: text for people, or JSON for scripts."""

from __future__ import annotations

import json
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table as Grid
from rich.text import Text
from rich.tree import Tree

from spark_wan import messages
from spark_wan.apply.adopt import Adoption
from spark_wan.apply.replace import Outcome
from spark_wan.cli.options import Format
from spark_wan.cli.status_view import StatusView, describe_rows
from spark_wan.control.decide import DecisionAnswer, RecordedDecision
from spark_wan.control.ends import StreamEnd
from spark_wan.control.verbs import ControlAnswer, Waiting
from spark_wan.drawing.graph import Graph
from spark_wan.errors import WanError, install_command
from spark_wan.rehearsal.findings import Part, Preflight, Verdict
from spark_wan.runtime.life import Other
from spark_wan.runtime.progress import LONG, Progress
from spark_wan.runtime.standby import GAVE_WAY, STARTED, TOOK_OVER, WAITING, News
from spark_wan.status.check import Problem
from spark_wan.status.reports import ChannelReport
from spark_wan.status.watch import Alert
from spark_wan.sync.backup import Cut
from spark_wan.sync.findings import Comparison, Kind, Repair
from spark_wan.sync.letters import Letter, Replay, Reported
from spark_wan.sync.undone import Action, Undone
from spark_wan.topology.model import Site, Stream, Table, Topology
from spark_wan.topology.routes import Serving, all_streams
from spark_wan.units import format_bytes, format_duration, milliseconds
from spark_wan.version import OUTPUT_VERSION
from spark_wan.wire.certificate import Certificate
from spark_wan.wire.control import CLEAN, PAUSE, STOP

if TYPE_CHECKING:
    from spark_wan.receiver.stream import TableStatus
    from spark_wan.sender.outbound_stream import StreamStatus

ShowEnds = Callable[[Sequence[StreamEnd]], None]
"""Shows how far streams are that were asked to end."""
ShowStatus = Callable[[Sequence[ChannelReport]], None]
"""Shows a status in place of the one before."""

_PIPE_WIDTH = 200
"""Columns where there is no terminal: a pipe has no width to wrap at."""
RENEWAL = 1.0
"""Seconds between two looks of a terminal at the same work."""
_MOST_NAMES = 10
"""Number of tables that a line lists, at most."""


class JsonOutput:
    """JSON on standard output: one object per command, or one per line while a job runs."""

    def valid_topology(self, topology: Topology) -> None:
        self._print(
            {
                "valid": True,
                "file": topology.file,
                "sites": [_site_fields(site) for site in topology.sites.values()],
                "streams": [_stream_fields(stream) for stream in all_streams(topology)],
            }
        )

    def invalid_topology(self, file: str, problems: Sequence[str]) -> None:
        self._print({"valid": False, "file": file, "problems": list(problems)})

    def graph(self, file: str, graph: Graph) -> None:
        self._print(
            {
                "file": file,
                "nodes": [
                    {
                        "site": site,
                        "writes": list(graph.written_at(site)),
                        "drops_duplicates_of": list(graph.repeated_at(site)),
                    }
                    for site in graph.sites
                ],
                "edges": [
                    _edge_fields(stream, site)
                    for streams in graph.streams.values()
                    for stream in streams
                    for site in stream.addressees
                ],
                "links": [
                    {
                        "from": link.sender.site,
                        "to": link.remote,
                        "sender": link.sender.name,
                        "tables": list(link.tables),
                    }
                    for link in graph.links
                ],
            }
        )

    def picture(self, file: Path) -> None:
        self._print({"svg": str(file)})

    def status(self, channels: Sequence[ChannelReport], file: str, counts: bool = False) -> None:
        self._print(_status_fields(channels))

    @contextmanager
    def renewed_status(
        self, file: str, seconds: float, counts: bool = False
    ) -> Iterator[ShowStatus]:
        yield lambda channels: self._event("status", _status_fields(channels))

    def removed(self, stream: str, channels: Sequence[str]) -> None:
        self._print({"removed": stream, "channels": list(channels)})

    def controlled(self, answer: ControlAnswer, capture: bool = False) -> None:
        fields = {"verb": answer.verb, "site": answer.site, "changed": answer.changed}
        fields |= {"generation": answer.generation, "streams": list(answer.streams)}
        if answer.point:
            fields |= {"point": answer.point}
        if answer.unpaused:
            fields |= {"unpaused": list(answer.unpaused)}
        if answer.ends:
            ends = [{**asdict(each), "arrived": each.arrived} for each in answer.ends]
            fields |= {"arrived": answer.arrived, "ends": ends}
        if answer.verb == CLEAN:
            fields |= {"waiting": [asdict(each) for each in answer.waiting]}
        self._print(fields)

    @contextmanager
    def ending(self) -> Iterator[ShowEnds]:
        yield lambda ends: None

    def checked(self, found: Sequence[Problem]) -> None:
        worst = found[0].level.value if found else "ok"
        each = [{**asdict(problem), "level": problem.level.value} for problem in found]
        self._print({"level": worst, "problems": each})

    def alert(self, alert: Alert) -> None:
        problem = {**asdict(alert.problem), "level": alert.problem.level.value}
        self._event("problem-over" if alert.is_over else "problem-found", problem)

    def decided(
        self, recorded: Sequence[DecisionAnswer], withdrawn: Sequence[DecisionAnswer]
    ) -> None:
        self._print(
            {
                "recorded": [asdict(each) for each in recorded],
                "withdrawn": [
                    {"table": each.table, "decision": each.decision, "changed": each.changed}
                    for each in withdrawn
                ],
            }
        )

    def decisions(self, found: Sequence[RecordedDecision]) -> None:
        self._print({"decisions": [asdict(each) for each in found]})

    def letters(self, here: Sequence[Letter], there: Reported) -> None:
        self._print(
            {
                "dead_letters": [_letter_fields(each) for each in here],
                "reported": [_letter_fields(each) for each in there.letters],
                "more": there.more,
                "problems": there.problems,
            }
        )

    def letter(self, found: Sequence[Letter]) -> None:
        self._print({"dead_letters": [_letter_fields(each) for each in found]})

    def replayed(self, done: Sequence[Replay], site: str) -> None:
        fields = [
            {
                "table": each.table,
                "from": each.by.sender.site,
                "stream": each.by.stream,
                "difference": each.difference,
                "dead_letters": each.letters,
            }
            for each in done
        ]
        self._print({"site": site, "copies": fields})

    def discarded(self, found: Sequence[Letter]) -> None:
        self._print({"discarded": [each.letter.event_id for each in found]})

    def copy_requested(self, by: Serving) -> None:
        asked = {"table": by.table.name, "site": by.site, "from": by.sender.site}
        self._print({**asked, "stream": by.stream})

    def copy_cancelled(self, table: str, site: str, was_open: bool) -> None:
        self._print({"table": table, "site": site, "cancelled": was_open})

    def compared(self, found: Sequence[Comparison], repairs: Sequence[Repair]) -> None:
        asked = {each.site: asdict(each) for each in repairs}
        self._print(
            {
                "equal": all(each.is_equal for each in found),
                "sites": [
                    {**asdict(each), "equal": each.is_equal, "repair": asked.get(each.site)}
                    for each in found
                ],
            }
        )

    def preflight(self, found: Preflight) -> None:
        self._print(_preflight_fields(found))

    def undone(self, done: Undone, dry_run: bool) -> None:
        self._print({**asdict(done), "dry_run": dry_run})

    def backup_planned(self, table: str, site: str, place: str, cut: Cut) -> None:
        fields = {"table": table, "site": site, "place": place, "through": cut.vector[3]}
        self._print({**fields, "rows": cut.rows, "written": False})

    def backup_made(self, made: Certificate, place: str) -> None:
        self._print({**_backup_fields(made, made.site, place), "written": True})

    def backup_adopted(self, done: Adoption, site: str, place: str, dry_run: bool) -> None:
        fields = _backup_fields(done.certificate, site, place)
        written = done.outcome is Outcome.WRITTEN and not dry_run
        more = {"dead_letters": done.dead_letters, "stream_begun": done.begun}
        self._print({**fields, "written": written, "known": done.is_known, **more})

    def job_event(
        self, event: str, kind: str, site: str, logs: Mapping[str, str] | None = None
    ) -> None:
        self._event(event, {"job": kind, "site": site, **(logs or {})})

    def standby(self, news: News, kind: str, site: str) -> None:
        fields: dict[str, Any] = {"job": kind, "site": site}
        if news.event != STARTED:
            fields["other"] = None if news.other is None else _other_fields(news.other)
        if news.why:
            fields["why"] = news.why
        self._event(news.event, fields)

    work_interval = LONG
    """Seconds between two reports of the same work."""

    def work_ended(self) -> None:
        """Note that no long work is under way any more. The events of streams say so."""

    def work(self, work: Progress) -> None:
        now = milliseconds()
        rate = work.rate(now)
        more = {"rows_per_s": rate and round(rate), "left_ms": work.left(now)}
        self._event("work", {**asdict(work), **more})

    def sender_progress(self, status: StreamStatus) -> None:
        self._event("progress", asdict(status))

    def receiver_progress(self, status: TableStatus) -> None:
        self._event("progress", asdict(status))

    def error(self, error: Exception) -> None:
        self._event("error", {"type": type(error).__name__, "message": str(error)})

    def _event(self, event: str, fields: Mapping[str, Any]) -> None:
        time = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
        self._print({"event": event, "time": time, **fields})

    def _print(self, content: Mapping[str, Any]) -> None:
        print(json.dumps({"v": OUTPUT_VERSION, **content}), flush=True)


class TextOutput:
    """Lines and tables for people; errors on standard error."""

    def __init__(self, log_format: Format = Format.TEXT) -> None:
        self.log_format = log_format
        width = None if sys.stdout.isatty() else _PIPE_WIDTH
        self.console = Console(width=width, highlight=False, soft_wrap=True)
        self._causes: dict[str, dict[str, tuple[str, str]]] = {}
        """Stream -> what -> the cause as it was printed, and when."""
        self._printed: dict[tuple[type, str], StreamStatus | TableStatus] = {}
        """Kind and stream -> what was printed of it last."""
        self._line = RenewedLine()

    def valid_topology(self, topology: Topology) -> None:
        streams = all_streams(topology)
        parts = {
            "site": topology.sites,
            "sender": topology.senders,
            "table": topology.tables,
            "stream": streams,
        }
        counts = ", ".join(_count(things, name) for name, things in parts.items())
        self.console.print(f"[green]{topology.file} is valid[/]: {counts}")
        for site in topology.sites.values():
            self.console.print(f"\n[bold]{site.name}[/]  state in {site.state}")
            for stream in streams:
                self._stream_at(stream, site.name)
        grid = _grid("stream", "keys", "begins with", "ack policy", "channel")
        for stream in streams:
            sender, keys = stream.sender, ", ".join(stream.table.keys) or "none (inserts only)"
            policy = _ack_policy(stream, topology)
            grid.add_row(stream.name, keys, _start(stream.table), policy, sender.channel)
        self.console.print()
        self.console.print(grid)

    def _stream_at(self, stream: Stream, site: str) -> None:
        table, origin = stream.table, stream.sender.site
        sites = ", ".join(stream.addressees)
        if site == origin and stream.inbound is not None:
            came = f"(written at {stream.origin}, received from {stream.inbound.sender.site})"
            self.console.print(f"  forwards  {table.name} {came} to {sites} as {stream.name}")
        elif site == origin:
            place = "a sink" if table.source == "sink" else table.at[site]
            self.console.print(f"  sends     {table.name} from {place} to {sites} as {stream.name}")
        if site in stream.addressees:
            self.console.print(f"  receives  {table.name} from {origin} into {table.at[site]}")

    def invalid_topology(self, file: str, problems: Sequence[str]) -> None:
        for problem in problems:
            print(problem)

    def graph(self, file: str, graph: Graph) -> None:
        for tables in graph.equal_tables():
            self.console.print(_tree(graph, tables))
            self.console.print()
        grid = _grid("link", "sender", "tables")
        for link in graph.links:
            grid.add_row(str(link), link.sender.name, _some(link.tables) or "none")
        self.console.print(grid)

    def picture(self, file: Path) -> None:
        self.console.print(Text(f"wrote {file}"))

    def status(self, channels: Sequence[ChannelReport], file: str, counts: bool = False) -> None:
        self._print_status(StatusView(channels, file, milliseconds(), counts=counts))

    @contextmanager
    def renewed_status(
        self, file: str, seconds: float, counts: bool = False
    ) -> Iterator[ShowStatus]:
        """Yield what shows a status in place of the one before; below it, without a terminal."""

        def view(channels: Sequence[ChannelReport]) -> StatusView:
            title = f"{_clock()}, every {format_duration(int(seconds * 1000))}"
            return StatusView(channels, file, milliseconds(), title, counts)

        if not self.console.is_terminal:
            yield lambda channels: self._print_status(view(channels))
            return
        with Live(console=self.console, auto_refresh=False) as live:
            yield lambda channels: live.update(view(channels), refresh=True)

    def removed(self, stream: str, channels: Sequence[str]) -> None:
        for channel in channels:
            self.console.print(Text(f"removed {stream} from {channel}"))

    def controlled(self, answer: ControlAnswer, capture: bool = False) -> None:
        if answer.unpaused:
            by = ", ".join(answer.unpaused)
            self.console.print(Text(f"what was paused by {by} goes on"))
        if answer.ends:
            for each in answer.ends:
                self.console.print(Text(describe_end(each), "" if each.arrived else "red"))
            return
        if answer.verb == STOP:
            asked = "" if answer.changed else ", as was asked before"
            for stream in answer.streams:
                self.console.print(Text(f"{stream}: ends with {answer.point}{asked}"))
            return
        if answer.verb == CLEAN:
            for lost in answer.waiting:
                self.console.print(
                    Text(f"dropped, once the sender notices: {describe_waiting(lost)}")
                )
            if not answer.waiting:
                self.console.print(Text("nothing waits"))
            return
        is_pause = answer.verb == PAUSE
        done, before = ("paused", "paused already") if is_pause else ("resumed", "not paused")
        for stream in answer.streams:
            told = f"{stream}: {done if answer.changed else before}"
            self.console.print(Text(told))
        if not is_pause:
            return
        added = (
            "Within half a minute, the sender adds nothing to the channel, either: the source must "
            "keep its history until then"
            if capture
            else "The sender goes on to add to the channel"
        )
        self.console.print(
            Text(
                "What a site has begun to apply, it applies; after that it takes nothing until "
                f"`spark-wan resume`. {added}."
            )
        )

    def checked(self, found: Sequence[Problem]) -> None:
        counts = Counter(each.level.value for each in found)
        told = ", ".join(f"{count} {level}" for level, count in counts.items())
        summary = f"{found[0].level.value.upper()}: {told}" if found else "OK: nothing is wrong"
        self.console.print(Text(summary))
        for each in found:
            self._problem(each.level.value, each)

    def alert(self, alert: Alert) -> None:
        now = datetime.now().strftime("%H:%M:%S")
        what = "over" if alert.is_over else alert.problem.level.value
        self._problem(f"{now} {what}", alert.problem)

    def _problem(self, how: str, problem: Problem) -> None:
        text = " ".join(problem.text.split())  # a line each, for what reads them
        where = problem.stream or problem.channel
        line = Text(f"{how}: {problem.kind}: {where}: {text}")
        self.console.print(line, soft_wrap=True)

    def decided(
        self, recorded: Sequence[DecisionAnswer], withdrawn: Sequence[DecisionAnswer]
    ) -> None:
        for each in recorded:
            told = "recorded" if each.changed else "recorded before"
            if each.early:
                told += "; nothing is held there now, so it counts once something is"
            self.console.print(Text(f"{each.decision}: {told}"))
        if any(each.changed and not each.early for each in recorded):
            self.console.print(Text("The job of the site notices it with its next retry."))
        for each in withdrawn:
            told = "withdrawn" if each.changed else "nothing was decided about it"
            self.console.print(Text(f"{each.decision}: {told}"))

    def decisions(self, found: Sequence[RecordedDecision]) -> None:
        if not found:
            self.console.print(Text("no decisions"))
            return
        grid = Grid("decision", "by", "when", "waited for", box=None, pad_edge=False)
        for each in found:
            when = "" if each.at_ms is None else _moment(each.at_ms)
            waited = "yes" if each.held else "no"
            grid.add_row(*map(Text, (each.decision, each.by or "", when, waited)))
        self.console.print(grid)

    def letters(self, here: Sequence[Letter], there: Reported) -> None:
        if not here and not there.letters:
            self.console.print(Text("no dead letters"))
        if here:
            self._letters(here)
        for site in sorted({each.site for each in there.letters}):
            self.console.print(Text(f"at {site}:"))
            self._letters([each for each in there.letters if each.site == site])
        if there.more:
            self.console.print(
                Text(f"and at least {there.more:,} older ones at the sites: list them there")
            )
        for problem in there.problems:
            self.console.print(Text(problem, "yellow"), soft_wrap=True)

    def _letters(self, found: Sequence[Letter]) -> None:
        grid = Grid("event", "table", "version", "key", "age", "cause", box=None, pad_edge=False)
        grid.columns[0].no_wrap = True
        now = milliseconds()
        for each in found:
            letter = each.letter
            age = "" if letter.at is None else format_duration(now - letter.at)
            done = "" if each.handled is None else f" ({each.handled.what})"
            cells = (letter.event_id, letter.table, str(letter.origin_version), letter.key or "")
            grid.add_row(*map(Text, (*cells, age, letter.cause + done)))
        self.console.print(grid)

    def letter(self, found: Sequence[Letter]) -> None:
        for number, each in enumerate(found):
            if number:
                self.console.print()
            for name, value in _letter_fields(each).items():
                if name == "at_ms" and value is not None:
                    self.console.print(Text(f"at: {_moment(value)}"))
                elif value is not None:
                    text = value if isinstance(value, str) else json.dumps(value, default=str)
                    self.console.print(Text(f"{name}: {text}"), soft_wrap=True)

    def replayed(self, done: Sequence[Replay], site: str) -> None:
        for each in done:
            what = "the rows that differ" if each.difference else "all rows"
            self.console.print(
                Text(
                    f"{site} asks {each.by.sender.site} for {what} of {each.table}, in place of "
                    f"{each.letters} dead {'letter' if each.letters == 1 else 'letters'}. The jobs "
                    "of both have to run."
                )
            )

    def discarded(self, found: Sequence[Letter]) -> None:
        for each in found:
            self.console.print(Text(f"{each.letter.event_id}: discarded"))

    @contextmanager
    def ending(self) -> Iterator[ShowEnds]:
        told = dict[str, str]()

        def show(ends: Sequence[StreamEnd]) -> None:
            """Say what each stream waits for, when that is news."""
            for each in ends:
                if each.waits_for is not None and told.get(each.stream) != each.waits_for:
                    told[each.stream] = each.waits_for
                    self.console.print(Text(f"{each.stream} waits: {each.waits_for}"))

        yield show

    def copy_requested(self, by: Serving) -> None:
        job = "sender" if by.by_writer else "receiver"
        self.console.print(
            Text(
                f"{by.site} asks {by.sender.site} for a copy of {by.table.name}, by the stream "
                f"{by.stream}. The {job} of {by.sender.site} serves it, and the receiver of "
                f"{by.site} takes it: both have to run. Once it is served, `spark-wan status` "
                "shows how far it is."
            )
        )

    def copy_cancelled(self, table: str, site: str, was_open: bool) -> None:
        told = f"{site} no longer asks for a copy of {table}, and takes none that comes."
        self.console.print(Text(told if was_open else f"{site} asks for no copy of {table}."))

    def compared(self, found: Sequence[Comparison], repairs: Sequence[Repair]) -> None:
        for each in found:
            self.console.print(Text(describe_comparison(each), "" if each.is_equal else "red"))
            for line in describe_columns(each):
                self.console.print(Text(f"  {line}"))
            if each.examples:
                self.console.print(_differences(each))
            for note in each.notes:
                self.console.print(Text(f"  {note}."))
        for repair in repairs:
            self.console.print(Text(describe_repair(repair), "red" if repair.problem else ""))

    def preflight(self, found: Preflight) -> None:
        for part in found.parts:
            of_site = f" at {part.site}" if part.site not in (None, part.name) else ""
            place = f": {part.place}" if part.place != part.name else ""
            self._verdict(part.verdict, f"{part.kind} {part.name}{of_site}{place}")
            for each in part.findings:
                self._verdict(each.verdict, f"  {each.check}: {each.text}")
        self.console.print()
        for link in found.links:
            self._verdict(link.verdict, f"{link.stream} -> {link.site}")
        counts = Counter(link.verdict.value for link in found.links)
        told = ", ".join(f"{number} {verdict}" for verdict, number in sorted(counts.items()))
        self.console.print(Text(f"{_count(found.links, 'link')}: {told}"))

    def _verdict(self, verdict: Verdict, text: str) -> None:
        style = {Verdict.FAILED: "red", Verdict.WARNING: "yellow", Verdict.UNKNOWN: "dim"}
        line = Text(f"{verdict.value:<8} {text}", style.get(verdict, ""))
        self.console.print(line, soft_wrap=True)

    def undone(self, done: Undone, dry_run: bool) -> None:
        self.console.print(Text(describe_undone(done, dry_run)))
        if done.examples:
            grid = _grid("key", "row", "")
            for row in done.examples:
                since = "changed again since" if row.changed_since else ""
                grid.add_row(Text(row.key), row.action.value, since)
            self.console.print(grid)

    def backup_planned(self, table: str, site: str, place: str, cut: Cut) -> None:
        self.console.print(
            Text(
                f"would back up {table} at {site} to {place}: {cut.rows:,} rows, version "
                f"{cut.vector[3]} of {cut.vector[0]}. Nothing was written."
            )
        )

    def backup_made(self, made: Certificate, place: str) -> None:
        self.console.print(
            Text(
                f"backed up {made.table} at {made.site} to {place}: {_backup(made)}. Carry all of "
                "it, and adopt it at another site: `spark-wan adopt`."
            )
        )

    def backup_adopted(self, done: Adoption, site: str, place: str, dry_run: bool) -> None:
        made = done.certificate
        table = f"{made.table} at {site}"
        if done.is_known:
            text = f"{table} has this backup already. Nothing was written."
        elif dry_run:
            text = f"{table} would be replaced by {_backup(made)}. Nothing was written."
        else:
            letters = f"; {done.dead_letters:,} became dead letters" if done.dead_letters else ""
            text = (
                f"{table} was replaced by {_backup(made)}{letters}. Its stream goes on behind it."
            )
        if not done.begun:
            text += (
                " The channel has no log of the table's stream yet. It goes on only if its sender "
                f"begins at version {made.through + 1} or before: "
                f"`start: {{version: {made.through + 1}}}`."
            )
        self.console.print(Text(text))

    def job_event(
        self, event: str, kind: str, site: str, logs: Mapping[str, str] | None = None
    ) -> None:
        log = logs.get("spark_log", logs.get("log")) if logs is not None else None
        where = f"; what Spark prints is in {log}" if log else ""
        line = (f"{_clock()} ", "dim"), f"{kind} at {site} {event}{where}"
        self._line.clear()
        self.console.print(Text.assemble(*line))

    def standby(self, news: News, kind: str, site: str) -> None:
        if news.event == STARTED:
            self.job_event(STARTED, kind, site)
            return
        told = {WAITING: "waits", TOOK_OVER: "takes over", GAVE_WAY: "gives way"}[news.event]
        why = news.why
        if news.event == WAITING:
            sign = None if news.other is None else news.other.sign
            since = "" if sign is None else f" since {_moment(sign.began)}"
            why = f"{news.other} runs{since}"
        self._line.clear()
        text = f"{kind} at {site} {told}: {why}"
        self.console.print(Text.assemble((f"{_clock()} ", "dim"), text))

    @property
    def work_interval(self) -> float:
        """Seconds between two reports of the same work."""
        return RENEWAL if self._line.is_possible() else LONG

    def work(self, work: Progress) -> None:
        text = describe_work(work, milliseconds())
        if self._line.is_possible():
            self._line.show(f"{_clock()} {text}")
        else:
            self._progress(text, is_held=False)

    def work_ended(self) -> None:
        self._line.clear()

    def sender_progress(self, status: StreamStatus) -> None:
        if self._says_no_more(status, not_sent=None):
            return
        remote = {f"held by {site}": why for site, why in status.remote_holds.items()}
        told = self._whole_once(status, alert=status.alert, queue_full=status.queue_full, **remote)
        shown = replace(
            status,
            held=told.get("held"),
            alert=told.get("alert"),
            queue_full=told.get("queue_full"),
            remote_holds={site: told[f"held by {site}"] for site in status.remote_holds},
        )
        self._progress(describe_sent(shown), bool(status.held or status.remote_holds))

    def receiver_progress(self, status: TableStatus) -> None:
        if self._says_no_more(status, not_applied=None):
            return
        shown = replace(status, held=self._whole_once(status).get("held"))
        self._progress(describe_applied(shown), bool(status.held))

    def error(self, error: Exception) -> None:
        self._line.clear()
        # Where the log has a JSON object per line, standard error has nothing else.
        is_text = self.log_format is Format.TEXT
        line = f"spark-wan: {error}" if is_text else messages.error_line(error)
        print(line, file=sys.stderr, flush=True)

    def _says_no_more(self, status: StreamStatus | TableStatus, **without: None) -> bool:
        """Whether a line was printed of a stream that differs in these fields at most, or there is
        nothing to print: an apply at this site is news for its receiver, not for its sender."""
        kind = type(status)
        before: Any = self._printed.get((kind, status.stream), kind(status.stream, status.table))
        self._printed[kind, status.stream] = status
        same = bool(replace(cast(Any, status), **without) == replace(before, **without))
        return same and status != before

    def _whole_once(
        self, status: StreamStatus | TableStatus, **others: str | None
    ) -> dict[str, str]:
        """Return the causes of a stream that there are; of one that was printed before, when."""
        causes = {what: why for what, why in {"held": status.held, **others}.items() if why}
        before = self._causes.get(status.stream, {})
        known = {what: why for what, why in causes.items() if before.get(what, ("",))[0] == why}
        self._causes[status.stream] = {
            what: before[what] if what in known else (why, _clock()) for what, why in causes.items()
        }
        return {
            what: f"as printed at {before[what][1]}" if what in known else why
            for what, why in causes.items()
        }

    def _progress(self, text: str, is_held: bool) -> None:
        style = "red" if is_held else ""
        self._line.clear()
        self.console.print(Text.assemble((f"{_clock()} ", "dim"), (text, style)))

    def _print_status(self, view: StatusView) -> None:
        self.console.print(view, soft_wrap=not self.console.is_terminal)


class RenewedLine:
    """The last line of a terminal, on standard error, which is written again and again."""

    def __init__(self) -> None:
        self._is_shown = False

    def is_possible(self) -> bool:
        """Whether people look at it: both streams are a terminal, and no log is written to it."""
        is_terminal = sys.stdout.isatty() and sys.stderr.isatty()
        return is_terminal and not messages.is_on_standard_error()

    def show(self, text: str) -> None:
        """Write the line in place of the one before, as much of it as fits."""
        columns = shutil.get_terminal_size().columns - 1
        shown = "".join(each if each.isprintable() else "?" for each in text)[:columns]
        self._write(f"\r{shown}\x1b[K")
        self._is_shown = True

    def clear(self) -> None:
        """Take the line away, before anything else is printed."""
        if self._is_shown:
            self._write("\r\x1b[K")
            self._is_shown = False

    def _write(self, text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()


Output = JsonOutput | TextOutput
"""One method for each thing that a command prints."""


def open_output(format: Format, log_format: Format = Format.TEXT) -> Output:
    return JsonOutput() if format is Format.JSON else TextOutput(log_format)


@contextmanager
def reporting_errors(
    format: Format, code: int = 1, log_format: Format = Format.TEXT
) -> Iterator[Output]:
    """Yield the output of a command. A WanError, or a machine without Spark, ends the command with
    one message and this exit code. ``log_format``: that of standard error."""
    out = open_output(format, log_format)
    try:
        yield out
    except WanError as error:
        out.error(error)
        raise typer.Exit(code) from None
    except ModuleNotFoundError as error:
        if str(error.name).partition(".")[0] not in ("pyspark", "delta"):
            raise
        out.error(WanError(f"this needs {error.name}: {install_command('spark')}"))
        raise typer.Exit(code) from None


def _preflight_fields(found: Preflight) -> dict[str, Any]:
    def fields(part: Part) -> dict[str, Any]:
        findings = [{**asdict(each), "verdict": each.verdict.value} for each in part.findings]
        return {**asdict(part), "verdict": part.verdict.value, "findings": findings}

    place = {part: number for number, part in enumerate(found.parts)}
    return {
        "verdict": found.verdict.value,
        "links": [
            {
                **{name: getattr(link, name) for name in ("stream", "table", "from_site", "site")},
                "parts": [place[part] for part in link.parts],
                "verdict": link.verdict.value,
            }
            for link in found.links
        ],
        "parts": [fields(part) for part in found.parts],
    }


def _backup_fields(made: Certificate, site: str, place: str) -> dict[str, Any]:
    return {
        "table": made.table,
        "site": site,
        "place": place,
        "backup": made.backup,
        "origin": made.origin,
        "through": made.through,
        "rows": made.rows,
        "bytes": made.bytes,
    }


def _backup(made: Certificate) -> str:
    return (
        f"{made.rows:,} rows, version {made.through} of {made.origin}, {format_bytes(made.bytes)}"
    )


def describe_sent(status: StreamStatus) -> str:
    """Return one line of text for a sender's stream."""
    parts = [] if status.held else ["nothing published yet"]
    if status.published:
        acked = ", ".join(
            f"{site} has applied epoch {epoch}" for site, epoch in sorted(status.acked.items())
        )
        parts = [
            f"published through epoch {status.published}, {status.events:,} events, "
            f"{format_bytes(status.bytes)}",
            acked or "no acks yet",
        ]
    if status.dead_letters:
        parts.append(f"{status.dead_letters:,} dead letters")
    parts += [f"{site} is no longer served" for site in status.not_served]
    parts += [f"held by {site}: {cause}" for site, cause in status.remote_holds.items()]
    if status.queue_full is not None and status.held is None:
        parts.append(f"waits: {status.queue_full}")
    parts += [status.alert] if status.alert is not None else []
    return _line(status.stream, parts, status.held)


def describe_applied(status: TableStatus) -> str:
    """Return one line of text for a receiver's stream."""
    parts = [] if status.held else ["nothing applied yet"]
    if status.applied:
        parts = [f"applied through epoch {status.applied}, {status.events:,} events"]
    if status.forwarded is not None:
        parts.append(f"forwarded through epoch {status.forwarded}")
    if status.duplicates:
        parts.append(f"{status.duplicates:,} duplicates discarded")
    if status.dead_letters:
        parts.append(f"{status.dead_letters:,} dead letters")
    if status.local_commits:
        parts.append(f"{status.local_commits:,} commits by other writers")
    return _line(status.stream, parts, status.held)


def _moment(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")


def _letter_fields(each: Letter) -> dict[str, Any]:
    letter, done = each.letter, each.handled
    return {
        "event_id": letter.event_id,
        "site": each.site or None,
        "side": letter.side,
        "table": letter.table,
        "stream": letter.stream,
        "origin_version": letter.origin_version,
        "operation": letter.operation,
        "key": letter.key,
        "cause": letter.cause,
        "row": letter.row,
        "at_ms": letter.at,
        "handled": None
        if done is None
        # Of what is superseded nobody has noted when.
        else {"what": done.what, "by": done.by, "at_ms": done.at or None, "why": done.why},
    }


def describe_waiting(each: Waiting) -> str:
    """Return a line about what waits for a site."""
    what = f"{each.events:,} events, {format_bytes(each.bytes)}"
    return f"{each.stream} -> {each.site}: epochs {each.first} to {each.last}, {what}"


def describe_end(each: StreamEnd) -> str:
    """Return a line about a stream that was asked to end."""
    if each.waits_for is not None:
        return f"{each.stream}: not all has arrived: {each.waits_for}"
    if not each.epoch:
        return f"{each.stream}: nothing to send"
    if each.version is None:
        return f"{each.stream}: all sites have everything through epoch {each.epoch}"
    return f"{each.stream}: all sites have everything through version {each.version}"


def describe_comparison(found: Comparison) -> str:
    """Return one line of text for a site that was compared."""
    if found.problem is not None:
        return f"{found.site}: not compared: {found.problem}"
    at = f"version {found.origin_version} of {found.table} at {found.origin}"
    share = "" if found.share == 1 else f"{found.share * 100:g}% of the keys, "
    rows = f"{share}{found.target_rows:,} rows"
    if found.is_equal:
        return f"{found.site}: equal to {at}; {rows}"
    counts = ", ".join(
        f"{number:,} {_KINDS[kind]}" for kind, number in found.counts.items() if number
    )
    difference = f"{found.origin_rows:,} there; {counts or 'equal rows, but not equal columns'}"
    return f"{found.site}: DIFFERS from {at}; {rows}, {difference}"


def describe_columns(found: Comparison) -> list[str]:
    """Return what is to say of the columns of a site that was compared."""
    lines = []
    if found.columns:
        counted = (f"{name} ({number:,})" for name, number in found.columns.items())
        lines.append(f"rows that differ, by column: {', '.join(counted)}")
    if found.only_at_origin:
        lines.append(f"columns that only {found.origin} has: {', '.join(found.only_at_origin)}")
    if found.not_compared:
        lines.append(f"columns that cannot be compared: {', '.join(found.not_compared)}")
    return lines


def describe_repair(repair: Repair) -> str:
    """Return one line of text for a repair."""
    if repair.problem is not None:
        return f"{repair.site}: no repair: {repair.problem}"
    what = "changes the rows that differ" if repair.difference else "replaces all rows"
    if repair.dry_run:
        return (
            f"{repair.site}: --repair would ask for a copy of {repair.table}, by the stream "
            f"{repair.stream}, which {what}. Nothing was asked for."
        )
    return (
        f"{repair.site}: asks for a copy of {repair.table}, by the stream {repair.stream}, which "
        f"{what}. Nothing is written yet: the table's sender serves it, and the receiver of "
        f"{repair.site} takes it, so both have to run. Verify again once it is taken."
    )


def describe_undone(done: Undone, dry_run: bool) -> str:
    """Return one line of text for versions that were undone."""
    of = f"{done.versions} of {done.table} at {done.site}"
    if not done.rows:
        return f"nothing to undo: no row is other than it was before {of}. Nothing was written."
    counts = ", ".join(f"{_ACTIONS[action]} {n:,}" for action, n in done.counts.items())
    if dry_run:
        since = f"; {done.changed_since:,} changed again since" if done.changed_since else ""
        refused = ": without --force it is refused" if done.changed_since else ""
        return f"would undo {of}: {counts}{since}{refused}. Nothing was written."
    return f"version {done.version} undoes {of}: {counts}. Senders publish it as any commit."


_ACTIONS = {
    Action.SET_BACK: "rows set back:",
    Action.DELETE: "rows deleted:",
    Action.INSERT: "rows inserted again:",
}
_KINDS = {
    Kind.MISSING: "missing",
    Kind.EXTRA: "too many",
    Kind.DIFFERS: "with other values",
    Kind.REPEATED: "keys that are there more than once",
}


def _differences(found: Comparison) -> Grid:
    grid = _grid("  row", "how it differs", "dead letter")
    for each in found.examples:
        how = {
            Kind.MISSING: f"missing at {found.site}",
            Kind.EXTRA: f"only at {found.site}",
            Kind.DIFFERS: f"differs in {_some(each.columns)}",
            Kind.REPEATED: "more than once",
        }[each.kind]
        if max(each.at_origin, each.at_target) > 1:
            how += f": {each.at_origin:,} at {found.origin}, {each.at_target:,} at {found.site}"
        grid.add_row(Text(f"  {each.row}"), Text(how), Text(each.dead_letter or ""))
    return grid


def describe_work(work: Progress, now: int) -> str:
    """Return one line of text for a capture or an apply that is under way."""
    since = f" for {format_duration(now - work.began_ms)}"
    amount = describe_rows(
        work.rows,
        work.bytes,
        since,
        share=work.share,
        rate=work.rate(now),
        left=work.left(now),
    )
    return f"{work.stream}: {work.work} {amount}"


def _line(stream: str, parts: Sequence[str], held: str | None) -> str:
    return f"{stream}: {'; '.join([*parts, *([f'HELD: {held}'] if held else [])])}"


def _site_fields(site: Site) -> dict[str, Any]:
    """Return the settings of a site. Options of its store may be secrets: their names only."""
    keys = [str(key) for key in site.signing_keys]
    return {**asdict(site), "storage": sorted(site.storage), "signing_keys": keys}


def _stream_fields(stream: Stream) -> dict[str, Any]:
    sender, table = stream.sender, stream.table
    return {
        "stream": stream.name,
        "table": table.name,
        "sender": sender.name,
        "origin": stream.origin,
        "forwards": stream.inbound.name if stream.inbound is not None else None,
        "from": sender.site,
        "to": list(stream.addressees),
        "keys": list(table.keys),
        "at": dict(table.at),
        "source": table.source,
        "start": _start(table),
        "ack_policy": sender.ack_policy.value,
        "channel": sender.channel,
    }


def _other_fields(other: Other) -> dict[str, Any] | None:
    """Return what is known of another job of a standby; None: its sign cannot be read."""
    sign = other.sign
    if sign is None:
        return None
    fields = {"job": sign.job, "host": sign.host, "process": sign.process}
    return {**fields, "began_ms": sign.began, "at_ms": sign.at}


def _edge_fields(stream: Stream, site: str) -> dict[str, Any]:
    return {
        "table": stream.table.name,
        "from": stream.sender.site,
        "to": site,
        "sender": stream.sender.name,
        "stream": stream.name,
        "forwards": stream.inbound.name if stream.inbound is not None else None,
        "way": stream.way(site),
    }


def _tree(graph: Graph, tables: Sequence[Table]) -> Tree:
    """Return the ways of tables that go the same ways, from their writer on."""
    table = tables[0]
    by = " by a sink" if table.source == "sink" else ""
    names = _some([each.name for each in tables])
    tree = Tree(Text.assemble((names, "bold"), f", written at {' and '.join(table.writers)}{by}"))
    for stream in graph.streams[table.name]:
        if stream.inbound is None:
            _grow(tree, graph, stream)
    return tree


def _grow(tree: Tree, graph: Graph, stream: Stream) -> None:
    """Add a stream, and the streams by which its addressees send it on."""
    for site in stream.addressees:
        ways = graph.ways_to(stream.table.name, site)
        note = f"  (gets it by {ways} ways, drops duplicates)" if ways > 1 else ""
        label = Text.assemble((stream.sender.name, "blue"), f" -> {site}", (note, "dim"))
        branch = tree.add(label)
        for forwarded in graph.streams[stream.table.name]:
            if forwarded.inbound is stream and forwarded.sender.site == site:
                _grow(branch, graph, forwarded)


def _some(names: Sequence[str]) -> str:
    """Return names, as many as a line has room for."""
    shown = names if len(names) <= _MOST_NAMES else names[: _MOST_NAMES - 1]
    more = [f"and {len(names) - len(shown)} more"] if len(shown) < len(names) else []
    return ", ".join([*shown, *more])


def _status_fields(channels: Sequence[ChannelReport]) -> dict[str, Any]:
    return {"channels": [asdict(channel) for channel in channels]}


def _ack_policy(stream: Stream, topology: Topology) -> str:
    """Return the ack policy of a stream and whose acks it needs; no commit waits for what a site
    forwards."""
    if stream.inbound is not None:
        return ""
    sender = stream.sender
    return sender.ack_policy.needs(stream.addressees, sender.site, topology.never_primary)


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


def _clock() -> str:
    return datetime.now().strftime("%H:%M:%S")
