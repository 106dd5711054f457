"""Netting: the change rows of a commit become at most one event per key. Arrow only, bounded memory.

Delta's change feed shows ``insert``, ``delete``, ``update_preimage`` and ``update_postimage`` rows. Per (commit, key):

- an insert or post-image beats a delete: the event is a ``put`` when the key was there before, else a ``create``
- a pre-image or delete with neither is a ``destroy`` (so a key change is a destroy and a create)
- equal images are nothing

Rows must come sorted by key, then commit version, then :data:`RANK` of their change type; all rows of a key in one sequence.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_wan.events.operations import OP, VERSION, Operation
from spark_wan.events.row_hash import row_hashes

CHANGE_TYPE, COMMIT_VERSION = "_change_type", "_commit_version"
RANK = {"update_preimage": 0, "delete": 0, "insert": 1, "update_postimage": 1}
"""0: the key's old row, 1: its new row."""


@dataclass(frozen=True)
class Netted:
    """Events of some rows, and rows that cannot become events: their key has another row in the same commit."""

    events: pa.RecordBatch
    run_starts: np.ndarray
    """Positions in ``events`` where another key begins."""
    duplicates: pa.RecordBatch


def net(
    batches: Iterable[pa.RecordBatch],
    keys: Sequence[str],
    version: str = COMMIT_VERSION,
    rank: str = "_wan_rank",
) -> Iterator[Netted]:
    """Net sorted change rows. ``rank`` is an int8 column with :data:`RANK`; it and the version column are replaced by
    ``_wan_op`` and ``_wan_version`` in front."""
    carried: pa.RecordBatch | None = None
    last_key: pa.RecordBatch | None = None
    for batch in batches:
        if batch.num_rows == 0:
            continue
        rows = batch if carried is None else pa.concat_batches([carried, batch])
        starts = _group_starts(rows, [*keys, version])
        # The last group may go on in the next batch.
        end = int(starts[-1])
        carried = rows.slice(end)
        if end:
            netted, last_key = _net_groups(
                rows.slice(0, end), starts[:-1], keys, version, rank, last_key
            )
            yield netted
    if carried is not None:
        yield _net_groups(carried, np.zeros(1, np.int64), keys, version, rank, last_key)[0]


def _net_groups(
    rows: pa.RecordBatch,
    starts: np.ndarray,
    keys: Sequence[str],
    version: str,
    rank: str,
    last_key: pa.RecordBatch | None,
) -> tuple[Netted, pa.RecordBatch | None]:
    count = rows.num_rows
    ends = np.append(starts[1:], count)
    new = rows.column(rank).to_numpy(zero_copy_only=False) == 1
    winners = ends - 1
    has_new = new[winners]
    has_old = ~new[starts]
    news = np.add.reduceat(new.astype(np.int64), starts)
    keep = np.ones(len(starts), bool)
    duplicates = np.zeros(count, bool)
    if (news > 1).any():
        winners, duplicates = _settle_duplicates(
            rows, starts, ends, news, new, winners, version, rank
        )
    pairs = np.flatnonzero(has_new & has_old & (ends - starts == 2))
    if len(pairs):
        keep[pairs] = ~_equal_rows(
            rows, starts[pairs], winners[pairs], exclude={rank, version, CHANGE_TYPE}
        )
    ops = np.where(
        has_new, np.where(has_old, Operation.PUT, Operation.CREATE), Operation.DESTROY
    ).astype(np.int8)
    chosen = winners[keep]
    taken = rows.take(pa.array(chosen))
    columns = [pa.array(ops[keep]), taken.column(version)]
    names = [OP, VERSION]
    for name in rows.schema.names:
        if name not in (rank, version, CHANGE_TYPE):
            columns.append(taken.column(name))
            names.append(name)
    fields = [pa.field(OP, pa.int8()), pa.field(VERSION, pa.int64())]
    fields += [rows.schema.field(name) for name in names[2:]]
    events = pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))
    run_starts, last_key = _runs(events, keys, last_key)
    return Netted(events, run_starts, rows.filter(pa.array(duplicates))), last_key


