"""Small objects in a site's ``state``: the senders' checkpoints and the user's decisions."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import obstore
from obstore.exceptions import BaseError

from spark_wan.channels.object_store import first_line, open_store
from spark_wan.errors import ChannelError


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

    def _failed(self, verb: str, name: str, error: Exception) -> ChannelError:
        return ChannelError(
            f"{self.url}: cannot {verb} {self.what} of {name} ({first_line(error)}). Check that "
            "the site's `state` can be read and written; nothing is lost, and spark_wan will retry."
        )
