"""Channels: the durable gateway queue between a sender and its receivers."""

from __future__ import annotations

from collections.abc import Mapping

from spark_wan.channels.base import Channel
from spark_wan.channels.log import Ack, StreamLog, acked_through
from spark_wan.channels.object_store import ObjectStoreChannel

__all__ = ["Ack", "Channel", "StreamLog", "acked_through", "open_channel"]


def open_channel(url: str, storage: Mapping[str, str] | None = None) -> Channel:
    """The channel at a directory or URL. Opens lazily: an error comes with the first call, or with ``prepare()``."""
    return ObjectStoreChannel(url, storage)
