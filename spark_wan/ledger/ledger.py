"""The ledger: what a site applied, summed up from the marked commits of its tables.

The marks are the truth. Every commit that a receiver makes to a table carries one in its
``userMetadata``: which epochs it applied, through which version of the origin, under which apply
number. The ledger keeps them for longer than the table's history does, and knows from which version
on the history must be read. The newest mark says how far the whole table is (decision 40).
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property
from typing import Any

from spark_wan.delta.commits import Commit, is_same_commit, record_after
from spark_wan.errors import (
    COLUMNS,
    LEDGER,
    TABLE,
    LedgerError,
    TableReplacedError,
    TargetError,
    WanError,
    copy_advice,
)
from spark_wan.ledger.applied_columns import AppliedColumns
from spark_wan.ledger.event_ids import check_event_ids, lost_applies
from spark_wan.ledger.interfaces import LedgerStore, TargetHistory, transaction_name
from spark_wan.ledger.total import Total, sorted_rows
from spark_wan.messages import message_log
from spark_wan.wire.decisions import NO_RESTORE
from spark_wan.wire.ledger import HistoryPosition, LedgerRow, Summary
from spark_wan.wire.mark import AppliedStream, Mark, read_mark

log = message_log(__name__)


@dataclass(frozen=True)
class _Read:
    """What was read of a target's history."""

    target_id: str
    commits: Sequence[Commit]
    after: int
    """Through this version, the ledger knows the commits."""

    @cached_property
    def newer(self) -> Sequence[Commit]:
        return [commit for commit in self.commits if commit.version > self.after]

    @property
    def removed(self) -> int:
        """How many versions log cleanup removed before they were read."""
        return self.newer[0].version - self.after - 1 if self.newer else 0


@dataclass(frozen=True)
class _LocalCommits:
    """How many local commits there are at the end of what was read."""

    rows: list[LedgerRow]
    """The marks that were read, each with the number of those before it."""
    number: int
    known: bool
    """False: there may be others."""


