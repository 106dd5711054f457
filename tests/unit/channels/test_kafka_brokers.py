"""The Kafka channel over real brokers: settings of topics, failover, and brokers that are away. The
contract of channels is in ``test_channels.py``."""

from __future__ import annotations

import logging
import random
import sys
import threading
import time
import uuid
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fakes import STREAM
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, errors
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.record.default_records import DefaultRecordBatch
from kafka_server import Cluster, free_ports, running
from waiting import DEADLINE, until, wait_until

from spark_wan.channels.base import Channel
from spark_wan.channels.kafka import client
from spark_wan.channels.kafka.client import KafkaBroker, KafkaChannel
from spark_wan.channels.kafka.options import parse_options
from spark_wan.channels.parallel import in_order
from spark_wan.errors import ChannelError, ManifestExists, NoTopicsError
from spark_wan.log.notes import acks, head, put_ack
from spark_wan.wire.manifest import fingerprint

QUICK = {"kafka.request.timeout.ms": "2000", "kafka.delivery.timeout.ms": "3000"}
pytestmark = [pytest.mark.usefixtures("closing_brokers"), pytest.mark.rest]


def opened(cluster: Cluster, name: str = "", **storage: str) -> KafkaChannel:
    return KafkaChannel(f"kafka://{cluster.bootstrap}/{name or uuid.uuid4().hex}", storage)


def append(channel: Channel, epoch: int, frames: int = 0) -> list[str]:
    attempt = uuid.uuid4().hex
    paths = [channel.put_frame(STREAM, attempt, index, b"%d" % epoch) for index in range(frames)]
    previous = fingerprint(b"m%d" % (epoch - 1)) if epoch > 1 else ""
    channel.append(STREAM, epoch, b"m%d" % epoch, previous=previous, frames=paths)
    return paths


def admin(cluster: Cluster) -> KafkaAdminClient:
    return KafkaAdminClient(bootstrap_servers=cluster.bootstrap)


def test_topics_are_made_with_settings_that_keep_what_is_needed(kafka: Cluster) -> None:
    """Fails when a broker's defaults delete what no site has read yet."""
    channel = opened(kafka, "made", **{"topics.partitions": "3"})
    channel.prepare()
    client = admin(kafka)
    topics = {each["name"]: each for each in client.describe_topics(["made.frames", "made.log"])}
    assert len(topics["made.frames"]["partitions"]) == 3
    assert len(topics["made.log"]["partitions"]) == 1
    names = ["made.frames", "made.log", "made.acks"]
    resources = [ConfigResource(ConfigResourceType.TOPIC, name) for name in names]
    found = client.describe_configs(resources, config_filter="all")["topic"]
    client.close()
    kept = ("cleanup.policy", "retention.ms", "retention.bytes")
    written = ("message.timestamp.type", "compression.type")
    for name in names[:2]:
        values = [found[name][key]["value"] for key in kept]
        assert values == ["delete", "-1", "-1"]
    for name in names:
        values = [found[name][key]["value"] for key in written]
        assert values == ["LogAppendTime", "uncompressed"]
    assert found["made.acks"]["cleanup.policy"]["value"] == "compact"


@pytest.mark.parametrize(
    ("topic", "setting", "value", "must"),
    [
        ("frames", "retention.ms", "1000", "-1"),
        ("log", "cleanup.policy", "compact", "delete"),
        ("log", "retention.bytes", "1000000", "-1"),
        ("acks", "cleanup.policy", "delete", "compact"),
        ("frames", "message.timestamp.type", "CreateTime", "LogAppendTime"),
        ("acks", "compression.type", "gzip", "uncompressed"),
        ("frames", "compression.type", "producer", "uncompressed"),
        ("log", "min.insync.replicas", "2", "1"),
    ],
)
def test_a_topic_with_another_setting_is_refused_with_the_command_that_mends_it(
    kafka: Cluster, topic: str, setting: str, value: str, must: str
) -> None:
    channel = opened(kafka)
    name = f"{channel.prefix}.{topic}"
    client = admin(kafka)
    settings = {"num_partitions": 1, "replication_factor": 1, "configs": {setting: value}}
    rest = {"log": {"retention.ms": "-1"}}.get(topic, {})
    settings["configs"] = {
        "message.timestamp.type": "LogAppendTime",
        "compression.type": "uncompressed",
        "cleanup.policy": "compact" if topic == "acks" else "delete",
        "retention.ms": "-1",
        **rest,
        setting: value,
    }
    client.create_topics({name: settings}, wait_for_metadata=True)
    client.close()
    with pytest.raises(ChannelError) as refused:
        channel.prepare()
    message = str(refused.value)
    assert f"{name} has {setting}={value}, and must have {must}" in message
    assert f"--entity-name {name} --add-config {setting}={must}" in message


