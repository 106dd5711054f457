"""What a channel on topics needs of a cluster of brokers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from spark_wan.errors import ChannelError


class OutOfRangeError(ChannelError):
    """The offset is below the topic's first record or above its last: it was trimmed, or made
    again."""


class TooLargeError(ChannelError):
    """The broker refuses a record of this size."""


class NotPermittedError(ChannelError):
    """The user lacks a permission for the topic."""


class Record(NamedTuple):
    """A record as it is read."""

    offset: int
    time: float
    """When the broker appended it, by its clock, in seconds since 1970."""
    key: bytes
    value: bytes


class Written(NamedTuple):
    """Where a record is that was written, and when, by the broker's clock."""

    offset: int
    time: float


@dataclass(frozen=True)
class TopicSettings:
    """How a topic is made, and what it is checked for."""

    partitions: int | None
    """Its number of partitions; None: any number."""
    configs: Mapping[str, str] = field(default_factory=dict)
    """Settings with which it is made, and without which it is refused."""
    hints: Mapping[str, str] = field(default_factory=dict)
    """More settings with which it is made."""


class Broker(Protocol):
    """Topics, as a channel sees them. Threads share it. Every method raises ChannelError, of
    which NotPermittedError says that a permission is missing.

    A write that has returned is on as many replicas as the topic asks for, and every later read
    sees it. A write that raised may take effect, also later, and also twice.
    """

    def prepare(self, topics: Mapping[str, TopicSettings]) -> None:
        """Make the topics that are absent, and check the settings of the others."""

    def produce(
        self, topic: str, partition: int, records: Sequence[tuple[bytes, bytes]]
    ) -> list[Written]:
        """Append records (key, value), several requests at once: others may write in between.

        An empty value is none: compaction removes the records of that key.

        Raises TooLargeError.
        """

    def partitions(self, topic: str, anew: bool = False) -> int:
        """Return the number of partitions. It may be a minute old, unless it is asked for
        ``anew``: an administrator may have raised it."""

    def is_there(self, topic: str, anew: bool = False) -> bool:
        """Whether a topic is there. ``anew``: ask the brokers, and not what is known here."""

    def beginning(self, topic: str, partition: int) -> int:
        """Return the offset of the first record that is there, or would be."""

    def end(self, topic: str, partition: int) -> int:
        """Return the offset behind the last record."""

    def read(
        self, topic: str, partition: int, start: int, end: int, *, exact: bool = False
    ) -> Iterator[Record]:
        """Yield the records from ``start`` on that are below ``end``. Raises OutOfRangeError.

        ``end`` was returned by :meth:`end`. Compaction may have left out some. ``exact``: what is
        behind them is much, and should not be carried with them, also when that takes requests.
        """

    def offset_at(self, topic: str, partition: int, time: float) -> int:
        """Return the first offset that was written at ``time`` or later, else the end."""

    def delete_before(self, topic: str, offsets: Mapping[int, int]) -> None:
        """Delete the records below an offset, by partition."""

    def close(self) -> None:
        """Close all connections."""
