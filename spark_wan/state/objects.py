"""Small objects in a site's ``state``: the senders' checkpoints and the user's decisions.

An object that one process writes is replaced (:meth:`StateObjects.write`). What several processes
of a site write is a log (:meth:`StateObjects.append`): each adds an entry under the next free
number, so that none replaces what another one writes at the same moment.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cached_property
from typing import Any

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError

from spark_wan.channels.object_store import advice, first_line, open_store
from spark_wan.errors import ChannelError

_ENTRY = re.compile(r"/([0-9]{20})\.json$")


def _entry(name: str, number: int) -> str:
    return f"{name}/{number:020d}.json"


class StateObjects:
    """Objects ``<url>/<name>.json`` in a directory or object store; errors call them ``what``."""

    def __init__(self, url: str, what: str, storage: Mapping[str, str] | None = None) -> None:
        self.url = url
        self.what = what
        self.storage = dict(storage or {})

    @cached_property
    def _store(self) -> Any:
        return open_store(self.url, self.storage)

    def read(self, name: str) -> bytes | None:
        """Return the object, or None. Raises ChannelError when the store does not answer."""
        try:
            return bytes(obstore.get(self._store, f"{name}.json").bytes())
        except FileNotFoundError:
            return None
        except (BaseError, OSError, ValueError, TypeError) as error:
            raise self._failed("read", name, error) from error

    def write(self, name: str, data: bytes) -> None:
        """Replace the object. Raises ChannelError when the store does not answer."""
        try:
            obstore.put(self._store, f"{name}.json", data)
        except (BaseError, OSError, ValueError, TypeError) as error:
            raise self._failed("write", name, error) from error

    def append(self, name: str, data: bytes) -> None:
        """Add an entry to the log ``<name>/``. Raises ChannelError when it cannot be written."""
        number = 1 + max(self.numbers(name), default=0)
        while not self.create(name, number, data):
            number += 1

    def create(self, name: str, number: int, data: bytes) -> bool:
        """Add an entry to a log under a number, unless there is one. Returns whether it was added.
        Raises ChannelError when it cannot be written."""
        try:
            obstore.put(self._store, _entry(name, number), data, mode="create")
        except AlreadyExistsError:
            return False
        except (BaseError, OSError, ValueError, TypeError) as error:
            raise self._failed("write", name, error) from error
        return True

    def replace(self, name: str, number: int, data: bytes) -> None:
        """Replace an entry of a log by the process that created it. Raises ChannelError."""
        self.write(_entry(name, number).removesuffix(".json"), data)

    def numbers(self, name: str) -> list[int]:
        """Return the numbers of a log's entries, ascending. Raises ChannelError."""
        try:
            return [int(_ENTRY.findall(path)[0]) for path in self._paths(name)]
        except (BaseError, OSError, ValueError, TypeError) as error:
            raise self._failed("read", name, error) from error

    def entry(self, name: str, number: int) -> tuple[str, bytes] | None:
        """Return an entry of a log, with its URL; None: there is none. Raises ChannelError."""
        path = _entry(name, number)
        try:
            return f"{self.url}/{path}", bytes(obstore.get(self._store, path).bytes())
        except FileNotFoundError:
            return None
        except (BaseError, OSError, ValueError, TypeError) as error:
            raise self._failed("read", name, error) from error

    def delete_entries(self, name: str, numbers: Iterable[int]) -> None:
        """Delete entries of a log. Raises ChannelError."""
        try:
            for number in numbers:
                with suppress(FileNotFoundError):
                    obstore.delete(self._store, _entry(name, number))
        except (BaseError, OSError, ValueError, TypeError) as error:
            raise self._failed("write", name, error) from error

    def entries(self, name: str) -> list[tuple[str, bytes]]:
        """Return the entries of a log with their URLs, oldest first. Raises ChannelError when the
        store does not answer."""
        try:
            return [
                (f"{self.url}/{path}", bytes(obstore.get(self._store, path).bytes()))
                for path in self._paths(name)
            ]
        except (BaseError, OSError, ValueError, TypeError) as error:
            raise self._failed("read", name, error) from error

    def _paths(self, name: str) -> list[str]:
        """Return the paths of a log's entries, oldest first."""
        pages = obstore.list(self._store, prefix=f"{name}/")
        return sorted(
            meta["path"] for page in pages for meta in page if _ENTRY.search(meta["path"])
        )

    def _failed(self, verb: str, name: str, error: Exception) -> ChannelError:
        return ChannelError(
            f"{self.url}: cannot {verb} {self.what} of {name} ({first_line(error)}). "
            + advice(error, "Check that the site's `state` can be read and written.")
            + " Nothing is lost, and spark_wan will retry."
        )
