"""Channel in a directory or an object store: local files, S3, GCS, Azure or memory, by URL.

Objects are created with ``put(mode="create")``, which is atomic on local disks, in memory, on S3,
GCS and Azure alike.
"""

from __future__ import annotations

import os
import re
import stat
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, UnknownConfigurationKeyError
from obstore.store import LocalStore, MemoryStore, from_url

from spark_wan.channels.base import PAGE
from spark_wan.channels.objects import ObjectChannel, StoredObject, TooLargeError
from spark_wan.errors import DISK_FULL, ChannelError, is_disk_full

_CLIENT_OPTIONS = frozenset(
    {
        "allow_http",
        "allow_invalid_certificates",
        "connect_timeout",
        "pool_idle_timeout",
        "pool_max_idle_per_host",
        "proxy_ca_certificate",
        "proxy_url",
        "timeout",
        "user_agent",
    }
)
"""Storage options of the HTTP client. obstore takes them apart from those of the store."""

_UNKNOWN_OPTION = re.compile(r"Configuration key: '([^']*)'")

_memory: dict[str, MemoryStore] = {}


_HALF_WRITTEN = re.compile(r"\.frame#[0-9]+$")
"""A frame of a directory that obstore has begun: it gets its name once it is whole."""


def open_store(url: str, storage: Mapping[str, str] | None = None) -> Any:
    """Return an obstore store for a directory or URL. ``memory://name`` is one store per process.

    Raises ValueError, OSError or obstore's errors when the URL or an option of ``storage`` is
    invalid.
    """
    directory = directory_of(url)
    if storage and (directory is not None or url.startswith("memory://")):
        raise ValueError(
            f"storage options {sorted(storage)} are for object stores; a directory takes none"
        )
    if url.startswith("memory://"):
        return _memory.setdefault(url, MemoryStore())
    if directory is not None:
        return LocalStore(directory, mkdir=True)
    options, client = dict(storage or {}), {}
    for name in list(options):
        plain = name.lower().removeprefix("aws_")
        if plain in _CLIENT_OPTIONS:
            client[plain] = options.pop(name)
    open_url: Any = from_url
    return open_url(url, config=options, client_options=client or None)


def check_storage(url: str, storage: Mapping[str, str]) -> None:
    """Raise ValueError for an option that the URL's kind of store does not have. Sends no request.
    Whether a value will do depends on the machine that opens the store."""
    try:
        open_store(url, storage)
    except UnknownConfigurationKeyError as error:
        named = _UNKNOWN_OPTION.search(str(error))
        name = repr(named[1]) if named else "one of its options"
        raise ValueError(f"{name} is no option of {url.partition('://')[0]}:// stores") from error
    except (BaseError, OSError, TypeError):
        pass


def directory_of(url: str) -> Path | None:
    """Return the directory that a path or ``file://`` URL names; None for any other URL."""
    is_path = url.startswith("file://") or "://" not in url
    return Path(url.removeprefix("file://")) if is_path else None


