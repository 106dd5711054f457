"""What a site does by itself about a table that it needs a copy of.

The settings ``sync``, ``sync_after`` and ``auto_init`` say when it asks for one. It never does so
for a table that may have rows of its own: a copy takes them away, and that is for people to say.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone

from spark_wan.errors import ChannelError, JoinFailureError, LockoutError, TopologyError, WanError
from spark_wan.log.notes import sender_record
from spark_wan.messages import message_log
from spark_wan.sync.request import CopyRequests
from spark_wan.topology.routes import Serving
from spark_wan.wire.ack import Need, Wanted

log = message_log(__name__)

FIRST_AGAIN, LONGEST_AGAIN = 60_000, 3_600_000
"""Milliseconds after which a site that still needs a copy asks again: twice as many each time."""


@dataclass(frozen=True)
class SiteNeed:
    """A need of a site, as the function that a :class:`spark_wan.Receiver` was given gets it."""

    site: str
    table: str
    stream: str
    why: str
    """``epochs``, ``source``, ``table``, ``columns`` or ``ledger`` (:mod:`spark_wan.errors`)."""
    since_ms: int
    """Since when, by the site's clock, in milliseconds since 1970 UTC."""
    cause: str
    """What holds the stream, and what the site does about it."""
    error: LockoutError | JoinFailureError
    """JoinFailureError: it does nothing until somebody allows it."""


