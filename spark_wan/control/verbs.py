"""``pause``, ``resume``, ``drain``, ``stop_at``, ``clean``: what people ask of the streams that a
site sends. No Spark."""

from __future__ import annotations

import getpass
import os
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from spark_wan.channels.parallel import in_order
from spark_wan.control.ends import LOOK_INTERVAL, EndWait, StreamEnd, log_of
from spark_wan.control.enforce import Controlled, Enforcer, controlled
from spark_wan.errors import ChannelError, NoTopicsError, OptionError, TopologyError, WanError
from spark_wan.state.control import ControlLog
from spark_wan.status.reports import StatusReader
from spark_wan.topology.model import Topology
from spark_wan.units import milliseconds
from spark_wan.wire.control import (
    AT_TIME,
    AT_VERSION,
    CLEAN,
    DRAIN,
    NEWEST,
    PAUSE,
    RESUME,
    STOP,
    Clean,
    Control,
    End,
    Scope,
    WantedEnd,
)
from spark_wan.wire.manifest import Manifest


@dataclass(frozen=True)
class Waiting:
    """What waits for a site in a stream."""

    stream: str
    log_id: str
    site: str
    first: int
    """The first epoch that the site has not acked, and for which it was not dropped."""
    last: int
    events: int
    bytes: int


@dataclass(frozen=True)
class ControlAnswer:
    """What a verb has found and done."""

    verb: str
    """``pause``, ``resume``, ``drain``, ``stop`` or ``clean``."""
    site: str
    streams: tuple[str, ...]
    """Those that the verb was about, without those of copies."""
    changed: bool
    """False: all of them were already as the verb wants them."""
    generation: int
    """The number of the newest entry in the control log of the site."""
    unpaused: tuple[str, ...] = ()
    """Of ``drain`` and ``stop``: who had paused some of the streams, which go on."""
    point: str = ""
    """Of ``stop``: the version or the time with which the streams end."""
    ends: tuple[StreamEnd, ...] = ()
    """Of ``drain`` and ``stop``: how far each stream is."""
    waiting: tuple[Waiting, ...] = ()
    """Of ``clean``: what is dropped, or would be."""

    @property
    def arrived(self) -> bool:
        """Whether the streams have ended, and the sites have all of them."""
        return all(each.arrived for each in self.ends)


def pause(
    topology: Topology,
    site: str,
    *,
    sender: str | None = None,
    table: str | None = None,
    capture: bool = False,
) -> ControlAnswer:
    """Have no site take anything of the streams that a site sends, until they are resumed.

    What a site has begun to apply, it applies. The sender goes on to add to the channel, so that
    the source need not keep its history for the pause. It holds across restarts, wherever the jobs
    run, and for streams that are added to the topology later.

    Args:
        topology: Who sends what to whom.
        site: The site that sends, also what it forwards.
        sender: Only of this sender; default: of all of the site.
        table: Only of this table; default: of all.
        capture: Have the sender add nothing to the channel, either, within half a minute. The
            source must keep its history meanwhile.

    Raises:
        TopologyError: the site, the sender or the table is unknown, or there is no such stream.
        OptionError: ``capture`` where no stream is captured.
        ChannelError, LedgerError: a channel or the state of the site cannot be read or written.

    Example::

        spark_wan.pause(topology, "newark", table="orders")
        ...
        spark_wan.resume(topology, "newark", table="orders")
    """
    return _ask(PAUSE, topology, site, Scope(sender, table), capture=capture)


def resume(
    topology: Topology, site: str, *, sender: str | None = None, table: str | None = None
) -> ControlAnswer:
    """Have the sites go on to take what a site sends, and its senders to send it: the opposite of
    :func:`pause`, :func:`drain` and :func:`stop_at`, with the same arguments and errors. Harmless
    for streams that go on."""
    return _ask(RESUME, topology, site, Scope(sender, table))


