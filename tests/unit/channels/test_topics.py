"""A channel on topics: what counts of its log, what a keeper deletes, and topics that were lost,
made again, cut or mirrored. Over topics in memory; ``test_kafka_brokers.py`` has real brokers."""

from __future__ import annotations

import itertools
import random
import threading
import time
import uuid
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c
from fake_broker import FakeBroker, FakeTopicChannel, Partition, Topics, clusters
from fakes import STREAM, manifest, publish

from spark_wan.channels.base import MAX_RECORD_BYTES, Note
from spark_wan.channels.kafka import channel as kafka_channel
from spark_wan.channels.kafka import parts, seen_log
from spark_wan.channels.kafka.broker import Record
from spark_wan.channels.kafka.keeper import UNNAMED_AGE
from spark_wan.channels.kafka.offsets import OffsetRanges
from spark_wan.channels.kafka.readers import MAX_KEY_BYTES, NO_ACK
from spark_wan.channels.kafka.seen_log import SeenLog, State
from spark_wan.channels.kafka.topics import ACKS, ATTEMPTS, FRAMES, LEAST_RECORD_BYTES, LOG
from spark_wan.channels.registry import prepare_all
from spark_wan.errors import (
    ChannelError,
    FrameError,
    ManifestError,
    ManifestExists,
    NotBegunError,
)
from spark_wan.log import notes, stream_log
from spark_wan.log.stream_log import StreamLog
from spark_wan.receiver.channel_streams import ChannelStreams
from spark_wan.topology.parsing import load_topology
from spark_wan.wire import topic_log
from spark_wan.wire.manifest import fingerprint
from spark_wan.wire.topic_log import Operation, Part, joined, read_operation
from spark_wan.wire.topic_state import Place, parse_path

ATTEMPT = "c" * 32
TWO_SITES = Path(__file__).parents[3] / "conf" / "two_sites.yaml"


@pytest.fixture
def url() -> Iterator[str]:
    name = f"topics://{uuid.uuid4().hex}"
    yield name
    clusters.pop(name, None)


def opened(url: str, keep: int = 10**9, faults: random.Random | None = None) -> FakeTopicChannel:
    """Return the channel as another process opens it."""
    channel = FakeTopicChannel(url)
    channel.faults = faults
    channel.keeper.log_operations = channel.keeper.frames_at_once = keep
    channel.prepare()
    return channel


def test_topics_that_are_not_there_are_not_begun_and_not_made(url: str) -> None:
    channel = FakeTopicChannel(url)
    assert not channel.is_begun() and not any(clusters[url].partitions.values())
    channel.prepare()
    assert FakeTopicChannel(url).is_begun()


def test_topics_of_another_program_are_refused_before_they_are_begun(url: str) -> None:
    made = opened(url)
    log_topic(made).records[0] = log_topic(made).records[0]._replace(value=b"hello")
    with pytest.raises(ChannelError, match="the first is not spark_wan's"):
        FakeTopicChannel(url).is_begun()


def topics(channel: FakeTopicChannel) -> Topics:
    return clusters[channel.url]


def log_topic(channel: FakeTopicChannel) -> Partition:
    return topics(channel).partitions["wan.log"][0]


def append(channel: FakeTopicChannel, stream: str, epoch: int, frames: int = 0) -> list[str]:
    """Append an epoch with frames, behind the one that is there; return the frames' paths."""
    paths = [
        channel.put_frame(stream, uuid.uuid4().hex, index, b"frame %d %d" % (epoch, index))
        for index in range(frames)
    ]
    previous = fingerprint(channel.manifest(stream, epoch - 1)) if epoch > 1 else ""
    data = b"%s %d" % (stream.encode(), epoch)
    channel.append(stream, epoch, data, previous=previous, frames=paths)
    return paths


def requests(channel: FakeTopicChannel) -> list[str]:
    """Return a list to which every later request of the channel is added, by its name."""
    broker, asked = channel.broker, list[str]()

    def noted(name: str) -> Callable[..., Any]:
        real = getattr(broker, name)

        def call(*args: object) -> Any:
            asked.append(name)
            return real(*args)

        return call

    for name in ("produce", "end", "read", "beginning", "offset_at", "delete_before"):
        setattr(broker, name, noted(name))
    return asked


def seen(channel: FakeTopicChannel) -> bytes:
    """Return all that a channel says of its log."""
    return channel.log.fresh(lambda seen: seen.state.encode())


# --- what counts


def test_of_rivals_the_first_counts_for_all_readers(url: str) -> None:
    """Fails when the last one does, as in a compacted topic."""
    first, second = opened(url), opened(url)
    append(first, STREAM, 1)
    first.append(STREAM, 2, b"a", previous=fingerprint(first.manifest(STREAM, 1)))
    with pytest.raises(ManifestExists):
        second.append(STREAM, 2, b"b", previous=fingerprint(second.manifest(STREAM, 1)))
    assert first.manifest(STREAM, 2) == second.manifest(STREAM, 2) == b"a"
    assert opened(url).manifest(STREAM, 2) == b"a"


@pytest.mark.parametrize(
    ("epoch", "previous"), [(1, "x"), (2, ""), (4, ""), (2, "0" * 32), (0, ""), (-1, "")]
)
def test_a_manifest_that_continues_nothing_does_not_count(
    url: str, epoch: int, previous: str
) -> None:
    """Fails when its number alone decides, or its ``previous``."""
    channel = opened(url)
    append(channel, STREAM, 1)
    with pytest.raises(ManifestExists):
        channel.append(STREAM, epoch, b"stray", previous=previous)
    other = opened(url)
    with pytest.raises(ManifestExists):
        other.append("new", epoch if epoch != 1 else 2, b"stray", previous=previous)
    assert opened(url).epochs() == {STREAM: [1]}


def test_f47_a_writer_frozen_before_a_trim_adds_nothing(url: str) -> None:
    """A zombie's manifest arrives after others have extended and trimmed the log."""
    channel = opened(url)
    for epoch in (1, 2, 3, 4):
        append(channel, STREAM, epoch)
    previous = fingerprint(channel.manifest(STREAM, 1))
    channel.trim(STREAM, 3, [])
    with pytest.raises(ManifestExists):
        opened(url).append(STREAM, 2, b"zombie", previous=previous)
    assert channel.stream_epochs(STREAM) == [4]


def test_a_trim_of_another_log_deletes_nothing(url: str) -> None:
    """Fails when a trim says only through which epoch: one that was delayed while the topics were
    made again would delete what nobody has acked."""
    channel = opened(url)
    for epoch in (1, 2, 3):
        append(channel, STREAM, epoch)
    fields = {"stream": STREAM, "through": 2, "fingerprint": "0" * 32}
    assert channel.submit(topic_log.TRIM, fields) is False
    whole = fingerprint(channel.manifest(STREAM, 3))
    assert channel.submit(topic_log.TRIM, {**fields, "through": 3, "fingerprint": whole}) is False
    assert channel.stream_epochs(STREAM) == [1, 2, 3]


def test_a_repeated_request_counts_once(url: str) -> None:
    """The broker has each record twice. Fails when the second answer replaces the first."""
    channel = opened(url)
    broker = channel.broker
    assert isinstance(broker, FakeBroker)
    real = broker.topics.append

    def twice(topic: str, partition: int, key: bytes, value: bytes) -> object:
        written = real(topic, partition, key, value)
        real(topic, partition, key, value)
        return written

    broker.topics.append = twice  # type: ignore[method-assign, assignment]
    channel._most = 100  # operations of several records
    for epoch in (1, 2, 3):
        append(channel, STREAM, epoch, frames=1)
    channel.trim(STREAM, 2, [])
    assert channel.stream_epochs(STREAM) == opened(url).stream_epochs(STREAM) == [3]
    assert channel.foreign() == []


@pytest.mark.parametrize("stays", [True, False])
def test_f15_a_request_without_an_answer_is_read_back(url: str, stays: bool) -> None:
    """An ambiguous time-out. Fails when the caller is told of an error for what is in the log."""
    channel = opened(url)
    append(channel, STREAM, 1)
    broker = channel.broker
    real = broker.produce

    def produce(topic: str, partition: int, records: list[tuple[bytes, bytes]]) -> object:
        if stays:
            real(topic, partition, records)
        raise ChannelError("timed out")

    broker.produce = produce  # type: ignore[method-assign, assignment]
    previous = fingerprint(channel.manifest(STREAM, 1))
    if stays:
        channel.append(STREAM, 2, b"m", previous=previous)
    else:
        with pytest.raises(ChannelError, match="timed out"):
            channel.append(STREAM, 2, b"m", previous=previous)
    broker.produce = real  # type: ignore[method-assign]
    channel.append(STREAM, 2, b"m", previous=previous)  # the caller tries again
    assert opened(url).stream_epochs(STREAM) == [1, 2]


