"""Serving a copy: the rows of one version, for the one site that has asked for them.

The request is the site's ack of a stream that may not be there yet: ``<stream>~copy~<site>``.
:meth:`CopyServer.round` is a numbered path. A crash between any two steps changes nothing:

    copy.1  asked           the request in the site's ack, which nothing in the log answers
    copy.2  planned         the version of the table, what it has, and in how many parts it goes; of
                            a copy that was begun before: by the manifests of its parts
    copy.3  frames-written  the rows of the next part. No receiver reads them yet
    copy.4  manifest-added  created if absent: now the part is there. With the first one, earlier
                            copies are trimmed. Steps 3 and 4 repeat until all parts are there
    copy.5  removed         the rows, once the site has taken the copy or wants none: a manifest
                            without any follows, and the copy is trimmed

The rows that a copy has are those of one version, and the version is in its vector. The parts are
dealt by a hash of the keys, so a part is the same whenever it is read, and a copy goes on where its
log ends. The log goes on from copy to copy: an epoch number that was used twice could be taken for
the copy before. A request that this site cannot serve is answered, too: by a manifest that says
why. The site that has asked may ask another one then.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from spark_wan.capture.ranges import CaptureResult, Part
from spark_wan.channels.base import write_of
from spark_wan.delta.commits import is_same_commit
from spark_wan.errors import (
    LedgerError,
    SchemaError,
    SourceError,
    SourceUnreadableError,
    TargetError,
    UnsupportedTypeError,
)
from spark_wan.events.columns import check_columns, check_keys
from spark_wan.events.operations import EVENT_ID_COLUMNS
from spark_wan.log.frame_age import ORPHAN_AGE, newest_frames
from spark_wan.log.lost_logs import NewLog
from spark_wan.log.stream_log import StreamLog
from spark_wan.log.writer import ALL_ROWS, LogWriter, StreamSettings
from spark_wan.messages import message_log
from spark_wan.runtime.progress import share_of, under_way
from spark_wan.sender.ending import EndPoint
from spark_wan.sender.publish import SourceTable, commits_after
from spark_wan.steps import Steps
from spark_wan.wire.ack import Wanted
from spark_wan.wire.control import NEWEST, WantedEnd
from spark_wan.wire.frame import FrameHeader
from spark_wan.wire.manifest import COPY, EVENT_IDS, CopyOf, Manifest
from spark_wan.wire.mark import LogEntry, VectorEntry
from spark_wan.wire.records import VersionRef

log = message_log(__name__)

_NO_COLUMNS: Mapping[str, Any] = {"type": "struct", "fields": []}
_REFUSALS = (SourceError, SchemaError, UnsupportedTypeError, LedgerError, TargetError)
"""Errors that say what is wrong with the table here: asking again would not help."""
LARGE_BYTES = 4 * 2**30
"""Size of the files of a table from which on a copy goes in parts."""
PARTS = 4
"""Parts of such a copy. Each reads the whole table: Spark skips no file by the rows' hash. So a
server that dies loses at most a quarter of its work, and reading takes four times as long, which is
the smaller share of the work."""
PACED_SECONDS, MOST_PARTS = 60, 32
"""Of a sender with a ``copy_rate``: how long the rows of a part may travel at that rate, if that
makes no more parts than these."""


LOOK_INTERVAL = 10.0
"""Seconds after which a server that waits looks whether the copy is still wanted."""


def parts_of(size: int | None, rate: int | None) -> int:
    """Return in how many parts a copy goes, by the size of the table's files (None: not known) and
    the maximum rate, in bytes per second."""
    if size is None:
        return 1
    if rate is not None:
        return min(MOST_PARTS, max(1, math.ceil(size / (rate * PACED_SECONDS))))
    return PARTS if size > LARGE_BYTES else 1


@dataclass(frozen=True)
class Cut:
    """One version of a table, as a copy may have it."""

    table_id: str
    """Of the table at the site that writes it."""
    version: int
    """The version of that table through which everything is in the rows."""
    identity: str
    """Of the commit ``version``; empty: not known here."""
    schema: Mapping[str, Any]
    vector: tuple[VectorEntry, ...]
    read: VersionRef
    """The version of the table here that has the rows."""
    logs: tuple[LogEntry, ...] = ()
    """Of a user stream: how far each log is in the rows."""
    floor: int | None = None
    """The time, in microseconds since 1970 UTC, through which event IDs may have expired."""
    write_ids: Callable[[FrameHeader], CaptureResult] | None = None
    """Of a user stream: writes the frames with the event IDs of the rows
    (:data:`~spark_wan.events.operations.EVENT_ID_COLUMNS`). None: they are in the log already."""


class CopySource(Protocol):
    """A table of which copies are served. Raises SourceError and others that say why not."""

    @property
    def is_source(self) -> bool:
        """Whether this site writes the table: what other tables had before it does not count."""

    def cut(self) -> Cut:
        """Return the newest version that may be served."""

    def check(self, cut: Cut) -> None:
        """Check that the table is still the one that had the cut."""

    def amount(self, cut: Cut) -> tuple[int, int | None]:
        """Return the number of rows of a cut, and the size of the table's files; None: unknown."""

    def write(self, cut: Cut, header: FrameHeader, part: Part) -> CaptureResult:
        """Write the frames with the rows of a part of a cut."""