def drain(
    topology: Topology,
    site: str,
    *,
    sender: str | None = None,
    table: str | None = None,
    timeout: float = 600.0,
    progress: Callable[[Sequence[StreamEnd]], None] | None = None,
) -> ControlAnswer:
    """Have the senders of a site send what is committed when they notice the request, and then
    nothing more until somebody resumes the streams; and wait until their remotes have it.

    It holds across restarts. What is paused is resumed. A query of yours is not stopped, and
    neither is what the site forwards: of those, this waits for what is in the channel now.

    Args:
        topology: Who sends what to whom.
        site: The site that sends.
        sender: Only of this sender; default: of all of the site.
        table: Only of this table; default: of all.
        timeout: Seconds to wait at most; 0: look once. What has not arrived by then still does.
        progress: Called with how far all streams are, after each look.

    Raises:
        TopologyError, ChannelError, LedgerError: as :func:`pause`.
        OptionError: the timeout is negative.

    Example::

        assert spark_wan.drain(topology, "newark", table="orders").arrived
    """
    if not timeout >= 0:
        raise OptionError(f"drain: timeout is {timeout}; give 0 or more seconds.")
    answer = _ask(DRAIN, topology, site, Scope(sender, table), end=End(NEWEST))
    return _waited(topology, answer, Scope(sender, table), timeout, progress)


def stop_at(
    topology: Topology,
    site: str,
    at: int | datetime,
    *,
    sender: str | None = None,
    table: str | None = None,
    timeout: float | None = None,
    progress: Callable[[Sequence[StreamEnd]], None] | None = None,
) -> ControlAnswer:
    """Have the senders of a site send everything through a version or a time, and then nothing more
    until somebody resumes the streams. Both may be in the future.

    Args:
        at: The last version that is sent, of one ``table``; or a time with a time zone: the last
            commit until then is the last one that is sent.
        timeout: Seconds to wait until all sites have it; None: do not wait.

    The others are those of :func:`drain`.

    Raises:
        OptionError: a version of several tables, or one beyond which the table was published
            already; a time without a time zone; nothing of what is asked for is captured; the
            timeout is negative.
        TopologyError, ChannelError, LedgerError: as :func:`pause`.
    """
    if timeout is not None and not timeout >= 0:
        raise OptionError(f"stop: timeout is {timeout}; give 0 or more seconds.")
    scope = Scope(sender, table)
    answer = _ask(STOP, topology, site, scope, end=_end_at(at, table))
    point = f"version {at}" if isinstance(at, int) else f"the last commit until {at}"
    answer = replace(answer, point=point)
    if timeout is None:
        return answer
    return _waited(topology, answer, scope, timeout, progress)


def waiting(
    topology: Topology,
    site: str,
    *,
    sender: str | None = None,
    table: str | None = None,
    remote: str | None = None,
) -> tuple[Waiting, ...]:
    """Return what waits for other sites of the tables that a site captures: what :func:`clean`
    drops. The arguments and errors are those of :func:`clean`."""
    streams = _streams(topology, site, Scope(sender, table))
    _check_captured(CLEAN, site, streams)
    if remote is not None:
        topology.site(remote)
    names = {each.stream for each in streams if each.captured}
    found = []
    for channel in StatusReader(topology, site).read():
        problem = channel.problem
        for stream in channel.streams:
            if stream.stream not in names:
                continue
            if (problem := problem or stream.problem) is not None:
                raise ChannelError(f"clean: what waits in {stream.stream} is not known: {problem}")
            found += [
                Waiting(
                    stream.stream,
                    stream.log_id,
                    each.site,
                    first=max(each.acked, each.dropped or 0) + 1,
                    last=stream.epoch,
                    events=each.backlog_events,
                    bytes=each.backlog_bytes,
                )
                for each in stream.sites
                if each.served and each.backlog_bytes and remote in (None, each.site)
            ]
    return tuple(found)