def test_a_large_operation_is_several_records(url: str) -> None:
    """Fails when it takes effect before its last part, or never."""
    channel = opened(url)
    topics(channel).most = 3_000
    large = random.Random(1).randbytes(50_000)
    path = channel.put_frame(STREAM, ATTEMPT, 0, large)
    channel.append(STREAM, 1, large, frames=[path])
    other = opened(url)
    assert (other.manifest(STREAM, 1), other.get_frame(path)) == (large, large)
    assert max(len(each.value) for each in log_topic(channel).records) <= 3_000
    assert len(parse_path(path).places) > 10  # type: ignore[union-attr]
    assert other.foreign() == []


def test_a_topic_that_takes_no_records_is_named(url: str) -> None:
    channel = opened(url)
    topics(channel).most = LEAST_RECORD_BYTES // 2
    with pytest.raises(ChannelError, match=r"wan\.frames does not even .* max\.message\.bytes"):
        channel.put_frame(STREAM, ATTEMPT, 0, bytes(10_000))


def test_parts_before_a_checkpoint_begins_are_void(url: str) -> None:
    """Fails when readers that were there before it see an operation that later ones cannot."""
    channel = opened(url)
    broker = channel.broker
    fields = {"stream": STREAM, "epoch": 1, "previous": "", "frames": []}
    large = Operation(topic_log.MANIFEST, channel.channel_id(), fields, bytes(5_000))
    first, *rest = large.records(1_000)
    broker.produce("wan.log", 0, [(b"", first)])
    keeper = opened(url)
    keeper.broker.delete_before = lambda *_: None  # type: ignore[method-assign]
    keeper.keeper._checkpoint()
    assert channel.epochs() == {}  # it has read through the checkpoint
    begin = keeper.log.fresh(lambda seen: seen.checkpointed)
    assert begin is not None
    topics(channel).cut("wan.log", 0, begin)
    broker.produce("wan.log", 0, [(b"", each) for each in rest])
    assert channel.epochs() == opened(url).epochs() == {}


def test_parts_behind_a_second_begin_count_for_a_reader_that_begins_before_it(url: str) -> None:
    """Two keepers write checkpoints at once, while a writer writes an operation in parts.

    Fails when a reader that begins at the first checkpoint voids parts that came later.
    """
    channel = opened(url)
    append(channel, STREAM, 1)
    identity, state, broker = channel.channel_id(), seen(channel), channel.broker
    begins = [Operation(topic_log.BEGIN, identity) for _ in range(2)]
    fields = {"stream": "large", "epoch": 1, "previous": "", "frames": []}
    large = Operation(topic_log.MANIFEST, identity, fields, bytes(5_000)).records(1_000)
    [first] = broker.produce("wan.log", 0, [(b"", begins[0].encode())])
    broker.produce("wan.log", 0, [(b"", begins[1].encode()), (b"", large[0])])
    checkpoint = {"begin": begins[0].id, "offset": first.offset}
    channel.submit(topic_log.CHECKPOINT, checkpoint, state)
    broker.produce("wan.log", 0, [(b"", each) for each in large[1:]])
    topics(channel).cut("wan.log", 0, first.offset)
    assert opened(url).epochs() == channel.epochs() == {STREAM: [1], "large": [1]}


def test_an_operation_that_a_checkpoint_voids_is_written_again(url: str) -> None:
    channel, other = opened(url), opened(url)
    channel._most = 1_000
    broker = channel.broker
    real, voided = broker.produce, []

    def produce(topic: str, partition: int, records: list[tuple[bytes, bytes]]) -> object:
        if len(records) > 1 and len(voided) < ATTEMPTS - 1:
            voided.append(records)
            real(topic, partition, records[:1])
            other.keeper._checkpoint()
            return real(topic, partition, records[1:])
        return real(topic, partition, records)

    broker.produce = produce  # type: ignore[method-assign, assignment]
    channel.append(STREAM, 1, bytes(5_000))
    assert len(voided) == ATTEMPTS - 1
    assert opened(url).epochs() == channel.epochs() == {STREAM: [1]}


# --- frames


def test_a_frame_that_is_not_where_its_path_says_is_refused(url: str) -> None:
    """Fails when a record is taken for a frame by its offset alone: topics that were made again, or
    mirrored, have other records there."""
    channel = opened(url)
    path = channel.put_frame(STREAM, ATTEMPT, 0, b"f")
    parsed = parse_path(path)
    assert parsed is not None
    partition, offset = parsed.places[0]
    channel.broker.produce("wan.frames", partition, [(b"another", b"f")])
    for places in (
        (Place(partition, offset + 1),),
        (Place(partition, offset + 7),),
        (Place(99, 0),),
        (Place(partition, offset), Place(partition, offset + 1)),
    ):
        missing = str(parsed._replace(places=places))
        with pytest.raises(FrameError, match=r"is not there.*mirror"):
            channel.get_frame(missing)
        if places[0] != parsed.places[0]:
            assert channel.frame_time(missing) is None
    with pytest.raises(FrameError):
        channel.get_frame("frames/../../etc/passwd")


def test_the_time_of_a_frame_is_asked_of_its_lowest_record(url: str) -> None:
    """Fails when the whole frame is read for it. Requests that are repeated may change the order of
    the records, and a topic is deleted from its beginning."""
    channel = opened(url)
    topics(channel).most = 3_000
    topics(channel).time = 1e9
    path = channel.put_frame(STREAM, ATTEMPT, 0, bytes(50_000))
    parsed = parse_path(path)
    assert parsed is not None and len(parsed.places) > 10
    [place] = {place.partition for place in parsed.places}
    taken: list[Record] = []
    real = channel.broker.read

    def counted(*asked: Any, **more: Any) -> Iterator[Record]:
        for record in real(*asked, **more):
            taken.append(record)
            yield record

    channel.broker.read = counted  # type: ignore[method-assign]
    assert channel.frame_time(path) == 1e9
    assert [record.offset for record in taken] == [parsed.places[0].offset]
    topics(channel).time = 2e9
    [late] = channel.broker.produce("wan.frames", place, [(parsed.key(0), b"again")])
    repeated = (Place(place, late.offset), *parsed.places[1:])
    assert channel.frame_time(str(parsed._replace(places=repeated))) == 1e9
    swapped = (parsed.places[1], parsed.places[0], *parsed.places[2:])
    assert channel.frame_time(str(parsed._replace(places=swapped))) is None
    topics(channel).cut("wan.frames", place, parsed.places[1].offset)
    assert channel.frame_time(path) is None


def test_f18_partitions_that_are_added_are_used(url: str) -> None:
    """Fails when a frame's place follows from the number of partitions."""
    channel = opened(url)
    before = [channel.put_frame(STREAM, ATTEMPT, index, b"%d" % index) for index in range(4)]
    topics(channel).partitions["wan.frames"] += [Partition(), Partition()]
    after = [channel.put_frame(STREAM, ATTEMPT, index, b"%d" % index) for index in range(4, 12)]
    assert {parse_path(path).places[0].partition for path in after} == {0, 1, 2, 3}  # type: ignore[union-attr]
    assert [opened(url).get_frame(path) for path in before + after] == [
        b"%d" % index for index in range(12)
    ]


# --- the keeper


def test_what_is_trimmed_is_deleted_from_the_topics(url: str) -> None:
    """Fails when topics grow for ever. A new reader begins at the checkpoint."""
    channel = opened(url, keep=10)
    for epoch in range(1, 101):
        paths = append(channel, STREAM, epoch, frames=2)
        if epoch > 1:
            channel.trim(STREAM, epoch - 1, [])
    notes.announce(channel, STREAM, 100, 3)
    channel.put_note(Note("sender", STREAM), b"record")
    assert len(log_topic(channel).records) < 60
    assert log_topic(channel).beginning > 200
    for partition in topics(channel).partitions["wan.frames"]:
        assert len(partition.records) < 25
    new = opened(url)
    assert seen(new) == seen(channel)
    assert (new.epochs(), notes.announced(new, STREAM)) == ({STREAM: [100]}, (100, 3))
    assert new.note(Note("sender", STREAM)) == b"record"
    assert [new.get_frame(path) for path in paths] == [b"frame 100 0", b"frame 100 1"]
    append(new, STREAM, 101)
    assert channel.stream_epochs(STREAM) == [100, 101]


