"""A stream and its ack manager, for unit tests."""

from __future__ import annotations

from typing import Any

import pytest
from fakes import STREAM, Checkpoints, Clock, ack, memory_channel, publish

from spark_wan.channels import base, object_store, objects
from spark_wan.log import notes
from spark_wan.log import stream_log as log_module
from spark_wan.log.ack_watch import AckWatch
from spark_wan.log.stream_log import StreamLog
from spark_wan.sender import sweep as sweep_module
from spark_wan.sender.acks import AckManager, StreamState
from spark_wan.steps import run
from spark_wan.topology.ack_policy import AckPolicy

TIMEOUT = 60


class ManagedStream:
    """A stream and its ack manager; ``calls`` are what the ack manager changed in the channel and
    in the checkpoint, in order."""

    def __init__(
        self,
        *numbers: int,
        sites: tuple[str, ...] = ("seattle",),
        policy: AckPolicy = AckPolicy.ALL,
    ) -> None:
        self.log = StreamLog(memory_channel(), STREAM)
        self.clock = Clock()
        self.checkpoints = Checkpoints()
        self.policy = policy
        self.sites = self.served = sites
        publish(self.log, *numbers, frames=2, addressees=sites)
        self.manager = self.new()
        self.calls: list[tuple[Any, ...]] = []
        self._record()

    def new(self) -> AckManager:
        return AckManager(
            self.log, self.checkpoints, self.policy, TIMEOUT * 1000, self.clock, self.served
        )

    def _record(self) -> None:
        for name in ("trim", "trim_frames", "trim_manifest", "put_note"):
            self._wrap(self.log.channel, name)
        self._wrap(self.checkpoints, "save")

    def _wrap(self, holder: Any, name: str) -> None:
        real = getattr(holder, name)

        def call(*args: Any) -> Any:
            self.calls.append((name, *args[1:]))
            return real(*args)

        setattr(holder, name, call)

    def round(self) -> StreamState:
        return run(self.manager.round())

    def ack(self, site: str, applied: int, **more: Any) -> None:
        ack(self.log, site, applied, **more)

    def left(self) -> tuple[list[int], int]:
        """Manifests and how many frames the channel still has."""
        return self.log.channel.stream_epochs(STREAM), len(self.log.channel.frames(STREAM))

    def announced(self) -> list[tuple[int, int]]:
        announced = notes.announced(self.log.channel, STREAM)
        return [] if announced is None else [announced]


def watched(
    *numbers: int, monkeypatch: pytest.MonkeyPatch | None = None, page: int | None = None
) -> tuple[ManagedStream, AckWatch]:
    """A stream whose ack manager shares a look at the channel's acks with others. ``page``: of a
    store that lists so many names at a time."""
    if monkeypatch is not None:
        for module in (base, log_module, objects, object_store, sweep_module):
            monkeypatch.setattr(module, "PAGE", page)
        defaults = (0, page)
        monkeypatch.setattr(objects.ObjectChannel.stream_epochs, "__defaults__", defaults)
    stream = ManagedStream(*numbers)
    watch = AckWatch(stream.log.channel, lambda: stream.clock.now / 1000)
    stream.manager.watch = watch
    return stream, watch
