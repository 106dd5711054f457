"""What a channel costs, in requests: nothing grows with the backlog, and looking for news not with
the number of streams."""

from __future__ import annotations

import uuid

import pytest
from counted_channel import CountedChannel
from fakes import Checkpoints, Clock, ack, manifest, publish, put_frame
from receivers import TOPOLOGY, Streams

from spark_wan.log.ack_watch import AckWatch
from spark_wan.log.frame_age import ORPHAN_AGE
from spark_wan.log.notes import announced, put_head
from spark_wan.log.stream_log import StreamLog
from spark_wan.sender.acks import READ_AT_MOST, AckManager
from spark_wan.sender.sweep import SWEPT_AT_ONCE, Sweep
from spark_wan.steps import run
from spark_wan.topology.ack_policy import AckPolicy
from spark_wan.wire.manifest import Manifest

BACKLOGS = [1, 1_200]
STREAMS = [1, 40]


@pytest.fixture
def channel() -> CountedChannel:
    return CountedChannel(f"dict://{uuid.uuid4().hex}")


def fill(channel: CountedChannel, stream: str, backlog: int) -> list[Manifest]:
    """Make a log of so many epochs, without frames, quickly."""
    made: list[Manifest] = []
    for epoch in range(1, backlog + 1):
        previous = made[-1].fingerprint if made else ""
        made.append(manifest(epoch, stream=stream, previous=previous))
        channel.append(stream, epoch, made[-1].encode())
    put_head(channel, stream, backlog, made[-1].encode())
    return made


@pytest.mark.parametrize("backlog", BACKLOGS)
@pytest.mark.parametrize("streams", STREAMS)
def test_a_tick_of_a_receiver_is_one_listing(
    channel: CountedChannel, streams: int, backlog: int
) -> None:
    """However many streams are quiet, and whatever waits in them."""
    for n in range(streams):
        fill(channel, f"s{n}", backlog if n == 0 else 1)
    inbound = Streams(TOPOLOGY, "seattle", "dict://")
    first = inbound.due(channel)
    assert {name: each.listing.newest for name, [each] in first.items()} == {
        f"s{n}": backlog if n == 0 else 1 for n in range(streams)
    }
    channel.counted()
    assert inbound.due(channel) == {}
    assert channel.counted() == {"list": 1}
    publish(StreamLog(channel, "s0"), backlog + 1)
    channel.counted()
    [[each]] = inbound.due(channel).values()
    assert (each.stream.name, each.listing.newest) == ("s0", backlog + 1)
    # The heads, and of the one stream that changed: where its log ends, and whether it was
    # announced again.
    assert channel.counted() == {"list": 2, "get": 1}


class Managed:
    """The ack managers of a sender's streams, which share a look at the channel."""

    def __init__(self, channel: CountedChannel, *streams: str) -> None:
        self.channel, self.clock = channel, Clock()
        self.watch = AckWatch(channel, lambda: self.clock.now / 1000)
        self.managers = {
            stream: AckManager(
                StreamLog(channel, stream),
                Checkpoints(),
                AckPolicy.ALL,
                60_000,
                self.clock,
                ["seattle"],
                watch=self.watch,
            )
            for stream in streams
        }

    def tick(self, seconds: float = 1.0) -> list[str]:
        """Look once, and return the streams that had something to do."""
        self.clock.pass_seconds(seconds)
        self.watch.look()
        due = [stream for stream, manager in self.managers.items() if manager.due()]
        for stream in due:
            run(self.managers[stream].round())
        return due


@pytest.mark.parametrize("backlog", BACKLOGS)
@pytest.mark.parametrize("streams", STREAMS)
def test_a_tick_of_a_sender_is_one_listing(
    channel: CountedChannel, streams: int, backlog: int
) -> None:
    """Fails when each stream lists the channel, or reads acks that it has read."""
    names = [f"s{n}" for n in range(streams)]
    for n, name in enumerate(names):
        fill(channel, name, backlog if n == 0 else 1)
        ack(StreamLog(channel, name), "seattle", 0)
    managed = Managed(channel, *names)
    assert managed.tick() == names
    channel.counted()
    for _ in range(3):
        assert managed.tick() == []
    assert channel.counted() == {"list": 3}
    ack(StreamLog(channel, "s0"), "seattle", 1)
    channel.counted()
    assert managed.tick() == ["s0"]
    requests = channel.counted()
    assert sum(requests.values()) <= 12, requests
    if backlog > 1:
        assert managed.managers["s0"].state.oldest == 2


