"""What anyone can write who may write to the topics of a channel, in memory and on a broker. It
holds the stream that it is about, by name, or changes nothing, and the others go on."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from fake_broker import clusters
from fakes import manifest
from kafka_server import Cluster
from kafka_server import closing_brokers as closing_brokers
from kafka_server import kafka as kafka
from signed import ORDERS, PRICES, SignedSites, held, key_file, others_go_on

from spark_wan.channels import registry
from spark_wan.channels.kafka.channel import TopicChannel
from spark_wan.log.stream_log import StreamLog
from spark_wan.wire import topic_log
from spark_wan.wire.ack import Ack
from spark_wan.wire.manifest import Manifest
from spark_wan.wire.topic_log import Operation

Make = Callable[..., SignedSites]


@pytest.fixture(params=["topics", pytest.param("kafka", marks=pytest.mark.rest)])
def make(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    closing_brokers: None,
) -> Iterator[Make]:
    """Make the sites, with a channel in memory and one on a broker."""
    monkeypatch.setitem(registry.CHANNELS, "topics", "fake_broker:FakeTopicChannel")
    name = uuid.uuid4().hex
    if request.param == "kafka":
        cluster: Cluster = request.getfixturevalue("kafka")
        url = f"kafka://{cluster.bootstrap}/{name}"
    else:
        url = f"topics://{name}"
    yield partial(SignedSites, tmp_path, url=url)
    clusters.pop(url, None)


@pytest.fixture
def sites(make: Make) -> SignedSites:
    """Both senders sign."""
    return make("newark", "denver")


def topics(sites: SignedSites) -> TopicChannel:
    assert isinstance(sites.channel, TopicChannel)
    return sites.channel


def write(sites: SignedSites, *values: bytes, topic: str = "log", key: bytes = b"") -> None:
    """Write records to a topic."""
    channel = topics(sites)
    name = f"{channel.prefix}.{topic}"
    channel.broker.produce(name, 0, [(key, value) for value in values])


def following(sites: SignedSites, **changes: Any) -> Manifest:
    """Return a second manifest of orders, which nobody has signed."""
    log = sites.log()
    fields = {"table": "orders", "previous": log.peek(1).fingerprint, "frames": ()}
    return manifest(2, stream=ORDERS, origin="newark", **{**fields, **changes})


FORGED = {
    "nobody": "not signed, but site 'newark' has signing_keys",
    "unknown key": "none of the keys of site 'newark'",
    "another site": "signed by site 'denver', but its sender is at 'newark'",
    "another channel": "signed for the channel 'production', and this channel is",
    "another stream": "holds epoch 1 of denver.west.prices",
    "altered": "its signature is wrong",
    "no manifest": "manifest 2 of newark.east.orders",
}
"""What is wrong -> why the stream is held."""


@pytest.mark.parametrize("forger", [*FORGED])
def test_a_forged_manifest_holds_its_stream(sites: SignedSites, forger: str) -> None:
    """It follows the log, so it counts for the topic. Fails when a receiver acts on it."""
    sites.send(1)
    sites.send(1, log=sites.log("west"))
    here = sites.receiver()
    here.apply()
    plain = following(sites)
    signer, other = (sites.log(name).trust.signer for name in ("east", "west"))
    assert signer is not None and other is not None
    stolen = sites.log(newark=[key_file(sites.folder, "other", "x" * 40)]).trust.signer
    assert stolen is not None
    signed = plain.signed_by(signer)
    forged = {
        "nobody": plain.encode(),
        "unknown key": plain.signed_by(stolen).encode(),
        "another site": plain.signed_by(other).encode(),
        "another channel": plain.signed_by(replace(signer, channel="production")).encode(),
        "another stream": sites.channel.manifest(PRICES, 1),
        "altered": replace(signed, last_version=signed.last_version + 1).encode(),
        "no manifest": b"\xff" * 100,
    }
    sites.put(ORDERS, 2, forged[forger])
    here.apply()
    assert FORGED[forger] in held(here, ORDERS)
    assert sites.applied(ORDERS) == 1
    others_go_on(sites, here)


@pytest.mark.parametrize(
    "path",
    [
        "../../../etc/passwd",
        f"frames/{PRICES}/{'a' * 32}-00000@0:0",
        f"frames/{ORDERS}/../{PRICES}/{'a' * 32}-00000@0:0",
        f"frames/{ORDERS}/{'a' * 32}-00000@0:0\n",
        f"frames/{ORDERS}/{'a' * 32}-00000@0:-1",
        f"frames/{ORDERS}/{'a' * 32}-00000.frame",
        "",
    ],
)
def test_a_frame_of_another_stream_is_refused(sites: SignedSites, path: str) -> None:
    """Even by a sender that may sign. Fails when the path is used before it is looked at."""
    sites.send(1)
    log = sites.log()
    assert log.trust.signer is not None
    frame = replace(sites.frame(log), path=path)
    sites.put(ORDERS, 2, following(sites, frames=(frame,)).signed_by(log.trust.signer).encode())
    read: list[str] = []
    real = sites.channel.get_frame
    sites.channel.get_frame = lambda *args: read.append(args[0]) or real(*args)  # type: ignore
    here = sites.receiver()
    here.apply()
    assert "not in the folder of the stream's frames" in held(here, ORDERS)
    assert path not in read
    others_go_on(sites, here)


MOVED = {
    "bytes": "not the frame that its signed manifest names",
    "key": "the frame that a manifest names is not there",
    "size": "the records are larger than the manifest says",
}
"""What is wrong with the record -> why the stream is held."""


@pytest.mark.parametrize("forged", [*MOVED])
def test_a_frame_that_is_moved_to_another_record_is_refused(
    sites: SignedSites, forged: str
) -> None:
    """Operations are not signed. Fails when a receiver applies what it is led to."""
    (sent,) = sites.send(1)
    path = sent.frames[0].path
    data = bytearray(sites.channel.get_frame(path))
    if forged == "bytes":
        data[-20] ^= 1
    key = f"{PRICES}/{'a' * 32}-00000/0".encode() if forged == "key" else b""
    sites.replace_frame(path, bytes(data) * (2 if forged == "size" else 1), key)
    here = sites.receiver()
    here.apply()
    assert MOVED[forged] in held(here, ORDERS)
    assert sites.applied(ORDERS) == 0
    others_go_on(sites, here)


WILD: list[dict[str, Any]] = [
    {"epoch": -1},
    {"epoch": 2**70},
    {"epoch": 2.0},
    {"epoch": True},
    {"previous": None},
    {"previous": ["x"]},
    {"frames": None},
    {"frames": {"a": "b"}},
    {"frames": [[["x"]]]},
    {"frames": [f"frames/{ORDERS}/{'a' * 32}-00000@{2**40}:0"]},
    {"stream": None},
    {"stream": {"x": []}},
]


def test_operations_with_wild_fields_change_nothing(sites: SignedSites) -> None:
    """Of each kind, and with none of its fields."""
    sites.send(1)
    channel = topics(sites)
    identity = channel.channel_id()
    good = {"stream": ORDERS, "epoch": 2, "previous": sites.log().peek(1).fingerprint, "frames": []}
    write(sites, *(Operation(topic_log.MANIFEST, identity, {**good, **w}).encode() for w in WILD))
    for kind in topic_log.KINDS - {topic_log.BEGIN, topic_log.CLOCK, topic_log.CHANNEL}:
        write(sites, Operation(kind, identity).encode())
        write(sites, Operation(kind, identity, dict.fromkeys(NAMES, -1)).encode())
        write(sites, Operation(kind, identity, {name: [[{}]] for name in NAMES}).encode())
    state = channel.log.fresh(lambda seen: dict(seen.state.streams))
    assert {name for name, each in state.items() if each.epochs} == {ORDERS}
    assert state[ORDERS].newest == 1
    assert channel.log.fresh(lambda seen: seen.state.floors) == {}
    here = sites.receiver()
    here.apply()
    assert (sites.applied(ORDERS), held(here, ORDERS)) == (1, "")
    others_go_on(sites, here)


NAMES = ("stream", "epoch", "frames", "through", "fingerprint", "attempt", "path", "from", "to")
NAMES += ("floors", "begin", "offset", "previous")


@pytest.mark.parametrize("stream", ["..", ".", "a b", "x\ny", "-rf", "é", "a/b", "../x", ""])
def test_a_stream_with_an_unsafe_name_is_refused_by_name(sites: SignedSites, stream: str) -> None:
    """Before anything of it is read."""
    here = sites.receiver()
    here.apply()
    sites.send(1)
    sites.put(stream, 1, sites.channel.manifest(ORDERS, 1))
    here.apply()
    causes = [each.held for each in here.streams.statuses() if each.held]
    assert [f"{stream!a} is not the name of a stream" in str(cause) for cause in causes] == [True]
    assert sites.applied(ORDERS) == 1
    others_go_on(sites, here)


def test_forged_acks_do_not_count(sites: SignedSites) -> None:
    """Fails when the sender trims what nobody has applied."""
    sites.keys["seattle"] = [key_file(sites.folder, "seattle")]
    (sent,) = sites.send(1)
    log = sites.log()
    forged = Ack("seattle", ORDERS, sent.log_id, 1).encode()
    write(sites, forged, topic="acks", key=f"{ORDERS}/seattle".encode())
    found = log.ack("seattle")
    assert found is not None and (found.applied, found.log_id) == (0, "")
    write(sites, b"\xff" * 900_000, topic="acks", key=f"{ORDERS}/seattle".encode())
    assert log.ack("seattle") is None
    here = sites.receiver()
    here.apply()
    applied = StreamLog(sites.channel, ORDERS, log.trust).ack("seattle")
    assert applied is not None and applied.applied == 1
