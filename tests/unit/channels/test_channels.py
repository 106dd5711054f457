"""The contract of a channel (:class:`spark_wan.channels.base.Channel`), which every kind keeps: in
a directory, in memory, on an S3-compatible server, over a dict, on topics, and on those of a Kafka
broker. Nothing here knows how a kind stores what it is given; a new kind becomes a parameter of the
fixture ``channel``."""

from __future__ import annotations

import pickle
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from fakes import STREAM, ack, manifest, publish

from spark_wan.channels.base import PAGE, Channel, Note
from spark_wan.errors import ManifestError, ManifestExists
from spark_wan.log import notes
from spark_wan.log.heads import Heads
from spark_wan.log.stream_log import StreamLog
from spark_wan.wire.head import Pause
from spark_wan.wire.manifest import fingerprint

PAUSE = Pause(1, "ann at here", 5)

ATTEMPT = "c" * 32


def append(channel: Channel, stream: str, *epochs: int, head: bool = True) -> None:
    """Append epochs as a writer does."""
    for epoch in epochs:
        data, previous = b"m%d" % epoch, fingerprint(b"m%d" % (epoch - 1)) if epoch > 1 else ""
        channel.append(stream, epoch, data, previous=previous)
        if head:
            notes.put_head(channel, stream, epoch, data)


def test_a_channel_is_begun_once_it_was_prepared(channel: Channel) -> None:
    was_prepared = channel._is_prepared  # topics are
    assert channel.is_begun() is was_prepared
    channel.prepare()
    assert channel.is_begun()


def test_a_channel_can_be_prepared_repeatedly(channel: Channel) -> None:
    channel.prepare()
    channel.prepare()
    assert channel.foreign() == []
    assert (channel.epochs(), Heads(channel).tags(), notes.ack_versions(channel)) == ({}, {}, {})
    assert channel.foreign() == []


def test_a_channel_can_be_pickled_for_tasks(channel: Channel) -> None:
    """Fails when each task opens a channel of its own: a process has one."""
    append(channel, STREAM, 1)
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


def test_a_frame_has_the_time_at_which_it_was_written(channel: Channel) -> None:
    """By the clock of :meth:`Channel.now`. The probe of a killed process is not a foreign file."""
    channel.prepare()
    before = channel.now()
    path = channel.put_frame(STREAM, ATTEMPT, 0, b"f")
    written = channel.frame_time(path)
    assert written is not None
    assert before <= written <= channel.now()
    assert abs(written - time.time()) < 60
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
    append(channel, STREAM, *range(1, 13))
    append(channel, "newark.east.orders.more", 1, 2)
    append(channel, "a", 1)
    assert channel.epochs() == {
        "a": [1],
        STREAM: [*range(1, 13)],
        "newark.east.orders.more": [1, 2],
    }
    assert channel.stream_epochs(STREAM) == [*range(1, 13)]
    assert channel.stream_epochs(STREAM, 2) == [*range(3, 13)]
    assert channel.stream_epochs(STREAM, 8, 2) == [9, 10]
    assert channel.stream_epochs(STREAM, 12) == []
    assert channel.stream_epochs("newark.east.order") == []


def test_a_log_of_many_pages_is_listed_page_by_page(channel: Channel) -> None:
    last = PAGE + 100
    append(channel, STREAM, *range(1, last + 1), head=False)
    assert channel.stream_epochs(STREAM) == list(range(1, PAGE + 1))
    assert channel.stream_epochs(STREAM, PAGE - 3) == list(range(PAGE - 2, last + 1))
    assert StreamLog(channel, STREAM).epochs() == list(range(1, last + 1))
    channel.trim(STREAM, last - 1, [])
    assert channel.stream_epochs(STREAM) == [last]


