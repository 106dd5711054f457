"""The log of a stream: it is extended only from its newest manifest, without gaps, and acked."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c
from fakes import MANIFEST, STREAM, manifest, memory_channel, publish
from faulty_channel import Fault, FaultyChannel

from spark_wan.apply.plan import StreamPlanner
from spark_wan.channels.base import Channel
from spark_wan.channels.registry import open_channel
from spark_wan.errors import ChannelError, LogGapError, ManifestError, ManifestExists
from spark_wan.ledger.progress import Progress
from spark_wan.log.inbound import InboundLog
from spark_wan.log.notes import head
from spark_wan.log.stream_log import CACHED_MANIFESTS, StreamLog
from spark_wan.wire.records import RENAMED


@pytest.fixture
def log() -> StreamLog:
    return StreamLog(memory_channel(), STREAM)


def faulty(*script: Fault) -> StreamLog:
    return StreamLog(FaultyChannel(memory_channel(), list(script)), STREAM)


def test_an_empty_log_has_no_newest_manifest(log: StreamLog) -> None:
    assert log.newest_manifest() is None
    assert log.since(0) == []
    assert log.acks() == {}


def test_a_log_is_read_from_an_epoch_on(log: StreamLog) -> None:
    published = publish(log, 1, 2, 3)
    assert log.since(0) == [1, 2, 3]
    assert log.since(2) == [3]
    assert log.since(0, [2, 3]) == [2, 3]
    assert log.newest_manifest() == published[-1]
    assert log.read(2) == published[1]


def test_an_epoch_is_appended_once(log: StreamLog) -> None:
    """Invariant 2. Fails when the channel's write is not conditional."""
    publish(log, 1)
    with pytest.raises(ManifestExists):
        log.append(manifest(1, identity="another"))
    assert log.read(1).identity == MANIFEST.identity


def test_append_accepts_its_own_manifest_that_is_there_already() -> None:
    """f15: the store's client repeats a write whose answer was lost, and is told that the object
    exists.

    Fails when append() does not read the manifest that is there: the caller then takes its own
    epoch for another writer's, and deletes its frames.
    """
    log = faulty(Fault("append", 1, "duplicate"))
    log.append(manifest(1))
    assert log.newest_manifest() == manifest(1)
    log.append(manifest(1))


def test_an_ambiguous_time_out_raises_and_the_next_read_settles_it() -> None:
    log = faulty(Fault("append", 1, "vanish"))
    with pytest.raises(ChannelError):
        log.append(manifest(1))
    assert log.newest_manifest() == manifest(1)


def test_append_refuses_an_epoch_that_was_trimmed(log: StreamLog) -> None:
    """A writer was frozen while the log was extended and trimmed.

    Fails when append() does not check the manifest before.
    """
    published = publish(log, 1, 2, 3)
    for epoch in (1, 2):
        log.channel.trim_manifest(STREAM, epoch)
    for late in (
        manifest(1, identity="late"),
        manifest(2, identity="late", previous=published[0].fingerprint),
    ):
        with pytest.raises(ManifestExists, match="does not follow"):
            log.append(late)
    assert log.channel.stream_epochs(STREAM) == [3]


class FreezesInsideAppend:
    """A channel on which other writers act between a writer's check of the log and its write."""

    def __init__(self, inner: Channel, meanwhile: Callable[[], Any]) -> None:
        self.inner, self.meanwhile = inner, meanwhile

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def append(self, *manifest: Any, **more: Any) -> None:
        self.meanwhile()
        self.inner.append(*manifest, **more)


class FreezesAfterAppend(FreezesInsideAppend):
    """Other writers act right after the write."""

    def append(self, *manifest: Any, **more: Any) -> None:
        self.inner.append(*manifest, **more)
        self.meanwhile()


