"""A check of links before they start: :func:`preflight`.

>>> found = spark_wan.preflight(spark, topology)
>>> for link in found.links:
...     print(link.stream, link.site, link.verdict.value)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from spark_wan.apply.applier import TableApplier
from spark_wan.backup.tables import UnwrittenLedger
from spark_wan.channels.base import Channel
from spark_wan.channels.registry import open_channel
from spark_wan.delta.errors import ErrorKind, error_text
from spark_wan.delta.log_files import is_local
from spark_wan.delta.sessions import CurrentSession, job_session, lost_session
from spark_wan.delta.tables import load, milliseconds_of, table_exists
from spark_wan.errors import ChannelError, LedgerError, WanError
from spark_wan.ledger.ledger import Ledger
from spark_wan.ledger.tables import LedgerTables
from spark_wan.log.stream_log import StreamLog
from spark_wan.rehearsal.applying import next_of
from spark_wan.rehearsal.findings import (
    CHANNEL,
    SOURCE,
    STATE,
    TARGET,
    Finding,
    LinkCheck,
    Part,
    Preflight,
    Verdict,
    failed,
    ok,
    unknown,
    warning,
    worst,
)
from spark_wan.rehearsal.nowhere import (
    NoChannel,
    NoCheckpoints,
    UnwrittenAck,
    UnwrittenCheckpoints,
    UnwrittenLog,
)
from spark_wan.rehearsal.places import (
    can_be_read,
    check_channel,
    check_state,
    checkpoints_of,
    control_of,
    decisions_of,
    is_begun_place,
)
from spark_wan.rehearsal.scope import Scope
from spark_wan.rehearsal.sending import (
    Captured,
    repeated,
    retention_of,
    start_of,
    wanted_of,
)
from spark_wan.rehearsal.source import RehearsedSender
from spark_wan.rehearsal.target import RehearsedTarget
from spark_wan.sender.publish import Publisher
from spark_wan.status.reports import FAILED, HELD, StreamReport, read_status
from spark_wan.topology.model import Site, Stream, Table, Topology
from spark_wan.topology.routes import all_streams, serving
from spark_wan.topology.signing import receiving_trust, sending_trust
from spark_wan.topology.values import is_path
from spark_wan.units import milliseconds
from spark_wan.wire.control import Control, WantedEnd

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def preflight(
    spark: SparkSession,
    topology: Topology,
    *,
    site: str | None = None,
    senders: Sequence[str] | None = None,
    tables: Sequence[str] | None = None,
    keys: bool = True,
    probe: bool = False,
) -> Preflight:
    """Check links before their jobs start, and return what was found. Changes nothing.

    What would hold a stream is found by the paths of the jobs themselves, whose writes go nowhere.

    Args:
        spark: A session that can read the tables.
        topology: Who sends what to whom.
        site: The site that checks: only its links, and what another site has may be out of reach,
            which is ``unknown``. None: all links, and all must be within reach.
        senders: Only streams of these senders; None: of all.
        tables: Only these tables; None: all.
        keys: Read the rows that are to be sent: whether their keys are unique, and whether they can
            be sent and applied. False: only see that their files can be read.
        probe: Write to the channels, and delete again, their probe files ``wan-writable`` and
            ``wan-clock-…``.

    Raises:
        TopologyError: a name is unknown, or there is no such link.
        SessionLostError: the Spark session has ended.
    """
    scope = Scope(topology, site, senders, tables)
    links = scope.links()  # refuses unknown names
    with job_session(spark) as session:
        return _Checks(session, scope, keys, probe).of(links)


@dataclass
class _Checks:
    """The parts of the links, each checked once."""

    spark: SparkSession
    scope: Scope
    rows: bool
    probe: bool
    _parts: dict[tuple[str, str, str], Part] = field(default_factory=dict)
    _schemas: dict[tuple[str, str], Mapping[str, Any]] = field(default_factory=dict)
    """Table and site -> the columns that the next epoch has, by the site's sender."""

    @property
    def topology(self) -> Topology:
        return self.scope.topology

    def of(self, links: Iterable[tuple[Stream, str]]) -> Preflight:
        return Preflight(tuple(self._link(stream, site) for stream, site in links))

    def _link(self, stream: Stream, site: str) -> LinkCheck:
        sender = stream.sender
        parts = (
            self._state(sender.site),
            self._channel(stream),
            self._source(stream),
            self._state(site),
            self._target(stream.table, site),
        )
        return LinkCheck(stream.name, stream.table.name, sender.site, site, parts)

    def _once(self, kind: str, name: str, site: str, check: Callable[[], Part]) -> Part:
        if (kind, name, site) not in self._parts:
            self._parts[kind, name, site] = check()
        return self._parts[kind, name, site]

    def _state(self, site: str) -> Part:
        tables = [name for name, table in self.topology.tables.items() if site in table.at]
        place = self.topology.site(site)
        is_here = self.scope.is_here(site)
        return self._once(STATE, site, "", lambda: check_state(place, tables, is_here))

    def _channel(self, stream: Stream) -> Part:
        url = stream.sender.channel
        streams = [each.name for each in self._streams if each.sender.channel == url]
        return self._once(
            CHANNEL, url, "", lambda: check_channel(stream.sender, streams, probe=self.probe)
        )

    @cached_property
    def _streams(self) -> list[Stream]:
        return all_streams(self.topology)

    @cached_property
    def _reports(self) -> Mapping[str, StreamReport]:
        """What the jobs have said last, by stream."""
        channels = read_status(self.topology, self.scope.site)
        return {each.stream: each for channel in channels for each in channel.streams}

    def _opened(self, stream: Stream) -> Channel:
        """Return the channel of a stream; one that nobody has begun, or that cannot be read, has
        nothing."""
        sender = stream.sender
        if not is_begun_place(sender.channel) or not can_be_read(self._channel(stream)):
            return NoChannel(sender.channel)
        return open_channel(sender.channel, sender.storage)

    # --- sources

    def _source(self, stream: Stream) -> Part:
        return self._once(SOURCE, stream.name, "", lambda: self._check_source(stream))

    def _check_source(self, stream: Stream) -> Part:
        table, site = stream.table, self.topology.site(stream.sender.site)
        place = table.location(site.name)
        findings = [*wanted_of(stream, self._control(site)[1])]
        if stream.inbound is not None:
            findings = [ok("start", f"{site.name} forwards {stream.inbound.name}"), *findings]
        elif table.source == "sink":
            findings = [ok("start", "the rows come from a query, by its sink"), *findings]
        elif self._is_out_of_sight(place, site.name):
            findings = [_out_of_sight("start", place, site.name), *findings]
        else:
            findings = [*self._captured(stream, site), *findings]
        findings += self._held_by_sender(stream, findings)
        return Part(SOURCE, stream.name, site.name, place, tuple(findings))

    def _captured(self, stream: Stream, site: Site) -> list[Finding]:
        """Rehearse what a sender captures next."""
        table, is_here = stream.table, self.scope.is_here(site.name)
        sender = RehearsedSender(self.spark, self.topology, stream.sender, table)
        channel = self._opened(stream)
        log = UnwrittenLog(channel, stream.name, sending_trust(self.topology, stream.sender))
        captured = Captured()
        source = sender.source(log, captured, rows=self.rows)
        in_log = can_be_read(self._channel(stream))
        checkpoints = checkpoints_of(site, stream.sender.name) if in_log else NoCheckpoints()

        def wanted() -> WantedEnd:
            generation, control = self._control(site)
            return WantedEnd(generation, control.end_of(stream.sender.name, table.name))

        publisher = Publisher(
            sender.settings,
            log,
            source=source,
            checkpoints=UnwrittenCheckpoints(checkpoints),
            clock=milliseconds,
            decisions=lambda: decisions_of(site, table.name),
            wanted=wanted,
            wanted_before=wanted,
        )

        def found() -> list[Finding]:
            begins = start_of(publisher, captured, is_here=is_here)
            if worst(each.verdict for each in begins) is Verdict.FAILED:
                return begins
            if self.rows and table.keys:
                begins.append(repeated(table, source.repeated_keys()))
            retention = retention_of(table.name, source.properties(), milliseconds_of)
            if source.schema is not None:
                self._schemas[table.name, site.name] = source.schema
            return [*begins, retention]

        findings = self._guarded("start", table.name, is_here, found)
        if not in_log:
            text = "judged as if nothing had been sent: the channel cannot be read"
            findings.append(unknown("start", text))
        return findings

    def _held_by_sender(self, stream: Stream, found: Sequence[Finding]) -> list[Finding]:
        """Return why the sender held the stream when it ran last, unless it was found again."""
        report = self._reports.get(stream.name)
        sender = report.sender if report is not None else None
        if sender is None or sender.held is None or sender.held_as not in (HELD, FAILED):
            return []
        if any(sender.held in each.text for each in found):
            return []
        return [warning("hold", f"{stream.name}: the sender held it last: {sender.held}")]

    # --- targets

    def _target(self, table: Table, site: str) -> Part:
        return self._once(TARGET, table.name, site, lambda: self._check_target(table, site))

    def _check_target(self, table: Table, name: str) -> Part:
        site, place = self.topology.site(name), table.location(name)
        is_here = self.scope.is_here(name)
        if self._is_out_of_sight(place, name):
            findings = [_out_of_sight("table", place, name)]
        else:
            findings = self._guarded(
                "table", table.name, is_here, lambda: self._received(table, site)
            )
        return Part(TARGET, table.name, name, place, tuple(findings))

    def _received(self, table: Table, site: Site) -> list[Finding]:
        """Rehearse what a receiver does with the table next."""
        inbound = [
            each
            for each in self._streams
            if each.table.name == table.name and site.name in each.addressees
        ]
        if not self.scope.is_here(site.name) and not is_begun_place(site.state):
            text = (
                f"not judged: the ledger of site {site.name} is not on this machine. Check there."
            )
            return [unknown("table", text)]
        session = CurrentSession(self.spark)
        tables = LedgerTables(session, site.state)
        ledger = Ledger(
            site.name,
            table.name,
            UnwrittenLedger(tables),
            accepts_gap=lambda through: through in decisions_of(site, table.name).read,
        )
        target = RehearsedTarget.at(
            session,
            site,
            table,
            channel=self._opened(inbound[0]),
            ledger=tables,
            known_id=lambda: ledger.target_id,
        )
        target.rows = self.rows
        try:
            begun = ledger.catch_up(target)
        except WanError as error:
            return [self._not_caught_up(error, table, site)]
        applied = ledger.last_apply > 0
        findings = [
            target.place()
            if begun is None
            else ok("table", f"it is there; the newest apply has the number {ledger.last_apply}")
        ]
        if begun is not None and not applied and not target.is_empty():
            findings.append(
                warning(
                    "table",
                    f"{target.name.where}: the table has rows, and no receiver has applied to it. "
                    "What comes is merged into them, and rows that the source does not have stay. "
                    f"Empty it (DELETE FROM {target.sql_name}), or remove it.",
                )
            )
        found = [each for stream in inbound for each in self._inbound(stream, target, ledger)]
        findings += found
        goes_on = all(each.verdict is Verdict.OK for each in found)
        if begun is not None and goes_on and not target.found:
            findings += self._next_columns(target, ledger, table, inbound)
        return [*findings, *target.found, *self._held_by_site(site, inbound, findings)]

    def _not_caught_up(self, error: WanError, table: Table, site: Site) -> Finding:
        is_here = self.scope.is_here(site.name)
        if error.needs is not None and self._asks(table, site):
            return warning("table", f"{error} The site asks for a copy by itself.")
        return failed("table", error, is_here)

    def _asks(self, table: Table, site: Site) -> bool:
        """Whether a site asks for a copy by itself when it needs one."""
        is_manual = (table.sync or site.sync) == "manual"
        return site.auto_init and not is_manual and bool(serving(self.topology, table, site.name))

    def _inbound(self, stream: Stream, target: RehearsedTarget, ledger: Ledger) -> list[Finding]:
        """Rehearse what the receiver does with a stream."""
        if not can_be_read(self._channel(stream)):
            return [unknown("stream", f"{stream.name}: its channel cannot be read")]
        site, table = self.topology.site(target.site), stream.table
        is_here, asks = self.scope.is_here(site.name), self._asks(table, site)
        target.channel = self._opened(stream)
        trust = receiving_trust(self.topology, site.name, stream.sender.channel)
        log = StreamLog(target.channel, stream.name, trust(stream.name))
        applier = TableApplier(
            site.name,
            table.name,
            log=log,
            target=target,
            ledger=ledger,
            max_bytes=site.receive_max_bytes,
            decisions=lambda: decisions_of(site, table.name),
            answer=UnwrittenAck(site.name, log),
            writers=table.writers,
        )
        return self._guarded(
            "stream",
            table.name,
            is_here,
            lambda: [next_of(applier, asks=asks, is_here=is_here)],
        )

    def _next_columns(
        self, target: RehearsedTarget, ledger: Ledger, table: Table, inbound: Sequence[Stream]
    ) -> list[Finding]:
        """Judge what is to come by the table at its writer, as far as that can be seen."""
        if table.source == "sink":
            return []
        for stream in inbound:
            if stream.inbound is None:
                self._source(stream)
        writer = next((each for each in table.writers if (table.name, each) in self._schemas), None)
        is_first = ledger.last_apply == 0
        if writer is None:
            text = "not compared: nothing has come yet, and what is to come cannot be seen"
            return [unknown("columns", text)] if is_first else []
        begins_with_rows = is_first and table.start.version is None
        rows = load(self.spark, table.location(writer)) if begins_with_rows else None

        def found() -> list[Finding]:
            target.take(self._schemas[table.name, writer], table.keys, ledger.columns, rows)
            return []

        return self._guarded("columns", table.name, self.scope.is_here(target.site), found)

    def _held_by_site(
        self, site: Site, inbound: Sequence[Stream], found: Sequence[Finding]
    ) -> list[Finding]:
        """Return why the receiver held streams when it ran last, unless it was found again."""
        known = " ".join(each.text for each in found)
        reports = (self._reports.get(stream.name) for stream in inbound)
        return [
            warning("hold", f"{report.stream}: {site.name} held it last: {each.cause}")
            for report in reports
            if report is not None
            for each in report.sites
            if each.site == site.name and each.held_as in (HELD, FAILED)
            if each.cause and each.cause not in known
        ]

    # --- what they share

    def _control(self, site: Site) -> tuple[int, Control]:
        """Return what is wanted of the streams of a site, and the number of that request; nothing,
        if its state cannot be read."""
        try:
            return control_of(site)
        except (ChannelError, LedgerError):  # the check of the state says so
            return 0, Control()

    def _is_out_of_sight(self, place: str, site: str) -> bool:
        """Whether a table of another site is not to be seen by a name that means something there:
        a path, or a name in a catalog. A URL means the same everywhere."""
        if self.scope.is_here(site) or (is_path(place) and not is_local(place)):
            return False
        try:
            return not table_exists(self.spark, place)
        except Exception as error:
            self._reraise(error)
            return True

    def _guarded(
        self, check: str, table: str, is_here: bool, find: Callable[[], list[Finding]]
    ) -> list[Finding]:
        """Return what was found, or the error that ended it: what would hold a stream."""
        try:
            return find()
        except WanError as error:
            return [failed(check, error, is_here)]
        except Exception as error:
            self._reraise(error)
            text = f"{table}: {error_text(error)}"
            return [failed(check, text) if is_here else unknown(check, text)]

    def _reraise(self, error: Exception) -> None:
        """Raise an error again that says nothing of the table."""
        if (lost := lost_session(self.spark)) is not None:
            raise lost from error
        if ErrorKind.CANCELLED.matches(error):
            raise error


def _out_of_sight(check: str, place: str, site: str) -> Finding:
    return unknown(
        check,
        f"{place} is not on this machine, or not there: the table at site {site} was not looked "
        "at. Check it there.",
    )