def test_a_removed_stream_leaves_nothing(channel: Channel) -> None:
    """Not even for a writer that had been frozen. Others keep what they have."""
    other = STREAM + ".more"
    for stream in (STREAM, other):
        path = channel.put_frame(stream, ATTEMPT, 0, b"f")
        channel.append(stream, 1, b"m1", frames=[path])
        notes.put_head(channel, stream, 1, b"m1")
        append(channel, stream, 2)
        notes.put_ack(channel, stream, "seattle", b"ack")
        channel.put_note(Note("sender", stream), b"record")
        channel.put_note(Note("receiver", stream, "seattle"), b"record")
        channel.put_note(Note("refused", stream, "seattle"), b"events")
        notes.announce(channel, stream, 1, 1)
    for _ in range(2):
        channel.remove(STREAM)
    assert channel.epochs() == {other: [1, 2]}
    assert set(Heads(channel).tags()) == {other} == set(notes.ack_versions(channel))
    assert (notes.acks(channel, STREAM), notes.ack(channel, STREAM, "seattle")) == ({}, None)
    assert (channel.note(Note("sender", STREAM)), notes.announced(channel, STREAM)) == (None, None)
    assert channel.note(Note("receiver", STREAM, "seattle")) is None
    assert channel.note(Note("receiver", other, "seattle")) == b"record"
    assert channel.note(Note("refused", STREAM, "seattle")) is None
    assert channel.note(Note("refused", other, "seattle")) == b"events"
    assert channel.frames(STREAM) == [] == channel.foreign()
    assert channel.get_frame(path) == b"f"
    append(channel, STREAM, 1)
    assert channel.epochs() == {STREAM: [1], other: [1, 2]}


def test_a_log_is_trimmed(channel: Channel) -> None:
    """What is there already, or gone, is no error: after a crash it is done once more."""
    paths = [channel.put_frame(STREAM, ATTEMPT, index, b"f") for index in range(3)]
    for epoch, path in enumerate(paths, 1):
        previous = fingerprint(b"m%d" % (epoch - 1)) if epoch > 1 else ""
        channel.append(STREAM, epoch, b"m%d" % epoch, previous=previous, frames=[path])
    append(channel, STREAM + ".more", 1)
    for _ in range(2):
        channel.trim(STREAM, 2, paths[:2])
    assert (channel.stream_epochs(STREAM), channel.stream_epochs(STREAM + ".more")) == ([3], [1])
    assert channel.get_frame(paths[2]) == b"f"
    append(channel, STREAM, 4)
    assert channel.stream_epochs(STREAM) == [3, 4]


# --- news


def test_the_head_of_a_stream_changes_with_every_epoch_and_announcement(channel: Channel) -> None:
    """Fails when a receiver would not hear of one."""
    append(channel, STREAM, 1)
    append(channel, "quiet", 1)
    heads = Heads(channel)
    seen = [heads.tags()]
    for change in (
        lambda: append(channel, STREAM, 2),
        lambda: notes.announce(channel, STREAM, 1, 1),
        lambda: notes.announce(channel, STREAM, 1, 2),
        lambda: append(channel, STREAM, 3),
    ):
        change()
        assert heads.tags() == heads.tags()
        seen.append(heads.tags())
    assert len({tags[STREAM] for tags in seen}) == 5
    assert len({tags["quiet"] for tags in seen}) == 1
    assert notes.head(channel, STREAM) == 3


def test_a_new_channel_object_sees_all_streams(channel: Channel) -> None:
    """Also one whose newest epoch has no head: its writer died between the two."""
    append(channel, STREAM, 1)
    append(channel, "half", 1, head=False)
    other = type(channel)(channel.url, channel.storage)
    assert sorted(Heads(other).tags()) == ["half", STREAM]


def test_the_last_announcement_counts_until_it_is_withdrawn(channel: Channel) -> None:
    assert notes.announced(channel, STREAM) is None
    append(channel, STREAM, 1, 2, 3)
    notes.announce(channel, STREAM, 2, 1)
    notes.announce(channel, STREAM, 3, 11)
    assert (notes.announced(channel, STREAM), notes.announced(channel, "other")) == ((3, 11), None)
    assert channel.stream_epochs(STREAM) == [1, 2, 3]
    for _ in range(2):
        notes.withdraw(channel, STREAM)
    assert notes.announced(channel, STREAM) is None


# --- acks


def test_a_new_ack_replaces_the_one_before(channel: Channel) -> None:
    notes.put_ack(channel, STREAM, "seattle", b"1")
    notes.put_ack(channel, STREAM, "seattle", b"2")
    notes.put_ack(channel, STREAM, "denver.a-b_c", b"3")
    notes.put_ack(channel, "other", "seattle", b"4")
    assert notes.acks(channel, STREAM) == {"seattle": b"2", "denver.a-b_c": b"3"}
    assert notes.acks(channel, "nobody") == {}
    assert notes.ack(channel, STREAM, "seattle") == b"2"
    assert notes.ack(channel, STREAM, "tacoma") is notes.ack(channel, "nobody", "seattle") is None