def test_a_stream_that_is_held_does_not_keep_the_frames_of_others(url: str) -> None:
    """Its frames are moved, and its manifests, which name the old places, still lead to them."""
    channel = opened(url, keep=10)
    held = [path for epoch in (1, 2, 3) for path in append(channel, "held", epoch, frames=2)]
    for epoch in range(1, 101):
        append(channel, STREAM, epoch, frames=2)
        if epoch > 1:
            channel.trim(STREAM, epoch - 1, [])
    for partition in topics(channel).partitions["wan.frames"]:
        assert partition.beginning > 50
        assert len(partition.records) < 40
    for reader in (channel, opened(url)):
        assert [reader.get_frame(path) for path in held] == [
            b"frame %d %d" % (epoch, index) for epoch in (1, 2, 3) for index in (0, 1)
        ]
        assert reader.frame_time(held[0]) is not None
    channel.trim("held", 2, [])
    assert channel.get_frame(held[-1]) == b"frame 3 1"
    assert seen(channel) == seen(opened(url))


def test_a_reader_that_looked_long_ago_finds_a_moved_frame(url: str) -> None:
    channel, reader = opened(url, keep=4), opened(url)
    [path] = append(channel, "held", 1, frames=1)
    assert reader.get_frame(path) == b"frame 1 0"
    for epoch in range(1, 30):
        append(channel, STREAM, epoch, frames=2)
        channel.trim(STREAM, epoch - 1, [])
    assert topics(channel).partitions["wan.frames"][0].beginning > 0
    assert reader.get_frame(path) == b"frame 1 0"


def test_frames_that_no_manifest_names_yet_stay_a_day(url: str) -> None:
    """Fails when a keeper deletes the frames of a write that is under way."""
    channel = opened(url, keep=4)
    topics(channel).time = 1e9
    under_way = [channel.put_frame(STREAM, ATTEMPT, index, b"f") for index in range(2)]
    for epoch in range(1, 30):
        append(channel, "other", epoch, frames=2)
        channel.trim("other", epoch - 1, [])
    assert [channel.get_frame(path) for path in under_way] == [b"f", b"f"]
    channel.append(STREAM, 1, b"m", frames=under_way)
    topics(channel).time = 1e9 + 2 * UNNAMED_AGE
    channel.put_frame("left", ATTEMPT, 9, b"behind")
    channel.put_frame("left", ATTEMPT, 9, b"behind")
    topics(channel).time = 1e9 + 4 * UNNAMED_AGE
    for epoch in range(30, 60):
        append(channel, "other", epoch, frames=2)
        channel.trim("other", epoch - 1, [])
    assert all(each.beginning > 60 for each in topics(channel).partitions["wan.frames"])
    assert [channel.get_frame(path) for path in under_way] == [b"f", b"f"]


def test_a_manifest_whose_frames_were_deleted_does_not_count(url: str) -> None:
    """Its writer was frozen for more than a day. Fails when receivers meet a manifest that names
    what is gone."""
    channel = opened(url, keep=4)
    topics(channel).time = 1e9
    frozen = [channel.put_frame(STREAM, ATTEMPT, index, b"f") for index in range(2)]
    topics(channel).time = 1e9 + 2 * UNNAMED_AGE
    for epoch in range(1, 30):
        append(channel, "other", epoch, frames=2)
        channel.trim("other", epoch - 1, [])
    with pytest.raises(ManifestExists, match="names frames that were trimmed"):
        channel.append(STREAM, 1, b"m", frames=frozen)


def test_a_floor_that_a_manifest_was_faster_than_does_not_count(url: str) -> None:
    """Fails when a keeper deletes what was named between its look and its deletion."""
    channel = opened(url)
    [path] = append(channel, STREAM, 1, frames=1)
    partition, offset = parse_path(path).places[0]  # type: ignore[union-attr]
    assert channel.submit(topic_log.FLOOR, {"floors": [[partition, offset + 1]]}) is False
    assert channel.submit(topic_log.FLOOR, {"floors": [[partition, offset]]}) is True


def test_a_frame_is_named_once(url: str) -> None:
    """Fails when two epochs name it: the first one's trim deletes the other's."""
    channel = opened(url)
    paths = append(channel, STREAM, 1, frames=1)
    with pytest.raises(ManifestExists):
        channel.append("other", 1, b"m", frames=paths)
    assert channel.epochs() == {STREAM: [1]}


def test_two_keepers_move_a_frame_once(url: str) -> None:
    """Fails when the second move counts, from where the frame is no more, or to where it is not:
    the copy that a reader was led to is deleted."""
    channel = opened(url)
    [path] = append(channel, STREAM, 1, frames=1)
    old = parse_path(path).places  # type: ignore[union-attr]
    first, second = (
        parse_path(channel.put_frame(STREAM, ATTEMPT, index, b"copy")).places  # type: ignore[union-attr]
        for index in range(2)
    )
    fields = {"path": path, "from": old, "to": first}
    assert channel.submit(topic_log.MOVE, fields) is True
    assert channel.submit(topic_log.MOVE, {**fields, "to": second}) is False
    assert channel.submit(topic_log.MOVE, {**fields, "from": first, "to": []}) is False
    floor = [[partition, offset] for partition, offset in old]
    assert channel.submit(topic_log.FLOOR, {"floors": [[p, o + 1] for p, o in floor]}) is True
    assert channel.submit(topic_log.MOVE, {**fields, "from": first, "to": old}) is False
    channel.trim_frames(STREAM, [path])
    assert channel.submit(topic_log.MOVE, {**fields, "from": first, "to": second}) is False


def test_the_newest_manifest_stays_without_its_frames(url: str) -> None:
    """All sites have it. Fails when an idle stream keeps its last frames for ever."""
    channel = opened(url)
    paths = [path for epoch in (1, 2, 3) for path in append(channel, STREAM, epoch, frames=1)]
    channel.trim(STREAM, 2, paths)
    assert channel.stream_epochs(STREAM) == [3]
    assert channel.log.fresh(lambda seen: seen.state.frames) == {}
    channel.trim(STREAM, 2, paths)
    append(channel, STREAM, 4)


def test_an_altered_record_is_foreign(url: str) -> None:
    """Fails when its checksum is not compared: readers would apply what nobody wrote."""
    channel = opened(url)
    fields = {"stream": STREAM, "epoch": 1, "previous": "", "frames": []}
    operation = Operation(topic_log.MANIFEST, channel.channel_id(), fields, b"manifest")
    topics(channel).append("wan.log", 0, b"", operation.encode()[:-1] + b"T")
    for value in operation.records(100):
        topics(channel).append("wan.log", 0, b"", value[:-1] + b"\x00")
    assert channel.epochs() == {}
    assert len(channel.foreign()) == 1 + len(operation.records(100))


def test_frames_that_were_discarded_stay_so(url: str) -> None:
    """Those of the newest manifest, which all sites have, and of a write that was given up. A new
    reader knows, and no manifest brings them back."""
    channel = opened(url)
    paths = append(channel, STREAM, 1, frames=2)
    given_up = channel.put_frame(STREAM, ATTEMPT, 0, b"f")
    channel.trim_frames(STREAM, [*paths, given_up, "no path"])
    channel.trim_frames(STREAM, [])
    with pytest.raises(ManifestExists):
        channel.append("other", 1, b"m", frames=[given_up])
    channel.keeper._checkpoint()
    assert log_topic(channel).beginning > 0
    new = opened(url)
    assert seen(new) == seen(channel)
    assert new.log.fresh(lambda seen: seen.state.frames) == {}
    places = [place for path in [*paths, given_up] for place in parse_path(path).places]  # type: ignore[union-attr]
    ends = {partition: 0 for partition, _ in places}
    for partition, offset in places:
        ends[partition] = max(ends[partition], offset + 1)
    assert channel.submit(topic_log.FLOOR, {"floors": [*ends.items()]})
    channel.trim_frames(STREAM, paths)  # once more, after a crash
    dead = channel.log.fresh(lambda seen: [list(each) for each in seen.state.dead.values()])
    assert [each for each in dead if each] == []


def test_a_keeper_with_nothing_to_do_asks_the_brokers_nothing(url: str) -> None:
    """It looks after each trim and each sender's record. Fails when each look reads the log."""
    channel = opened(url, keep=100)
    for epoch in (1, 2, 3):
        append(channel, STREAM, epoch, frames=2)
    channel.trim(STREAM, 2, [])
    asked = requests(channel)
    channel.keeper.keep_in_time()
    assert asked == []
    channel.put_note(Note("sender", STREAM), b"record")
    assert asked == ["produce", "read"]


