"""The events of a change as a DataFrame: what each stage of the target passes on to the next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field, replace

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_wan.delta.dataframes import select_columns
from spark_wan.delta.key_list import KeyList
from spark_wan.target.constraints import Constraints

CAUSE = "_wan_cause"
"""Column with the cause for which an event cannot be applied; null when it can."""
EXACT_JSON = {
    "ignoreNullFields": "false",
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""Options of ``to_json``: with nulls, in UTC, and to the microsecond."""


@dataclass(frozen=True)
class EventRows:
    """Events of a :class:`~spark_wan.apply.change.Change`."""

    frame: DataFrame
    """One row per event: the ``_wan_`` columns and the table's ``columns``."""
    columns: list[str]
    keys: tuple[str, ...]
    _: KW_ONLY
    constraints: Constraints | None = None
    """What the target may refuse; None: it takes every row."""
    key_list: KeyList | None = None
    """The keys of the decoded events, if they are few."""
    partitioned: Sequence[str] = ()
    """The target's partition columns."""
    replaceable: bool = False
    """Whether :meth:`spark_wan.target.write.MarkedWrite.replace` may write them."""
    dead: DataFrame | None = None
    """Events that cannot be applied, each with its :data:`CAUSE`."""
    new_ids: DataFrame | None = None
    """Event ID, content hash and time of the events of a user stream that are applied."""
    persisted: list[DataFrame] = field(default_factory=list)
    """What is cached until the change is written, by all stages."""

    def persist(self, frame: DataFrame) -> DataFrame:
        persisted = frame.persist()
        self.persisted.append(persisted)
        return persisted

    def release(self) -> None:
        for frame in self.persisted:
            frame.unpersist()

    def without(self, rejected: DataFrame) -> EventRows:
        """Return the same with more dead letters. ``frame`` stays: the caller takes them out."""
        dead = self.dead
        if dead is not None:
            rejected = dead.unionByName(rejected, allowMissingColumns=True)
        return replace(self, dead=rejected)

    def key_json(self) -> Column:
        if not self.keys:
            return F.lit(None).cast("string")
        return F.to_json(F.struct(*select_columns(self.keys)), EXACT_JSON)
