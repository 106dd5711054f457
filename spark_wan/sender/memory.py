"""What a sender remembers beside the channel: how far it published and what its readers acked.

Progress is decided by the channel's log alone. The memory only notices that a log is *not* what it was: deleted, put back to an
older state, or replaced. Losing the memory loses that check and nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, Protocol

import obstore
from obstore.exceptions import BaseError

from spark_wan.channels.object_store import first_line, open_store
from spark_wan.errors import ChannelError, LogGapError
from spark_wan.wire import Manifest

MEMORY_VERSION = 1


@dataclass(frozen=True)
class StreamMemory:
    """The last manifest that was seen of a stream, and the highest number that each site acked."""

    incarnation: str
    number: int
    acked: Mapping[str, int] = field(default_factory=dict)

    def encode(self) -> bytes:
        return json.dumps({"version": MEMORY_VERSION, **asdict(self)}, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes) -> StreamMemory | None:
        """None for what cannot be read: as good as lost."""
        try:
            fields = json.loads(data)
            return cls(**fields) if fields.pop("version") == MEMORY_VERSION else None
        except (ValueError, TypeError, KeyError, AttributeError):
            return None


class MemoryStore(Protocol):
    """Where stream memories are kept (below the sender's checkpoint)."""

    def load(self, stream: str) -> StreamMemory | None: ...

    def save(self, stream: str, memory: StreamMemory) -> None: ...


class StoredMemories:
    """Memories as small objects ``<url>/<stream>.json`` in a directory or an object store."""

    def __init__(self, url: str, storage: Mapping[str, str] | None = None) -> None:
        self.url = url
        self.storage = dict(storage or {})

    @cached_property
    def _store(self) -> Any:
        return open_store(self.url, self.storage)

    def load(self, stream: str) -> StreamMemory | None:
        """The memory of a stream, or None when there is none. Raises ChannelError when its place does not answer."""
        try:
            return StreamMemory.decode(bytes(obstore.get(self._store, f"{stream}.json").bytes()))
        except FileNotFoundError:
            return None
        except (BaseError, OSError, ValueError, TypeError) as error:
            raise self._failed("read", stream, error) from error

    def save(self, stream: str, memory: StreamMemory) -> None:
        """Replace the memory of a stream. Raises ChannelError when its place does not answer."""
        try:
            obstore.put(self._store, f"{stream}.json", memory.encode())
        except (BaseError, OSError, ValueError, TypeError) as error:
            raise self._failed("write", stream, error) from error

    def _failed(self, verb: str, stream: str, error: Exception) -> ChannelError:
        return ChannelError(
            f"{self.url}: cannot {verb} the sender's memory of {stream} ({first_line(error)}). Check that the site's "
            "`state` can be read and written; nothing is lost, it will be tried again."
        )


class ForgottenMemories:
    """For a writer that keeps no memory (a user's sink: its stream begins anew when its channel does)."""

    def load(self, stream: str) -> StreamMemory | None:
        return None

    def save(self, stream: str, memory: StreamMemory) -> None:
        return None


def check_log(stream: str, memory: StreamMemory | None, last: Manifest | None, where: str) -> None:
    """Raise LogGapError when the log is behind what the sender remembers of it, or another one."""
    if memory is None:
        return
    acked = f"acked: {dict(memory.acked)}" if memory.acked else "nothing acked"
    advice = (
        "The stream is held, and nothing is published. Put the channel back; or, when every remote site has what was published, "
        "delete the sender's checkpoint of this stream, and what is left of its log in the channel, to begin a new log."
    )
    if last is None:
        raise LogGapError(
            f"{where}: the log of {stream} is gone; it was at manifest {memory.number} ({acked}). Somebody deleted the channel. "
            f"{advice}"
        )
    if last.incarnation != memory.incarnation:
        raise LogGapError(f"{where}: the log of {stream} is another one than before ({acked}). {advice}")
    if last.number < memory.number:
        raise LogGapError(
            f"{where}: the log of {stream} ends at manifest {last.number}, but it was at {memory.number} ({acked}): it was put back "
            f"to an older state. {advice}"
        )
