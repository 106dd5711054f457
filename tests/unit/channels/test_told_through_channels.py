"""Limits of queues, heartbeats, and events that a site could not apply, over what keeps channels in
production: a directory, an S3-compatible server, and topics of a Kafka broker. Each rule has tests
of its own in memory; these show that what one process writes is what another one finds."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from fakes import STREAM, ack, publish
from limited_site import LimitedSite, one_epoch
from unit.ledger.test_read_dead_letters import APPLIED
from waiting import ENDS_WITH_US

from spark_wan.channels.base import MAX_RECORD_BYTES, Channel, Note
from spark_wan.errors import QueueFullError
from spark_wan.log.heart import EVERY
from spark_wan.log.notes import heartbeat, put_refused, put_sender_record
from spark_wan.log.stream_log import StreamLog
from spark_wan.status.reports import UNKNOWN, UP_TO_DATE, SiteReport, StatusReader
from spark_wan.sync.letters import reported
from spark_wan.topology.model import QueueLimits, Topology
from spark_wan.topology.parsing import parse_topology
from spark_wan.topology.signing import receiving_trust
from spark_wan.units import milliseconds
from spark_wan.wire.heartbeat import MISSED
from spark_wan.wire.refused import MOST_BYTES, MOST_CHARACTERS, MOST_EVENTS, RefusedEvents
from spark_wan.wire.sender_record import SenderRecord

pytestmark = [
    pytest.mark.rest,
    pytest.mark.parametrize("channel", ["directory", "s3", "kafka"], indirect=True),
]
SIZE = one_epoch()
SILENT = MISSED * EVERY
"""Milliseconds after its last heartbeat within which a job counts as connected."""


def elsewhere(channel: Channel) -> Channel:
    """Return the channel as another process opens it, which has read nothing."""
    return type(channel)(channel.url, channel.storage)


def topology(channel: Channel, folder: Path, keys: bool = False) -> Topology:
    """newark sends orders to seattle and tacoma. ``keys``: seattle signs what it says."""
    sites = ("newark", "seattle", "tacoma")
    states: dict[str, dict[str, object]] = {site: {"state": str(folder / site)} for site in sites}
    if keys:
        (folder / "key").write_text("k" * 40)
        states["seattle"]["signing_keys"] = [f"file:{folder / 'key'}"]
    sender = {"site": "newark", "remotes": ["seattle", "tacoma"], "channel": channel.url}
    orders = {
        "keys": ["id"],
        "writers": ["newark"],
        "senders": ["east"],
        "at": {site: str(folder / site / "orders") for site in sites},
    }
    content = {
        "version": 1,
        "sites": states,
        "senders": {"east": {**sender, "storage": dict(channel.storage)}},
        "tables": {"orders": orders},
    }
    return parse_topology(content, str(folder / "wan.yaml"))


# --- limits


def move(site: LimitedSite) -> None:
    """Have another process go on, which knows only what the channel says."""
    site.inner = site.channel = elsewhere(site.channel)
    site.inner.now = lambda: site.clock() / 1000  # type: ignore[method-assign]
    site.log, site.source.channel = StreamLog(site.channel, STREAM), site.channel
    site.restart()


def test_b03_a_queue_is_as_full_for_a_sender_elsewhere(channel: Channel) -> None:
    """``block``: it waits until an ack makes room. Fails when it begins to count anew, or waits for
    good."""
    site = LimitedSite(QueueLimits(bytes=2 * SIZE), channel=channel)
    site.commits(5)
    assert [site.published().epoch for _ in range(2)] == [1, 2]
    for _ in range(2):
        with pytest.raises(QueueFullError, match=r"wait for seattle, which has acked epoch 0 of 2"):
            site.round()
        move(site)
    assert elsewhere(channel).stream_epochs(STREAM) == [1, 2]
    ack(StreamLog(elsewhere(channel), STREAM), "seattle", 1, site.log.read(1).log_id)
    assert not site.is_full()
    assert site.is_full()
    site.collect()
    assert elsewhere(channel).stream_epochs(STREAM) == [2, 3]


def test_a_site_that_lags_is_dropped_and_comes_back(channel: Channel, tmp_path: Path) -> None:
    """``drop_reader``: the log goes on without it and is trimmed, whoever sends; what comes behind
    is kept for it. Fails when a drop is lost with the process, or holds for good."""
    limits = QueueLimits(bytes=2 * SIZE, policy="drop_reader")
    site = LimitedSite(limits, "seattle", "tacoma", channel=channel)
    site.commits(9)
    frames = [site.published().frames[0].path for _ in range(2)]
    site.ack("seattle", 2)
    dropped = site.published()
    assert (dropped.epoch, dict(dropped.dropped), dropped.frames) == (3, {"tacoma": 2}, ())
    move(site)
    assert site.published().dropped == {"tacoma": 2}
    site.ack("seattle", 4)
    move(site)
    site.collect()
    assert elsewhere(channel).stream_epochs(STREAM) == [3, 4]
    assert {*frames}.isdisjoint(path for path, _ in elsewhere(channel).frames(STREAM))
    [report] = [each for each in links(channel, tmp_path) if each.site == "tacoma"]
    assert (report.dropped, report.backlog_epochs) == (2, 2)
    site.ack("tacoma", 4)  # by a copy
    move(site)
    assert site.published().dropped == {}
    [report] = [each for each in links(channel, tmp_path) if each.site == "tacoma"]
    assert (report.dropped, report.acked) == (None, 4)


# --- heartbeats

JOB = """
import json, signal, sys
from spark_wan.channels.registry import open_channel
from spark_wan.log.heart import Heart
from spark_wan.units import milliseconds

