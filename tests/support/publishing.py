"""A site that publishes a table, for unit tests: its channel, its source and what is beside
them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from fakes import STREAM, Checkpoints, Clock, Source, memory_channel
from faulty_channel import Fault, FaultyChannel

from spark_wan.channels.base import Channel
from spark_wan.errors import WanError
from spark_wan.log.stream_log import StreamLog
from spark_wan.sender.publish import CaptureSettings, Publisher
from spark_wan.steps import run
from spark_wan.wire.control import WantedEnd
from spark_wan.wire.decisions import Decisions
from spark_wan.wire.manifest import Manifest

SETTINGS = CaptureSettings(
    stream=STREAM,
    table="orders",
    keys=("id",),
    origin="newark",
    sent_to=("seattle", "tacoma"),
    addressees=("seattle",),
    start=0,
    on_table_operation="hold",
    max_epoch_rows=1_000,
)


class Site:
    """A channel, a source and what is beside them; publishers come and go. ``channel``: one that is
    prepared; by default, one in memory."""

    def __init__(self, *script: Fault, channel: Channel | None = None, **settings: Any) -> None:
        self.inner = channel or memory_channel()
        self.channel: Channel = FaultyChannel(self.inner, list(script)) if script else self.inner
        self.log = StreamLog(self.channel, STREAM)
        self.source = Source(self.channel)
        self.checkpoints = Checkpoints()
        self.clock = Clock()
        self.inner.now = lambda: self.clock() / 1000  # type: ignore[method-assign]
        self.settings = replace(SETTINGS, **settings)
        self.decisions = Decisions()
        self.wanted = WantedEnd()
        self.publisher = self.new()

    def new(self, **settings: Any) -> Publisher:
        """A publisher that knows nothing but what is durable."""
        settings_now = replace(self.settings, **settings)
        return Publisher(
            settings_now,
            self.log,
            self.source,
            self.checkpoints,
            self.clock,
            lambda: self.decisions,
            wanted=lambda: self.wanted,
            wanted_before=lambda: self.wanted,
        )

    def restart(self, **settings: Any) -> None:
        self.publisher = self.new(**settings)

    def round(self) -> Manifest | None:
        return run(self.publisher.round())

    def rounds(self) -> list[Manifest]:
        published = []
        while (manifest := self.round()) is not None:
            published.append(manifest)
        return published

    def published(self) -> Manifest:
        manifest = self.round()
        assert manifest is not None
        return manifest

    def held(self, error: type[WanError], match: str) -> None:
        """The next round raises, publishes nothing and leaves nothing behind; so does the next
        after a restart."""
        numbers, frames = self.inner.epochs(), self.inner.frames(STREAM)
        for _ in range(2):
            with pytest.raises(error, match=match):
                self.round()
            self.restart()
        assert (self.inner.epochs(), self.inner.frames(STREAM)) == (numbers, frames)
