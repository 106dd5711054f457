"""Channel on a Kafka cluster, by kafka-python."""

from __future__ import annotations

import atexit
import copy
import ssl
import tempfile
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition, errors
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.net.compat import KafkaNetClient

from spark_wan.channels.kafka.broker import (
    NotPermittedError,
    OutOfRangeError,
    Record,
    TooLargeError,
    TopicSettings,
    Written,
)
from spark_wan.channels.kafka.causes import LoggedCauses, explained
from spark_wan.channels.kafka.channel import TopicChannel
from spark_wan.channels.kafka.options import (
    DOCUMENT,
    LONGEST_PREFIX,
    REQUEST_TIMEOUT,
    ClusterOptions,
    parse_options,
)
from spark_wan.channels.kafka.topics import FRAME_PARTITIONS
from spark_wan.channels.kafka.window import Window
from spark_wan.channels.parallel import AT_ONCE, BYTES_AT_ONCE
from spark_wan.errors import ChannelError, NoTopicsError
from spark_wan.messages import message_log

CONNECT_TIMEOUT = 10_000
"""Milliseconds after which a cluster that does not answer is an error, which callers retry."""
METADATA_AGE = 24 * 3_600_000
"""Milliseconds after which a producer asks again where partitions are, without an error."""
LONGEST_POLL = 50
"""Milliseconds."""
FETCH_BYTES = 8 * 1024 * 1024
"""What an answer to a read has, at most."""
ONE_BATCH = 1
"""However small its limit is, an answer has a batch of records."""
EXACT_RECORDS = 4
"""So many records are read batch by batch where nothing else is wanted. Together, more of them have
half of :data:`FETCH_BYTES` or more: several requests would take longer than what is behind them."""
BATCH_BYTES = 64 * 1024
"""Size of a batch of records, from which on another is begun. A frame that is larger has its own,
so that it can be read alone."""
REPLICAS = 3
_NEVER_LOST = {"unclean.leader.election.enable": "false"}
"""Else a broker that lacks acknowledged records may become the leader."""

log = message_log(__name__)


class KafkaChannel(TopicChannel):
    """``kafka://host:port,host:port/prefix``, with the options of :mod:`.options`."""

    def __init__(self, url: str, storage: Mapping[str, str] | None = None) -> None:
        self.prefix = url.rstrip("/").rpartition("/")[2][:LONGEST_PREFIX]
        super().__init__(url, storage)

    def connect(self) -> KafkaBroker:
        return KafkaBroker(parse_options(self.url, self.storage))


class _UnknownPartitionError(errors.UnknownTopicOrPartitionError):  # type: ignore[misc]
    """A producer does not know a partition, which may have been added since it asked."""


@dataclass
class Shared:
    """A client that several threads use."""

    client: Any
    users: int = 1


