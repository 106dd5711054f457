"""Netting: the change rows of a commit become at most one event per key. Bounded memory, no Spark.

Delta's change feed has ``insert``, ``delete``, ``update_preimage`` and ``update_postimage`` rows.
For each commit and key:

- an insert or post-image beats a delete: the event is a ``put`` if the key existed before, else a
  ``create``
- a pre-image or delete with neither is a ``destroy`` (so a key change is a destroy and a create)
- equal images are no event

Where keys are not unique, a key may still have a row after a destroy: see
:mod:`spark_wan.capture.remaining`.

Rows must be sorted by key, commit version and :data:`RANK` of their change type, with all rows of
a key in one sequence.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_wan.events.operations import OP, VERSION, Operation
from spark_wan.events.row_hash import row_hashes

CHANGE_TYPE, COMMIT_VERSION, RANK_COLUMN = "_change_type", "_commit_version", "_wan_rank"
KEY_HASH = "_wan_key_hash"
"""A hash of the key (int64), in rows that are captured as they are stored."""
RANK = {"update_preimage": 0, "delete": 0, "insert": 1, "update_postimage": 1}
"""0: the key's old row, 1: its new row."""
STILL_THERE = 2
"""Rank of a row that is not in the change feed: it is still there after all rows that are."""


@dataclass(frozen=True)
class Netted:
    """The events of some change rows, and the rows that cannot become events."""

    events: pa.RecordBatch
    run_starts: np.ndarray
    """Positions in ``events`` where another key begins."""
    duplicates: pa.RecordBatch
    """Their key has another row in the same commit."""
    still_there: int
    """Number of events whose row has the rank :data:`STILL_THERE`."""
    unchanged: int
    """Number of keys whose row a commit replaced by an equal one: they have no event."""


def net(batches: Iterable[pa.RecordBatch], keys: Sequence[str]) -> Iterator[Netted]:
    """Net sorted change rows, which have their version and rank (int8) as columns.

    Events have the columns ``_wan_op`` and ``_wan_version`` in front instead.
    """
    last_key: pa.RecordBatch | None = None
    for rows, starts in _whole_groups(batches, [*keys, COMMIT_VERSION]):
        events, duplicates, still_there = _net_groups(rows, starts)
        run_starts, last_key = _run_starts(events, keys, last_key)
        unchanged = len(starts) - events.num_rows
        yield Netted(events, run_starts, duplicates, still_there, unchanged)


def _whole_groups(
    batches: Iterable[pa.RecordBatch], columns: Sequence[str]
) -> Iterator[tuple[pa.RecordBatch, np.ndarray]]:
    """Rows such that no group, of equal ``columns``, is split; with the positions of the groups."""
    carried: pa.RecordBatch | None = None
    for batch in batches:
        if batch.num_rows == 0:
            continue
        rows = batch if carried is None else pa.concat_batches([carried, batch])
        starts = _group_starts(rows, columns)
        end = int(starts[-1])
        carried = rows.slice(end)  # the last group may go on in the next batch
        if end:
            yield rows.slice(0, end), starts[:-1]
    if carried is not None:
        yield carried, np.zeros(1, np.int64)


def _net_groups(
    rows: pa.RecordBatch, starts: np.ndarray
) -> tuple[pa.RecordBatch, pa.RecordBatch, int]:
    """The events of whole groups, their duplicates, and how many events are rows that are still
    there."""
    ranks = rows.column(RANK_COLUMN).to_numpy(zero_copy_only=False)
    new = ranks > 0
    ends = np.append(starts[1:], rows.num_rows)
    winners = ends - 1
    has_new, has_old = new[winners], ~new[starts]
    content = own_columns(rows)
    duplicates = np.zeros(rows.num_rows, bool)
    for group in np.flatnonzero(np.add.reduceat(new.astype(np.int64), starts) > 1):
        same_key = np.arange(starts[group], ends[group])
        winners[group], others = _choose(content, same_key[new[same_key]])
        duplicates[others] = True
    keep = np.ones(len(starts), bool)
    # A row that is still there is an event even if it equals the one that has gone: the remote
    # sites may have a third.
    still_there = ranks[winners] == STILL_THERE
    pairs = np.flatnonzero(has_new & has_old & ~still_there & (ends - starts == 2))
    if len(pairs):
        keep[pairs] = ~_equal_rows(content, starts[pairs], winners[pairs])
    ops = np.where(has_new, np.where(has_old, Operation.PUT, Operation.CREATE), Operation.DESTROY)
    versions = rows.column(COMMIT_VERSION)
    if len(starts) < rows.num_rows or not keep.all():
        chosen = pa.array(winners[keep])
        versions, content = versions.take(chosen), content.take(chosen)
    events = with_event_columns(ops[keep], versions, content)
    return events, rows.filter(pa.array(duplicates)), int(still_there.sum())


