"""The checkpoints of a site's log writers, in its state.

They detect a lost log (:mod:`spark_wan.log.lost_logs`). Where the user lets a new log begin, they
tell what the old one had published. Losing a checkpoint loses these two and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping

from spark_wan.errors import NewerRecordError
from spark_wan.state.objects import StateObjects
from spark_wan.wire.checkpoint import SenderCheckpoint
from spark_wan.wire.records import UPDATE


class StoredCheckpoints:
    """Checkpoints as small objects ``<url>/<stream>.json`` in a directory or an object store
    (:class:`spark_wan.log.writer.CheckpointStore`).

    Both methods raise ChannelError when the store does not answer."""

    def __init__(self, url: str, storage: Mapping[str, str] | None = None) -> None:
        self.objects = StateObjects(url, "the sender's checkpoint", storage)

    def load(self, stream: str) -> SenderCheckpoint | None:
        data = self.objects.read(stream)
        try:
            return None if data is None else SenderCheckpoint.decode(data)
        except NewerRecordError as error:
            raise NewerRecordError(
                f"{stream}: the sender's checkpoint {self.objects.url}/{stream}.json was {error}. "
                f"{UPDATE}"
            ) from error

    def save(self, stream: str, checkpoint: SenderCheckpoint) -> None:
        self.objects.write(stream, checkpoint.encode())
