"""Whom a receiver believes: signatures, ``accept_from``, names and sizes, on a real directory and
topics in memory. ``test_trust_on_topics.py`` forges what only topics have."""

from __future__ import annotations

import json
import pickle
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from crc32c import crc32c
from fake_broker import clusters
from fakes import HEADER
from signed import ORDERS, PRICES, SignedSites, held, key_file, others_go_on

from spark_wan.channels import registry
from spark_wan.channels.kafka.channel import TopicChannel
from spark_wan.channels.registry import open_channel
from spark_wan.errors import SigningKeyError, TopologyError
from spark_wan.log.notes import put_ack
from spark_wan.log.stream_log import StreamLog
from spark_wan.topology.signing import receiving_trust, sending_trust
from spark_wan.wire.ack import Ack
from spark_wan.wire.frame import FrameRef, encode_frame, frame_checksum, frame_digest
from spark_wan.wire.manifest import Manifest

Make = Callable[..., SignedSites]


@pytest.fixture(params=["directory", "topics"])
def make(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Make]:
    """Make the sites, with a channel of each kind."""
    monkeypatch.setitem(registry.CHANNELS, "topics", "fake_broker:FakeTopicChannel")
    url = f"topics://{uuid.uuid4().hex}" if request.param == "topics" else ""
    yield partial(SignedSites, tmp_path, url=url)
    clusters.pop(url, None)


@pytest.fixture
def sites(make: Make) -> SignedSites:
    """Both senders sign."""
    return make("newark", "denver")


@pytest.fixture
def files(tmp_path: Path) -> SignedSites:
    """The same, on a directory."""
    return SignedSites(tmp_path, "newark", "denver")


def altered(data: bytes, **changes: Any) -> bytes:
    """Return a manifest with other fields and a right checksum; None takes a field out."""
    record = {**json.loads(data.partition(b"\n")[2]), **changes}
    body = json.dumps({name: each for name, each in record.items() if each is not None}).encode()
    return f"WANM 2 {crc32c(body):08x}\n".encode() + body


def test_signed_streams_are_applied_end_to_end(sites: SignedSites) -> None:
    """Old readers ignore the signature, and each frame has its digest."""
    appended = sites.send(1, 2, 3)
    sites.send(1, log=sites.log("west"))
    here = sites.receiver()
    here.apply()
    assert [sites.applied(ORDERS), sites.applied(PRICES)] == [3, 1]
    assert [held(here, ORDERS), held(here, PRICES)] == ["", ""]
    for manifest in appended:
        assert manifest.signature is not None and manifest.signature.site == "newark"
        assert manifest.signature.channel == "east"
        assert len(manifest.signature.hmac) == len(manifest.frames[0].digest) == 64
    unaware = StreamLog(sites.channel, ORDERS).read(3)
    assert unaware.fingerprint == appended[-1].fingerprint


def test_a_manifest_without_a_signature_is_refused(sites: SignedSites) -> None:
    """Of a site that has keys. Fails when a missing signature counts as none needed."""
    sites.send(1, 2)
    sites.put(ORDERS, 2, altered(sites.channel.manifest(ORDERS, 2), signature=None))
    here = sites.receiver()
    here.apply()
    assert "not signed, but site 'newark' has signing_keys" in held(here, ORDERS)
    assert sites.applied(ORDERS) == 1
    others_go_on(sites, here)


@pytest.mark.parametrize(
    "changes",
    [
        {"last_version": 99},
        {"created": 5},
        {"addressees": ["seattle", "mallory"]},
        {"identity": "another"},
        {"keys": []},
        {"a_later_version": "has this"},
        {"disjoint": False},
    ],
    ids=",".join,
)
def test_an_altered_manifest_is_refused(sites: SignedSites, changes: dict[str, Any]) -> None:
    """Whichever field was altered, and though its checksum is right."""
    sites.send(1)
    sites.put(ORDERS, 1, altered(sites.channel.manifest(ORDERS, 1), **changes))
    here = sites.receiver()
    here.apply()
    assert "its signature is wrong" in held(here, ORDERS)
    assert sites.applied(ORDERS) == 0
    others_go_on(sites, here)


def test_a_manifest_signed_with_an_unknown_key_is_refused(sites: SignedSites) -> None:
    stolen = key_file(sites.folder, "other", "x" * 40)
    sites.send(1, log=sites.log(newark=[stolen]))
    here = sites.receiver()
    here.apply()
    assert "none of the keys of site 'newark'" in held(here, ORDERS)
    others_go_on(sites, here)


