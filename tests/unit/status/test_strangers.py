"""What somebody else has written into a channel: it stops and hides nothing but itself."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_broker import FakeTopicChannel
from fakes import STREAM, publish

from spark_wan.channels.base import Channel
from spark_wan.channels.registry import open_channel
from spark_wan.log.ack_watch import AckWatch
from spark_wan.log.stream_log import StreamLog
from spark_wan.receiver.channel_streams import ChannelStreams
from spark_wan.status.reports import read_status
from spark_wan.topology.model import Topology
from spark_wan.topology.parsing import parse_topology

FIRST = "00000000000000000001.json"
NO_TEXT = os.fsdecode(b"\xff\xfe")
"""The name of a file that is not valid UTF-8."""
FILES = {
    "a name with a space": (f"log/a b$c/{FIRST}", b"{}"),
    "dots": (f"log/.../{FIRST}", b"{}"),
    "a hidden folder": (f"log/.x/{FIRST}", b"{}"),
    "a name that turns the direction": (f"log/\u202egnp/{FIRST}", b"{}"),
    "a name that is no text": (f"log/{NO_TEXT}/{FIRST}", b"{}"),
    "a name with a line break": (f"log/a\nb/{FIRST}", b"{}"),
    "a long name": (f"log/{'x' * 240}/{FIRST}", b"{}"),
    "an escaped name": (f"log/a%2fb/{FIRST}", b"{}"),
    "a wrong escape": (f"log/a%zz/{FIRST}", b"{}"),
    "a huge epoch": ("log/x.y.z/99999999999999999999.json", b"{}"),
    "epoch 0": (f"log/x.y.z/{'0' * 20}.json", b"{}"),
    "a manifest of bytes": (f"log/x.y.z/{FIRST}", b"\xff\x00"),
    "a deep manifest": (f"log/x.y.z/{FIRST}", b"[" * 100_000),
    "an empty manifest": (f"log/x.y.z/{FIRST}", b""),
    "a file among logs": ("log/file", b""),
    "a folder for a manifest": (f"log/x.y.z/{FIRST}/sub", b""),
    "an ack for no stream": ("acks/a b/seattle.json", b"{}"),
    "an ack of bytes": (f"acks/{STREAM}/seattle.json", b"\xff"),
    "an ack of a newer version": (f"acks/{STREAM}/seattle.json", b'{"version":9}'),
    "a folder for an ack": (f"acks/{STREAM}/seattle.json/sub", b""),
    "an ack of no text": (f"acks/{STREAM}/{NO_TEXT}.json", b"{}"),
    "an ack of no site": (f"acks/{STREAM}/no such site.json", b"{}"),
    "a head of bytes": (f"heads/{STREAM}.json", b"\xff"),
    "a folder for a head": (f"heads/{STREAM}.json/sub", b""),
    "a list for a head": (f"heads/{STREAM}.json", b"[1]"),
    "an infinite head": (f"heads/{STREAM}.json", b'{"version":1,"epoch":1e400}'),
    "a head of no stream": ("heads/\u202ex.json", b'{"version":1,"epoch":5}'),
    "a head of no text": (f"heads/{NO_TEXT}.json", b'{"version":1,"epoch":5}'),
    "an odd announcement": (f"heads/{STREAM}.again", b'{"version":1,"epoch":5,"attempt":-1}'),
    "a folder for a record": (f"senders/{STREAM}.json/sub", b""),
    "a record of bytes": (f"senders/{STREAM}.json", b"\xff"),
    "a folder of frames": (f"frames/{NO_TEXT}/x", b""),
    "a file of its own": (NO_TEXT, b""),
}
"""Path and content. Found by trying each kind of object with each kind of damage."""
RECORDS: dict[str, tuple[str, bytes, bytes]] = {
    f"{what} in {topic}": (topic, key, value)
    for topic in ("log", "acks", "frames")
    for what, key, value in (
        ("nothing", b"", b""),
        ("bytes", b"\xff\xfe", b"\xff\x00"),
        ("a deep value", f"{STREAM}/seattle".encode(), b"[" * 100_000),
        ("an odd name", b"a b$c/\xe2\x80\xae", b"{}"),
        ("no operation", b"", b'WANO 1 00000000\n{"kind":"manifest"}'),
    )
}


def topology(url: str) -> Topology:
    places = {site: {"state": f"/{site}/wan"} for site in ("newark", "seattle")}
    return parse_topology(
        {
            "version": 1,
            "sites": places,
            "senders": {"east": {"site": "newark", "remotes": ["seattle"], "channel": url}},
            "tables": {
                "orders": {
                    "keys": ["id"],
                    "writers": ["newark"],
                    "senders": ["east"],
                    "at": {site: f"/{site}/orders" for site in places},
                }
            },
        },
        "wan.yaml",
    )


def check(wan: Topology, channel: Channel, spoil: Callable[[], None]) -> None:
    """Spoil a channel in which a stream has two epochs: all can still work on that stream."""
    publish(StreamLog(channel, STREAM), 1, 2)
    spoil()
    (report,) = read_status(wan)
    assert report.problem is None
    (stream,) = [each for each in report.streams if each.stream == STREAM]
    assert (stream.epoch, stream.problem) == (2, None)
    watch = AckWatch(channel)
    watch.look()
    watch.acks(STREAM)
    StreamLog(channel, STREAM).acks()
    due = ChannelStreams(wan, "seattle", channel.url).due(channel)
    assert [each.stream.name for each in due["orders"]] == [STREAM]


@pytest.mark.parametrize(("path", "content"), FILES.values(), ids=FILES)
def test_an_odd_file_hides_no_stream(tmp_path: Path, path: str, content: bytes) -> None:
    file = tmp_path / "channel" / path

    def spoil() -> None:
        if file.parent.is_file():
            file.parent.unlink()
        file.parent.mkdir(parents=True, exist_ok=True)
        file.unlink(missing_ok=True)
        file.write_bytes(content)

    channel = open_channel(str(tmp_path / "channel"))
    check(topology(channel.url), channel, spoil)


@pytest.mark.parametrize(("topic", "key", "value"), RECORDS.values(), ids=RECORDS)
def test_an_odd_record_of_a_topic_hides_no_stream(
    monkeypatch: pytest.MonkeyPatch, topic: str, key: bytes, value: bytes
) -> None:
    url = f"topics://{uuid.uuid4().hex}"
    channel: Any = FakeTopicChannel(url)
    channel.prepare()
    monkeypatch.setattr("spark_wan.status.reports.open_channel", lambda *_: channel)
    wan = topology("kafka://broker:9092/wan")

    def spoil() -> None:
        channel.broker.produce(f"wan.{topic}", 0, [(key, value)])

    check(wan, channel, spoil)
