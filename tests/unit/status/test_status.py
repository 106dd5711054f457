"""The status of channels, read from logs and acks alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from fakes import manifest

from spark_wan.channels.base import Channel, Note, Version
from spark_wan.channels.object_store import ObjectStoreChannel
from spark_wan.channels.registry import open_channel
from spark_wan.cli.status import exit_code
from spark_wan.errors import ChannelError, TopologyError
from spark_wan.log.notes import put_ack, put_heartbeat, put_pause, put_receiver_record
from spark_wan.status.reports import (
    LATE,
    UP_TO_DATE,
    ChannelReport,
    PauseReport,
    ReceiverReport,
    SenderReport,
    SiteReport,
    StatusReader,
    StreamReport,
    WorkReport,
    read_status,
)
from spark_wan.topology.fingerprint import settings_fingerprint
from spark_wan.topology.model import Topology, copy_name
from spark_wan.topology.parsing import load_topology
from spark_wan.wire.ack import Ack, Need
from spark_wan.wire.frame import FrameRef
from spark_wan.wire.head import Pause
from spark_wan.wire.heartbeat import Heartbeat
from spark_wan.wire.manifest import CAPTURE, COPY, EVENTS, CopyOf, Manifest
from spark_wan.wire.receiver_record import NotApplied, ReceiverRecord
from spark_wan.wire.records import LongWork
from spark_wan.wire.sender_record import EndRequest, NotSent, SenderRecord

STREAM = "newark.east.flights"
SITES = ("seattle", "denver")


@pytest.fixture
def topology(tmp_path: Path) -> Topology:
    """newark sends flights to seattle and denver, and readings to denver over another channel."""
    places = {"newark": "./newark/{}", "seattle": "./seattle/{}", "denver": "./denver/{}"}
    content = {
        "version": 1,
        "sites": {site: {"state": f"./{site}/_wan"} for site in places},
        "senders": {
            "east": {"site": "newark", "remotes": list(SITES), "channel": "./channel"},
            "west": {"site": "newark", "remotes": ["denver"], "channel": "./other"},
        },
        "tables": {
            "flights": {
                "keys": ["id"],
                "writers": ["newark"],
                "senders": ["east"],
                "at": {site: place.format("flights") for site, place in places.items()},
            },
            "readings": {
                "writers": ["newark"],
                "senders": ["west"],
                "at": {site: places[site].format("readings") for site in ("newark", "denver")},
            },
        },
    }
    (tmp_path / "wan.yaml").write_text(yaml.safe_dump(content))
    return load_topology(tmp_path / "wan.yaml")


def publish(
    topology: Topology,
    epoch: int,
    *,
    events: int,
    size: int,
    log_id: str = "log-1",
    addressees: tuple[str, ...] = SITES,
    **more: Any,
) -> None:
    """Append ``epoch`` with one frame; it covers the version of that number, and is published so
    many seconds after 1970."""
    manifest = Manifest(
        stream=STREAM,
        log_id=log_id,
        epoch=epoch,
        previous="",
        kind=CAPTURE,
        origin="newark",
        sent_to=SITES,
        addressees=addressees,
        table="flights",
        table_id="id",
        selection="all",
        keys=("id",),
        schema={"type": "struct", "fields": []},
        first_version=epoch,
        last_version=epoch,
        start=epoch == 1,
        commits=(),
        identity="",
        frames=(FrameRef(f"frames/{STREAM}/{epoch:032x}-00000.frame", events, size, 0),),
        disjoint=True,
        created=1_000 * epoch,
    )
    manifest = replace(manifest, **more)
    channel = open_channel(topology.sender("east").channel)
    channel.append(manifest.stream, epoch, manifest.encode())


def answer(
    topology: Topology, site: str, applied: int, log_id: str = "log-1", **more: object
) -> None:
    ack = Ack(site, STREAM, log_id, applied, **more)  # type: ignore[arg-type]
    put_ack(open_channel(topology.sender("east").channel), STREAM, site, ack.encode())


def flights(topology: Topology) -> StreamReport:
    (stream,) = channels(topology)["east"].streams
    return stream


def channels(topology: Topology, site: str | None = None) -> dict[str, ChannelReport]:
    by_url = {sender.channel: sender.name for sender in topology.senders.values()}
    return {by_url[channel.url]: channel for channel in read_status(topology, site)}


def test_reading_the_status_creates_no_channel(topology: Topology, tmp_path: Path) -> None:
    """Fails without the check of the directory in `_channel`: obstore creates it."""
    stream = flights(topology)
    assert (stream.epoch, stream.version, stream.problem) == (0, None, None)
    assert stream.sites == (SiteReport("denver", 0, 0, 0, 0), SiteReport("seattle", 0, 0, 0, 0))
    assert not (tmp_path / "channel").exists()


def test_a_stream_that_is_removed_while_it_is_read_is_no_problem(
    topology: Topology, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fails (IndexError) when the newest manifest of an empty log is read."""
    publish(topology, 1, events=10, size=1_000)
    monkeypatch.setattr(ObjectStoreChannel, "manifest", _removed)
    monkeypatch.setattr(ObjectStoreChannel, "stream_epochs", lambda *_: [])
    stream = flights(topology)
    assert (stream.epoch, stream.problem) == (0, None)
    assert stream.sites == (SiteReport("denver", 0, 0, 0, 0), SiteReport("seattle", 0, 0, 0, 0))


def _removed(channel: ObjectStoreChannel, stream: str, number: int) -> bytes:
    raise ChannelError(f"{stream}: no manifest {number}")