def test_another_site_cannot_sign_for_the_sender(sites: SignedSites) -> None:
    """It has a key of its own, and may write to the same channel."""
    log = StreamLog(sites.channel, ORDERS, sending_trust(sites.topology(), _sender(sites, "west")))
    sites.send(1, log=log)
    here = sites.receiver()
    here.apply()
    assert "signed by site 'denver', but its sender is at 'newark'" in held(here, ORDERS)
    others_go_on(sites, here)


def _sender(sites: SignedSites, name: str) -> Any:
    return sites.topology().sender(name)


def test_another_origin_cannot_be_claimed(sites: SignedSites) -> None:
    sites.send(1, origin="denver")
    here = sites.receiver()
    here.apply()
    assert "its events are of site 'denver'" in held(here, ORDERS)


def test_a_manifest_under_another_stream_is_refused(sites: SignedSites) -> None:
    """As it is, it names another stream. With the name altered, its signature is wrong."""
    sites.send(1)
    copied = sites.channel.manifest(ORDERS, 1)
    for stream in (PRICES, "newark.east.prices"):
        sites.put(stream, 1, copied)
    here = sites.receiver()
    here.apply()
    assert sites.applied(ORDERS) == 1
    for stream in (PRICES, "newark.east.prices"):
        assert f"holds epoch 1 of {ORDERS}" in held(here, stream)
    sites.put(PRICES, 1, altered(copied, stream=PRICES, table="prices", frames=[]))
    here.retry()
    assert "signed by site 'newark', but its sender is at 'denver'" in held(here, PRICES)
    renamed = "newark.east.orders2"
    sites.put(renamed, 1, altered(copied, stream=renamed, frames=[]))
    here.retry()
    assert "its signature is wrong" in held(here, renamed)
    assert sites.targets["prices"].written == []


def test_a_channel_copied_to_another_place_is_refused(sites: SignedSites, tmp_path: Path) -> None:
    """Test and production have the same sites, tables and keys, and another ``channel_id``."""
    sites.send(1)
    here = sites.receiver()
    topology = sites.topology()
    other = replace(_sender(sites, "east"), channel_id="production")
    topology = replace(topology, senders={**topology.senders, "east": other})
    here.streams.trust = _trust(topology, sites)
    here.apply()
    assert "signed for the channel 'east', and this channel is 'production'" in held(here, ORDERS)
    others_go_on(sites, here)


def _trust(topology: Any, sites: SignedSites) -> Any:
    return receiving_trust(topology, "seattle", sites.url)


def test_two_keys_are_valid_while_one_replaces_the_other(sites: SignedSites) -> None:
    """The receiver knows both, the sender changes, the old one is taken out. Nothing is held."""
    old, new = sites.keys["newark"][0], key_file(sites.folder, "new", "n" * 40)
    sites.send(1, log=sites.log(newark=[old]))
    here = sites.receiver(newark=[old, new])
    here.apply()
    sites.send(2, log=sites.log(newark=[new, old]))
    here.apply()
    assert sites.applied(ORDERS) == 2
    later = sites.receiver(newark=[new])
    sites.send(3, log=sites.log(newark=[new]))
    later.apply()
    assert (sites.applied(ORDERS), held(later, ORDERS)) == (3, "")
    sites.send(4, log=sites.log(newark=[old]))
    later.apply()
    assert "none of the keys of site 'newark'" in held(later, ORDERS)


def test_an_idle_stream_is_not_held_when_its_key_has_gone(sites: SignedSites) -> None:
    """What is applied was trusted before. Fails when every manifest that is read is checked."""
    sites.keys = {}
    sites.send(1, 2)
    here = sites.receiver()
    here.apply()
    sites.keys = {"newark": [key_file(sites.folder, "newark")]}
    later = sites.receiver()
    for name, table in here.tables._tables.items():
        later.tables.get(name)._ledger = table._ledger
    later.apply()
    assert (sites.applied(ORDERS), held(later, ORDERS)) == (2, "")
    sites.send(3)
    later.apply()
    assert (sites.applied(ORDERS), held(later, ORDERS)) == (3, "")


def test_a_replaced_frame_is_refused(sites: SignedSites) -> None:
    """With right checksums in the frame, and the same size. Fails without digests."""
    (manifest,) = sites.send(1)
    path = manifest.frames[0].path
    data = bytearray(sites.channel.get_frame(path))
    at = len(data) - 20
    data[at] ^= 1
    sites.replace_frame(path, bytes(data))
    here = sites.receiver()
    here.apply()
    assert "not the frame that its signed manifest names" in held(here, ORDERS)
    others_go_on(sites, here)