url, storage, site = sys.argv[1:]
heart = Heart(open_channel(url, json.loads(storage)), site, milliseconds, {"east"})
signal.signal(signal.SIGTERM, lambda *_: (heart.stop(), sys.exit()))
heart.beat()
print("there", flush=True)
signal.pause()
"""


@contextmanager
def job(channel: Channel, site: str) -> Iterator[subprocess.Popen[str]]:
    """Run a process that says that a job of a site is there."""
    command = [sys.executable, "-c", JOB, channel.url, json.dumps(dict(channel.storage)), site]
    process = subprocess.Popen([*ENDS_WITH_US, *command], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "there\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def links(channel: Channel, folder: Path, later: int = 0) -> list[SiteReport]:
    """Return what the status says of the stream's sites, so many milliseconds from now."""
    reader = StatusReader(topology(channel, folder), clock=lambda: milliseconds() + later)
    [report] = reader.read()
    assert report.problem is None and report.foreign == ()
    [stream] = report.streams
    return [*stream.sites]


def test_b73_a_job_that_was_killed_is_silent_and_one_that_was_stopped_says_so(
    channel: Channel, tmp_path: Path
) -> None:
    """By another process's look at the channel. Fails when who was killed counts as connected until
    an ack is owed, or who goes on looks killed."""
    log = StreamLog(channel, STREAM)
    publish(log, 1, addressees=("seattle", "tacoma"))
    for site in ("seattle", "tacoma"):
        ack(log, site, 1)
    now = milliseconds()
    record = SenderRecord(STREAM, began=now, written=now, epoch=1, next_within=3_600_000)
    put_sender_record(channel, record)
    assert [each.connected for each in links(channel, tmp_path)] == [None, None]
    with (
        job(channel, "newark") as sender,
        job(channel, "seattle") as killed,
        job(channel, "tacoma") as stopped,
    ):
        assert [each.connected for each in links(channel, tmp_path)] == [True, True]
        stopped.send_signal(signal.SIGTERM)
        assert stopped.wait(60) == 0
        killed.kill()
        sender.kill()
        killed.wait()
        assert [each.connected for each in links(channel, tmp_path)] == [True, False]
        assert {each.state for each in links(channel, tmp_path)} == {UP_TO_DATE}
    late = links(channel, tmp_path, later=SILENT)
    assert [each.connected for each in late] == [False, False]
    assert {each.state for each in late} == {UNKNOWN}  # the sender is silent, too
    with job(channel, "newark"), job(channel, "seattle"):
        assert [each.connected for each in links(channel, tmp_path)] == [True, False]
        assert {each.state for each in links(channel, tmp_path)} == {UP_TO_DATE}


def test_a_heartbeat_is_one_small_note_that_is_replaced(channel: Channel) -> None:
    """Fails when it shows as an ack, a head or a foreign file, or one is left of each minute."""
    before = (channel.notes("acks"), channel.notes("heads"))
    began = set[int]()
    for _ in range(2):
        with job(channel, "seattle"):
            beat = heartbeat(elsewhere(channel), "east", "seattle")
            assert beat is not None and beat.stopped is None
            began.add(beat.began)
    assert len(began) == 2
    fresh = elsewhere(channel)
    assert (fresh.notes("acks"), fresh.notes("heads"), fresh.foreign()) == (*before, [])


# --- events that a site could not apply


def told(count: int, row: str = '{"id": 5}') -> RefusedEvents:
    letters = [replace(APPLIED, event_id=f"a{n}", at=n, row=row) for n in range(count, 0, -1)]
    return RefusedEvents.of_letters("seattle", STREAM, letters, milliseconds())


def test_b36_the_sender_lists_what_a_site_could_not_apply(channel: Channel, tmp_path: Path) -> None:
    """The newest record, of another process, up to its full size. Fails when one is cut, when an
    old one is listed, or what a stranger wrote."""
    world = topology(channel, tmp_path, keys=True)
    trust = receiving_trust(world, "seattle", channel.url)(STREAM)
    log = StreamLog(elsewhere(channel), STREAM, trust)
    assert reported(world, "newark").letters == []
    large = told(1_000, row="x" * MOST_CHARACTERS)
    assert MOST_BYTES / 2 < len(large.encode()) <= MOST_BYTES
    log.put_refused(large)
    found = reported(world, "newark")
    assert [each.letter.event_id for each in found.letters] == [
        each.event_id for each in large.events
    ]
    assert (found.more, found.problems) == (1_000 - len(large.events), [])
    log.put_refused(told(MOST_EVENTS))
    found = reported(world, "newark")
    assert ([*{each.site for each in found.letters}], len(found.letters), found.more) == (
        ["seattle"],
        MOST_EVENTS,
        0,
    )
    put_refused(channel, STREAM, "seattle", told(2).encode())  # unsigned
    found = reported(world, "newark")
    assert found.letters == [] and "it is not signed by that site" in found.problems[0]
    put_refused(channel, STREAM, "seattle", b"x" * (MAX_RECORD_BYTES - 1_000))
    assert reported(world, "newark").letters == []
    log.put_refused(told(0))
    assert (reported(world, "newark").letters, reported(world, "newark").problems) == ([], [])
    assert channel.note(Note("refused", STREAM, "tacoma")) is None
    assert elsewhere(channel).foreign() == []
