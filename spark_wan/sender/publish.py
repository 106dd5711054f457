"""Publishing a captured table: from its history to the next manifest of its stream.

:meth:`Publisher.round` is the sender's numbered path. A crash between any two steps changes
nothing:

    publish.1  log-read         the newest manifest says how far the stream was published
    publish.2  source-checked   the source is the table, and in the state, that the log knows
    publish.3  range-planned    whole commits, chosen from the history
    publish.4  frames-written   no receiver reads them yet
    publish.5  manifest-added   created if absent: now the epoch exists. If another writer was
                                faster: start over
    publish.6  checkpointed     the sender's checkpoint, which only detects a lost log

Where an operator has asked for an end, an epoch without events ends the stream
(:mod:`spark_wan.sender.ending`). Where what follows cannot be sent, because the history was lost or
the source is another table, an epoch without events goes over it (:meth:`Publisher._resync`): a
site that lacks what is before it asks for a copy.
"""

from __future__ import annotations

import uuid
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile
from typing import Any, Protocol

from spark_wan.capture.ranges import (
    ALL_PARTS,
    CaptureRange,
    CaptureResult,
    Part,
    RangePlanner,
    check_columns_follow,
)
from spark_wan.delta.clock import stamps
from spark_wan.delta.commits import Commit, is_same_commit, record_after
from spark_wan.errors import (
    NEW_SITE,
    SOURCE,
    ChangeError,
    EndMovedError,
    HistoryLostError,
    QueueFullError,
    SourceError,
    TableReplacedError,
    WanError,
)
from spark_wan.events.columns import check_columns, check_keys, fingerprint
from spark_wan.log.lost_logs import LogEnd, NewLog
from spark_wan.log.stream_log import StreamLog
from spark_wan.log.writer import CheckpointStore, LogWriter, StreamSettings
from spark_wan.messages import message_log
from spark_wan.sender.ending import EndPoint
from spark_wan.sender.queue import OutboundQueue, log_dropped
from spark_wan.steps import Steps
from spark_wan.wire.checkpoint import PublishedState
from spark_wan.wire.control import AT_TIME, Ending, WantedEnd
from spark_wan.wire.decisions import NEW_LOG, RESYNC, Decisions
from spark_wan.wire.frame import FrameHeader
from spark_wan.wire.manifest import CAPTURE, EVENTS, SNAPSHOT, Manifest
from spark_wan.wire.records import TableClock
from spark_wan.wire.sender_record import EndRequest, NotSent

logger = message_log(__name__)

QUIET_COMMITS = 100
"""Number of commits without events after which a manifest without frames records them, before the
history can lose them. Fewer are recorded once they are old
(:func:`spark_wan.delta.commits.record_after`)."""

QUIET_PLANNED = "publish.3 quiet-range-planned"
"""The range needs no frames."""
PLANNED = "publish.3 range-planned"
LARGE_PLANNED = "publish.3 large-range-planned"
"""The range is a snapshot, or a commit with more rows than an epoch should have: writing its frames
may take long."""


class SourceTable(Protocol):
    """A table as the publisher sees it. The Spark adapter and the simulation each have one."""

    def table_id(self) -> str:
        """Return the table's ID. Raises SourceError when there is no table."""

    def look(self, version: int) -> object:
        """Return something that stays equal while ``version`` is the newest version, and its commit
        the same one. Cheap. A hint: what is published is decided by the history."""

    def newest(self) -> Commit:
        """Return the newest commit."""

    def history(self, after: int) -> list[Commit]:
        """Return the commits above ``after`` that the history still has, ascending; of thousands
        perhaps only the first. -1: from the beginning."""

    def commit(self, version: int) -> Commit | None:
        """Return a commit of the history, or None when it is no longer there."""

    def log_retention(self) -> int:
        """Return how long the table's log keeps a commit, in milliseconds. May be a day old."""

    def history_retention(self, afresh: bool = False) -> int:
        """Return how long what a commit has changed can be read, in milliseconds: the shorter of
        the retentions of the table's log and of deleted files. May be a day old, unless it is to be
        read ``afresh``."""

    def schema_at(self, version: int) -> Mapping[str, Any]:
        """Return the columns at a version, as Spark's schema JSON."""

    def is_empty_at(self, version: int) -> bool:
        """Whether the table has no rows at a version."""

    def capture(self, planned: CaptureRange, header: FrameHeader) -> CaptureResult:
        """Net the changes of a range and publish their frames. Records rows that cannot be events
        as dead letters."""

    def snapshot(
        self,
        version: int,
        schema: Mapping[str, Any],
        header: FrameHeader,
        part: Part = ALL_PARTS,
    ) -> CaptureResult:
        """Publish the rows of a version, or of a part of it, as ``create`` events of that
        version."""

    def check_feed(self) -> None:
        """Raise ChangeFeedError when the table keeps no change feed now."""

    def amount(self, version: int) -> tuple[int, int | None]:
        """Return the number of rows at a version, and the size of the files of the newest one, in
        bytes; None: not known."""