def test_a_manager_is_due_when_something_happens(channel: CountedChannel) -> None:
    """Fails when a stream waits for the next full round: its epochs would not be trimmed, or an
    epoch not be announced again."""
    managed = Managed(channel, "s0")
    log = managed.managers["s0"].log
    assert managed.tick() == ["s0"]
    assert managed.tick() == []
    publish(log, 1)  # by the publisher of the same process
    assert managed.tick() == ["s0"]
    assert managed.tick() == []
    ack(log, "seattle", 0)
    assert managed.tick() == ["s0"]
    assert managed.tick(57.0) == []
    assert managed.tick(1.0) == ["s0"]  # the epoch is overdue: 60 s since it was first seen
    assert announced(channel, "s0") == (1, 1)
    ack(log, "seattle", 1)
    assert managed.tick() == ["s0"]
    assert announced(channel, "s0") is None
    channel.delete(["acks/s0/seattle.json"])
    assert managed.tick() == ["s0"]
    assert managed.tick() == []
    StreamLog(channel, "s0").append(  # by another process
        manifest(2, stream="s0", previous=log.read(1).fingerprint)
    )
    assert managed.tick() == []
    assert managed.tick(300.0) == ["s0"]
    newest = managed.managers["s0"].state.newest
    assert newest is not None and newest.epoch == 2


@pytest.mark.parametrize("backlog", BACKLOGS)
def test_an_append_costs_the_same_whatever_waits(channel: CountedChannel, backlog: int) -> None:
    """Fails when the log is listed."""
    *_, newest = fill(channel, "s0", backlog)
    log = StreamLog(channel, "s0")
    channel.counted()
    assert log.newest_manifest(backlog) == newest
    assert channel.counted() == {"list": 1, "get": 1}
    log.append(manifest(backlog + 1, stream="s0", previous=newest.fingerprint))
    # Read the manifest before, create this one, put its head; then check that nothing came after
    # it, and that the manifest before is still there.
    assert channel.counted() == {"get": 2, "create": 1, "put": 1, "list": 1}


def test_a_long_backlog_is_trimmed_with_few_requests(channel: CountedChannel) -> None:
    """Fails when manifests or frames are deleted one by one."""
    fill(channel, "s0", 900)
    log = StreamLog(channel, "s0")
    ack(log, "seattle", 900)
    managed = Managed(channel, "s0")
    channel.counted()
    managed.tick()
    requests = channel.counted()
    assert channel.stream_epochs("s0") == [900]
    assert requests["delete"] <= 12 and requests["list"] <= 14
    assert requests["get"] <= 900 + 10  # each manifest once, several at a time


def test_a_sweep_without_old_frames_reads_no_manifest(channel: CountedChannel) -> None:
    """Fails when every manifest of the backlog is read, once an hour."""
    fill(channel, "s0", 300)
    put_frame(channel, stream="s0")
    manager = Managed(channel, "s0").managers["s0"]
    channel.counted()
    assert Sweep(manager).run(ORPHAN_AGE) == 0
    assert "get" not in channel.counted()


def test_a_sweep_reads_a_long_log_in_parts(
    channel: CountedChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fails when it stops publishing until it has read all manifests, or never ends."""
    *_, newest = fill(channel, "s0", 2 * SWEPT_AT_ONCE + 50)
    managed = Managed(channel, "s0")
    manager = managed.managers["s0"]
    managed.tick()
    orphan, named = put_frame(channel, stream="s0"), put_frame(channel, stream="s0")
    following = manifest(
        newest.epoch + 1, stream="s0", previous=newest.fingerprint, frames=(named,)
    )
    manager.log.append(following)
    now = channel.now()
    monkeypatch.setattr(channel, "now", lambda: now + 2 * ORPHAN_AGE)
    managed.clock.pass_seconds(3_600)
    sweep = Sweep(manager)
    for part in (SWEPT_AT_ONCE, SWEPT_AT_ONCE, 51):
        channel.counted()
        sweep.run_when_due()
        assert channel.counted()["get"] <= part
        assert channel.frame_time(orphan.path) is not None
    sweep.run_when_due()
    assert channel.frame_time(orphan.path) is None
    assert channel.frame_time(named.path) is not None
    channel.counted()
    sweep.run_when_due()
    assert channel.counted() == {}


def test_parts_of_a_trim_are_bounded() -> None:
    """Memory: a backlog of a day is not read at once."""
    assert READ_AT_MOST <= 1_000
