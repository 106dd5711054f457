"""Change feeds of a source table, as Arrow batches."""

from __future__ import annotations

import pyarrow as pa


def changes(*keys: int | None) -> pa.RecordBatch:
    """Inserts of one commit, sorted as a task of the sender gets them."""
    rows = sorted(keys, key=lambda key: (key is not None, key or 0))
    return pa.RecordBatch.from_pydict(
        {
            "id": pa.array(rows, pa.int64()),
            "city": pa.array([f"city {n}" for n in range(len(rows))]),
            "_commit_version": pa.array([7] * len(rows), pa.int64()),
            "_wan_rank": pa.array([1] * len(rows), pa.int8()),
        }
    )
