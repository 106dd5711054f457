"""The channel log of a stream: manifests 1, 2, 3 …, and the acks that answer them.

Anyone may extend a log, but only from its last manifest (invariant 2): :meth:`StreamLog.append` takes the number after the one that was
read, and a writer that lost the race reloads and decides again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from spark_wan.channels.base import Channel
from spark_wan.errors import LogGapError
from spark_wan.wire import Manifest

ACK_VERSION = 1


@dataclass(frozen=True)
class Ack:
    """A site's answer, cumulative per stream: applied up to ``applied``, held at ``held`` because of ``cause``.

    ``applied`` counts for ``incarnation`` only. ``dead_letters`` is how many of the stream's events this site could not
    apply and keeps, with their causes, in its ledger.
    """

    site: str
    stream: str
    incarnation: str
    applied: int
    held: int | None = None
    cause: str | None = None
    dead_letters: int = 0

    def encode(self) -> bytes:
        return json.dumps({"version": ACK_VERSION, **asdict(self)}, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes) -> Ack | None:
        """None for what is no ack of this version: an answer that cannot be read is no answer, and asked for again."""
        try:
            fields = json.loads(data)
            if fields.pop("version") != ACK_VERSION:
                return None
            return cls(**fields)
        except (ValueError, TypeError, KeyError, AttributeError):
            return None


class StreamLog:
    """The log of one stream on one channel. Holds nothing but its place: every call reads the channel."""

    def __init__(self, channel: Channel, stream: str) -> None:
        self.channel = channel
        self.stream = stream

    def last(self) -> Manifest | None:
        """The newest manifest, or None for a stream without any. Raises LogGapError, ManifestError."""
        numbers = self.channel.stream_numbers(self.stream)
        self._check(numbers)
        return self.read(numbers[-1]) if numbers else None

    def read(self, number: int) -> Manifest:
        """Manifest ``number``. Raises ManifestError, and LogGapError when it calls itself something else."""
        where = f"{self.channel.url}: manifest {number} of {self.stream}"
        manifest = Manifest.decode(self.channel.manifest(self.stream, number), where)
        if (manifest.stream, manifest.number) != (self.stream, number):
            raise LogGapError(
                f"{where} says that it is number {manifest.number} of {manifest.stream}: the log was rewritten. "
                "The stream is held; restore the channel's log."
            )
        return manifest

    def since(self, after: int, numbers: Sequence[int] | None = None) -> list[int]:
        """The numbers above ``after``, without gaps. Raises LogGapError."""
        found = list(self.channel.stream_numbers(self.stream) if numbers is None else numbers)
        self._check(found)
        return [number for number in found if number > after]

    def append(self, manifest: Manifest) -> None:
        """Add the next manifest. Raises ManifestExists when somebody else has added that number."""
        self.channel.append(self.stream, manifest.number, manifest.encode())

    def acks(self) -> Mapping[str, Ack]:
        """The last answer of each site that gave a readable one."""
        found = {}
        for site, data in self.channel.acks(self.stream).items():
            ack = Ack.decode(data)
            if ack is not None and ack.site == site and ack.stream == self.stream:
                found[site] = ack
        return found

    def _check(self, numbers: Sequence[int]) -> None:
        for before, after in zip(numbers, numbers[1:], strict=False):
            if after != before + 1:
                raise LogGapError(
                    f"{self.channel.url}: the log of {self.stream} goes from {before} to {after}: manifests are missing. "
                    "The stream is held; restore the channel's log."
                )
