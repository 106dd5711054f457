"""The contract of a channel (:class:`spark_wan.channels.base.Channel`), which every kind keeps: in
a directory, in memory, on an S3-compatible server, and over a dict. Nothing here knows how a kind
stores what it is given; a new kind becomes a parameter of the fixture ``channel``."""

from __future__ import annotations

import pickle
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from fakes import STREAM, ack, manifest, publish

from spark_wan.channels.base import PAGE, Channel, new_attempt
from spark_wan.channels.log import StreamLog
from spark_wan.errors import FrameError, ManifestError, ManifestExists

ATTEMPT = "c" * 32


def append(channel: Channel, stream: str, *epochs: int) -> None:
    """Append epochs as a writer does."""
    for epoch in epochs:
        channel.append(stream, epoch, b"m%d" % epoch)
        channel.put_head(stream, epoch, b"m%d" % epoch)


def test_a_channel_can_be_prepared_repeatedly(channel: Channel) -> None:
    channel.prepare()
    channel.prepare()
    assert channel.foreign() == []
    assert (channel.epochs(), channel.heads(), channel.ack_tags()) == ({}, {}, {})


def test_a_channel_can_be_pickled_for_tasks(channel: Channel) -> None:
    """Fails when each task opens a channel of its own: a process has one."""
    channel.append(STREAM, 1, b"m")
    copy = pickle.loads(pickle.dumps(channel))
    assert copy.url == channel.url
    path = copy.put_frame(STREAM, ATTEMPT, 0, b"from a task")
    assert channel.get_frame(path) == b"from a task"
    assert copy.stream_epochs(STREAM) == [1]
    assert pickle.loads(pickle.dumps(channel)) is copy


# --- frames


def test_a_frame_is_read_as_it_was_written(channel: Channel) -> None:
    data = bytes(range(256)) * 5_000
    path = channel.put_frame(STREAM, ATTEMPT, 3, data)
    assert channel.get_frame(path) == data


def test_reading_a_missing_frame_raises_a_frame_error(channel: Channel) -> None:
    path = channel.put_frame(STREAM, ATTEMPT, 0, b"f")
    channel.append(STREAM, 1, b"m")
    channel.append(STREAM, 2, b"m")
    channel.trim(STREAM, 1, [path])
    with pytest.raises(FrameError, match="the frame that a manifest names is not there"):
        channel.get_frame(path)
    assert channel.frame_time(path) is None


def test_frames_are_listed_with_the_time_they_were_written(channel: Channel) -> None:
    before = time.time()
    path = channel.put_frame(STREAM, ATTEMPT, 0, b"f")
    channel.put_frame("other", ATTEMPT, 0, b"f")
    [(listed, written)] = channel.frames(STREAM)
    assert listed == path
    assert before - 5 < written < time.time() + 5
    assert channel.frame_time(path) == written


def test_the_frames_of_one_write_are_listed_alone(channel: Channel) -> None:
    """Fails when a writer that gives up removes the frames of others."""
    writes = ["0" * 32, "a" * 32, "f" * 32]
    paths = {
        write: [channel.put_frame(STREAM, new_attempt(write), index, b"f") for index in range(2)]
        for write in writes
    }
    for write in writes:
        assert sorted(path for path, _ in channel.frames(STREAM, write[:16])) == sorted(
            paths[write]
        )
    assert len(channel.frames(STREAM)) == 6


def test_trimming_missing_frames_is_no_error(channel: Channel) -> None:
    """Nor does it keep others. Fails when a store ends at the first absent one."""
    paths = [channel.put_frame(STREAM, ATTEMPT, index, b"f") for index in range(42)]
    channel.trim_frames(STREAM, paths[:1])
    for _ in range(2):
        channel.trim_frames(STREAM, paths[:40])
    channel.trim_frames(STREAM, [])
    assert [path for path, _ in channel.frames(STREAM)] == paths[40:]


def test_now_is_by_the_clock_that_dates_frames(channel: Channel) -> None:
    """On every kind of store. The probe of a killed process is not a foreign file."""
    channel.prepare()
    before = channel.now()
    publish(StreamLog(channel, STREAM), 1)
    [(_, written)] = channel.frames(STREAM)
    assert before <= written <= channel.now()
    assert channel.foreign() == []


# --- logs