def test_a_signed_manifest_whose_frames_have_no_digest_is_refused(sites: SignedSites) -> None:
    log = sites.log()
    frame = replace(sites.frame(log), digest="")
    sites.send(1, log=log, frames=(frame,))
    here = sites.receiver()
    here.apply()
    assert "a digest is missing" in held(here, ORDERS)


def test_a_stream_that_the_topology_does_not_know_must_be_signed(sites: SignedSites) -> None:
    """A sink may give its stream any name; without keys, nobody can invent one for a site."""
    named = "clicks.east.orders"
    sites.send(1, log=StreamLog(sites.channel, named), origin="newark")
    sites.send(1, log=StreamLog(sites.channel, "other.east.orders"), origin="mallory")
    here = sites.receiver()
    here.apply()
    assert "not signed, but site 'newark'" in held(here, named)
    assert "site 'mallory', which has no sender on this channel" in held(here, "other.east.orders")
    signed = "good.east.orders"
    sites.send(1, log=sites.log(stream=signed), origin="newark")
    here.apply()
    assert "signature" not in held(here, signed) and "signed" not in held(here, signed)


def refuses_denver(sites: SignedSites, log: StreamLog) -> None:
    sites.send(1, log=log)
    here = sites.receiver()
    here.apply()
    cause = held(here, log.stream)
    assert "manifest 1 begin at site denver" in cause and "newark as the writer" in cause
    assert f"spark-wan remove {log.stream}" in cause
    assert sites.applied(log.stream) == 0
    others_go_on(sites, here)


def test_events_that_begin_at_another_site_than_the_tables_writer_are_refused(make: Make) -> None:
    """Fails when a table takes events of whoever can write to the channel."""
    sites = make()
    refuses_denver(sites, StreamLog(sites.channel, "denver.x.orders"))


def test_so_are_those_that_this_site_has_signed(sites: SignedSites) -> None:
    log = sites.log("west", stream="denver.x.orders")
    assert log.trust.signer is not None
    refuses_denver(sites, log)


def test_without_keys_nothing_has_to_be_signed(make: Make) -> None:
    sites = make()
    (manifest,) = sites.send(1)
    here = sites.receiver()
    here.apply()
    assert (manifest.signature, manifest.frames[0].digest) == (None, "")
    assert b"signature" not in sites.channel.manifest(ORDERS, 1)
    assert (sites.applied(ORDERS), held(here, ORDERS)) == (1, "")


def test_a_site_takes_events_only_from_those_that_it_accepts(make: Make) -> None:
    sites = make(accept_from=["denver"])
    sites.send(1)
    here = sites.receiver()
    here.apply()
    assert "sent by site 'newark', which is not in accept_from of site seattle" in held(
        here, ORDERS
    )
    assert sites.applied(ORDERS) == 0
    others_go_on(sites, here)


def test_an_accepted_site_may_not_bring_events_of_another(make: Make) -> None:
    sites = make(accept_from=["newark", "denver"])
    sites.send(1, origin="mallory")
    here = sites.receiver()
    here.apply()
    assert "written at site 'mallory', which is not in accept_from" in held(here, ORDERS)


# --- keys


def test_a_sender_without_its_key_publishes_nothing(sites: SignedSites) -> None:
    """Fails when it goes on unsigned."""
    (sites.folder / "newark.key").unlink()
    with pytest.raises(SigningKeyError, match=r"newark\.key: the file cannot be read \(No such"):
        sites.send(1)
    assert sites.log().epochs() == []


def test_a_receiver_without_a_key_holds_the_streams_of_that_site(sites: SignedSites) -> None:
    sites.send(1)
    secret = (sites.folder / "newark.key").read_text()
    (sites.folder / "newark.key").write_text("short")
    here = sites.receiver()
    here.apply()
    assert "it has 5 bytes; a key has 32 to 4096" in held(here, ORDERS)
    others_go_on(sites, here)
    (sites.folder / "newark.key").write_text(secret)
    here.retry()
    assert (sites.applied(ORDERS), held(here, ORDERS)) == (1, "")


