"""The kind of channel that a test has between its sites, unless it names one itself.

``SPARK_WAN_TEST_CHANNEL`` says which: a directory in the test's folder (default), a bucket of an
S3-compatible server, or topics of a Kafka broker. A test process has one server or broker, which
starts when the first test needs it. Processes that a test starts find it by the topology.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from s3_server import Server, serving
from waiting import until

from spark_wan.channels.base import Channel
from spark_wan.channels.objects import ObjectChannel
from spark_wan.channels.registry import open_channel
from spark_wan.topology.parsing import load_topology

if TYPE_CHECKING:
    from kafka_server import Cluster

    from spark_wan.channels.kafka.channel import TopicChannel

KINDS = ("directory", "s3", "kafka")
KIND = os.environ.get("SPARK_WAN_TEST_CHANNEL", "directory")
assert KIND in KINDS, f"SPARK_WAN_TEST_CHANNEL={KIND}: it must be one of {', '.join(KINDS)}"

PARTITIONS = "2"
"""Of a topic with frames. Less work for the broker than the default."""
_running = ExitStack()
_made: list[tuple[Path, str]] = []
"""Folders with channels, and what :func:`_identity` returned for each."""


def channel_settings(
    folder: Path, name: str, settings: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the settings of a sender in the topology of a folder, with a channel of its own if
    they have none."""
    if settings is not None and "channel" in settings:
        return {**settings}
    channel = (
        {"channel": f"./{name}"} if KIND == "directory" else server_settings(KIND, folder, name)
    )
    return {**channel, **(settings or {})}


def server_settings(kind: str, folder: Path, name: str) -> dict[str, Any]:
    """Return the settings of a sender for a channel of this kind, whatever the default is."""
    identity = _identity(folder)
    if kind == "s3":
        _s3().make_bucket(identity)
        return {"channel": f"s3://{identity}/{name}", "storage": _s3().storage}
    url = f"kafka://{_kafka().bootstrap}/{identity}.{name}"
    return {"channel": url, "storage": {"topics.partitions": PARTITIONS}}


def copy_channels(folder: Path, copy: Path) -> None:
    """Give the copy of a folder channels of its own, which hold what those of the folder hold."""
    if not _file(folder).exists():
        return
    _file(copy).unlink()
    old, new = _identity(folder), _identity(copy)
    topology = copy / "wan.yaml"
    topology.write_text(topology.read_text().replace(old, new))
    pairs = {
        (sender.channel, sender.channel.replace(old, new)): sender.storage
        for sender in load_topology(folder / "wan.yaml").senders.values()
        if old in sender.channel
    }
    for (url, url_of_copy), storage in pairs.items():
        source, target = open_channel(url, storage), open_channel(url_of_copy, storage)
        if isinstance(source, ObjectChannel) and isinstance(target, ObjectChannel):
            _s3().make_bucket(new)
            for each in source.list_objects(""):
                target.put(each.path, source.read(each.path))
        else:
            _copy_topics(source, target)  # type: ignore[arg-type]


def contents(channel: Channel) -> object:
    """Return what is in a channel, to compare: another value after any write."""
    if isinstance(channel, ObjectChannel):
        return channel.list_objects("")
    broker = channel.broker  # type: ignore[attr-defined]
    return {
        (topic, partition): broker.end(topic, partition)
        for topic in _topics(f"{channel.prefix}.")  # type: ignore[attr-defined]
        for partition in range(broker.partitions(topic))
    }


def frames(channel: Channel, stream: str) -> set[str]:
    """Return the frames of a stream, named by a manifest or not, that were not trimmed.

    A channel on topics cannot tell which they are: here its records are read.
    """
    if isinstance(channel, ObjectChannel):
        return {path for path, _ in channel.frames(stream)}
    from spark_wan.channels.kafka.channel import TopicChannel
    from spark_wan.wire.topic_state import FramePath, Place

    assert isinstance(channel, TopicChannel)
    topic, broker = channel.topic("frames"), channel.broker
    if topic not in _topics(topic):
        return set()
    places: dict[str, list[Place]] = {}
    for partition in range(broker.partitions(topic)):
        first, end = broker.beginning(topic, partition), broker.end(topic, partition)
        trimmed = channel.log.fresh(lambda seen, at=partition: seen.state.dead.get(at, ()))  # type: ignore[misc]
        for record in broker.read(topic, partition, first, end) if first < end else ():
            of, _, name_and_part = record.key.decode().partition("/")
            if of == stream and record.offset not in trimmed:
                name = name_and_part.rpartition("/")[0]
                places.setdefault(name, []).append(Place(partition, record.offset))
    return {str(FramePath(stream, name, tuple(each))) for name, each in places.items()}


