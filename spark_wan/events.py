"""Events: one row change each, and the identity that it keeps for ever.

An event is an operation (``create``, ``put``, ``destroy``), a key, values, and where it came from. Its ID is computed from
the source alone: never from position, partition, time of sending or chance. So the same event has the same ID
however often it is captured, and what a receiver can compute again from header and row does not travel.

Columns that travel beside the table's own, all reserved (prefix ``_wan_``):

==================  =========  ======================================================================
``_wan_op``         int8       0 create, 1 put, 2 destroy
``_wan_version``    int64      commit version at the origin (captured streams)
``_wan_id``         string     the event ID that the user's stream named (user streams)
``_wan_sequence``   int64      the user's order inside an epoch; absent or null: 0 (user streams)
``_wan_time``       int64      the user's event time, microseconds since 1970 UTC, or null (user streams)
==================  =========  ======================================================================
"""

from __future__ import annotations

import hashlib
import json
from enum import IntEnum
from typing import Any

OP, VERSION, ID, SEQUENCE, TIME = "_wan_op", "_wan_version", "_wan_id", "_wan_sequence", "_wan_time"
RESERVED_PREFIX = "_wan_"

MARK = "spark_wan"
"""The key in a commit's ``userMetadata`` (a JSON object) under which spark_wan leaves its marks."""

LOCAL_ONLY = json.dumps({MARK: {"local_only": True}})
"""``userMetadata`` of a commit that must stay at its own site: ``df.write.option("userMetadata", LOCAL_ONLY)``."""


class Operation(IntEnum):
    """What an event does to its key."""

    CREATE = 0
    PUT = 1
    DESTROY = 2


def keyed_event_id(table_id: str, version: int, key: tuple[Any, ...]) -> str:
    """ID of a captured event of a keyed table: 32 hex digits of (table ID, commit version, key).

    At most one event exists per (commit, key), so nothing else is needed. ``key`` holds the key columns' values as text,
    in the order of the topology.
    """
    return _hex(["k", table_id, version, *key])


def keyless_event_id(table_id: str, version: int, content: str, occurrence: int) -> str:
    """ID of a captured insert of a keyless table: (table ID, commit version, row hash, how many-th of equal rows).

    Equal rows of one commit are exchangeable, so their ordinal among themselves is no position.
    """
    return _hex(["r", table_id, version, content, occurrence])


def read_mark(user_metadata: str | None) -> dict[str, Any] | None:
    """The mark that spark_wan (or a user, :data:`LOCAL_ONLY`) left in a commit's ``userMetadata``, or None."""
    if not user_metadata or MARK not in user_metadata:
        return None
    try:
        content = json.loads(user_metadata)
    except ValueError:
        return None
    mark = content.get(MARK) if isinstance(content, dict) else None
    return mark if isinstance(mark, dict) else None


def _hex(parts: list[Any]) -> str:
    text = json.dumps(parts, separators=(",", ":"), ensure_ascii=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
