"""The ledger: what a site applied, summed up from the marked commits of its tables.

The marks are the truth. Every commit that a receiver makes to a table carries one in its
``userMetadata``: which epochs it applied, through which version of the origin, under which apply
number. The ledger keeps them for longer than the table's history does, and knows from which version
on the history must be read. Marks are cumulative, so the newest one of a stream is enough.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from spark_wan.delta.commits import Commit, is_same_commit, record_after
from spark_wan.errors import LedgerError, TableReplacedError, TargetError, resend_advice
from spark_wan.ledger.applied_columns import AppliedColumns
from spark_wan.ledger.event_ids import FoldedIds, check_event_ids, lost_applies
from spark_wan.ledger.progress import Progress
from spark_wan.ledger.records import (
    HistoryPosition,
    LedgerRecord,
    LedgerRow,
    LedgerStore,
    TargetHistory,
    transaction_name,
)
from spark_wan.ledger.summary import Summary, ranges
from spark_wan.wire.mark import Mark, read_mark

log = logging.getLogger(__name__)

KEPT_TOKENS = 1_000
"""Number of applies whose tokens are kept in memory. A receiver looks for its own token right after
its write. If others made more applies meanwhile, it plans again, and finds its epochs applied."""


@dataclass
class Ledger:
    """Ledger of one table at one site. Loaded once, then kept current by :meth:`catch_up`."""

    site: str
    table: str
    store: LedgerStore
    progress: Progress = field(default_factory=Progress)
    target_id: str | None = None
    marked_version: int = -1
    """The target's version with the newest mark in the ledger."""
    last_apply: int = 0
    local_commits: int = 0
    """Commits to the target since the load that change rows and are not a receiver's."""
    tokens: dict[str, int] = field(default_factory=dict)
    """Token -> apply number, of the newest :data:`KEPT_TOKENS` applies."""
    dead_letters: dict[str, int] = field(default_factory=dict)
    """Per stream, as counted by the marks."""
    clock: Callable[[], int] = lambda: int(time.time() * 1000)
    """Milliseconds since 1970 UTC."""
    columns: AppliedColumns = field(default_factory=AppliedColumns)
    """The applied columns, and where they are in the table now."""
    _columns_at: dict[int, AppliedColumns] = field(default_factory=dict)
    """The same after ``marked_version``, and after ``_read_version``."""
    _user_streams: set[bool] = field(default_factory=set)
    """Whether user streams were applied (True), captured streams (False), or both."""
    _loaded: bool = False
    _summary: Summary | None = None
    """The loaded one."""
    _unchecked: list[LedgerRow] | None = None
    """The loaded rows, until their event IDs are checked."""
    _unwritten: list[LedgerRow] = field(default_factory=list)
    """Rows that were taken up and are not in the store yet."""
    _caught_up: bool = False
    """The last :meth:`catch_up` succeeded."""
    _read_version: int = -1
    """The history was read through this version."""
    _read_identity: str | None = None
    """The identity of that commit."""
    _unrecorded: int | None = None
    """Time of the oldest commit read that no mark or :class:`HistoryPosition` covers durably."""

    def seems_current(self, target: TargetHistory) -> bool:
        """Whether :meth:`catch_up` would find nothing new, without reading the history.

        A hint: another receiver may have used the next apply number, and a plan may be out of date.
        """
        return (
            self._caught_up
            and not self._unwritten
            and self._read_identity is not None
            and target.is_unchanged(max(self.marked_version, self._read_version))
        )

    def catch_up(self, target: TargetHistory, write: bool = True) -> int | None:
        """Take up new marked commits, and return the next apply number.

        ``write``: add their rows to the store; else leave that to :meth:`write`.

        None: there is no table, and never was one. Raises TargetError (table missing),
        TableReplacedError (dropped and recreated, or restored to an older state) and LedgerError
        (the history does not reach back to the ledger's end; the ledger has lost something).
        """
        try:
            next_number = self._catch_up(target)
            if write:
                self.write()
        except LedgerError:
            self.forget()
            raise
        return next_number

    @property
    def unwritten(self) -> Sequence[LedgerRow]:
        """Rows that were taken up and are not in the store yet."""
        return tuple(self._unwritten)

    def write(self) -> None:
        """Add the rows to the store that are not there yet, durably."""
        if self._unwritten:
            self.store.append(self.table, self._unwritten)
            self.written()

    def written(self) -> None:
        """Note that all :attr:`unwritten` rows are in the store."""
        self._unwritten = []

    def _catch_up(self, target: TargetHistory) -> int | None:
        self._load()
        after = max(self.marked_version, self._read_version)
        # An error below must be raised again next time, so nothing seems current until the end.
        caught_up, self._caught_up = self._caught_up, False
        commits = self._history_of_same_table(target, after) if caught_up else None
        target_id = self.target_id
        if commits is None or target_id is None:
            target_id = target.table_id()
            if target_id is None:
                if self.target_id is not None:
                    raise TargetError(
                        f"{self.table}: the table is missing at site {self.site}, but the ledger "
                        "knows it. The receiver does not create it again: restore it (UNDROP, or "
                        f"from a backup of the same state), or {self.resend_advice}."
                    )
                return None
            # Later commits than the newest mark may have been replaced since they were read.
            commits = target.history(self.marked_version - 1)
            self._check_identity(target_id, commits[-1].version if commits else -1, after)
            after = self._unchanged_through(commits)
        self._check_last_mark(commits)
        newer = [commit for commit in commits if commit.version > after]
        self._check_gap(newer, target, target_id, after)
        rows, columns = self._follow_columns(self._read_commits(newer, target_id), newer, after)
        if self.target_id is None and not rows:
            self._check_not_lost(target, target_id)
            self._check_not_shared(commits, target, target_id)
        self._check_numbers(rows)
        if self._unchecked is not None and self._recover_lost_marks(
            [*self._unchecked, *rows], target, target_id
        ):
            self.forget()
            return self._catch_up(target)
        self._unchecked = None
        if rows:
            self._unwritten += rows
            self._take_up_rows(rows)
        self._read_version = max([after, *(commit.version for commit in newer)])
        self._read_identity = commits[-1].identity if commits else None
        self.columns = columns
        self._columns_at = {
            self.marked_version: self._columns_at.get(self.marked_version, columns),
            self._read_version: columns,
        }
        self._record_position(newer, target)
        self._caught_up = True
        return self.last_apply + 1

    def forget(self) -> None:
        """Start over as in a new process: the ledger may be restored, or extended by another."""
        self.__dict__.update(Ledger(self.site, self.table, self.store, clock=self.clock).__dict__)

    @property
    def resend_advice(self) -> str:
        """How to send the whole table again, by the kinds of streams that were applied to it."""
        kinds = sorted(self._user_streams) or [False]
        return "; and ".join(resend_advice(users) for users in kinds)

    def _load(self) -> None:
        if not self._loaded:
            self._summary, self._unchecked, positions = sorted_rows(self.store.load(self.table))
            self.take_up(self._summary, [*self._unchecked, *positions])
            self._loaded = True

    def take_up(self, summary: Summary | None, rows: Iterable[LedgerRow | HistoryPosition]) -> None:
        """Add rows to the sum in memory; first ``summary``, if there is one."""
        if summary is not None:
            self._take_up_summary(summary)
        self._take_up_rows(list(rows))

    def sum(self, number: int, ids: Sequence[FoldedIds], lost: Iterable[int]) -> Summary:
        """Return what was taken up as a summary. ``number``: of the fold."""
        assert self.target_id is not None
        progress = self.progress
        return Summary(
            target_id=self.target_id,
            target_version=self.marked_version,
            apply=self.last_apply,
            token=max(self.tokens, key=self.tokens.__getitem__),
            number=number,
            through=tuple((*key, version) for key, version in progress.through.items()),
            logs=tuple(
                (*place, epoch, progress.fingerprints[place])
                for place, epoch in progress.positions.items()
            ),
            dead_letters=dict(self.dead_letters),
            user_streams=tuple(sorted(self._user_streams)),
            columns=self.columns.columns,
            moved=self.columns.moved,
            ids=tuple(ids),
            lost=ranges(lost),
        )

    def _take_up_summary(self, summary: Summary) -> None:
        self.columns = AppliedColumns({**{path: path for path in summary.columns}, **summary.moved})
        self._columns_at[summary.target_version] = self.columns
        self.target_id, self.marked_version = summary.target_id, summary.target_version
        self.last_apply, self.tokens = summary.apply, {summary.token: summary.apply}
        self._user_streams.update(summary.user_streams)
        self.dead_letters.update(summary.dead_letters)
        for origin, table_id, selection, version in summary.through:
            self.progress.through[origin, table_id, selection] = version
        for stream, log_id, epoch, fingerprint in summary.logs:
            self.progress.positions[stream, log_id] = epoch
            self.progress.fingerprints[stream, log_id] = fingerprint

    def _take_up_rows(self, rows: Sequence[LedgerRow | HistoryPosition]) -> None:
        marked = [row for row in rows if isinstance(row, LedgerRow)]
        for row in sorted(marked, key=lambda row: row.mark.apply):
            mark = row.mark
            older, newer = self.columns.places, AppliedColumns.of(mark).places
            if mark.apply < self.last_apply:  # of an apply before the summary's last
                older, newer = newer, older
            self.columns = AppliedColumns({**older, **newer})
            self._columns_at[row.target_version] = self.columns
            self.target_id = row.target_id
            self.marked_version = max(self.marked_version, row.target_version)
            self.last_apply = max(self.last_apply, mark.apply)
            self.tokens[mark.token] = mark.apply
            for part in mark.applied:
                self._user_streams.add(part.ids)
                self.dead_letters[part.stream] = max(
                    part.dead_letters, self.dead_letters.get(part.stream, 0)
                )
                self.progress.advance(part.key, part.through, part)
        if len(self.tokens) > KEPT_TOKENS:
            newest = sorted(self.tokens.items(), key=lambda entry: entry[1])[-KEPT_TOKENS:]
            self.tokens = dict(newest)
        for position in rows:
            if (
                isinstance(position, HistoryPosition)
                and position.target_id == self.target_id
                and position.target_version > self._read_version
            ):
                self._read_version = position.target_version
                self._read_identity = position.identity
                self._columns_at[self._read_version] = AppliedColumns(
                    {**self.columns.places, **position.moved}
                )

    def _history_of_same_table(self, target: TargetHistory, after: int) -> Sequence[Commit] | None:
        """Return the history from ``after`` on, if that commit is still the one that was read.

        None: the table may be another one.
        """
        if self._read_identity is None:
            return None
        try:
            commits = target.history(after - 1)
        except TargetError:
            return None
        same = (
            commits
            and commits[0].version == after
            and is_same_commit(commits[0].identity, self._read_identity)
        )
        return commits if same else None

    def _unchanged_through(self, commits: Sequence[Commit]) -> int:
        """Return the version through which the commits are those that were read before.

        The last commit read is either still there, or log cleanup removed it.
        """
        if self._read_identity is None or self._read_version <= self.marked_version:
            return self.marked_version
        there = next((commit for commit in commits if commit.version == self._read_version), None)
        if there is None or is_same_commit(there.identity, self._read_identity):
            return self._read_version
        return self.marked_version

    def _record_position(self, newer: Sequence[Commit], target: TargetHistory) -> None:
        """Record how far the history was read, before log cleanup can remove unrecorded commits."""
        for commit in newer:
            if commit.version <= self.marked_version:
                self._unrecorded = None
            elif self._unrecorded is None:
                self._unrecorded = commit.time
        if self.target_id is None or self._read_identity is None or self._unrecorded is None:
            return
        if self.clock() - self._unrecorded >= record_after(target.log_retention()):
            position = HistoryPosition(
                self.target_id, self._read_version, self._read_identity, self.columns.moved
            )
            self.store.append(self.table, [position])
            self._unrecorded = None

    def _check_identity(self, target_id: str, newest: int, after: int) -> None:
        if self.target_id is not None and target_id != self.target_id:
            raise self._replaced(
                f"the table at site {self.site} has the ID {target_id}; the ledger knows "
                f"{self.target_id}. It was dropped and recreated, or replaced",
                "restore the old one, or ",
            )
        if newest < after:
            raise self._replaced(
                f"the table at site {self.site} no longer has version {after}. It was restored to "
                "an older state"
            )

    def _replaced(self, cause: str, first: str = "") -> TableReplacedError:
        advice = first + self.resend_advice
        return TableReplacedError(f"{self.table}: {cause}. Nothing is applied to it; {advice}.")

    def _check_last_mark(self, commits: Sequence[Commit]) -> None:
        """Check that the newest marked commit is the one that the ledger has."""
        for commit in commits:
            if commit.version != self.marked_version:
                continue
            # Version 0.1.0 recorded an automatic compaction with the mark of the write before it.
            mark = Mark.read(commit.user_metadata, self.site, self.table)
            if mark is None or mark.token not in self.tokens:
                raise self._replaced(
                    f"version {commit.version} at site {self.site} is not the commit that the "
                    "ledger knows. The table was restored to an older state and written to again"
                )

    def _check_gap(
        self, commits: Sequence[Commit], target: TargetHistory, target_id: str, after: int
    ) -> None:
        """Check that log cleanup removed no apply that the ledger did not see.

        Apply numbers have no gaps: the next one in the history, or else the last one that Delta
        has, proves that no apply is among the removed commits.
        """
        if not commits or self.target_id is None or commits[0].version == after + 1:
            return
        marks = (Mark.read(commit.metadata, self.site, self.table) for commit in commits)
        last = next((mark.apply - 1 for mark in marks if mark is not None), None)
        if last is None:
            last = target.last_transaction(transaction_name(self.site, self.table, target_id))
        if last != self.last_apply:
            raise LedgerError(
                f"{self.table}: the table's history at site {self.site} begins at version "
                f"{commits[0].version}, the ledger ends at {after}. A receiver may have applied in "
                f"between (the last apply was {self.last_apply} by the ledger, "
                f"{'unknown' if last is None else last} by the table's log). Nothing is applied to "
                "the table. Restore the ledger's newer state; without one, "
                f"{self.resend_advice}."
            )
        removed = commits[0].version - after - 1
        self.local_commits += removed
        self._unrecorded = 0  # record at once: log cleanup is close behind
        log.warning(
            "%s: log cleanup removed versions %d to %d of the table at site %s before a receiver "
            "read them. None was an apply, but a RESTORE or a replaced column among them would go "
            "unnoticed: they count as local commits",
            self.table,
            after + 1,
            after + removed,
            self.site,
        )

    def _check_not_lost(self, target: TargetHistory, target_id: str) -> None:
        last = target.last_transaction(transaction_name(self.site, self.table, target_id))
        if last is not None:
            raise LedgerError(
                f"{self.table}: by its log the table at site {self.site} has taken {last} applies, "
                "but neither its history nor the ledger has one. Nothing is applied to it. Stop "
                "this site's receivers and restore the ledger; without a backup, "
                f"{resend_advice(False)}; or, of a user stream, {resend_advice(True)}."
            )

    def _check_not_shared(
        self, commits: Sequence[Commit], target: TargetHistory, target_id: str
    ) -> None:
        """Check, before the first apply, that the table has no rows of another table or site.

        Rows that the source no longer has would stay.
        """
        marks = (read_mark(commit.metadata) for commit in commits)
        others = {
            f"table {mark.get('table')} at site {mark['site']}"
            for mark in marks
            if mark and "site" in mark
        }
        others |= {
            f"table {name} at site {self.site}"
            for name in self.store.names(target_id) - {self.table}
        }
        if others and not target.is_empty():
            raise TableReplacedError(
                f"{self.table}: the table at its place at site {self.site} has rows that were "
                f"applied as {', '.join(sorted(others))}. Those that the source no longer has "
                f"would stay. Nothing is applied to it. Empty it (DELETE FROM {target.sql_name}), "
                "or remove it, or give the table another place at this site in the topology."
            )

    def _check_numbers(self, rows: Sequence[LedgerRow]) -> None:
        """Check that no apply number is used twice: Delta allows each number once.

        A version of spark_wan that names its transactions otherwise could use it again.
        """
        for row in rows:
            if row.mark.apply <= self.last_apply and row.mark.token not in self.tokens:
                raise LedgerError(
                    f"{self.table}: version {row.target_version} at site {self.site} is apply "
                    f"{row.mark.apply}, which the ledger knows as another commit: two versions of "
                    "spark_wan are running here, and rows may have been applied twice. Stop the "
                    f"older one's receivers, and {self.resend_advice}."
                )

    def _recover_lost_marks(
        self, rows: Sequence[LedgerRow], target: TargetHistory, target_id: str
    ) -> bool:
        """Check, once in a process, that all marks and event IDs are there.

        Returns whether lost marks were added again from the table's history. Raises LedgerError
        for event IDs that are lost, or do not count.
        """
        marks, folded = [row.mark for row in rows], self._summary
        lost = lost_applies(marks, folded)
        users = any(part.ids for mark in marks for part in mark.applied)
        if not lost and not users and not (folded and folded.ids):
            return False
        if lost:
            recovered = [
                LedgerRow(target_id, commit.version, mark)
                for commit in target.history(-1)
                if (mark := Mark.read(commit.metadata, self.site, self.table)) is not None
                and mark.apply in lost
            ]
            if recovered:
                log.warning(
                    "%s: the ledger has lost %d marks; the table's history has %d of them",
                    self.table,
                    len(lost),
                    len(recovered),
                )
                self.store.append(self.table, recovered)
                return True
        recorded = self.store.recorded_ids(self.table)
        check_event_ids(self.table, self.site, marks, recorded, folded)
        self.progress.lost = bool(lost)
        return False

    def _read_commits(self, commits: Sequence[Commit], target_id: str) -> list[LedgerRow]:
        rows: list[LedgerRow] = []
        for commit in commits:
            mark = Mark.read(commit.metadata, self.site, self.table)
            if mark is not None:
                rows.append(LedgerRow(target_id, commit.version, mark))
                continue
            where = f"version {commit.version} at site {self.site}"
            other = read_mark(commit.metadata) or {}
            if "site" in other and (self.target_id is not None or rows):
                raise self._replaced(
                    f"{where} was applied as table {other.get('table')} at site {other['site']}: "
                    "two tables of the topology share one place",
                    "give each a place of its own, then ",
                )
            if commit.operation == "RESTORE" and (self.target_id is not None or rows):
                raise self._replaced(
                    f"{where} is a RESTORE: the table went back to an older state, the ledger did "
                    "not"
                )
            newly_read = commit.version > self._read_version
            if commit.changes_rows and not commit.stays_here and newly_read:
                self.local_commits += 1
        return rows

    def _follow_columns(
        self, rows: Sequence[LedgerRow], commits: Sequence[Commit], after: int
    ) -> tuple[list[LedgerRow], AppliedColumns]:
        """Return the rows, and where the applied columns are after ``commits``.

        Each mark gets the columns as the ledger knows them, which its writer may not have known.
        """
        marked = {row.target_version: row for row in rows}
        columns = self._columns_at.get(after, self.columns)
        followed: list[LedgerRow] = []
        for commit in commits:
            row = marked.get(commit.version)
            if row is not None:
                columns = columns.after_mark(AppliedColumns.of(row.mark))
                mark = replace(row.mark, columns=columns.columns, moved=columns.moved)
                followed.append(replace(row, mark=mark))
                continue
            try:
                columns = columns.after(commit)
            except (KeyError, ValueError, TypeError) as error:
                raise LedgerError(
                    f"{self.table}: version {commit.version} at site {self.site} is a "
                    f"{commit.operation}, and the table's history does not say of which columns "
                    f"({dict(commit.parameters)}). Nothing is applied to it; {self.resend_advice}."
                ) from error
        return followed, columns


def sorted_rows(
    rows: Iterable[LedgerRecord],
) -> tuple[Summary | None, list[LedgerRow], list[HistoryPosition]]:
    """Return the newest summary, the marks that are not in it, and the positions.

    Marks of folded applies may be there again: another receiver can record a mark late. Of an apply
    whose mark was lost before it was folded, the mark counts.
    """
    summaries: list[Summary] = []
    marks: list[LedgerRow] = []
    positions: list[HistoryPosition] = []
    for row in rows:
        if isinstance(row, LedgerRow):
            marks.append(row)
        elif isinstance(row, HistoryPosition):
            positions.append(row)
        elif not row.claimed:
            summaries.append(row)
    newest = max(summaries, key=lambda summary: summary.number, default=None)
    if newest is not None:
        lost = set(newest.lost_applies)
        marks = [row for row in marks if row.mark.apply > newest.apply or row.mark.apply in lost]
    return newest, marks, positions