def test_the_backlog_of_a_site_is_what_it_has_not_acked(topology: Topology) -> None:
    for number in (1, 2, 3):
        publish(topology, number, events=10 * number, size=1_000 * number)
    answer(topology, "seattle", 1)
    stream = flights(topology)
    assert (stream.epoch, stream.version, stream.published_at_ms) == (3, 3, 3_000)
    assert [
        (site.site, site.acked, site.backlog_epochs, site.backlog_events, site.backlog_bytes)
        for site in stream.sites
    ] == [("seattle", 1, 2, 50, 5_000), ("denver", 0, 3, 60, 6_000)]


def test_an_ack_counts_for_its_own_log_only(topology: Topology) -> None:
    """Fails when `acked_through` ignores the log ID."""
    publish(topology, 1, events=10, size=1_000, log_id="log-2")
    answer(topology, "seattle", 1, log_id="log-1")
    seattle = flights(topology).sites[0]
    assert (seattle.site, seattle.acked, seattle.backlog_epochs) == ("seattle", 0, 1)


def test_a_trimmed_log_is_no_problem(topology: Topology) -> None:
    for number in (1, 2, 3):
        publish(topology, number, events=1, size=100)
    for site in SITES:
        answer(topology, site, 3)
    channel = open_channel(topology.sender("east").channel)
    for number in (1, 2):
        channel.trim_manifest(STREAM, number)
    stream = flights(topology)
    assert stream.problem is None
    assert [(site.acked, site.backlog_epochs) for site in stream.sites] == [(3, 0), (3, 0)]


def test_a_held_stream_is_reported_with_its_cause(topology: Topology) -> None:
    publish(topology, 1, events=10, size=1_000)
    answer(topology, "denver", 0, held=1, cause="the table is missing", dead_letters=7)
    denver = flights(topology).sites[1]
    assert (denver.held_at, denver.cause, denver.dead_letters) == (1, "the table is missing", 7)
    assert (denver.needs, denver.needs_since_ms) == (None, None)


def test_a_site_that_needs_a_copy_is_reported(topology: Topology) -> None:
    publish(topology, 1, events=10, size=1_000)
    answer(topology, "denver", 0, held=1, cause="dropped", needs=Need("table", (), 1_700))
    denver = flights(topology).sites[1]
    assert (denver.state, denver.needs, denver.needs_since_ms) == ("held", "table", 1_700)


def test_copies_are_reported_until_they_are_taken(topology: Topology) -> None:
    """Fails when each table that ever had a copy is in the status for ever."""
    name = copy_name(STREAM, "denver")
    copies: dict[str, Any] = {"stream": name, "kind": COPY, "addressees": ("denver",), "frames": ()}
    publish(topology, 1, events=10, size=1_000)
    publish(topology, 1, events=10, size=1_000, **copies, copy=CopyOf("r1"))
    names = [stream.stream for stream in channels(topology)["east"].streams]
    assert names == [STREAM, name]
    publish(topology, 2, events=0, size=0, **copies, copy=CopyOf(""))
    east = channels(topology)["east"].streams
    assert [(stream.stream, stream.problem) for stream in east] == [(STREAM, None)]


def test_a_gap_in_the_log_is_a_problem_of_its_stream(topology: Topology) -> None:
    for number in (1, 3):
        publish(topology, number, events=1, size=100)
    reports = channels(topology)
    assert "goes from 1 to 3" in (reports["east"].streams[0].problem or "")
    assert [stream.problem for stream in reports["west"].streams] == [None]


def test_a_stray_manifest_below_the_log_is_no_problem(topology: Topology) -> None:
    """f47: a frozen writer left it where the log is trimmed."""
    for number in (1, 3):
        publish(topology, number, events=1, size=100)
    for site in ("denver", "seattle"):
        answer(topology, site, 2)
    stream = flights(topology)
    assert (stream.problem, [site.backlog_epochs for site in stream.sites]) == (None, [1, 1])


def test_f52_a_site_that_is_no_longer_served_is_reported_as_such(topology: Topology) -> None:
    publish(topology, 1, events=1, size=100, addressees=("denver", "seattle", "tacoma"))
    assert {site.site: site.served for site in flights(topology).sites} == {
        "denver": True,
        "seattle": True,
        "tacoma": False,
    }


def test_an_altered_manifest_is_a_problem_of_its_stream(topology: Topology, tmp_path: Path) -> None:
    publish(topology, 1, events=1, size=100)
    (path,) = (tmp_path / "channel").rglob("0*1.json")
    path.write_bytes(path.read_bytes()[:-5])
    assert "truncated or altered" in (flights(topology).problem or "")


def test_foreign_files_are_reported(topology: Topology, tmp_path: Path) -> None:
    publish(topology, 1, events=1, size=100)
    (tmp_path / "channel" / "notes.txt").write_text("whose is this?")
    assert channels(topology)["east"].foreign == ("notes.txt",)


def test_only_the_streams_of_the_named_site_are_reported(topology: Topology) -> None:
    assert set(channels(topology, "seattle")) == {"east"}
    assert set(channels(topology, "denver")) == {"east", "west"}


def test_an_unknown_site_is_refused(topology: Topology) -> None:
    with pytest.raises(TopologyError, match="did you mean 'seattle'"):
        read_status(topology, "seatle")


# --- how far behind, and since when


