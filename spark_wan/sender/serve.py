"""Serving a copy: the rows of one version, for the one site that has asked for them.

The request is the site's ack of a stream that may not be there yet: ``<stream>~copy~<site>``.
:meth:`CopyServer.round` is a numbered path. A crash between any two steps changes nothing:

    copy.1  asked           the request in the site's ack, which nothing in the log answers
    copy.2  planned         the version of the table, and what it has
    copy.3  frames-written  its rows. No receiver reads them yet
    copy.4  manifest-added  created if absent: now the copy is there. Earlier ones are trimmed
    copy.5  removed         the rows, once the site says that it has taken the copy: a manifest
                            without any follows, and the copy is trimmed

The rows that a copy has are those of one version, and the version is in its vector. The log goes on
from copy to copy: an epoch number that was used twice could be taken for the copy before. A request
that this site cannot serve is answered, too: by a manifest that says why. The site that has asked
may ask another one then.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from spark_wan.capture.ranges import CaptureResult
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
from spark_wan.log.frame_age import ORPHAN_AGE, newest_frames
from spark_wan.log.lost_logs import NewLog
from spark_wan.log.stream_log import StreamLog
from spark_wan.log.writer import ALL_ROWS, LogWriter, StreamSettings
from spark_wan.sender.publish import SourceTable
from spark_wan.steps import Steps
from spark_wan.wire.ack import Wanted
from spark_wan.wire.frame import FrameHeader
from spark_wan.wire.manifest import COPY, CopyOf, Manifest
from spark_wan.wire.mark import VectorEntry

log = logging.getLogger(__name__)

_NO_COLUMNS: Mapping[str, Any] = {"type": "struct", "fields": []}
_REFUSALS = (SourceError, SchemaError, UnsupportedTypeError, LedgerError, TargetError)
"""Errors that say what is wrong with the table here: asking again would not help."""


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
    at: int
    """The version of the table here that has the rows."""
    is_source: bool
    """Served by the site that writes the table: what other tables had before it does not count."""


class CopySource(Protocol):
    """A table of which copies are served. Raises SourceError and others that say why not."""

    def cut(self) -> Cut:
        """Return the newest version that may be served."""

    def check(self, cut: Cut) -> None:
        """Check that the table is still the one that had the cut."""

    def write(self, cut: Cut, header: FrameHeader) -> CaptureResult:
        """Write the frames with the rows of a cut."""


@dataclass
class PublishedTable:
    """The table at the site that writes it."""

    settings: StreamSettings
    published: StreamLog
    """The log of the table's events: what a copy has must be what they tell of."""
    source: SourceTable

    def cut(self) -> Cut:
        table_id, commit = self.source.table_id(), self.source.newest()
        schema = self.source.schema_at(commit.version)
        vector = ((self.settings.origin, table_id, ALL_ROWS, commit.version),)
        version = commit.version
        cut = Cut(table_id, version, commit.identity, schema, vector, version, is_source=True)
        self._check_published(cut)
        return cut

    def check(self, cut: Cut) -> None:
        self._check_published(cut, self.source.table_id())

    def write(self, cut: Cut, header: FrameHeader) -> CaptureResult:
        return self.source.snapshot(cut.at, cut.schema, header)

    def _check_published(self, cut: Cut, now: str | None = None) -> None:
        """Check that the source is the table, and in the state, that the log of its events knows;
        and, if it has the ID ``now``, that the cut is of that one."""
        table, last = self.settings.table, self.published.newest_manifest()
        if last is None:
            # The stream may begin with a snapshot, or at a version: a copy would not fit before it.
            raise SourceUnreadableError(
                f"{table}: no copy is served yet: nothing of the table has been published. The "
                "request waits until then."
            )
        wrong = now is not None and cut.table_id != now
        if not wrong:
            commit = self.source.commit(last.last_version)
            wrong = (
                last.table_id != cut.table_id
                or last.keys != self.settings.keys
                or cut.version < last.last_version
                or (commit is not None and not is_same_commit(commit.identity, last.identity))
            )
        if not wrong and now is None:
            self._check_no_operation(last.last_version)
        if wrong:
            raise SourceError(
                f"{table}: no copy is served: the source is not the table, or not in the state, "
                "that was published, or has other keys. The stream of its events says what to do."
            )

    def _check_no_operation(self, published: int) -> None:
        """Check that no commit that is not published yet changes the whole table: the sender may
        hold it, so that no accident empties every site."""
        for commit in self.source.history(published):
            if commit.table_operation is not None and not commit.stays_here:
                raise SourceUnreadableError(
                    f"{self.settings.table}: no copy is served yet: version {commit.version} is a "
                    f"{commit.table_operation}, which is not published. The request waits until "
                    "then."
                )