def test_a_manifest_is_created_only_if_absent(channel: Channel) -> None:
    """Fails when append writes without mode="create"."""
    channel.append(STREAM, 1, b"first")
    with pytest.raises(ManifestExists, match="manifest 1 of"):
        channel.append(STREAM, 1, b"second")
    assert channel.manifest(STREAM, 1) == b"first"


def test_one_of_many_concurrent_writers_wins(channel: Channel) -> None:
    def append(writer: int) -> bool:
        try:
            channel.append(STREAM, 1, str(writer).encode())
        except ManifestExists:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        won = [writer for writer, first in enumerate(pool.map(append, range(8))) if first]
    assert len(won) == 1, won
    assert channel.manifest(STREAM, 1) == str(won[0]).encode()


def test_reading_a_missing_manifest_raises_a_manifest_error(channel: Channel) -> None:
    with pytest.raises(ManifestError, match="is not there"):
        channel.manifest(STREAM, 7)


def test_epochs_are_listed_by_stream_in_order(channel: Channel) -> None:
    append(channel, STREAM, 2, 10, 1, 9, 100)
    append(channel, "newark.east.orders.more", 5)
    append(channel, "a", 1)
    assert channel.epochs() == {
        "a": [1],
        STREAM: [1, 2, 9, 10, 100],
        "newark.east.orders.more": [5],
    }
    assert channel.stream_epochs(STREAM) == [1, 2, 9, 10, 100]
    assert channel.stream_epochs(STREAM, 2) == [9, 10, 100]
    assert channel.stream_epochs(STREAM, 3, 1) == [9]
    assert channel.stream_epochs(STREAM, 100) == []
    assert channel.stream_epochs("newark.east.order") == []


def test_a_log_of_many_pages_is_listed_page_by_page(channel: Channel) -> None:
    last = PAGE + 100
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda epoch: channel.append(STREAM, epoch, b"m"), range(1, last + 1)))
    assert channel.stream_epochs(STREAM) == list(range(1, PAGE + 1))
    assert channel.stream_epochs(STREAM, PAGE - 3) == list(range(PAGE - 2, last + 1))
    assert StreamLog(channel, STREAM).epochs() == list(range(1, last + 1))
    channel.trim(STREAM, last - 1, [])
    assert channel.stream_epochs(STREAM) == [last]


def test_a_log_is_trimmed_with_its_frames(channel: Channel) -> None:
    """What is there already, or gone, is no error: after a crash it is done once more."""
    paths = [channel.put_frame(STREAM, ATTEMPT, index, b"f") for index in range(4)]
    append(channel, STREAM, 1, 3, 4, 5)
    append(channel, STREAM + ".more", 1)
    for _ in range(2):
        channel.trim(STREAM, 4, [*paths[:3], paths[0]])
    assert (channel.stream_epochs(STREAM), channel.stream_epochs(STREAM + ".more")) == ([5], [1])
    assert [path for path, _ in channel.frames(STREAM)] == paths[3:]


def test_a_manifest_that_does_not_count_is_trimmed_alone(channel: Channel) -> None:
    append(channel, STREAM, 1, 2, 3)
    for _ in range(2):
        channel.trim_manifest(STREAM, 2)
    assert channel.stream_epochs(STREAM) == [1, 3]


# --- news


def test_the_head_of_a_stream_changes_with_every_epoch_and_announcement(channel: Channel) -> None:
    """Fails when a receiver would not hear of one."""
    append(channel, STREAM, 1)
    append(channel, "quiet", 1)
    seen = [channel.heads()]
    for change in (
        lambda: append(channel, STREAM, 2),
        lambda: channel.announce(STREAM, 1, 1),
        lambda: channel.announce(STREAM, 1, 2),
        lambda: append(channel, STREAM, 3),
    ):
        change()
        assert channel.heads() == channel.heads()
        seen.append(channel.heads())
    assert len({heads[STREAM] for heads in seen}) == 5
    assert len({heads["quiet"] for heads in seen}) == 1
    assert channel.head(STREAM) == 3


def test_a_new_channel_object_sees_all_streams(channel: Channel) -> None:
    """Also one whose newest epoch has no head: its writer died between the two."""
    append(channel, STREAM, 1)
    channel.append("half", 1, b"m")
    other = type(channel)(channel.url, channel.storage)
    assert sorted(other.heads()) == ["half", STREAM]


