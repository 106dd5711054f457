"""Tables that are backed up, through Spark: at the site that writes one, and at any other."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from spark_wan.delta.commits import Commit, is_same_commit
from spark_wan.delta.dataframes import has_key, schema_json, select_columns
from spark_wan.delta.errors import ErrorKind, error_text
from spark_wan.delta.schema import needs_column_mapping
from spark_wan.delta.sessions import CurrentSession, lost_session
from spark_wan.delta.sql import quoted
from spark_wan.delta.tables import history, load, newest_commit, table_exists, table_id
from spark_wan.errors import SYNC, BackupError, ChannelError, WanError
from spark_wan.events.columns import column_path
from spark_wan.ledger.event_ids import RecordedIds
from spark_wan.ledger.interfaces import TargetHistory
from spark_wan.ledger.ledger import Ledger
from spark_wan.ledger.origin import doubts
from spark_wan.ledger.store import DeltaLedgerStore
from spark_wan.log.stream_log import StreamLog
from spark_wan.log.writer import ALL_ROWS
from spark_wan.messages import message_log
from spark_wan.runtime.progress import under_way
from spark_wan.sync.backup import Cut
from spark_wan.topology.model import Table
from spark_wan.units import milliseconds
from spark_wan.wire.certificate import BackedUp
from spark_wan.wire.ledger import HistoryPosition, LedgerRecord, LedgerRow
from spark_wan.wire.mark import LOCAL_ONLY, VectorEntry

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = message_log(__name__)


@dataclass
class SparkTable:
    """A table at a site, for :class:`spark_wan.sync.backup.BackupMaker`. Each kind of site chooses
    the version in its own way."""

    session: CurrentSession
    site: str
    table: Table
    logs: Sequence[StreamLog]
    """Of the streams of the table that the site sends or receives."""

    @property
    def spark(self) -> SparkSession:
        spark: SparkSession = self.session.spark
        return spark

    @property
    def location(self) -> str:
        return self.table.location(self.site)

    def write(self, cut: Cut, place: str) -> None:
        from pyspark.sql import functions as F

        rows = self._rows(cut.source.version)
        # Plain columns: what belongs to this table alone, such as defaults, stays here.
        rows = rows.select(
            *(
                F.col(quoted(entry["name"])).alias(entry["name"], metadata={})
                for entry in cut.schema["fields"]
            )
        )
        writer = rows.write.format("delta").mode("error").option("userMetadata", LOCAL_ONLY)
        if needs_column_mapping(cut.schema):
            writer = writer.option("delta.columnMapping.mode", "name")
        with (
            self._errors(place),
            under_way("writing", self.table.name, self.site, rows=cut.rows, size=None),
        ):
            writer.save(place)

    def count(self, place: str) -> tuple[int, bool]:
        from pyspark.sql import functions as F

        with self._errors(place):
            rows = load(self.spark, place)
            if not self.table.keys:
                return rows.count(), True
            keys = self.table.keys
            [(number, with_key, distinct)] = rows.agg(
                F.count(F.lit(1)),
                F.count_if(has_key(keys)),
                F.count_distinct(*select_columns(keys)),
            ).collect()
            return number, with_key == distinct

    def _rows(self, version: int) -> DataFrame:
        return load(self.spark, self.location, versionAsOf=version)

    def _cut(
        self, commit: Commit, identity: str, vector: VectorEntry, columns: Collection[str] | None
    ) -> Cut:
        """``columns``: paths of those to back up; None: all."""
        with self._errors():
            rows = self._rows(commit.version)
            schema = schema_json(rows)
            fields = [
                entry
                for entry in schema["fields"]
                if columns is None or column_path((entry["name"],)) in columns
            ]
            source = BackedUp(identity, commit.version, commit.identity)
            schema = {**schema, "fields": fields}
            return Cut(source, vector, schema, rows.count(), created=milliseconds())

    def _no_backup(self, cause: str, advice: str) -> BackupError:
        return BackupError(
            f"{self.table.name}: no backup is made of the table at site {self.site}: {cause}. "
            f"{advice}"
        )

    @contextmanager
    def _errors(self, place: str | None = None) -> Iterator[None]:
        """Raise errors as BackupError. ``place``: of the backup that is written."""
        try:
            yield
        except Exception as error:
            if (
                isinstance(error, WanError)
                or ErrorKind.CANCELLED.matches(error)
                or lost_session(self.spark) is not None
            ):
                raise
            text = error_text(error)
            if ErrorKind.MISSING.matches(error) and place is None:
                raise self._no_backup(
                    f"there is none at {self.location} ({text})", "Check `at` in the topology."
                ) from error
            if ErrorKind.HISTORY_LOST.matches(error):
                raise self._no_backup(
                    f"files of the version that was read were deleted meanwhile ({text})",
                    "Raise delta.deletedFileRetentionDuration above the time that a backup takes, "
                    "and make another one at another place.",
                ) from error
            where = f"at {self.location}" if place is None else f"at {self.location} to {place}"
            raise self._no_backup(
                f"it cannot be read {where}, or written there: {text}",
                "What is at the place has no certificate, and is no backup. Remove it, check the "
                "disk and its permissions, and begin again.",
            ) from error


class WrittenTable(SparkTable):
    """A table at the site that writes it: its newest version is what its rows are."""

    def cut(self) -> Cut:
        with self._errors():
            identity = table_id(self.spark, self.location)
            if identity is None:
                raise self._no_backup(
                    f"there is no Delta table at {self.location}", "Check `at` in the topology."
                )
            commit = newest_commit(self.spark, self.location)
            self._check_published(identity, commit.version)
        vector = (self.site, identity, ALL_ROWS, commit.version)
        return self._cut(commit, identity, vector, None)

    def _check_published(self, identity: str, version: int) -> None:
        """Check that the table is the one, and in the state, that its streams tell of: as far as
        the channels can be read, since a backup may be carried because they cannot."""
        for each in self.logs:
            try:
                last = each.newest_manifest()
            except ChannelError as error:
                log.warning(
                    "%s: not compared with the backup: %s",
                    each.stream,
                    error,
                    event="backup-not-compared",
                    stream=each.stream,
                    cause=str(error),
                )
                continue
            if last is None:
                continue
            commits = history(self.spark, self.location, last.last_version - 1)
            there = [commit for commit in commits if commit.version == last.last_version]
            if (
                last.table_id != identity
                or version < last.last_version
                or not all(is_same_commit(commit.identity, last.identity) for commit in there)
            ):
                raise self._no_backup(
                    f"it is not the table, or not in the state, that {each.stream} tells of: it "
                    "was replaced, or restored to an older state",
                    "No site could go on behind the backup. The status of the table's sender says "
                    "what to do.",
                )


@dataclass
class ReceivedTable(SparkTable):
    """A table at a site that receives it: its newest mark says what its rows are."""

    target: TargetHistory
    ledger: Ledger

    def cut(self) -> Cut:
        ledger = self.ledger
        ledger.catch_up(self.target)
        self._check_clean()
        [vector] = ledger.progress.vector
        version, identity = ledger.known_version, str(ledger.target_id)
        with self._errors():
            commits = history(self.spark, self.location, version - 1)
        if not commits or commits[0].version != version:
            raise self._no_backup(
                f"its version {version} is no longer in its history", "Run the command again."
            )
        # Since the mark, no commit has changed a row.
        return self._cut(commits[0], identity, vector, ledger.columns.columns)

    def _check_clean(self) -> None:
        """Check that the table has the rows of its origin, and no others."""
        for cause in self._causes():
            raise self._no_backup(
                cause,
                f"Its rows are not those of the origin. Make the backup at site "
                f"{', '.join(self.table.writers)}, which writes the table; or give this site a "
                f"copy first: run {SYNC}.",
            )

    def _causes(self) -> Iterator[str]:
        """Yield why the table's rows are not, or may not be, those of the origin."""
        yield from doubts(self.ledger)
        if len(self.ledger.progress.vector) > 1:
            yield "it has rows of several tables, by its marks"
        for each in self.logs:
            try:
                ack = each.ack(self.site)
            except ChannelError as error:
                log.warning(
                    "%s: its ack is not known: %s",
                    each.stream,
                    error,
                    event="ack-unknown",
                    stream=each.stream,
                    cause=str(error),
                )
                continue
            if ack is not None and ack.needs is not None:
                yield f"the site needs a copy of it ({ack.needs.why}), by its ack of {each.stream}"


@dataclass
class UnwrittenLedger(DeltaLedgerStore):
    """The ledger of a site as it is, and in memory what would be added. It need not be there."""

    added: list[LedgerRecord] = field(default_factory=list)

    def load(self, table: str) -> Sequence[LedgerRecord]:
        return [*(super().load(table) if self._is_there("applied") else ()), *self.added]

    def append(self, table: str, rows: Sequence[LedgerRow | HistoryPosition]) -> None:
        self.added += rows

    def names(self, target_id: str) -> set[str]:
        return super().names(target_id) if self._is_there("applied") else set()

    def recorded_ids(self, table: str) -> RecordedIds:
        return super().recorded_ids(table) if self._is_there("event_ids") else RecordedIds.of(())

    def _is_there(self, name: str) -> bool:
        with self.tables.errors():
            return table_exists(self.tables.spark, self.tables.location(name))
