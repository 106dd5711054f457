"""The status of channels, read from logs and acks alone."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from spark_wan.channels.object_store import ObjectStoreChannel
from spark_wan.channels.registry import open_channel
from spark_wan.errors import ChannelError, TopologyError
from spark_wan.status.reports import ChannelReport, SiteReport, StreamReport, read_status
from spark_wan.topology.model import Topology
from spark_wan.topology.parsing import load_topology
from spark_wan.wire.ack import Ack
from spark_wan.wire.frame import FrameRef
from spark_wan.wire.manifest import CAPTURE, Manifest

STREAM = "newark.east.flights"
SITES = ("seattle", "denver")


@pytest.fixture
def topology(tmp_path: Path) -> Topology:
    """newark sends flights to seattle and denver, and readings to denver over another channel."""
    places = {"newark": "./newark/{}", "seattle": "./seattle/{}", "denver": "./denver/{}"}
    content = {
        "version": 1,
        "sites": {site: {"state": f"./{site}/_wan"} for site in places},
        "senders": {
            "east": {"site": "newark", "remotes": list(SITES), "channel": "./channel"},
            "west": {"site": "newark", "remotes": ["denver"], "channel": "./other"},
        },
        "tables": {
            "flights": {
                "keys": ["id"],
                "writers": ["newark"],
                "senders": ["east"],
                "at": {site: place.format("flights") for site, place in places.items()},
            },
            "readings": {
                "writers": ["newark"],
                "senders": ["west"],
                "at": {site: places[site].format("readings") for site in ("newark", "denver")},
            },
        },
    }
    (tmp_path / "wan.yaml").write_text(yaml.safe_dump(content))
    return load_topology(tmp_path / "wan.yaml")


def publish(
    topology: Topology,
    epoch: int,
    *,
    events: int,
    size: int,
    log_id: str = "log-1",
    addressees: tuple[str, ...] = SITES,
) -> None:
    """Append ``epoch`` with one frame; it covers the version of that number."""
    manifest = Manifest(
        stream=STREAM,
        log_id=log_id,
        epoch=epoch,
        previous="",
        kind=CAPTURE,
        origin="newark",
        sent_to=SITES,
        addressees=addressees,
        table="flights",
        table_id="id",
        selection="all",
        keys=("id",),
        schema={"type": "struct", "fields": []},
        first_version=epoch,
        last_version=epoch,
        start=epoch == 1,
        commits=(),
        identity="",
        frames=(FrameRef(f"frames/{STREAM}/{epoch:032x}-00000.frame", events, size, 0),),
        disjoint=True,
        created=1_000 * epoch,
    )
    open_channel(topology.sender("east").channel).append(STREAM, epoch, manifest.encode())


def answer(
    topology: Topology, site: str, applied: int, log_id: str = "log-1", **more: object
) -> None:
    ack = Ack(site, STREAM, log_id, applied, **more)  # type: ignore[arg-type]
    open_channel(topology.sender("east").channel).put_ack(STREAM, site, ack.encode())


def flights(topology: Topology) -> StreamReport:
    (stream,) = channels(topology)["east"].streams
    return stream


def channels(topology: Topology, site: str | None = None) -> dict[str, ChannelReport]:
    by_url = {sender.channel: sender.name for sender in topology.senders.values()}
    return {by_url[channel.url]: channel for channel in read_status(topology, site)}


def test_reading_the_status_creates_no_channel(topology: Topology, tmp_path: Path) -> None:
    """Fails without the check of the directory in `_channel`: obstore creates it."""
    stream = flights(topology)
    assert (stream.epoch, stream.version, stream.problem) == (0, None, None)
    assert stream.sites == (SiteReport("denver", 0, 0, 0, 0), SiteReport("seattle", 0, 0, 0, 0))
    assert not (tmp_path / "channel").exists()


def test_a_stream_that_is_removed_while_it_is_read_is_no_problem(
    topology: Topology, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fails (IndexError) when the newest manifest of an empty log is read."""
    publish(topology, 1, events=10, size=1_000)
    monkeypatch.setattr(ObjectStoreChannel, "manifest", _removed)
    monkeypatch.setattr(ObjectStoreChannel, "stream_epochs", lambda *_: [])
    stream = flights(topology)
    assert (stream.epoch, stream.problem) == (0, None)
    assert stream.sites == (SiteReport("denver", 0, 0, 0, 0), SiteReport("seattle", 0, 0, 0, 0))