@pytest.mark.parametrize("epoch", [1, 2, 3])
@pytest.mark.parametrize("newest", [4, 6])
@pytest.mark.parametrize("trimmed", [True, False])
def test_f47_a_writer_that_freezes_inside_append_leaves_no_stray(
    log: StreamLog, epoch: int, newest: int, trimmed: bool
) -> None:
    """Others append the same epoch and more, which are acked and trimmed; then the write succeeds.

    Fails when append() does not check once more after the write: a sink would take its epoch for
    published, though no receiver ever applies it.
    """
    before = publish(log, *range(1, epoch))

    def meanwhile() -> None:
        publish(log, *range(epoch, newest + 1))
        for done in range(1, newest if trimmed else epoch + 1):
            log.channel.trim_manifest(STREAM, done)

    previous = before[-1].fingerprint if before else ""
    frozen = StreamLog(FreezesInsideAppend(log.channel, meanwhile), STREAM)  # type: ignore[arg-type]
    with pytest.raises(ManifestExists):
        frozen.append(manifest(epoch, identity="late", previous=previous))
    expected = [newest] if trimmed else list(range(epoch + 1, newest + 1))
    assert log.channel.stream_epochs(STREAM) == expected


def test_a_manifest_counts_though_the_log_moves_on_right_after_its_write(
    log: StreamLog,
) -> None:
    """Fails when the check after the write takes a manifest that counts for a stray."""
    publish(log, 1)

    def meanwhile() -> None:
        publish(log, 3, 4)
        log.channel.trim_manifest(STREAM, 1)

    second = manifest(2, previous=log.read(1).fingerprint)
    StreamLog(FreezesAfterAppend(log.channel, meanwhile), STREAM).append(second)  # type: ignore[arg-type]
    assert log.since(0) == [2, 3, 4]


def test_f47_a_manifest_above_a_stray_counts(log: StreamLog) -> None:
    """Right after its write the manifest below it is acked and trimmed, and written once more by a
    writer that had been frozen.

    Fails when the fingerprint below decides alone: the newest manifest was deleted, and the stray
    stayed in its place.
    """
    (one,) = publish(log, 1)
    stray = manifest(2, previous=one.fingerprint, identity="late")

    def meanwhile() -> None:
        log.channel.trim_manifest(STREAM, 1)
        log.channel.trim_manifest(STREAM, 2)
        log.channel.append(STREAM, 2, stray.encode())

    (two,) = publish(log, 2)
    third = manifest(3, previous=two.fingerprint)
    StreamLog(FreezesAfterAppend(log.channel, meanwhile), STREAM).append(third)  # type: ignore[arg-type]
    assert log.newest_manifest() == third
    assert not log._counts(stray)


@pytest.mark.parametrize("length", [1, 3, 8, 9])
def test_a_manifest_above_a_new_log_does_not_count(log: StreamLog, length: int) -> None:
    """The log was deleted, and another one has begun, however long it is.

    Fails when only the epoch below is checked: the writer of the lost log would continue above the
    new one, whose manifests look like strays.
    """
    before = publish(log, *range(1, 10))

    def meanwhile() -> None:
        for epoch in range(1, 10):
            log.channel.trim_manifest(STREAM, epoch)
        publish(log, *range(1, length + 1), log_id="b" * 32, created=MANIFEST.created + 1)

    frozen = StreamLog(FreezesInsideAppend(log.channel, meanwhile), STREAM)  # type: ignore[arg-type]
    with pytest.raises(ManifestExists):
        frozen.append(manifest(10, previous=before[-1].fingerprint))
    assert log.since(0) == list(range(1, length + 1))


def test_a_manifest_above_the_first_one_of_a_slower_writer_counts(log: StreamLog) -> None:
    """Two writers begin a log. One freezes inside append, and writes epoch 1 after it was trimmed.

    Fails when any other log below is taken for a newer one: the newest manifest is deleted.
    """
    (one,) = publish(log, 1)

    def meanwhile() -> None:
        log.channel.trim_manifest(STREAM, 1)
        log.channel.append(STREAM, 1, manifest(1, log_id="c" * 32).encode())

    second = manifest(2, previous=one.fingerprint, created=MANIFEST.created + 1)
    StreamLog(FreezesAfterAppend(log.channel, meanwhile), STREAM).append(second)  # type: ignore[arg-type]
    assert log.newest_manifest() == second


