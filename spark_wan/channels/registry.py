"""Which channel a URL means."""

from __future__ import annotations

from collections.abc import Mapping

from spark_wan.channels.base import Channel
from spark_wan.channels.object_store import ObjectStoreChannel


def open_channel(url: str, storage: Mapping[str, str] | None = None) -> Channel:
    """The channel at a directory or URL. Opens lazily: an error comes with the first call, or with ``prepare()``."""
    return ObjectStoreChannel(url, storage)
