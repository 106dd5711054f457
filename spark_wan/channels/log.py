"""The channel log of a stream: manifests 1, 2, 3 …, and the acks that answer them.

Anyone may extend a log, but only from its last manifest (invariant 2): :meth:`StreamLog.append` takes the number after the one that was
read, and a writer that lost the race reloads and decides again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from spark_wan.channels.base import Channel
from spark_wan.errors import LogGapError, ManifestError, ManifestExists
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
            ack = cls(**fields)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return None
        return ack if type(ack.applied) is int else None


class StreamLog:
    """The log of one stream on one channel. Holds nothing but its place: every call reads the channel."""

    def __init__(self, channel: Channel, stream: str) -> None:
        self.channel = channel
        self.stream = stream

    def last(self) -> Manifest | None:
        """The newest manifest, or None for a stream without any. Raises LogGapError, ManifestError."""
        numbers = self._without_gaps(self.channel.stream_numbers(self.stream))
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
        found = self._without_gaps(self.channel.stream_numbers(self.stream) if numbers is None else numbers)
        return [number for number in found if number > after]

    def append(self, manifest: Manifest) -> None:
        """Add the next manifest. Raises ManifestExists when somebody else has added that number."""
        data = manifest.encode()
        newest = max(self.channel.stream_numbers(self.stream), default=0)
        try:
            if not manifest.number - 1 <= newest <= manifest.number:
                # Extended and trimmed meanwhile, so that the number is free again; or deleted.
                raise ManifestExists(
                    f"{self.channel.url}: the log of {self.stream} is at {newest}, so {manifest.number} is not the next "
                    "manifest; reload the log."
                )
            self.channel.append(self.stream, manifest.number, data)
        except ManifestExists as exists:
            # A store's client repeats a write that got no answer: the manifest that is there may be this one.
            try:
                found = self.channel.manifest(self.stream, manifest.number)
            except ManifestError:
                raise exists from None
            if found != data:
                raise

    def acks(self) -> Mapping[str, Ack]:
        """The last answer of each site that gave a readable one."""
        found = {}
        for site, data in self.channel.acks(self.stream).items():
            ack = Ack.decode(data)
            if ack is not None and ack.site == site and ack.stream == self.stream:
                found[site] = ack
        return found

    def _without_gaps(self, listed: Sequence[int]) -> list[int]:
        """The numbers of a listing, once it is known that none is missing between them. Raises LogGapError.

        A listing is not made at one moment: while a log is extended and trimmed, it may leave out what is there. So each
        missing manifest is asked for by itself; one that is gone together with the one below it was trimmed.
        """
        found: list[int] = []
        for number in listed:
            for missing in range(found[-1] + 1 if found else number, number):
                if self._is_there(missing):
                    found.append(missing)
                elif found and self._is_there(found[-1]):
                    raise LogGapError(
                        f"{self.channel.url}: the log of {self.stream} goes from {found[-1]} to {number}: manifests are "
                        "missing. The stream is held; restore the channel's log."
                    )
                else:
                    found.clear()
            found.append(number)
        return found

    def _is_there(self, number: int) -> bool:
        try:
            self.channel.manifest(self.stream, number)
        except ManifestError:
            return False
        return True
