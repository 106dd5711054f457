"""The sweep: which frames are orphans, and when it removes them."""

from __future__ import annotations

import uuid

import pytest
from fakes import STREAM, manifest, put_frame
from managed_stream import ManagedStream, watched

from spark_wan.channels.base import new_attempt
from spark_wan.log.frame_age import ORPHAN_AGE, are_safe
from spark_wan.sender.sweep import SWEEP_INTERVAL, OrphanSearch, Sweep
from spark_wan.units import milliseconds
from spark_wan.wire.frame import FrameRef


def test_frames_that_no_manifest_names_are_swept_once_they_are_old(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Fails when named frames, or young ones, are swept."""
    stream = ManagedStream(1)
    channel = stream.log.channel
    named = [frame.path for frame in stream.log.read(1).frames]
    old, young = put_frame(channel).path, put_frame(channel).path
    now = stream.clock() / 1000
    ages = {old: 100.0, young: 10.0, **dict.fromkeys(named, 1_000.0)}
    monkeypatch.setattr(
        channel, "frames", lambda stream: [(path, now - age) for path, age in ages.items()]
    )
    monkeypatch.setattr(channel, "now", lambda: now)
    assert Sweep(stream.manager).run(60) == 1
    monkeypatch.undo()
    assert {path for path, _ in channel.frames(STREAM)} == {young, *named}


def test_f47_the_frames_of_a_write_are_as_old_as_the_newest_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A snapshot that takes two days, and one that died. Fails when each frame has its own
    age: a sweep takes the first frames of a write that goes on, which then never comes to an end,
    or names them."""
    stream = ManagedStream(1)
    channel, now = stream.log.channel, 1_700_000_000.0

    def write() -> list[FrameRef]:
        name = uuid.uuid4().hex
        paths = [channel.put_frame(STREAM, new_attempt(name), 0, b"frame") for _ in range(3)]
        return [FrameRef(path, 1, 5, 0) for path in paths]

    slow, dead = write(), write()
    hours = zip([*slow, *dead], (48, 30, 1, 48, 30, 25), strict=True)
    times = {frame.path: now - 3_600 * age for frame, age in hours}
    monkeypatch.setattr(channel, "frames", lambda stream: list(times.items()))
    monkeypatch.setattr(channel, "frame_time", times.get)
    monkeypatch.setattr(channel, "now", lambda: now)
    assert are_safe(stream.log, slow)
    assert not are_safe(stream.log, dead)
    assert Sweep(stream.manager).run(ORPHAN_AGE) == 3
    assert all(channel.get_frame(frame.path) for frame in slow)
    del times[slow[0].path]
    assert not are_safe(stream.log, slow)


def test_a_frame_that_is_named_during_a_sweep_is_spared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails when the log is read before the frames."""
    stream = ManagedStream(1)
    channel = stream.log.channel
    frame = put_frame(channel)
    listed = [(frame.path, 0.0)]

    def frames_then_a_manifest(_: str) -> list[tuple[str, float]]:
        stream.log.append(manifest(2, frames=(frame,), previous=stream.log.read(1).fingerprint))
        return listed

    monkeypatch.setattr(channel, "frames", frames_then_a_manifest)
    assert Sweep(stream.manager).run(60) == 0
    assert channel.get_frame(frame.path)


@pytest.mark.parametrize(
    ("missing", "checkpoint"),
    [([1, 2, 3], True), ([2, 3], True), ([3], True), ([1], True), ([1, 2, 3], False), ([1], False)],
    ids=str,
)
def test_f55_frames_that_a_restored_manifest_names_are_not_swept(
    missing: list[int], checkpoint: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Manifests are deleted before a site has acked them, and the stream is held until they are
    restored. Fails when what no manifest names counts as an orphan then: after an hour's sweep
    nothing is left to restore."""
    stream = ManagedStream(1, 2, 3)
    stream.round()
    if not checkpoint:
        stream.checkpoints.kept.clear()
        stream.ack("seattle", 0)
    restored = {epoch: stream.log.channel.manifest(STREAM, epoch) for epoch in missing}
    for epoch in missing:
        stream.log.channel.trim_manifest(STREAM, epoch)
    frames = stream.left()[1]
    put_frame(stream.log.channel)
    Sweep(stream.manager).run(-60.0)
    assert stream.left()[1] == frames + 1
    assert missing == [1, 2, 3] or "so no frames are removed" in caplog.text
    for epoch, data in restored.items():
        stream.log.channel.append(STREAM, epoch, data)
    stream.manager = stream.new()
    stream.round()
    assert Sweep(stream.manager).run(-60.0) > 0


@pytest.mark.parametrize("missing", [2, 5, 9])
def test_f55_frames_of_a_manifest_that_is_missing_far_above_are_not_swept(
    monkeypatch: pytest.MonkeyPatch, missing: int
) -> None:
    """In a log of several pages. Fails when only its lowest page is asked for gaps."""
    stream, _ = watched(*range(1, 11), monkeypatch=monkeypatch, page=3)
    stream.ack("seattle", 0)
    stream.round()
    restored = stream.log.channel.manifest(STREAM, missing)
    stream.log.channel.trim_manifest(STREAM, missing)
    orphan = put_frame(stream.log.channel).path
    assert Sweep(stream.manager).run(-60.0) == 0
    stream.log.channel.append(STREAM, missing, restored)
    assert Sweep(stream.manager).run(-60.0) == 1
    assert stream.log.channel.frame_time(orphan) is None


def test_orphans_are_swept_though_the_log_is_trimmed_meanwhile() -> None:
    """Fails when what was trimmed counts as missing."""
    stream = ManagedStream(*range(1, 11))
    orphan = put_frame(stream.log.channel).path
    sweep = Sweep(stream.manager)
    search = sweep.old_frames(-60.0)
    sweep.go_on(search, 3)
    assert not search.ended
    stream.ack("seattle", 6)
    stream.round()
    while not search.ended:
        sweep.go_on(search, 3)
    assert search.removed >= 1
    assert stream.log.channel.frame_time(orphan) is None
    assert len(stream.left()[0]) * 2 == stream.left()[1]


def test_the_clock_of_the_store_dates_frames() -> None:
    """This machine's clock is a day and more ahead. Fails when it decides alone: the frames of
    another writer's epoch in the making are removed."""
    stream = ManagedStream(1)
    young = put_frame(stream.log.channel).path
    stream.clock.now = milliseconds() + 2 * 86_400_000
    assert Sweep(stream.manager).run(ORPHAN_AGE) == 0
    assert stream.log.channel.get_frame(young)


def test_orphans_are_swept_once_an_hour_also_by_ack_managers_that_live_for_a_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A sink has an ack manager for each commit. Fails when only an ack manager's own checkpoint
    tells when it swept."""
    stream = ManagedStream(1)
    stream.round()
    swept: list[float] = []

    def search(sweep: Sweep, older_than: float) -> OrphanSearch:
        swept.append(older_than)
        return OrphanSearch(set())

    monkeypatch.setattr(Sweep, "old_frames", search)
    for _ in range(3):
        Sweep(stream.new()).run_when_due()
    assert swept == [ORPHAN_AGE]
    stream.clock.pass_seconds(SWEEP_INTERVAL / 1000)
    Sweep(stream.new()).run_when_due()
    assert swept == [ORPHAN_AGE] * 2