def commits_after(source: SourceTable, version: int) -> Iterator[Commit]:
    """Yield all commits above a version that the history still has, however many."""
    while commits := source.history(version):
        yield from commits
        version = commits[-1].version


@dataclass(frozen=True)
class CaptureSettings(StreamSettings):
    """What the topology says of a captured stream."""

    start: int | None
    """The version to start at; None: with a snapshot."""
    on_table_operation: str
    max_epoch_rows: int
    delay: int = 0
    """How old a commit is when it is published, at least, in milliseconds."""


@dataclass(frozen=True)
class Glance:
    """How a source looked while ``version`` was its newest version."""

    version: int
    seen: object


@dataclass
class Quiet:
    """What a publisher remembers of its source, so that one look shows that nothing has come. All
    of it is hints."""

    source: SourceTable
    clock: Callable[[], int]
    end: Glance = Glance(-1, None)
    """The source when its history was last read."""
    empty_through: int = -1
    """The commits through this version that are not published have no events."""
    record_at: int | None = None
    """When those get a manifest, by ``clock``; None: there are none."""
    settled: bool = False
    """The last round left nothing to publish. False: it left something, or failed."""
    complete_until: int | None = None
    """What has come since the history was read was committed after this time; None: it was not
    read."""

    def read_through(self, version: int, time: int) -> None:
        """Note that the history was read, through its newest version. ``time``: of that commit, or
        of the reading if there was no new one."""
        self.complete_until = time
        self.end = Glance(version, self.source.look(version))
        # Commits without events may have been replaced by others: the table was restored.
        self.empty_through = min(self.empty_through, version)

    def lasts(self) -> bool:
        """Whether the source looks as it did, and no commits without events must be recorded."""
        now = self.clock()
        due = self.record_at is not None and now >= self.record_at
        lasts = not due and self.source.look(self.end.version) == self.end.seen
        if lasts:
            self.complete_until = now
        return lasts


