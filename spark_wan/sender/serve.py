"""Serving a copy: the rows of one version of a table, for the one site that has asked for them.

The request is the site's ack of a stream that may not be there yet: ``<stream>~copy~<site>``.
:meth:`CopyServer.round` is a numbered path. A crash between any two steps changes nothing:

    copy.1  asked           the request in the site's ack, which no copy in the log answers
    copy.2  planned         the newest version of the table
    copy.3  frames-written  its rows. No receiver reads them yet
    copy.4  manifest-added  created if absent: now the copy is there. Earlier ones are trimmed
    copy.5  removed         the rows, once the site says that it has taken the copy: a manifest
                            without any follows, and the copy is trimmed

The rows that a copy has are those of one version, and the version is in its vector. The log goes on
from copy to copy: an epoch number that was used twice could be taken for the copy before.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field

from spark_wan.channels.base import write_of
from spark_wan.delta.commits import is_same_commit
from spark_wan.errors import SourceError
from spark_wan.events.columns import check_columns, check_keys
from spark_wan.log.frame_age import ORPHAN_AGE, newest_frames
from spark_wan.log.lost_logs import NewLog
from spark_wan.log.stream_log import StreamLog
from spark_wan.log.writer import ALL_ROWS, LogWriter, StreamSettings
from spark_wan.sender.publish import SourceTable
from spark_wan.steps import Steps
from spark_wan.wire.ack import Wanted
from spark_wan.wire.manifest import COPY, CopyOf, Manifest

log = logging.getLogger(__name__)


@dataclass
class CopyServer:
    """Serves copies of one table to one site, at the site that writes the table."""

    settings: StreamSettings
    """Of the copies: the only addressee is the site that asks."""
    log: StreamLog
    published: StreamLog
    """The log of the table's events: what a copy has must be what they tell of."""
    source: SourceTable
    clock: Callable[[], int]
    """Milliseconds since 1970 UTC."""
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
        """Serve the copy that the site asks for; return None if there is nothing to do.

        Raises SourceError, SchemaError or ChannelError: then the request waits."""
        ack, last = self.log.ack(self.site), self.log.newest_manifest()
        wanted = ack.wanted if ack is not None else None
        request = last.copy.request if last is not None and last.copy is not None else ""
        if wanted is not None and request != wanted.request:
            yield "copy.1 asked"
            return (yield from self._writer.until_appended(lambda: self._serve(wanted)))
        taken = last is not None and ack is not None and ack.has(last.log_id, last.epoch)
        if wanted is None and taken and request:
            yield from self._writer.until_appended(self._end)
        self._tidy()
        return None

    def _end(self) -> Steps[None]:
        """Trim the copy that was taken, behind a manifest without rows."""
        last = self._writer.end().last
        assert last is not None
        manifest = self._writer.without_rows(last, self.settings, kind=COPY, copy=CopyOf("", ()))
        self._append(last, manifest, self.clock())
        yield "copy.5 removed"

    def _append(self, last: Manifest | None, manifest: Manifest, began: int) -> Manifest:
        """Append a manifest, and trim those before it."""
        manifest = self._writer.append(manifest, began)
        if last is not None:
            self.log.trim(last.epoch, [frame.path for frame in last.frames])
        return manifest

    def _serve(self, wanted: Wanted) -> Steps[Manifest]:
        settings, source, last = self.settings, self.source, self._writer.end().last
        if last is not None and last.copy is not None and last.copy.request == wanted.request:
            return last  # another server was faster
        table_id, commit = source.table_id(), source.newest()
        version, schema = commit.version, source.schema_at(commit.version)
        check_columns(dict(schema), settings.table)
        if settings.keys:
            check_keys(dict(schema), list(settings.keys), settings.table)
        self._check_published(table_id, version)
        origin = (settings.origin, table_id, ALL_ROWS)
        self._check_reaches(wanted, (*origin, version))
        self._tidy()
        yield "copy.2 planned"
        began = self.clock()
        header = settings.header(table_id, schema, uuid.uuid4().hex)
        captured = self._writer.all_or_nothing(
            header.attempt, lambda: source.snapshot(version, schema, header)
        )
        yield "copy.3 frames-written"
        self._check_published(source.table_id(), version, table_id)
        manifest = self._writer.following(
            last,
            settings,
            kind=COPY,
            table_id=table_id,
            schema=schema,
            first_version=0,
            last_version=version,
            start=True,
            commits=(),
            identity=commit.identity,
            frames=captured.frames,
            disjoint=captured.disjoint,
            copy=CopyOf(wanted.request, ((*origin, version),)),
        )
        manifest = self._append(last, manifest, began)
        yield "copy.4 manifest-added"
        log.info("%s: a copy of version %d, %d rows", self.log.stream, version, manifest.rows)
        return manifest

    def _check_published(self, table_id: str, version: int, before: str | None = None) -> None:
        """Check that the source is the table, and in the state, that the log of its events knows;
        and the one that it was ``before``."""
        table, last = self.settings.table, self.published.newest_manifest()
        if last is None:
            # The stream may begin with a snapshot, or at a version: a copy would not fit before it.
            raise SourceError(
                f"{table}: no copy is served yet: nothing of the table has been published. The "
                "request waits until then."
            )
        wrong = before is not None and table_id != before
        if not wrong:
            commit = self.source.commit(last.last_version)
            wrong = (
                last.table_id != table_id
                or last.keys != self.settings.keys
                or version < last.last_version
                or (commit is not None and not is_same_commit(commit.identity, last.identity))
            )
        if wrong:
            raise SourceError(
                f"{table}: no copy is served: the source is not the table, or not in the state, "
                "that was published, or has other keys. The stream of its events says what to do."
            )

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

    def _check_reaches(self, wanted: Wanted, has: tuple[str, str, str, int]) -> None:
        """Check that a copy of this version has what the site needs at least."""
        for *origin, version in wanted.least:
            if tuple(origin) == has[:3] and version > has[3]:
                raise SourceError(
                    f"{self.settings.table}: site {self.site} asks for a copy that has version "
                    f"{version}, and the newest is {has[3]}: the table was restored to an older "
                    "state."
                )
