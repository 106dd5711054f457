"""A sink with a trigger: while the file ``<checkpoint>.armed`` exists, a process dies at the step
that it names.

``sink.3`` kills the process that commits. ``task`` fails a task after it has written its frames.
The trigger works once: the file is deleted first.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from spark_wan.datasource.format import WanDataSource
from spark_wan.datasource.sink import WanStreamWriter
from spark_wan.steps import CRASH_VARIABLE

if TYPE_CHECKING:
    from sites import Sites


class ArmedWriter(WanStreamWriter):
    trigger: Path

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        written = super().write(iterator)
        if self.trigger.exists() and self.trigger.read_text() == "task":
            self.trigger.unlink()
            raise RuntimeError("this attempt fails after it has written its frames")
        return written

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        if self.trigger.exists():
            os.environ[CRASH_VARIABLE] = self.trigger.read_text()
            self.trigger.unlink()
        super().commit(messages, batchId)


class ArmedDataSource(WanDataSource):
    @classmethod
    def name(cls) -> str:
        return "wan_armed"

    def streamWriter(self, schema: StructType, overwrite: bool) -> ArmedWriter:
        writer = super().streamWriter(schema, overwrite)
        writer.__class__ = ArmedWriter
        writer.trigger = Path(self.options["path"])
        return writer

    @classmethod
    def start(cls, rows: Any, sites: Sites, checkpoint: str) -> Any:
        """Start a query that sends ``rows`` as clicks, then ends."""
        writer = rows.writeStream.format(cls.name()).trigger(availableNow=True)
        options = {
            **sites.sink_options("clicks"),
            "checkpointLocation": checkpoint,
            "path": f"{checkpoint}.armed",
        }
        return writer.options(**options).start()
