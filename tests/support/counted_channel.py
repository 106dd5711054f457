"""A channel that counts the requests that it makes to its store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from dict_channel import DictChannel

from spark_wan.channels.base import PAGE
from spark_wan.channels.objects import StoredObject


class CountedChannel(DictChannel):
    """``requests``: their number, by kind. A listing counts once per page of names, and a deletion
    once per 1,000 objects, as with object stores."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.requests: Counter[str] = Counter()

    def counted(self) -> dict[str, int]:
        """Return the requests since the last call."""
        counted, self.requests = dict(self.requests), Counter()
        return counted

    def create(self, path: str, data: bytes) -> bool:
        self.requests["create"] += 1
        return super().create(path, data)

    def put(self, path: str, data: bytes) -> None:
        self.requests["put"] += 1
        super().put(path, data)

    def read(self, path: str, max_bytes: int | None = None) -> bytes:
        self.requests["get"] += 1
        return super().read(path, max_bytes)

    def stat(self, path: str) -> StoredObject:
        self.requests["head"] += 1
        return super().stat(path)

    def list_objects(self, prefix: str) -> list[StoredObject]:
        found = [super(CountedChannel, self).stat(path) for path in super().list_paths(prefix)]
        self.requests["list"] += 1 + max(0, len(found) - 1) // PAGE
        return found

    def list_paths(self, prefix: str, after: str = "", limit: int | None = None) -> list[str]:
        found = super().list_paths(prefix, after, limit)
        self.requests["list"] += 1 + max(0, len(found) - 1) // PAGE
        return found

    def delete(self, paths: Iterable[str]) -> None:
        left = list(paths)
        self.requests["delete"] += (len(left) + PAGE - 1) // PAGE
        super().delete(left)
