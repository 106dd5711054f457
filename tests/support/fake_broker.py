"""Topics in memory, with a broker's faults: requests that are lost, late, or taken twice."""

from __future__ import annotations

import random
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from spark_wan.channels.kafka.broker import (
    NotPermittedError,
    OutOfRangeError,
    Record,
    TopicSettings,
    Written,
)
from spark_wan.channels.kafka.broker import TooLargeError as TooLargeError
from spark_wan.channels.kafka.channel import TopicChannel
from spark_wan.errors import ChannelError, NoTopicsError


@dataclass
class Partition:
    records: list[Record] = field(default_factory=list)
    """Those that are there, ascending."""
    beginning: int = 0
    end: int = 0


@dataclass
class Topics:
    """The topics of a cluster, which survive the brokers' clients."""

    partitions: dict[str, list[Partition]] = field(default_factory=lambda: defaultdict(list))
    most: int = 1_000_000
    """Bytes of a record, at most."""
    time: float | None = None
    """The brokers' clock; None: the machine's."""
    lock: threading.RLock = field(default_factory=threading.RLock)

    def append(self, topic: str, partition: int, key: bytes, value: bytes) -> Written:
        with self.lock:
            of = self.partitions[topic][partition]
            now = time.time() if self.time is None else self.time
            of.records.append(Record(of.end, now, key, value))
            of.end += 1
            return Written(of.end - 1, now)

    def cut(self, topic: str, partition: int, offset: int) -> None:
        """Delete the records below an offset, as a broker does, or a retention."""
        with self.lock:
            of = self.partitions[topic][partition]
            of.beginning = max(of.beginning, min(offset, of.end))
            of.records = [record for record in of.records if record.offset >= of.beginning]

    def compact(self, topic: str) -> None:
        """Keep the last record of each key."""
        with self.lock:
            for of in self.partitions[topic]:
                last = {record.key: record.offset for record in of.records}
                of.records = [each for each in of.records if last[each.key] == each.offset]

    def delete(self, topic: str) -> None:
        with self.lock:
            del self.partitions[topic]


class FakeBroker:
    """One client's view of the topics (:class:`spark_wan.channels.kafka.broker.Broker`).

    With ``faults``, some of its requests to write fail: they are lost, arrive at a later request of
    any client, arrive and get no answer, or arrive twice.
    """

    def __init__(self, topics: Topics, faults: random.Random | None = None) -> None:
        self.topics = topics
        self.faults = faults
        self.late: list[tuple[str, int, bytes, bytes]] = []
        self.forbidden = ""
        """The topic to which this client may not write."""

    def prepare(self, topics: Mapping[str, TopicSettings]) -> None:
        with self.topics.lock:
            for name, settings in topics.items():
                if not self.topics.partitions[name]:
                    self.topics.partitions[name] = [
                        Partition() for _ in range(settings.partitions or 2)
                    ]

    def produce(
        self, topic: str, partition: int, records: Sequence[tuple[bytes, bytes]]
    ) -> list[Written]:
        self._there(topic, partition)
        if topic == self.forbidden:
            raise NotPermittedError(f"scripted: no permission to write to {topic}")
        if any(len(key) + len(value) > self.topics.most for key, value in records):
            raise TooLargeError(f"more than {self.topics.most} bytes")
        return [self._produce(topic, partition, key, value) for key, value in records]

    def _produce(self, topic: str, partition: int, key: bytes, value: bytes) -> Written:
        fault = self.faults.random() if self.faults is not None else 1.0
        if fault < 0.03:
            raise ChannelError("scripted: lost")
        if fault < 0.06:
            self.late.append((topic, partition, key, value))
            raise ChannelError("scripted: late")
        written = self.topics.append(topic, partition, key, value)
        if fault < 0.09:
            raise ChannelError("scripted: no answer")
        if fault < 0.12:
            self.topics.append(topic, partition, key, value)
        return written

    def deliver(self) -> None:
        """Let the requests that are late arrive."""
        late, self.late = self.late, []
        for topic, partition, key, value in late:
            if len(self.topics.partitions[topic]) > partition:
                self.topics.append(topic, partition, key, value)

    def partitions(self, topic: str, anew: bool = False) -> int:
        self._there(topic, 0)
        return len(self.topics.partitions[topic])

    def is_there(self, topic: str, anew: bool = False) -> bool:
        return bool(self.topics.partitions.get(topic))

    def beginning(self, topic: str, partition: int) -> int:
        return self._there(topic, partition).beginning

    def end(self, topic: str, partition: int) -> int:
        return self._there(topic, partition).end

    def read(
        self, topic: str, partition: int, start: int, end: int, *, exact: bool = False
    ) -> Iterator[Record]:
        with self.topics.lock:
            of = self._there(topic, partition)
            if not of.beginning <= start <= of.end or (start < end and start == of.end):
                raise OutOfRangeError(f"{topic}@{start}")
            found = [record for record in of.records if start <= record.offset < end]
        yield from found

    def offset_at(self, topic: str, partition: int, time: float) -> int:
        with self.topics.lock:
            of = self._there(topic, partition)
            later = (record.offset for record in of.records if record.time >= time)
            return next(later, of.end)

    def delete_before(self, topic: str, offsets: Mapping[int, int]) -> None:
        for partition, offset in offsets.items():
            self.topics.cut(topic, partition, offset)

    def close(self) -> None:
        pass

    def _there(self, topic: str, partition: int) -> Partition:
        with self.topics.lock:
            if len(self.topics.partitions[topic]) <= partition:
                kind = ChannelError if self.topics.partitions[topic] else NoTopicsError
                raise kind(f"there is no topic {topic}, or no partition {partition}")
            return self.topics.partitions[topic][partition]


clusters: dict[str, Topics] = defaultdict(Topics)
"""By URL."""


class FakeTopicChannel(TopicChannel):
    """``topics://name``, in this process."""

    prefix = "wan"
    faults: random.Random | None = None

    def connect(self) -> FakeBroker:
        return FakeBroker(clusters[self.url], self.faults)
