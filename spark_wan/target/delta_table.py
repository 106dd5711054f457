"""A Delta table as a target: the stages through which a change goes, and what the ledger reads.

Each stage is a module; what they pass on is :mod:`spark_wan.target.rows`:

    apply.3 read        *decode*, once :mod:`~spark_wan.target.evolve` has brought the columns;
                        of a backup :mod:`~spark_wan.target.backup_rows`
    apply.4 resolved    *deduplicate*, *judge*, *resolve*; *record* counts the dead letters
    apply.5 recorded    *record*
    apply.6 written     *write*
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, TypeVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from spark_wan.apply.change import Change, WriteConflict
from spark_wan.apply.plan import PlannedEpoch
from spark_wan.channels.base import Channel
from spark_wan.delta.commits import Commit
from spark_wan.delta.dataframes import schema_json
from spark_wan.delta.errors import ErrorKind, error_text
from spark_wan.delta.key_list import KeyList
from spark_wan.delta.log_files import LogFiles, last_transaction, logged_schema
from spark_wan.delta.schema import needs_column_mapping, portable_schema
from spark_wan.delta.sessions import CurrentSession, lost_session
from spark_wan.delta.sql import reference
from spark_wan.delta.tables import Retention, history, load, table_id
from spark_wan.errors import (
    DISK_FULL,
    FrameError,
    TargetError,
    TargetMissingError,
    WanError,
    is_disk_full,
)
from spark_wan.events.operations import EVENT_ID_COLUMNS
from spark_wan.ledger.applied_columns import AppliedColumns
from spark_wan.ledger.applied_ids import AppliedEventIds
from spark_wan.ledger.interfaces import TargetName, transaction_name
from spark_wan.ledger.tables import LedgerTables
from spark_wan.messages import message_log
from spark_wan.target.backup_rows import backup_rows
from spark_wan.target.column_changes import fitted
from spark_wan.target.constraints import ConstraintReader
from spark_wan.target.decode import FrameDecoder
from spark_wan.target.deduplicate import deduplicate, with_copied_ids
from spark_wan.target.evolve import SchemaEvolution, table_properties
from spark_wan.target.judge import judge
from spark_wan.target.partitions import partition_columns
from spark_wan.target.record import count_dead_letters, record
from spark_wan.target.resolve import resolve
from spark_wan.target.rows import EventRows
from spark_wan.target.write import MarkedWrite, is_listable, may_replace, write
from spark_wan.topology.model import MAX_DEAD_LETTERS, Site, Table
from spark_wan.topology.values import is_path
from spark_wan.wire.frame import MAX_FRAME_BYTES, decode_frame, most_bytes
from spark_wan.wire.manifest import Manifest
from spark_wan.wire.mark import LOCAL_ONLY, Mark

log = message_log(__name__)
T = TypeVar("T", bound="DeltaTarget")


@dataclass
class DeltaTarget:
    """A Delta table for the applier (see :class:`spark_wan.apply.change.TargetTable`)."""

    session: CurrentSession
    site: str
    table: str
    location: str
    _: KW_ONLY
    channel: Channel
    ledger: LedgerTables
    max_dead_letters: int = MAX_DEAD_LETTERS
    deletion_vectors: bool = True
    """Create the table with deletion vectors."""
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Options of the object store that has the table."""
    max_frame_bytes: int = MAX_FRAME_BYTES
    """See :class:`~spark_wan.topology.model.Site`."""
    known_id: Callable[[], str | None] = lambda: None
    """Returns the table's ID by the ledger, which all streams of the table share: another one may
    have taken a copy into a new table. None: the ledger knows no table yet."""
    _log_files: LogFiles = field(init=False)
    _id: str | None = None
    _end: tuple[int, object] | None = None
    """The newest version that the history returned, and how the log's files looked then."""
    _retention: Retention = field(init=False)
    _logged: tuple[object, dict[str, Any]] | None = None
    """Table ID and columns as Spark showed them, and the columns in the table's log then."""
    _refused: bool = False
    """The table has refused a row of the last write: the next apply checks everything."""

    @classmethod
    def at(
        cls: type[T],
        session: CurrentSession,
        site: Site,
        table: Table,
        *,
        channel: Channel,
        ledger: LedgerTables,
        known_id: Callable[[], str | None] = lambda: None,
    ) -> T:
        """Return a table of the topology at a site."""
        return cls(
            session,
            site.name,
            table.name,
            table.location(site.name),
            channel=channel,
            ledger=ledger,
            max_dead_letters=table.letters_allowed,
            deletion_vectors=table.deletion_vectors,
            storage=site.storage,
            max_frame_bytes=site.max_frame_bytes,
            known_id=known_id,
        )

    def __post_init__(self) -> None:
        self._log_files = LogFiles(self.location, self.storage)
        self._retention = Retention(self.location)

    @property
    def spark(self) -> SparkSession:
        return self.session.spark

    def table_id(self) -> str | None:
        with self._errors():
            self._id = table_id(self.spark, self.location)
        return self._id

    def history(self, after: int) -> list[Commit]:
        with self._errors():
            commits = history(self.spark, self.location, after, limit=8)
        if commits:
            newest = commits[-1].version
            seen = self._log_files.look(newest)
            self._end = None if seen is None else (newest, seen)
        return commits

    def is_unchanged(self, version: int) -> bool:
        # A table that was dropped and filled by a copy since may have the same versions: what is
        # written to it under the old table's next number, Delta would not refuse.
        seen = self._log_files.look(version, afresh=True)
        return self._end is not None and self._end == (version, seen)

    def log_retention(self) -> int:
        with self._errors():
            return self._retention.of_log(self.spark)

    def last_transaction(self, name: str) -> int | None:
        try:
            return last_transaction(self.spark, self.location, name)
        except Exception as error:
            if ErrorKind.CANCELLED.matches(error):
                raise
            # A user may not be allowed to read the files of a catalog's table.
            log.warning(
                "%s: the log's files at %s cannot be read (%s)",
                self.table,
                self.location,
                error_text(error),
                event="files-unreadable",
                table=self.table,
                what_to_do="Whether an apply is there is then found out from the table's history, "
                "which takes longer. Let this user read the files, if that matters.",
            )
            return None

    def is_empty(self) -> bool:
        with self._errors():
            return load(self.spark, self.location).isEmpty()

    @property
    def sql_name(self) -> str:
        return reference(self.location)

    @property
    def name(self) -> TargetName:
        return TargetName(self.table, self.site, self.sql_name)

    def create(self, epoch: PlannedEpoch) -> None:
        schema = StructType.fromJson(portable_schema(epoch.manifest.schema))
        with self._errors():
            writer = self.spark.createDataFrame([], schema).write.format("delta").mode("ignore")
            # Marked, so that it does not count as a user's write to the table.
            writer = writer.option("userMetadata", LOCAL_ONLY)
            # An update then marks a row as deleted, where it would rewrite the row's file.
            writer = writer.option("delta.enableDeletionVectors", self.deletion_vectors)
            if needs_column_mapping(epoch.manifest.schema):
                writer = writer.option("delta.columnMapping.mode", "name")
            if is_path(self.location):
                writer.save(self.location)
            else:
                writer.saveAsTable(self.sql_name)

    def read(self, change: Change, applied: AppliedColumns) -> None:
        newest = change.newest
        with self._errors():
            evolution = SchemaEvolution(
                self.spark, self.location, self.name, users=change.is_of_users
            )
            target = evolution.evolve(newest.schema, applied)
            travelling = portable_schema(fitted(newest.schema, schema_json(target)))
            schema = StructType.fromJson(travelling)
            properties = table_properties(self.spark, self.name)
            partitioned = partition_columns(self.spark, self.name)
            constraints = ConstraintReader(
                self.name,
                self.location,
                target,
                schema,
                keys=newest.keys,
                properties=properties,
                partitioned=partitioned,
                logged=lambda: self._logged_schema(target),
                refused=self._refused,
            ).read()
            frame, key_list = self._rows(change, schema, constraints is not None)
            if key_list is not None and not is_listable(key_list, schema, target.schema):
                key_list = None
            rows = EventRows(
                frame,
                schema.names,
                newest.keys,
                constraints=constraints,
                key_list=key_list,
                partitioned=partitioned,
            )
            change.rows = replace(rows, replaceable=may_replace(rows, target.schema, properties))

    def _rows(
        self, change: Change, schema: StructType, judged: bool
    ) -> tuple[DataFrame, KeyList | None]:
        """Return the events of a change, and their keys if they are few."""
        if change.backup is not None:
            return backup_rows(self.spark, change.backup, schema), None
        most = self.max_frame_bytes
        decoder = FrameDecoder(self.channel, change, schema, judged, max_frame_bytes=most)
        return decoder.frame(self.spark)

    def _copied_ids(self, manifest: Manifest) -> DataFrame:
        """Return the event IDs that a part of a copy has."""
        part = Change([PlannedEpoch(replace(manifest, keys=()), -1)])
        schema = StructType.fromJson(dict(EVENT_ID_COLUMNS))
        return self._rows(part, schema, judged=False)[0]

    def _logged_schema(self, target: DataFrame) -> dict[str, Any]:
        shown = (self._id, schema_json(target))
        if self._logged is None or self._logged[0] != shown or self._refused:
            self._logged = (shown, logged_schema(self.spark, self.location))
        return self._logged[1]

    def resolve(self, change: Change) -> None:
        with self._errors():
            rows: EventRows = change.rows
            if change.has_event_ids:
                origin, since = change.newest.origin, change.ids_since
                ids = AppliedEventIds(self.ledger, self.table, origin, since)
                rows = deduplicate(change, rows, ids)
            if change.copied_ids is not None:
                rows = with_copied_ids(change, rows, self._copied_ids(change.copied_ids))
            rows = judge(rows)
            rows = resolve(change, rows)
            change.rows = count_dead_letters(change, rows, self.name, self.max_dead_letters)
            if change.dead_letters or change.duplicates:
                change.superseded = None  # which keys these have was not counted

    def record(self, change: Change, mark: Mark) -> None:
        with self._errors(of_ledger=True):
            record(change, change.rows, mark, self.ledger)

    def write(self, change: Change, mark: Mark) -> None:
        # A copy may be the first commit to a new table, which the ledger does not know yet.
        target_id = self.table_id() if change.is_copy else self.known_id()
        target_id = target_id or self._id or self.table_id()
        transaction = transaction_name(self.site, self.table, str(target_id))
        with self._errors():
            write(change, change.rows, MarkedWrite(self.spark, self.location, transaction, mark))
        self._refused = False

    def done(self, change: Change) -> None:
        change.rows.release()

    def check_frames(self, epoch: PlannedEpoch) -> None:
        for ref in epoch.manifest.frames:
            where, most = f"{self.channel.url}/{ref.path}", self.max_frame_bytes
            data = self.channel.get_frame(ref.path, most_bytes(ref, where, most))
            decode_frame(data, where, ref, most)

    @contextmanager
    def _errors(self, of_ledger: bool = False) -> Iterator[None]:
        try:
            yield
        except (WanError, WriteConflict):
            raise
        except Exception as error:
            if ErrorKind.CANCELLED.matches(error) or lost_session(self.spark) is not None:
                raise
            if ErrorKind.CONFLICT.matches(error):
                raise WriteConflict(error_text(error)) from error
            if ErrorKind.ROW_REFUSED.matches(error) and not self._refused:
                self._refused = True
                raise WriteConflict(f"the table refuses a row: {error_text(error)}") from error
            if "FrameError" in str(error):
                # Raised inside a task: the caller checks the frames and finds the bad one.
                raise FrameError(error_text(error)) from error
            if of_ledger or self.ledger.is_named_in(error):
                raise self.ledger.error(error) from error
            is_missing = ErrorKind.MISSING.matches(error)
            kind = TargetMissingError if is_missing else TargetError
            state = "is missing" if is_missing else "cannot be read or written now"
            advice = f" {DISK_FULL}" if is_disk_full(error) else ""
            raise kind(
                f"{self.table}: the table at site {self.site} ({self.location}) {state}: "
                f"{error_text(error)}.{advice} The receiver will retry."
            ) from error
