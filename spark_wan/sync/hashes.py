"""Hashes of rows in tasks: for columns that SQL does not hash exactly. Imports no Spark.

SQL's own hash skips nulls inside arrays and structs, takes -0.0 for 0.0, and knows neither maps nor
variants. :mod:`spark_wan.events.row_hash` tells all of them apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from spark_wan.events.arrow_types import as_type
from spark_wan.events.row_hash import row_hashes


@dataclass(frozen=True)
class HashTask:
    """Replaces the columns ``hashed`` by an array of their hashes, the last column; the others,
    which come first, stay."""

    kept: int
    """Number of columns that stay."""
    hashed: tuple[str, ...]
    types: tuple[pa.DataType, ...]
    """As which they are hashed (:func:`spark_wan.sync.columns.fitted_type`)."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            columns = [
                as_type(batch.column(self.kept + place), kind)
                for place, kind in enumerate(self.types)
            ]
            content = pa.RecordBatch.from_arrays(columns, names=list(self.hashed))
            words = [row_hashes(content, [name])[:, 0] for name in self.hashed]
            values = np.stack(words, axis=1).reshape(-1).view(np.int64)
            ends = np.arange(0, len(values) + 1, len(self.hashed), dtype=np.int32)
            hashes = pa.ListArray.from_arrays(pa.array(ends), pa.array(values))
            yield pa.RecordBatch.from_arrays(
                [*batch.columns[: self.kept], hashes],
                names=[*batch.schema.names[: self.kept], "hashes"],
            )