def _removed(channel: ObjectStoreChannel, stream: str, number: int) -> bytes:
    raise ChannelError(f"{stream}: no manifest {number}")


def test_the_backlog_of_a_site_is_what_it_has_not_acked(topology: Topology) -> None:
    for number in (1, 2, 3):
        publish(topology, number, events=10 * number, size=1_000 * number)
    answer(topology, "seattle", 1)
    stream = flights(topology)
    assert (stream.epoch, stream.version, stream.published_at) == (3, 3, 3_000)
    assert stream.sites == (
        SiteReport("seattle", 1, 2, 50, 5_000),
        SiteReport("denver", 0, 3, 60, 6_000),
    )


def test_an_ack_counts_for_its_own_log_only(topology: Topology) -> None:
    """Fails when `acked_through` ignores the log ID."""
    publish(topology, 1, events=10, size=1_000, log_id="log-2")
    answer(topology, "seattle", 1, log_id="log-1")
    assert flights(topology).sites[0] == SiteReport("seattle", 0, 1, 10, 1_000)


def test_a_trimmed_log_is_no_problem(topology: Topology) -> None:
    for number in (1, 2, 3):
        publish(topology, number, events=1, size=100)
    for site in SITES:
        answer(topology, site, 3)
    channel = open_channel(topology.sender("east").channel)
    for number in (1, 2):
        channel.trim_manifest(STREAM, number)
    stream = flights(topology)
    assert stream.problem is None
    assert [(site.acked, site.backlog_epochs) for site in stream.sites] == [(3, 0), (3, 0)]


def test_a_held_stream_is_reported_with_its_cause(topology: Topology) -> None:
    publish(topology, 1, events=10, size=1_000)
    answer(topology, "denver", 0, held=1, cause="the table is missing", dead_letters=7)
    denver = flights(topology).sites[1]
    assert (denver.held_at, denver.cause, denver.dead_letters) == (1, "the table is missing", 7)


def test_a_gap_in_the_log_is_a_problem_of_its_stream(topology: Topology) -> None:
    for number in (1, 3):
        publish(topology, number, events=1, size=100)
    reports = channels(topology)
    assert "goes from 1 to 3" in (reports["east"].streams[0].problem or "")
    assert [stream.problem for stream in reports["west"].streams] == [None]


def test_a_stray_manifest_below_the_log_is_no_problem(topology: Topology) -> None:
    """f47: a frozen writer left it where the log is trimmed."""
    for number in (1, 3):
        publish(topology, number, events=1, size=100)
    for site in ("denver", "seattle"):
        answer(topology, site, 2)
    stream = flights(topology)
    assert (stream.problem, [site.backlog_epochs for site in stream.sites]) == (None, [1, 1])


def test_f52_a_site_that_is_no_longer_served_is_reported_as_such(topology: Topology) -> None:
    publish(topology, 1, events=1, size=100, addressees=("denver", "seattle", "tacoma"))
    assert {site.site: site.served for site in flights(topology).sites} == {
        "denver": True,
        "seattle": True,
        "tacoma": False,
    }


def test_an_altered_manifest_is_a_problem_of_its_stream(topology: Topology, tmp_path: Path) -> None:
    publish(topology, 1, events=1, size=100)
    (path,) = (tmp_path / "channel").rglob("0*1.json")
    path.write_bytes(path.read_bytes()[:-5])
    assert "truncated or altered" in (flights(topology).problem or "")


def test_foreign_files_are_reported(topology: Topology, tmp_path: Path) -> None:
    publish(topology, 1, events=1, size=100)
    (tmp_path / "channel" / "notes.txt").write_text("whose is this?")
    assert channels(topology)["east"].foreign == ("notes.txt",)


def test_only_the_streams_of_the_named_site_are_reported(topology: Topology) -> None:
    assert set(channels(topology, "seattle")) == {"east"}
    assert set(channels(topology, "denver")) == {"east", "west"}


def test_an_unknown_site_is_refused(topology: Topology) -> None:
    with pytest.raises(TopologyError, match="did you mean 'seattle'"):
        read_status(topology, "seatle")
