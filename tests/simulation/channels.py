"""Simulated channels: each with a store of its own, faults, and an eye on what is done to it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import obstore
from fake_broker import FakeTopicChannel, Topics, clusters
from faulty_channel import FaultyChannel

from simulation import invariants
from spark_wan.channels.base import Channel, Note
from spark_wan.channels.object_store import ObjectStoreChannel, open_store
from spark_wan.errors import ManifestError
from spark_wan.wire.ack import Ack
from spark_wan.wire.manifest import Manifest

if TYPE_CHECKING:
    from simulation.world import World


@dataclass
class StreamRecord:
    """What was ever done to a stream of a channel."""

    appended: dict[int, bytes] = field(default_factory=dict)
    manifests: dict[int, Manifest] = field(default_factory=dict)
    strays: dict[int, bytes] = field(default_factory=dict)
    """What frozen writers left where the log was trimmed; not part of it."""
    acked: dict[str, int] = field(default_factory=dict)
    """Site -> the highest epoch that it ever acked."""
    acks: list[tuple[str, bytes]] = field(default_factory=list)
    """All acks: (site, ack)."""
    said: set[object] = field(default_factory=set)
    """What they said: (site, log, applied, whether it is held, request for a copy)."""

    @property
    def last(self) -> int:
        """The newest epoch; 0: there is none."""
        return max(self.appended, default=0)


class WatchedChannel:
    """A real channel, in memory. Calls the invariants for each call that changes something."""

    def __init__(self, world: World, url: str) -> None:
        self.world = world
        self.inner: Any = self._open(url)
        self.url = url
        self.records: dict[str, StreamRecord] = defaultdict(StreamRecord)
        """By stream."""
        self.written: dict[str, int] = {}
        """Frame -> when it was written, by the store's clock."""
        self.content: dict[str, bytes] = {}
        """Frame -> its bytes."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def _open(self, url: str) -> Channel:
        """Return the channel, empty."""
        store = open_store(url)
        obstore.delete(store, [meta["path"] for page in obstore.list(store) for meta in page])
        return ObjectStoreChannel(url)

    def opened(self) -> Channel:
        """Return the channel as another process opens it."""
        return ObjectStoreChannel(self.url)

    def paths(self, stream: str) -> set[str]:
        """Return the paths of the frames that are there."""
        return {path for path, _ in self.inner.frames(stream)}

    def lose_ack(self, stream: str, site: str) -> None:
        obstore.delete(open_store(self.url), f"acks/{stream}/{site}.json")
        self.world.ack_changed(stream, site)

    def put_frame(self, stream: str, attempt: str, index: int, data: bytes) -> str:
        def put() -> str:
            path = self.inner.put_frame(stream, attempt, index, data)
            self.written[path] = self.world.now
            self.content[path] = data
            return path

        return str(self.world.effect("a frame is put", put))

    def append(
        self,
        stream: str,
        epoch: int,
        manifest: bytes,
        *,
        previous: str = "",
        frames: Iterable[str] = (),
    ) -> None:
        def append() -> None:
            there = self._manifest(stream, epoch)
            self.inner.append(stream, epoch, manifest, previous=previous, frames=frames)
            invariants.stays_as_it_was_added(epoch, manifest, (there or manifest,))
            self._appended(stream, epoch, manifest)

        self.world.effect("a manifest is added", append)

    def _appended(self, stream: str, epoch: int, data: bytes) -> None:
        record = self.records[stream]
        if epoch <= record.last:
            record.strays[epoch] = data
            return
        manifest = Manifest.decode(data, "the simulation")
        self.world.check_order(manifest)
        before, skips = record.manifests.get(record.last), self.world.skips(manifest)
        invariants.extends_its_log(manifest, before, skips)
        there = {ref.path for ref in manifest.frames if self.inner.frame_time(ref.path) is not None}
        invariants.names_only_frames_that_are_there(manifest, there)
        record.appended[epoch], record.manifests[epoch] = data, manifest
        self.world.appended(manifest)

    def _manifest(self, stream: str, epoch: int) -> bytes | None:
        """Return what is there of an epoch."""
        with suppress(ManifestError):
            return self.inner.manifest(stream, epoch)
        return None

    def content_of(self, manifest: Manifest) -> list[bytes]:
        """Return the bytes of an epoch's frames, as they were written."""
        return [self.content[ref.path] for ref in manifest.frames]

    def manifest(self, stream: str, epoch: int) -> bytes:
        data, record = self.inner.manifest(stream, epoch), self.records[stream]
        added = (record.appended.get(epoch), record.strays.get(epoch))
        invariants.stays_as_it_was_added(epoch, data, added)
        return data

    def put_note(self, note: Note, data: bytes | None) -> None:
        if note.kind != "ack" or data is None:
            verb = "deleted" if data is None else "put"
            self.world.effect(f"a note is {verb}", lambda: self._put_note(note, data))
            return
        ack, record, site = Ack.decode(data), self.records[note.stream], note.site
        if ack is not None:
            self.world.check_ack(note.stream, ack)

        def put() -> None:
            self.inner.put_note(note, data)
            record.acks.append((site, data))
            if ack is not None:
                record.acked[site] = max(ack.applied, record.acked.get(site, 0))
                held = ack.held is not None
                record.said.add((site, ack.log_id, ack.applied, held, ack.wanted))
            self.world.ack_changed(note.stream, site)

        self.world.effect("an ack is put", put)

    def _put_note(self, note: Note, data: bytes | None) -> None:
        self.inner.put_note(note, data)
        if note.kind == "pause":
            self.world.pause_changed(self.inner, note.stream)

    def trim(self, stream: str, through: int, frames: Iterable[str]) -> None:
        """Delete one by one, manifests in any order: a store may die in the middle."""
        self.trim_frames(stream, frames)
        epochs = [epoch for epoch in self.inner.stream_epochs(stream) if epoch <= through]
        record = self.records[stream]
        invariants.keeps_its_newest(through, record.last)
        for epoch in epochs:
            if epoch not in record.strays:
                self._check_trim(stream, epoch, f"manifest {epoch} is trimmed")
        self.world.order.shuffle(epochs)
        for epoch in epochs:
            self.trim_manifest(stream, epoch)

    def trim_frames(self, stream: str, paths: Iterable[str]) -> None:
        manifests = self.records[stream].manifests
        named = {ref.path: epoch for epoch, of in manifests.items() for ref in of.frames}
        for path in paths:
            if path in named:
                what = f"a frame of manifest {named[path]} is trimmed"
                self._check_trim(stream, named[path], what)
            self.world.effect(
                "a frame is trimmed", lambda path=path: self.inner.trim_frames(stream, [path])
            )

    def trim_manifest(self, stream: str, epoch: int) -> None:
        record = self.records[stream]
        if epoch not in record.strays:
            invariants.keeps_its_newest(epoch, record.last)
            self._check_trim(stream, epoch, f"manifest {epoch} is trimmed")

        def trim() -> None:
            self.inner.trim_manifest(stream, epoch)
            record.strays.pop(epoch, None)

        self.world.effect("a manifest is trimmed", trim)

    def _check_trim(self, stream: str, epoch: int, what: str) -> None:
        record = self.records[stream]
        self.world.check_trim(record.manifests[epoch], record.acked, what)

    def frames(self, stream: str, write: str | None = None) -> list[tuple[str, float]]:
        found = self.inner.frames(stream, write)
        return [(path, self.written[path] / 1000) for path, _ in found]

    def frame_time(self, path: str) -> float | None:
        return None if self.inner.frame_time(path) is None else self.written[path] / 1000

    def now(self) -> float:
        return self.world.now / 1000


