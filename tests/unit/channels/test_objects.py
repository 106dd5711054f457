"""A channel of objects: its layout, its heads, and what version 0.1.0 left in it."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

import pytest
from dict_channel import DictChannel
from fakes import STREAM, ack, manifest, publish

from spark_wan.channels import registry
from spark_wan.channels.base import Note, new_attempt
from spark_wan.channels.objects import MARKER_PATH, ObjectChannel
from spark_wan.channels.registry import open_channel
from spark_wan.errors import ChannelError, FrameError
from spark_wan.log import notes
from spark_wan.log.heads import WHOLE_LISTING_INTERVAL, Heads
from spark_wan.log.stream_log import StreamLog
from spark_wan.topology.values import parse_channel, parse_state

ATTEMPT = "c" * 32


@pytest.fixture
def channel(objects: ObjectChannel) -> ObjectChannel:
    """A channel of each kind that keeps objects."""
    return objects


def append_all(channel: ObjectChannel, stream: str, *epochs: int) -> None:
    for epoch in epochs:
        channel.append(stream, epoch, b"m%d" % epoch)
        notes.put_head(channel, stream, epoch, b"m%d" % epoch)


def test_the_layout_is_that_of_the_documents(channel: ObjectChannel) -> None:
    """Users look at it, and delete a stream by it."""
    channel.prepare()
    channel.put_frame(STREAM, ATTEMPT, 3, b"f")
    channel.append(STREAM, 7, b"m")
    notes.put_head(channel, STREAM, 7, b"m")
    notes.announce(channel, STREAM, 7, 2)
    notes.put_ack(channel, STREAM, "seattle", b"a")
    channel.put_note(Note("sender", STREAM), b"s")
    channel.put_note(Note("receiver", STREAM, "seattle"), b"r")
    assert channel.list_paths("") == [
        f"acks/{STREAM}/seattle.json",
        f"frames/{STREAM}/{ATTEMPT}-00003.frame",
        f"heads/{STREAM}.again",
        f"heads/{STREAM}.json",
        f"log/{STREAM}/00000000000000000007.json",
        f"receivers/{STREAM}/seattle.json",
        f"senders/{STREAM}.json",
        "wan-channel.json",
    ]
    assert channel.read(f"heads/{STREAM}.json") == (
        b'{"version": 1, "epoch": 7, "manifest": "25ee4a05c339424604bfc268f854dafa"}'
    )
    assert channel.read(f"heads/{STREAM}.again") == b'{"version": 1, "epoch": 7, "attempt": 2}'
    channel.put(f"wan-clock-{uuid.uuid4().hex}", b"")
    assert channel.foreign() == []


def test_a_kind_of_channel_needs_seven_methods_and_a_scheme(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A topology may then name the scheme, and Spark's own places may not."""
    monkeypatch.setitem(registry.CHANNELS, "dict", "dict_channel:DictChannel")
    channel = open_channel(parse_channel("dict://here", "/"))
    assert isinstance(channel, DictChannel)
    with pytest.raises(ValueError, match="dict"):
        parse_state("dict://here", "/")


FOREIGN = [
    "readme.txt",
    "log/readme.txt",
    f"log/{STREAM}/1.json",
    f"log/{STREAM}/00000000000000000002.json.bak",
    f"log/{STREAM}/nested/00000000000000000002.json",
    f"log/{STREAM}/00000000000000000001.again.x",
    f"frames/{STREAM}/notes.frame",
    f"acks/{STREAM}/deep/seattle.json",
    f"heads/{STREAM}/deep.json",
    "heads/readme.txt",
    "other/data.parquet",
]


