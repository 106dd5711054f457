"""The log of a stream: extended only from its last manifest, without gaps; and the acks that answer it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c
from fakes import MANIFEST, STREAM, ack, manifest, memory_channel, publish
from faulty_channel import Fault, FaultyChannel

from spark_wan.channels.base import Channel
from spark_wan.channels.log import StreamLog
from spark_wan.channels.registry import open_channel
from spark_wan.errors import ChannelError, LogGapError, ManifestError, ManifestExists
from spark_wan.ledger.progress import Progress
from spark_wan.receiver.plan import StreamPlanner
from spark_wan.wire.ack import Ack
from spark_wan.wire.records import RENAMED

ACK_V1 = (
    b'{"version":1,"site":"seattle","stream":"newark.east.orders","incarnation":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",'
    b'"applied":4,"held":5,"cause":"why","dead_letters":2}'
)


@pytest.fixture
def log() -> StreamLog:
    return StreamLog(memory_channel(), STREAM)


def faulty(*script: Fault) -> StreamLog:
    return StreamLog(FaultyChannel(memory_channel(), list(script)), STREAM)


def test_an_empty_log_has_no_last_manifest(log: StreamLog) -> None:
    assert log.newest_manifest() is None
    assert log.since(0) == []
    assert log.acks() == {}


def test_a_log_is_read_from_a_number(log: StreamLog) -> None:
    published = publish(log, 1, 2, 3)
    assert log.since(0) == [1, 2, 3]
    assert log.since(2) == [3]
    assert log.since(0, [2, 3]) == [2, 3]
    assert log.newest_manifest() == published[-1]
    assert log.read(2) == published[1]


def test_a_number_is_taken_once(log: StreamLog) -> None:
    """Invariant 2. Fails when the channel's put is not conditional."""
    publish(log, 1)
    with pytest.raises(ManifestExists):
        log.append(manifest(1, identity="another"))
    assert log.read(1).identity == MANIFEST.identity


def test_a_manifest_that_is_there_already_is_added() -> None:
    """f15: the store's client repeats a put whose answer was lost, and is told that the object exists.

    Fails when append() does not read back what is there: the caller then takes its own epoch for somebody else's, and
    removes its frames."""
    log = faulty(Fault("append", 1, "duplicate"))
    log.append(manifest(1))
    assert log.newest_manifest() == manifest(1)
    log.append(manifest(1))


def test_an_ambiguous_time_out_is_reported_and_settled_by_the_next_look() -> None:
    log = faulty(Fault("append", 1, "vanish"))
    with pytest.raises(ChannelError):
        log.append(manifest(1))
    assert log.newest_manifest() == manifest(1)


def test_a_number_that_was_trimmed_is_not_taken_again(log: StreamLog) -> None:
    """A writer that slept while the log went on and was trimmed. Fails when append() does not look at the manifest before."""
    published = publish(log, 1, 2, 3)
    for number in (1, 2):
        log.channel.trim_manifest(STREAM, number)
    for late in (
        manifest(1, identity="late"),
        manifest(2, identity="late", previous=published[0].fingerprint),
    ):
        with pytest.raises(ManifestExists, match="does not follow"):
            log.append(late)
    assert log.channel.stream_numbers(STREAM) == [3]


class FreezesInsideAppend:
    """A channel on which others go on between a writer's last look at the log and its write."""

    def __init__(self, inner: Channel, meanwhile: Callable[[], Any]) -> None:
        self.inner, self.meanwhile = inner, meanwhile

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def append(self, stream: str, number: int, data: bytes) -> None:
        self.meanwhile()
        self.inner.append(stream, number, data)


class Fast(FreezesInsideAppend):
    """Others go on right after the write."""

    def append(self, stream: str, number: int, data: bytes) -> None:
        self.inner.append(stream, number, data)
        self.meanwhile()


