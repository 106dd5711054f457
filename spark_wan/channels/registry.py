"""Which class opens a channel's URL.

To add a kind of channel, write a subclass of :class:`~spark_wan.channels.base.Channel` in a module
beside :mod:`spark_wan.channels.object_store`, and add the scheme of its URLs to ``CHANNELS``. A
topology may then use the scheme.
"""

from __future__ import annotations

from collections.abc import Mapping
from pkgutil import resolve_name

from spark_wan.channels.base import Channel
from spark_wan.errors import ChannelError, nearest

OBJECT_STORE = "spark_wan.channels.object_store:ObjectStoreChannel"
CHANNELS = dict.fromkeys(("file", "memory", "s3", "s3a", "gs", "az", "abfs", "abfss"), OBJECT_STORE)
"""URL scheme -> class, imported when a channel is opened. A directory has the scheme ``file``."""


def open_channel(url: str, storage: Mapping[str, str] | None = None) -> Channel:
    """Return the channel at a directory or URL, with its store's options ``storage``.

    Sends no request: the first call, or ``prepare()``, shows whether the store answers. Raises
    ChannelError for an unknown scheme.
    """
    scheme = url.partition("://")[0] if "://" in url else "file"
    if scheme not in CHANNELS:
        known = nearest(scheme, CHANNELS)
        raise ChannelError(f"channel {url}: cannot be opened (unknown scheme {scheme!r}; {known})")
    kind: type[Channel] = resolve_name(CHANNELS[scheme])
    return kind(url, storage)