def test_foreign_files_are_reported_and_ignored(channel: ObjectChannel) -> None:
    """Fails when epochs() takes every file below log/ for a manifest."""
    channel.prepare()
    for path in FOREIGN:
        channel.put(path, b"foreign")
    log = StreamLog(channel, STREAM)
    publish(log, 1, 2)
    ack(log, "seattle", 1)
    notes.announce(channel, STREAM, 2, 1)
    assert channel.foreign() == sorted(FOREIGN)
    channel.prepare()
    assert channel.epochs() == {STREAM: [1, 2]}
    assert (channel.stream_epochs(STREAM), list(Heads(channel).tags())) == ([1, 2], [STREAM])
    assert notes.announced(channel, STREAM) == (2, 1)
    assert list(log.acks()) == ["seattle"]
    last = log.newest_manifest()
    assert last is not None and last.epoch == 2
    log.trim(1, [])
    assert channel.foreign() == sorted(FOREIGN)


@pytest.mark.parametrize("page", [1, 2, 3, 100])
def test_files_that_are_no_manifests_take_no_place_of_one(
    channel: ObjectChannel, page: int
) -> None:
    """Fails when a page of foreign files ends a listing."""
    channel.prepare()
    for n in range(5):
        channel.put(f"log/{STREAM}/{1:020d}.json.bak{n}", b"foreign")
    for epoch in (1, 2, 3):
        channel.append(STREAM, epoch, b"m")
    assert channel.stream_epochs(STREAM, 0, page) == [1, 2, 3][:page]
    assert channel.stream_epochs(STREAM, 1, page) == [2, 3][:page]


def test_a_foreign_file_named_like_a_frame_is_listed_as_one(channel: ObjectChannel) -> None:
    channel.put(f"frames/{STREAM}/notes.frame", b"foreign")
    assert [path for path, _ in channel.frames(STREAM)] == [f"frames/{STREAM}/notes.frame"]


@pytest.mark.parametrize(
    "content", [b'{"format": "another"}', b"[]", b"not json", b"\xff", b'"text"', b"[" * 100_000]
)
def test_a_marker_that_is_not_of_spark_wan_is_refused(
    channel: ObjectChannel, content: bytes
) -> None:
    channel.put(MARKER_PATH, content)
    with pytest.raises(ChannelError, match="wan") as error:
        channel.prepare()
    assert channel.url in str(error.value)


def test_a_channel_of_a_later_version_is_refused(channel: ObjectChannel) -> None:
    channel.put(MARKER_PATH, b'{"format": "spark_wan channel", "version": 2}')
    with pytest.raises(
        ChannelError, match=r"newer spark_wan, in version 2; this spark_wan reads version 1.*Update"
    ):
        channel.prepare()


def test_the_marker_of_version_1_is_read(channel: ObjectChannel) -> None:
    channel.put(MARKER_PATH, b'{"format": "spark_wan channel", "version": 1}')
    channel.prepare()


# --- heads


@dataclass
class Hours:
    """A clock in seconds that only the test moves."""

    now: float = 1_000.0

    def __call__(self) -> float:
        return self.now


class Listed:
    """A channel that counts its listings of logs."""

    def __init__(self) -> None:
        self.channel = DictChannel(f"dict://{uuid.uuid4().hex}")
        self.clock = Hours()
        self.heads = Heads(self.channel, self.clock)
        self.of_logs = 0
        real = self.channel.list_paths

        def list_paths(prefix: str, after: str = "", limit: int | None = None) -> list[str]:
            self.of_logs += prefix == "log/"
            return real(prefix, after, limit)

        self.channel.list_paths = list_paths  # type: ignore[method-assign]

    def append(self, stream: str, *epochs: int, head: bool = True) -> None:
        for epoch in epochs:
            data = manifest(epoch, stream=stream).encode()
            self.channel.append(stream, epoch, data)
            if head:
                notes.put_head(self.channel, stream, epoch, data)

    def announce_as_0_1_0(self, stream: str, epoch: int, attempt: int) -> None:
        self.channel.create(f"log/{stream}/{epoch:020d}.again.{attempt}", b"{}")