def at(topology: Topology, seconds: float) -> StreamReport:
    """Return the report of the stream as it is read so many seconds after 1970."""
    east = topology.sender("east").channel
    reports = StatusReader(topology, clock=lambda: int(seconds * 1000)).read()
    (stream,) = next(channel for channel in reports if channel.url == east).streams
    return stream


def answered(monkeypatch: pytest.MonkeyPatch, **seconds: float) -> None:
    """Let the acks of sites have been written so many seconds after 1970."""
    versions = {Note("ack", STREAM, site): Version("", at) for site, at in seconds.items()}
    monkeypatch.setattr(ObjectStoreChannel, "notes", lambda *_: versions)


def test_a_site_is_behind_by_the_age_of_the_oldest_commit_that_it_lacks(
    topology: Topology,
) -> None:
    """Fails when it is the age of the epoch: a sender that was stopped for an hour publishes an
    hour of commits at once."""
    publish(topology, 1, events=1, size=1, commits=({"version": 1, "time": 200},))
    old = ({"version": 3, "time": 900}, {"version": 2, "time": 400})
    publish(topology, 2, events=1, size=1, commits=old)
    answer(topology, "seattle", 1)
    sites = at(topology, 3.0).sites
    assert {site.site: site.behind_ms for site in sites} == {"seattle": 2_600, "denver": 2_800}
    answer(topology, "seattle", 2)
    assert at(topology, 3.0).sites[0].behind_ms is None


def test_a_site_is_not_behind_by_epochs_that_were_not_for_it(topology: Topology) -> None:
    """denver is served since epoch 2. Fails when it seems to be as far behind as seattle."""
    publish(topology, 1, events=10, size=100, addressees=("seattle",))
    publish(topology, 2, events=1, size=1)
    found = {
        site.site: (site.backlog_epochs, site.backlog_events, site.behind_ms)
        for site in at(topology, 5.0).sites
    }
    assert found == {"seattle": (2, 11, 4_000), "denver": (1, 1, 3_000)}


def test_an_epoch_without_commits_is_as_old_as_its_manifest(topology: Topology) -> None:
    """A snapshot, events of a user stream, and commits without row changes."""
    publish(topology, 1, events=1, size=1)
    assert at(topology, 5.0).sites[0].behind_ms == 4_000
    assert at(topology, 0.5).sites[0].behind_ms == 0  # the sender's clock is ahead of this one


