"""A channel in an object store or a directory: local files by default, S3, GCS, Azure or memory by URL.

Layout below the channel's root::

    wan-channel.json                                says what this is, and its version
    log/<stream>/<number, 20 digits>.json           manifests, created only if absent
    log/<stream>/<number, 20 digits>.again.<n>      announced again, attempt n
    frames/<stream>/<attempt>-<index>.frame         frames; a manifest names them, or nobody reads them. 32 hexadecimal digits name the attempt
                                                    of a task, the first 16 the write that it is part of
    acks/<stream>/<site>.json                       the last answer of each site

All conditional writes are ``put(mode="create")``: atomic on local disks, memory, S3, GCS and Azure alike.
"""

from __future__ import annotations

import json
import re
import tempfile
import uuid
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import LocalStore, MemoryStore, from_url

from spark_wan.errors import ChannelError, FrameError, ManifestError, ManifestExists

MARKER = "wan-channel.json"
CHANNEL_VERSION = 1
_MANIFEST = re.compile(r"log/([^/]+)/(\d{20})\.json")
# Files that are there for a moment, or left by a process that was killed in it.
_PROBE = re.compile("wan-(?:writable|clock-[0-9a-f]{32})")
_AGAIN = re.compile(r"log/([^/]+)/(\d{20})\.again\.(\d+)")
_FRAME = re.compile(r"frames/[^/]+/[0-9a-f]+-\d+\.frame")
_ACK = re.compile(r"acks/([^/]+)/([^/]+)\.json")

_CLIENT = frozenset(
    (
        "allow_http",
        "allow_invalid_certificates",
        "connect_timeout",
        "proxy_url",
        "proxy_ca_certificate",
        "timeout",
    )
    + ("pool_idle_timeout", "pool_max_idle_per_host", "user_agent")
)
"""Storage options that are the HTTP client's, for every object store; obstore does not take them among the store's own."""

_memory: dict[str, MemoryStore] = {}


def open_store(url: str, storage: Mapping[str, str] | None = None) -> Any:
    """An obstore store for a directory or a URL. ``memory://name`` is one store per name and process.

    Raises ValueError, OSError or obstore's errors when the URL or an option of ``storage`` is wrong.
    """
    local = _directory(url)
    if storage and (local is not None or url.startswith("memory://")):
        raise ValueError(
            f"storage options {sorted(storage)} are for object stores; a directory takes none"
        )
    if url.startswith("memory://"):
        return _memory.setdefault(url, MemoryStore())
    if local is not None:
        return LocalStore(local, mkdir=True)
    options, client = dict(storage or {}), {}
    for name in list(options):
        plain = name.lower().removeprefix("aws_")
        if plain in _CLIENT:
            client[plain] = options.pop(name)
    open_url: Any = from_url
    return open_url(url, config=options, client_options=client or None)


def _directory(url: str) -> Path | None:
    """The directory that a path or ``file://`` URL names; None for any other URL."""
    return (
        Path(url.removeprefix("file://")) if url.startswith("file://") or "://" not in url else None
    )