@dataclass
class Publisher:
    """Extends the log of one captured stream. Its state is hints only: each round reads again what
    it decides by."""

    settings: CaptureSettings
    log: StreamLog
    source: SourceTable
    checkpoints: CheckpointStore
    clock: Callable[[], int]
    """Milliseconds since 1970 UTC."""
    decisions: Callable[[], Decisions] = Decisions
    """Returns the user's recorded decisions about the table. Called only where one is needed."""
    wanted: Callable[[], WantedEnd] = WantedEnd
    """Reads what the operators of the site want of the stream. Raises WanError."""
    wanted_before: Callable[[], WantedEnd] = WantedEnd
    """Returns what they wanted when it was read last, by whomever. Costs no request."""
    queue: OutboundQueue | None = None
    """What limits how much may wait in the channel; None: nothing does."""
    control: int = 0
    """The highest generation of the site's control log that a round has seen, in it or in the
    stream's log."""
    retention: int | None = None
    """How long the source keeps what a commit has changed, in milliseconds, as it was read last;
    None: it was not."""
    gone_over: WanError | None = None
    """Why the last round that planned an epoch went over what cannot be sent; None: it did not."""
    _ended: Manifest | None = None
    """The end of the log, if an operator has ended the stream there."""
    _end: EndPoint | None = None
    """Where the stream is to end; None: it goes on, or has ended."""
    _ended_empty: Ending | None = None
    """The request by which a stream ended that has sent nothing: it has no log to say so."""
    _young: Commit | None = None
    """The lowest commit that is not old enough to be published, by the last round; None: all that
    are known are."""
    _read: tuple[int, Sequence[Commit]] = 0, ()
    """When the history was read last, and what it had above what is published."""
    _published: PublishedState | None = None
    """By the log; or, where a new one begins in place of a lost one, by the checkpoint."""
    _last: Manifest | None = None
    """The newest manifest that a round has seen or added."""
    _cleaned: int = 0
    """The generation of the last request to go on without what waits that a round has looked at."""
    _lost_requests: set[int] = field(default_factory=set)
    """Generations of which it was said that the control log does not know them."""
    _counted: NotSent = field(default_factory=NotSent)
    """What the epochs that were added did not send."""
    _planned: NotSent | None = None
    """The same of the epoch that is to be added; None: it has no commits."""
    _unrecorded: NotSent = field(default_factory=NotSent)
    """The same of the commits behind the newest epoch that have no events."""
    _warned: set[str] = field(default_factory=set)
    """Sites of which it was said that they are new."""
    _before: Glance | None = None
    """Before the first round: the newest version of the checkpoint, and how the source looked."""
    _quiet: Quiet = field(init=False)
    _writer: LogWriter = field(init=False)

    def __post_init__(self) -> None:
        self._quiet = Quiet(self.source, self.clock)
        new_log = NewLog(
            f"run `spark-wan decide {self.settings.table}@{{log}}={NEW_LOG}`",
            lambda lost: lost in self.decisions().new_logs,
        )
        self._writer = LogWriter(
            self.log, self.checkpoints, self.clock, new_log, check=self._check_before_end
        )

    @property
    def waiting(self) -> int:
        """Number of commits that are not published and may have events, by the last round. Behind
        the end of the stream, none; nor those that are :attr:`delayed`."""
        if self.has_ended:
            return 0
        newest = self._quiet.end.version - self.delayed
        if self._end is not None and self._end.end.kind != AT_TIME:
            newest = min(newest, self._end.end.point)
        return max(0, newest - self._known)

    @property
    def delayed(self) -> int:
        """Number of commits that are not old enough to be published, by the last round."""
        if self._young is None or self.has_ended:
            return 0
        return max(0, self._quiet.end.version - self._young.version + 1)

    @property
    def not_sent(self) -> NotSent:
        """What was not sent since this publisher began, by reason."""
        return self._counted + self._unrecorded

    @property
    def unpublished_since(self) -> int | None:
        """When the oldest commit was made that is not published; if none is known, when the source
        was seen to have none. In milliseconds since 1970 UTC; None: not known, or a first snapshot
        is to come, which needs no history."""
        if self._begins_with_snapshot:
            return None
        commits = self._read[1]
        first = bisect_right(commits, self._through, key=lambda each: each.version)
        return commits[first].time if first < len(commits) else self._quiet.complete_until

    def read_retention(self, afresh: bool = False) -> None:
        """Read how long the source keeps its history. It is for reports alone: where it cannot be
        read, what is known stays."""
        try:
            self.retention = self.source.history_retention(afresh)
        except Exception as error:
            logger.debug("%s: its retention cannot be read: %s", self.settings.stream, error)

    @property
    def has_ended(self) -> bool:
        """Whether an operator has ended the stream, as far as is known."""
        wanted = self.wanted_before()
        is_empty = self._ended_empty is not None and wanted.ending == self._ended_empty
        return is_empty or wanted.has_ended(self._ended)

    @property
    def is_to_end(self) -> bool:
        """Whether an operator wants it to end, and it has not, as far as is known."""
        return self.wanted_before().end is not None and not self.has_ended

    @property
    def is_to_clean(self) -> bool:
        """Whether an operator wants it to go on without what waits, as far as is known."""
        return self._last is not None and self._must_clean(self.wanted_before())

    @property
    def may_end(self) -> bool:
        """Whether the next round may end it."""
        return self.is_to_end and self._may_be_at_end(self._through)

    @property
    def asked_to_end(self) -> EndRequest | None:
        """The end of the stream that was asked for, and has come or will; None: none was."""
        ending = self.wanted_before().ending
        if ending is not None and ending.end is not None:
            return EndRequest(ending.by, ending.end.kind, ending.end.point)
        return EndRequest(f"request {self.control}", "") if self.has_ended else None

    def is_queue_full(self) -> bool:
        """Whether too much waits for acks still, by the acks that have come since the last round.
        Raises ChannelError."""
        return self.queue is not None and self.queue.is_full()

    def is_quiet(self) -> bool:
        """Whether a round would find nothing to publish, as far as the source shows at a glance."""
        if self.is_to_clean:
            return False
        if self.is_to_end:
            known = self._end is not None and self._end.ending == self.wanted_before().ending
            if not known or self._may_be_at_end(self._through):
                return False
        return self._quiet.settled and self._has_seen_all() and self._quiet.lasts()

    def _has_seen_all(self) -> bool:
        """Whether nothing is to be published now, by the history as it was read last."""
        young = self._young
        if young is not None and self._known == young.version - 1:
            return not self._is_old_enough(young, self.clock())
        return self._quiet.end.version == self._known

    def _is_old_enough(self, commit: Commit, now: int) -> bool:
        return commit.time + self.settings.delay <= now

    def _may_follow(self, commit: Commit, now: int) -> bool:
        """Whether a commit may be published now: it is old enough, and before the end of the
        stream."""
        is_before = self._end is None or self._end.may_follow(commit)
        return is_before and (not self.settings.delay or self._is_old_enough(commit, now))

    def _note_young(self, history: Sequence[Commit], now: int) -> None:
        """Note which commit of the history is the first that is not old enough."""
        young = (each for each in history if not self._is_old_enough(each, now))
        self._young = next(young, None) if self.settings.delay else None

    def seems_published(self) -> bool:
        """Whether the source has nothing newer than the checkpoint, as far as a glance shows. To be
        asked before the first round, which compares much more."""
        if self._before is None:
            checkpoint = self._writer.checkpoint()
            if checkpoint is None or checkpoint.published is None:
                return False
            through = checkpoint.published.through
            self._before = Glance(through, self.source.look(through))
        return self.source.look(self._before.version) == self._before.seen

    def round(self) -> Steps[Manifest | None]:
        """Publish the next epoch; return None when there is nothing to publish. Raises SourceError,
        SchemaError or LogGapError, each of which holds this stream only."""
        manifest = yield from self._writer.until_appended(self._next)
        self._quiet.settled = self._has_seen_all()
        return manifest

    def _next(self) -> Steps[Manifest | None]:
        quiet, writer = self._quiet, self._writer
        was_settled, quiet.settled = quiet.settled, False
        self._planned = None
        end, wanted = writer.end(), self.wanted_before()
        self._last = end.last
        self._published = self._published_by(end)
        has_ended = self._ends(end.last, wanted)
        if end.last is not None and (dropped := self._to_clean(end.last, wanted)):
            yield QUIET_PLANNED
            writer.check_acks(end)
            return (yield from self._go_on_without(dropped, end, "somebody has asked for it"))
        if has_ended:
            return None
        new_sites = self._new_sites(end.last)
        if end.last is not None:
            self._warn_of(new_sites, end.last)
        yield "publish.1 log-read"
        is_known = was_settled and self._has_seen_all() and quiet.lasts()
        if is_known and not new_sites and self._end is None:
            return None
        self.gone_over = None
        try:
            return (yield from self._publish(end, new_sites))
        except WanError as error:
            self._check_may_resync(error)
            manifest = self._resync(end)
            self.gone_over = error
            logger.error(
                "%s: %s Every site that lacks what came before version %d gets a copy of the table "
                "instead.",
                self.settings.stream,
                error,
                manifest.first_version,
                event="resync",
                stream=self.settings.stream,
                cause=str(error),
            )
        return (yield from self._add(end, manifest, self.clock()))

    def _ends(self, last: Manifest | None, wanted: WantedEnd) -> bool:
        """Take note of where the stream is to end, and return whether it has ended there."""
        before = last.control if last is not None else 0
        self.control = max(wanted.generation, before)
        self._ended = last if wanted.has_ended(last) else None
        ending = wanted.ending
        if self._ended is not None or ending is None or ending.end is None:
            self._end = None
        else:
            self._end = EndPoint.of(ending, self._end, self.source)
        if wanted.generation < before and before not in self._lost_requests:
            self._lost_requests.add(before)
            logger.warning(
                "%s: its log knows request %d of the control log of site %s, which has only %d: it "
                "was lost, or restored to an older state. What was asked for and has not happened "
                "yet is lost.",
                self.settings.stream,
                before,
                self.settings.origin,
                wanted.generation,
                event="requests-lost",
                stream=self.settings.stream,
                what_to_do="To have it, ask again.",
            )
        if self._ended is not None and ending is None:
            logger.warning(
                "%s: it was ended by request %d in the control log of site %s, which is gone: the "
                "log was lost or restored.",
                self.settings.stream,
                before,
                self.settings.origin,
                event="end-without-request",
                stream=self.settings.stream,
                what_to_do="Nothing is sent until somebody runs `spark-wan resume`.",
            )
        return self._ended is not None

    def _publish(self, end: LogEnd, new_sites: set[str]) -> Steps[Manifest | None]:
        """Publish what the source has; return None when there is nothing to publish."""
        table_id = self._check_source()
        yield "publish.2 source-checked"
        if end.replaces_lost and self._begins_with_snapshot:
            # Sites with rows in the table refuse one.
            self._check_end_allows_copies(SourceError(f"{self.settings.table}: its log was lost."))
            return (yield from self._add(end, self._resync(end), self.clock()))
        planned = self._plan()
        ends = planned is None and self._is_at_end()
        if ends and end.last is None:
            assert self._end is not None
            self._ended_empty, ends = self._end.ending, False
        if planned is None and not new_sites and not ends:
            return None
        dropped: Mapping[str, int] = {}
        if planned is not None and not planned.quiet and self.queue is not None:
            try:
                dropped = self.queue.check(end.last)
            except QueueFullError:
                if not new_sites:
                    raise
                planned = None  # what has no events does not wait: the sites are named
        if dropped:
            yield QUIET_PLANNED
            self._writer.check_acks(end)
            return (yield from self._go_on_without(dropped, end, "its queue is full"))
        yield QUIET_PLANNED if planned is None else self._step_of(planned)
        self._writer.check_acks(end)
        began = self.clock()
        manifest = None if planned is None else self._write(end.last, table_id, planned)
        if ends:
            manifest = self._ending_after(end)
        elif manifest is None and end.last is not None and new_sites:
            manifest = self._writer.without_rows(end.last, self.settings, control=self.control)
        added = None if manifest is None else (yield from self._add(end, manifest, began))
        if planned is not None and not planned.quiet:
            self.read_retention()  # a look at the table, for which the epoch need not wait
        return added

    def _to_clean(self, last: Manifest, wanted: WantedEnd) -> Mapping[str, int]:
        """Return the sites without which an operator wants the stream to go on, with the epoch
        through which no trim is to wait for them; empty: none, or none lacks anything."""
        if self.queue is None or not self._must_clean(wanted):
            return {}
        asked: dict[str, int] = {}
        for clean in wanted.cleans:
            for site, epoch in clean.dropped(last).items():
                asked[site] = max(epoch, asked.get(site, 0))
        lacking = self.queue.still_lacking(last, asked)
        if not lacking:
            self._cleaned = max(each.generation for each in wanted.cleans)
        return {**last.dropped, **lacking} if lacking else {}

    def _must_clean(self, wanted: WantedEnd) -> bool:
        """Whether there is a request to go on without what waited that was not looked at yet."""
        return any(each.generation > self._cleaned for each in wanted.cleans)

    def _go_on_without(self, dropped: Mapping[str, int], end: LogEnd, why: str) -> Steps[Manifest]:
        """Append the manifest by which the stream goes on without some sites, or has ended."""
        assert end.last is not None
        ended = self._ended
        manifest = self._writer.without_rows(
            end.last,
            self.settings,
            # An end answers the request that it did: one that came since may be to go on.
            control=ended.control if ended is not None else self.control,
            dropped=dropped,
            end=self._ended is not None,
        )
        added = yield from self._add(end, manifest, self.clock())
        log_dropped(end.last, dropped, why)
        return added

    def _is_at_end(self) -> bool:
        """Whether everything is published that is before the end of the stream, by the history as
        it was planned by."""
        now, following = self._read
        return self._end is not None and self._end.is_reached(self._through, following, now)

    def _may_be_at_end(self, through: int) -> bool:
        return self._end is not None and self._end.may_be_reached(through, self.clock())

    def _check_before_end(self, manifest: Manifest) -> None:
        """Raise EndMovedError where a request that came while frames were written, which may take
        hours, ends the stream before them."""
        ending = self.wanted().ending
        if manifest.end or ending is None or ending.end is None:
            return
        if manifest.last_version == self._through:
            return  # it sends nothing, and may be added though the stream is beyond the end already
        point = EndPoint.of(ending, self._end, self.source)
        commit = self.source.commit(manifest.last_version)
        if commit is None or point.may_follow(commit):
            return
        raise EndMovedError(
            f"{self.settings.stream}: it is to end with {point}, as {ending.by} has asked, before "
            f"version {manifest.last_version}, which was captured meanwhile"
        )

    def _ending_after(self, end: LogEnd) -> Manifest:
        """Return the manifest that ends the stream."""
        assert end.last is not None and self._end is not None
        control = self._end.ending.generation
        return self._writer.without_rows(end.last, self.settings, control=control, end=True)

    def _add(self, end: LogEnd, manifest: Manifest, began: int) -> Steps[Manifest]:
        """Append a manifest whose frames were written after ``began``."""
        yield "publish.4 frames-written"
        manifest = self._writer.append(manifest, began)
        self._quiet.record_at = None
        self._count()
        yield "publish.5 manifest-added"
        self._writer.record(end.checkpoint, manifest)
        self._published, self._last = PublishedState.by(manifest), manifest
        if manifest.end:
            self._ended, self._end = manifest, None
        yield "publish.6 checkpointed"
        return manifest

    def _count(self) -> None:
        """Count what the epoch that was added did not send, unless it has no commits."""
        if self._planned is not None:
            self._counted += self._planned
            self._planned, self._unrecorded = None, NotSent()

    def _check_may_resync(self, error: WanError) -> None:
        """Raise the error again, unless sites are to get copies in place of what cannot be sent.

        A lost history takes nothing from the table: so it needs no decision, which another table
        does, or an older state."""
        known, is_lost = self._published, isinstance(error, HistoryLostError)
        if error.needs != SOURCE or (known is None and not is_lost):
            raise error
        self._check_end_allows_copies(error)
        advice = "Nothing was published yet: set a later `start` in the topology."
        if known is not None:
            decided = self.decisions()
            if known.through in decided.resyncs:
                return
            doubt = self._doubt(known.through, decided) if is_lost else ""
            if doubt is None:
                return
            advice = (
                f"{doubt}To let every site get a copy of the table as it is now, decide: "
                f"`spark-wan decide {self.settings.table}@{known.through}={RESYNC}`."
            )
        error.args = (f"{error} {advice}",)
        raise error

    def _check_end_allows_copies(self, error: WanError) -> None:
        """Raise an error where the stream is to end before what a copy of the table would have."""
        if self._end is not None and self._end.is_fixed:
            error.args = (
                f"{error} The stream is to end before what a copy of the table would have: run "
                "`spark-wan resume` or `drain`, and copies may take the place of what cannot be "
                "sent.",
            )
            raise error

    def _doubt(self, published: int, decided: Decisions) -> str | None:
        """Return why copies in place of a lost history may do harm; None: they do none."""
        for commit in commits_after(self.source, published):
            action = decided.operations.get(commit.version, self.settings.on_table_operation)
            if commit.operation_to_send is not None and action == "hold":
                return f"Version {commit.version} is a {commit.operation_to_send}. "
        if self.source.is_empty_at(self.source.newest().version):
            return "The table is empty now. "
        return None

    def _resync(self, end: LogEnd) -> Manifest:
        """Return the manifest that goes over everything through the source's newest version, and
        carries nothing. Whoever lacks anything before it sees a gap."""
        known, settings = self._published, self.settings
        table_id, commit = self.source.table_id(), self.source.newest()
        self._check_is_above(table_id, commit)
        self.source.check_feed()
        schema = self.source.schema_at(commit.version)
        self._check_columns(schema)
        self._writer.check_acks(end)
        self._quiet.read_through(commit.version, commit.time)
        self._planned = NotSent(by_copy=max(0, commit.version - self._through))
        if self._end is not None:
            self._end = self._end.moved_to(commit.version)
        clock = self._clock_before(commit)
        if known is None or not is_same_commit(commit.identity, known.identity):
            clock = stamps([commit], clock).clock
        return self._writer.following(
            end.last,
            settings,
            kind=CAPTURE,
            table_id=table_id,
            schema=schema,
            first_version=commit.version + 1,
            last_version=commit.version,
            start=False,
            commits=(),
            identity=commit.identity,
            frames=(),
            disjoint=True,
            clock=clock,
            control=self.control,
        )

    def _check_is_above(self, table_id: str, commit: Commit) -> None:
        """Check that sites see a gap: what they have of the table is told by its versions."""
        known = self._published
        if known is None or known.table_id != table_id or commit.version > known.through:
            return
        if commit.version == known.through and is_same_commit(commit.identity, known.identity):
            return  # the sites have all of it: only the keys are other ones
        raise TableReplacedError(
            f"{self.settings.table}: the table was restored to an older state, and its newest "
            f"version is {commit.version}: sites that have version {known.through} of before would "
            "take what comes for known. Put a new table with its rows in its place (CREATE TABLE … "
            "AS SELECT, with a change feed), or go on writing to it: above version "
            f"{known.through}, every site gets a copy, as was decided."
        )

    def _published_by(self, end: LogEnd) -> PublishedState | None:
        """Return what the log has published; or, where a new one begins in place of a lost one,
        what the checkpoint says. Raises SourceError."""
        last, checkpoint = end.last, end.checkpoint
        if last is not None and last.kind == EVENTS:
            raise SourceError(
                f"{self.settings.table}: the stream carries events that a sink writes, so nothing "
                "is captured from a table. Set `source: sink` for it in the topology; or, to "
                "capture the table from now on, give it another name there."
            )
        if last is not None:
            return PublishedState.by(last)
        return checkpoint.published if checkpoint is not None else None

    def _new_sites(self, last: Manifest | None) -> set[str]:
        """Return the sites that the log does not name yet."""
        return {*self.settings.addressees} - {*last.addressees} if last is not None else set()

    def _warn_of(self, new_sites: set[str], last: Manifest) -> None:
        """Say, before anything is sent to a new site, that it lacks what was sent before."""
        new = sorted(new_sites - self._warned)
        self._warned.update(new)
        acks = self.log.acks() if new else {}
        new = [
            site for site in new if site not in acks or not acks[site].has(last.log_id, last.epoch)
        ]
        if new:
            logger.warning(
                "%s: %s new to this stream, which has sent everything through version %d. What "
                "comes from now on is of no use to a site that lacks that: its receiver will hold "
                "the stream.",
                self.settings.stream,
                f"{', '.join(new)} {'is' if len(new) == 1 else 'are'}",
                last.through,
                event="new-site",
                stream=self.settings.stream,
                what_to_do=NEW_SITE,
            )

    def _check_source(self) -> str:
        """Compare the source with the last commit that was published, and return the table's ID."""
        table, known = self.settings.table, self._published
        if known is None:
            return self.source.table_id()
        if known.keys != self.settings.keys:
            raise SourceError(
                f"{table}: its keys are {list(self.settings.keys)} in the topology, but the stream "
                f"was published with {list(known.keys)}. Event IDs would change; restore the keys.",
                needs=SOURCE,
            )
        commit = self.source.commit(known.through)
        if commit is not None and is_same_commit(commit.identity, known.identity):
            return known.table_id
        table_id = self.source.table_id()
        if known.table_id != table_id:
            raise TableReplacedError(
                f"{table}: the table at its place has the ID {table_id}; the stream carries "
                f"{known.table_id}. It was dropped and created again, or replaced. The stream is "
                "held.",
                needs=SOURCE,
            )
        if commit is not None:
            raise TableReplacedError(
                f"{table}: version {known.through} is not the commit that was published: the table "
                "was restored to an older state and written to again (or its log was copied "
                "without its files' times). The stream is held.",
                needs=SOURCE,
            )
        latest = self.source.newest().version
        if latest < known.through:
            raise TableReplacedError(
                f"{table}: its newest version is {latest}, but version {known.through} was "
                "published: the table was restored to an older state (from a backup?). The stream "
                "is held, so that new commits with old numbers are not mistaken for what the "
                "remote sites have.",
                needs=SOURCE,
            )
        return table_id

    @property
    def _through(self) -> int:
        """The version through which the stream is published."""
        if self._published is not None:
            return self._published.through
        return (self.settings.start or 0) - 1

    @property
    def _begins_with_snapshot(self) -> bool:
        return self._published is None and self.settings.start is None

    @property
    def _known(self) -> int:
        """The version through which there is nothing to publish."""
        return max(self._through, self._quiet.empty_through)

    def _plan(self) -> CaptureRange | None:
        """Return the next range to publish; None when there is none that is worth a manifest."""
        if self._begins_with_snapshot:
            return self._first_snapshot()
        settings, before, published = self.settings, self._published, self._through
        now = self.clock()  # before the history, which so has all that there was then
        history = self.source.history(published)
        self._read = now, history
        if history:
            self._quiet.read_through(history[-1].version, history[-1].time)
        else:
            self._quiet.read_through(published, now)
        self._note_young(history, now)
        if not history and before is None:
            self._check_start()
        planner = RangePlanner(
            settings.table,
            self.source.schema_at,
            max_rows=settings.max_epoch_rows,
            on_table_operation=settings.on_table_operation,
            decision=lambda version: self.decisions().operations.get(version),
            addressees=settings.addressees,
            is_empty_at=self.source.is_empty_at,
            may_follow=lambda commit: self._may_follow(commit, now),
        )
        planned = planner.plan(history, published, before.schema if before is not None else None)
        if planned is None:
            self._quiet.record_at = None
            return None
        self._check_columns(planned.schema)
        if before is not None:
            check_columns_follow(
                before.schema, planned.schema, settings.table, planned.first_version
            )
        if planned.quiet and not self._worth_recording(planned):
            self._quiet.empty_through = planned.last_version
            self._unrecorded = _not_sent(planned, CaptureResult())
            return None
        return planned

    def _check_start(self) -> None:
        """Check that the version to start at follows what the table has."""
        latest = self.source.newest().version
        if latest < self._through:
            raise SourceError(
                f"{self.settings.table}: it is to start at version {self.settings.start}, but its "
                f"newest is {latest}."
            )

    def _step_of(self, planned: CaptureRange) -> str:
        """Return the name of step 3, which says how much there is to write."""
        if self._begins_with_snapshot or planned.rows > self.settings.max_epoch_rows:
            return LARGE_PLANNED
        return QUIET_PLANNED if planned.quiet else PLANNED

    def _first_snapshot(self) -> CaptureRange | None:
        now, commit = self.clock(), self.source.newest()
        self._quiet.read_through(commit.version, commit.time)
        self._young = None
        if not self._may_follow(commit, now):
            history = [*commits_after(self.source, -1)]
            self._read = now, history
            self._note_young(history, now)
            before = [*takewhile(lambda each: self._may_follow(each, now), history)]
            if (
                not before
                and history[0].version > 0
                and self._end is not None
                and not self._end.may_follow(history[0])
            ):
                raise SourceError(
                    f"{self.settings.table}: it is to end with {self._end}, but the oldest version "
                    f"that its history has is {history[0].version}. Nothing was sent. Run "
                    "`spark-wan resume` or `drain`."
                )
            if not before:
                # What is older than the history, the first snapshot will have.
                self._quiet.empty_through = history[0].version - 1
                return None
            commit = before[-1]
        schema = self.source.schema_at(commit.version)
        self._check_columns(schema)
        return CaptureRange(
            0, commit.version, schema=schema, why_left_out={}, commits=(commit,), rows=0
        )

    def _check_columns(self, schema: Mapping[str, Any]) -> None:
        check_columns(dict(schema), self.settings.table)
        if self.settings.keys:
            check_keys(dict(schema), list(self.settings.keys), self.settings.table)

    def _worth_recording(self, planned: CaptureRange) -> bool:
        """Whether a range without events gets a manifest: it has new columns or an operation on the
        whole table, for which copies wait; it is long or old; or more commits wait behind it."""
        before = self._published
        if (
            self._may_be_at_end(planned.last_version)
            or any(commit.operation_to_send is not None for commit in planned.commits)
            or (before is not None and fingerprint(before.schema) != fingerprint(planned.schema))
            or planned.last_version < self._quiet.end.version
            or planned.last_version - planned.first_version + 1 >= QUIET_COMMITS
        ):
            return True
        due = planned.commits[0].time + record_after(self.source.log_retention())
        self._quiet.record_at = due
        return self.clock() >= due

    def _write(
        self, last: Manifest | None, table_id: str, planned: CaptureRange
    ) -> Manifest | None:
        """Write the frames of a range, and return the manifest that names them; None when the range
        has no events after all, and need not be recorded."""
        settings = self.settings
        snapshot = self._begins_with_snapshot
        clock = self._clock_before(planned.commits[0])
        header = settings.header(table_id, planned.schema, uuid.uuid4().hex)
        all_or_nothing = partial(self._writer.all_or_nothing, header.attempt)
        if snapshot:
            captured = all_or_nothing(
                lambda: self.source.snapshot(planned.last_version, planned.schema, header)
            )
        elif planned.quiet:
            captured = CaptureResult()
        else:
            planned, captured = all_or_nothing(lambda: self._capture(planned, header))
            if not captured.frames and not self._worth_recording(planned):
                self._quiet.empty_through = planned.last_version
                self._unrecorded = _not_sent(planned, captured)
                return None
        self._planned = NotSent() if snapshot else _not_sent(planned, captured)
        stamped = stamps(planned.commits, clock)
        # A snapshot stands for all commits before it, too.
        highest = stamped.clock.stamp if snapshot and stamped.clock is not None else None
        carried = set(captured.versions)
        commits = [
            {
                "version": commit.version,
                "time": commit.time,
                "clock": stamped.by_version[commit.version] if highest is None else highest,
            }
            for commit in planned.commits
            if commit.version in carried
        ]
        return self._writer.following(
            last,
            settings,
            kind=SNAPSHOT if snapshot else CAPTURE,
            table_id=table_id,
            schema=planned.schema,
            first_version=planned.first_version,
            last_version=planned.last_version,
            start=self._published is None,
            commits=tuple(commits),
            identity=planned.identity,
            frames=captured.frames,
            disjoint=captured.disjoint,
            clock=stamped.clock,
            control=self.control,
        )

    def _clock_before(self, commit: Commit) -> TableClock | None:
        """Return the source table's clock before a commit; None: nothing is before it.

        A stream that begins, and one of a version of spark_wan that kept no clock, reads the whole
        history once.
        """
        if self._published is not None and self._published.clock is not None:
            return self._published.clock
        if commit.version == 0:
            return None
        history = commits_after(self.source, -1)
        return stamps(takewhile(lambda each: each.version < commit.version, history), None).clock

    def _capture(
        self, planned: CaptureRange, header: FrameHeader
    ) -> tuple[CaptureRange, CaptureResult]:
        """Capture a range, or the part of it before a commit that cannot be carried."""
        while True:
            try:
                return planned, self.source.capture(planned, header)
            except ChangeError as error:
                # A range with renames is one: in between, its columns have other names.
                if error.version <= planned.first_version or any(
                    commit.operation == "RENAME COLUMN"
                    for commit in planned.commits
                    if commit.version < error.version
                ):
                    raise
                planned = planned.before(error.version)


def _not_sent(planned: CaptureRange, captured: CaptureResult) -> NotSent:
    """Return what a range has that is not sent, by reason."""
    counts: Counter[str] = Counter(planned.why_left_out.values())
    for commit in planned.commits:
        if commit.version not in planned.why_left_out and commit.version not in captured.versions:
            counts["no_events" if commit.changes_rows else "no_rows"] += 1
    return NotSent(**counts, unchanged=captured.unchanged)