@dataclass
class PublishedTable:
    """The table at the site that writes it."""

    settings: StreamSettings
    published: StreamLog
    """The log of the table's events: what a copy has must be what they tell of."""
    source: SourceTable
    wanted: Callable[[], WantedEnd] = WantedEnd
    """Returns what the operators of the site want of the stream."""
    is_delayed: bool = False
    """Commits are published once they are old enough: no copy has one before."""
    is_source = True

    def cut(self) -> Cut:
        last, wanted = self.published.newest_manifest(), self.wanted()
        table_id, commit = self.source.table_id(), self.source.newest()
        only_sent = last is not None and (self.is_delayed or wanted.has_ended(last))
        if last is not None and only_sent and commit.version > last.last_version:
            # The last one that was sent, if its rows can still be read.
            commit = self.source.commit(last.last_version) or commit
        schema = self.source.schema_at(commit.version)
        vector = ((self.settings.origin, table_id, ALL_ROWS, commit.version),)
        read = VersionRef(table_id, commit.version, commit.identity)
        cut = Cut(table_id, commit.version, commit.identity, schema, vector, read)
        self._check_published(cut, last, wanted)
        return cut

    def check(self, cut: Cut) -> None:
        last = self.published.newest_manifest()
        if last is not None:  # somebody may have asked for an end meanwhile
            self._check_not_ended(cut, last, self.wanted())
        commit = self.source.commit(cut.version)
        if self.source.table_id() != cut.table_id or (
            commit is not None and not is_same_commit(commit.identity, cut.identity)
        ):
            raise SourceError(
                f"{self.settings.table}: no copy is served of version {cut.version}: the source "
                "was replaced meanwhile, or went back to an older state."
            )

    def amount(self, cut: Cut) -> tuple[int, int | None]:
        return self.source.amount(cut.version)

    def write(self, cut: Cut, header: FrameHeader, part: Part) -> CaptureResult:
        return self.source.snapshot(cut.version, cut.schema, header, part)

    def _check_published(self, cut: Cut, last: Manifest | None, wanted: WantedEnd) -> None:
        """Check that the source is the table, and in the state, that the log of its events
        knows."""
        table = self.settings.table
        if last is None:
            # The stream may begin with a snapshot, or at a version: a copy would not fit before it.
            raise SourceUnreadableError(
                f"{table}: no copy is served yet: nothing of the table has been published. The "
                "request waits until then."
            )
        commit = self.source.commit(last.last_version)
        if (
            last.table_id != cut.table_id
            or last.keys != self.settings.keys
            or cut.version < last.last_version
            or (commit is not None and not is_same_commit(commit.identity, last.identity))
        ):
            raise SourceError(
                f"{table}: no copy is served: the source is not the table, or not in the state, "
                "that was published, or has other keys. The stream of its events says what to do."
            )
        self._check_not_ended(cut, last, wanted)
        if self.is_delayed and cut.version > last.last_version:
            raise SourceUnreadableError(
                f"{table}: no copy is served: version {last.last_version}, which was published "
                f"last, can no longer be read, and version {cut.version} is not old enough (the "
                "`delay` of the stream). The request waits until it is."
            )
        if cut.version > last.last_version:
            self._check_no_operation(last.last_version)

    def _check_not_ended(self, cut: Cut, last: Manifest, wanted: WantedEnd) -> None:
        """Check that nothing is in the rows that is behind an end of the stream."""
        commit, ending, end = self.source.commit(cut.version), wanted.ending, wanted.end
        if wanted.has_ended(last) or (end is not None and end.kind == NEWEST):
            is_behind = cut.version > last.last_version  # of a drain, nobody knows yet where
        elif ending is not None and end is not None and commit is not None:
            is_behind = not EndPoint(ending, end).may_follow(commit)
        else:
            is_behind = False
        if is_behind:
            raise SourceUnreadableError(
                f"{self.settings.table}: no copy is served: the stream was asked to end before "
                f"version {cut.version}, the newest one. The request waits until the end has come, "
                "or somebody runs `spark-wan resume`."
            )

    def _check_no_operation(self, published: int) -> None:
        """Check that no commit that is not published yet changes the whole table: the sender may
        hold it, so that no accident empties every site."""
        for commit in commits_after(self.source, published):
            if commit.operation_to_send is not None:
                raise SourceUnreadableError(
                    f"{self.settings.table}: no copy is served yet: version {commit.version} is a "
                    f"{commit.operation_to_send}, which is not published. The request waits until "
                    "then."
                )