def test_a_keeper_whose_checkpoint_fails_keeps_no_copy_of_the_state(url: str) -> None:
    """Its first record is there, and the answer was lost. Fails when a process keeps the state of
    each checkpoint that it has begun in vain."""
    channel = opened(url)
    broker = channel.broker
    real = broker.produce

    def produce(topic: str, partition: int, records: list[tuple[bytes, bytes]]) -> object:
        real(topic, partition, records)
        raise ChannelError("no answer")

    broker.produce = produce  # type: ignore[method-assign, assignment]
    with pytest.raises(ChannelError, match="no answer"):
        channel.keeper._checkpoint()
    begin = read_operation(log_topic(channel).records[-1].value, "here")
    assert isinstance(begin, Operation)
    assert begin.kind == topic_log.BEGIN
    assert channel.log.fresh(lambda seen: seen.states_before.get(begin.id)) is None


def test_a_state_too_large_for_a_checkpoint_deletes_nothing(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Fails when the log is deleted up to a checkpoint that no reader takes."""
    monkeypatch.setattr(seen_log, "MAX_STATE_BYTES", 500)
    channel = opened(url, keep=4)
    for epoch in range(1, 20):
        append(channel, STREAM, epoch, frames=1)
    for _ in range(30):
        channel.put_note(Note("sender", STREAM), b"record")
    assert "too many for a checkpoint" in caplog.text
    assert opened(url).epochs() == {STREAM: [*range(1, 20)]}
    channel.trim(STREAM, 18, [])
    for _ in range(50):
        channel.put_note(Note("sender", STREAM), b"record")
    assert log_topic(channel).beginning > 0
    assert opened(url).epochs() == {STREAM: [19]}


@pytest.mark.parametrize("step", range(12))
def test_a_keeper_may_end_at_any_step(url: str, step: int) -> None:
    """Fails when what it did before is not enough for a reader, or too much for the next one."""
    keeper, other = opened(url, keep=6), opened(url, keep=6)
    held = [path for epoch in (1, 2) for path in append(other, "held", epoch, frames=2)]
    for epoch in range(1, 20):
        append(other, STREAM, epoch, frames=2)
    broker, calls = keeper.broker, 0

    class Killed(Exception):
        pass

    def guarded(name: str) -> None:
        real = getattr(broker, name)

        def call(*args: object) -> object:
            nonlocal calls
            calls += 1
            if calls > step:
                raise Killed
            return real(*args)

        setattr(broker, name, call)

    guarded("produce")
    guarded("delete_before")
    with suppress(Killed):
        keeper.trim(STREAM, 18, [])
    for reader in (other, opened(url)):
        assert [reader.get_frame(path) for path in held] == [
            b"frame %d %d" % (epoch, index) for epoch in (1, 2) for index in (0, 1)
        ]
        assert reader.epochs()["held"] == [1, 2]
        assert reader.stream_epochs(STREAM)[-1] == 19
    # A copy of a frame that no operation names yet stays for a day.
    topics(other).time = time.time() + 2 * UNNAMED_AGE
    for epoch in range(20, 60):
        append(other, STREAM, epoch, frames=2)
        other.trim(STREAM, epoch - 1, [])
    assert seen(opened(url)) == seen(other)
    assert all(len(each.records) < 40 for each in topics(other).partitions["wan.frames"])


def test_a_checkpoint_half_written_is_no_checkpoint(url: str) -> None:
    """Neither one of which a part is missing, nor one whose ``begin`` is gone. A reader goes on to
    the next."""
    channel = opened(url)
    append(channel, STREAM, 1)
    begin = Operation(topic_log.BEGIN, channel.channel_id())
    channel.broker.produce("wan.log", 0, [(b"", begin.encode())])
    state = channel.log.fresh(lambda seen: seen.state.encode())
    half = Operation(
        topic_log.CHECKPOINT, channel.channel_id(), {"begin": begin.id, "offset": 2}, state
    )
    channel.broker.produce("wan.log", 0, [(b"", half.records(50)[0])])
    append(channel, STREAM, 2)
    zombie = Operation(
        topic_log.CHECKPOINT, channel.channel_id(), {"begin": "f" * 32, "offset": 0}, state
    )
    channel.broker.produce("wan.log", 0, [(b"", zombie.encode())])
    assert opened(url).epochs() == {STREAM: [1, 2]}
    channel.keeper._checkpoint()
    append(channel, STREAM, 3)
    assert opened(url).epochs() == channel.epochs() == {STREAM: [1, 2, 3]}
    assert log_topic(channel).beginning > 4


def test_a_checkpoint_counts_for_its_own_begin_only(url: str) -> None:
    """A ``begin`` that is there twice stands before other operations each time."""
    channel = opened(url)
    append(channel, STREAM, 1)
    begin = Operation(topic_log.BEGIN, channel.channel_id())
    state = seen(channel)
    [first] = channel.broker.produce("wan.log", 0, [(b"", begin.encode())])
    append(channel, STREAM, 2)
    [again] = channel.broker.produce("wan.log", 0, [(b"", begin.encode())])
    fields = {"begin": begin.id, "offset": first.offset}
    channel.submit(topic_log.CHECKPOINT, fields, state)
    topics(channel).cut("wan.log", 0, again.offset)
    with pytest.raises(ChannelError, match="nor with a checkpoint"):
        FakeTopicChannel(url).epochs()


# --- topics that are not what they were


def test_f17_topics_made_again_are_another_channel(url: str) -> None:
    """Fails when what was read before is taken for the new log's, or an operation on the old
    channel changes the new one."""
    channel = opened(url)
    for epoch in (1, 2, 3):
        append(channel, STREAM, epoch)
    old = channel.channel_id()
    for topic in ("wan.log", "wan.frames", "wan.acks"):
        topics(channel).delete(topic)
    with pytest.raises(ChannelError, match="there is no topic"):
        channel.epochs()
    other = opened(url)
    for epoch in (1, 2):
        append(other, "other", epoch)
    assert channel.epochs() == {"other": [1, 2]}
    late = Operation(
        topic_log.MANIFEST, old, {"stream": STREAM, "epoch": 1, "previous": "", "frames": []}
    )
    channel.broker.produce("wan.log", 0, [(b"", late.encode())])
    assert channel.epochs() == opened(url).epochs() == {"other": [1, 2]}


def test_f17_a_topic_made_again_with_as_many_records_is_noticed(url: str) -> None:
    channel = opened(url)
    append(channel, STREAM, 1)
    topics(channel).delete("wan.log")
    other = opened(url)
    append(other, "other", 1)
    with pytest.raises(ManifestExists):
        channel.append(STREAM, 2, b"m", previous=fingerprint(b"%s 1" % STREAM.encode()))
    assert channel.epochs() == {"other": [1]}


def test_f17_a_topic_made_again_with_fewer_records_is_noticed(url: str) -> None:
    """Fails when a writer looks no further than at its own record, which is below what it knows."""
    channel = opened(url)
    for epoch in (1, 2, 3):
        append(channel, STREAM, epoch)
    topics(channel).delete("wan.log")
    opened(url)
    with pytest.raises(ManifestExists):
        channel.append(STREAM, 4, b"m", previous=fingerprint(b"%s 3" % STREAM.encode()))
    assert channel.epochs() == {}
    append(channel, STREAM, 1)


def test_an_append_asks_the_brokers_twice(url: str) -> None:
    """It writes, and reads its own record: over a long line each request counts. Fails when a log
    over a channel that compares asks before and after, as for a store."""
    channel = opened(url)
    log = StreamLog(channel, STREAM)
    [first] = publish(log, 1)
    asked = requests(channel)
    log.append(replace(first, epoch=2, previous=first.fingerprint, frames=()))
    assert asked == ["produce", "read"]


def test_the_newest_manifest_of_a_log_is_one_request(url: str) -> None:
    """Fails when the manifest is asked for again after the listing that found it."""
    writer, channel = opened(url), opened(url)
    log = StreamLog(channel, STREAM)
    [first] = publish(StreamLog(writer, STREAM), 1)
    asked = requests(channel)
    assert log.newest_manifest() == first
    assert asked.count("read") == 1
    asked.clear()
    assert log.newest_manifest() == first
    assert asked == ["end"]


def test_all_acks_of_a_stream_are_one_read(url: str) -> None:
    """Fails when each site's ack is asked for by itself."""
    channel = opened(url)
    acks = {site: site.encode() for site in ("seattle", "denver", "austin")}
    for site, ack in acks.items():
        notes.put_ack(channel, STREAM, site, ack)
        notes.put_ack(channel, "other", site, b"other")
    asked = requests(channel)
    assert notes.acks(channel, STREAM) == acks
    assert asked == ["end", "beginning", "read"]
    assert notes.acks(channel, "new") == {}
    assert asked[3:] == ["end"]


class LateLock:
    """A lock that others get first: once, when it is asked for, they do something meanwhile."""

    def __init__(self, meanwhile: Callable[[], object]) -> None:
        self.lock = threading.Lock()
        self.meanwhile = [meanwhile]

    def __enter__(self) -> None:
        if self.meanwhile:
            self.meanwhile.pop()()
        self.lock.acquire()

    def __exit__(self, *_: object) -> None:
        self.lock.release()


def failing(channel: FakeTopicChannel, request: str, ask: Callable[[], object]) -> None:
    """Ask while a request fails."""
    real = getattr(channel.broker, request)

    def fails(*_: object) -> None:
        raise ChannelError("timed out")

    setattr(channel.broker, request, fails)
    with pytest.raises(ChannelError, match="timed out"):
        ask()
    setattr(channel.broker, request, real)


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("asked", ["end", "read"])
@pytest.mark.parametrize("topic", ["log", "acks"])
def test_f15_a_read_that_fails_is_no_answer_for_those_who_wait(
    url: str, topic: str, asked: str, known: bool
) -> None:
    """Another thread begins to read after this one has asked, and its request fails. Fails when
    this one takes that for its own read: it gets what was known long ago, or an empty log."""
    channel, other = opened(url), opened(url)
    ask: Any = channel.epochs if topic == "log" else lambda: notes.acks(channel, STREAM)
    reader = channel.log if topic == "log" else channel._acks

    def write(number: int) -> object:
        append(other, STREAM, number)
        notes.put_ack(other, STREAM, "seattle", b"%d" % number)
        return {STREAM: [*range(1, number + 1)]} if topic == "log" else {"seattle": b"%d" % number}

    def meanwhile() -> None:
        if known:  # one succeeds before
            assert ask() == answers[0]
            answers.append(write(3))
        failing(channel, asked, ask)

    write(1)
    ask()
    answers = [write(2)]
    reader._lock = LateLock(meanwhile)  # type: ignore[assignment]
    assert ask() in answers


def test_f17_acks_that_are_read_anew_in_vain_are_no_answer_for_those_who_wait(url: str) -> None:
    """Fails when they get none: those of before are forgotten, the new ones not read."""
    channel = opened(url)
    notes.put_ack(channel, STREAM, "seattle", b"1")
    notes.put_ack(channel, STREAM, "seattle", b"2")

    def meanwhile() -> None:
        notes.acks(channel, STREAM)
        topics(channel).delete("wan.acks")
        notes.put_ack(opened(url), STREAM, "denver", b"9")
        failing(channel, "read", lambda: notes.acks(channel, STREAM))

    channel._acks._lock = LateLock(meanwhile)  # type: ignore[assignment]
    assert notes.acks(channel, STREAM) == {"denver": b"9"}


def test_a_read_that_breaks_off_goes_on_from_there(url: str) -> None:
    """Fails when what was read is forgotten: over a bad line, a long log is never read."""
    channel, other = opened(url), opened(url)
    for epoch in range(1, 30):
        append(other, STREAM, epoch)
    real = channel.broker.read

    def breaks_off(*place: object) -> Iterator[Record]:
        yield from itertools.islice(real(*place), 10)  # type: ignore[arg-type]
        raise ChannelError("timed out")

    channel.broker.read = breaks_off  # type: ignore[method-assign, assignment]
    for _ in range(4):
        with pytest.raises(ChannelError, match="timed out"):
            channel.epochs()
    channel.broker.read = real  # type: ignore[method-assign]
    asked = requests(channel)
    assert channel.epochs() == {STREAM: [*range(1, 30)]}
    assert "beginning" not in asked


def test_a_read_is_shared_by_those_who_wait_for_it(url: str) -> None:
    """Fails when each of them reads the topic once more."""
    channel = opened(url)
    asked = requests(channel)
    channel.log._lock = LateLock(channel.epochs)  # type: ignore[assignment]
    assert channel.epochs() == {}
    assert asked == ["end"]


def test_f17_acks_made_again_are_read_anew(url: str) -> None:
    channel = opened(url)
    for ack in (b"1", b"2", b"3"):
        notes.put_ack(channel, STREAM, "seattle", ack)
    assert notes.acks(channel, STREAM) == {"seattle": b"3"}
    topics(channel).delete("wan.acks")
    other = opened(url)
    notes.put_ack(other, STREAM, "denver", b"9")
    assert notes.acks(channel, STREAM) == {"denver": b"9"}


@pytest.mark.parametrize("more", [1, 2])
@pytest.mark.parametrize("compacted", [False, True])
def test_f17_acks_made_again_with_as_many_records_are_noticed(
    url: str, compacted: bool, more: int
) -> None:
    """Fails when the next offset alone says what is new: acks of the old topic stay, and those of
    the new one below that offset are never read."""
    channel, other = opened(url), opened(url)
    for ack in (b"1", b"2"):
        notes.put_ack(channel, STREAM, "seattle", ack)
    assert notes.acks(channel, STREAM) == {"seattle": b"2"}
    topics(channel).delete("wan.acks")
    other.prepare()
    notes.put_ack(other, STREAM, "denver", b"3")
    for number in range(1 + more):
        notes.put_ack(other, STREAM, "seattle" if compacted else "austin", b"%d" % number)
    if compacted:  # the new topic has no record at the old one's last offset
        topics(channel).compact("wan.acks")
    newest = {"seattle" if compacted else "austin": b"%d" % more, "denver": b"3"}
    assert notes.acks(channel, STREAM) == newest
    asked = requests(channel)
    assert notes.acks(channel, STREAM) == newest
    assert asked == ["end"]


def test_f17_acks_made_again_with_as_many_records_are_noticed_when_a_job_starts(url: str) -> None:
    channel, other = opened(url), opened(url)
    notes.put_ack(channel, STREAM, "seattle", b"1")
    assert notes.acks(channel, STREAM) == {"seattle": b"1"}
    topics(channel).delete("wan.acks")
    other.prepare()
    notes.put_ack(other, STREAM, "denver", b"2")
    channel.prepare()
    assert notes.acks(channel, STREAM) == {"denver": b"2"}


def test_acks_that_follow_on_are_two_requests(url: str) -> None:
    channel, other = opened(url), opened(url)
    notes.put_ack(other, STREAM, "seattle", b"1")
    notes.acks(channel, STREAM)
    notes.put_ack(other, STREAM, "seattle", b"2")
    asked = requests(channel)
    assert notes.acks(channel, STREAM) == {"seattle": b"2"}
    assert asked == ["end", "read"]


def test_acks_compacted_behind_a_reader_are_read_anew(url: str) -> None:
    """Its last record is gone, as a newer one of that site is there; one of which nothing is left
    was removed. Fails when what a reader knew before stays."""
    channel, other = opened(url), opened(url)
    notes.put_ack(other, STREAM, "denver", b"1")
    notes.put_ack(other, STREAM, "seattle", b"2")
    assert notes.acks(channel, STREAM) == {"denver": b"1", "seattle": b"2"}
    other.remove(STREAM)
    notes.put_ack(other, STREAM, "seattle", b"3")
    topics(channel).compact("wan.acks")
    topics(channel).partitions["wan.acks"][0].records.pop(0)  # one without a value goes at last
    assert notes.acks(channel, STREAM) == notes.acks(opened(url), STREAM) == {"seattle": b"3"}
    assert notes.ack_versions(channel) == notes.ack_versions(opened(url))


def test_an_ack_that_is_too_large_is_none(url: str) -> None:
    """As in files and objects. Fails when its bytes stay in memory, or it leaves the ack before."""
    channel = opened(url)
    topics(channel).most = 10 * MAX_RECORD_BYTES
    for value, kept in ((bytes(MAX_RECORD_BYTES), None), (bytes(MAX_RECORD_BYTES + 1), NO_ACK)):
        notes.put_ack(channel, STREAM, "seattle", value)
        assert notes.ack(channel, STREAM, "seattle") == (kept or value)
    assert StreamLog(channel, STREAM).acks() == {}
    notes.put_ack(channel, "s" * MAX_KEY_BYTES, "seattle", b"1")
    notes.put_ack(channel, STREAM, "seattle", b"1")
    assert {*notes.ack_versions(channel)} == {STREAM}
    assert notes.acks(channel, STREAM) == {"seattle": b"1"}


# --- what is too large


def manifest_operation(channel: FakeTopicChannel, payload: bytes) -> Operation:
    fields = {"stream": STREAM, "epoch": 1, "previous": "", "frames": []}
    return Operation(topic_log.MANIFEST, channel.channel_id(), fields, payload)


def write(channel: FakeTopicChannel, *values: bytes) -> None:
    """Write records to the log, as anyone does who may."""
    for value in values:
        topics(channel).append("wan.log", 0, b"", value)


@pytest.fixture
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "MAX_OPERATION_BYTES", 6_000)
    monkeypatch.setattr(parts, "MAX_UNFINISHED_BYTES", 12_000)
    monkeypatch.setattr(parts, "MAX_CHECKPOINT_BYTES", 100_000)


