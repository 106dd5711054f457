"""What a sender keeps of a stream beside the channel."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from spark_wan.wire.manifest import Manifest
from spark_wan.wire.records import known_fields, upgraded

CHECKPOINT_VERSION = 2


@dataclass(frozen=True)
class PublishedState:
    """What the newest manifest says of its source: what follows must be the same table, in the state that the remote sites know."""

    through: int
    """The newest version that was published."""
    identity: str
    """Of that version's commit."""
    table_id: str
    keys: tuple[str, ...]
    schema: Mapping[str, Any]

    def __post_init__(self) -> None:
        object.__setattr__(self, "keys", tuple(self.keys))  # JSON has lists

    @classmethod
    def by(cls, manifest: Manifest) -> PublishedState:
        return cls(
            manifest.last_version,
            manifest.identity,
            manifest.table_id,
            manifest.keys,
            manifest.schema,
        )


@dataclass(frozen=True)
class SenderCheckpoint:
    """The last manifest that was seen of a stream, and the highest epoch that each site acked."""

    log_id: str
    epoch: int
    acked: Mapping[str, int] = field(default_factory=dict)
    published: PublishedState | None = None
    """By the manifest of ``epoch``; None: not known, or a user's stream."""
    swept: int = 0
    """When orphan frames of the stream were last removed, in milliseconds since 1970 UTC."""

    def encode(self) -> bytes:
        fields = {"version": CHECKPOINT_VERSION, **asdict(self)}
        kept = {
            name: value
            for name, value in fields.items()
            if name not in _LEFT_OUT or value != _LEFT_OUT[name]
        }
        return json.dumps(kept, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes) -> SenderCheckpoint | None:
        """None for what cannot be read: as good as lost."""
        try:
            fields = json.loads(data)
            if fields.pop("version") not in (1, CHECKPOINT_VERSION):
                return None
            fields = upgraded(fields)
            published = fields.get("published")
            fields["published"] = (
                None
                if published is None
                else PublishedState(**known_fields(PublishedState, published))
            )
            return cls(**known_fields(cls, fields))
        except (ValueError, TypeError, KeyError, AttributeError):
            return None


_LEFT_OUT = {"published": None, "swept": 0}
"""Fields that are not written while they have these values."""