def test_an_ack_that_does_not_come_is_overdue(
    topology: Topology, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the sender's `ack_timeout`, 60 s: since the site answered last, or since what it owes
    was published. Fails when a site that answers slowly, or holds the stream, is called silent."""
    publish(topology, 100, events=1, size=1)
    answer(topology, "denver", 50)
    for applied, answer_at, now, since in (
        (50, 110.0, 165.0, None),
        (50, 110.0, 175.0, 110_000),  # it answered something else since
        (50, 90.0, 155.0, None),  # published since its answer
        (50, 90.0, 165.0, 100_000),
        (100, 90.0, 999.0, None),
    ):
        answer(topology, "denver", applied)
        answered(monkeypatch, denver=answer_at)
        seattle, denver = at(topology, now).sites
        assert (denver.site, denver.answered_at_ms) == ("denver", int(answer_at * 1000))
        assert denver.overdue_since_ms == since
        assert seattle.answered_at_ms is None
    assert seattle.overdue_since_ms == 100_000
    answer(topology, "denver", 50, held=51, cause="full")
    held = at(topology, 999.0).sites[1]
    assert (held.overdue_since_ms, held.answered_at_ms) == (None, 90_000)


def test_no_ack_is_owed_for_some_parts_of_a_copy(topology: Topology) -> None:
    """Only for all of them. Fails when a site that waits for the rest of a copy is silent."""
    name = copy_name(STREAM, "denver")
    copies: dict[str, Any] = {"stream": name, "kind": COPY, "addressees": ("denver",), "frames": ()}
    read_at: dict[int, int | None] = {}
    for part in (1, 2, 3):
        copy = CopyOf("r1", part=part, parts=3)
        publish(topology, part, events=10, size=1_000, **copies, copy=copy)
        reader = StatusReader(topology, clock=lambda: 999_000)
        streams = {stream.stream: stream for each in reader.read() for stream in each.streams}
        assert streams[name].problem is None
        (denver,) = streams[name].sites
        assert denver.backlog_epochs == part
        read_at[part] = denver.overdue_since_ms
    assert read_at == {1: None, 2: None, 3: 3_000}


def test_a_backlog_is_read_once(topology: Topology, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a reader that reads again and again. Fails when each time reads every manifest; and when
    the epochs of a log that was begun anew are taken for those of the one before."""
    for number in (1, 2, 3, 4):
        publish(topology, number, events=number, size=1)
    reads: list[int] = []
    manifest = ObjectStoreChannel.manifest

    def counted(channel: ObjectStoreChannel, stream: str, epoch: int) -> bytes:
        reads.append(epoch)
        return manifest(channel, stream, epoch)

    monkeypatch.setattr(ObjectStoreChannel, "manifest", counted)
    reader = StatusReader(topology, "seattle")

    def backlog() -> tuple[int, int]:
        reads.clear()
        (report,) = reader.read()
        site = report.streams[0].sites[0]
        return site.backlog_epochs, site.backlog_events

    assert (backlog(), sorted(set(reads))) == ((4, 10), [1, 2, 3, 4])
    assert (backlog(), reads) == ((4, 10), [4])  # the newest is always read
    publish(topology, 5, events=5, size=1)
    assert (backlog(), reads) == ((5, 15), [5])
    channel = open_channel(topology.sender("east").channel)
    for number in (1, 2, 3, 4, 5):
        channel.trim_manifest(STREAM, number)
        publish(topology, number, events=100, size=1, log_id="log-2")
    assert backlog() == (5, 500)


# --- the sender's record


def record(topology: Topology, **changes: Any) -> None:
    """Write the record of the sender of the stream."""
    sender, table = topology.sender("east"), topology.table("flights")
    settings = settings_fingerprint(topology, sender, table)
    made = SenderRecord(STREAM, began=500, written=900, settings=settings)
    channel = open_channel(sender.channel)
    channel.put_note(Note("sender", STREAM), replace(made, **changes).encode())


def test_what_the_sender_says_is_reported(topology: Topology) -> None:
    """Also of a stream that has published nothing. Fails when only streams with a log are read."""
    held = "no change feed. Set it."
    record(
        topology,
        held=held,
        held_since=700,
        epochs=3,
        events=9,
        batches=4,
        bytes=80,
        duplicates=5,
        alert="epoch 2 does not meet the ack policy",
        not_sent=NotSent(local_only=2),
    )
    expected = SenderReport(
        held=held,
        held_as="held",
        held_since_ms=700,
        began_ms=500,
        epochs=3,
        events=9,
        batches=4,
        bytes=80,
        dead_letters=0,
        duplicates=5,
        not_sent=NotSent(local_only=2),
        queue_full=None,
        queue_full_since_ms=None,
        alert="epoch 2 does not meet the ack policy",
        written_ms=900,
        settings_generation=1,
        waiting=0,
        delayed=0,
        work=None,
        stopped_ms=None,
        silent_since_ms=None,
        other_settings=False,
        ending=None,
        history_until_ms=None,
        retention_ms=None,
        duplicates_query=(
            f"SELECT `id`, count(*) FROM delta.`{topology.table('flights').location('newark')}` "
            "GROUP BY `id` HAVING count(*) > 1"
        ),
    )
    assert flights(topology).sender == expected
    publish(topology, 1, events=1, size=1)
    assert flights(topology).sender == expected


def test_the_history_of_a_source_lasts_from_what_is_not_sent_on(topology: Topology) -> None:
    """Where the sender does not go on, or has something to send. Fails when a table of a sender
    that looks at it each minute seems about to lose its history."""

    def until(**fields: Any) -> int | None:
        said = {"next_within": 3_600_000, "history_from": 1_000, "retention": 50_000, **fields}
        record(topology, **said)
        channels = StatusReader(topology, clock=lambda: 10_000).read()
        (sender,) = (each.sender for each in channels[0].streams if each.table == "flights")
        assert sender is not None and sender.retention_ms == said["retention"]
        return sender.history_until_ms

    assert until() is None
    for fields in (
        {"waiting": 1},
        {"held": "no change feed"},
        {"queue_full": "9 GB wait"},
        {"stopped": 800},
        {"next_within": 0},
        {"next_within": 1_000},
        {"ending": EndRequest("ann", "newest")},
    ):
        assert until(**fields) == 51_000, fields
    assert until(waiting=1, retention=None) is None
    assert until(waiting=1, history_from=None) is None
    assert until(waiting=1, retention=2**62) is None
    channel = open_channel(topology.sender("east").channel)
    put_pause(channel, STREAM, Pause(1, "ann", 5))
    assert until() is None
    put_pause(channel, STREAM, Pause(1, "ann", 5, capture=True))
    assert until() == 51_000


def states(topology: Topology, at: int = 10_000) -> dict[str, str]:
    """Return the state of each link of flights, so many milliseconds after 1970."""
    (channel, _) = StatusReader(topology, clock=lambda: at).read()
    (stream,) = channel.streams
    return {site.site: site.state for site in stream.sites}


def test_the_states_of_a_link(topology: Topology) -> None:
    """From its sender's record and its site's ack. Fails when a sender that was stopped or killed
    looks as if all was well, or commits that it has not published do not count."""
    publish(topology, 1, events=1, size=1)
    answer(topology, "seattle", 1)
    assert states(topology) == {"seattle": "up to date", "denver": "late"}
    answer(topology, "denver", 1)
    record(topology, waiting=18)
    assert states(topology) == {"seattle": "late", "denver": "late"}
    record(topology, stopped=800)
    assert set(states(topology).values()) == {"stopped"}
    record(topology, next_within=1_000)
    assert set(states(topology, at=2_900).values()) == {"up to date"}
    assert set(states(topology, at=2_901).values()) == {"unknown"}
    record(topology, held="no change feed", next_within=1_000)
    assert set(states(topology).values()) == {"held"}


def beat(topology: Topology, site: str, **changes: Any) -> None:
    """Write the heartbeat of a site's job at the sender's channel."""
    made = replace(Heartbeat("east", site, 500, 60_000, 900), **changes)
    put_heartbeat(open_channel(topology.sender("east").channel), made)


def receiver_record(topology: Topology, site: str, **changes: Any) -> None:
    """Write the record of a site's receiver."""
    made = replace(ReceiverRecord(site, STREAM, 500, 900), **changes)
    put_receiver_record(open_channel(topology.sender("east").channel), made)


def links(topology: Topology, at: int) -> dict[str, SiteReport]:
    (channel, _) = StatusReader(topology, clock=lambda: at).read()
    (stream,) = channel.streams
    return {site.site: site for site in stream.sites}


def test_b73_a_receiver_that_stops_or_dies_is_not_connected(topology: Topology) -> None:
    """Within minutes, whatever its records say of their next time. Fails when a killed receiver is
    found out when an ack is owed."""
    publish(topology, 1, events=1, size=1)
    answer(topology, "seattle", 1)
    assert links(topology, 1_000)["seattle"].connected is None
    receiver_record(topology, "seattle", next_within=3_600_000)
    beat(topology, "seattle")
    seattle = links(topology, 900 + 180_000)["seattle"]
    assert (seattle.connected, seattle.seen_ms) == (True, 900)
    assert seattle.receiver is not None and seattle.receiver.silent_since_ms is None
    seattle = links(topology, 900 + 180_001)["seattle"]
    assert (seattle.connected, seattle.seen_ms) == (False, 900)
    assert seattle.receiver is not None and seattle.receiver.silent_since_ms == 900
    # A record of the stream is a sign of life, too.
    receiver_record(topology, "seattle", next_within=3_600_000, written=200_000)
    seattle = links(topology, 900 + 180_001)["seattle"]
    assert seattle.seen_ms == 200_000
    assert seattle.receiver is not None and seattle.receiver.silent_since_ms is None
    beat(topology, "seattle", stopped=950)
    assert links(topology, 1_000)["seattle"].connected is False
    beat(topology, "seattle", every=0)  # the next run may be tomorrow
    seattle = links(topology, 10_000_000)["seattle"]
    assert seattle.connected is None
    assert seattle.receiver is not None and seattle.receiver.silent_since_ms == 200_000


def test_a_sender_that_was_killed_is_found_out_within_minutes(topology: Topology) -> None:
    publish(topology, 1, events=1, size=1)
    answer(topology, "seattle", 1)
    record(topology, next_within=3_600_000)
    at = 900 + 180_001
    assert states(topology, at)["seattle"] == "up to date"
    beat(topology, "newark")
    assert states(topology, at - 1)["seattle"] == "up to date"
    assert states(topology, at)["seattle"] == "unknown"
    beat(topology, "newark", written=at)
    assert states(topology, at)["seattle"] == "up to date"
    data = Heartbeat("east", "newark", 500, 60_000, 900).encode().replace(b"2,", b"9,", 1)
    open_channel(topology.sender("east").channel).put_note(
        Note("heartbeat", "east", "newark"), data
    )
    assert states(topology, at)["seattle"] == "up to date"  # of a later version


def test_who_is_not_there_retries_nothing(topology: Topology) -> None:
    """A job was stopped, or killed, while it retried. Fails when it looks as if it went on to, with
    a cause that may have passed long ago."""
    publish(topology, 1, events=1, size=1)
    answer(topology, "seattle", 1)
    answer(topology, "denver", 0, held=1, cause="full", since=900, passes=True)
    beat(topology, "denver")
    receiver_record(topology, "denver", next_within=3_600_000)
    assert states(topology, 1_000)["denver"] == "retrying"
    silent = 900 + 180_001
    assert states(topology, silent)["denver"] == "late"
    receiver_record(topology, "denver", stopped=950)
    assert states(topology, 1_000)["denver"] == "late"
    answer(topology, "denver", 0, held=1, cause="dropped", since=900)
    assert states(topology, 1_000)["denver"] == "held"  # that has to be decided all the same
    record(topology, held="slow", held_since=900, passes=True)
    assert states(topology, 1_000)["seattle"] == "retrying"
    record(topology, held="slow", held_since=900, passes=True, stopped=950)
    assert states(topology, 1_000)["seattle"] == "stopped"
    record(topology, held="slow", held_since=900, passes=True, next_within=1)
    assert states(topology, 1_000)["seattle"] == "unknown"


def test_a_sender_that_retries_does_not_hide_a_site_that_owes_an_ack(topology: Topology) -> None:
    publish(topology, 1, events=1, size=1)
    timeout = int(topology.sender("east").ack_timeout * 1000)
    answer(topology, "seattle", 1)
    record(topology, held="slow", held_since=900, passes=True)
    late = 10_000 + timeout
    assert states(topology, late) == {"seattle": "retrying", "denver": "no answer"}


def test_another_job_with_the_same_heartbeats_hides_nobody(topology: Topology) -> None:
    """Of another table, or one that forwards. Fails when a killed sender looks alive for ever."""
    publish(topology, 1, events=1, size=1)
    answer(topology, "seattle", 1)
    record(topology, next_within=3_600_000)
    later = 900 + 2 * 3_600_000
    beat(topology, "newark", written=later)
    assert states(topology, later)["seattle"] == "up to date"
    assert states(topology, later + 1)["seattle"] == "unknown"
    beat(topology, "newark", written=1_000, stopped=1_000)
    assert states(topology, 1_000)["seattle"] == "unknown"  # it did not say so of the stream


def test_what_may_pass_is_retried_until_it_has_failed(topology: Topology) -> None:
    """A link is as bad as the worse of its ends. Fails when a store that is slow for a moment looks
    like a decision that is waited for; and when it looks so for ever."""
    publish(topology, 1, events=1, size=1)
    answer(topology, "seattle", 1)
    timeout = int(topology.site("denver").retry_timeout * 1000)
    answer(topology, "denver", 0, held=1, cause="full", since=700, passes=True)
    now = 700 + timeout
    assert states(topology, now) == {"seattle": "up to date", "denver": "retrying"}
    assert states(topology, now + 1) == {"seattle": "up to date", "denver": "failed"}
    report = StatusReader(topology, clock=lambda: now + 1).read()
    [denver] = [
        site
        for channel in report
        for stream in channel.streams
        for site in stream.sites
        if site.held_as is not None
    ]
    assert (denver.site, denver.held_since_ms, denver.held_as) == ("denver", 700, "failed")
    record(topology, held="slow", held_since=now, passes=True)
    assert states(topology, now + 1) == {"seattle": "retrying", "denver": "failed"}
    record(topology, held="slow", held_since=now)
    assert states(topology, now + 1) == {"seattle": "held", "denver": "held"}
    record(topology)
    answer(topology, "denver", 0, held=1, cause="full", passes=True)  # without a time
    assert states(topology, now + 1)["denver"] == "retrying"
    answer(topology, "denver", 0, held=1, cause="full", since=700)
    assert states(topology, now + 1)["denver"] == "held"


def test_b17_a_sender_that_has_sent_nothing_is_starting_once_it_has_something_to_send(
    topology: Topology,
) -> None:
    assert set(states(topology).values()) == {"nothing sent yet"}
    record(topology)
    assert set(states(topology).values()) == {"nothing sent yet"}
    record(topology, waiting=3)
    assert set(states(topology).values()) == {"starting"}
    record(topology, work=LongWork(1_000, 600))
    assert set(states(topology).values()) == {"starting"}
    record(topology, waiting=3, stopped=800)
    assert set(states(topology).values()) == {"stopped"}


def test_a_paused_stream_is_paused_and_not_late(topology: Topology) -> None:
    """A site owes no ack. But a sender that was killed is a fault all the same: it should go on to
    add to the channel."""
    publish(topology, 1, events=1, size=1)
    answer(topology, "seattle", 1)
    channel, later = open_channel(topology.sender("east").channel), 1_000_000
    put_pause(channel, STREAM, Pause(4, "ann at here", 700, capture=True))
    assert states(topology, later) == {"seattle": "paused", "denver": "paused"}
    stream = flights(topology)
    assert stream.paused == PauseReport("ann at here", 700, capture=True, generation=4)
    assert stream.sites[1].overdue_since_ms is None and stream.sites[1].backlog_epochs == 1
    record(topology, next_within=1_000)
    assert set(states(topology, later).values()) == {"unknown"}
    record(topology, stopped=800)
    assert set(states(topology).values()) == {"stopped"}
    record(topology, held="no change feed")
    assert set(states(topology).values()) == {"held"}
    record(topology)
    timeout = int(topology.sender("east").ack_timeout * 1000)
    put_pause(channel, STREAM, Pause(4, "ann at here", 700, capture=True, until=later))
    assert states(topology, later + timeout) == {"seattle": "up to date", "denver": "late"}
    assert states(topology, later + timeout + 1)["denver"] == "no answer"
    assert flights(topology).paused is None


def test_a_site_that_applies_a_large_epoch_is_not_overdue(
    topology: Topology, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For two hours. Nor one whose sender holds the stream. Fails when a healthy first copy looks
    like a fault."""
    publish(topology, 1, events=1, size=1)
    later = 1_000_000
    assert states(topology, later) == {"seattle": "no answer", "denver": "no answer"}
    answer(topology, "seattle", 0, working=1)
    assert states(topology, later) == {"seattle": "late", "denver": "no answer"}
    # A copy, or the first apply, before the first ack.
    work = LongWork(8_000, 400, later - 100_000, 25)
    said = ReceiverRecord("denver", STREAM, 300, later - 119_999, work=work)
    channel = open_channel(topology.sender("east").channel)
    put_receiver_record(channel, said)
    assert states(topology, later)["denver"] == "late"
    old = replace(work, began=later - 7_200_000)
    for silent in (
        {"written": later - 120_000},
        {"written": later + 120_000},  # by a clock that is ahead: nobody knows when
        {"work": None},
        {"work": old},
        {"stopped": later},
    ):
        put_receiver_record(channel, replace(said, **silent))
        assert states(topology, later)["denver"] == "no answer"
    answered(monkeypatch, seattle=1.0)
    assert states(topology, 7_200_999)["seattle"] == "late"
    assert states(topology, 7_201_000)["seattle"] == "no answer"
    record(topology, held="no change feed")
    assert set(states(topology, later).values()) == {"held"}
    assert flights(topology).sites[1].overdue_since_ms is None


def test_a_site_that_was_added_to_a_running_stream_lacks_what_came_before(
    topology: Topology,
) -> None:
    """Before anything is sent to it, and when something is. Fails when it seems to be behind by the
    new epochs alone."""
    publish(topology, 1, events=50_000, size=1, addressees=("seattle",))
    answer(topology, "seattle", 1)
    seattle, denver = flights(topology).sites
    assert (seattle.state, seattle.lacks_before) == ("up to date", None)
    assert (denver.site, denver.state, denver.lacks_before) == ("denver", "late", 2)
    publish(topology, 2, events=83, size=1)
    denver = next(site for site in flights(topology).sites if site.site == "denver")
    assert (denver.backlog_events, denver.lacks_before) == (83, 2)
    answer(topology, "denver", 2)
    denver = next(site for site in flights(topology).sites if site.site == "denver")
    assert (denver.state, denver.lacks_before) == ("up to date", None)


def test_a_site_that_was_added_to_a_user_stream_lacks_the_events_before(
    topology: Topology,
) -> None:
    """They have no version of a table."""
    events: dict[str, Any] = {"kind": EVENTS, "first_version": -1, "last_version": -1}
    publish(topology, 1, events=50, size=1, addressees=("seattle",), **events)
    assert [site.lacks_before for site in flights(topology).sites] == [None, -1]
    publish(topology, 2, events=83, size=1, **events)
    lacks = {site.site: site.lacks_before for site in flights(topology).sites}
    assert lacks == {"seattle": None, "denver": -1}


@pytest.mark.parametrize(
    ("seattle", "denver", "code"),
    [
        ("up to date", "late", 0),
        ("nothing sent yet", "no longer served", 0),
        ("held", "stopped", 3),
        ("no answer", "up to date", 4),
        ("unknown", "late", 4),
        ("late", "stopped", 4),
        ("paused", "late", 0),
    ],
)
def test_the_exit_code_says_what_is_wrong(seattle: str, denver: str, code: int) -> None:
    sites = (SiteReport("seattle", state=seattle), SiteReport("denver", state=denver))
    stream = StreamReport(STREAM, "flights", "newark", sites=sites)
    assert exit_code([ChannelReport("/channel", (stream,))]) == code
    unreadable = replace(stream, problem="damaged")
    assert exit_code([ChannelReport("/channel", (stream, unreadable))]) == 1
    assert exit_code([ChannelReport("/channel", (stream,), problem="403")]) == 1


def test_other_settings_than_those_of_the_topology_are_reported(topology: Topology) -> None:
    """Not where the sender's are unknown: a sink without a topology."""
    record(topology, settings="0" * 32, settings_generation=3)
    sender = flights(topology).sender
    assert sender is not None
    assert (sender.other_settings, sender.settings_generation) == (True, 3)
    record(topology, settings="")
    sender = flights(topology).sender
    assert sender is not None and not sender.other_settings


def test_what_receivers_say_is_reported(topology: Topology) -> None:
    """Before its first ack, too: the first apply may be the longest."""
    publish(topology, 1, events=1, size=1)
    channel = open_channel(topology.sender("east").channel)
    work = LongWork(8_000, 400, 90, 25)
    dropped = NotApplied(superseded=6)
    said = ReceiverRecord("seattle", STREAM, 300, 900, 3, 9, 5, 2, 4, work, next_within=1)
    said = replace(said, not_applied=dropped)
    put_receiver_record(channel, said)
    found = {site.site: site.receiver for site in flights(topology).sites}
    reported = WorkReport(8_000, 90, 400, 0.25, 900, 4_000, 1_500)
    silent = ReceiverReport(300, 3, 9, 5, 2, 4, dropped, reported, 900, None, 900)
    assert found == {"denver": None, "seattle": silent}
    put_receiver_record(channel, replace(said, work=replace(work, percent=None), stopped=950))
    (found_now,) = (site.receiver for site in flights(topology).sites if site.site == "seattle")
    unknown = replace(reported, share=None, rows_per_s=None, left_ms=None)
    assert found_now == replace(silent, work=unknown, stopped_ms=950, silent_since_ms=None)
    channel.put_note(Note("receiver", STREAM, "seattle"), b'{"version":3}')
    assert [site.receiver for site in flights(topology).sites] == [None, None]


def test_a_capture_that_takes_long_is_reported(topology: Topology) -> None:
    record(topology, work=LongWork(8_000, 400, None, 50))
    sender = flights(topology).sender
    assert sender is not None and sender.work == WorkReport(8_000, None, 400, 0.5, 900, 8_000, 500)


def test_without_a_record_there_is_nothing_to_say_of_the_sender(topology: Topology) -> None:
    """One of an older version. Fails when it is a problem."""
    publish(topology, 1, events=1, size=1)
    stream = flights(topology)
    assert (stream.sender, stream.sender_problem, stream.problem) == (None, None, None)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"{", "the sender's record is damaged"),
        (b'{"version":3,"all":"new"}', "written by a newer spark_wan, in version 3"),
    ],
)
def test_f51_a_record_that_cannot_be_read_is_reported_and_the_rest_is_read(
    topology: Topology, data: bytes, problem: str
) -> None:
    """Fails when the status ends, or the stream counts as unreadable."""
    publish(topology, 1, events=10, size=1)
    open_channel(topology.sender("east").channel).put_note(Note("sender", STREAM), data)
    stream = flights(topology)
    assert problem in (stream.sender_problem or "")
    assert (stream.sender, stream.problem, stream.sites[0].backlog_events) == (None, None, 10)