def kept_bytes(channel: FakeTopicChannel) -> int:
    """Return the size of the operations that are not whole yet, by what is kept of them."""
    kept = channel.log.fresh(lambda seen: [*seen._unfinished._unfinished.values()])
    size = sum(len(part.data) + parts.PART_BYTES for each in kept for part in each.parts)
    assert size == sum(channel.log._seen._unfinished._sizes.values())
    return size


@pytest.mark.parametrize("most", [100, 10_000])
def test_a_manifest_above_the_limit_does_not_count(
    url: str, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """Whoever wrote it. Fails when all readers keep it; the next one takes its place."""
    channel = opened(url)
    monkeypatch.setattr(seen_log, "MAX_MANIFEST_BYTES", 1_000)
    write(channel, *manifest_operation(channel, bytes(1_001)).records(most))
    assert channel.epochs() == {}
    channel.append(STREAM, 1, bytes(1_000))
    assert channel.epochs() == opened(url).epochs() == {STREAM: [1]}


def test_what_readers_would_not_take_is_not_written(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fails when a writer learns of it by a verdict that says something else, or never."""
    channel = opened(url)
    monkeypatch.setattr(stream_log, "MAX_MANIFEST_BYTES", 100)
    monkeypatch.setattr(topic_log, "MAX_HEAD_BYTES", 1_000)
    before = log_topic(channel).end
    with pytest.raises(ManifestError, match=r"receivers read 100\. Raise batch_size"):
        StreamLog(channel, STREAM).append(manifest(1))
    with pytest.raises(ChannelError, match=r"1,048,577 bytes; readers take 1,048,576"):
        channel.put_note(Note("sender", STREAM), bytes(MAX_RECORD_BYTES + 1))
    with pytest.raises(ChannelError, match=r"bytes without its payload; readers take 1,000"):
        notes.announce(channel, "s" * 1_000, 1, 1)
    assert log_topic(channel).end == before


def test_a_senders_record_above_the_limit_does_not_count(url: str) -> None:
    channel = opened(url)
    channel.put_note(Note("sender", STREAM), b"record")
    fields = {"stream": STREAM}
    for size, kept in ((MAX_RECORD_BYTES + 1, b"record"), (MAX_RECORD_BYTES, bytes(2**20))):
        large = Operation(topic_log.SENDER, channel.channel_id(), fields, bytes(size))
        write(channel, large.encode())
        assert channel.note(Note("sender", STREAM)) == kept


def test_an_operation_with_a_head_above_the_limit_is_foreign(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fails when its JSON is parsed: it takes many times its size."""
    channel = opened(url)
    operation = replace(manifest_operation(channel, b"m"), fields={"x": "y" * 1_000})
    value = operation.encode()
    monkeypatch.setattr(topic_log, "MAX_HEAD_BYTES", 1_000)
    write(channel, value)
    assert len(channel.foreign()) == 1


@pytest.mark.parametrize("identity", ["a" * 900_000, "", "A" * 32, "a" * 33])
def test_an_operation_with_another_id_is_foreign(url: str, identity: str) -> None:
    """Readers keep IDs of thousands of operations. Fails when they have any size."""
    channel = opened(url)
    write(channel, replace(manifest_operation(channel, b"m"), id=identity).encode())
    assert (channel.epochs(), len(channel.foreign())) == ({}, 1)


@pytest.mark.parametrize("data", [b"", b"x" * 700], ids=["empty", "full"])
def test_operations_without_an_end_are_kept_within_limits(
    url: str, small_limits: None, data: bytes
) -> None:
    """Many that were begun, one that claims a billion parts, and checkpoints. Fails when memory
    grows with what anyone writes to the topic."""
    channel = opened(url)
    checksum = b"%08x" % crc32c(data)
    most = 0
    for number in range(400):
        write(channel, b"WANP 1 %032x 0 1000000000 %s\n%s" % (number, checksum, data))
        write(channel, b"WANP 1 %032x %d 999999999 %s\n%s" % (10**6, number, checksum, data))
        begun = b'WANO 1 00000000\n{"kind":"checkpoint",' + data
        line = b"WANP 1 %032x 0 2 %08x\n" % (10**9 + number, crc32c(begun))
        write(channel, line + begun)
        if number % 20 == 0:
            most = max(most, kept_bytes(channel))
    assert most <= parts.MAX_UNFINISHED_BYTES + parts.MAX_CHECKPOINT_BYTES
    append(channel, STREAM, 1, frames=1)
    assert channel.epochs() == opened(url).epochs() == {STREAM: [1]}


def test_an_operation_of_parts_above_the_limit_is_dropped(url: str, small_limits: None) -> None:
    """Fails when one operation takes what is for all."""
    channel = opened(url)
    write(channel, *manifest_operation(channel, bytes(6_000)).records(1_000))
    assert (channel.epochs(), kept_bytes(channel)) == ({}, 0)
    write(channel, *manifest_operation(channel, bytes(5_500)).records(1_000))
    assert channel.epochs() == opened(url).epochs() == {STREAM: [1]}


def test_a_checkpoint_has_a_limit_of_its_own(url: str, small_limits: None) -> None:
    """Fails when a large state is never taken: the log grows for ever."""
    channel = opened(url)
    channel._most = 1_000
    chance = random.Random(1)
    for epoch in range(1, 10):
        previous = fingerprint(channel.manifest(STREAM, epoch - 1)) if epoch > 1 else ""
        channel.append(STREAM, epoch, chance.randbytes(3_000), previous=previous)
    channel.keeper._checkpoint()
    assert log_topic(channel).beginning > 0
    assert sum(len(each.value) for each in log_topic(channel).records) > 2 * 12_000
    assert seen(opened(url)) == seen(channel)


@pytest.mark.parametrize("times", [1, ATTEMPTS])
def test_an_operation_that_others_displace_is_written_again(
    url: str, small_limits: None, times: int
) -> None:
    """Others begin operations between its parts. Fails when it is lost in silence."""
    channel = opened(url)
    channel._most = 1_000
    broker, displaced = channel.broker, []
    real = broker.produce

    def produce(topic: str, partition: int, records: list[tuple[bytes, bytes]]) -> object:
        if len(records) == 1 or len(displaced) >= times:
            return real(topic, partition, records)
        displaced.append(records)
        real(topic, partition, records[:1])
        for _ in range(12):
            large = manifest_operation(channel, bytes(2_000))
            write(channel, large.records(1_500)[0])
        return real(topic, partition, records[1:])

    broker.produce = produce  # type: ignore[method-assign, assignment]
    if times == 1:
        channel.append(STREAM, 1, bytes(4_000))
        assert channel.epochs() == opened(url).epochs() == {STREAM: [1]}
    else:
        with pytest.raises(ChannelError, match="before it could be read back"):
            channel.append(STREAM, 1, bytes(4_000))
        assert channel.epochs() == opened(url).epochs() == {}
    assert len(displaced) == times


def test_a_begin_of_several_records_is_none(url: str) -> None:
    """Fails when readers void parts at it, and one that begins to read there does not see it."""
    channel = opened(url)
    large = manifest_operation(channel, bytes(2_000)).records(1_500)
    begin = Operation(topic_log.BEGIN, channel.channel_id(), {"x": "y" * 100}).records(100)
    write(channel, large[0], *begin, *large[1:])
    assert channel.epochs() == {STREAM: [1]}


@pytest.mark.parametrize("seed", range(20))
def test_all_readers_agree_on_what_is_dropped(url: str, small_limits: None, seed: int) -> None:
    """A forger writes parts of all kinds between those of writers, and keepers checkpoints. Readers
    begin at the first record, or at any checkpoint."""
    chance = random.Random(seed)
    writers = [opened(url, keep=chance.choice((8, 30))) for _ in range(2)]
    for writer in writers:
        writer._most = chance.choice((150, 700))
        writer.faults = None
    known: list[bytes] = []
    broker = writers[0].broker
    assert isinstance(broker, FakeBroker)
    real = broker.topics.append

    def between(topic: str, partition: int, key: bytes, value: bytes) -> object:
        while topic == "wan.log" and chance.random() < 0.5:
            if value.startswith(b"WANP"):
                known.append(value)
            if known and chance.random() < 0.4:  # once more, or under the ID of another
                forged = chance.choice(known)
            else:
                data = chance.randbytes(chance.choice((0, 10, 900)))
                of = chance.choice((2, 10**9 - 1))
                place = b"%032x %d %d" % (chance.randrange(9), chance.randrange(3), of)
                forged = b"WANP 1 %s %08x\n%s" % (place, crc32c(data), data)
            real(topic, partition, b"", forged)
        return real(topic, partition, key, value)

    broker.topics.append = between  # type: ignore[method-assign, assignment]
    for step in range(60):
        writer = chance.choice(writers)
        with suppress(ChannelError):
            last = notes.head(writer, STREAM)
            previous = fingerprint(writer.manifest(STREAM, last)) if last else ""
            data = b"%d " % step * chance.choice((1, 500))
            writer.append(STREAM, last + 1, data, previous=previous)
            if last > 1 and chance.random() < 0.4:
                writer.trim(STREAM, last - 1, [])
        assert kept_bytes(writer) <= parts.MAX_UNFINISHED_BYTES + parts.MAX_CHECKPOINT_BYTES
        assert writer.log._seen._unfinished._sizes[False] <= parts.MAX_UNFINISHED_BYTES
        assert seen(FakeTopicChannel(url)) == seen(writers[0]) == seen(writers[1]), f"seed {seed}"
    assert log_topic(writers[0]).beginning > 0


# --- operations that do not count


def made_again(channel: FakeTopicChannel) -> None:
    """Make the topics again as soon as the channel has taken its ID."""
    real = channel.channel_id

    def taken() -> str:
        identity = real()
        channel.channel_id = real  # type: ignore[method-assign]
        for topic in ("wan.log", "wan.frames", "wan.acks"):
            topics(channel).delete(topic)
        append(opened(channel.url), "other", 1)
        return identity

    channel.channel_id = taken  # type: ignore[method-assign]


@pytest.mark.parametrize("outcome", ["made again", "voided"])
@pytest.mark.parametrize(
    "ask", ["announce", "withdraw", "put_sender_record", "remove", "trim_frames", "trim"]
)
def test_f17_a_caller_is_told_of_an_operation_that_does_not_count(
    url: str, ask: str, outcome: str
) -> None:
    """Fails when it takes for done what is not: an announcement that nobody reads, say."""
    channel = opened(url)
    paths = [path for epoch in (1, 2, 3) for path in append(channel, STREAM, epoch, frames=1)]
    notes.announce(channel, STREAM, 1, 1)
    notes.put_ack(channel, STREAM, "seattle", b"1")
    calls: dict[str, Callable[[], object]] = {
        "announce": lambda: notes.announce(channel, STREAM, 1, 2),
        "withdraw": lambda: notes.withdraw(channel, STREAM),
        "put_sender_record": lambda: channel.put_note(Note("sender", STREAM), b"record"),
        "remove": lambda: channel.remove(STREAM),
        "trim_frames": lambda: channel.trim_frames(STREAM, paths[:1]),
        "trim": lambda: channel.trim(STREAM, 2, []),
    }
    if outcome == "voided":
        channel._verdict = lambda *_: None  # type: ignore[method-assign]
        match = "voided again and again"
    elif ask == "trim":  # nothing is left to trim
        made_again(channel)
        calls[ask]()
        return
    else:
        made_again(channel)
        match = "does not count.*made again"
    with pytest.raises(ChannelError, match=match):
        calls[ask]()
    if outcome == "voided":
        assert notes.acks(channel, STREAM) == {"seattle": b"1"}


def test_a_trim_that_another_process_was_faster_with_is_done(url: str) -> None:
    """Fails when a sender takes it for an error; and when one that is not done is taken for it."""
    channel, other = opened(url), opened(url)
    for epoch in (1, 2, 3):
        append(channel, STREAM, epoch)
    real = channel.submit

    def late(*operation: Any) -> bool | None:
        other.trim(STREAM, 2, [])
        return real(*operation)

    channel.submit = late  # type: ignore[method-assign]
    channel.trim(STREAM, 2, [])
    assert channel.stream_epochs(STREAM) == [3]
    channel.submit = lambda *_: False  # type: ignore[method-assign]
    append(other, STREAM, 4)
    with pytest.raises(ChannelError, match=r"'trim' .*does not count"):
        channel.trim(STREAM, 3, [])


def test_many_frames_are_discarded_in_several_operations(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fails when an operation is larger than readers take."""
    monkeypatch.setattr(kafka_channel, "DISCARDED_AT_ONCE", 2 * 90)
    channel = opened(url)
    paths = [channel.put_frame(STREAM, ATTEMPT, index, b"f") for index in range(5)]
    before = len(log_topic(channel).records)
    channel.trim_frames(STREAM, paths)
    assert len(log_topic(channel).records) == before + 3
    dead = channel.log.fresh(
        lambda seen: [range(*each) for d in seen.state.dead.values() for each in d]
    )
    assert sum(map(len, dead)) == 5


def test_f16_a_log_cut_by_a_retention_is_loud(url: str) -> None:
    """Fails when a reader takes what is left for the whole: nobody would miss what is gone."""
    channel = opened(url)
    for epoch in (1, 2, 3):
        append(channel, STREAM, epoch)
    topics(channel).cut("wan.log", 0, 2)
    for reader in (FakeTopicChannel(url), FakeTopicChannel(url)):
        with pytest.raises(ChannelError, match=r"wan\.log does not begin .*retention\.ms"):
            reader.epochs()
        with pytest.raises(ChannelError, match="does not begin"):
            reader.prepare()
    topics(channel).cut("wan.log", 0, 10**9)
    with pytest.raises(ChannelError, match="does not begin"):
        FakeTopicChannel(url).notes("heads")


def test_f16_what_a_retention_cuts_before_a_checkpoint_is_not_missed(url: str) -> None:
    channel = opened(url)
    append(channel, STREAM, 1)
    channel.keeper._checkpoint()
    append(channel, STREAM, 2)
    assert seen(opened(url)) == seen(channel)
    reader = opened(url)
    for epoch in (3, 4):
        append(channel, STREAM, epoch)
    channel.keeper._checkpoint()
    assert reader.epochs() == {STREAM: [1, 2, 3, 4]}


def test_f16_frames_cut_by_a_retention_are_named(url: str) -> None:
    channel = opened(url)
    [path] = append(channel, STREAM, 1, frames=1)
    for partition in (0, 1):
        topics(channel).cut("wan.frames", partition, 100)
    with pytest.raises(FrameError, match="retention"):
        channel.get_frame(path)


def test_acks_survive_compaction(url: str) -> None:
    channel = opened(url)
    for number in range(20):
        notes.put_ack(channel, STREAM, f"site{number % 3}", b"%d" % number)
        topics(channel).compact("wan.acks")
    newest = {"site0": b"18", "site1": b"19", "site2": b"17"}
    assert notes.acks(channel, STREAM) == notes.acks(opened(url), STREAM) == newest


def test_b14_a_receiver_waits_for_the_sender_to_begin_the_channel(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Topics that an administrator has made, where a receiver writes acks only. Fails when a
    receiver cannot start before the sender, or says nothing, or a sender starts all the same."""
    FakeBroker(clusters[url]).prepare({"wan.frames": FRAMES, "wan.log": LOG, "wan.acks": ACKS})
    channel = FakeTopicChannel(url)
    channel.broker.forbidden = "wan.log"  # type: ignore[attr-defined]
    streams = ChannelStreams(load_topology(TWO_SITES), "seattle", url)
    prepare_all([channel], begins=False)
    assert "no sender has begun it yet" in caplog.text
    with pytest.raises(NotBegunError, match=r"Start the sender.*WRITE on wan\.log"):
        prepare_all([channel])
    for _ in range(2):
        with pytest.raises(NotBegunError):
            streams.due(channel)
    [status] = streams.statuses()
    assert "no sender has begun it yet" in str(status.held)
    append(opened(url), STREAM, 1)
    streams.due(channel)
    assert [each.name for each in streams.all() if each.name != url] == [STREAM]
    assert "no sender has begun" not in str(streams.statuses())


def test_a_topic_of_somebody_else_is_refused(url: str) -> None:
    """Foreign records in a channel's own topic change nothing, and are listed."""
    other = clusters[url]
    FakeBroker(other).prepare({"wan.log": LOG})
    other.append("wan.log", 0, b"", b"hello")
    with pytest.raises(ChannelError, match=r"the first is not spark_wan's.*prefix of its own"):
        opened(url)
    other.delete("wan.log")
    channel = opened(url)
    append(channel, STREAM, 1)
    before = seen(channel)
    for value in (b"", b"hello", b"WANO 1 00000000\n{}", b"WANP 1 x", b"\xff" * 100, b"WANO"):
        other.append("wan.log", 0, b"", value)
    whole = Operation(topic_log.TRIM, channel.channel_id(), {"stream": STREAM, "through": "x"})
    other.append("wan.log", 0, b"", whole.encode())
    other.append("wan.acks", 0, b"no stream", b"ack")
    assert seen(channel) == before
    assert channel.foreign() == [f"wan.log@{offset}" for offset in range(2, 8)]
    assert notes.ack_versions(channel) == {}


@pytest.mark.parametrize("change", ["kind", "version", "part", "requires"])
def test_f51_a_record_of_a_newer_version_stops_its_readers(url: str, change: str) -> None:
    """Fails when it is passed over: what follows would mean something else."""
    channel = opened(url)
    new = Operation(topic_log.ANNOUNCE, channel.channel_id(), {"stream": STREAM})
    value = new.encode()
    if change == "kind":
        value = Operation("split", channel.channel_id()).encode()
    elif change == "requires":
        value = Operation(topic_log.TRIM, channel.channel_id(), {"requires": ["x"]}).encode()
    elif change == "version":
        value = value.replace(b"WANO 1", b"WANO 2")
    else:
        value = new.records(40)[0].replace(b"WANP 1", b"WANP 2")
    topics(channel).append("wan.log", 0, b"", value)
    for _ in range(2):
        with pytest.raises(ChannelError, match=r"newer spark_wan.*Update spark_wan"):
            channel.epochs()


@pytest.mark.parametrize("added", [b'"version":2,', b'"requires":["leases"],'])
def test_f51_a_checkpoint_of_a_newer_version_stops_who_begins_there(added: bytes) -> None:
    """Fails when it is taken for damage: nobody would be told to update."""
    state = zlib.decompress(State("c").encode()).replace(b"{", b"{" + added, 1)
    begin = Operation(topic_log.BEGIN, "c")
    fields = {"begin": begin.id, "offset": 5}
    seen = SeenLog("wan.log")
    seen.add(5, begin.encode())
    with pytest.raises(ChannelError, match=r"log@6: a checkpoint written by.*Update spark_wan"):
        seen.add(6, Operation(topic_log.CHECKPOINT, "c", fields, zlib.compress(state)).encode())


# --- many writers, at random


@pytest.mark.parametrize("seed", range(40))
def test_all_readers_agree_whatever_happens(url: str, seed: int) -> None:
    """Writers that race, with requests that are lost, late and taken twice; keepers that delete;
    brokers whose clocks are off by days; readers that come late, from the beginning that is there.
    """
    chance = random.Random(seed)
    processes = [opened(url, keep=8) for _ in range(3)]
    for process in processes:
        process._most = chance.choice((150, 10**6))  # one may write operations in many parts
    published: dict[str, dict[int, bytes]] = {"a": {}, "b": {}, "held": {}}
    frames: dict[tuple[str, int], list[tuple[str, bytes]]] = {}
    for process in processes:
        broker = process.broker
        assert isinstance(broker, FakeBroker)
        broker.faults = random.Random(chance.random())
    for step in range(150):
        process, stream = chance.choice(processes), chance.choice(list(published))
        broker = process.broker
        assert isinstance(broker, FakeBroker)
        if chance.random() < 0.3:
            broker.deliver()
        if chance.random() < 0.05:  # the brokers' clock is set, or another broker leads
            topics(process).time = 1e9 + chance.random() * 10 * UNNAMED_AGE
        with suppress(ChannelError):
            epochs = process.stream_epochs(stream)
            last = epochs[-1] if epochs else 0
            if stream != "held" and chance.random() < 0.4 and len(epochs) > 1:
                process.trim(stream, chance.choice(epochs[:-1]), [])
                continue
            data = [b"%d-%d" % (step, index) for index in range(chance.randint(0, 2))]
            paths = [
                process.put_frame(stream, f"{step:032x}", index, each)
                for index, each in enumerate(data)
            ]
            previous = fingerprint(process.manifest(stream, last)) if last else ""
            if chance.random() < 0.3:  # another one is faster
                rival = chance.choice(processes)
                with suppress(ChannelError):
                    rival.append(stream, last + 1, b"rival %d" % step, previous=previous)
            manifest = b"%d" % step
            frames[stream, step] = list(zip(paths, data, strict=True))
            process.append(stream, last + 1, manifest, previous=previous, frames=paths)
            assert published[stream].setdefault(last + 1, manifest) == manifest
    for process in processes:
        broker = process.broker
        assert isinstance(broker, FakeBroker)
        broker.faults = None
        broker.deliver()
    new = FakeTopicChannel(url)
    states = {seen(process) for process in [*processes, new]}
    assert len(states) == 1, f"seed {seed}"
    for stream, known in published.items():
        for epoch in new.stream_epochs(stream):
            manifest = new.manifest(stream, epoch)
            assert known.get(epoch, manifest) == manifest
            if manifest.isdigit():
                for path, data in frames[stream, int(manifest)]:
                    assert new.get_frame(path) == data
        if stream == "held" and known:
            assert new.stream_epochs(stream)[0] == 1


def test_two_channels_that_start_at_once_are_one(url: str) -> None:
    """Both write a first record. Fails when the second one makes another channel."""
    first = FakeTopicChannel(url)
    broker = first.broker
    real = broker.produce

    def produce(topic: str, partition: int, records: list[tuple[bytes, bytes]]) -> object:
        opened(url)
        return real(topic, partition, records)

    broker.produce = produce  # type: ignore[method-assign, assignment]
    first.prepare()
    broker.produce = real  # type: ignore[method-assign]
    append(first, STREAM, 1)
    assert opened(url).epochs() == {STREAM: [1]}


def test_a_log_over_topics_survives_lost_checkpoints_of_its_readers(url: str) -> None:
    """A whole log, as senders use it, with a keeper that works at every trim."""
    channel = opened(url, keep=5)
    log = StreamLog(channel, STREAM)
    for epoch in range(1, 40):
        publish(log, epoch)
        if epoch > 2:
            log.trim(epoch - 2, [])
        assert StreamLog(opened(url), STREAM).newest_epoch() == epoch
    assert log.since(0) == [38, 39]
    with pytest.raises(ManifestError):
        log.reread(37)


# --- parts


def test_offset_ranges_are_a_set(tmp_path: Path) -> None:
    """Against a set of Python's."""
    chance = random.Random(4)
    for _ in range(200):
        ranges, plain = OffsetRanges(), set[int]()
        for _ in range(60):
            offset = chance.randrange(40)
            if chance.random() < 0.1:
                ranges.drop_below(offset)
                plain = {each for each in plain if each >= offset}
            else:
                ranges.add(offset)
                plain.add(offset)
            listed = [each for start, end in ranges for each in range(start, end)]
            assert listed == sorted(plain)
            start = chance.randrange(45)
            after = next(each for each in range(start, 100) if each not in plain)
            assert ranges.after(start) == after
            assert ranges.count(start, start + 9) == len(plain & set(range(start, start + 9)))
        again = OffsetRanges([list(each) for each in ranges])
        assert list(again) == list(ranges)


@pytest.mark.parametrize(
    "path",
    [
        "frames/a/b-00000@0:0",
        "frames/a/" + "c" * 32 + "-00000@",
        "frames/a/" + "c" * 32 + "-00000@0:1+",
        "frames/a/../" + "c" * 32 + "-00000@0:1",
        "frames//" + "c" * 32 + "-00000@0:1",
        "frames/a/" + "c" * 32 + "-00000@1:234:5",
        "frames/a/" + "c" * 32 + "-00000@1:1+",
        "frames/a/" + "c" * 32 + "-00000@1" + ":111" * 1_000 + "x",
        "frames/a/" + "c" * 32 + "-00000@-1:1",
        "x",
        "",
    ],
)
def test_other_paths_are_no_frames(path: str) -> None:
    """Fails by never ending when there are several ways to match the longest of them."""
    parsed = parse_path(path)
    assert parsed is None or path == "frames/a/b-00000@0:0"


def test_operations_are_read_as_they_were_written() -> None:
    chance = random.Random(7)
    for size in (0, 1, 999, 10_000):
        payload = chance.randbytes(size)
        operation = Operation(topic_log.MANIFEST, "c", {"stream": "s", "epoch": 1}, payload)
        for most in (37, 1_000, 10**6):
            read = [read_operation(value, "here") for value in operation.records(most)]
            pieces = [each for each in read if isinstance(each, Part)]
            assert (joined(pieces, "here") if pieces else read[0]) == operation


def test_a_state_is_read_as_it_was_written(url: str) -> None:
    channel = opened(url, keep=4)
    append(channel, "held", 1, frames=2)
    for epoch in range(1, 30):
        append(channel, STREAM, epoch, frames=1)
        channel.trim(STREAM, epoch - 1, [])
    notes.announce(channel, "ünï", 1, 2)
    state = channel.log.fresh(lambda seen: seen.state)
    assert State.decode(state.encode()).encode() == state.encode()
    for damaged in (b"", b"x", state.encode()[:20]):
        with pytest.raises((ValueError, KeyError)):
            State.decode(damaged)
    assert SeenLog("t").has_state is False