class WatchedTopics(WatchedChannel):
    """A channel on topics, in memory, whose keeper has much to do.

    Each of its requests to write is an effect: a process may die between any two of a keeper's.
    """

    def _open(self, url: str) -> Channel:
        url = url.replace("memory:", "topics:")
        clusters[url] = Topics(time=self.world.now / 1000)
        channel = FakeTopicChannel(url)
        channel.keeper.log_operations, channel.keeper.frames_at_once = 10, 2
        channel.prepare()
        return channel

    def opened(self) -> Channel:
        return FakeTopicChannel(self.inner.url)

    def __getattribute__(self, name: str) -> Any:
        if name == "inner":  # the brokers' clock
            clusters[self.url.replace("memory:", "topics:")].time = self.world.now / 1000
        return super().__getattribute__(name)

    def trim(self, stream: str, through: int, frames: Iterable[str]) -> None:
        record = self.records[stream]
        invariants.keeps_its_newest(through, record.last)
        for epoch in self.inner.stream_epochs(stream):
            if epoch <= through:
                self._check_trim(stream, epoch, f"manifest {epoch} is trimmed")
        listed = [*frames]
        self._check_frames(stream, listed)
        self.world.effect("a log is trimmed", lambda: self.inner.trim(stream, through, listed))

    def trim_frames(self, stream: str, paths: Iterable[str]) -> None:
        listed = [*paths]
        self._check_frames(stream, listed)
        self.world.effect("frames are trimmed", lambda: self.inner.trim_frames(stream, listed))

    def _check_frames(self, stream: str, paths: Iterable[str]) -> None:
        for epoch, manifest in self.records[stream].manifests.items():
            if {ref.path for ref in manifest.frames} & {*paths}:
                self._check_trim(stream, epoch, f"a frame of manifest {epoch} is trimmed")

    def paths(self, stream: str) -> set[str]:
        """Of those that count: a keeper deletes the others when they are old."""
        named = self.inner.log.fresh(lambda fold: set(fold.state.frames))
        of_stream = {path for path in named if self.inner.is_frame_of(stream, path)}
        return {path for path in of_stream if self.inner.get_frame(path) == self.content[path]}

    def lose_ack(self, stream: str, site: str) -> None:
        """All acks are lost: a topic loses no single one."""
        topics = clusters[self.inner.url]
        topics.delete("wan.acks")
        self.inner.prepare()
        for name, record in self.records.items():
            for each in {each for each, _ in record.acks}:
                self.world.ack_changed(name, each)


class SimulatedChannel:
    """A channel of the topology: its empty store, and the way to it."""

    def __init__(self, world: World, url: str, kind: type[WatchedChannel]) -> None:
        self.url = url
        self.watched = kind(world, url)
        self.faulty: Any = FaultyChannel(self.watched)  # type: ignore[arg-type]
        """What processes use."""
