"""Channels that do something else while a process uses them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from spark_wan.channels.base import Channel


class ChannelWrapper:
    """A channel that passes every call on to ``inner``; it can be pickled."""

    def __init__(self, inner: Channel) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "inner" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self.inner, name)


class Collision:
    """Lets ``writer`` commit to ``target``, in each of the first ``times`` calls.

    ``writer`` is ``OPTIMIZE`` or ``local writer``; neither changes rows. Calls may come from tasks.
    """

    def __init__(self, target: Path, writer: str, counter: Path, times: int) -> None:
        self.target, self.writer, self.counter, self.times = target, writer, counter, times

    def __call__(self) -> None:
        for nth in range(self.times):
            try:
                Path(f"{self.counter}.{nth}").touch(exist_ok=False)
            except FileExistsError:
                continue
            self._collide()
            break

    def _collide(self) -> None:
        table = DeltaTable(self.target)
        if self.writer == "OPTIMIZE":
            assert table.optimize.compact()["numFilesRemoved"], "nothing to compact: no collision"
            return
        rows = pa.table(QueryBuilder().register("t", table).execute("SELECT * FROM t").read_all())
        write_deltalake(self.target, rows, mode="overwrite")