def _runs(
    events: pa.RecordBatch, keys: Sequence[str], last_key: pa.RecordBatch | None
) -> tuple[np.ndarray, pa.RecordBatch | None]:
    """Where another key begins, seen also against the last key of what came before."""
    if events.num_rows == 0:
        return np.zeros(0, np.int64), last_key
    key_rows = events.select(list(keys))
    starts = _group_starts(key_rows, keys)
    if (
        last_key is not None
        and len(_group_starts(pa.concat_batches([last_key, key_rows.slice(0, 1)]), keys)) == 1
    ):
        starts = starts[1:]
    return starts, key_rows.slice(events.num_rows - 1, 1)


def _settle_duplicates(
    rows: pa.RecordBatch,
    starts: np.ndarray,
    ends: np.ndarray,
    news: np.ndarray,
    new: np.ndarray,
    winners: np.ndarray,
    version: str,
    rank: str,
) -> tuple[np.ndarray, np.ndarray]:
    """Several new rows of one key in one commit: the source broke its own key. One of them is sent, by content and not by
    position; the others, where they differ from it, are set aside."""
    winners = winners.copy()
    aside = np.zeros(rows.num_rows, bool)
    content = [name for name in rows.schema.names if name not in (rank, version, CHANGE_TYPE)]
    for group in np.flatnonzero(news > 1):
        span = np.arange(starts[group], ends[group])
        span = span[new[span]]
        hashes = row_hashes(rows.take(pa.array(span)), content)
        ordered = sorted(zip(map(tuple, hashes.tolist()), span.tolist(), strict=True))
        winning_hash, winners[group] = ordered[-1]
        for found, position in ordered[:-1]:
            aside[position] = found != winning_hash
    return winners, aside


def _group_starts(rows: pa.RecordBatch, columns: Sequence[str]) -> np.ndarray:
    """Positions where any of the (null-free) columns differs from the row before; 0 is always one."""
    count = rows.num_rows
    changed = np.zeros(count, bool)
    changed[0] = True
    for name in columns:
        column = rows.column(name)
        differs = pc.not_equal(column.slice(1), column.slice(0, count - 1))
        changed[1:] |= differs.to_numpy(zero_copy_only=False)
    return np.flatnonzero(changed)


def _equal_rows(
    rows: pa.RecordBatch, left: np.ndarray, right: np.ndarray, exclude: set[str]
) -> np.ndarray:
    """Which pairs of rows are equal to the bit. Cheap columns first; only what is still equal is looked at further."""
    open_pairs = np.arange(len(left))
    fields = [field for field in rows.schema if field.name not in exclude]
    fixed = [field for field in fields if _as_words(field.type) is not None]
    nested = [field.name for field in fields if _as_words(field.type) is None]
    for field in fixed:
        words = rows.column(field.name).view(_as_words(field.type))
        one, other = words.take(pa.array(left[open_pairs])), words.take(pa.array(right[open_pairs]))
        same = pc.or_(
            pc.fill_null(pc.equal(one, other), False), pc.and_(one.is_null(), other.is_null())
        )
        open_pairs = open_pairs[same.to_numpy(zero_copy_only=False)]
        if not len(open_pairs):
            break
    if len(open_pairs) and nested:
        one = row_hashes(rows.take(pa.array(left[open_pairs])), nested)
        other = row_hashes(rows.take(pa.array(right[open_pairs])), nested)
        open_pairs = open_pairs[(one == other).reshape(len(open_pairs), -1).all(axis=1)]
    equal = np.zeros(len(left), bool)
    equal[open_pairs] = True
    return equal


def _as_words(kind: pa.DataType) -> pa.DataType | None:
    """The integer type of the same width, to compare bits (NaN, -0.0); None for what has no fixed width."""
    if pa.types.is_integer(kind):
        return kind
    if pa.types.is_float64(kind) or pa.types.is_timestamp(kind):
        return pa.int64()
    if pa.types.is_float32(kind) or pa.types.is_date32(kind):
        return pa.int32()
    return None