def test_heads_are_listed_without_the_logs() -> None:
    """Fails when a look at the channel grows with what waits in it."""
    listed = Listed()
    listed.append("a", 1, 2, 3)
    for _ in range(10):
        listed.heads.tags()
    assert listed.of_logs == 1
    listed.clock.now += WHOLE_LISTING_INTERVAL
    listed.heads.tags()
    assert listed.of_logs == 2


def test_an_epoch_whose_writer_died_before_its_head_is_found_in_time() -> None:
    """Fails when only heads are listed: its receivers would hear of it with the next epoch."""
    listed = Listed()
    listed.append("a", 1)
    before = listed.heads.tags()
    listed.append("a", 2, head=False)
    assert listed.heads.tags() == before
    listed.clock.now += WHOLE_LISTING_INTERVAL
    found = listed.heads.tags()
    assert found["a"] != before["a"]
    assert listed.heads.tags() == found
    listed.append("a", 3, head=False)  # and so does every following one, at once
    assert listed.heads.tags()["a"] not in (found["a"], before["a"])
    listed.append("a", 4)
    listed.heads.tags()
    looks = listed.of_logs
    assert listed.heads.tags() == listed.heads.tags() and listed.of_logs == looks


def test_streams_of_version_0_1_0_are_followed_without_heads() -> None:
    """Their senders write none. Fails when the logs are listed now and then only."""
    listed = Listed()
    listed.append("old", 1, head=False)
    listed.append("new", 1)
    seen = [listed.heads.tags()]
    for change in (
        lambda: listed.append("old", 2, head=False),
        lambda: listed.announce_as_0_1_0("old", 1, 1),
        lambda: listed.announce_as_0_1_0("old", 1, 2),
        lambda: listed.announce_as_0_1_0("old", 2, 1),
    ):
        change()
        seen.append(listed.heads.tags())
    assert len({heads["old"] for heads in seen}) == 5
    assert len({heads["new"] for heads in seen}) == 1
    assert (listed.heads.announced("old"), listed.heads.announced("new")) == ((2, 1), None)
    listed.channel.trim("old", 2, [])
    assert listed.channel.list_paths("log/old/") == []


def test_a_stream_without_manifests_is_not_listed() -> None:
    """Its log was removed, its head is left. A new log of that name is seen at once.

    Fails when a hold of the stream is reported for ever.
    """
    listed = Listed()
    listed.append("a", 1)
    listed.append("b", 1)
    listed.heads.tags()
    listed.channel.trim_manifest("a", 1)
    listed.clock.now += WHOLE_LISTING_INTERVAL
    assert list(listed.heads.tags()) == list(listed.heads.tags()) == ["b"]
    listed.append("a", 1)
    assert sorted(listed.heads.tags()) == ["a", "b"]


def test_a_clock_that_is_set_back_stops_no_listing() -> None:
    listed = Listed()
    listed.append("a", 1)
    listed.heads.tags()
    listed.append("a", 2, head=False)
    before = listed.heads.tags()
    listed.clock.now -= 10 * WHOLE_LISTING_INTERVAL
    assert listed.heads.tags() != before


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"epoch": "x"}', b"\xff", b"[" * 100_000])
def test_a_damaged_head_is_no_head(content: bytes) -> None:
    """It is a hint. Fails when it stops a sender."""
    listed = Listed()
    listed.append(STREAM, 1)
    listed.channel.put(f"heads/{STREAM}.json", content)
    listed.channel.put(f"heads/{STREAM}.again", content)
    assert notes.head(listed.channel, STREAM) == 0
    assert notes.announced(listed.channel, STREAM) is None
    log = StreamLog(listed.channel, STREAM)
    newest = log.newest_manifest()
    assert newest is not None
    log.tell(newest)
    assert notes.head(listed.channel, STREAM) == 1