def test_f47_a_manifest_that_a_repeated_write_restored_proves_nothing(log: StreamLog) -> None:
    """The manifest below a stray is there again, as it was, but the log has continued with another.

    Fails when the one below decides first.
    """
    _, two = publish(log, 1, 2)

    def meanwhile() -> None:
        publish(log, 3, 4)
        for epoch in (1, 2, 3):
            log.channel.trim_manifest(STREAM, epoch)
        log.channel.append(STREAM, 2, two.encode())

    late = manifest(3, previous=two.fingerprint, identity="late")
    with pytest.raises(ManifestExists):
        StreamLog(FreezesInsideAppend(log.channel, meanwhile), STREAM).append(late)  # type: ignore[arg-type]
    assert log.since(0) == [4]


@pytest.mark.parametrize("left", [(1,), (2,), (3,), (1, 2), (1, 3), (2, 3), (4,), (2, 4)], ids=str)
def test_f47_a_stray_inside_a_log_that_is_being_trimmed_does_not_count(
    log: StreamLog, left: tuple[int, ...]
) -> None:
    """Epochs 1 to 5 are trimmed, in no order, while a writer is frozen that knows the log through
    2: those that are left for the moment may be any.

    Fails when the manifest before it proves that a manifest is the newest.
    """
    _, two = published = publish(log, 1, 2)

    def meanwhile() -> None:
        published.extend(publish(log, 3, 4, 5, 6))
        for epoch in {1, 2, 3, 4, 5} - set(left):
            log.channel.trim_manifest(STREAM, epoch)

    late = manifest(3, previous=two.fingerprint, identity="late")
    with pytest.raises(ManifestExists):
        StreamLog(FreezesInsideAppend(log.channel, meanwhile), STREAM).append(late)  # type: ignore[arg-type]
    assert log.channel.stream_epochs(STREAM) == [*left, 6]
    assert log.forget() and [log.read(epoch) for epoch in left] == [
        published[epoch - 1] for epoch in left
    ]


def test_append_refuses_a_log_that_was_deleted(log: StreamLog) -> None:
    """f17: the channel was deleted while an epoch was being made."""
    published = publish(log, 1)
    log.channel.trim_manifest(STREAM, 1)
    with pytest.raises(ManifestExists, match=r"has moved on or was deleted"):
        log.append(manifest(2, previous=published[0].fingerprint))
    assert log.since(0) == []


def test_f47_a_stray_below_trimmed_manifests_is_not_part_of_the_log(log: StreamLog) -> None:
    """A writer froze inside append() and was killed there: its manifest is below trimmed ones.

    Fails when the log is held for a gap, which nothing would ever close.
    """
    publish(log, 1, 2, 3, 4)
    for epoch in (1, 2, 3):
        log.channel.trim_manifest(STREAM, epoch)
    log.channel.append(STREAM, 2, manifest(2, identity="stray").encode())
    assert log.whole_and_below() == ([4], [2])
    assert log.since(0) == [4]
    last = log.newest_manifest()
    assert last is not None and last.epoch == 4
    log.check_gap([4], [2], {"seattle": 3})
    with pytest.raises(
        LogGapError, match=r"goes from 2 to 4: manifests are missing.*acked: {'seattle': 2}"
    ):
        log.check_gap([4], [2], {"seattle": 2})