@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("newest", [4, 6])
@pytest.mark.parametrize("trimmed", [True, False])
def test_f47_a_writer_that_freezes_inside_append_leaves_no_stray(
    log: StreamLog, number: int, newest: int, trimmed: bool
) -> None:
    """Others append the same number and more, which are acked and trimmed; then its write goes through. Fails when append() does not look
    once more after the write: a sink would take its epoch for published, though no reader ever applies it."""
    before = publish(log, *range(1, number))

    def meanwhile() -> None:
        publish(log, *range(number, newest + 1))
        for done in range(1, newest if trimmed else number + 1):
            log.channel.trim_manifest(STREAM, done)

    previous = before[-1].fingerprint if before else ""
    frozen = StreamLog(FreezesInsideAppend(log.channel, meanwhile), STREAM)  # type: ignore[arg-type]
    with pytest.raises(ManifestExists):
        frozen.append(manifest(number, identity="late", previous=previous))
    expected = [newest] if trimmed else list(range(number + 1, newest + 1))
    assert log.channel.stream_numbers(STREAM) == expected


def test_a_manifest_that_is_extended_and_trimmed_behind_right_after_its_write_counts(
    log: StreamLog,
) -> None:
    """The look after the write must not take what counts for a stray."""
    publish(log, 1)

    def meanwhile() -> None:
        publish(log, 3, 4)
        log.channel.trim_manifest(STREAM, 1)

    second = manifest(2, previous=log.read(1).fingerprint)
    StreamLog(Fast(log.channel, meanwhile), STREAM).append(second)  # type: ignore[arg-type]
    assert log.since(0) == [2, 3, 4]


def test_f47_a_manifest_above_a_stray_counts(log: StreamLog) -> None:
    """Right after its write the manifest below it is acked and trimmed, and a writer that had been frozen writes that number once more. Fails when the
    fingerprint below decides alone: the newest manifest was taken away, and the stray stood in its place for ever."""
    (one,) = publish(log, 1)
    stray = manifest(2, previous=one.fingerprint, identity="late")

    def meanwhile() -> None:
        log.channel.trim_manifest(STREAM, 1)
        log.channel.trim_manifest(STREAM, 2)
        log.channel.append(STREAM, 2, stray.encode())

    (two,) = publish(log, 2)
    third = manifest(3, previous=two.fingerprint)
    StreamLog(Fast(log.channel, meanwhile), STREAM).append(third)  # type: ignore[arg-type]
    assert log.newest_manifest() == third
    assert not log._counts(stray)


@pytest.mark.parametrize("come", [1, 3, 8, 9])
def test_a_manifest_above_a_new_log_does_not_count(log: StreamLog, come: int) -> None:
    """The log was deleted, and another one has begun, however far it has come. Fails when only the number below is looked at: the writer of the lost log
    would go on above the new one, whose manifests look like strays."""
    before = publish(log, *range(1, 10))

    def meanwhile() -> None:
        for number in range(1, 10):
            log.channel.trim_manifest(STREAM, number)
        publish(log, *range(1, come + 1), log_id="b" * 32, created=MANIFEST.created + 1)

    frozen = StreamLog(FreezesInsideAppend(log.channel, meanwhile), STREAM)  # type: ignore[arg-type]
    with pytest.raises(ManifestExists):
        frozen.append(manifest(10, previous=before[-1].fingerprint))
    assert log.since(0) == list(range(1, come + 1))


def test_a_manifest_above_the_first_one_of_a_slower_writer_counts(log: StreamLog) -> None:
    """Two writers begin a log; one is frozen inside append, and writes number 1 once more after it was trimmed. Fails when any other log below is taken
    for a newer one: the newest manifest is removed."""
    (one,) = publish(log, 1)

    def meanwhile() -> None:
        log.channel.trim_manifest(STREAM, 1)
        log.channel.append(STREAM, 1, manifest(1, log_id="c" * 32).encode())

    second = manifest(2, previous=one.fingerprint, created=MANIFEST.created + 1)
    StreamLog(Fast(log.channel, meanwhile), STREAM).append(second)  # type: ignore[arg-type]
    assert log.newest_manifest() == second


def test_f47_a_manifest_that_a_repeated_write_has_brought_back_is_no_proof(log: StreamLog) -> None:
    """The manifest below a stray is there again, as it was, and the log has gone on with another one. Fails when the one below decides first."""
    _, two = publish(log, 1, 2)

    def meanwhile() -> None:
        publish(log, 3, 4)
        for number in (1, 2, 3):
            log.channel.trim_manifest(STREAM, number)
        log.channel.append(STREAM, 2, two.encode())

    late = manifest(3, previous=two.fingerprint, identity="late")
    with pytest.raises(ManifestExists):
        StreamLog(FreezesInsideAppend(log.channel, meanwhile), STREAM).append(late)  # type: ignore[arg-type]
    assert log.since(0) == [4]


