"""``spark-wan remove``: what is left of streams that a topology does not have any more."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from sites import NEWARK, Sites

from spark_wan.channels.registry import open_channel
from spark_wan.cli.app import main

OLD, CURRENT = f"{NEWARK}.east.old", f"{NEWARK}.east.orders"


def removed(monkeypatch: pytest.MonkeyPatch, sites: Sites, stream: str, *words: str) -> int:
    """Run the command; return its exit code."""
    config = str(sites.folder / "wan.yaml")
    monkeypatch.setattr(sys, "argv", ["spark-wan", "remove", stream, "--config", config, *words])
    with pytest.raises(SystemExit) as end:
        main()
    return int(end.value.code or 0)


@pytest.fixture
def with_old(tmp_path: Path) -> Sites:
    """Sites whose channel has a stream of the topology, and one that it does not have."""
    sites = Sites.make(tmp_path / "wan", channel=str(tmp_path / "channel"))
    channel = open_channel(str(tmp_path / "channel"))
    for stream in (OLD, CURRENT):
        channel.append(stream, 1, b"manifest")
    return sites


def test_a_stream_that_the_topology_does_not_have_is_removed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], with_old: Sites
) -> None:
    assert removed(monkeypatch, with_old, OLD, "--output", "json") == 0
    url = with_old.topology.sender("east").channel
    assert json.loads(capsys.readouterr().out) == {"v": 1, "removed": OLD, "channels": [url]}
    assert open_channel(url).epochs() == {CURRENT: [1]}


def test_one_that_the_topology_has_is_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], with_old: Sites
) -> None:
    assert removed(monkeypatch, with_old, CURRENT) == 1
    assert f"has the stream {CURRENT}: its sites need what" in capsys.readouterr().err
    channel = open_channel(with_old.topology.sender("east").channel)
    assert channel.epochs() == {CURRENT: [1], OLD: [1]}


def test_one_that_the_topology_has_is_removed_for_its_log_to_begin_anew(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], with_old: Sites
) -> None:
    """And no other one."""
    assert removed(monkeypatch, with_old, CURRENT, "--begin-anew") == 0
    channel = open_channel(with_old.topology.sender("east").channel)
    assert channel.epochs() == {OLD: [1]}


def test_one_that_no_channel_has_is_refused_with_those_there_are(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], with_old: Sites
) -> None:
    assert removed(monkeypatch, with_old, "newark.east.odl") == 1
    assert f"has the stream newark.east.odl. They have: {OLD}, {CURRENT}." in (
        capsys.readouterr().err
    )