@dataclass
class Synchronizer:
    """Asks for copies of one table, in the name of one site."""

    requests: CopyRequests
    note: Callable[[SiteNeed], None] | None = None
    """Is told of each need once, and again when what the site does about it changes."""
    _noted: dict[str, str] = field(default_factory=dict)
    """Stream -> what was told of it last."""
    _next_at: int = 0
    """When the site may ask again, by the clock of the requests."""
    _again: int = FIRST_AGAIN
    _seen: tuple[str, int] = ("", 0)
    """The open request, and when the site that was asked has last shown a sign of life."""
    _written: int | None = None
    """What that sign was."""

    @property
    def site(self) -> str:
        return self.requests.site.name

    @property
    def table(self) -> str:
        return self.requests.table.name

    def needed(self, stream: str, need: Need, cause: str, has_own_rows: Callable[[], bool]) -> str:
        """Ask for a copy, if it is time. Return ``cause`` with what the site does about it."""
        try:
            does = self._does(need, has_own_rows)
        except TopologyError:
            return cause  # nobody serves copies of it
        except ChannelError as error:
            log.warning(
                "%s: no copy was asked for: %s",
                self.table,
                error,
                event="copy-not-requested",
                stream=stream,
                table=self.table,
                cause=str(error),
            )
            return cause
        told = f"{cause} {does}".rstrip()
        if self.note is not None and self._noted.get(stream) != told:
            self._noted[stream] = told
            allowed = self.requests.site.auto_init
            kind = LockoutError if allowed else JoinFailureError
            self._tell(
                SiteNeed(self.site, self.table, stream, need.why, need.since, told, kind(told))
            )
        return told

    def _tell(self, need: SiteNeed) -> None:
        assert self.note is not None
        try:
            self.note(need)
        except Exception:
            log.exception(
                "%s: the function that is told of needs has failed",
                need.stream,
                event="listener-failed",
                stream=need.stream,
                table=self.table,
                what_to_do="Correct the function that is passed as on_need.",
            )

    def _does(self, need: Need, has_own_rows: Callable[[], bool]) -> str:
        site, table = self.requests.site, self.requests.table
        request = self.requests.open()
        if request is not None and request.held is not None:
            return f"A copy is there, and cannot be taken: {request.held}"
        if request is not None and request.refused is None:
            return _asked(site.name, request.by.sender.site)
        if not site.auto_init:
            return (
                f"JoinFailureError: auto_init of site {site.name} is false, so it asks for no copy "
                "of a whole table. Run the command with --full."
            )
        mode = table.sync or site.sync
        if mode == "manual" or not self.requests.sites:
            return f"The last request was refused: {request.refused}" if request else ""
        if mode == "delayed":
            after = site.sync_after if table.sync_after is None else table.sync_after
            due = need.since + int(after * 1000)
            if self.requests.clock() < due:
                return f"Site {site.name} asks for a copy by itself at {_utc(due)}."
        if self.requests.clock() < self._next_at:
            why = f" The last request was refused: {request.refused}" if request else ""
            return f"Site {site.name} asks for a copy again at {_utc(self._next_at)}.{why}"
        if has_own_rows():
            return (
                f"Site {site.name} does not ask for a copy by itself: the table may have rows "
                "there that no receiver wrote, and a copy takes them away."
            )
        by = self.requests.ask(need.least)
        if self.requests.clock() > self._next_at + LONGEST_AGAIN:
            self._again = FIRST_AGAIN  # the last need is long over
        self._next_at = self.requests.clock() + self._again
        self._again = min(2 * self._again, LONGEST_AGAIN)
        log.warning(
            "%s: site %s needs a copy (%s), and asks site %s",
            table.name,
            site.name,
            need.why,
            by.sender.site,
            event="copy-requested",
            stream=by.stream,
            table=table.name,
            what_to_do="`spark-wan status` shows how far the copy is. Until it is taken, the table "
            "stays as it is.",
        )
        return _asked(site.name, by.sender.site)

    def waits(self) -> bool:
        """Whether the site needs a copy of the table, or has asked for one that it does not have
        yet; also if that cannot be read."""
        try:
            asked = self.requests.is_possible and self.requests.open() is not None
            return asked or self.requests.need() is not None
        except ChannelError:
            return True

    def serves(self, stream: str) -> bool:
        """Whether copies of the table may come by a stream."""
        return self.requests.is_possible and any(by.stream == stream for by in self.requests.sites)

    def is_by_writer(self, stream: str) -> bool:
        """Whether the copies in a stream come from the site that writes the table."""
        try:
            return any(by.by_writer for by in self.requests.sites if by.stream == stream)
        except TopologyError:
            return False

    def refused(self, stream: str, wanted: Wanted, cause: str) -> bool:
        """Ask the next site, since the one whose copies are in ``stream`` serves none; return
        whether there is one."""
        by = self.requests.ask_next(stream, wanted)
        if by is not None:
            log.warning(
                "%s: %s; asking site %s",
                stream,
                cause,
                by.sender.site,
                event="copy-refused",
                stream=stream,
                table=self.table,
                cause=cause,
            )
        return by is not None

    def pass_over(self, stream: str) -> bool:
        """Ask the next site if the one that was asked in ``stream`` shows no sign of life. Return
        whether a request is open there. Raises TopologyError, ChannelError."""
        request = self.requests.open()
        if request is None or request.by.stream != stream:
            return False
        by, wanted, now = request.by, request.wanted, self.requests.clock()
        if request.is_answered:
            return True  # the receiver takes it, or asks the next one
        written = self._sign_of_life(by)
        if self._seen[0] != wanted.request or written not in (None, self._written):
            # By this site's clock, whatever the other one says.
            self._seen, self._written = (wanted.request, now), written
        if now - self._seen[1] < self.requests.site.sync_timeout * 1000:
            return True
        self._seen = wanted.request, now
        following = self.requests.ask_next(by.stream, wanted)
        if following is not None:
            log.warning(
                "%s: site %s has not answered; asking site %s",
                by.stream,
                by.sender.site,
                following.sender.site,
                event="copy-not-answered",
                stream=by.stream,
                table=self.table,
                what_to_do="Check that the job that serves copies at the first site runs.",
            )
        return following is None

    def _sign_of_life(self, by: Serving) -> int | None:
        """Return when, by its own clock, the site has last said that it serves the copy, and that
        nothing holds it; None: it has not."""
        with suppress(WanError):
            record = sender_record(self.requests.log(by).channel, by.stream)
            return record.written if record is not None and record.held is None else None
        return None


def _asked(site: str, by: str) -> str:
    return f"Nothing is to be done now: site {site} has asked site {by} for a copy."


def _utc(milliseconds: int) -> str:
    moment = datetime.fromtimestamp(milliseconds / 1000, timezone.utc)
    return f"{moment:%Y-%m-%d %H:%M} UTC"
