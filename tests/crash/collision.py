"""A commit of another writer in the middle of a write."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder, write_deltalake


class Collision:
    """Lets ``writer`` commit to ``target`` in the first call, which makes the file ``collided``.

    ``writer`` is ``OPTIMIZE`` or ``local writer``; neither changes rows. Calls may come from tasks.
    """

    def __init__(self, target: Path, writer: str, collided: Path) -> None:
        self.target, self.writer, self.collided = target, writer, collided

    def __call__(self) -> None:
        try:
            self.collided.touch(exist_ok=False)
        except FileExistsError:
            return
        self._collide()

    def _collide(self) -> None:
        table = DeltaTable(self.target)
        if self.writer == "OPTIMIZE":
            assert table.optimize.compact()["numFilesRemoved"], "nothing to compact: no collision"
            return
        rows = pa.table(QueryBuilder().register("t", table).execute("SELECT * FROM t").read_all())
        write_deltalake(self.target, rows, mode="overwrite")