class LastDestroys:
    """Finds the keys whose last event is a destroy. Gets events in order, as :func:`net` yields
    them."""

    def __init__(self, keys: Sequence[str]) -> None:
        self._columns = [*keys, VERSION, OP]
        self._last: pa.RecordBatch | None = None
        """The newest event: the next batch may have more events of its key."""

    def of(self, netted: Netted) -> pa.RecordBatch | None:
        """Return those of which this is known now, with the version; None: there are none."""
        if netted.events.num_rows == 0:
            return None
        events = netted.events.select(self._columns)
        starts = netted.run_starts
        ended = events.take(pa.array(starts[starts > 0] - 1))
        if self._last is not None and len(starts) and starts[0] == 0:
            ended = pa.concat_batches([self._last, ended])
        self._last = events.slice(events.num_rows - 1)
        return _destroys(ended)

    def end(self) -> pa.RecordBatch | None:
        """Return the last of them, after all events."""
        return None if self._last is None else _destroys(self._last)


def _destroys(events: pa.RecordBatch) -> pa.RecordBatch | None:
    chosen = pc.equal(events.column(OP), pa.scalar(int(Operation.DESTROY), pa.int8()))
    found = events.filter(chosen)
    return found.select(found.schema.names[:-1]) if found.num_rows else None


def without_key(rows: pa.RecordBatch, keys: Sequence[str]) -> pa.BooleanArray:
    """Which rows have a null in their key: they cannot be netted."""
    return reduce(pc.or_, [rows.column(key).is_null() for key in keys])


def own_columns(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The table's own columns of change rows."""
    feed = (RANK_COLUMN, COMMIT_VERSION, CHANGE_TYPE, KEY_HASH)
    return rows.select([name for name in rows.schema.names if name not in feed])


def with_event_columns(
    ops: np.ndarray, versions: pa.Array, content: pa.RecordBatch
) -> pa.RecordBatch:
    """Return events: operations, commit versions and the table's own columns."""
    fields = [pa.field(OP, pa.int8()), pa.field(VERSION, pa.int64()), *content.schema]
    columns = [pa.array(ops.astype(np.int8)), versions, *content.columns]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def _run_starts(
    events: pa.RecordBatch, keys: Sequence[str], last_key: pa.RecordBatch | None
) -> tuple[np.ndarray, pa.RecordBatch | None]:
    """Where another key begins, also compared with the last key before; and the new last key."""
    if events.num_rows == 0:
        return np.zeros(0, np.int64), last_key
    key_rows = events.select(list(keys))
    starts = _group_starts(key_rows, keys)
    if last_key is not None:
        seam = pa.concat_batches([last_key, key_rows.slice(0, 1)])
        if len(_group_starts(seam, keys)) == 1:
            starts = starts[1:]
    return starts, key_rows.slice(events.num_rows - 1)


def _choose(content: pa.RecordBatch, positions: np.ndarray) -> tuple[int, list[int]]:
    """Choose among several new rows of one key in one commit: the source broke its own key.

    One of them is sent, chosen by content and not by position. The second result are the
    duplicates: the others, where they differ from it.
    """
    hashes = map(tuple, row_hashes(content.take(pa.array(positions))).tolist())
    ordered = sorted(zip(hashes, positions.tolist(), strict=True))
    winning_hash, winner = ordered[-1]
    return winner, [position for each, position in ordered[:-1] if each != winning_hash]


def _group_starts(rows: pa.RecordBatch, columns: Sequence[str]) -> np.ndarray:
    """Positions where a column differs from the row before, and 0. The columns have no nulls."""
    count = rows.num_rows
    changed = np.zeros(count, bool)
    changed[0] = True
    for name in columns:
        column = rows.column(name)
        differs = pc.not_equal(column.slice(1), column.slice(0, count - 1))
        changed[1:] |= differs.to_numpy(zero_copy_only=False)
    return np.flatnonzero(changed)


def _equal_rows(rows: pa.RecordBatch, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Which pairs of rows are equal to the bit. Compares the cheap columns of all pairs first."""
    open_pairs = np.arange(len(left))
    nested = []
    for field in rows.schema:
        words = _as_words(field.type)
        if words is None:
            nested.append(field.name)
            continue
        column = rows.column(field.name).view(words)
        one = column.take(pa.array(left[open_pairs]))
        other = column.take(pa.array(right[open_pairs]))
        same = pc.or_(
            pc.fill_null(pc.equal(one, other), False), pc.and_(one.is_null(), other.is_null())
        )
        open_pairs = open_pairs[same.to_numpy(zero_copy_only=False)]
    if len(open_pairs) and nested:
        one = row_hashes(rows.take(pa.array(left[open_pairs])), nested)
        other = row_hashes(rows.take(pa.array(right[open_pairs])), nested)
        open_pairs = open_pairs[(one == other).reshape(len(open_pairs), -1).all(axis=1)]
    equal = np.zeros(len(left), bool)
    equal[open_pairs] = True
    return equal


def _as_words(kind: pa.DataType) -> pa.DataType | None:
    """The integer type of the same width, to compare bits (NaN, -0.0); None: no fixed width."""
    if pa.types.is_integer(kind):
        return kind
    if pa.types.is_float64(kind) or pa.types.is_timestamp(kind):
        return pa.int64()
    if pa.types.is_float32(kind) or pa.types.is_date32(kind):
        return pa.int32()
    return None
