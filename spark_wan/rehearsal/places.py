"""The places of a link that hold no table: the states of its sites, and its channel."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from spark_wan.channels.base import Channel
from spark_wan.channels.object_store import directory_of
from spark_wan.channels.objects import ObjectChannel
from spark_wan.channels.registry import open_channel
from spark_wan.errors import ChannelError, WanError
from spark_wan.log.writer import CheckpointStore
from spark_wan.rehearsal.findings import (
    CHANNEL,
    STATE,
    Finding,
    Part,
    Verdict,
    failed,
    ok,
    unknown,
    warning,
)
from spark_wan.rehearsal.nowhere import NoCheckpoints
from spark_wan.state.checkpoints import StoredCheckpoints
from spark_wan.state.control import ControlLog
from spark_wan.state.decisions import StoredDecisions
from spark_wan.topology.model import Sender, Site
from spark_wan.units import format_duration
from spark_wan.wire.control import Control
from spark_wan.wire.decisions import Decisions
from spark_wan.wire.names import printable

MOST_CLOCK_MS = 60_000
"""How far the clock of a channel may be from the clock here, in milliseconds."""
_MOST_NAMES = 5


def is_begun_place(url: str) -> bool:
    """Whether there may be something at a directory or URL. To open a directory would make it."""
    directory = directory_of(url)
    return directory is None or directory.is_dir()


def obstacle(directory: Path, *, makes: bool = True) -> str | None:
    """Return what keeps this process from writing to a directory, or from making it; None:
    nothing that shows. Writes nothing. ``makes``: a directory that is not there is made."""
    for place in (directory, *directory.parents) if makes else (directory,):
        if not os.path.lexists(place):
            continue
        if not place.is_dir():
            return f"{place} is no directory"
        if not os.access(place, os.W_OK | os.X_OK):
            return f"{place} cannot be written to"
        return None
    return f"{directory} is not there"


def control_of(site: Site) -> tuple[int, Control]:
    """Return what is wanted of the streams of a site, and the number of that request. Raises
    ChannelError, LedgerError."""
    if not is_begun_place(site.state):
        return 0, Control()
    return ControlLog(site.state, site.storage).read()


def decisions_of(site: Site, table: str) -> Decisions:
    """Return what was decided about a table at a site. Raises ChannelError, LedgerError."""
    if not is_begun_place(f"{site.state.rstrip('/')}/decisions"):
        return Decisions()
    return StoredDecisions(site.state, site.storage).load(table)


def checkpoints_of(site: Site, sender: str) -> CheckpointStore:
    """Return the checkpoints of a sender, to be read."""
    place = f"{site.state.rstrip('/')}/checkpoints/sender/{sender}"
    return StoredCheckpoints(place, site.storage) if is_begun_place(place) else NoCheckpoints()


def check_state(site: Site, tables: Iterable[str], is_here: bool) -> Part:
    """Check the state of a site, with what is recorded there about ``tables``, and its keys."""
    findings = [*_state(site, tables, is_here), *_keys(site)]
    return Part(STATE, site.name, site.name, site.state, tuple(findings))


def _state(site: Site, tables: Iterable[str], is_here: bool) -> Iterator[Finding]:
    directory = directory_of(site.state)
    if not is_begun_place(site.state):
        if not is_here:
            yield unknown(
                "state",
                f"{site.state} is not on this machine: the state of site {site.name} was not "
                "looked at. Check it there.",
            )
            return
        assert directory is not None
        problem = obstacle(directory)
        if problem is None:
            yield ok("state", "nothing is there yet; the first job of the site makes it")
        else:
            yield failed(
                "state",
                f"{site.state} is not there, and cannot be made: {problem}. Check that the "
                "site's `state` can be read and written.",
            )
        return
    if is_here and directory is not None and (problem := obstacle(directory)) is not None:
        yield failed("state", f"{problem}. Check that the site's `state` can be read and written.")
    try:
        generation, _ = control_of(site)
    except ChannelError as error:
        yield failed("state", error, is_here)
        return
    except WanError as error:
        yield ok("state", "it can be read")
        yield failed("control", error)
    else:
        yield ok("state", "it can be read")
        yield ok(
            "control",
            f"the control log has {generation} requests" if generation else "nothing is asked for",
        )
    for table in tables:
        try:
            decisions_of(site, table)
        except WanError as error:
            yield failed("decisions", error, is_here)


def _keys(site: Site) -> Iterator[Finding]:
    """Check that each signing key can be read: who sends to a site, or receives from it, needs
    them, too."""
    for reference in site.signing_keys:
        try:
            reference.secret()
        except WanError as error:
            yield failed("signing keys", error)
        else:
            yield ok("signing keys", f"{reference} can be read")


def check_channel(
    sender: Sender,
    streams: Iterable[str],
    *,
    probe: bool,
    clock: Callable[[], float] = time.time,
    open_: Callable[[str, Mapping[str, str]], Channel] = open_channel,
) -> Part:
    """Check the channel of a sender. ``streams``: those of the topology. ``probe``: write and
    delete its probe files. ``clock``: seconds since 1970 UTC."""
    findings: list[Finding] = []
    directory = directory_of(sender.channel)
    if not is_begun_place(sender.channel):
        assert directory is not None
        findings += _absent(directory, sender.channel, probe)
    else:
        try:
            channel = open_(sender.channel, sender.storage)
            findings += _begun(channel, [*streams])
            findings += _written(channel, directory, probe, clock)
        except WanError as error:
            findings.append(failed("channel", error))
    return Part(CHANNEL, sender.channel, None, sender.channel, tuple(findings))


def _absent(directory: Path, url: str, probe: bool) -> Iterator[Finding]:
    problem = obstacle(directory)
    if problem is not None:
        yield failed(
            "channel",
            f"channel {url}: it is not there, and cannot be made: {problem}. Mount its file "
            "system, or correct `channel` of the sender in the topology.",
        )
        return
    yield ok("channel", "there is no directory yet; the first job makes it")
    if probe:
        yield ok("write", "not tried: a probe would leave the directory behind")


def _begun(channel: Channel, streams: list[str]) -> Iterator[Finding]:
    if not channel.is_begun():
        yield from _not_begun(channel)
        return
    channel.notes("heads")
    acks = channel.notes("acks")
    yield ok("channel", f"it is begun, and can be listed; it has {len(acks)} acks")
    there = [name for name in streams if channel.stream_epochs(name, limit=1)]
    yield ok("streams", f"{len(there)} of {len(streams)} streams have begun")


def _not_begun(channel: Channel) -> Iterator[Finding]:
    if not isinstance(channel, ObjectChannel):
        yield ok("channel", "its topics are not begun yet; the sender makes and begins them")
        return
    found = channel.foreign()
    if not found:
        yield ok("channel", "it can be listed, and nothing is there yet; the first job begins it")
        return
    names = ", ".join(map(printable, found[:_MOST_NAMES]))
    yield warning(
        "channel",
        f"channel {channel.url}: no job has begun it, and {len(found):,} files are there that are "
        f"not spark_wan's: {names}{', …' if len(found) > _MOST_NAMES else ''}. Give the channel a "
        "place of its own.",
    )


def _written(
    channel: Channel, directory: Path | None, probe: bool, clock: Callable[[], float]
) -> Iterator[Finding]:
    problem = None if directory is None else obstacle(directory)
    if problem is not None:
        yield failed(
            "write",
            f"channel {channel.url}: {problem}. Check permissions: senders, sinks and receivers "
            "write to a channel.",
        )
    elif not probe:
        yield ok("write", "not tried: only a write shows it. Give --probe for that.")
    elif not isinstance(channel, ObjectChannel):
        yield ok("write", "not tried: what is written to topics stays there")
    else:
        yield from _probed(channel, clock)


def _probed(channel: ObjectChannel, clock: Callable[[], float]) -> Iterator[Finding]:
    try:
        channel.probe()
        before = clock()
        there = channel.now()
        after = clock()
    except WanError as error:
        yield failed("write", error)
        return
    yield ok("write", "a probe file was written and deleted")
    # The request took place between the two.
    apart = round(max(before - there, there - after, 0) * 1000)
    if apart > MOST_CLOCK_MS:
        yield warning(
            "clock",
            f"the clock of {channel.url} and the clock here are {format_duration(apart)} apart. "
            "The times that `spark-wan status` shows are off by that. Set both by NTP.",
        )
    else:
        yield ok("clock", "the clock of the channel and the clock here agree")


def can_be_read(channel: Part) -> bool:
    """Whether a channel can be read, by what was found of it."""
    return all(
        each.check != "channel" or each.verdict != Verdict.FAILED for each in channel.findings
    )
