"""Where jobs that are rehearsed write: nowhere."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from spark_wan.apply.site_ack import SiteAck
from spark_wan.channels.objects import ObjectChannel, StoredObject
from spark_wan.log.stream_log import StreamLog
from spark_wan.log.writer import CheckpointStore
from spark_wan.wire.checkpoint import SenderCheckpoint
from spark_wan.wire.manifest import Manifest


class NoChannel(ObjectChannel):
    """A channel that takes everything and keeps nothing. It is also what a channel is that nobody
    has begun."""

    def create(self, path: str, data: bytes) -> bool:
        return True

    def put(self, path: str, data: bytes) -> None:
        """Keep nothing."""

    def read(self, path: str, max_bytes: int | None = None) -> bytes:
        raise FileNotFoundError(path)

    def stat(self, path: str) -> StoredObject:
        raise FileNotFoundError(path)

    def list_objects(self, prefix: str) -> list[StoredObject]:
        return []

    def list_paths(self, prefix: str, after: str = "", limit: int | None = None) -> list[str]:
        return []

    def delete(self, paths: Iterable[str]) -> None:
        """Nothing is there."""


class NoCheckpoints:
    """The checkpoints of a site whose state nobody has begun."""

    def load(self, stream: str) -> SenderCheckpoint | None:
        return None

    def save(self, stream: str, checkpoint: SenderCheckpoint) -> None:
        """Keep nothing."""


@dataclass
class UnwrittenCheckpoints:
    """The checkpoints of a sender as they are, and in memory what would be saved."""

    there: CheckpointStore
    saved: dict[str, SenderCheckpoint] = field(default_factory=dict)

    def load(self, stream: str) -> SenderCheckpoint | None:
        return self.saved.get(stream) or self.there.load(stream)

    def save(self, stream: str, checkpoint: SenderCheckpoint) -> None:
        self.saved[stream] = checkpoint


class UnwrittenLog(StreamLog):
    """A log as its writer reads it, and in memory what would be appended."""

    appended: Manifest | None = None
    """The newest manifest that would be there."""

    def newest_manifest(self, hint: int = 0) -> Manifest | None:
        return self.appended or super().newest_manifest(hint)

    def newest_epoch(self, hint: int = 0) -> int:
        return self.appended.epoch if self.appended is not None else super().newest_epoch(hint)

    def append(self, manifest: Manifest) -> Manifest:
        """Return the manifest as it would be added. Raises SigningKeyError."""
        if self.trust.signer is not None:
            manifest = manifest.signed_by(self.trust.signer)
        self.appended = manifest
        return manifest


class UnwrittenAck(SiteAck):
    """A site's ack that is read, and never written."""

    def _write(self) -> None:
        """Write nothing."""