def test_a_replaced_ack_has_another_tag(channel: Channel) -> None:
    for site, data in (("seattle", b"1"), ("denver", b"1")):
        notes.put_ack(channel, STREAM, site, data)
    notes.put_ack(channel, "other", "seattle", b"1")
    before = notes.ack_versions(channel)
    assert {stream: sorted(tags) for stream, tags in before.items()} == {
        STREAM: ["denver", "seattle"],
        "other": ["seattle"],
    }
    notes.put_ack(channel, STREAM, "seattle", b"2")
    after = notes.ack_versions(channel)
    assert after[STREAM]["seattle"] != before[STREAM]["seattle"]
    assert after[STREAM]["denver"] == before[STREAM]["denver"]
    assert after["other"] == before["other"]
    assert {note.site: each for note, each in channel.notes("acks", STREAM).items()} == after[
        STREAM
    ]


def test_an_ack_has_the_time_at_which_it_was_written(channel: Channel) -> None:
    before = channel.now()
    notes.put_ack(channel, STREAM, "seattle", b"1")
    notes.put_ack(channel, "other", "denver", b"1")
    assert before <= notes.ack_versions(channel)[STREAM]["seattle"].time <= channel.now()


# --- senders' records


def test_a_new_record_of_a_sender_replaces_the_one_before(channel: Channel) -> None:
    """It belongs to its stream alone, shows in no log, head or ack, and is not foreign."""
    forwarded = f"chicago.west~{STREAM}"
    assert channel.note(Note("sender", STREAM)) is None
    channel.put_note(Note("sender", STREAM), b"1")
    channel.put_note(Note("sender", STREAM), b"2")
    channel.put_note(Note("sender", forwarded), b"3")
    assert channel.note(Note("sender", STREAM)) == b"2"
    assert channel.note(Note("sender", forwarded)) == b"3"
    assert channel.note(Note("sender", "other")) is None
    assert (channel.epochs(), Heads(channel).tags(), notes.ack_versions(channel)) == ({}, {}, {})


def test_a_record_of_a_receiver_is_no_ack(channel: Channel) -> None:
    """Fails when a sender takes it for the answer of its site."""
    notes.put_ack(channel, STREAM, "seattle", b"ack")
    before = channel.notes("acks")
    for site, record in (("seattle", b"1"), ("seattle", b"2"), ("denver", b"3")):
        channel.put_note(Note("receiver", STREAM, site), record)
    assert channel.note(Note("receiver", STREAM, "seattle")) == b"2"
    assert channel.note(Note("receiver", STREAM, "denver")) == b"3"
    assert channel.note(Note("receiver", STREAM, "tacoma")) is None
    assert channel.notes("acks") == channel.notes("acks", STREAM) == before
    assert notes.acks(channel, STREAM) == {"seattle": b"ack"}
    assert notes.ack(channel, STREAM, "denver") is None and channel.foreign() == []


# --- pauses


def test_a_pause_is_there_until_it_is_deleted(channel: Channel) -> None:
    """It belongs to its stream alone, shows in no log and no ack, and is not foreign."""
    forwarded = f"chicago.west~{STREAM}"
    heads = Heads(channel)
    for _ in range(2):
        notes.put_pause(channel, STREAM, PAUSE)
        notes.put_pause(channel, forwarded, replace(PAUSE, generation=2))
        assert (heads.tags(), heads.paused) == ({}, {STREAM, forwarded})
        assert notes.pause(channel, STREAM) == PAUSE
        assert notes.pause(channel, "other") is None
        assert (channel.epochs(), notes.ack_versions(channel), channel.foreign()) == ({}, {}, [])
        for _ in range(2):
            notes.put_pause(channel, STREAM, None)
        assert (notes.pause(channel, STREAM), {*notes.pauses(channel)}) == (None, {forwarded})
        notes.put_pause(channel, forwarded, replace(PAUSE, until=9))
        assert (heads.tags(), heads.paused) == ({}, set())
        assert notes.pause(channel, forwarded) is None
        assert notes.last_pause(channel, forwarded) == replace(PAUSE, until=9)


def test_a_stream_that_is_removed_is_not_paused_any_more(channel: Channel) -> None:
    publish(StreamLog(channel, STREAM), 1)
    notes.put_pause(channel, STREAM, PAUSE)
    channel.remove(STREAM)
    assert notes.pauses(channel) == {}


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
    assert channel.get_frame(published[-1].frames[0].path)
    assert channel.foreign() == []