@dataclass
class _Plan:
    """A copy that is being served."""

    cut: Cut
    has: int
    """Number of parts that are in the log."""
    of: int
    """Number of parts in all."""
    rows: int
    size: int | None
    """Of the table's files, in bytes; None: not known."""


@dataclass
class CopyServer:
    """Serves copies of one table to one site."""

    settings: StreamSettings
    """Of the copies: the only addressee is the site that asks."""
    log: StreamLog
    source: CopySource
    clock: Callable[[], int]
    rate: int | None = None
    """Maximum bytes of frames per second, kept between the parts of a copy; None: there is none."""
    pause: Callable[[float], None] = lambda seconds: None
    """Waits. Raises StoppedError when the job was stopped."""
    _writer: LogWriter = field(init=False)
    _goes_on: bool = True
    """False: the version of the copy that was begun could not be read. The next one is newer."""

    def __post_init__(self) -> None:
        # Nothing is lost with such a log: the site asks again.
        anew = NewLog("ask for the copy again", lambda lost: True)
        self._writer = LogWriter(self.log, None, self.clock, anew)

    @property
    def site(self) -> str:
        (site,) = self.settings.addressees
        return site

    def round(self) -> Steps[Manifest | None]:
        """Serve the copy that the site asks for, or say why not; return None if there is nothing
        to do.

        Raises ChannelError, or SourceUnreadableError: then the request waits."""
        last, ack = self.log.newest_manifest(), self.log.ack(self.site)
        wanted = ack.wanted if ack is not None else None
        if wanted is not None and not _answers(last, wanted):
            yield "copy.1 asked"
            return (yield from self._writer.until_appended(lambda: self._answer(wanted)))
        if ack is not None and wanted is None and _request(last):
            yield from self._writer.until_appended(self._end)
        self._tidy()
        return None

    def _answer(self, wanted: Wanted) -> Steps[Manifest]:
        """Serve, or refuse: at the second error, since VACUUM may have taken files of the version
        while they were read. Then there is a newer one."""
        cause = ""
        for goes_on in (self._goes_on, False):
            self._goes_on = True
            try:
                return (yield from self._serve(wanted, goes_on))
            except SourceUnreadableError:
                self._goes_on = False
                raise
            except _REFUSALS as error:
                cause = str(error)
                log.error(
                    "%s: the copy is not served: %s",
                    self.log.stream,
                    cause,
                    event="copy-not-served",
                    stream=self.log.stream,
                    cause=cause,
                )
        return self._append_without_rows(CopyOf(wanted.request, refused=cause))

    def _end(self) -> Steps[None]:
        """Trim the copy behind a manifest without rows: it was taken, or is not wanted any more."""
        self._append_without_rows(CopyOf(""))
        yield "copy.5 removed"

    def _append_without_rows(self, copy: CopyOf) -> Manifest:
        manifest = self._writer.following(
            self._writer.end().last,
            self.settings,
            kind=COPY,
            table_id="",
            schema=_NO_COLUMNS,
            first_version=0,
            last_version=-1,
            start=True,
            commits=(),
            identity="",
            frames=(),
            disjoint=True,
            copy=copy,
        )
        return self._append(manifest, self.clock())

    def _append(self, manifest: Manifest, began: int) -> Manifest:
        """Append a manifest. If it begins something new, trim what is before it."""
        manifest = self._writer.append(manifest, began)
        if _first_epoch(manifest) == manifest.epoch:
            self._trim_before(manifest)
        return manifest

    def _trim_before(self, manifest: Manifest) -> None:
        """Trim everything before the copy that a manifest is of."""
        first = _first_epoch(manifest)
        before = [epoch for epoch in self.log.epochs() if epoch < first]
        earlier = [each for each in self.log.read_each(before) if each is not None]
        if earlier:
            rows = [frame.path for each in earlier for frame in each.frames]
            self.log.trim(first - 1, rows)

    def _serve(self, wanted: Wanted, goes_on: bool) -> Steps[Manifest]:
        """Serve all parts that are not in the log yet; those before them only if it ``goes_on``.
        Ends early when the site wants another copy, or none."""
        last = self._writer.end().last
        if last is not None and _answers(last, wanted):
            return last  # another server was faster
        plan = (self._begun(last, wanted) if goes_on else None) or self._begin(wanted)
        yield "copy.2 planned"
        with self._under_way(plan):
            for number in range(plan.has + 1, plan.of + 1):
                began = self.clock()
                last = yield from self._add(last, plan.cut, wanted, Part(number, plan.of))
                plan.has = number
                if number < plan.of and not self._keep_to_rate(last, began, wanted):
                    return last
        assert last is not None
        log.info(
            "%s: a copy of version %d, %d rows",
            self.log.stream,
            plan.cut.version,
            plan.rows,
            event="copy-served",
            stream=self.log.stream,
            version=plan.cut.version,
            rows=plan.rows,
        )
        return last

    def _under_way(self, plan: _Plan) -> AbstractContextManager[None]:
        """Have the work be known as long as it lasts. Of a single part, capturing it is all."""
        if plan.of == 1:
            return nullcontext()
        stream = self.log.stream
        return under_way(
            "copying",
            stream,
            self.settings.origin,
            rows=plan.rows,
            size=plan.size,
            share=lambda: (plan.has + (share_of("capturing", stream) or 0.0)) / plan.of,
        )

    def _keep_to_rate(self, part: Manifest, began: int, wanted: Wanted) -> bool:
        """Wait until a part has taken as long as the maximum rate says. Return whether the copy is
        still wanted."""
        left = 0.0
        if self.rate is not None:
            left = part.bytes / self.rate - max(0, self.clock() - began) / 1000
        while self._is_wanted(wanted):
            if left <= 0:
                return True
            self.pause(min(left, LOOK_INTERVAL))
            left -= LOOK_INTERVAL
        return False

    def _is_wanted(self, wanted: Wanted) -> bool:
        ack = self.log.ack(self.site)
        return ack is None or ack.wanted == wanted

    def _begin(self, wanted: Wanted) -> _Plan:
        """Return the plan of a copy that begins now."""
        settings, cut = self.settings, self.source.cut()
        check_columns(dict(cut.schema), settings.table)
        if settings.keys:
            check_keys(dict(cut.schema), list(settings.keys), settings.table)
        self._check_reaches(wanted, cut)
        self._tidy()
        rows, size = self.source.amount(cut)
        return _Plan(cut, 0, parts_of(size, self.rate) + bool(cut.logs), rows, size)

    def _begun(self, last: Manifest | None, wanted: Wanted) -> _Plan | None:
        """Return the plan of the copy of which the log has some parts; None: there is none, or it
        cannot go on."""
        if last is None or last.copy is None or _request(last) != wanted.request:
            return None
        if last.copy.content == EVENT_IDS:
            return None  # which columns the rows have, none of them says yet
        said = (last.origin, last.sent_to, last.addressees, last.keys)
        now = self.settings
        if said != (now.origin, now.sent_to, now.addressees, now.keys) or last.copy.read is None:
            return None
        cut = Cut(
            last.table_id,
            last.last_version,
            last.identity,
            last.schema,
            last.copy.vector,
            last.copy.read,
            last.copy.logs,
            last.copy.floor,
        )
        self.source.check(cut)
        return _Plan(cut, last.copy.part, last.copy.parts, *self.source.amount(cut))

    def _add(self, last: Manifest | None, cut: Cut, wanted: Wanted, part: Part) -> Steps[Manifest]:
        """Add a part behind the end of the log."""
        began = self.clock()
        write_ids = cut.write_ids if part.number == 1 else None
        schema = cut.schema if write_ids is None else EVENT_ID_COLUMNS
        header = self.settings.header(cut.table_id, schema, uuid.uuid4().hex)

        def write() -> CaptureResult:
            if write_ids is not None:
                return write_ids(header)
            ids = int(bool(cut.logs))
            return self.source.write(cut, header, Part(part.number - ids, part.of - ids))

        captured = self._writer.all_or_nothing(header.attempt, write)
        yield "copy.3 frames-written"
        self._writer.all_or_nothing(header.attempt, lambda: self.source.check(cut))
        copy = CopyOf(wanted.request, cut.vector, difference=wanted.difference, logs=cut.logs)
        if part.of > 1:
            copy = replace(copy, part=part.number, parts=part.of, read=cut.read, floor=cut.floor)
        if write_ids is not None:
            copy = replace(copy, content=EVENT_IDS)
        manifest = self._writer.following(
            last,
            self.settings,
            kind=COPY,
            table_id=cut.table_id,
            schema=schema,
            first_version=min(0, cut.version),
            last_version=cut.version,
            start=True,
            commits=(),
            identity=cut.identity,
            frames=captured.frames,
            disjoint=captured.disjoint,
            copy=copy,
        )
        manifest = self._append(manifest, began)
        yield "copy.4 manifest-added"
        return manifest

    def _tidy(self) -> None:
        """Delete what a server that died, or a channel that failed, has left: copies before the
        newest one, and rows that no manifest of it names, a day after they were written."""
        channel, stream = self.log.channel, self.log.stream
        # In this order: rows that a manifest names in between are spared.
        written = channel.frames(stream)
        newest, young = newest_frames(written), channel.now() - ORPHAN_AGE if written else 0.0
        last, named = self.log.newest_manifest(), set[str]()
        if last is not None:
            self._trim_before(last)
            parts = self.log.read_each(range(_first_epoch(last), last.epoch + 1))
            named = {frame.path for each in parts if each is not None for frame in each.frames}
        old = [path for path, _ in written if newest[write_of(path)] < young and path not in named]
        if old:
            channel.trim_frames(stream, old)

    def _check_reaches(self, wanted: Wanted, cut: Cut) -> None:
        """Check that a copy of this version has what the site needs at least."""
        there = {(stream, log_id): epoch for stream, log_id, epoch, _ in cut.logs}
        for stream, log_id, epoch, _ in wanted.logs:
            through = there.get((stream, log_id))
            if through is not None and through < epoch:
                raise SourceError(
                    f"{self.settings.table}: site {self.site} asks for a copy that has epoch "
                    f"{epoch} of {stream}, and the table here has it through epoch {through}."
                )
        has = {tuple(origin): version for *origin, version in cut.vector}
        for *origin, version in wanted.least:
            if self.source.is_source and tuple(origin) not in has:
                continue
            if version > has.get(tuple(origin), -1):
                raise SourceError(
                    f"{self.settings.table}: site {self.site} asks for a copy that has version "
                    f"{version} of the table at site {origin[0]}, and the newest here has it "
                    f"through version {has.get(tuple(origin), -1)}."
                )


def _request(manifest: Manifest | None) -> str:
    """Return the request that a manifest answers; empty: none."""
    return manifest.copy.request if manifest is not None and manifest.copy is not None else ""


def _answers(manifest: Manifest | None, wanted: Wanted) -> bool:
    copy = manifest.copy if manifest is not None else None
    return copy is not None and copy.answers(wanted.request)


def _first_epoch(manifest: Manifest) -> int:
    """Return the epoch of the first part of the copy that a manifest is of."""
    assert manifest.copy is not None
    return manifest.epoch - manifest.copy.part + 1