@pytest.mark.parametrize("died", range(8))
def test_a_trim_that_dies_leaves_no_frame_without_its_manifest(died: int) -> None:
    """Fails when manifests go first: what is left of their frames would never be trimmed."""
    listed = Listed()
    channel, log = listed.channel, StreamLog(listed.channel, STREAM)
    published = publish(log, 1, 2, 3, 4, frames=1)
    frames = [frame.path for each in published[:3] for frame in each.frames]
    real, left = channel.delete, [died]

    def delete(paths: list[str]) -> None:
        for path in paths:
            if left[0] == 0:
                raise ChannelError("died")
            left[0] -= 1
            real([path])

    channel.delete = delete  # type: ignore[method-assign,assignment]
    if died < 6:
        with pytest.raises(ChannelError):
            channel.trim(STREAM, 3, frames)
    else:
        channel.trim(STREAM, 3, frames)
    manifests = [StreamLog(channel, STREAM).read(epoch) for epoch in channel.stream_epochs(STREAM)]
    named = {frame.path for each in manifests for frame in each.frames}
    assert {path for path, _ in channel.frames(STREAM)} <= named


# --- what only a channel of objects does


def test_reading_a_missing_frame_raises_a_frame_error(channel: ObjectChannel) -> None:
    path = channel.put_frame(STREAM, ATTEMPT, 0, b"f")
    channel.append(STREAM, 1, b"m")
    channel.append(STREAM, 2, b"m")
    channel.trim(STREAM, 1, [path])
    with pytest.raises(FrameError, match="the frame that a manifest names is not there"):
        channel.get_frame(path)
    assert channel.frame_time(path) is None


def test_the_frames_of_one_write_are_listed_alone(channel: ObjectChannel) -> None:
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
    channel.put_frame("other", ATTEMPT, 0, b"f")
    assert len(channel.frames(STREAM)) == 6
    assert all(channel.frame_time(path) == written for path, written in channel.frames(STREAM))


def test_trimming_missing_frames_is_no_error(channel: ObjectChannel) -> None:
    """Nor does it keep others. Fails when a store ends at the first absent one."""
    paths = [channel.put_frame(STREAM, ATTEMPT, index, b"f") for index in range(42)]
    channel.trim_frames(STREAM, paths[:1])
    for _ in range(2):
        channel.trim_frames(STREAM, paths[:40])
    channel.trim_frames(STREAM, [])
    assert [path for path, _ in channel.frames(STREAM)] == paths[40:]


def test_a_manifest_that_does_not_count_is_trimmed_alone(channel: ObjectChannel) -> None:
    append_all(channel, STREAM, 1, 2, 3)
    for _ in range(2):
        channel.trim_manifest(STREAM, 2)
    assert channel.stream_epochs(STREAM) == [1, 3]


def test_a_log_is_trimmed_with_its_frames(channel: ObjectChannel) -> None:
    """What is there already, or gone, is no error: after a crash it is done once more."""
    paths = [channel.put_frame(STREAM, ATTEMPT, index, b"f") for index in range(4)]
    append_all(channel, STREAM, 1, 3, 4, 5)
    append_all(channel, STREAM + ".more", 1)
    for _ in range(2):
        channel.trim(STREAM, 4, [*paths[:3], paths[0]])
    assert (channel.stream_epochs(STREAM), channel.stream_epochs(STREAM + ".more")) == ([5], [1])
    assert [path for path, _ in channel.frames(STREAM)] == paths[3:]


def test_epochs_are_listed_with_gaps(channel: ObjectChannel) -> None:
    append_all(channel, STREAM, 2, 10, 1, 9, 100)
    assert channel.epochs() == {STREAM: [1, 2, 9, 10, 100]}
    assert channel.stream_epochs(STREAM) == [1, 2, 9, 10, 100]
    assert channel.stream_epochs(STREAM, 2) == [9, 10, 100]
    assert channel.stream_epochs(STREAM, 3, 1) == [9]
