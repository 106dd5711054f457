"""Channels of each kind."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka_server import Cluster
from kafka_server import closing_brokers as closing_brokers
from kafka_server import kafka as kafka
from s3_server import Server, serving

from spark_wan.channels import registry
from spark_wan.channels.base import Channel
from spark_wan.channels.registry import open_channel

OBJECTS = ["directory", "memory", "dict", pytest.param("s3", marks=pytest.mark.rest)]


@pytest.fixture(scope="session")
def s3() -> Iterator[Server]:
    with serving() as server:
        yield server


@pytest.fixture(params=[*OBJECTS, "topics", "kafka"])
def channel(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    closing_brokers: None,
) -> Channel:
    """A new channel of each kind."""
    return _open(request.param, request, tmp_path, monkeypatch)


@pytest.fixture(params=OBJECTS)
def objects(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Channel:
    """A new channel of each kind that keeps objects."""
    return _open(request.param, request, tmp_path, monkeypatch)


def _open(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Channel:
    name = uuid.uuid4().hex
    if kind == "directory":
        return open_channel(str(tmp_path / "wan channel ü"))
    if kind == "memory":
        return open_channel(f"memory://{name}")
    if kind == "dict":
        monkeypatch.setitem(registry.CHANNELS, "dict", "dict_channel:DictChannel")
        return open_channel(f"dict://{name}")
    if kind == "topics":
        monkeypatch.setitem(registry.CHANNELS, "topics", "fake_broker:FakeTopicChannel")
        return _prepared(open_channel(f"topics://{name}"))
    if kind == "kafka":
        cluster: Cluster = request.getfixturevalue("kafka")
        return _prepared(open_channel(f"kafka://{cluster.bootstrap}/{name}"))
    server: Server = request.getfixturevalue("s3")
    bucket = server.make_bucket(f"b{name}")
    return open_channel(f"{bucket}/some/prefix", server.storage)


def _prepared(channel: Channel) -> Channel:
    """Topics are made before they are used: a reader takes them for lost, not for empty."""
    channel.ensure_prepared()
    return channel