@pytest.mark.parametrize("missing", [2, 3])
def test_a_log_begins_above_a_missing_epoch(log: StreamLog, missing: int) -> None:
    """Invariant 2: readers notice that the log begins above their epoch.

    Fails when the listing is trusted as it is.
    """
    publish(log, 1, 2, 3, 4)
    log.channel.trim_manifest(STREAM, missing)
    assert log.whole_and_below() == (list(range(missing + 1, 5)), list(range(1, missing)))


def test_an_incomplete_listing_is_completed(
    log: StreamLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A directory is listed while manifests are added: some of them, not the newest, are missing.

    Fails when a listing with a gap is trusted.
    """
    publish(log, 1, 2, 3, 4)
    monkeypatch.setattr(log.channel, "stream_epochs", lambda *_: [1, 4])
    assert log.since(0) == [1, 2, 3, 4]
    last = StreamLog(log.channel, STREAM).newest_manifest()
    assert last is not None and last.epoch == 4


def test_a_listing_made_while_a_log_is_trimmed_is_completed(
    log: StreamLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Epochs 1 to 3 were trimmed during the listing: it has 1 and 2, but not 3."""
    publish(log, 1, 2, 3, 4, 5)
    for epoch in (1, 2, 3):
        log.channel.trim_manifest(STREAM, epoch)
    monkeypatch.setattr(log.channel, "stream_epochs", lambda *_: [1, 2, 4, 5])
    assert log.since(0) == [4, 5]


@pytest.mark.parametrize("torn", [[], [1]], ids=["empty", "cut"])
def test_a_listing_without_the_newest_manifest_is_repeated(
    log: StreamLog, monkeypatch: pytest.MonkeyPatch, torn: list[int]
) -> None:
    """The log was extended and trimmed while it was listed.

    Fails when one listing decides: the log would seem to be deleted, or to end below.
    """
    publish(log, 1, 2)
    log.channel.trim_manifest(STREAM, 1)
    listings, real = [torn], log.channel.stream_epochs
    monkeypatch.setattr(
        log.channel, "stream_epochs", lambda *asked: listings.pop() if listings else real(*asked)
    )
    assert StreamLog(log.channel, STREAM).newest_epoch() == 2


def test_the_newest_manifest_is_read_though_the_log_moved_on_since_its_listing(
    log: StreamLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The manifest that was listed as the newest one is trimmed.

    Fails when that is an error: a stream was held for a manifest that every site has.
    """
    *_, newest = publish(log, 1, 2, 3, 4)
    for epoch in (1, 2, 3):
        log.channel.trim_manifest(STREAM, epoch)
    listings, real = [[1, 2]], log.channel.stream_epochs
    monkeypatch.setattr(
        log.channel, "stream_epochs", lambda *asked: listings.pop() if listings else real(*asked)
    )
    assert StreamLog(log.channel, STREAM).newest_manifest() == newest


def test_a_log_in_a_directory_is_read_without_gaps_while_it_is_written(tmp_path: Path) -> None:
    """As above, in a real directory. How often a listing is torn depends on the machine."""
    log = StreamLog(open_channel(str(tmp_path)), STREAM)
    stop, errors = threading.Event(), []

    def move() -> None:
        try:
            for epoch in range(1, 400):
                log.channel.append(STREAM, epoch, manifest(epoch).encode())
                if epoch > 20:
                    log.channel.trim_manifest(STREAM, epoch - 20)
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


def test_a_log_is_listed_on_from_a_hint(log: StreamLog) -> None:
    """Whatever the hint is. Fails when it is believed: an older state would look like the newest,
    or a lost log like one that is there.
    """
    *_, newest = publish(log, 1, 2, 3, 4, 5)
    for hint in (0, 3, 5, 9):
        assert StreamLog(log.channel, STREAM).newest_manifest(hint) == newest
    for epoch in (1, 2, 3, 4, 5):
        log.channel.trim_manifest(STREAM, epoch)
    assert StreamLog(log.channel, STREAM).newest_manifest(5) is None
    assert log.newest_manifest() is None


@pytest.mark.parametrize("length", [1, 2, 3, 4, 9])
@pytest.mark.parametrize("log_id", ["a", "b"])
def test_a_log_that_was_replaced_is_read_anew(log: StreamLog, log_id: str, length: int) -> None:
    """By another one of any length; or it was restored to an older state and written to again.
    Fails when manifests in memory outlive the log that they are of.
    """
    publish(log, 1, 2, 3)
    other = StreamLog(log.channel, STREAM)
    for epoch in (1, 2, 3):
        log.channel.trim_manifest(STREAM, epoch)
    replaced = publish(other, *range(1, length + 1), log_id=log_id * 32)
    if log_id == "a" and length == 9:
        log.forget()  # nothing shows it but the chain, where it is read
    assert log.newest_manifest() == replaced[-1]
    assert [log.read(epoch) for epoch in range(1, length + 1)] == replaced


def test_manifests_are_read_once_and_few_are_kept(
    log: StreamLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They never change. Fails when each look reads them again, or all are kept for ever."""
    published = publish(log, *range(1, CACHED_MANIFESTS + 3))
    read: list[int] = []
    real = log.channel.manifest

    def manifest_of(stream: str, epoch: int) -> bytes:
        read.append(epoch)
        return real(stream, epoch)

    monkeypatch.setattr(log.channel, "manifest", manifest_of)
    assert list(log.read_each(range(3, CACHED_MANIFESTS + 3))) == published[2:]
    assert read == []
    for _ in range(2):
        assert log.read(1) == published[0]
    assert read == [1]
    log.trim(1, [])
    assert list(log.read_each([1, 2])) == [None, published[1]]


def test_an_epoch_is_appended_although_its_head_cannot_be_written(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The manifest is there, and readers list the log now and then.

    Fails when the write is reported as failed: a sink's query would end for it.
    """
    log = faulty(Fault("put_head", 1, "fail"))
    log.append(manifest(1))
    assert "epoch 1 is appended, but scripted: put_head failed" in caplog.text
    assert (head(log.channel, STREAM), log.told) == (0, None)
    log.tell(manifest(1))
    assert (head(log.channel, STREAM), log.told) == (1, ("a" * 32, 1))


@pytest.mark.parametrize("change", [{"epoch": 2}, {"stream": "another"}])
def test_a_manifest_of_another_epoch_or_stream_is_refused(
    log: StreamLog, change: dict[str, Any]
) -> None:
    log.channel.append(STREAM, 1, replace(MANIFEST, **change).encode())
    with pytest.raises(LogGapError, match="was rewritten"):
        log.newest_manifest()


def test_f20_a_truncated_manifest_raises_an_error_that_names_it() -> None:
    log = faulty(Fault("append", 1, "truncate"))
    log.append(manifest(1))
    with pytest.raises(ManifestError, match=f"manifest 1 of {STREAM}: truncated or altered"):
        log.newest_manifest()


def test_f42_a_log_of_version_1_continues_in_version_2(log: StreamLog) -> None:
    """Fails when a manifest is named by anything but its bytes: the next one would not follow, and
    receivers would hold the stream.
    """
    first, body = manifest(1), manifest(1).encode().partition(b"\n")[2]
    for old, new in RENAMED.items():
        body = body.replace(f'"{new}":'.encode(), f'"{old}":'.encode())
    body = body.replace(b'"created"', b'"generation":0,"created"')
    log.channel.append(STREAM, 1, f"WANM 1 {crc32c(body):08x}\n".encode() + body)
    last = log.newest_manifest()
    assert last == first
    log.append(replace(manifest(2), previous=last.fingerprint))
    limits: dict[str, Any] = {"max_bytes": 1 << 30, "max_epochs": 9}
    inbound = InboundLog(log, "orders")
    found = StreamPlanner(inbound, "seattle", Progress(), {}, **limits).plan(log.since(0))
    assert ([each.manifest.epoch for each in found.new], found.cause) == ([1, 2], None)
