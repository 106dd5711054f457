"""What a query that reads ``format("wan")`` makes of listings, which are not made at one moment."""

from __future__ import annotations

from typing import Any

import pytest
from fakes import STREAM, memory_channel, publish
from pyspark.sql.streaming.datasource import ReadAllAvailable

from spark_wan.channels.base import Notes
from spark_wan.datasource import source as datasource
from spark_wan.datasource.options import SourceOptions
from spark_wan.datasource.source import WanStreamReader
from spark_wan.errors import LogGapError
from spark_wan.log.notes import put_pause
from spark_wan.log.stream_log import StreamLog
from spark_wan.topology.model import copy_name
from spark_wan.wire.head import Pause

BEFORE = {"streams": {STREAM: 5}, "again": {}}


class Moving:
    """A channel whose log is extended and trimmed while its head is replaced, so that the listing
    has nothing of it."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def notes(self, folder: str) -> Notes:
        publish(StreamLog(self.inner, STREAM), 6)
        self.inner.trim_manifest(STREAM, 5)
        return {}

    def entries(self) -> list[tuple[str, int, int]]:
        return []


@pytest.fixture
def channel() -> Any:
    channel = memory_channel()
    publish(StreamLog(channel, STREAM), 1, 2, 3, 4, 5)
    for epoch in (1, 2, 3, 4):
        channel.trim_manifest(STREAM, epoch)
    return channel


def reader(monkeypatch: pytest.MonkeyPatch, channel: Any) -> WanStreamReader:
    monkeypatch.setattr(datasource, "open_channel", lambda *_: channel)
    return WanStreamReader(SourceOptions.parse({"channel": "/channel"}))


def test_a_listing_that_misses_a_log_ends_no_query(
    monkeypatch: pytest.MonkeyPatch, channel: Any
) -> None:
    """Fails (the log ends at 0: begin again with a new checkpoint) when one listing decides."""
    offset = reader(monkeypatch, Moving(channel)).latestOffset(BEFORE, ReadAllAvailable())
    assert offset["streams"] == {STREAM: 6}


def test_copies_are_no_events(monkeypatch: pytest.MonkeyPatch, channel: Any) -> None:
    """Fails when a query that names no streams gets all rows of a table once more, with each copy
    that a site asks for."""
    copies = copy_name(STREAM, "seattle")
    publish(StreamLog(channel, copies), 1)
    offset = reader(monkeypatch, channel).latestOffset(BEFORE, ReadAllAvailable())
    assert offset["streams"] == {STREAM: 5}


def test_a_deleted_log_ends_a_query(monkeypatch: pytest.MonkeyPatch, channel: Any) -> None:
    channel.trim_manifest(STREAM, 5)
    with pytest.raises(LogGapError, match="ends at 0, but this query has read epoch 5"):
        reader(monkeypatch, channel).latestOffset(BEFORE, ReadAllAvailable())


def test_b18_a_query_gets_nothing_of_a_paused_stream(
    monkeypatch: pytest.MonkeyPatch, channel: Any
) -> None:
    """Neither one that has read of it before nor a new one."""
    put_pause(channel, STREAM, Pause(1, "ann", 5))
    publish(StreamLog(channel, STREAM), 6)
    here = reader(monkeypatch, channel)
    assert here.latestOffset(BEFORE, ReadAllAvailable())["streams"] == {STREAM: 5}
    nothing = {"streams": {}, "again": {}}
    assert here.latestOffset(nothing, ReadAllAvailable())["streams"] == {}
    put_pause(channel, STREAM, None)
    assert here.latestOffset(BEFORE, ReadAllAvailable())["streams"] == {STREAM: 6}
