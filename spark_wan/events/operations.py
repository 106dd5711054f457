"""Events: row changes, and the IDs that never change.

An event is an operation (``create``, ``put``, ``destroy``), a key, values, and where it came from.
Its ID is computed from the source alone, never from position, partition, time of sending or chance.
So an event has the same ID however often it is captured, and whatever a receiver can compute from
header and row does not travel.

Columns that travel beside the table's own; names with the prefix ``_wan_`` are reserved:

==================  =========  ====================================================================
``_wan_op``         int8       0 create, 1 put, 2 destroy
``_wan_version``    int64      commit version at the origin (captured streams)
``_wan_id``         string     the event ID in the user's column (user streams)
``_wan_sequence``   int64      the user's order inside an epoch; absent or null: 0 (user streams)
``_wan_time``       int64      the user's event time, in microseconds since 1970 UTC, or null (user
                               streams)
==================  =========  ====================================================================
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from enum import IntEnum
from typing import Any

OP, VERSION, ID, SEQUENCE, TIME = "_wan_op", "_wan_version", "_wan_id", "_wan_sequence", "_wan_time"
CONTENT = "_wan_content"
"""Column with the hash of a user's event, its operation and columns. Receivers compute it."""
EVENT_ID_COLUMNS: Mapping[str, Any] = {
    "type": "struct",
    "fields": [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in (("event_id", "string"), ("content", "string"), ("time", "long"))
    ],
}
"""The event IDs of a copy, as Spark's schema JSON: the ID, the content hash, and the time, as
above."""
RESERVED_PREFIX = "_wan_"


class Operation(IntEnum):
    """What an event does to its key."""

    CREATE = 0
    PUT = 1
    DESTROY = 2


def keyed_event_id(table_id: str, version: int, key: tuple[Any, ...]) -> str:
    """Return the ID of a captured event of a keyed table: 32 hexadecimal digits.

    A commit has at most one event per key, so table ID, commit version and key are enough. ``key``
    holds the key columns' values as text, in the order of the topology: strings as they are,
    integers in decimal, and values of other types as the row hash of that column alone.
    """
    return _hex(["k", table_id, version, *key])


def keyless_event_id(table_id: str, version: int, content: str, occurrence: int) -> str:
    """Return the ID of a captured event without a key: 32 hexadecimal digits.

    Of an insert into a keyless table, and of a row that is a dead letter because its key has a null
    or another row. ``content`` is ``0`` for a destroy, else ``1``, and the row hash; ``occurrence``
    is the ordinal, from 0, among the commit's equal rows. Equal rows are exchangeable, so it says
    nothing of position.
    """
    return _hex(["r", table_id, version, content, occurrence])


def _hex(parts: list[Any]) -> str:
    text = json.dumps(parts, separators=(",", ":"), ensure_ascii=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
