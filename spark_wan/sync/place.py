"""The place of a backup: a directory or a URL, its files, and its certificate. Imports no Spark.

A backup is what its certificate says, file by file. So whatever carries it (a disk, a courier, a
copy between stores) cannot change it unnoticed.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError

from spark_wan.channels.object_store import advice, first_line, open_store
from spark_wan.channels.parallel import in_order
from spark_wan.errors import BackupError
from spark_wan.wire.certificate import (
    CERTIFICATE,
    MAX_CERTIFICATE_BYTES,
    BackupFile,
    Certificate,
)
from spark_wan.wire.names import shown

HASHED_AT_ONCE = 4
"""Number of files that are read at the same time."""
_CHUNK = 8 * 2**20
"""Bytes of a file in memory."""


@dataclass(frozen=True)
class Place:
    """Where a backup is, or will be. Raises BackupError when it cannot be read or written."""

    url: str
    """A directory (absolute), or the URL of an object store."""
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)

    def check_free(self) -> None:
        """Raise BackupError unless there is nothing at the place."""
        found = next(iter(self.sizes()), None) or (CERTIFICATE if self._has_certificate() else None)
        if found is not None:
            raise BackupError(
                f"{self.url}: there is something at this place already ({shown(found)}), perhaps "
                "of a backup that was interrupted. Nothing is written there. Name another place, "
                "or remove what is there."
            )

    def sizes(self) -> dict[str, int]:
        """Return the files at the place, but the certificate, with their sizes in bytes."""
        with self._errors("read"):
            files = self._local_files() if self._directory else self._remote_files()
            return {path: size for path, size in sorted(files) if path != CERTIFICATE}

    def digested(self) -> tuple[BackupFile, ...]:
        """Read all files at the place, and return what a certificate says of them."""
        paths = list(self.sizes())
        read = zip(paths, self._read_all(paths), strict=True)
        return tuple(BackupFile(path, size, digest) for path, (size, digest) in read)

    def check(self, certificate: Certificate) -> None:
        """Raise BackupError unless the files at the place are exactly those of its certificate."""
        there, named = self.sizes(), {file.path: file for file in certificate.files}
        if missing := sorted(named.keys() - there.keys()):
            raise self._not_whole(f"file {missing[0]} is missing{_and_others(missing)}")
        if extra := sorted(there.keys() - named.keys()):
            raise BackupError(
                f"{self.url}: file {shown(extra[0])} is no part of the backup"
                f"{_and_others(extra)}. Nothing of it is used. Find out who wrote the file, and "
                "remove it."
            )
        changed = [path for path, size in there.items() if size != named[path].bytes]
        if not changed:
            read = zip(there, self._read_all(list(there)), strict=True)
            changed = [path for path, (_, digest) in read if digest != named[path].digest]
        if changed:
            raise self._not_whole(f"file {changed[0]} was changed{_and_others(changed)}")

    def certificate(self) -> Certificate:
        """Read the certificate."""
        with self._errors("read"):
            data = self._get_certificate()
        if data is None:
            there = bool(self.sizes())
            raise BackupError(
                f"{self.url}: there is no backup at this place: it has no {CERTIFICATE}, which is "
                "written last. "
                + (
                    "What is there is of a backup that was interrupted, or was not copied whole, "
                    "or was not made by `spark-wan backup`. Nothing of it is used. Make another "
                    "backup at another place."
                    if there
                    else "Check the path."
                )
            )
        return Certificate.decode(data, f"{self.url}/{CERTIFICATE}")

    def put_certificate(self, certificate: Certificate) -> None:
        """Write the certificate, unless there is one."""
        data = certificate.encode()
        try:
            with self._errors("written to"):
                if self._directory is None:
                    obstore.put(self._store, CERTIFICATE, data, mode="create")
                    return
                path = self._directory / CERTIFICATE
                if path.exists():
                    raise FileExistsError
                # Whole or not at all. Disks that are carried often cannot link files.
                part = self._directory / f".{CERTIFICATE}.{certificate.backup}"
                with part.open("xb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                part.rename(path)
        except (AlreadyExistsError, FileExistsError):
            raise BackupError(
                f"{self.url}: another backup was made at this place meanwhile. Remove both, and "
                "make a backup at a place of its own."
            ) from None

    def _not_whole(self, cause: str) -> BackupError:
        return BackupError(
            f"{self.url}: {cause}: the backup is not as it was made. Nothing of it is used. Copy "
            "it again, or make another one."
        )

    @cached_property
    def _directory(self) -> Path | None:
        is_url = "://" in self.url and not self.url.startswith("file://")
        return None if is_url else Path(self.url.removeprefix("file://"))

    @cached_property
    def _store(self) -> Any:
        return open_store(self.url, self.storage)

    def _has_certificate(self) -> bool:
        with self._errors("read"):
            return self._get_certificate() is not None

    def _get_certificate(self) -> bytes | None:
        """Return the certificate as it is there; None: it is not."""
        try:
            if self._directory is None:
                found = obstore.get(self._store, CERTIFICATE)
                self._check_size(found.meta["size"])
                return bytes(found.bytes())
            path = self._directory / CERTIFICATE
            self._check_size(path.stat().st_size)
            return path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def _check_size(self, size: int) -> None:
        if size > MAX_CERTIFICATE_BYTES:
            raise BackupError(
                f"{self.url}/{CERTIFICATE}: it has {size:,} bytes, which no certificate has. "
                "Nothing of the backup is used. Copy it again, or make another one."
            )

    def _local_files(self) -> Iterator[tuple[str, int]]:
        assert self._directory is not None

        def fail(error: OSError) -> None:
            if not isinstance(error, FileNotFoundError) or error.filename != str(self._directory):
                raise error

        for folder, _, names in os.walk(self._directory, onerror=fail):
            for name in names:
                path = Path(folder) / name
                relative = path.relative_to(self._directory).as_posix()
                # A link may lead elsewhere: it is no file of the backup.
                yield relative, -1 if path.is_symlink() else path.stat().st_size

    def _remote_files(self) -> Iterator[tuple[str, int]]:
        for page in obstore.list(self._store):
            for meta in page:
                yield meta["path"], meta["size"]

    def _read_all(self, paths: Sequence[str]) -> Iterator[tuple[int, str]]:
        """Yield size and digest of each file."""
        with self._errors("read"):
            yield from in_order(self._read, paths, at_once=HASHED_AT_ONCE)

    def _read(self, path: str) -> tuple[int, str]:
        found, size = hashlib.sha256(), 0
        for chunk in self._chunks(path):
            found.update(chunk)
            size += len(chunk)
        return size, found.hexdigest()

    def _chunks(self, path: str) -> Iterator[bytes]:
        if self._directory is None:
            for part in obstore.get(self._store, path).stream(min_chunk_size=_CHUNK):
                yield bytes(part)
            return
        with (self._directory / path).open("rb") as file:
            while chunk := file.read(_CHUNK):
                yield chunk

    @contextmanager
    def _errors(self, verb: str) -> Iterator[None]:
        try:
            yield
        except FileExistsError:
            raise
        except (BaseError, OSError, ValueError, TypeError) as error:
            if isinstance(error, AlreadyExistsError):
                raise
            raise BackupError(
                f"{self.url}: the place of the backup cannot be {verb} ({first_line(error)}). "
                + advice(error, "Check the path, the disk and its permissions.")
            ) from error


def _and_others(paths: Sequence[str]) -> str:
    return f" (and {len(paths) - 1:,} others)" if len(paths) > 1 else ""
