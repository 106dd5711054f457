"""How many events of a change a later one of their key supersedes. For reports: nothing is decided
by it. Imports no Spark, and runs no job: it counts what the driver decodes anyway, and else what
the manifests say.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from spark_wan.apply.change import Change
from spark_wan.wire.manifest import EVENTS

_COMPARED = (
    pa.types.is_integer,
    pa.types.is_boolean,
    pa.types.is_string,
    pa.types.is_binary,
    pa.types.is_date,
    pa.types.is_timestamp,
    pa.types.is_decimal,
)
"""Types of which Arrow holds the same values for equal as Spark does."""


def by_manifests(change: Change) -> int | None:
    """Return how many events are superseded, where no event has to be looked at; None: it is not
    known."""
    newest = change.newest
    if any(epoch.above >= 0 for epoch in change.epochs):
        return None
    # Netting leaves one event per key and commit.
    is_one_commit = len(change.epochs) == 1 and len(newest.commits) <= 1 and newest.kind != EVENTS
    return 0 if not newest.keys or is_one_commit else None


def by_keys(decoded: int, events: pa.Table, keys: Sequence[str]) -> int | None:
    """Return how many of the ``decoded`` events are superseded. ``events``: at least one of them
    for each key. None: not known, since the keys are of other types."""
    if not keys:
        return 0
    if not all(any(of(events.schema.field(key).type) for of in _COMPARED) for key in keys):
        return None
    distinct: int = events.group_by(list(keys)).aggregate([]).num_rows
    return decoded - distinct