@dataclass
class Ledger(Total):
    """Ledger of one table at one site. Loaded once, then kept current by :meth:`catch_up`."""

    site: str
    table: str
    store: LedgerStore
    _: KW_ONLY
    clock: Callable[[], int] = lambda: int(time.time() * 1000)
    """Milliseconds since 1970 UTC."""
    accepts_gap: Callable[[int], bool] = lambda through: False
    """Whether people say that no commit through a version that nobody has read was a RESTORE."""
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
            and target.is_unchanged(self.known_version)
        )

    def catch_up(self, target: TargetHistory, write: bool = True) -> int | None:
        """Take up new marked commits, and return the next apply number.

        ``write``: add their rows to the store; else leave that to :meth:`write`.

        None: there is no table, and never was one. Raises TargetError (table missing),
        TableReplacedError (dropped and recreated, or restored to an older state; or log cleanup may
        have deleted what shows that) and LedgerError (the history does not reach back to the
        ledger's end; the ledger has lost something).
        """
        try:
            next_number = self._catch_up_from_copy(target)
            if write:
                self.write()
        except LedgerError:
            self.forget()
            raise
        return next_number

    def _catch_up_from_copy(self, target: TargetHistory) -> int | None:
        """Catch up; where that fails, because the table is not the one that the ledger knows: from
        a copy that this site has taken since."""
        try:
            return self._catch_up(target)
        except WanError as error:
            if error.needs is None or not self._begin_with_newer_copy(target):
                raise
        return self._catch_up(target)

    def _begin_with_newer_copy(self, target: TargetHistory) -> bool:
        """Take up the newest copy in the table's history, if the ledger does not know it yet."""
        target_id = target.table_id()
        if target_id is None:
            return False
        last = target.last_transaction(transaction_name(self.site, self.table, target_id))
        if last is not None and last <= self.last_apply:
            return False
        copy: LedgerRow | None = None
        own: list[int] = []
        for commit in target.history(-1):
            mark = Mark.read(commit.metadata, self.site, self.table)
            if commit.changes_rows_here:
                own.append(commit.version)
            if mark is not None and mark.replaced is not None and mark.apply > self.last_apply:
                mark = replace(mark, local=_local_commits_of_copy(mark, own))
                copy = LedgerRow(target_id, commit.version, mark)
        if copy is None:
            return False
        self.forget()
        self._load()
        self.take_up(None, [copy])
        self._unwritten, self._unchecked = [copy], [copy]
        self._read_version, self._read_identity = -1, None
        return True

    def has_own_rows(self, target: TargetHistory) -> bool:
        """Whether the table may have rows that no receiver wrote: a copy would take them away.

        Read from its history, in whatever state the ledger is. Where the history does not say, it
        may."""
        if target.table_id() is None:
            return False
        commits = target.history(-1)
        if self._others(commits):
            return True
        # A mark does not know of commits during its own apply, back to the mark before it; and
        # after a RESTORE, rows of any earlier version may be there again.
        restored = any(commit.operation == "RESTORE" for commit in commits)
        is_second = False
        for commit in reversed(commits):
            mark = Mark.read(commit.metadata, self.site, self.table)
            if mark is None:
                if commit.changes_rows_here and commit.operation != "RESTORE":
                    return True
            elif mark.local:
                return True
            elif mark.local == 0 and not restored:
                if is_second:
                    return False
                is_second = True
        return not commits or commits[0].version > 0

    def number_of_copy(self, target: TargetHistory) -> tuple[int, int]:
        """Return the apply number of a copy into a table that the ledger cannot catch up with: one
        that neither the ledger nor the table has seen; and the table's newest version. Raises
        LedgerError; TableReplacedError for a table that another one of the topology has its rows
        in."""
        known = self.last_apply
        self.forget()  # another receiver may have taken a copy into a table that is gone
        self._load()
        name = transaction_name(self.site, self.table, str(target.table_id()))
        commits = target.history(-1)
        if others := self._others(commits):
            raise TableReplacedError(
                f"{self.table}: the table at its place at site {self.site} has rows that were "
                f"applied as {', '.join(sorted(others))}. No copy takes their place. Give each "
                "table a place of its own, or remove this one."
            )
        marks = (Mark.read(commit.metadata, self.site, self.table) for commit in commits)
        seen = [mark.apply for mark in marks if mark is not None]
        number = max(known, self.last_apply, target.last_transaction(name) or 0, *seen, 0) + 1
        return number, commits[-1].version if commits else -1

    def mark(
        self, apply_number: int, applied: AppliedStream, columns: AppliedColumns, **more: Any
    ) -> Mark:
        """Return the mark of an apply, with a token of its own. ``more``: the fields that say
        something of the whole table."""
        return Mark(
            site=self.site,
            table=self.table,
            apply=apply_number,
            token=uuid.uuid4().hex,
            applied=(applied,),
            columns=columns.columns,
            moved=columns.moved,
            **more,
        )

    @property
    def unwritten(self) -> Sequence[LedgerRow]:
        """Rows that were taken up and are not in the store yet."""
        return tuple(self._unwritten)

    def stored_marks(self) -> list[Mark]:
        """Return the marks that are not folded, as the store has them now, and those that are not
        in it yet."""
        _, rows, _ = sorted_rows(self.store.load(self.table))
        return [row.mark for row in (*rows, *self._unwritten)]

    def write(self) -> None:
        """Add the rows to the store that are not there yet, durably."""
        if self._unwritten:
            self.store.append(self.table, self._unwritten)
            self.written()

    def written(self) -> None:
        """Note that all :attr:`unwritten` rows are in the store."""
        self._unwritten = []

    def _catch_up(self, target: TargetHistory) -> int | None:
        was_loaded = self._loaded
        self._load()
        # An error below must be raised again next time, so nothing seems current until the end.
        caught_up, self._caught_up = self._caught_up, False
        read = (self._read_on(target) if caught_up else None) or self._read_again(target)
        if read is None:
            return None
        if read.removed and was_loaded and not self._unwritten:
            self.forget()  # another receiver of the site may have recorded what is gone
            return self._catch_up(target)
        rows, columns = self._checked(read, target)
        counted = self._count_local_commits(rows, read)
        if self._unchecked is not None and self._recover_lost_marks(
            [*self._unchecked, *counted.rows], target, read.target_id
        ):
            self.forget()
            return self._catch_up(target)
        self._unchecked = None
        self._advance(read, counted.rows, columns)
        self.local_commits, self.local_known = counted.number, counted.known
        self._record_position(read.newer, target)
        self._caught_up = True
        return self.last_apply + 1

    def _checked(
        self, read: _Read, target: TargetHistory
    ) -> tuple[list[LedgerRow], AppliedColumns]:
        """Return the marks that are new, and where the applied columns are after them.

        Raises what :meth:`catch_up` does. Changes nothing.
        """
        self._check_last_mark(read.commits)
        self._check_gap(read, target)
        rows, columns = self._follow_columns(self._marks_of(read), read)
        if self.target_id is None and not rows:
            self._check_not_lost(target, read.target_id)
            self._check_not_shared(read, target)
        self._check_numbers(rows)
        return rows, columns

    def _advance(self, read: _Read, rows: list[LedgerRow], columns: AppliedColumns) -> None:
        """Take up what was read and checked."""
        if read.removed and self.target_id is not None:
            self._unrecorded = 0  # what was decided about the gap holds from now on
        if rows:
            self._unwritten += rows
            self.take_up(None, rows)
        self._read_version = max([read.after, *(commit.version for commit in read.newer)])
        self._read_identity = read.commits[-1].identity if read.commits else None
        self.columns = columns
        self._columns_at = {
            self.marked_version: self._columns_at.get(self.marked_version, columns),
            self._read_version: columns,
        }

    def forget(self) -> None:
        """Start over as in a new process: the ledger may be restored, or extended by another."""
        anew = Ledger(
            self.site, self.table, self.store, clock=self.clock, accepts_gap=self.accepts_gap
        )
        self.__dict__.update(anew.__dict__)

    @property
    def copy_advice(self) -> str:
        """How the site gets the whole table again, by the kinds of streams that were applied."""
        kinds = sorted(self._user_streams) or [False]
        return "; and ".join(copy_advice(users) for users in kinds)

    def _load(self) -> None:
        if not self._loaded:
            self._summary, self._unchecked, positions = sorted_rows(self.store.load(self.table))
            self.take_up(self._summary, self._unchecked)
            for position in positions:
                self._take_up_position(position)
            self._loaded = True

    def _take_up_position(self, position: HistoryPosition) -> None:
        if position.apply < self.copied:
            return  # of the table before the copy
        if position.target_id == self.target_id and position.target_version > self._read_version:
            self._read_version = position.target_version
            self._read_identity = position.identity
            self._columns_at[self._read_version] = AppliedColumns(
                {**self.columns.places, **position.moved}
            )
            if self._read_version > self.marked_version:
                self.count_local(position.local)

    @property
    def known_version(self) -> int:
        """The target's newest version that the ledger knows; -1: none."""
        return max(self.marked_version, self._read_version)

    def _read_on(self, target: TargetHistory) -> _Read | None:
        """Read the history from the newest known version on. None: the table may be another one."""
        if self.target_id is None or self._read_identity is None:
            return None
        known = self.known_version
        try:
            commits = target.history(known - 1)
        except TargetError:
            return None
        if not commits or commits[0].version != known:
            return None
        same = is_same_commit(commits[0].identity, self._read_identity)
        return _Read(self.target_id, commits, known) if same else None

    def _read_again(self, target: TargetHistory) -> _Read | None:
        """Read which table it is, and its history from the newest mark on: later commits may have
        been replaced since they were read. None: there is no table, and never was one."""
        target_id = target.table_id()
        if target_id is None:
            if self.target_id is not None:
                raise TargetError(
                    f"{self.table}: the table is missing at site {self.site}, but the ledger "
                    "knows it. The receiver does not create it again: restore it (UNDROP, or "
                    f"from a backup of the same state), or {self.copy_advice}.",
                    needs=TABLE,
                )
            return None
        commits = target.history(self.marked_version - 1)
        self._check_identity(target_id, commits[-1].version if commits else -1)
        return _Read(target_id, commits, self._unchanged_through(commits))

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
                self.target_id,
                self._read_version,
                self._read_identity,
                moved=self.columns.moved,
                local=self.known_local,
                apply=self.last_apply,
            )
            self.store.append(self.table, [position])
            self._unrecorded = None

    def _check_identity(self, target_id: str, newest: int) -> None:
        if self.target_id is not None and target_id != self.target_id:
            raise self._replaced(
                f"the table at site {self.site} has the ID {target_id}; the ledger knows "
                f"{self.target_id}. It was dropped and recreated, or replaced",
                "restore the old one, or ",
            )
        if newest < self.known_version:
            raise self._replaced(
                f"the table at site {self.site} no longer has version {self.known_version}. It "
                "was restored to an older state"
            )

    def _replaced(self, cause: str, first: str = "") -> TableReplacedError:
        advice = first + self.copy_advice
        return TableReplacedError(
            f"{self.table}: {cause}. Nothing is applied to it; {advice}.", needs=TABLE
        )

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

    def _check_gap(self, read: _Read, target: TargetHistory) -> None:
        """Check that log cleanup removed nothing that the ledger did not see.

        It may have been an apply. Apply numbers have no gaps: the next one in the history, or else
        the last one that Delta has, proves that it was none. Nothing proves that there was no
        RESTORE among the removed commits: it takes rows away, and stays in the history alone.
        """
        if not read.removed or self.target_id is None:
            return
        first = read.newer[0].version
        marks = (Mark.read(commit.metadata, self.site, self.table) for commit in read.newer)
        last = next((mark.apply - 1 for mark in marks if mark is not None), None)
        if last is None:
            last = target.last_transaction(transaction_name(self.site, self.table, read.target_id))
        if last != self.last_apply:
            raise LedgerError(
                f"{self.table}: the table's history at site {self.site} begins at version "
                f"{first}, the ledger ends at {read.after}. A receiver may have applied in "
                f"between (the last apply was {self.last_apply} by the ledger, "
                f"{'unknown' if last is None else last} by the table's log). Nothing is applied to "
                "the table. Restore the ledger's newer state; without one, "
                f"{self.copy_advice}.",
                needs=LEDGER,
            )
        if self.accepts_gap(first - 1):
            return
        raise TableReplacedError(
            f"{self.table}: log cleanup has removed versions {read.after + 1} to {first - 1} of "
            f"the table at site {self.site}, which no receiver has recorded. None was an apply, "
            "but one may have been a RESTORE or a replaced column, which took rows or values away. "
            "Nothing is applied to it. Restore the ledger's newer state, if there is one; or, if "
            "you know that none of them was such a commit, decide: `spark-wan decide "
            f"{self.table}@{first - 1}={NO_RESTORE}`; or {self.copy_advice}.",
            needs=TABLE,
        )

    def _check_not_lost(self, target: TargetHistory, target_id: str) -> None:
        last = target.last_transaction(transaction_name(self.site, self.table, target_id))
        if last is not None:
            raise LedgerError(
                f"{self.table}: by its log the table at site {self.site} has taken {last} applies, "
                "but neither its history nor the ledger has one. Nothing is applied to it. Stop "
                "this site's receivers and restore the ledger; without a backup, "
                f"{copy_advice(False)}; or, of a user stream, {copy_advice(True)}.",
                needs=LEDGER,
            )

    def _check_not_shared(self, read: _Read, target: TargetHistory) -> None:
        """Check, before the first apply, that the table has no rows of another table or site.

        Rows that the source no longer has would stay.
        """
        others = self._others(read.commits)
        others |= {
            f"table {name} at site {self.site}"
            for name in self.store.names(read.target_id) - {self.table}
        }
        if others and not target.is_empty():
            raise TableReplacedError(
                f"{self.table}: the table at its place at site {self.site} has rows that were "
                f"applied as {', '.join(sorted(others))}. Those that the source no longer has "
                f"would stay. Nothing is applied to it. Empty it (DELETE FROM {target.sql_name}), "
                "or remove it, or give the table another place at this site in the topology."
            )

    def _others(self, commits: Sequence[Commit]) -> set[str]:
        """Return which other tables and sites commits were applied as."""
        marks = (read_mark(commit.metadata) or {} for commit in commits)
        return {
            f"table {mark.get('table')} at site {mark['site']}"
            for mark in marks
            if "site" in mark and (mark["site"], mark.get("table")) != (self.site, self.table)
        }

    def _check_numbers(self, rows: Sequence[LedgerRow]) -> None:
        """Check that no apply number is used twice: Delta allows each number once.

        A version of spark_wan that names its transactions otherwise could use it again.
        """
        tokens = {row.mark.apply: row.mark.token for row in rows}
        for row in rows:
            if row.mark.token not in self.tokens and (
                row.mark.apply <= self.last_apply or tokens[row.mark.apply] != row.mark.token
            ):
                raise LedgerError(
                    f"{self.table}: version {row.target_version} at site {self.site} is apply "
                    f"{row.mark.apply}, which the ledger knows as another commit: two versions of "
                    "spark_wan are running here, and rows may have been applied twice. Stop the "
                    f"older one's receivers, and {self.copy_advice}.",
                    needs=LEDGER,
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
                    event="marks-recovered",
                    table=self.table,
                    what_to_do="They are recorded again. Find out who restores or changes the "
                    "ledger: event IDs and dead letters are nowhere else.",
                )
                self.store.append(self.table, recovered)
                return True
        recorded = self.store.recorded_ids(self.table)
        check_event_ids(self.table, self.site, marks, recorded, folded=folded)
        told = [mark.apply for mark in marks if mark.vector is not None]
        self.progress.lost = any(number > max(told, default=self.vector_apply) for number in lost)
        return False

    def _marks_of(self, read: _Read) -> list[LedgerRow]:
        """Return the marks that are new. Raises TableReplacedError for commits of others."""
        rows: list[LedgerRow] = []
        for commit in read.newer:
            mark = Mark.read(commit.metadata, self.site, self.table)
            if mark is not None:
                rows.append(LedgerRow(read.target_id, commit.version, mark))
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
        return rows

    def _follow_columns(
        self, rows: Sequence[LedgerRow], read: _Read
    ) -> tuple[list[LedgerRow], AppliedColumns]:
        """Return the rows, and where the applied columns are after the newest commit.

        Each mark gets the columns as the ledger knows them, which its writer may not have known.
        """
        marked = {row.target_version: row for row in rows}
        columns = self._columns_at.get(read.after, self.columns)
        followed: list[LedgerRow] = []
        for commit in read.newer:
            row = marked.get(commit.version)
            if row is not None:
                marked_columns = AppliedColumns.of(row.mark)
                is_copy = row.mark.replaced is not None
                columns = marked_columns if is_copy else columns.after_mark(marked_columns)
                mark = replace(row.mark, columns=columns.columns, moved=columns.moved)
                followed.append(replace(row, mark=mark))
                continue
            try:
                columns = columns.after(commit)
            except (KeyError, ValueError, TypeError) as error:
                raise LedgerError(
                    f"{self.table}: version {commit.version} at site {self.site} is a "
                    f"{commit.operation}, and the table's history does not say of which columns "
                    f"({dict(commit.parameters)}). Nothing is applied to it; {self.copy_advice}.",
                    needs=COLUMNS,
                ) from error
        return followed, columns

    def _count_local_commits(self, rows: Sequence[LedgerRow], read: _Read) -> _LocalCommits:
        """Count on through what was read: the commits that change rows and are no receiver's.

        The ledger knows of more than a mark's writer did: of commits just before that one, too.
        """
        number, known = self.local_commits, self.local_known
        if self.target_id is not None:
            number += read.removed  # they may have changed rows
        elif read.commits and read.commits[0].version > 0:
            known = False  # log cleanup has removed the first commits
        marked = {row.target_version: row for row in rows}
        counted: list[LedgerRow] = []
        own: list[int] = []
        for commit in read.newer:
            row = marked.get(commit.version)
            if row is not None:
                if row.mark.replaced is not None:
                    number, known = _local_commits_of_copy(row.mark, own), True
                elif row.mark.local is not None:
                    number, known = max(number, row.mark.local), True
                mark = replace(row.mark, local=number if known else None)
                counted.append(replace(row, mark=mark))
            elif commit.version > self._read_version and commit.changes_rows_here:
                number += 1
                own.append(commit.version)
        return _LocalCommits(counted, number, known)


def _local_commits_of_copy(mark: Mark, own: Sequence[int]) -> int:
    """Return the number of local commits with the commit of a copy. ``own``: the versions of those
    before it. What came while the copy was written may still be there."""
    assert mark.replaced is not None
    return (mark.local or 0) + sum(version > mark.replaced for version in own)