def test_a_whole_look_finds_what_no_head_shows(channel: Channel) -> None:
    """Fails when a reader that starts in a process that has looked before misses it."""
    append(channel, STREAM, 1)
    before = channel.heads()
    channel.append("half", 1, b"m")
    channel.append(STREAM, 2, b"m")
    after = channel.heads(whole=True)
    assert sorted(after) == ["half", STREAM]
    assert after[STREAM] != before[STREAM]


def test_the_last_announcement_counts_until_it_is_withdrawn(channel: Channel) -> None:
    assert channel.announced(STREAM) is None
    append(channel, STREAM, 1, 2, 3)
    channel.announce(STREAM, 2, 1)
    channel.announce(STREAM, 3, 11)
    assert (channel.announced(STREAM), channel.announced("other")) == ((3, 11), None)
    assert channel.stream_epochs(STREAM) == [1, 2, 3]
    for _ in range(2):
        channel.withdraw(STREAM)
    assert channel.announced(STREAM) is None


# --- acks


def test_a_new_ack_replaces_the_one_before(channel: Channel) -> None:
    channel.put_ack(STREAM, "seattle", b"1")
    channel.put_ack(STREAM, "seattle", b"2")
    channel.put_ack(STREAM, "denver.a-b_c", b"3")
    channel.put_ack("other", "seattle", b"4")
    assert channel.acks(STREAM) == {"seattle": b"2", "denver.a-b_c": b"3"}
    assert channel.acks("nobody") == {}
    assert channel.ack(STREAM, "seattle") == b"2"
    assert channel.ack(STREAM, "tacoma") is channel.ack("nobody", "seattle") is None


def test_a_replaced_ack_has_another_tag(channel: Channel) -> None:
    for site, data in (("seattle", b"1"), ("denver", b"1")):
        channel.put_ack(STREAM, site, data)
    channel.put_ack("other", "seattle", b"1")
    before = channel.ack_tags()
    assert {stream: sorted(tags) for stream, tags in before.items()} == {
        STREAM: ["denver", "seattle"],
        "other": ["seattle"],
    }
    channel.put_ack(STREAM, "seattle", b"2")
    after = channel.ack_tags()
    assert after[STREAM]["seattle"] != before[STREAM]["seattle"]
    assert after[STREAM]["denver"] == before[STREAM]["denver"]
    assert after["other"] == before["other"]
    assert channel.ack_tags(STREAM) == {STREAM: after[STREAM]}


def test_an_ack_has_the_time_at_which_it_was_written(channel: Channel) -> None:
    before = channel.now()
    channel.put_ack(STREAM, "seattle", b"1")
    channel.put_ack("other", "denver", b"1")
    times = channel.ack_times()
    assert {stream: sorted(sites) for stream, sites in times.items()} == {
        STREAM: ["seattle"],
        "other": ["denver"],
    }
    assert before <= times[STREAM]["seattle"] <= channel.now()


# --- senders' records


def test_a_new_record_of_a_sender_replaces_the_one_before(channel: Channel) -> None:
    """It belongs to its stream alone, shows in no log, head or ack, and is not foreign."""
    forwarded = f"chicago.west~{STREAM}"
    assert channel.sender_record(STREAM) is None
    channel.put_sender_record(STREAM, b"1")
    channel.put_sender_record(STREAM, b"2")
    channel.put_sender_record(forwarded, b"3")
    assert (channel.sender_record(STREAM), channel.sender_record(forwarded)) == (b"2", b"3")
    assert channel.sender_record("other") is None
    assert (channel.epochs(), channel.heads(), channel.ack_tags()) == ({}, {}, {})
    assert channel.foreign() == []


# --- a log over it


def test_a_log_works_on_every_channel(channel: Channel) -> None:
    channel.prepare()
    log = StreamLog(channel, STREAM)
    published = publish(log, 1, 2, 3)
    assert StreamLog(channel, STREAM).newest_manifest() == published[-1]
    with pytest.raises(ManifestExists):
        log.append(manifest(3, identity="another"))
    ack(log, "seattle", 2)
    assert log.acks()["seattle"].applied == 2
    log.trim(2, [frame.path for epoch in (1, 2) for frame in log.read(epoch).frames])
    assert (log.since(0), log.oldest()) == ([3], ([3], [], published[-1]))
    assert [path for path, _ in channel.frames(STREAM)] == [published[-1].frames[0].path]
    assert channel.foreign() == []
