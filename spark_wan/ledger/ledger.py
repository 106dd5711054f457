"""The ledger: what a site applied, summed up from the marked commits of its tables.

The marks are the truth. Every commit that a receiver makes to a table carries one in its ``userMetadata``: which epochs it applied, through which
version of the origin, under which apply number. The ledger remembers them beyond the table's history and says from which version
on the history must be read. Marks are cumulative, so the newest one of a stream says all.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from spark_wan.delta.commits import Commit, is_same_commit, record_after
from spark_wan.errors import LedgerError, TableReplacedError, TargetError, anew
from spark_wan.ledger.applied_columns import AppliedColumns
from spark_wan.ledger.event_ids import RecordedIds, check_event_ids, lost_applies
from spark_wan.ledger.progress import Progress
from spark_wan.wire.mark import Mark, read_mark

log = logging.getLogger(__name__)


def transaction_name(site: str, table: str, target_id: str) -> str:
    """Under which Delta numbers a site's applies to a target (``txnAppId``). With the table's name: the applies of a new name begin at 1 again."""
    return f"spark_wan/{site}/{table}/{target_id}"


@dataclass(frozen=True)
class LedgerRow:
    """A mark with the place where it was found: the target table's ID and version."""

    target_id: str
    target_version: int
    mark: Mark


@dataclass(frozen=True)
class Seen:
    """All marks of a target through version ``target_version`` are in the ledger, though that commit has none; ``identity`` is the commit's. So log
    cleanup may take what has no mark. Kept among the marks, after them: a ledger that was put back to an older state loses both."""

    target_id: str
    target_version: int
    identity: str
    moved: Mapping[str, str | None] = field(default_factory=dict)
    """The applied columns that are not where they were at that version (see :class:`Mark`)."""


class LedgerStore(Protocol):
    """Where the rows are kept: Delta tables of the site, or a list in the simulation."""

    def load(self, table: str) -> Sequence[LedgerRow | Seen]:
        """All rows of a table, in any order."""

    def append(self, table: str, rows: Sequence[LedgerRow | Seen]) -> None:
        """Add rows, durably. Doubled rows do no harm."""

    def names(self, target_id: str) -> set[str]:
        """The names of tables under which rows are kept about a target."""

    def recorded_ids(self, table: str) -> RecordedIds:
        """What there is of the table's event IDs."""


class TargetHistory(Protocol):
    """The part of a target table that the ledger reads."""

    def table_id(self) -> str | None:
        """The table's ID, or None when there is no table."""

    def history(self, after: int) -> Sequence[Commit]:
        """Commits above ``after`` that the history still has, ascending."""

    def is_unchanged(self, version: int) -> bool:
        """Whether ``version``, the newest that :meth:`history` told of, is the newest still, and the same commit, as far as can be seen (a
        catalog may know of more commits)."""

    def log_retention(self) -> int:
        """How long the table's log keeps a commit, in milliseconds. Cheap: may be a day old."""

    def last_transaction(self, name: str) -> int | None:
        """The newest transaction number under ``name`` that the table's log tells of, also for commits that log cleanup took; None: there is none, or
        it cannot be read."""

    def is_empty(self) -> bool:
        """Whether the table has no row."""

    @property
    def sql_name(self) -> str:
        """What the table is called in SQL."""