def delete_channel(channel: Channel) -> None:
    """Delete all that a channel holds, and its place."""
    if KIND == "directory":
        shutil.rmtree(channel.url)
    elif isinstance(channel, ObjectChannel):
        channel.delete([each.path for each in channel.list_objects("")])
    else:
        _delete_topics(f"{channel.prefix}.")  # type: ignore[attr-defined]


def stop_servers() -> None:
    """End the server or the broker of this process."""
    _running.close()


@contextmanager
def closing_clients(folder: Path) -> Iterator[None]:
    """Close at the end all clients of Kafka, and wait for their threads. Topics of sites below
    ``folder`` are deleted: a broker with those of all tests would need much memory."""
    yield
    if not _kafka.cache_info().currsize:
        return
    from spark_wan.channels.base import _opened as opened_here
    from spark_wan.channels.kafka.channel import TopicChannel

    for channel in list(opened_here.values()):
        if isinstance(channel, TopicChannel):
            channel.close()
    done = [made for made in _made if made[0].is_relative_to(folder)]
    if done:
        _delete_topics(*(f"{identity}." for _, identity in done))
        _made[:] = [made for made in _made if made not in done]
    until(lambda: not any(each.name.startswith("kafka") for each in threading.enumerate()))


def _file(folder: Path) -> Path:
    return folder / ".channels"


def _identity(folder: Path) -> str:
    """Return what tells the channels of a folder from those of others. A folder that was deleted
    and made again has new ones."""
    file = _file(folder)
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        file.write_text(identity := uuid.uuid4().hex)
        _made.append((folder, identity))
    return file.read_text()


@cache
def _s3() -> Server:
    return _running.enter_context(serving())


@cache
def _kafka() -> Cluster:
    from kafka_server import running  # it imports Spark

    folder = _running.enter_context(tempfile.TemporaryDirectory(prefix="kafka-"))
    return _running.enter_context(running(Path(folder)))


def _copy_topics(source: TopicChannel, target: TopicChannel) -> None:
    """Copy the records of all topics. Manifests name frames by offset, so each keeps its own."""
    from spark_wan.channels.kafka.topics import ACKS, FRAMES, LOG

    there, broker = _topics(source.prefix + "."), source.broker
    for part, settings in {"frames": FRAMES, "log": LOG, "acks": ACKS}.items():
        old, new = f"{source.prefix}.{part}", f"{target.prefix}.{part}"
        if old not in there:
            continue
        target.broker.prepare({new: settings})
        for partition in range(broker.partitions(old)):
            first, end = broker.beginning(old, partition), broker.end(old, partition)
            if first:
                broker.produce(new, partition, [(b"", b"-")] * first)
                broker.delete_before(new, {partition: first})
            records = [*broker.read(old, partition, first, end)] if first < end else []
            written = broker.produce(new, partition, [(each.key, each.value) for each in records])
            if part != "acks":  # where acks are does not matter, and compaction leaves gaps
                assert [each.offset for each in written] == [each.offset for each in records]


def _topics(*prefixes: str) -> list[str]:
    with _administrating() as admin:
        return [name for name in admin.list_topics() if name.startswith(prefixes)]


def _delete_topics(*prefixes: str) -> None:
    with _administrating() as admin:
        topics = [name for name in admin.list_topics() if name.startswith(prefixes)]
        if topics:
            admin.delete_topics(topics)
            until(lambda: not {*topics} & {*admin.list_topics()})


@contextmanager
def _administrating() -> Iterator[Any]:
    from kafka import KafkaAdminClient

    with closing(KafkaAdminClient(bootstrap_servers=_kafka().bootstrap)) as admin:
        yield admin