def clean(
    topology: Topology,
    site: str,
    *,
    sender: str | None = None,
    table: str | None = None,
    remote: str | None = None,
    shown: Sequence[Waiting] | None = None,
) -> ControlAnswer:
    """Have the senders of a site drop what waits for other sites, of the tables that it captures.
    Such a site finds a gap, and gets a copy of the table in place of what was dropped, if its
    ``sync`` and ``auto_init`` let it; else somebody has to ask for one. So its rows are those of
    the source in the end, without each of the changes between.

    A sender does so once it notices the request. What was acked by then is not dropped, nor what
    was published after the call.

    Args:
        topology: Who sends what to whom.
        site: The site that sends.
        sender: Only of this sender; default: of all of the site.
        table: Only of this table; default: of all.
        remote: Only what waits for this site; default: for all.
        shown: What :func:`waiting` has returned, as somebody has seen it: nothing that came since
            is dropped. Default: what waits now.

    Raises:
        OptionError: nothing of what is asked for is captured: no table has the events from which
            the sites could get what they lack.
        TopologyError: as :func:`pause`; or ``remote`` is unknown.
        ChannelError, LedgerError: as :func:`pause`; or what waits is not known.
    """
    if shown is None:
        shown = waiting(topology, site, sender=sender, table=table, remote=remote)
    scope = Scope(sender, table)
    if not shown:
        here = topology.site(site)
        generation = ControlLog(here.state, here.storage).read()[0]
        streams = _streams(topology, site, scope)
        names = tuple(each.stream for each in streams if each.captured)
        return ControlAnswer(CLEAN, here.name, names, False, generation)
    lost = tuple((each.stream, each.log_id, each.site, each.last) for each in shown)
    asked = Clean(sender, table, remote, lost, generation=0, by="", at=0)
    return replace(_ask(CLEAN, topology, site, scope, clean=asked), waiting=tuple(shown))


def _end_at(at: int | datetime, table: str | None) -> End:
    if isinstance(at, datetime):
        if at.tzinfo is None:
            raise OptionError(
                f"stop: the time {at} has no time zone; write it as 2026-03-01T22:05:00Z or "
                "2026-03-01T22:05:00+01:00."
            )
        return End(AT_TIME, int(at.timestamp() * 1000))
    if isinstance(at, bool) or not isinstance(at, int) or at < 0:
        raise OptionError(f"stop: at is {at!r}; give a version of the table, or a time.")
    if table is None:
        raise OptionError(f"stop: versions are of one table: name it, beside version {at}.")
    return End(AT_VERSION, at)


def _waited(
    topology: Topology,
    answer: ControlAnswer,
    scope: Scope,
    timeout: float,
    progress: Callable[[Sequence[StreamEnd]], None] | None,
) -> ControlAnswer:
    """Return an answer with how far the streams are, once all have arrived, or at the time-out."""
    streams = [
        each for each in _streams(topology, answer.site, scope) if each.stream in answer.streams
    ]
    waits = [EndWait(topology, each) for each in streams]
    here, until = topology.site(answer.site), time.monotonic() + timeout
    log = ControlLog(here.state, here.storage)
    _, control = log.read()
    while True:
        ends = tuple(in_order(partial(EndWait.look, control=control), waits))
        if progress is not None:
            progress(ends)
        left = until - time.monotonic()
        if all(each.arrived for each in ends) or left <= 0:
            return replace(answer, ends=ends)
        time.sleep(min(LOOK_INTERVAL, left))
        with suppress(WanError):  # what was asked for before is waited for
            _, control = log.read()