def test_a_log_that_vanished_is_not_gone_on_with(log: StreamLog) -> None:
    """f17: the channel was deleted while an epoch was in the making."""
    published = publish(log, 1)
    log.channel.trim_manifest(STREAM, 1)
    with pytest.raises(ManifestExists, match=r"has moved on or was deleted"):
        log.append(manifest(2, previous=published[0].fingerprint))
    assert log.since(0) == []


def test_f47_a_stray_below_trimmed_manifests_is_no_part_of_the_log(log: StreamLog) -> None:
    """A writer froze inside append() and was killed there: its manifest stands where the log was trimmed. Fails when the log is held for a
    gap, which nothing would ever close."""
    publish(log, 1, 2, 3, 4)
    for number in (1, 2, 3):
        log.channel.trim_manifest(STREAM, number)
    log.channel.append(STREAM, 2, manifest(2, identity="stray").encode())
    assert log.fold() == ([4], [2])
    assert log.since(0) == [4]
    last = log.newest_manifest()
    assert last is not None and last.epoch == 4
    log.check_gap([4], [2], {"seattle": 3})
    with pytest.raises(
        LogGapError, match=r"goes from 2 to 4: manifests are missing.*acked: {'seattle': 2}"
    ):
        log.check_gap([4], [2], {"seattle": 2})


@pytest.mark.parametrize("missing", [2, 3])
def test_a_log_begins_above_a_missing_number(log: StreamLog, missing: int) -> None:
    """Invariant 2: readers find that the log begins above the place where they are. Fails when the listing is believed as it is."""
    publish(log, 1, 2, 3, 4)
    log.channel.trim_manifest(STREAM, missing)
    assert log.fold() == (list(range(missing + 1, 5)), list(range(1, missing)))