@dataclass
class Opening:
    """The attempts to open a client that several threads use."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    ended: int = 0
    """Number of attempts that have ended."""
    error: BaseException | None = None
    """Of the last one, without the frames that raised it: they hold its sockets."""


class KafkaBroker:
    """The brokers of a cluster (:class:`~spark_wan.channels.kafka.broker.Broker`).

    One producer and one admin client, and as many consumers as threads read at a time, for each
    size of an answer. Each is opened when it is needed. None is in a group: no offset is committed.
    """

    def __init__(self, options: ClusterOptions) -> None:
        self.options = options
        self._name = f"spark_wan-{uuid.uuid4().hex[:12]}"
        client = {
            "request_timeout_ms": REQUEST_TIMEOUT,
            "reconnect_backoff_max_ms": 1_000,
            **options.client,
        }
        self._connect_timeout = min(CONNECT_TIMEOUT, client["request_timeout_ms"])
        client["bootstrap_timeout_ms"] = self._connect_timeout
        self._client = _with_context(client)
        longest = options.producer.get("delivery_timeout_ms", client["request_timeout_ms"])
        longest = min(longest, client["request_timeout_ms"]) / 1000
        self._window = Window(longest / 4, BYTES_AT_ONCE)
        self._said = LoggedCauses(self._name)
        self._client["bootstrap_servers"] = list(options.servers)
        self._client["client_id"] = f"{client.get('client_id', 'spark_wan')}-{self._name}"
        self._lock = threading.Lock()
        # Opening a client takes as long as the brokers are away. Readers need not wait for it.
        self._opening = {kind: Opening() for kind in (KafkaProducer, KafkaAdminClient)}
        self._shared: dict[type, Shared] = {}
        """Kind of client -> the producer, and the admin client."""
        self._idle: dict[int, list[Any]] = {ONE_BATCH: [], FETCH_BYTES: []}
        """Size of an answer -> consumers that no thread uses."""
        self._counts: dict[str, tuple[int, float]] = {}
        """Topic -> number of partitions, and when it was asked for."""
        self._closed = False
        atexit.register(_close_if_there, weakref.ref(self))

    # --- topics -----------------------------------------------------------------------------

    def prepare(self, topics: Mapping[str, TopicSettings]) -> None:
        with self._asking("prepare the topics"), self._sharing(KafkaAdminClient) as admin:
            there = {each["name"]: each for each in self._described(admin, topics)}
            absent = {name: each for name, each in topics.items() if name not in there}
            if absent:
                self._make(admin, absent)
            self._check(admin, topics, self._known(admin, topics))

    def _known(self, admin: Any, topics: Mapping[str, object]) -> list[dict[str, Any]]:
        """Return what brokers say of topics, once they know all: another one may have made some a
        moment ago."""
        end = time.monotonic() + CONNECT_TIMEOUT / 1000
        while True:
            described = self._described(admin, topics)
            if len(described) == len(topics) and all(map(self.is_there, topics)):
                return described
            if time.monotonic() > end:
                raise errors.UnknownTopicOrPartitionError(f"of {', '.join(topics)}")
            time.sleep(0.1)

    def is_there(self, topic: str, anew: bool = False) -> bool:
        try:
            return self.partitions(topic, anew) > 0
        except NoTopicsError:
            return False

    def _described(self, admin: Any, names: Mapping[str, object]) -> list[dict[str, Any]]:
        found = []
        for each in admin.describe_topics(list(names)):
            error = errors.for_code(each["error_code"])
            if error is errors.NoError:
                found.append(each)
            elif error is not errors.UnknownTopicOrPartitionError:
                raise error(f"topic {each['name']}")
        return found

    def _make(self, admin: Any, topics: Mapping[str, TopicSettings]) -> None:
        brokers = len(admin.describe_cluster()["brokers"])
        replicas = self.options.replication or min(REPLICAS, brokers)
        shared = {"min.insync.replicas": str(max(1, replicas - 1))}
        frames = self.options.partitions or FRAME_PARTITIONS
        new = {
            name: {
                "num_partitions": settings.partitions or frames,
                "replication_factor": replicas,
                "configs": {**settings.configs, **settings.hints, **shared},
            }
            for name, settings in topics.items()
        }
        for name, settings in new.items():
            with suppress(errors.TopicAlreadyExistsError):  # another process was faster
                admin.create_topics({name: settings}, wait_for_metadata=True)

    def _check(
        self, admin: Any, topics: Mapping[str, TopicSettings], described: list[dict[str, Any]]
    ) -> None:
        """Compare the topics with their settings. Raises ChannelError for the first that differs,
        with the command that mends it."""
        replicas = {
            each["name"]: (
                len(each["partitions"]),
                min(len(part["replica_nodes"]) for part in each["partitions"]),
            )
            for each in described
        }
        resources = [ConfigResource(ConfigResourceType.TOPIC, name) for name in topics]
        found = admin.describe_configs(resources, config_filter="all").get("topic", {})
        weak = list[str]()
        for name, settings in topics.items():
            partitions, copies = replicas[name]
            if settings.partitions not in (None, partitions):
                raise ChannelError(
                    f"the topic {name} has {partitions} partitions, and must have "
                    f"{settings.partitions}. Delete it (kafka-topics.sh --delete --topic {name}) "
                    "before the first sender starts: it is made again."
                )
            # Without permission to read settings there are none here: they are not checked.
            configs = {key: each["value"] for key, each in found.get(name, {}).items()}
            needed = {**settings.configs, **_NEVER_LOST}
            in_sync = int(configs.get("min.insync.replicas", 1))
            if copies < REPLICAS and in_sync < 2:
                weak.append(name)
            if configs and (in_sync > copies or (copies >= REPLICAS and in_sync < 2)):
                needed["min.insync.replicas"] = str(max(1, copies - 1))
            for key, value in needed.items():
                if configs.get(key, value) != value:
                    raise ChannelError(
                        f"the topic {name} has {key}={configs[key]}, and must have {value}. Run "
                        f"kafka-configs.sh --bootstrap-server {','.join(self.options.servers)} "
                        f"--alter --entity-type topics --entity-name {name} --add-config "
                        f"{key}={value}"
                    )
        self._check_replicas(admin, {name: each[1] for name, each in replicas.items()}, weak)

    def _check_replicas(self, admin: Any, copies: Mapping[str, int], weak: Sequence[str]) -> None:
        """Refuse topics with fewer replicas than the options ask for, or with one where the cluster
        has several brokers; warn of other ``weak`` ones. Raises ChannelError."""
        asked = self.options.replication
        brokers = len(admin.describe_cluster()["brokers"])
        wanted = min(2, brokers) if asked is None else asked
        few = [f"{name} ({copies[name]})" for name in sorted(copies) if copies[name] < wanted]
        if few:
            allow = (
                "" if asked else ". Or, if that is meant, set the option topics.replication to 1"
            )
            raise ChannelError(
                f"topics have fewer than {wanted} replicas: {', '.join(few)}. What no site has "
                "read yet would be lost with one broker. Add replicas "
                f"(kafka-reassign-partitions.sh), best {REPLICAS}, and set min.insync.replicas to "
                f"one less{allow}"
            )
        if weak:
            channel = f"kafka://{','.join(self.options.servers)}/{self.options.prefix}"
            log.warning(
                "channel %s: topics that may lose with a broker what no site has read yet: %s",
                channel,
                ", ".join(f"{name} (replicas: {copies[name]})" for name in sorted(weak)),
                event="few-replicas",
                channel=channel,
                what_to_do=f"For more than tests, have {REPLICAS} brokers or more, {REPLICAS} "
                f"replicas of each topic, and min.insync.replicas={REPLICAS - 1}.",
            )

    def partitions(self, topic: str, anew: bool = False) -> int:
        known = self._counts.get(topic)
        if known is not None and not anew and time.monotonic() - known[1] < 60:
            return known[0]
        with self._asking(f"read {topic}"):
            count = self._count_partitions(topic, anew)
            if count == 0:
                raise errors.UnknownTopicOrPartitionError(topic)
        self._counts[topic] = count, time.monotonic()
        return count

    def _count_partitions(self, topic: str, anew: bool) -> int:
        """Return how many partitions a topic has; 0: there is none. ``anew``: ask the brokers,
        where a consumer may answer what it knows."""
        if anew:
            with self._sharing(KafkaAdminClient) as admin:
                described = self._described(admin, {topic: None})
                return sum(len(each["partitions"]) for each in described)
        with self._consumer() as consumer:
            return len(consumer.partitions_for_topic(topic) or ())

    def _place(self, topic: str, partition: int) -> Any:
        """Return a partition. Raises ChannelError at once when there is no such topic: requests for
        its records would wait for it."""
        self.partitions(topic)
        return TopicPartition(topic, partition)

    def beginning(self, topic: str, partition: int) -> int:
        place = self._place(topic, partition)
        with self._asking(f"read {topic}"), self._consumer() as consumer:
            return int(consumer.beginning_offsets([place])[place])

    def end(self, topic: str, partition: int) -> int:
        place = self._place(topic, partition)
        with self._asking(f"read {topic}"), self._consumer() as consumer:
            return int(consumer.end_offsets([place])[place])

    def offset_at(self, topic: str, partition: int, time: float) -> int:
        place = TopicPartition(topic, partition)
        with self._asking(f"read {topic}"), self._consumer() as consumer:
            found = consumer.offsets_for_times({place: max(0, int(time * 1000))})[place]
            return self.end(topic, partition) if found is None else int(found.offset)

    def delete_before(self, topic: str, offsets: Mapping[int, int]) -> None:
        with self._asking(f"delete from {topic}"), self._sharing(KafkaAdminClient) as admin:
            admin.delete_records({TopicPartition(topic, at): end for at, end in offsets.items()})

    # --- records ----------------------------------------------------------------------------

    def produce(
        self, topic: str, partition: int, records: Sequence[tuple[bytes, bytes]]
    ) -> list[Written]:
        try:
            return self._produce(topic, partition, records)
        except ChannelError as error:
            if not isinstance(error.__cause__, _UnknownPartitionError):
                raise
            # The producer knew the topic from before: it was closed, and another one asks.
            return self._produce(topic, partition, records)

    def _produce(
        self, topic: str, partition: int, records: Sequence[tuple[bytes, bytes]]
    ) -> list[Written]:
        with self._asking(f"write to {topic}"), self._sharing(KafkaProducer) as producer:
            self._check_place(producer, topic, partition)
            futures = [self._send(producer, topic, partition, record) for record in records]
            # Each has its own deadline, so the first ones' errors do not leave others behind.
            written, failed = [], None
            for future in futures:
                try:
                    metadata = future.get()
                    written.append(Written(metadata.offset, metadata.timestamp / 1000))
                except errors.KafkaError as error:
                    failed = error
            if failed is not None:
                raise failed
            return written

    def _check_place(self, producer: Any, topic: str, partition: int) -> None:
        """Raise the error of a topic that is not there, for which the producer would wait until a
        deadline that says nothing of it; and of a partition that the producer does not know."""
        try:
            known = producer.partitions_for(topic)
        except errors.KafkaTimeoutError:
            with suppress(ChannelError):
                if not self.is_there(topic, anew=True):
                    raise errors.UnknownTopicOrPartitionError(topic) from None
            raise
        if partition not in known:
            raise _UnknownPartitionError(f"{topic}@{partition}")

    def _send(self, producer: Any, topic: str, partition: int, record: tuple[bytes, bytes]) -> Any:
        """Hand a record, key and value, to the producer, once the line has carried enough of those
        before."""
        key, value = record
        # What is small need not wait behind the frames of others.
        leave = self._window.enter(len(value)) if len(value) > BATCH_BYTES else lambda _: None
        try:
            future = producer.send(topic, key=key or None, value=value or None, partition=partition)
        except BaseException:
            leave(False)
            raise
        future.add_callback(lambda _: leave(True))
        future.add_errback(lambda _: leave(False))
        return future

    def read(
        self, topic: str, partition: int, start: int, end: int, *, exact: bool = False
    ) -> Iterator[Record]:
        place = TopicPartition(topic, partition)
        size = ONE_BATCH if exact and end - start <= EXACT_RECORDS else FETCH_BYTES
        with self._asking(f"read {topic}"), self._consumer(size) as consumer:
            consumer.assign([place])
            consumer.seek(place, start)
            last, patience = time.monotonic(), 1
            while consumer.position(place) < end:
                # poll() sleeps for the whole time where it has no fetch under way yet.
                records = consumer.poll(timeout_ms=patience).get(place, [])
                patience = min(2 * patience, LONGEST_POLL)
                for record in records:
                    if record.offset >= end:
                        return
                    yield Record(
                        record.offset,
                        record.timestamp / 1000,
                        record.key or b"",
                        record.value or b"",
                    )
                if records:
                    last, patience = time.monotonic(), 1
                elif time.monotonic() - last > self._client["request_timeout_ms"] / 1000:
                    self._check_range(consumer, place, start, end)
                    raise errors.KafkaTimeoutError(
                        f"no record of {topic}@{partition}:{consumer.position(place)} came"
                    )

    def _check_range(self, consumer: Any, place: TopicPartition, start: int, end: int) -> None:
        """Raise OutOfRangeError when the records that were asked for are not in the topic."""
        first, last = (
            consumer.beginning_offsets([place])[place],
            consumer.end_offsets([place])[place],
        )
        if start < first or end > last:
            raise OutOfRangeError(f"{place.topic}@{place.partition}:{start} is not there")

    # --- clients ----------------------------------------------------------------------------

    @contextmanager
    def _sharing(self, kind: type) -> Iterator[Any]:
        """Yield the client of a kind, which threads share. After an error the next call opens
        another, and none stays open after :meth:`close`.

        A producer of kafka-python that has sent to a topic asks for its leader without a pause, as
        soon as it learns that there is none: the topic was deleted, say.
        """
        shared = self._share(kind)
        failed = True
        try:
            yield shared.client
            failed = False
        finally:
            with self._lock:
                shared.users -= 1
                if (failed or self._closed) and self._shared.get(kind) is shared:
                    del self._shared[kind]
                is_left = self._shared.get(kind) is not shared and shared.users == 0
            if is_left:
                _close(shared.client)

    def _share(self, kind: type) -> Shared:
        """Return the client of a kind, with one more user. An attempt to open one that fails while
        others wait for it fails for them too: one after the other, they would wait for hours."""
        opening = self._opening[kind]
        asked = opening.ended
        with opening.lock:
            with self._lock:
                shared = self._shared.get(kind)
                if shared is not None:
                    shared.users += 1
                    return shared
            if opening.ended > asked and opening.error is not None:
                raise opening.error
            settings = self._producer_settings() if kind is KafkaProducer else {}
            opening.error = None
            try:
                shared = Shared(self._opened(kind, **settings))
            except BaseException as error:
                opening.error = copy.copy(error)
                raise
            finally:
                opening.ended += 1
            with self._lock:
                self._shared[kind] = shared
            return shared

    def _producer_settings(self) -> dict[str, Any]:
        timeout = self._client["request_timeout_ms"]
        return {
            "acks": "all",
            # Once a request has timed out, an idempotent producer of kafka-python refuses all later
            # ones. The log counts what is there twice once (decision 30).
            "enable_idempotence": False,
            "max_in_flight_requests_per_connection": AT_ONCE,
            "delivery_timeout_ms": timeout + self._connect_timeout,
            "max_block_ms": self._connect_timeout,
            "max_request_size": 2**30,
            "batch_size": BATCH_BYTES,
            "allow_auto_create_topics": False,
            # An error refreshes it, too. An idle producer must not learn that its topic is gone.
            "metadata_max_age_ms": METADATA_AGE,
            **self.options.producer,
        }

    @contextmanager
    def _consumer(self, size: int = FETCH_BYTES) -> Iterator[Any]:
        with self._lock:
            consumer = self._idle[size].pop() if self._idle[size] else None
        if consumer is None:
            consumer = self._opened(
                KafkaConsumer,
                enable_auto_commit=False,
                auto_offset_reset="none",
                # A fetch that waits for records would hold up the next one on its connection.
                fetch_max_wait_ms=0,
                max_partition_fetch_bytes=size,
                enable_incremental_fetch_sessions=False,
                allow_auto_create_topics=False,
            )
        try:
            yield consumer
        except GeneratorExit:  # the reader has what it wants
            pass
        except BaseException:
            _close(consumer)
            raise
        with self._lock:
            if not self._closed:
                self._idle[size].append(consumer)
                return
        _close(consumer)

    def _opened(self, kind: Callable[..., Any], **settings: Any) -> Any:
        """Return a client. One that cannot connect is closed: its thread would live on."""
        made: list[Any] = []

        def client(*args: Any, **configs: Any) -> Any:
            made.append(KafkaNetClient(*args, **configs))
            return made[-1]

        try:
            return kind(**{**settings, **self._client}, kafka_client=client)
        except BaseException:
            for each in made:
                each.close()
            raise

    def close(self) -> None:
        with self._lock:
            self._closed = True
            clients = [shared.client for shared in self._shared.values()]
            for consumers in self._idle.values():
                clients += consumers
                consumers.clear()
            self._shared = {}
        for client in clients:
            _close(client)
        self._said.close()

    @contextmanager
    def _asking(self, what: str) -> Iterator[None]:
        """Raise an error of the client as ChannelError, with its cause and what to change."""
        try:
            yield
        except errors.OffsetOutOfRangeError as error:
            raise OutOfRangeError(f"cannot {what}: {error}") from error
        except errors.MessageSizeTooLargeError as error:
            raise TooLargeError(f"cannot {what}: {error}") from error
        except errors.TopicAuthorizationFailedError as error:
            raise NotPermittedError(self._message(what, error)) from error
        except _UnknownPartitionError as error:
            raise ChannelError(self._message(what, error)) from error
        except errors.UnknownTopicOrPartitionError as error:
            raise NoTopicsError(self._message(what, error)) from error
        except (errors.KafkaError, OSError, ssl.SSLError) as error:
            raise ChannelError(self._message(what, error)) from error

    def _message(self, what: str, error: BaseException) -> str:
        servers = ",".join(self.options.servers)
        text = str(error)
        name = type(error).__name__
        causes = [text if name in text else f"{name}: {text}", *self._said.recent()]
        cause, advice = explained(causes)
        return (
            f"channel kafka://{servers}/{self.options.prefix}: cannot {what} ({cause}). {advice} "
            f"See {DOCUMENT}. Nothing is lost; the request will be retried."
        )


def _with_context(client: Mapping[str, Any]) -> dict[str, Any]:
    """Return kafka-python's settings with a TLS context in place of files and PEM texts."""
    settings = dict(client)
    names = ("ssl_cafile", "ca_text", "ssl_certfile", "ssl_keyfile", "chain_text", "key_text")
    ca_file, ca_text, cert, key, chain, key_text = (settings.pop(name, None) for name in names)
    password = settings.pop("ssl_password", None)
    check_names = settings.pop("ssl_check_hostname", True)
    if "SSL" not in settings.get("security_protocol", ""):
        return settings
    try:
        context = ssl.create_default_context(cafile=ca_file, cadata=ca_text)
        context.check_hostname = check_names
        if key_text is not None:
            with tempfile.TemporaryDirectory(prefix="spark_wan-") as folder:  # for its owner only
                pem = Path(folder, "client.pem")
                pem.touch(0o600)
                pem.write_text(f"{key_text}\n{chain}\n")
                context.load_cert_chain(pem, password=password or _no_password)
        elif cert is not None:
            context.load_cert_chain(cert, key, password=password or _no_password)
    except (OSError, ValueError) as error:  # SSLError is an OSError
        raise ChannelError(
            f"the certificates or the key for Kafka cannot be read ({error}). Check the PEM of "
            "kafka.ssl.truststore.*, kafka.ssl.keystore.* and kafka.ssl.key.password."
        ) from None
    settings["ssl_context"] = context
    return settings


def _no_password() -> str:
    """Refuse a key that is encrypted, where OpenSSL would ask at the terminal."""
    raise ValueError("the key is encrypted, and kafka.ssl.key.password is not set")


def _close(client: Any) -> None:
    """Close a client. What it has not sent was waited for, or is an error already."""
    with suppress(errors.KafkaError, OSError):
        if isinstance(client, KafkaProducer):
            try:
                client.close(timeout=0)
            except errors.KafkaTimeoutError:  # with unsent records it leaves its thread running
                client._sender.force_close()
        elif isinstance(client, KafkaConsumer):
            client.close(autocommit=False)
        else:
            client.close()


def _close_if_there(broker: weakref.ref[KafkaBroker]) -> None:
    there = broker()
    if there is not None:
        there.close()