class ObjectStoreChannel:
    """See the module. ``storage`` holds the store's own settings (endpoint, region, credentials …)."""

    def __init__(self, url: str, storage: Mapping[str, str] | None = None) -> None:
        self.url = url
        self.storage = dict(storage or {})

    def __getstate__(self) -> dict[str, Any]:
        return {"url": self.url, "storage": self.storage}

    @cached_property
    def _store(self) -> Any:
        try:
            return open_store(self.url, self.storage)
        except (BaseError, OSError, ValueError, TypeError) as error:
            raise ChannelError(
                f"channel {self.url}: cannot be opened ({first_line(error)}). Check the path or URL, its permissions, "
                "and the storage options."
            ) from error

    def prepare(self) -> None:
        marker = json.dumps({"format": "spark_wan channel", "version": CHANNEL_VERSION}).encode()
        try:
            directory = _directory(self.url)
            if directory is not None and self._store:
                # obstore tries for ever where a file system refuses new files with "no such directory" (/proc).
                tempfile.TemporaryFile(dir=directory).close()
            if not self._create(MARKER, marker):
                found = json.loads(self._get(MARKER))
                if found.get("version") != CHANNEL_VERSION:
                    raise ChannelError(
                        f"channel {self.url}: its version is {found.get('version')}; this spark_wan knows version "
                        f"{CHANNEL_VERSION}. Update spark_wan here."
                    )
            # A directory that can be read but not written is found out here and not in the middle of an epoch.
            self._put("wan-writable", b"")
            self._delete(["wan-writable"])
        except OSError as error:
            raise self._failed("write", str(self.url), error) from error
        except (ValueError, AttributeError) as error:
            raise ChannelError(
                f"channel {self.url}: {MARKER} is not spark_wan's, or damaged. If the channel is spark_wan's, delete that file: it is made again. "
                "Otherwise give the channel a place of its own."
            ) from error

    def put_frame(self, stream: str, attempt: str, index: int, data: bytes) -> str:
        path = f"frames/{stream}/{attempt}-{index:05d}.frame"
        self._put(path, data)
        return path

    def get_frame(self, path: str) -> bytes:
        try:
            return self._get(path)
        except FileNotFoundError as error:
            raise FrameError(
                f"{self.url}/{path}: the frame that a manifest names is not there. Its stream is held. Restore the object from a backup or "
                "another version of it; without it the remote site needs a full copy."
            ) from error

    def append(self, stream: str, number: int, manifest: bytes) -> None:
        if not self._create(_manifest_path(stream, number), manifest):
            raise ManifestExists(
                f"channel {self.url}: manifest {number} of {stream} exists already; reload the log."
            )

    def numbers(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for path in self._list("log/"):
            if match := _MANIFEST.fullmatch(path):
                found.setdefault(match[1], []).append(int(match[2]))
        return {stream: sorted(numbers) for stream, numbers in sorted(found.items())}

    def stream_numbers(self, stream: str) -> list[int]:
        matches = (_MANIFEST.fullmatch(path) for path in self._list(f"log/{stream}/"))
        return sorted(int(match[2]) for match in matches if match)

    def manifest(self, stream: str, number: int) -> bytes:
        path = _manifest_path(stream, number)
        try:
            return self._get(path)
        except FileNotFoundError as error:
            raise ManifestError(
                f"{self.url}/{path}: the manifest is not there (any more)."
            ) from error

    def announce(self, stream: str, number: int, attempt: int) -> None:
        self._create(_again_path(stream, number, attempt), b"{}")

    def announcements(self) -> dict[str, list[tuple[int, int]]]:
        found: dict[str, list[tuple[int, int]]] = {}
        for path in self._list("log/"):
            if match := _AGAIN.fullmatch(path):
                found.setdefault(match[1], []).append((int(match[2]), int(match[3])))
        return {stream: sorted(entries) for stream, entries in found.items()}

    def withdraw(self, stream: str, announced: Iterable[tuple[int, int]]) -> None:
        self._delete([_again_path(stream, number, attempt) for number, attempt in announced])

    def put_ack(self, stream: str, site: str, ack: bytes) -> None:
        self._put(f"acks/{stream}/{site}.json", ack)

    def acks(self, stream: str) -> dict[str, bytes]:
        found = {}
        for path in self._list(f"acks/{stream}/"):
            if match := _ACK.fullmatch(path):
                with suppress(FileNotFoundError):  # listed, and gone since
                    found[match[2]] = self._get(path)
        return found

    def trim_frames(self, stream: str, paths: Iterable[str]) -> None:
        self._delete(list(paths))

    def trim_manifest(self, stream: str, number: int) -> None:
        self._delete([_manifest_path(stream, number)])

    def frames(self, stream: str) -> list[tuple[str, float]]:
        return sorted(
            (meta["path"], meta["last_modified"].timestamp())
            for meta in self._metas(f"frames/{stream}/")
        )

    def now(self) -> float:
        path = f"wan-clock-{uuid.uuid4().hex}"
        self._put(path, b"")
        try:
            return float(obstore.head(self._store, path)["last_modified"].timestamp())
        except (BaseError, OSError) as error:
            raise self._failed("read", path, error) from error
        finally:
            self._delete([path])

    def foreign(self) -> list[str]:
        known = (_MANIFEST, _AGAIN, _FRAME, _ACK, _PROBE)
        return [
            path
            for path in self._list("")
            if path != MARKER and not any(form.fullmatch(path) for form in known)
        ]

    def _create(self, path: str, data: bytes) -> bool:
        try:
            obstore.put(self._store, path, data, mode="create")
        except AlreadyExistsError:
            return False
        except (BaseError, OSError) as error:
            raise self._failed("write", path, error) from error
        return True

    def _put(self, path: str, data: bytes) -> None:
        try:
            obstore.put(self._store, path, data)
        except (BaseError, OSError) as error:
            raise self._failed("write", path, error) from error

    def _get(self, path: str) -> bytes:
        try:
            return bytes(obstore.get(self._store, path).bytes())
        except FileNotFoundError:
            raise
        except (BaseError, OSError, ValueError) as error:
            raise self._failed("read", path, error) from error

    def _metas(self, prefix: str) -> list[Any]:
        try:
            return [
                meta for page in obstore.list(self._store, prefix=prefix or None) for meta in page
            ]
        except (BaseError, OSError) as error:
            raise self._failed("list", prefix, error) from error

    def _list(self, prefix: str) -> list[str]:
        return sorted(meta["path"] for meta in self._metas(prefix))

    def _delete(self, paths: list[str]) -> None:
        for path in paths:
            try:
                obstore.delete(self._store, path)
            except FileNotFoundError:
                continue
            except (BaseError, OSError) as error:
                raise self._failed("delete", path, error) from error

    def _failed(self, verb: str, path: str, error: Exception) -> ChannelError:
        return ChannelError(
            f"channel {self.url}: cannot {verb} {path!r} ({first_line(error)}). Check permissions, space and the "
            "storage options; nothing is lost, it will be tried again."
        )


def _manifest_path(stream: str, number: int) -> str:
    return f"log/{stream}/{number:020d}.json"


def _again_path(stream: str, number: int, attempt: int) -> str:
    return f"log/{stream}/{number:020d}.again.{attempt}"


def first_line(error: Exception) -> str:
    """What an obstore error says, without its debug output."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