def test_a_key_may_be_in_the_environment(
    sites: SignedSites, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WAN_NEWARK", "e" * 32)
    sites.keys["newark"] = ["env:WAN_NEWARK"]
    sites.send(1)
    here = sites.receiver()
    here.apply()
    assert (sites.applied(ORDERS), held(here, ORDERS)) == (1, "")
    monkeypatch.delenv("WAN_NEWARK")
    sites.put(ORDERS, 2, sites.channel.manifest(ORDERS, 1))
    with pytest.raises(SigningKeyError, match="the environment variable is not set"):
        sites.send(2)


def test_no_key_is_in_what_is_shown_or_pickled(sites: SignedSites) -> None:
    """Fails when an object keeps a key that it has read."""
    secret = (sites.folder / "newark.key").read_bytes().strip()
    (manifest,) = sites.send(1)
    topology = sites.topology()
    here = sites.receiver()
    here.apply()
    log = sites.log()
    for each in (topology, log.trust, manifest, here.streams.trust(ORDERS)):
        assert secret not in pickle.dumps(each)
        assert secret.decode() not in repr(each)
    if isinstance(sites.channel, TopicChannel):
        topics = clusters[sites.url].partitions.values()
        written = [r.key + r.value for topic in topics for of in topic for r in of.records]
    else:
        paths = (sites.folder / "channel").rglob("*")
        written = [path.read_bytes() for path in paths if path.is_file()]
    assert written and all(secret not in each for each in written)


# --- acks


def test_acks_are_signed_and_forged_ones_do_not_count(sites: SignedSites) -> None:
    """Fails when the sender would trim what nobody has applied."""
    sites.keys["seattle"] = [key_file(sites.folder, "seattle")]
    sites.send(1, 2)
    here = sites.receiver()
    here.apply()
    log = sites.log()
    ack = log.ack("seattle")
    assert ack is not None and ack.applied == 2 and ack.signature is not None
    sites.send(3)
    newest = log.peek(3)
    forged = Ack("seattle", ORDERS, newest.log_id, 3)
    for data in (
        forged.encode(),
        replace(forged, signature=ack.signature).encode(),
        forged.signed_by(replace(sending_signer(sites, "newark"), channel="")).encode(),
    ):
        put_ack(sites.channel, ORDERS, "seattle", data)
        found = log.ack("seattle")
        assert found is not None and (found.applied, found.log_id) == (0, "")
        assert found.cause is not None and "the ack of site seattle" in found.cause
    here.apply()
    again = log.ack("seattle")
    assert again is not None and (again.applied, again.cause) == (3, None)


@pytest.mark.parametrize("text", ["\ud800", "é", "", "0" * 64])
def test_a_signature_may_be_any_text(sites: SignedSites, text: str) -> None:
    """Found by the fuzzer: half a character cannot be encoded."""
    sites.keys["seattle"] = [key_file(sites.folder, "seattle")]
    (manifest,) = sites.send(1)
    signer = replace(sending_signer(sites, "newark"), site="seattle", channel="")
    signer = replace(signer, keys=sites.topology().site("seattle").signing_keys)
    ack = Ack("seattle", ORDERS, manifest.log_id, 1).signed_by(signer)
    assert ack.signature is not None
    for data, applied in (
        (ack.encode(), 1),
        (replace(ack, signature=replace(ack.signature, hmac=text)).encode(), 0),
        (replace(ack, signature=replace(ack.signature, key=text)).encode(), 0),
    ):
        put_ack(sites.channel, ORDERS, "seattle", data)
        found = sites.log().ack("seattle")
        assert found is not None and found.applied == applied


def sending_signer(sites: SignedSites, site: str) -> Any:
    signer = sending_trust(sites.topology(), _sender(sites, "east")).signer
    assert signer is not None and signer.site == site
    return signer


# --- names


@pytest.mark.parametrize("stream", ["..", ".", "a b", "x\ny", "-rf", "é"])
def test_a_stream_with_an_unsafe_name_is_refused_by_name(files: SignedSites, stream: str) -> None:
    """Before anything of it is read. Fails (reads or writes elsewhere) without the check."""
    here = files.receiver()
    here.apply()  # a head without a log is taken for what is left of a stream, at a first look
    before = {path for path in files.folder.rglob("*") if path.is_file()}
    head = files.folder / "channel" / "heads" / f"{stream}.json"
    head.parent.mkdir(exist_ok=True)
    head.write_text('{"version": 1, "epoch": 1, "manifest": "0"}')
    here.apply()
    (cause,) = [each.held for each in here.streams.statuses() if each.held]
    assert f"{stream!a} is not the name of a stream" in cause
    others_go_on(files, here)
    left = {path for path in files.folder.rglob("*") if path.is_file()} - before - {head}
    assert all(PRICES in str(path) for path in left)
    head.unlink()
    here.apply()
    assert not any(each.held for each in here.streams.statuses())


@pytest.mark.parametrize(
    "path",
    [
        "../../../etc/passwd",
        "/etc/passwd",
        f"frames/{ORDERS}/../{PRICES}/{'a' * 32}-00000.frame",
        f"frames/{PRICES}/{'a' * 32}-00000.frame",
        f"frames/{ORDERS}/{'a' * 32}-00000.frame\n",
        f"frames/{ORDERS}/a/{'a' * 32}-00000.frame",
        f"log/{ORDERS}/00000000000000000001.json",
        "",
        f"frames\\{ORDERS}\\{'a' * 32}-00000.frame",
        f"frames/{ORDERS}/%2e%2e-00000.frame",
    ],
)
def test_a_frame_outside_the_streams_own_folder_is_refused(tmp_path: Path, path: str) -> None:
    """Even by a sender that may sign."""
    sites = SignedSites(tmp_path, "newark")
    log = sites.log()
    frame = replace(sites.frame(log), path=path)
    sites.send(1, log=log, frames=(frame,))
    read: list[str] = []
    real = sites.channel.get_frame
    sites.channel.get_frame = lambda *args: read.append(args[0]) or real(*args)  # type: ignore
    here = sites.receiver()
    here.apply()
    assert "not in the folder of the stream's frames" in held(here, ORDERS)
    assert read == []
    others_go_on(sites, here)


@pytest.mark.parametrize("field", ["origin", "table", "sent_to", "addressees"])
@pytest.mark.parametrize("name", ["../x", "a/b", "", "x\0", "a\nb", "..", "a" * 300])
def test_an_unsafe_name_in_a_manifest_is_refused(make: Make, field: str, name: str) -> None:
    sites = make()
    value = name if field in ("origin", "table") else ["seattle", name]
    sites.send(1)
    sites.put(ORDERS, 1, altered(sites.channel.manifest(ORDERS, 1), **{field: value}))
    here = sites.receiver()
    here.apply()
    assert f"{field} is " in held(here, ORDERS) and "not a name" in held(here, ORDERS)
    others_go_on(sites, here)


# --- sizes


def test_a_frame_that_unpacks_to_too_much_is_refused(make: Make) -> None:
    """By a sender that does not keep to its own limit. Its size in the channel is small."""
    sites = make("newark", "denver", max_frame_bytes=2**30)
    log = sites.log()
    header = replace(HEADER, stream=ORDERS, attempt="c" * 32, events=100_000)
    batch = pa.record_batch(
        {"_wan_op": pa.array([1] * 100_000, pa.int8()), "id": pa.array([7] * 100_000, pa.int64())}
    )
    data = encode_frame(header, batch)
    path = sites.channel.put_frame(ORDERS, header.attempt, 0, data)
    assert len(data) < 30_000
    frame = FrameRef(path, 100_000, len(data), frame_checksum(data), frame_digest(data))
    sites.send(1, log=log, frames=(frame,))
    here = sites.receiver()
    sites.targets["orders"].most = 800_000
    here.apply()
    assert "it would unpack to 900,0" in held(here, ORDERS)
    assert "max_frame_bytes of this site allows 800,000" in held(here, ORDERS)
    others_go_on(sites, here)


def test_a_sender_may_not_send_what_its_remotes_refuse(make: Make) -> None:
    sites = make(max_frame_bytes="1MiB")
    with pytest.raises(TopologyError, match="is more than site 'seattle' receives; set it to 1048"):
        sites.topology()


def test_an_object_that_is_larger_than_its_manifest_says_is_not_read(files: SignedSites) -> None:
    (manifest,) = files.send(1)
    with open(files.folder / "channel" / manifest.frames[0].path, "ab") as file:
        file.truncate(10**9)  # a hole: no disk is used
    here = files.receiver()
    here.apply()
    assert "larger than its manifest says (1,000,000,000 bytes" in held(here, ORDERS)
    others_go_on(files, here)


def test_a_huge_manifest_is_not_read(files: SignedSites) -> None:
    files.send(1)
    with open(files.path(ORDERS, 1), "ab") as file:
        file.truncate(10**10)
    here = files.receiver()
    here.apply()
    assert "too large for a manifest (10,000,000,000 bytes" in held(here, ORDERS)
    others_go_on(files, here)


def test_a_huge_ack_is_none(files: SignedSites) -> None:
    files.send(1)
    files.receiver().apply()
    with open(files.folder / "channel" / "acks" / ORDERS / "seattle.json", "ab") as file:
        file.truncate(10**10)
    assert files.log().acks() == {}


def test_a_manifest_of_an_old_reader_and_a_new_one_is_the_same(sites: SignedSites) -> None:
    """The fingerprint is of all bytes, so a log goes on whoever reads it."""
    (manifest,) = sites.send(1)
    data = sites.channel.manifest(ORDERS, 1)
    read = Manifest.decode(data, "here")
    assert read == manifest
    assert read.fingerprint == manifest.fingerprint
    assert read.encode() == data
    assert open_channel(sites.url) is sites.channel
