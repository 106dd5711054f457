"""The smallest channel of objects: what a new kind of store implements, over a dict."""

from __future__ import annotations

import time
from collections.abc import Iterable

from spark_wan.channels.objects import ObjectChannel, StoredObject, TooLargeError

_objects: dict[str, dict[str, tuple[bytes, float, int]]] = {}
"""URL -> path -> content, time, and number of the write."""


class DictChannel(ObjectChannel):
    """``dict://name``, in this process."""

    @property
    def objects(self) -> dict[str, tuple[bytes, float, int]]:
        return _objects.setdefault(self.url, {})

    def create(self, path: str, data: bytes) -> bool:
        written = data, time.time(), 0
        return self.objects.setdefault(path, written) is written

    def put(self, path: str, data: bytes) -> None:
        _, _, writes = self.objects.get(path, (b"", 0.0, 0))
        self.objects[path] = data, time.time(), writes + 1

    def read(self, path: str, max_bytes: int | None = None) -> bytes:
        if path not in self.objects:
            raise FileNotFoundError(path)
        data = self.objects[path][0]
        if max_bytes is not None and len(data) > max_bytes:
            raise TooLargeError(len(data), max_bytes)
        return data

    def stat(self, path: str) -> StoredObject:
        if path not in self.objects:
            raise FileNotFoundError(path)
        _, written, writes = self.objects[path]
        return StoredObject(path, written, str(writes))

    def list_objects(self, prefix: str) -> list[StoredObject]:
        return [self.stat(path) for path in self.list_paths(prefix)]

    def list_paths(self, prefix: str, after: str = "", limit: int | None = None) -> list[str]:
        paths = [path for path in list(self.objects) if path.startswith(prefix) and path > after]
        return sorted(paths)[:limit]

    def delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            self.objects.pop(path, None)