def first_line(error: Exception) -> str:
    """Return an obstore error's message without its debug output."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


class ObjectStoreChannel(ObjectChannel):
    """Channel whose objects are those of an obstore store."""

    @cached_property
    def _store(self) -> Any:
        try:
            return open_store(self.url, self.storage)
        except (BaseError, OSError, ValueError, TypeError) as error:
            raise ChannelError(
                f"channel {self.url}: cannot be opened ({first_line(error)}). Check the path or "
                "URL, its permissions, and the storage options."
            ) from error

    def prepare(self) -> None:
        directory = self._directory
        with self._request("write", self.url):
            if directory is not None and self._store:
                # It may have been removed since this process opened it.
                directory.mkdir(parents=True, exist_ok=True)
                # obstore retries without end where a file system answers new files with "no such
                # directory" (/proc).
                tempfile.TemporaryFile(dir=directory).close()
        super().prepare()

    @cached_property
    def _directory(self) -> Path | None:
        return directory_of(self.url)

    def _check_place(self, path: str) -> None:
        """Raise OSError for a link in a directory, or on the way to it, and for what is no file.
        Whoever can write here must not lead others out of the channel, or to a pipe without end."""
        place = self._directory
        if place is None:
            return
        mode = stat.S_IFDIR
        for part in path.split("/"):
            place = place / part
            try:
                mode = os.lstat(place).st_mode
            except (FileNotFoundError, NotADirectoryError):
                return
            if stat.S_ISLNK(mode):
                raise OSError(f"{place} is a symbolic link, which a channel may not have")
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            raise OSError(f"{place} is no file")

    def _in_channel(self, paths: Iterable[str]) -> set[str]:
        """Return those of listed paths that are no links, and not behind links."""
        found = set(paths)
        if self._directory is None:
            return found
        links: dict[str, bool] = {"": False}

        def is_link(path: str) -> bool:
            if path not in links:
                folder = path.rpartition("/")[0]
                links[path] = is_link(folder) or os.path.islink(f"{self._directory}/{path}")
            return links[path]

        return {path for path in found if not is_link(path)}

    def create(self, path: str, data: bytes) -> bool:
        with self._request("write", path):
            self._check_place(path)
            try:
                obstore.put(self._store, path, data, mode="create")
            except AlreadyExistsError:
                return False
        return True

    def put(self, path: str, data: bytes) -> None:
        with self._request("write", path):
            self._check_place(path)
            obstore.put(self._store, path, data)

    def read(self, path: str, max_bytes: int | None = None) -> bytes:
        with self._request("read", path, FileNotFoundError):
            self._check_place(path)
            found = obstore.get(self._store, path)
            size = found.meta["size"]
            if max_bytes is None or size <= max_bytes:
                return bytes(found.bytes())
        raise TooLargeError(size, max_bytes)

    def stat(self, path: str) -> StoredObject:
        with self._request("read", path, FileNotFoundError):
            self._check_place(path)
            return _stored(obstore.head(self._store, path))

    def list_objects(self, prefix: str) -> list[StoredObject]:
        try:
            with self._request("list", prefix):
                pages = list(obstore.list(self._store, prefix=prefix or None, chunk_size=PAGE))
            listed = [_stored(meta) for page in pages for meta in page]
        except ChannelError:
            if self._directory is None:
                raise
            listed = list(self._walk(self._directory, prefix))
        inside = self._in_channel(each.path for each in listed)
        return sorted(each for each in listed if each.path in inside)

    def _walk(self, directory: Path, prefix: str) -> Iterator[StoredObject]:
        """Yield the objects of a directory in which a name has a control character. obstore lists
        none then, so anyone who may write one file would hold all streams."""
        with self._request("list", prefix):
            for folder, _, names in os.walk(directory / prefix, onerror=_raise):
                for name in names:
                    path = Path(folder, name)
                    with suppress(FileNotFoundError):
                        found = path.stat()
                        tag = f"{found.st_mtime_ns:x} {found.st_size}"
                        yield StoredObject(str(path.relative_to(directory)), found.st_mtime, tag)

    def list_paths(self, prefix: str, after: str = "", limit: int | None = None) -> list[str]:
        if limit is None:
            return [each.path for each in self.list_objects(prefix) if each.path > after]
        directory = self._directory
        if directory is not None:
            # A listing of a directory that changes may miss a file that replaces another. So an
            # empty one is made once more.
            found = self._names(directory / prefix, prefix, after)
            return (found or self._names(directory / prefix, prefix, after))[:limit]
        paths: list[str] = []
        with self._request("list", prefix):
            for page in obstore.list(
                self._store, prefix=prefix or None, offset=after or None, chunk_size=PAGE
            ):
                paths += [meta["path"] for meta in page]
                if len(paths) >= limit:
                    break
        return sorted(paths)[:limit]

    def _names(self, folder: Path, prefix: str, after: str) -> list[str]:
        """Return the paths in one folder of a directory. obstore would ask for the size and time
        of each, which takes ten times as long."""
        try:
            with self._request("list", prefix, FileNotFoundError):
                names = os.listdir(folder)
        except FileNotFoundError:
            return []
        return sorted(path for name in names if (path := prefix + name) > after)

    def frames(self, stream: str, write: str | None = None) -> list[tuple[str, float]]:
        """Return also what a killed process had written of a frame, which no listing of obstore
        shows: so the sweep takes it."""
        found = super().frames(stream, write)
        if write is None and self._directory is not None:
            for path in self.list_paths(f"frames/{stream}/", limit=sys.maxsize):
                if _HALF_WRITTEN.search(path):
                    with suppress(FileNotFoundError):
                        found.append((path, os.lstat(self._directory / path).st_mtime))
        return found

    def delete(self, paths: Iterable[str]) -> None:
        left = []
        for path in paths:
            if self._directory is None or not _HALF_WRITTEN.search(path):
                left.append(path)
                continue
            with self._request("delete", path), suppress(FileNotFoundError):
                self._check_place(path)
                os.unlink(self._directory / path)
        for path in left:
            with self._request("delete", path):
                self._check_place(path)
        while left:
            part, left = left[:PAGE], left[PAGE:]
            try:
                with self._request("delete", part[0], FileNotFoundError):
                    obstore.delete(self._store, part)
            except FileNotFoundError:  # some stores end at an object that is absent
                for path in part:
                    with (
                        suppress(FileNotFoundError),
                        self._request("delete", path, FileNotFoundError),
                    ):
                        obstore.delete(self._store, path)

    @contextmanager
    def _request(self, verb: str, path: str, *expected: type[Exception]) -> Iterator[None]:
        """Raise an error of the store as ChannelError, except the ``expected`` ones."""
        try:
            yield
        except expected:
            raise
        except (BaseError, OSError, ValueError) as error:
            raise ChannelError(
                f"channel {self.url}: cannot {verb} {path!r} ({first_line(error)}). "
                + advice(error, "Check permissions, space and the storage options.")
                + " Nothing is lost; the request will be retried."
            ) from error


def advice(error: Exception, otherwise: str) -> str:
    """Return what to do about an error of a store."""
    if is_disk_full(error):
        return DISK_FULL
    if re.search(r"\(os error (38|95)\)", str(error)):  # ENOSYS, EOPNOTSUPP
        return (
            "This file system cannot rename or link files: mounts of object stores, such as "
            "/Volumes and /dbfs, cannot. Use the URL of the object store instead."
        )
    return otherwise


def _raise(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


def _stored(meta: Any) -> StoredObject:
    tag = meta["e_tag"] or meta["version"] or ""
    return StoredObject(meta["path"], meta["last_modified"].timestamp(), f"{tag} {meta['size']}")