@dataclass
class CopyServer:
    """Serves copies of one table to one site."""

    settings: StreamSettings
    """Of the copies: the only addressee is the site that asks."""
    log: StreamLog
    source: CopySource
    clock: Callable[[], int]
    _writer: LogWriter = field(init=False)

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
        ack, last = self.log.ack(self.site), self.log.newest_manifest()
        wanted = ack.wanted if ack is not None else None
        request = last.copy.request if last is not None and last.copy is not None else ""
        if wanted is not None and request != wanted.request:
            yield "copy.1 asked"
            return (yield from self._writer.until_appended(lambda: self._answer(wanted)))
        taken = last is not None and ack is not None and ack.has(last.log_id, last.epoch)
        if wanted is None and taken and request:
            yield from self._writer.until_appended(self._end)
        self._tidy()
        return None

    def _answer(self, wanted: Wanted) -> Steps[Manifest]:
        """Serve, or refuse: at the second error, since VACUUM may have taken files of the version
        while they were read. Then there is a newer one."""
        cause = ""
        for _ in range(2):
            try:
                return (yield from self._serve(wanted))
            except SourceUnreadableError:
                raise
            except _REFUSALS as error:
                cause = str(error)
                log.error("%s: the copy is not served: %s", self.log.stream, cause)
        return self._append_without_rows(CopyOf(wanted.request, refused=cause))

    def _end(self) -> Steps[None]:
        """Trim the copy that was taken, behind a manifest without rows."""
        self._append_without_rows(CopyOf(""))
        yield "copy.5 removed"

    def _append_without_rows(self, copy: CopyOf) -> Manifest:
        last = self._writer.end().last
        manifest = self._writer.following(
            last,
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
        return self._append(last, manifest, self.clock())

    def _append(self, last: Manifest | None, manifest: Manifest, began: int) -> Manifest:
        """Append a manifest, and trim those before it."""
        manifest = self._writer.append(manifest, began)
        if last is not None:
            self.log.trim(last.epoch, [frame.path for frame in last.frames])
        return manifest

    def _serve(self, wanted: Wanted) -> Steps[Manifest]:
        settings, last = self.settings, self._writer.end().last
        if last is not None and last.copy is not None and last.copy.request == wanted.request:
            return last  # another server was faster
        cut = self.source.cut()
        check_columns(dict(cut.schema), settings.table)
        if settings.keys:
            check_keys(dict(cut.schema), list(settings.keys), settings.table)
        self._check_reaches(wanted, cut)
        self._tidy()
        yield "copy.2 planned"
        began = self.clock()
        header = settings.header(cut.table_id, cut.schema, uuid.uuid4().hex)
        captured = self._writer.all_or_nothing(
            header.attempt, lambda: self.source.write(cut, header)
        )
        yield "copy.3 frames-written"
        self._writer.all_or_nothing(header.attempt, lambda: self.source.check(cut))
        manifest = self._writer.following(
            last,
            settings,
            kind=COPY,
            table_id=cut.table_id,
            schema=cut.schema,
            first_version=0,
            last_version=cut.version,
            start=True,
            commits=(),
            identity=cut.identity,
            frames=captured.frames,
            disjoint=captured.disjoint,
            copy=CopyOf(wanted.request, cut.vector, difference=wanted.difference),
        )
        manifest = self._append(last, manifest, began)
        yield "copy.4 manifest-added"
        log.info("%s: a copy of version %d, %d rows", self.log.stream, cut.version, manifest.rows)
        return manifest

    def _tidy(self) -> None:
        """Delete what a server that died, or a channel that failed, has left: copies before the
        newest manifest, and rows that no manifest names, a day after they were written."""
        channel, stream = self.log.channel, self.log.stream
        # In this order: rows that a manifest names in between are spared.
        written = channel.frames(stream)
        newest, young = newest_frames(written), channel.now() - ORPHAN_AGE if written else 0.0
        last = self.log.newest_manifest()
        if last is not None:
            before = [epoch for epoch in self.log.epochs() if epoch < last.epoch]
            earlier = [each for each in self.log.read_each(before) if each is not None]
            if earlier:
                rows = [frame.path for each in earlier for frame in each.frames]
                self.log.trim(last.epoch - 1, rows)
        named = {frame.path for frame in last.frames} if last is not None else set[str]()
        old = [path for path, _ in written if newest[write_of(path)] < young and path not in named]
        if old:
            channel.trim_frames(stream, old)

    def _check_reaches(self, wanted: Wanted, cut: Cut) -> None:
        """Check that a copy of this version has what the site needs at least."""
        has = {tuple(origin): version for *origin, version in cut.vector}
        for *origin, version in wanted.least:
            if cut.is_source and tuple(origin) not in has:
                continue
            if version > has.get(tuple(origin), -1):
                raise SourceError(
                    f"{self.settings.table}: site {self.site} asks for a copy that has version "
                    f"{version} of the table at site {origin[0]}, and the newest here has it "
                    f"through version {has.get(tuple(origin), -1)}."
                )
