"""f31: the disk of a channel, or of a site's state, is full for a while, without Spark."""

from __future__ import annotations

import gc
import os
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import publishing
import pytest
from fakes import STREAM, ack
from publishing import Site
from small_disk import SmallDisk, small_disk

from spark_wan.channels.object_store import ObjectStoreChannel
from spark_wan.errors import DISK_FULL, ChannelError, is_disk_full
from spark_wan.log.frame_age import ORPHAN_AGE
from spark_wan.sender.acks import AckManager
from spark_wan.sender.sweep import Sweep
from spark_wan.state.checkpoints import StoredCheckpoints
from spark_wan.steps import run
from spark_wan.topology.ack_policy import AckPolicy

NO_ROOM = r"No space left on device.*The disk is full, or its quota is used up: make room there"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "disk", "256k") as disk:
        yield disk


@pytest.fixture
def site(disk: SmallDisk, monkeypatch: pytest.MonkeyPatch) -> Site:
    """A site whose channel is on the disk, with two commits to send."""
    channel = ObjectStoreChannel(str(disk.path / "channel"))
    channel.prepare()
    monkeypatch.setattr(publishing, "memory_channel", lambda: channel)
    site = Site(max_epoch_rows=1)
    site.source.add()
    return site


def manager(site: Site, checkpoints: StoredCheckpoints | None = None) -> AckManager:
    return AckManager(
        site.log, checkpoints or site.checkpoints, AckPolicy.ALL, 60_000, site.clock, ["seattle"]
    )


def test_f31_what_a_full_disk_refuses_leaves_nothing_and_is_sent_once_there_is_room(
    disk: SmallDisk, site: Site
) -> None:
    """Fails when half a file stays, or an epoch counts whose files are not whole."""
    first = site.published()
    before = disk.files()
    disk.fill()
    for _ in range(3):
        with pytest.raises(ChannelError, match=NO_ROOM):
            site.round()
        site.restart()
    assert disk.files() == before and site.log.epochs() == [1]
    assert site.inner.get_frame(first.frames[0].path)
    disk.free()
    second = site.published()
    assert (second.epoch, second.last_version) == (2, 1)
    assert site.inner.get_frame(second.frames[0].path)


def test_f31_frames_of_an_epoch_whose_manifest_has_no_room_are_removed(
    disk: SmallDisk, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would fill the disk with each retry. Fails when only the sweep takes them, a day
    later."""
    site.published()
    before, capture = disk.files(), site.source.capture

    def fills(*of: object) -> object:
        result = capture(*of)  # type: ignore[arg-type]
        disk.fill()
        return result

    monkeypatch.setattr(site.source, "capture", fills)
    for _ in range(3):
        with pytest.raises(ChannelError, match=NO_ROOM):
            site.round()
        disk.free()
        assert disk.files() == before
    monkeypatch.undo()
    assert site.published().epoch == 2


def test_f31_what_a_killed_process_has_left_of_a_frame_is_swept(
    disk: SmallDisk, site: Site
) -> None:
    """A day later, as all frames that nobody names. Fails when half a frame stays for ever, or is
    taken from a process that is writing it."""
    site.published()
    folder = disk.path / "channel" / "frames" / STREAM
    half = folder / f"{'0' * 32}-00003.frame#1"
    half.write_bytes(b"half")
    before = disk.files() - {str(half.relative_to(disk.path))}
    manager_of_site = manager(site)
    site.inner.now = lambda: time.time() + ORPHAN_AGE / 2  # type: ignore[method-assign]
    assert Sweep(manager_of_site).run(ORPHAN_AGE) == 0 and half.exists()
    site.inner.now = lambda: time.time() + ORPHAN_AGE + 60  # type: ignore[method-assign]
    assert Sweep(manager_of_site).run(ORPHAN_AGE) == 1
    assert disk.files() == before


def test_f31_memory_does_not_grow_while_the_disk_is_full(disk: SmallDisk, site: Site) -> None:
    """However long that takes. Fails when each retry keeps what it could not write."""
    site.published()
    disk.fill()

    def tries(number: int) -> None:
        for _ in range(number):
            with suppress(ChannelError):
                site.round()
        site.source.calls.clear()
        gc.collect()

    tries(20)
    tracemalloc.start()
    try:
        tries(5)
        before = tracemalloc.get_traced_memory()[0]
        tries(100)
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown < 20_000


def test_f31_an_ack_that_has_no_room_is_not_there_and_nothing_is_trimmed(
    disk: SmallDisk, site: Site
) -> None:
    """Fails when half an ack counts, or the one before is lost with it."""
    for _ in range(2):
        site.published()
    ack(site.log, "seattle", 1, site.log.read(1).log_id)
    disk.fill()
    with pytest.raises(ChannelError, match=NO_ROOM):
        ack(site.log, "seattle", 2, site.log.read(1).log_id)
    assert {each.applied for each in site.log.acks().values()} == {1}
    run(manager(site).round())
    assert site.log.epochs() == [2]  # a trim needs no room
    disk.free()
    ack(site.log, "seattle", 2, site.log.read(2).log_id)
    assert run(manager(site).round()).backlog == 0


def test_f31_a_job_starts_on_a_full_disk_because_its_trims_make_room(
    disk: SmallDisk, site: Site
) -> None:
    """Fails when it ends with an error each time it is started, and the disk stays full. One that
    has no channel yet has no room for one."""
    site.published()
    disk.fill()
    again = ObjectStoreChannel(site.inner.url)
    again.prepare()
    assert again.epochs() == site.inner.epochs()
    assert not (disk.path / "channel" / "wan-writable").exists()
    with pytest.raises(ChannelError, match=NO_ROOM):
        ObjectStoreChannel(str(disk.path / "another")).prepare()


def test_f31_nothing_is_trimmed_that_a_full_state_cannot_record(
    disk: SmallDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sender would take a channel that is lost later for one that has nothing to send. Fails
    when the trim comes before the checkpoint."""
    site = Site(max_epoch_rows=1)
    site.source.add()
    checkpoints = StoredCheckpoints(str(disk.path / "state"))
    for _ in range(2):
        site.published()
    ack(site.log, "seattle", 1, site.log.read(1).log_id)
    (disk.path / "state").mkdir(exist_ok=True)
    disk.fill()
    for _ in range(2):
        with pytest.raises(ChannelError, match=NO_ROOM):
            run(manager(site, checkpoints).round())
    assert site.log.epochs() == [1, 2]
    assert disk.files() == set()
    disk.free()
    run(manager(site, checkpoints).round())
    assert site.log.epochs() == [2]
    kept = checkpoints.load(STREAM)
    assert kept is not None and kept.acked == {"seattle": 1}


@pytest.mark.parametrize(
    "text",
    [
        "Generic LocalFileSystem error: Unable to copy data to file: No space left on device (os"
        " error 28)",
        "[Errno 28] No space left on device",
        "java.io.IOException: No space left on device",
        "[Errno 122] Disk quota exceeded: '/mnt/wan/x'",
        "(os error 122)",
    ],
)
def test_f31_a_full_disk_is_recognised(text: str) -> None:
    assert is_disk_full(OSError(text))
    assert not is_disk_full(OSError(f"(os error 2), after {os.sep}28 files"))
    assert DISK_FULL.endswith("it goes on by itself.")
