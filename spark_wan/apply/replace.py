"""Putting a copy in place of all rows that a site has of a table.

What a copy from the channel (:mod:`spark_wan.apply.take`) and a backup
(:mod:`spark_wan.apply.adopt`) do alike. :meth:`CopyWriter.put` is a numbered path, and a crash
between any two steps changes nothing:

    take.2  caught-up  the ledger, if it can be; this fixes the apply number. A table that is
                       missing is created. If the table has more than the copy by now, it is not
                       written
    take.3  read       the rows: of a copy, frames fetched, checked, decoded
    take.4  resolved   rows that the table would refuse become dead letters
    take.5  recorded   dead letters and event IDs, under the apply's token. IDs that have expired
                       where the copy is from expire here before that
    take.6  written    one marked commit: the rows and their vector
    take.7  ledgered   from here on the ledger counts from this mark
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from spark_wan.apply.applier import ATTEMPTS
from spark_wan.apply.change import Change, Recorder, Replan, TargetTable, WriteConflict
from spark_wan.errors import TargetError, WanError
from spark_wan.events.columns import column_paths
from spark_wan.ledger.applied_columns import AppliedColumns
from spark_wan.ledger.ledger import Ledger
from spark_wan.ledger.progress import entry_of
from spark_wan.messages import message_log
from spark_wan.runtime.progress import under_way
from spark_wan.steps import Steps
from spark_wan.wire.manifest import Manifest
from spark_wan.wire.mark import Mark

log = message_log(__name__)


MOST_COMPARISONS = 3
"""How often a table is compared with a copy, at most, while others write to it. Then their commits
count as local ones."""


class Outcome(Enum):
    """What became of a copy, or what would."""

    WRITTEN = "it takes the place of all rows"
    KNOWN = "the table has it, by its marks"
    BEHIND = "the table has more"


@dataclass(frozen=True)
class _Number:
    """The number of an apply, and the state of the table before it."""

    apply: int | None
    """None: there is no table."""
    version: int
    """The table's newest version; -1: it has none."""
    is_known: bool
    """Whether the ledger knows the table."""


@dataclass
class CopyWriter:
    """Puts copies of one table in place of its rows at one site."""

    site: str
    table: str
    target: TargetTable
    ledger: Ledger
    check_stopped: Callable[[], None] = lambda: None
    """Raises StoppedError when the receiver was stopped."""
    from_writer: bool = True
    """Who made the copy writes the table; else the site has a copy itself."""
    _recorder: Recorder = field(init=False)

    def __post_init__(self) -> None:
        self._recorder = Recorder(self.target)

    def outcome(self, manifest: Manifest) -> Outcome:
        """Return what :meth:`put` would come to now. Writes nothing."""
        return self._outcome(manifest, self._number(write=False).is_known)

    def put(self, new_change: Callable[[], Change]) -> Steps[tuple[Outcome, Change]]:
        """Put a copy in place of all rows, and again while other writers of the table are faster.
        ``new_change`` returns it, with nothing read yet."""
        compared = 0
        for _ in range(ATTEMPTS):
            self.check_stopped()
            change = new_change()
            try:
                outcome = yield from self._put(change)
                compared += change.compared
                if change.compared and self.ledger.late_commits and compared < MOST_COMPARISONS:
                    raise Replan("somebody wrote to the table while it was compared with the copy")
                return outcome, change
            except Replan as reason:
                log.info(
                    "%s: %s; taking the copy again",
                    self.table,
                    reason,
                    event="planned-again",
                    table=self.table,
                )
        raise TargetError(
            f"{self.table}: {ATTEMPTS} writes of a copy in a row lost against other writers of the "
            "table. A receiver will retry; a backup can be adopted again."
        )

    def _put(self, change: Change) -> Steps[Outcome]:
        manifest = change.newest
        number = self._number()
        if number.apply is None:
            self.target.create(change.epochs[0])
            raise Replan("the table was created")
        yield "take.2 caught-up"
        outcome = self._outcome(manifest, number.is_known)
        if outcome is not Outcome.WRITTEN:
            return outcome
        rows, size = change.rows_and_bytes
        with under_way("applying", manifest.stream, self.site, rows=rows, size=size):
            self.target.read(change, AppliedColumns())
            try:
                yield "take.3 read"
                self.target.resolve(change)
                yield "take.4 resolved"
                self.check_stopped()
                mark = self._recorder.record(change, self._mark(manifest, change, number))
                yield "take.5 recorded"
                self.target.write(change, mark)
                yield "take.6 written"
            finally:
                self.target.done(change)
        self.ledger.catch_up(self.target)
        if mark.token not in self.ledger.tokens:
            raise WriteConflict(
                f"another receiver has used apply number {number.apply}, and Delta skipped this "
                "write"
            )
        yield "take.7 ledgered"
        return outcome

    def _number(self, write: bool = True) -> _Number:
        """Return the number of this apply, whatever state the table and its ledger are in."""
        try:
            number = self.ledger.catch_up(self.target, write)
            return _Number(number, self.ledger.known_version, is_known=True)
        except WanError as error:
            if error.needs is None:
                raise
            if self.target.table_id() is None:
                return _Number(None, -1, is_known=False)
            return _Number(*self.ledger.number_of_copy(self.target), is_known=False)

    def _outcome(self, manifest: Manifest, is_known: bool) -> Outcome:
        if is_known and self._is_taken(manifest) and not self.ledger.late_commits:
            return Outcome.KNOWN
        return Outcome.BEHIND if self._has_more(manifest) else Outcome.WRITTEN

    def _is_taken(self, manifest: Manifest) -> bool:
        """Whether the table has this copy, by the ledger."""
        return self.ledger.progress.has(manifest)

    def _has_more(self, manifest: Manifest) -> bool:
        """Whether the table has more than the copy: what came after it may be trimmed already."""
        assert manifest.copy is not None
        progress = self.ledger.progress
        through = progress.through
        copied = {(site, table, rows): v for site, table, rows, v in manifest.copy.vector}
        if any(through.get(origin, -1) > version for origin, version in copied.items()):
            return True
        # Of a log that the copy knows nothing of, the site takes the events again behind it.
        if any(progress.position(log, log_id) > e for log, log_id, e, _ in manifest.copy.logs):
            return True
        # Of a later source table: who made the copy has not got so far.
        return not self.from_writer and not through.keys() <= copied.keys()

    def _mark(self, manifest: Manifest, change: Change, number: _Number) -> Mark:
        assert manifest.copy is not None and number.apply is not None
        applied = change.applied(self.ledger.dead_letters.get(manifest.stream, 0))
        return self.ledger.mark(
            number.apply,
            applied,
            AppliedColumns().with_columns(column_paths(manifest.schema)),
            vector=manifest.copy.vector,
            logs=(*manifest.copy.logs, entry_of(applied)),
            local=0,
            replaced=number.version,
        )