@dataclass
class Ledger:
    """The ledger of one table at one site. Loaded once, then kept up by :meth:`catch_up`."""

    site: str
    table: str
    store: LedgerStore
    progress: Progress = field(default_factory=Progress)
    target_id: str | None = None
    seen: int = -1
    """Through this version of the target, its marks are in the ledger."""
    last_apply: int = 0
    local_commits: int = 0
    """Commits to the target that change rows and that no receiver made, seen since the ledger was loaded."""
    tokens: set[str] = field(default_factory=set)
    dead_letters: dict[str, int] = field(default_factory=dict)
    """Per stream, as the marks say."""
    clock: Callable[[], int] = lambda: int(time.time() * 1000)
    """Milliseconds since 1970 UTC."""
    columns: AppliedColumns = field(default_factory=AppliedColumns)
    """What was applied, and where it is in the table now."""
    _columns_at: dict[int, AppliedColumns] = field(default_factory=dict)
    """The same after the version of the newest mark, and after the one that was looked at last."""
    _kinds: set[bool] = field(default_factory=set)
    """Whether users' streams were applied (True), captured ones (False), or both."""
    _loaded: bool = False
    _unchecked: list[LedgerRow] | None = None
    """Until its event IDs were looked for: what was loaded."""
    _sound: bool = False
    """The last :meth:`catch_up` has gone well."""
    _looked: int = -1
    _last: str | None = None
    """The identity of the commit ``_looked``."""
    _unrecorded: int | None = None
    """The time of the oldest commit through ``_looked`` that neither a mark nor a :class:`Seen` covers durably."""

    def seems_current(self, target: TargetHistory) -> bool:
        """Whether :meth:`catch_up` would find nothing new, as far as can be told without the history. A hint: an apply number that rests on it
        may be used already, and a plan out of date."""
        return (
            self._sound
            and self._last is not None
            and target.is_unchanged(max(self.seen, self._looked))
        )

    def catch_up(self, target: TargetHistory) -> int | None:
        """Take up the marked commits that the ledger does not have yet; returns the next apply number, or None when there is no
        table and never was one.

        Raises TargetError (table missing), TableReplacedError (dropped and made again, restored to an older state), LedgerError
        (the history does not reach back to where the ledger ends; something is missing in the ledger).
        """
        try:
            return self._catch_up(target)
        except LedgerError:
            self.forget()
            raise

    def _catch_up(self, target: TargetHistory) -> int | None:
        self._load()
        after = max(self.seen, self._looked)
        # Until this has gone well, nothing seems current: what raises here must not be passed over next time.
        sound, self._sound = self._sound, False
        commits = self._same_table(target, after) if sound else None
        target_id = self.target_id
        if commits is None or target_id is None:
            target_id = target.table_id()
            if target_id is None:
                if self.target_id is not None:
                    raise TargetError(
                        f"{self.table}: the table is missing at site {self.site}, but the ledger knows it. It is not made again by "
                        f"itself: put it back (UNDROP, or from a backup of the same state), or {self.anew}."
                    )
                return None
            # From the newest mark on, which must still be there: what was looked at since may be other commits now.
            commits = target.history(self.seen - 1)
            self._check_identity(target_id, commits[-1].version if commits else -1, after)
            after = self._still_known(commits)
        self._check_last_mark(commits)
        newer = [commit for commit in commits if commit.version > after]
        self._check_gap(newer, target, target_id, after)
        rows = self._read_commits(newer, target_id)
        rows, columns = self._follow_columns(rows, newer, after)
        if self.target_id is None and not rows:
            self._check_not_lost(target, target_id)
            self._check_place(commits, target, target_id)
        self._check_numbers(rows)
        if self._unchecked is not None and self._take_up_lost_marks(
            [*self._unchecked, *rows], target, target_id
        ):
            self.forget()
            return self._catch_up(target)
        self._unchecked = None
        if rows:
            self.store.append(self.table, rows)
            self._fold(rows)
        self._looked = max([after, *(commit.version for commit in newer)])
        self.columns = columns
        self._columns_at = {
            self.seen: self._columns_at.get(self.seen, columns),
            self._looked: columns,
        }
        self._last = commits[-1].identity if commits else None
        self._record(newer, target)
        self._sound = True
        return self.last_apply + 1

    def forget(self) -> None:
        """Begin anew, as in a new process: somebody may restore the ledger, or another receiver has written what is missed here."""
        new = Ledger(self.site, self.table, self.store, clock=self.clock)
        self.__dict__.update(new.__dict__)

    @property
    def anew(self) -> str:
        """How the table is sent once more as a whole, by what it has applied."""
        return "; and ".join(anew(users) for users in sorted(self._kinds)) or anew(False)

    def applied_now(self, token: str) -> bool:
        """Whether the apply with this token is marked in the table."""
        return token in self.tokens

    def _load(self) -> None:
        if not self._loaded:
            rows = self.store.load(self.table)
            self._fold(rows)
            self._unchecked = [row for row in rows if isinstance(row, LedgerRow)]
            self._loaded = True

    def _same_table(self, target: TargetHistory, after: int) -> Sequence[Commit] | None:
        """The history from version ``after`` on, if that is still the commit that was seen there; None: ask which table it is."""
        if self._last is None:
            return None
        try:
            commits = target.history(after - 1)
        except TargetError:
            return None
        same = (
            commits
            and commits[0].version == after
            and is_same_commit(commits[0].identity, self._last)
        )
        return commits if same else None

    def _still_known(self, commits: Sequence[Commit]) -> int:
        """Through this version the table's commits are those that were looked at: the last of them is there still, or log cleanup took it."""
        if self._last is None or self._looked <= self.seen:
            return self.seen
        there = next((commit for commit in commits if commit.version == self._looked), None)
        return (
            self._looked
            if there is None or is_same_commit(there.identity, self._last)
            else self.seen
        )

    def _record(self, newer: Sequence[Commit], target: TargetHistory) -> None:
        """Record how far the history was seen, once the oldest commit that is not covered durably is old: before log cleanup can take it."""
        for commit in newer:
            if commit.version <= self.seen:
                self._unrecorded = None
            elif self._unrecorded is None:
                self._unrecorded = commit.time
        if self.target_id is None or self._last is None or self._unrecorded is None:
            return
        if self.clock() - self._unrecorded >= record_after(target.log_retention()):
            self.store.append(
                self.table, [Seen(self.target_id, self._looked, self._last, self.columns.moved)]
            )
            self._unrecorded = None

    def _check_identity(self, target_id: str, newest: int, after: int) -> None:
        if self.target_id is not None and target_id != self.target_id:
            raise TableReplacedError(
                f"{self.table}: the table at site {self.site} has the ID {target_id}; the ledger knows {self.target_id}. It was dropped "
                f"and made again, or replaced. Nothing is applied to it; put the old one back, or {self.anew}."
            )
        if newest < after:
            raise TableReplacedError(
                f"{self.table}: the table at site {self.site} has no version {after} any more. It was put back to an older "
                f"state. Nothing is applied to it; {self.anew}."
            )

    def _check_last_mark(self, commits: Sequence[Commit]) -> None:
        """The newest marked commit is the one that the ledger has, unless the table was put back and written to again."""
        for commit in commits:
            if commit.version != self.seen:
                continue
            mark = Mark.read(commit.user_metadata, self.site, self.table)
            if mark is None or mark.token not in self.tokens:
                raise TableReplacedError(
                    f"{self.table}: version {self.seen} at site {self.site} is not the commit that the ledger knows. The table "
                    f"was put back to an older state and written to again. Nothing is applied to it; {self.anew}."
                )

    def _check_gap(
        self, commits: Sequence[Commit], target: TargetHistory, target_id: str, after: int
    ) -> None:
        """Log cleanup may have taken commits that were not looked at. Apply numbers have no gaps: the next one that is there, or else the last that Delta
        has, proves that no apply is among them."""
        if not commits or self.target_id is None or commits[0].version == after + 1:
            return
        marks = (Mark.read(commit.user_metadata, self.site, self.table) for commit in commits)
        following = next((mark.apply - 1 for mark in marks if mark is not None), None)
        if following is None:
            following = target.last_transaction(transaction_name(self.site, self.table, target_id))
        if following != self.last_apply:
            raise LedgerError(
                f"{self.table}: the table's history at site {self.site} begins at version {commits[0].version}, the ledger ends at {after}. "
                f"Commits in between may have been applied by a receiver (the last apply was {self.last_apply} by the ledger, "
                f"{'unknown' if following is None else following} by the table's log). Nothing is applied to it. Restore the ledger's newer state; "
                f"without one, {self.anew}."
            )
        gone = commits[0].version - after - 1
        self.local_commits += gone
        self._unrecorded = 0  # at once: log cleanup is close behind
        log.warning(
            "%s: log cleanup took versions %d to %d of the table at site %s before a receiver saw them. None was an apply, but a RESTORE or a "
            "replaced column among them would not be noticed: they count as local commits",
            self.table,
            after + 1,
            after + gone,
            self.site,
        )

    def _check_not_lost(self, target: TargetHistory, target_id: str) -> None:
        last = target.last_transaction(transaction_name(self.site, self.table, target_id))
        if last is not None:
            raise LedgerError(
                f"{self.table}: by its log the table at site {self.site} has taken {last} applies, but neither its history nor the ledger knows one. "
                f"Nothing is applied to it. Stop this site's receivers and restore the ledger; without a backup, {anew(False)}; or, of a user's stream, "
                f"{anew(True)}."
            )

    def _check_numbers(self, rows: Sequence[LedgerRow]) -> None:
        """A number is given once, by Delta: one that comes again was written by a version that called its transactions otherwise."""
        for row in rows:
            if row.mark.apply <= self.last_apply and row.mark.token not in self.tokens:
                raise LedgerError(
                    f"{self.table}: version {row.target_version} at site {self.site} is apply {row.mark.apply}, which the ledger knows as another commit: "
                    f"two versions of spark_wan are at work here, and rows may have been applied twice. Stop the older one's receivers, and {self.anew}."
                )

    def _check_place(
        self, commits: Sequence[Commit], target: TargetHistory, target_id: str
    ) -> None:
        """Before the first apply: rows that were applied here as another table, or by another site, would stay though the source has them no more."""
        told = (read_mark(commit.user_metadata) for commit in commits)
        others = {
            f"table {mark.get('table')} at site {mark['site']}"
            for mark in told
            if mark and "site" in mark
        }
        others |= {
            f"table {name} at site {self.site}"
            for name in self.store.names(target_id) - {self.table}
        }
        if others and not target.is_empty():
            raise TableReplacedError(
                f"{self.table}: the table at its place at site {self.site} has rows that were applied as {', '.join(sorted(others))}. Those that the "
                f"source has no more would stay. Nothing is applied to it. Empty it (DELETE FROM {target.sql_name}), or remove it, "
                "or give the table another place at this site in the topology."
            )

    def _take_up_lost_marks(
        self, rows: Sequence[LedgerRow], target: TargetHistory, target_id: str
    ) -> bool:
        """Once in a process: whether the table's marks and event IDs are all there. Those of its own applies it has recorded itself. Returns whether marks
        that were lost are in the ledger again, by the table's history; raises LedgerError for event IDs that are gone, or do not count.
        """
        marks = [row.mark for row in rows]
        lost = lost_applies(marks)
        if not lost and not any(mark.ids for mark in marks):
            return False
        if lost:
            told = (
                LedgerRow(target_id, commit.version, mark)
                for commit in target.history(-1)
                if (mark := Mark.read(commit.user_metadata, self.site, self.table)) is not None
                and mark.apply in lost
            )
            if found := list(told):
                log.warning(
                    "%s: the ledger has lost %d marks; the table's history has %d of them",
                    self.table,
                    len(lost),
                    len(found),
                )
                self.store.append(self.table, found)
                return True
        check_event_ids(self.table, self.site, marks, self.store.recorded_ids(self.table))
        self.progress.lost = bool(lost)
        return False

    def _read_commits(self, commits: Sequence[Commit], target_id: str) -> list[LedgerRow]:
        rows: list[LedgerRow] = []
        for commit in commits:
            mark = Mark.read(commit.user_metadata, self.site, self.table)
            if mark is not None:
                rows.append(LedgerRow(target_id, commit.version, mark))
                continue
            other = read_mark(commit.user_metadata) or {}
            if "site" in other and (self.target_id is not None or rows):
                raise TableReplacedError(
                    f"{self.table}: version {commit.version} at site {self.site} was applied as table {other.get('table')} at site {other['site']}: "
                    f"two tables of the topology share one place. Nothing is applied to it; give each a place of its own, then {self.anew}."
                )
            if commit.operation == "RESTORE" and (self.target_id is not None or rows):
                raise TableReplacedError(
                    f"{self.table}: version {commit.version} at site {self.site} is a RESTORE: the table went back, the ledger did not. "
                    f"Nothing is applied to it; {self.anew}."
                )
            if commit.changes_rows and not commit.stays_here and commit.version > self._looked:
                self.local_commits += 1
        return rows

    def _follow_columns(
        self, rows: Sequence[LedgerRow], commits: Sequence[Commit], after: int
    ) -> tuple[list[LedgerRow], AppliedColumns]:
        """Where the applied columns are after ``commits``. The ledger keeps each mark with what is known of them then, which its writer may not have
        known yet."""
        marked = {row.target_version: row for row in rows}
        columns = self._columns_at.get(after, self.columns)
        told: list[LedgerRow] = []
        for commit in commits:
            row = marked.get(commit.version)
            if row is None:
                try:
                    columns = columns.after(commit)
                except (KeyError, ValueError, TypeError) as error:
                    raise LedgerError(
                        f"{self.table}: version {commit.version} at site {self.site} is a {commit.operation}, and the table's history does not say of which "
                        f"columns ({dict(commit.parameters)}). Nothing is applied to it; {self.anew}."
                    ) from error
            else:
                columns = columns.after_mark(AppliedColumns.of(row.mark))
                told.append(
                    replace(
                        row, mark=replace(row.mark, columns=columns.columns, moved=columns.moved)
                    )
                )
        return told, columns

    def _fold(self, rows: Iterable[LedgerRow | Seen]) -> None:
        rows = list(rows)
        marked = [row for row in rows if isinstance(row, LedgerRow)]
        for row in sorted(marked, key=lambda row: row.mark.apply):
            mark = row.mark
            self.columns = AppliedColumns({**self.columns.places, **AppliedColumns.of(mark).places})
            self._columns_at[row.target_version] = self.columns
            self.target_id = row.target_id
            self.seen = max(self.seen, row.target_version)
            self.last_apply = max(self.last_apply, mark.apply)
            self.tokens.add(mark.token)
            self._kinds.add(mark.ids)
            self.dead_letters[mark.stream] = max(
                mark.dead_letters, self.dead_letters.get(mark.stream, 0)
            )
            self.progress.advance(
                mark.key, mark.through, mark.stream, mark.log_id, mark.epoch, mark.fingerprint
            )
        for seen in rows:
            if (
                isinstance(seen, Seen)
                and seen.target_id == self.target_id
                and seen.target_version > self._looked
            ):
                self._looked, self._last = seen.target_version, seen.identity
                self._columns_at[self._looked] = AppliedColumns(
                    {**self.columns.places, **seen.moved}
                )
