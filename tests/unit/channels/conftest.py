"""Channels of each kind."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from s3_server import Server, serving

from spark_wan.channels import registry
from spark_wan.channels.base import Channel
from spark_wan.channels.registry import open_channel


@pytest.fixture(scope="session")
def s3() -> Iterator[Server]:
    with serving() as server:
        yield server


@pytest.fixture(params=["directory", "memory", "s3", "dict"])
def channel(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Channel:
    """A new channel of each kind."""
    if request.param == "directory":
        return open_channel(str(tmp_path / "wan channel ü"))
    if request.param == "memory":
        return open_channel(f"memory://{uuid.uuid4().hex}")
    if request.param == "dict":
        monkeypatch.setitem(registry.CHANNELS, "dict", "dict_channel:DictChannel")
        return open_channel(f"dict://{uuid.uuid4().hex}")
    server: Server = request.getfixturevalue("s3")
    bucket = server.make_bucket(f"b{uuid.uuid4().hex}")
    return open_channel(f"{bucket}/some/prefix", server.storage)