def test_a_record_that_the_channel_does_not_give_is_reported_so(
    topology: Topology, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> bytes:
        raise ChannelError("403: senders/ may not be read")

    publish(topology, 1, events=10, size=1)
    monkeypatch.setattr(ObjectStoreChannel, "note", refuse)
    stream = flights(topology)
    assert stream.sender_problem == "403: senders/ may not be read"
    assert stream.sites[0].backlog_events == 10


# --- channels that come and go, and forwarded streams


def test_a_channel_that_goes_and_comes_again_is_read_again(
    topology: Topology, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(topology, 1, events=1, size=1)
    reader, read = StatusReader(topology, "seattle"), ObjectStoreChannel.epochs

    def away(channel: Channel) -> dict[str, list[int]]:
        raise ChannelError(f"{channel.url}: no answer")

    found = []
    for epochs in (read, away, read):
        monkeypatch.setattr(ObjectStoreChannel, "epochs", epochs)
        (report,) = reader.read()
        found.append((report.problem is None, [stream.epoch for stream in report.streams]))
    assert found == [(True, [1]), (False, [0]), (True, [1])]


def test_a_channel_that_fails_while_a_stream_is_read_is_a_problem_of_the_stream(
    topology: Topology, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fails when asking once more, whether the log has changed meanwhile, ends the status."""
    publish(topology, 1, events=1, size=1)

    def away(*_: object) -> Any:
        raise ChannelError("no answer")

    monkeypatch.setattr(ObjectStoreChannel, "manifest", away)
    monkeypatch.setattr(ObjectStoreChannel, "stream_epochs", away)
    assert flights(topology).problem == "no answer"


def test_a_forwarded_stream_is_reported_with_its_path(tmp_path: Path) -> None:
    """Before anything is published, and after. Its origin is the site that writes it."""
    sites = ("newark", "chicago", "seattle")
    content = {
        "version": 1,
        "sites": {site: {"state": f"./{site}/_wan"} for site in sites},
        "senders": {
            "east": {"site": "newark", "remotes": ["chicago"], "channel": "./east"},
            "west": {"site": "chicago", "remotes": ["seattle"], "channel": "./west"},
        },
        "tables": {
            "orders": {
                "keys": ["id"],
                "writers": ["newark"],
                "senders": ["east", "west"],
                "at": {site: f"./{site}/orders" for site in sites},
            }
        },
    }
    (tmp_path / "wan.yaml").write_text(yaml.safe_dump(content))
    topology = load_topology(tmp_path / "wan.yaml")

    def forwarded() -> StreamReport:
        (_, west) = read_status(topology)
        (stream,) = west.streams
        return stream

    name, path = "chicago.west~newark.east.orders", "newark -> east -> chicago -> west -> seattle"
    for published in (False, True):
        if published:
            made = manifest(1, stream=name, addressees=("seattle",))
            open_channel(topology.sender("west").channel).append(name, 1, made.encode())
        stream = forwarded()
        assert (stream.stream, stream.origin, stream.from_site) == (name, "newark", "chicago")
        assert [(site.site, site.path) for site in stream.sites] == [("seattle", path)]
        assert stream.epoch == int(published)
    (east, _) = read_status(topology)
    assert [site.path for stream in east.streams for site in stream.sites] == [None]
    assert [channel.url for channel in read_status(topology, "seattle")] == [str(tmp_path / "west")]


def test_a_sender_that_waits_for_room_says_so(topology: Topology) -> None:
    """It is a hold if the topology says so, also where a sink waits, which says no more than that.
    Fails when `hold` is as quiet as `block`."""
    record(topology, queue_full="9 GB wait", queue_full_since=700)
    sender = flights(topology).sender
    assert sender is not None
    assert (sender.queue_full, sender.queue_full_since_ms) == ("9 GB wait", 700)
    assert (sender.held, sender.held_since_ms) == (None, None)
    east = replace(topology.sender("east"), on_queue_limit="hold", max_queue_bytes=1)
    holding = replace(topology, senders={**topology.senders, "east": east})
    sender = flights(holding).sender
    assert sender is not None and (sender.held, sender.held_since_ms) == ("9 GB wait", 700)
    record(holding, held="no change feed", held_since=600)
    sender = flights(holding).sender
    assert sender is not None and (sender.held, sender.held_since_ms) == ("no change feed", 600)


def test_a_queue_in_which_nothing_waits_is_not_full(topology: Topology) -> None:
    """A sink that was killed while it waited cannot say so any more. Fails when its stream is held
    for good."""
    record(topology, queue_full="9 GB wait", queue_full_since=700)
    east = replace(topology.sender("east"), on_queue_limit="hold", max_queue_bytes=1)
    holding = replace(topology, senders={**topology.senders, "east": east})
    publish(holding, 1, events=1, size=10)
    for site, full in (("seattle", "9 GB wait"), ("denver", None)):
        answer(holding, site, 1)
        sender = flights(holding).sender
        assert sender is not None
        assert (sender.queue_full, sender.held) == (full, full)
    assert flights(holding).sites[0].state == "up to date"


def test_a_site_that_was_dropped_is_reported_until_it_has_got_over_it(topology: Topology) -> None:
    """What was trimmed without it is no gap of the log. Fails when it looks like a site that is
    merely late."""
    publish(topology, 6, events=1, size=10)
    publish(topology, 7, events=1, size=10, dropped={"denver": 6})
    answer(topology, "seattle", 7)
    for acked, dropped in ((3, 6), (6, None)):
        answer(topology, "denver", acked)
        found = {site.site: site.dropped for site in flights(topology).sites}
        assert found == {"denver": dropped, "seattle": None}
    channel = open_channel(topology.sender("east").channel)
    channel.put_note(Note("ack", STREAM, "denver"), None)
    never = next(site for site in flights(topology).sites if site.site == "denver")
    assert (never.dropped, never.lacks_before) == (6, None)  # it was not added
    publish(topology, 2, events=1, size=10)  # what a writer that was frozen has left
    answer(topology, "denver", 3)
    assert flights(topology).problem is None


def test_commits_that_are_delayed_are_no_reason_to_be_late(topology: Topology) -> None:
    """Fails when a link is late all the time because somebody wants a delay."""
    publish(topology, 1, events=1, size=10)
    for site in SITES:
        answer(topology, site, 1)
    record(topology, delayed=3)
    east = replace(topology.sender("east"), delay=3_600.0)
    stream = flights(replace(topology, senders={**topology.senders, "east": east}))
    assert stream.sender is not None
    assert (stream.delay_ms, stream.sender.delayed) == (3_600_000, 3)
    assert {site.state for site in stream.sites} == {UP_TO_DATE}
    record(topology, delayed=3, waiting=1)
    assert {site.state for site in flights(topology).sites} == {LATE}