def test_a_listing_that_leaves_out_what_is_there_is_made_good(
    log: StreamLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A directory is listed while manifests are added: some of them, not the newest, are not seen. Fails when a listing with
    a gap is believed."""
    publish(log, 1, 2, 3, 4)
    monkeypatch.setattr(log.channel, "stream_numbers", lambda stream: [1, 4])
    assert log.since(0) == [1, 2, 3, 4]
    last = log.newest_manifest()
    assert last is not None and last.epoch == 4


def test_a_listing_made_while_a_log_is_trimmed_is_made_good(
    log: StreamLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1, 2 and 3 were trimmed while it was listed: 1 and 2 were seen before, 3 was not."""
    publish(log, 1, 2, 3, 4, 5)
    for number in (1, 2, 3):
        log.channel.trim_manifest(STREAM, number)
    monkeypatch.setattr(log.channel, "stream_numbers", lambda stream: [1, 2, 4, 5])
    assert log.since(0) == [4, 5]


@pytest.mark.parametrize("torn", [[], [1]])
def test_a_listing_without_the_newest_manifest_is_made_again(
    log: StreamLog, monkeypatch: pytest.MonkeyPatch, torn: list[int]
) -> None:
    """The log was extended and trimmed while it was listed. Fails when one listing decides: it would be thought to be gone, or to end below."""
    publish(log, 1, 2)
    log.channel.trim_manifest(STREAM, 1)
    listings, real = [torn], log.channel.stream_numbers
    monkeypatch.setattr(
        log.channel, "stream_numbers", lambda stream: listings.pop() if listings else real(stream)
    )
    assert log.newest_epoch() == 2


def test_a_log_that_moved_on_since_it_was_listed_has_its_newest_manifest(
    log: StreamLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was listed as the newest one is trimmed. Fails when that is an error: a stream was held for a manifest that everybody has."""
    *_, newest = publish(log, 1, 2, 3, 4)
    for number in (1, 2, 3):
        log.channel.trim_manifest(STREAM, number)
    listings, real = [[1, 2]], log.channel.stream_numbers
    monkeypatch.setattr(
        log.channel, "stream_numbers", lambda stream: listings.pop() if listings else real(stream)
    )
    assert log.newest_manifest() == newest


def test_a_log_in_a_directory_is_read_without_gaps_while_it_moves(tmp_path: Path) -> None:
    """As above, with a real directory; how often a listing is torn depends on the machine."""
    log = StreamLog(open_channel(str(tmp_path)), STREAM)
    stop, errors = threading.Event(), []

    def move() -> None:
        try:
            for number in range(1, 400):
                log.channel.append(STREAM, number, manifest(number).encode())
                if number > 20:
                    log.channel.trim_manifest(STREAM, number - 20)
        except BaseException as error:
            errors.append(error)
        finally:
            stop.set()

    mover = threading.Thread(target=move)
    mover.start()
    try:
        while not stop.is_set():
            found = log.since(0)
            assert found == list(range(found[0], found[-1] + 1)) if found else True
    finally:
        mover.join()
    assert errors == []


@pytest.mark.parametrize("change", [{"epoch": 2}, {"stream": "another"}])
def test_a_manifest_in_anothers_place_is_an_error(log: StreamLog, change: dict[str, Any]) -> None:
    log.channel.append(STREAM, 1, replace(MANIFEST, **change).encode())
    with pytest.raises(LogGapError, match="was rewritten"):
        log.newest_manifest()


def test_f20_a_manifest_that_is_cut_is_an_error_that_names_it() -> None:
    log = faulty(Fault("append", 1, "truncate"))
    log.append(manifest(1))
    with pytest.raises(ManifestError, match=f"manifest 1 of {STREAM}: truncated or altered"):
        log.newest_manifest()


def test_a_log_of_version_1_goes_on_in_version_2(log: StreamLog) -> None:
    """Fails when a manifest is named by anything but its bytes: the next one would not follow, and receivers would hold the stream."""
    first, body = manifest(1), manifest(1).encode().partition(b"\n")[2]
    for old, new in RENAMED.items():
        body = body.replace(f'"{new}":'.encode(), f'"{old}":'.encode())
    body = body.replace(b'"created"', b'"generation":0,"created"')
    log.channel.append(STREAM, 1, f"WANM 1 {crc32c(body):08x}\n".encode() + body)
    last = log.newest_manifest()
    assert last == first
    log.append(replace(manifest(2), previous=last.fingerprint))
    limits: dict[str, Any] = {"max_bytes": 1 << 30, "max_epochs": 9}
    found = StreamPlanner(STREAM, "seattle", log.read, Progress(), {}, **limits).plan(log.since(0))
    assert ([each.manifest.epoch for each in found.new], found.cause) == ([1, 2], None)


# --- acks -------------------------------------------------------------------------------------------------------------


ACK_V2 = ACK_V1.replace(b'"version":1', b'"version":2').replace(b"incarnation", b"log_id")


def test_an_ack_is_read_and_written_the_same() -> None:
    expected = Ack("seattle", STREAM, "a" * 32, 4, 5, "why", 2)
    assert Ack.decode(ACK_V1) == expected
    assert Ack.decode(ACK_V2) == expected
    assert expected.encode() == ACK_V2
    assert Ack.decode(ACK_V1.replace(b'"site"', b'"more":1,"site"')) == expected


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", b"5", b"null", b"\xff", b"{}", b"[" * 100_000]
    + [
        ACK_V1.replace(b'"version":1', b'"version":3'),
        ACK_V1.replace(b'"applied":4', b'"applied":"4"'),
    ]
    + [ACK_V1.replace(b'"site"', b'"sight"'), ACK_V1.replace(b'"applied":4,', b""), ACK_V1[:-1]]
    + [ACK_V1.replace(b'"applied":4', b'"applied":true')],
)
def test_an_answer_that_cannot_be_read_is_no_answer(log: StreamLog, data: bytes) -> None:
    assert Ack.decode(data) is None
    log.channel.put_ack(STREAM, "seattle", data)
    ack(log, "denver", 1)
    assert list(log.acks()) == ["denver"]


def test_an_answer_in_anothers_place_is_no_answer(log: StreamLog) -> None:
    log.channel.put_ack(STREAM, "denver", ACK_V1)
    log.channel.put_ack(STREAM, "seattle", ACK_V1.replace(b"east", b"west"))
    assert log.acks() == {}
