"""What the notes of a stream mean: acks, head, announcement, pause, what its sender and its
receivers say of themselves, which events sites could not apply, and that jobs are there.

All are replaced as a whole. A head and an announcement (:mod:`spark_wan.wire.head`) are hints: one
that is damaged is none. What jobs say of themselves is for reports; ``wait_for_ack`` uses that of
the sender, too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from spark_wan.channels.base import Channel, Note, Version
from spark_wan.errors import NewerRecordError
from spark_wan.wire.head import Announcement, Head, Pause
from spark_wan.wire.heartbeat import Heartbeat
from spark_wan.wire.receiver_record import ReceiverRecord
from spark_wan.wire.sender_record import SenderRecord

T = TypeVar("T")


def put_head(channel: Channel, stream: str, epoch: int, manifest: bytes) -> None:
    """Show readers that a manifest was appended. Called right after it was: they find it without
    this hint, but up to some minutes later."""
    if not channel.orders_appends:  # else readers find it in the log
        channel.put_note(Note("head", stream), Head.by(epoch, manifest).encode())


def head(channel: Channel, stream: str) -> int:
    """Return the epoch of the last head, 0 without one."""
    found = Head.of(channel.note(Note("head", stream)))
    return 0 if found is None else found.epoch


def announce(channel: Channel, stream: str, epoch: int, attempt: int) -> None:
    """Announce again that the stream has epochs from ``epoch`` on. ``attempt`` is from 1."""
    channel.put_note(Note("again", stream), Announcement(epoch, attempt).encode())


def announced(channel: Channel, stream: str) -> tuple[int, int] | None:
    """Return epoch and attempt of the stream's announcement, if there is one."""
    found = Announcement.of(channel.note(Note("again", stream)))
    return None if found is None else (found.epoch, found.attempt)


def withdraw(channel: Channel, stream: str) -> None:
    """Delete the stream's announcement, once it is answered."""
    channel.put_note(Note("again", stream), None)


UNREADABLE_PAUSE = Pause(0, "somebody", 0)
"""A pause that is there, and cannot be read."""


def put_pause(channel: Channel, stream: str, pause: Pause | None) -> None:
    """Have no site take anything of the stream, or note until when it was so; None: forget it."""
    channel.put_note(Note("pause", stream), None if pause is None else pause.encode())


def last_pause(channel: Channel, stream: str) -> Pause | None:
    """Return the pause of a stream, also one that has ended."""
    data = channel.note(Note("pause", stream))
    return None if data is None else Pause.of(data) or UNREADABLE_PAUSE


def pause(channel: Channel, stream: str) -> Pause | None:
    """Return the pause of a stream, if it is paused."""
    found = last_pause(channel, stream)
    return found if found is not None and found.until is None else None


def pauses(channel: Channel) -> dict[str, Version]:
    """Return the version of the last pause of each stream that has been paused."""
    listed = channel.notes("heads").items()
    return {note.stream: version for note, version in listed if note.kind == "pause"}


def put_ack(channel: Channel, stream: str, site: str, data: bytes) -> None:
    channel.put_note(Note("ack", stream, site), data)


def ack(channel: Channel, stream: str, site: str) -> bytes | None:
    """Return the newest ack of a site for a stream, if there is one."""
    return channel.note(Note("ack", stream, site))


def acks(channel: Channel, stream: str) -> dict[str, bytes]:
    """Return the newest ack of every site for a stream."""
    return channel.read_acks(stream)


def ack_versions(channel: Channel) -> dict[str, dict[str, Version]]:
    """Return the version of each ack, by stream and site."""
    versions: dict[str, dict[str, Version]] = {}
    for note, version in channel.notes("acks").items():
        versions.setdefault(note.stream, {})[note.site] = version
    return versions


def put_sender_record(channel: Channel, record: SenderRecord) -> None:
    channel.put_note(Note("sender", record.stream), record.encode())


def sender_record(channel: Channel, stream: str) -> SenderRecord | None:
    """Return what the sender of a stream says; None when there is no record that can be read."""
    return _said(channel.note(Note("sender", stream)), lambda data: SenderRecord.of(data, stream))


def put_receiver_record(channel: Channel, record: ReceiverRecord) -> None:
    channel.put_note(Note("receiver", record.stream, record.site), record.encode())


def receiver_record(channel: Channel, stream: str, site: str) -> ReceiverRecord | None:
    """Return what the receiver of a site says of a stream; None when there is no record that can be
    read."""
    data = channel.note(Note("receiver", stream, site))
    return _said(data, lambda data: ReceiverRecord.of(data, stream, site))


def put_refused(channel: Channel, stream: str, site: str, data: bytes) -> None:
    channel.put_note(Note("refused", stream, site), data)


def refused(channel: Channel, stream: str, site: str) -> bytes | None:
    """Return the record of the events of a stream that a site could not apply, if there is one."""
    return channel.note(Note("refused", stream, site))


def put_heartbeat(channel: Channel, record: Heartbeat) -> None:
    channel.put_note(Note("heartbeat", record.sender, record.site), record.encode())


def heartbeat(channel: Channel, sender: str, site: str) -> Heartbeat | None:
    """Return the newest heartbeat of a site's job for a sender; None when there is none that can be
    read."""
    data = channel.note(Note("heartbeat", sender, site))
    return _said(data, lambda data: Heartbeat.of(data, sender, site))


def _said(data: bytes | None, read: Callable[[bytes], T | None]) -> T | None:
    """Return what a job says of itself. What a newer version has written is nothing: this one's job
    writes it anew."""
    try:
        return None if data is None else read(data)
    except NewerRecordError:
        return None
