"""Copies of a table from a site that has one itself: while it serves, the writer is not read."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from spark_wan.capture.ranges import CaptureResult, Part
from spark_wan.capture.source import DeltaSource
from spark_wan.capture.tasks import CapturedTable
from spark_wan.delta.commits import is_same_commit
from spark_wan.delta.sessions import CurrentSession
from spark_wan.errors import SourceUnreadableError, TargetError
from spark_wan.events.columns import column_path, column_paths
from spark_wan.ledger.interfaces import TargetHistory
from spark_wan.ledger.ledger import Ledger
from spark_wan.ledger.origin import doubts
from spark_wan.ledger.store import DeltaLedgerStore
from spark_wan.ledger.tables import LedgerTables
from spark_wan.log.ack_watch import AckWatch
from spark_wan.log.frames import BatchLimits
from spark_wan.log.writer import StreamSettings
from spark_wan.receiver.copied_ids import RecordedEventIds
from spark_wan.runtime.scheduler import Job
from spark_wan.sender.copies import OutboundCopy, copy_settings, outbound_copy
from spark_wan.sender.serve import Cut
from spark_wan.state.decisions import StoredDecisions
from spark_wan.target.delta_table import DeltaTarget
from spark_wan.topology.model import Topology, copied_stream
from spark_wan.topology.routes import Serving, served_by
from spark_wan.topology.signing import sending_trust
from spark_wan.wire.decisions import NEW_LOG
from spark_wan.wire.frame import FrameHeader
from spark_wan.wire.ledger import DeadLetter
from spark_wan.wire.manifest import USER_TABLE_ID
from spark_wan.wire.records import VersionRef


@dataclass
class AppliedTable:
    """A site's own copy of a table, of which it serves copies (see
    :class:`~spark_wan.sender.serve.CopySource`). Its rows must be those of the writer."""

    settings: StreamSettings
    site: str
    ledger: Ledger
    """One that nobody else uses: it is loaded anew for each copy."""
    target: TargetHistory
    source: DeltaSource
    waits: Callable[[], bool]
    """Whether the site needs a copy of the table itself, or waits for one."""
    recorded: RecordedEventIds | None = None
    """The event IDs, if users' queries write the table; None: a sender captures it."""
    new_logs: Callable[[], Collection[str]] = frozenset
    """The logs of user streams that were accepted here without what came before."""
    is_source = False

    def cut(self) -> Cut:
        ledger = self.ledger
        ledger.forget()
        ledger.catch_up(self.target, write=False)
        for doubt in doubts(ledger):
            raise TargetError(f"{self._where} serves no copy: {doubt}")
        if self.waits():
            raise TargetError(f"{self._where} serves no copy: it needs or waits for one itself")
        at = ledger.known_version
        schema = self._travelling(self.source.schema_at(at))
        read = VersionRef(str(ledger.target_id), at, self._identity(at) or "")
        if self.recorded is not None:
            return self._cut_of_users(self.recorded, schema, read)
        vector = ledger.progress.vector
        own = [entry for entry in vector if entry[0] == self.settings.origin]
        if not own:
            raise TargetError(
                f"{self._where} serves no copy: it has nothing of site {self.settings.origin}, "
                "which writes the table"
            )
        _, table_id, _, version = own[-1]
        return Cut(table_id, version, "", schema, vector, read)

    def _cut_of_users(
        self, recorded: RecordedEventIds, schema: Mapping[str, Any], read: VersionRef
    ) -> Cut:
        """Return the cut of a user stream's table: what is in it, its logs say."""
        if accepted := sorted(self.new_logs()):
            raise TargetError(
                f"{self._where} serves no copy: it may lack events that came before log "
                f"{accepted[0]}, which was accepted there ({NEW_LOG})"
            )
        progress, ids = self.ledger.progress, recorded.cut(self.ledger)
        logs = tuple(each for each in progress.logs if copied_stream(each[0]) is None)

        def write_ids(header: FrameHeader) -> CaptureResult:
            with self._another_site_can_serve():
                return recorded.write(ids, header)

        return Cut(USER_TABLE_ID, -1, "", schema, (), read, logs, ids.floor, write_ids)

    def check(self, cut: Cut) -> None:
        read, identity = cut.read, self._identity(cut.read.version)
        if self.target.table_id() != read.table_id or (
            identity and read.identity and not is_same_commit(identity, read.identity)
        ):
            raise TargetError(f"{self._where} serves no copy: it has another table now")

    def amount(self, cut: Cut) -> tuple[int, int | None]:
        with self._another_site_can_serve():
            return self.source.amount(cut.read.version)

    def write(self, cut: Cut, header: FrameHeader, part: Part) -> CaptureResult:
        with self._another_site_can_serve():
            return self.source.rows_at(
                cut.read.version, cut.schema, header, part=part, source_version=cut.version
            )

    def _identity(self, version: int) -> str | None:
        """Return that of the table's commit of a version; None: the history has none."""
        commits = self.target.history(version - 1)
        there = bool(commits) and commits[0].version == version
        return commits[0].identity if there else None

    @contextmanager
    def _another_site_can_serve(self) -> Iterator[None]:
        try:
            yield
        except SourceUnreadableError as error:
            raise TargetError(f"{self._where} serves no copy: {error}") from error

    @property
    def _where(self) -> str:
        return f"{self.settings.table}: site {self.site}"

    def _travelling(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the columns that came from the writer; the table may have others."""
        applied = self.ledger.columns.places
        fields = [entry for entry in schema["fields"] if column_path((entry["name"],)) in applied]
        travelling = {**schema, "fields": fields}
        if not {*column_paths(travelling)} <= applied.keys():
            raise TargetError(
                f"{self._where} serves no copy: a struct has fields of the site's own there"
            )
        return travelling


def served_to(topology: Topology, site: str, channel: str) -> Sequence[Serving]:
    """Return which copies of tables that it has itself a site serves through a channel."""
    return [
        by
        for sender in topology.senders_at(site)
        if sender.channel == channel
        for table in topology.tables.values()
        for by in served_by(topology, table, sender)
        if not by.by_writer
    ]


def peer_copy(
    job: Job,
    topology: Topology,
    watch: AckWatch,
    by: Serving,
    *,
    waits: Callable[[], bool],
    available_now: bool,
) -> OutboundCopy:
    """Return what serves the copies of a table that a site has itself."""
    session, sender, table = CurrentSession(), by.sender, by.table
    site, received = topology.site(sender.site), topology.site(by.site).max_frame_bytes
    tables = LedgerTables(session, site.state)

    def source(location: str, keys: tuple[str, ...]) -> DeltaSource:
        return DeltaSource(
            session,
            CapturedTable(table.name, location, keys, table.letters_allowed),
            channel=watch.channel,
            limits=BatchLimits(
                sender.batch_size,
                sender.batch_bytes,
                sender.max_frame_bytes,
                digests=sending_trust(topology, sender).signer is not None,
                received=f"{received:,} at site {by.site}",
            ),
            record_dead_letters=partial(_refuse_dead_letters, f"{table.name}: site {site.name}"),
            note_duplicates=lambda rows: None,
            storage=site.storage,
        )

    settings, recorded = copy_settings(by), None
    decisions = StoredDecisions(site.state, site.storage)
    if table.source == "sink":
        ids = source(tables.location("event_ids"), ())
        recorded = RecordedEventIds(tables, table.name, settings.origin, ids)
    applied = AppliedTable(
        settings,
        site.name,
        Ledger(site.name, table.name, DeltaLedgerStore(tables)),
        DeltaTarget.at(session, site, table, channel=watch.channel, ledger=tables),
        source(table.location(site.name), table.keys),
        waits,
        recorded,
        lambda: decisions.load(table.name).new_logs,
    )
    return outbound_copy(
        job, topology, watch, by, source=applied, session=session, available_now=available_now
    )


def _refuse_dead_letters(where: str, letters: Sequence[DeadLetter]) -> None:
    raise TargetError(f"{where} serves no copy: rows cannot be sent ({letters[0].cause})")