def _ask(
    verb: str,
    topology: Topology,
    site: str,
    scope: Scope,
    *,
    capture: bool = False,
    end: End | None = None,
    clean: Clean | None = None,
) -> ControlAnswer:
    here = topology.site(site)
    streams = _streams(topology, here.name, scope)
    if capture or verb in (STOP, CLEAN):
        _check_captured(verb, site, streams)
    log = ControlLog(here.state, here.storage)
    enforcer = Enforcer(topology, here.name, log)
    least, rules = enforcer.rebuilt()
    newest = [] if verb == PAUSE else _newest(topology, streams, may_fail=verb != STOP)
    if verb == STOP:
        _check_is_ahead(end, newest)
    # An end counts until there is a request with a higher number.
    least_end = max((last.control for _, last in newest), default=0)

    def decide(generation: int, control: Control) -> Control | None:
        is_lost = log.read()[0] < least
        if is_lost:  # what the channels say was asked for
            control = replace(control, rules=rules)
        has_ended = any(
            WantedEnd(ending=control.end_of(each.sender.name, each.table.name)).has_ended(last)
            for each, last in newest
        )
        following = control.following(
            verb,
            scope,
            generation=generation,
            by=who(),
            at=milliseconds(),
            capture=capture,
            end=end,
            has_ended=has_ended,
            clean=clean,
        )
        # A drain that is asked for again is one of what was committed since.
        is_new = is_lost or verb == DRAIN or (verb == RESUME and has_ended)
        return following if is_new or following.meaning != control.meaning else None

    unpaused = _pauses(log.read()[1], streams) if verb in (DRAIN, STOP) else ()
    changed = log.add(decide, max(least, least_end))
    enforcer.enforce()
    # A query goes on, and so does what is forwarded.
    only_captured = verb in (STOP, CLEAN)
    asked = [each for each in streams if not each.is_copy and (each.captured or not only_captured)]
    names = tuple(each.stream for each in asked)
    generation = log.read()[0]
    return ControlAnswer(verb, here.name, names, changed, generation, unpaused=unpaused)


def _check_captured(verb: str, site: str, streams: Sequence[Controlled]) -> None:
    """Raise OptionError where none of the streams is captured."""
    if any(each.captured for each in streams):
        return
    names = ", ".join(sorted({each.table.name for each in streams}))
    advice = "Stop the query; or pause without capture."
    if verb == CLEAN:
        advice = "No table here has its events, so the sites could not get what they lack."
    raise OptionError(
        f"{verb}: no sender of site {site} captures {names}: a query of yours writes it, or it is "
        f"forwarded. {advice}"
    )


def who() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # in a container, a user may have no name
        user = str(os.getuid())
    return f"{user} at {socket.gethostname()}"


def _pauses(control: Control, streams: Sequence[Controlled]) -> tuple[str, ...]:
    """Return who has paused some of these streams."""
    rules = (control.pause_of(each.sender.name, each.table.name) for each in streams)
    return tuple(dict.fromkeys(rule.by for rule in rules if rule is not None))


def _newest(
    topology: Topology, streams: Sequence[Controlled], may_fail: bool
) -> list[tuple[Controlled, Manifest]]:
    """Return the newest manifests of captured streams; with ``may_fail``, as far as their channels
    answer."""

    def read(each: Controlled) -> Manifest | None:
        try:
            return log_of(topology, each).newest_manifest()
        except NoTopicsError:
            return None
        except WanError:
            if not may_fail:
                raise
            return None

    captured = [each for each in streams if each.captured]
    found = zip(captured, in_order(read, captured), strict=True)
    return [(each, manifest) for each, manifest in found if manifest is not None]


def _check_is_ahead(end: End | None, newest: Sequence[tuple[Controlled, Manifest]]) -> None:
    """Raise OptionError where a stream was published beyond the point with which it is to end."""
    for _, last in newest:
        if end is not None and end.is_passed_by(last):
            at_time = "a commit before that time"
            what = at_time if end.kind == AT_TIME else f"version {end.point}"
            raise OptionError(
                f"stop: {last.stream} was published through version {last.last_version} already, "
                f"so it cannot end with {what}. To end it now, run `spark-wan drain`."
            )


def _streams(topology: Topology, site: str, scope: Scope) -> list[Controlled]:
    """Return the streams of a scope. Raises TopologyError where there are none."""
    if scope.sender is not None:
        topology.sender_at(site, scope.sender)
    if scope.table is not None:
        topology.table(scope.table)
    streams = [*controlled(topology, site, scope)]
    if all(each.is_copy for each in streams):
        what = f"table {scope.table}" if scope.table is not None else "anything"
        by = f"sender {scope.sender}" if scope.sender is not None else f"site {site}"
        raise TopologyError(f"{topology.file}: {by} does not send {what}.")
    return streams