def test_no_reader_unpacks_what_others_have_compressed(
    kafka: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A receiver may write acks, and a reader unpacks a batch whole, whatever it unpacks to. Fails
    when a topic keeps batches as they were written."""
    channel = opened(kafka)
    channel.prepare()
    forger = KafkaProducer(
        bootstrap_servers=kafka.bootstrap,
        compression_type="gzip",
        max_request_size=2**30,
        enable_idempotence=False,
    )
    for topic in ("acks", "log", "frames"):
        name = f"{channel.prefix}.{topic}"
        with pytest.raises(errors.MessageSizeTooLargeError):
            forger.send(name, key=b"s/a", value=bytes(20_000_000), partition=0).get(30)
        forger.send(name, key=f"{STREAM}/seattle".encode(), value=bytes(500_000), partition=0).get(
            30
        )
    forger.close()
    kinds: list[int] = []
    real = DefaultRecordBatch.__init__

    def noted(batch: DefaultRecordBatch, buffer: bytes) -> None:
        real(batch, buffer)
        kinds.append(batch.compression_type)

    monkeypatch.setattr(DefaultRecordBatch, "__init__", noted)
    assert acks(channel, STREAM) == {"seattle": bytes(500_000)}
    assert (channel.epochs(), len(channel.foreign())) == ({}, 1)
    assert len(kinds) >= 3
    assert {*kinds} == {DefaultRecordBatch.CODEC_NONE}
    assert kafka.brokers[0].log_bytes(f"{channel.prefix}.frames") > 500_000


def test_brokers_that_do_not_know_a_new_topic_yet_are_waited_for(
    kafka: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fails when a job that makes its topics ends with the advice to start the sender first."""
    real, asked = KafkaConsumer.partitions_for_topic, list[str]()

    def late(consumer: KafkaConsumer, topic: str) -> object:
        asked.append(topic)
        return None if asked.count(topic) < 3 else real(consumer, topic)

    monkeypatch.setattr(KafkaConsumer, "partitions_for_topic", late)
    channel = opened(kafka)
    channel.prepare()
    assert len(asked) == 9
    append(channel, 1, frames=1)


def test_a_client_that_is_being_opened_holds_up_no_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    """While brokers are away, opening one takes as long as it tries. Fails by never ending."""
    broker = KafkaBroker(parse_options("kafka://127.0.0.1:1/wan", {}))
    begun, go_on = threading.Event(), threading.Event()

    def opening(kind: type, **settings: object) -> object:
        if kind is KafkaAdminClient:
            begun.set()
            go_on.wait()
        return SimpleNamespace(close=lambda: None)

    def administrate() -> None:
        with broker._sharing(KafkaAdminClient):
            pass

    monkeypatch.setattr(broker, "_opened", opening)
    thread = threading.Thread(target=administrate)
    thread.start()
    begun.wait()
    with broker._consumer():
        assert thread.is_alive()
    go_on.set()
    thread.join()
    broker.close()


def test_an_attempt_to_open_a_client_that_fails_fails_for_all_that_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Fails when each of them makes an attempt of its own: with the 16 writes of a task, the last
    one would be told after minutes that the brokers are away."""
    broker = KafkaBroker(parse_options("kafka://127.0.0.1:1/away", {}))
    opened, failing, told = [], threading.Event(), []

    def opening(kind: type, **_: Any) -> Any:
        opened.append(kind)
        assert failing.wait(DEADLINE)
        raise errors.KafkaConnectionError("unable to bootstrap")

    monkeypatch.setattr(broker, "_opened", opening)

    def write() -> None:
        with pytest.raises(ChannelError) as error:
            broker.produce("away.log", 0, [(b"", b"")])
        told.append(str(error.value))

    threads = [threading.Thread(target=write) for _ in range(16)]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(opened) == 1 and _are_waiting(threads), "all of them wait")
    failing.set()
    for thread in threads:
        thread.join(DEADLINE)
    assert len(told) == 16 and len(opened) == 1
    write()
    assert len(opened) == 2  # who asks later makes another attempt
    broker.close()


def _are_waiting(threads: list[threading.Thread]) -> bool:
    """Whether all threads are where a client is opened."""
    frames = sys._current_frames()
    names = []
    for thread in threads:
        frame = frames.get(thread.ident or 0)
        while frame is not None and frame.f_code.co_name != "_share":
            frame = frame.f_back
        names.append(frame)
    return all(names)


def test_a_channel_that_cannot_be_opened_leaves_no_log_handler(tmp_path: Path) -> None:
    """Each attempt left one. Fails when it listens before its certificates are read."""
    (tmp_path / "ca.pem").write_text("-----BEGIN CERTIFICATE-----")
    options = {
        "kafka.security.protocol": "SSL",
        "kafka.ssl.truststore.location": str(tmp_path / "ca.pem"),
    }
    before = [*logging.getLogger("kafka").handlers]
    with pytest.raises(ChannelError, match="certificates or the key for Kafka cannot be read"):
        KafkaBroker(parse_options("kafka://127.0.0.1:1/wan", options))
    assert logging.getLogger("kafka").handlers == before


def test_a_producer_with_unsent_records_is_closed(tmp_path: Path) -> None:
    """Its thread would live as long as the process."""
    with running(tmp_path / "one") as cluster:
        channel = opened(cluster)
        channel.prepare()
        append(channel, 1, frames=1)
        cluster.brokers[0].kill()
        broker = channel.broker
        with broker._sharing(KafkaProducer) as producer:
            producer.send(f"{channel.prefix}.log", b"unsent", partition=0)
        channel.close()
        until(lambda: not [each for each in threading.enumerate() if broker._name in each.name])


def test_a_producer_that_could_not_write_is_closed(kafka: Cluster) -> None:
    """It would ask without a pause, as long as the process runs, who leads the deleted topic."""
    channel = opened(kafka, **QUICK)
    channel.prepare()
    append(channel, 1, frames=1)
    client = admin(kafka)
    client.delete_topics([f"{channel.prefix}.frames"])
    client.close()
    with pytest.raises(ChannelError, match=r"cannot write to .*frames"):
        channel.put_frame(STREAM, uuid.uuid4().hex, 0, b"data")
    until(lambda: not [each for each in threads(channel) if each.endswith("network-thread")])
    channel.ensure_prepared(again=True)
    append(channel, 2)
    assert head(channel, STREAM) == 2


def test_a_thread_that_still_works_when_a_channel_is_closed_leaves_no_client(
    kafka: Cluster,
) -> None:
    """Fails when what it opens then stays open until the process ends."""
    channel = opened(kafka)
    channel.prepare()
    broker = channel.broker
    broker.close()
    [written] = broker.produce(f"{channel.prefix}.frames", 0, [(b"", b"data")])
    broker.delete_before(f"{channel.prefix}.frames", {0: written.offset})
    assert broker.beginning(f"{channel.prefix}.frames", 0) == written.offset
    until(lambda: not threads(channel))


def threads(channel: KafkaChannel) -> list[str]:
    """Return the threads of a channel's clients."""
    name = channel.broker._name
    return [each.name for each in threading.enumerate() if name in each.name]


def test_a_log_of_two_partitions_is_refused(kafka: Cluster) -> None:
    channel = opened(kafka, "two")
    client = admin(kafka)
    client.create_topics(
        {"two.log": {"num_partitions": 2, "replication_factor": 1}}, wait_for_metadata=True
    )
    client.close()
    with pytest.raises(ChannelError, match=r"two\.log has 2 partitions, and must have 1"):
        channel.prepare()


def test_topics_that_are_not_there_are_named(kafka: Cluster) -> None:
    """A wrong prefix. Fails when a reader takes them for an empty channel."""
    channel = opened(kafka, "wrong", **QUICK)
    for ask in (channel.epochs, lambda: channel.notes("acks"), lambda: channel.get_frame(FRAME)):
        with pytest.raises(ChannelError, match=r"check the prefix"):
            ask()


FRAME = f"frames/{STREAM}/{'c' * 32}-00000@0:0"


def test_partitions_that_are_added_are_written_to_and_read(kafka: Cluster) -> None:
    """By clients that knew the topic before. Fails when a producer raises at a partition that it
    does not know, and when a reader says that a frame there is gone."""
    writer = opened(kafka, **{"topics.partitions": "1"})
    writer.prepare()
    reader, other = (opened(kafka, writer.prefix) for _ in range(2))
    attempt = uuid.uuid4().hex
    first = writer.put_frame(STREAM, attempt, 0, b"first")
    assert reader.get_frame(first) == b"first"
    client = admin(kafka)
    client.create_partitions({f"{writer.prefix}.frames": 4})
    client.close()
    wait_until(lambda: other.broker.partitions(f"{writer.prefix}.frames", anew=True) == 4, "four")
    added = [other.put_frame(STREAM, attempt, index, b"%d" % index) for index in range(1, 9)]
    assert {path.partition("@")[2].partition(":")[0] for path in added} == {"0", "1", "2", "3"}
    assert [reader.get_frame(path) for path in added] == [b"%d" % index for index in range(1, 9)]
    assert reader.frame_time(added[-1]) is not None
    assert writer.broker.partitions(f"{writer.prefix}.frames", anew=True) == 4
    for index in range(9, 17):
        assert reader.get_frame(writer.put_frame(STREAM, attempt, index, b"late")) == b"late"


def test_a_topic_that_was_deleted_is_named_to_who_writes(kafka: Cluster) -> None:
    """Also by a producer that knew it. Fails when the advice is to check that the brokers run."""
    channel = opened(kafka, **QUICK)
    with pytest.raises(NoTopicsError, match="The topics are not there: start the sender"):
        channel.broker.produce(f"{channel.prefix}.frames", 0, [(b"k", b"v")])
    channel.prepare()
    channel.put_frame(STREAM, uuid.uuid4().hex, 0, b"there")
    client = admin(kafka)
    client.delete_topics([f"{channel.prefix}.frames"])
    client.close()

    def refused() -> bool:
        try:
            channel.put_frame(STREAM, uuid.uuid4().hex, 0, b"gone")
        except ChannelError as error:
            return "The topics are not there: start the sender" in str(error)
        return False

    wait_until(refused, "an error that names the topic")


def test_topics_that_nobody_has_made_yet_are_told_from_brokers_that_are_away(
    kafka: Cluster,
) -> None:
    """Fails when a job takes the one for the other: nothing is paused on topics that are not there,
    and nothing waits on them."""
    channel = opened(kafka, **QUICK)
    for asked in (lambda: channel.notes("heads"), lambda: channel.stream_epochs(STREAM)):
        with pytest.raises(NoTopicsError, match="The topics are not there"):
            asked()
    assert not channel.is_begun()
    [port] = free_ports(1)
    away = KafkaChannel(f"kafka://127.0.0.1:{port}/{uuid.uuid4().hex}", QUICK)
    with pytest.raises(ChannelError) as error:
        away.notes("heads")
    assert not isinstance(error.value, NoTopicsError)


def test_what_is_trimmed_is_deleted_at_the_broker(kafka: Cluster) -> None:
    """Fails when deleteRecords is not sent, or a new reader does not begin at a checkpoint."""
    channel = opened(kafka)
    channel.keeper.log_operations = channel.keeper.frames_at_once = 10
    channel.prepare()
    paths: list[str] = []
    for epoch in range(1, 41):
        paths = append(channel, epoch, frames=4)
        channel.trim(STREAM, epoch - 1, [])
    assert channel.broker.beginning(f"{channel.prefix}.log", 0) > 30
    assert channel.broker.beginning(f"{channel.prefix}.frames", 0) > 10
    reader = KafkaChannel(channel.url)
    assert reader.stream_epochs(STREAM) == [40]
    assert [reader.get_frame(path) for path in paths] == [b"40"] * 4


def test_a_large_frame_is_several_records(kafka: Cluster) -> None:
    """Fails with the 1 MiB that brokers take by default."""
    channel = opened(kafka)
    channel.prepare()
    data = bytes(range(256)) * 20_000
    path = channel.put_frame(STREAM, "c" * 32, 0, data)
    assert path.count("+") == 5
    assert channel.get_frame(path) == data


def test_a_frame_is_read_without_those_behind_it(
    kafka: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over a long line, each frame brought megabytes of others, which other tasks read."""
    consumers = []

    class Counted(KafkaConsumer):
        def __init__(self, *args: object, **settings: object) -> None:
            super().__init__(*args, **settings)
            consumers.append(self)

    monkeypatch.setattr(client, "KafkaConsumer", Counted)
    channel = opened(kafka, **{"topics.partitions": "1"})
    channel.prepare()
    data = random.Random(5).randbytes(200_000)
    frames = enumerate([data] * 20 + [data * 9] * 5)

    def put(frame: tuple[int, bytes]) -> str:
        return channel.put_frame(STREAM, "c" * 32, *frame)

    def largest_answer() -> float:
        metrics = [each.metrics()["consumer-fetch-manager-metrics"] for each in consumers]
        return max(each["fetch-size-max"] for each in metrics)

    paths = [*in_order(put, frames)]
    assert [channel.get_frame(path) for path in paths[:20]] == [data] * 20
    assert len(data) < largest_answer() < 1.5 * len(data)
    assert channel.get_frame(paths[22]) == data * 9
    assert len(data) * 4 < largest_answer() < len(data) * 6


# The client leaves the socket of a broker that died while it connected to the garbage collector.
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
def test_brokers_that_die_one_after_the_other_lose_and_double_nothing(tmp_path: Path) -> None:
    """Three brokers, min.insync.replicas 2, each killed (SIGKILL) and started again while two
    writers race for one log. Fails with acks=1, and when an answer that was lost is not read back.
    """
    with running(tmp_path / "three", brokers=3) as cluster:
        url = f"kafka://{cluster.bootstrap}/wan"
        first = KafkaChannel(url, QUICK)
        first.prepare()
        won: dict[int, list[bytes]] = {}
        stop, failed = threading.Event(), list[BaseException]()

        def write(number: int) -> None:
            channel = KafkaChannel(url, QUICK)
            try:
                while not stop.is_set():
                    try:
                        last = head(channel, STREAM)
                        before = channel.manifest(STREAM, last) if last else b""
                        data = b"%d by %d %s" % (last + 1, number, uuid.uuid4().hex.encode())
                        path = channel.put_frame(STREAM, uuid.uuid4().hex, 0, data)
                        previous = fingerprint(before) if last else ""
                        channel.append(STREAM, last + 1, data, previous=previous, frames=[path])
                        won.setdefault(last + 1, []).append(data)
                    except ManifestExists:
                        continue
                    except ChannelError:
                        time.sleep(0.05)
            except BaseException as error:
                failed.append(error)

        writers = [threading.Thread(target=write, args=(number,)) for number in (1, 2)]
        for writer in writers:
            writer.start()
        try:
            for broker in cluster.brokers:
                seen = max(won, default=0)
                until(lambda seen=seen: max(won, default=0) >= seen + 10)  # type: ignore[misc]
                broker.kill()
                seen = max(won)
                until(lambda seen=seen: max(won) >= seen + 10)  # type: ignore[misc]
                broker.start()
                until(broker.is_listening)
        finally:
            stop.set()
            for writer in writers:
                writer.join()
        assert failed == []
        reader = KafkaChannel(url)
        epochs = reader.epochs()[STREAM]
        assert epochs == [*range(1, max(won) + 1)] or epochs == [*range(1, max(won) + 2)]
        for epoch, manifests in won.items():
            assert manifests == [reader.manifest(STREAM, epoch)]


def test_a_topic_with_one_replica_on_several_brokers_is_refused_unless_that_is_asked_for(
    tmp_path: Path,
) -> None:
    """As brokers say so of their topics; of other sizes see ``test_kafka_replicas.py``. Fails when
    a site that makes topics with one replica has the others lose what they have not read."""
    with running(tmp_path / "two", brokers=2) as cluster:
        url = f"kafka://{cluster.bootstrap}/wan"
        KafkaChannel(url, {"topics.replication": "1"}).prepare()
        with pytest.raises(ChannelError, match=r"fewer than 2 replicas: wan.acks \(1\)"):
            KafkaChannel(url).prepare()
        KafkaChannel(f"{url}-2").prepare()


def test_a_cluster_that_is_away_is_an_error_that_says_so_and_leaks_nothing(
    tmp_path: Path,
) -> None:
    """Fails when each attempt leaves a thread or a socket, or the channel stays broken after it."""
    with running(tmp_path / "one") as cluster:
        channel = KafkaChannel(f"kafka://{cluster.bootstrap}/wan", QUICK)
        channel.prepare()
        append(channel, 1)
        [broker] = cluster.brokers
        broker.kill()
        threads = set[int]()
        for _ in range(4):
            with pytest.raises(ChannelError, match=r"cannot (read|write).*reached from here"):
                channel.notes("heads")
            with pytest.raises(ChannelError, match="cannot write"):
                put_ack(channel, STREAM, "seattle", b"a")
            threads.add(threading.active_count())
        assert max(threads) - min(threads) <= 1
        broker.start()
        until(broker.is_listening)

        def works() -> bool:
            try:
                return head(channel, STREAM) == 1
            except ChannelError:
                return False

        until(works)
        append(channel, 2)
        assert channel.stream_epochs(STREAM) == [1, 2]


def test_a_cluster_that_was_never_there_is_named() -> None:
    channel = KafkaChannel("kafka://127.0.0.1:1/wan", {"kafka.request.timeout.ms": "1000"})
    with pytest.raises(ChannelError, match=r"127\.0\.0\.1:1/wan: cannot prepare.*reached"):
        channel.prepare()
