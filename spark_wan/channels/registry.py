"""Which class opens a channel's URL.

To add a kind of channel, write a subclass of :class:`~spark_wan.channels.base.Channel` in a module
beside :mod:`spark_wan.channels.object_store` (or, where it stores objects by path, of
:class:`~spark_wan.channels.objects.ObjectChannel`), and add the scheme of its URLs to ``CHANNELS``.
A topology may then use the scheme.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pkgutil import resolve_name

from spark_wan.channels.base import Channel, opened
from spark_wan.errors import ChannelError, NotBegunError, install_command, nearest
from spark_wan.messages import message_log

log = message_log(__name__)

OBJECT_STORE = "spark_wan.channels.object_store:ObjectStoreChannel"
KAFKA = "spark_wan.channels.kafka.client:KafkaChannel"
CHANNELS = {
    **dict.fromkeys(("file", "memory", "s3", "s3a", "gs", "az", "abfs", "abfss"), OBJECT_STORE),
    "kafka": KAFKA,
}
"""URL scheme -> class, imported when a channel is opened. A directory has the scheme ``file``."""


def open_channel(url: str, storage: Mapping[str, str] | None = None) -> Channel:
    """Return the channel at a directory or URL, with its store's options ``storage``.

    A process has one object for it, and so one pool of connections. Sends no request: the first
    call, or ``prepare()``, shows whether the store answers. Raises ChannelError for an unknown
    scheme.
    """
    scheme = url.partition("://")[0] if "://" in url else "file"
    if scheme not in CHANNELS:
        known = nearest(scheme, CHANNELS)
        raise ChannelError(f"channel {url}: cannot be opened (unknown scheme {scheme!r}; {known})")
    return opened(_kind(scheme, url), url, storage)


def _kind(scheme: str, url: str) -> type[Channel]:
    try:
        kind: type[Channel] = resolve_name(CHANNELS[scheme])
    except ModuleNotFoundError as error:
        if error.name != "kafka":
            raise
        raise ChannelError(
            f"channel {url}: cannot be opened: kafka-python is not installed. Run "
            f"{install_command('kafka')} here, and on the machines where Spark's tasks run."
        ) from error
    return kind


def check_options(url: str, storage: Mapping[str, str]) -> None:
    """Raise ChannelError when a kind of channel cannot use its URL or an option, as far as that
    shows without the channel and the secrets of its users."""
    if url.partition("://")[0] == "kafka":
        from spark_wan.channels.kafka.options import parse_options  # most channels need none of it

        parse_options(url, storage, resolve=False)


def prepare_all(channels: Sequence[Channel], begins: bool = True) -> None:
    """Prepare the channels of a job that starts. Those that cannot be used yet are named in the
    log, and the job prepares them when they can (:meth:`Channel.ensure_prepared`).

    ``begins=False``, for a receiver: a channel that a sender has yet to begin can be waited for.
    Raises ChannelError when there is no other channel than those that cannot be used.
    """
    failed: list[tuple[Channel, ChannelError]] = []
    for channel in channels:
        try:
            channel.ensure_prepared(again=True)
        except ChannelError as error:
            failed.append((channel, error))
    waits = not begins and any(isinstance(each, NotBegunError) for _, each in failed)
    if failed and len(failed) == len(channels) and not waits:
        raise failed[0][1]
    for channel, refused in failed:
        log.error(
            "channel %s cannot be used yet: %s",
            channel.url,
            refused,
            event="channel-not-ready",
            channel=channel.url,
            cause=str(refused),
        )
