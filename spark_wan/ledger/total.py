"""The sum of a table's marks: what they say together, in memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from spark_wan.ledger.applied_columns import AppliedColumns
from spark_wan.ledger.progress import Progress
from spark_wan.wire.ledger import FoldedIds, HistoryPosition, LedgerRecord, LedgerRow, Summary
from spark_wan.wire.mark import Mark

KEPT_TOKENS = 1_000
"""Number of applies whose tokens are kept in memory. A receiver looks for its own token right after
its write. If others made more applies meanwhile, it plans again, and finds its epochs applied."""


@dataclass(kw_only=True)
class Total:
    """What the marks that were taken up say of a table."""

    progress: Progress = field(default_factory=Progress)
    target_id: str | None = None
    marked_version: int = -1
    """The target's version with the newest of the marks."""
    last_apply: int = 0
    tokens: dict[str, int] = field(default_factory=dict)
    """Token -> apply number, of the newest :data:`KEPT_TOKENS` applies."""
    dead_letters: dict[str, int] = field(default_factory=dict)
    """Per stream, as counted by the marks."""
    columns: AppliedColumns = field(default_factory=AppliedColumns)
    """The applied columns, and where they are in the table now."""
    local_commits: int = 0
    """Commits to the target that change rows and are not a receiver's, as far as they were seen."""
    late_commits: int = 0
    """Those that came while the newest copy was written; 0 also once its mark is folded."""
    local_known: bool = True
    """Whether they were all seen: the marks of earlier versions do not say."""
    vector_apply: int = 0
    """The newest of the applies whose mark has a vector; 0: none."""
    copied: int = 0
    """The newest of the applies that took a copy: of those before it, nothing counts; 0: none."""
    _columns_at: dict[int, AppliedColumns] = field(default_factory=dict)
    """The same after versions of the target."""
    _user_streams: set[bool] = field(default_factory=set)
    """Whether user streams were applied (True), captured streams (False), or both."""

    def take_up(self, summary: Summary | None, rows: Iterable[LedgerRow]) -> None:
        """Add marks; first ``summary``, if there is one."""
        if summary is not None:
            self._take_up_summary(summary)
        self._take_up_rows(rows)

    def summary(self, number: int, ids: Sequence[FoldedIds], lost: Iterable[int]) -> Summary:
        """Return the sum to store. ``number``: of the fold; ``lost``: applies without marks."""
        assert self.target_id is not None
        return Summary(
            target_id=self.target_id,
            target_version=self.marked_version,
            apply=self.last_apply,
            token=max(self.tokens, key=self.tokens.__getitem__),
            number=number,
            through=self.progress.vector,
            logs=self.progress.logs,
            dead_letters=dict(self.dead_letters),
            user_streams=tuple(sorted(self._user_streams)),
            columns=self.columns.columns,
            moved=self.columns.moved,
            ids=tuple(ids),
            lost=ranges(lost),
            vector_apply=self.vector_apply,
            local=self.known_local,
            copied=self.copied,
        )

    @property
    def known_local(self) -> int | None:
        """Number of local commits; None: unknown."""
        return self.local_commits if self.local_known else None

    def count_local(self, number: int | None) -> None:
        """Take up how many local commits there were (None: unknown)."""
        self.local_commits, self.local_known = number or 0, number is not None

    def _take_up_summary(self, summary: Summary) -> None:
        self.columns = AppliedColumns({**{path: path for path in summary.columns}, **summary.moved})
        self._columns_at[summary.target_version] = self.columns
        self.target_id, self.marked_version = summary.target_id, summary.target_version
        self.last_apply, self.tokens = summary.apply, {summary.token: summary.apply}
        self._user_streams.update(summary.user_streams)
        self.dead_letters.update(summary.dead_letters)
        self.progress = Progress.of(summary.through, summary.logs, self.progress.lost)
        self.vector_apply, self.copied = summary.vector_apply, summary.copied
        self.count_local(summary.local)

    def _take_up_rows(self, rows: Iterable[LedgerRow]) -> None:
        for row in sorted(rows, key=lambda row: row.mark.apply):
            mark = row.mark
            if mark.apply < self.copied:
                continue
            if mark.replaced is not None and mark.apply > self.last_apply:
                self._begin_with_copy(mark)
            older, newer = self.columns.places, AppliedColumns.of(mark).places
            if mark.apply < self.last_apply:  # of an apply before the summary's last
                older, newer = newer, older
            self.columns = AppliedColumns({**older, **newer})
            self._columns_at[row.target_version] = self.columns
            self.target_id = row.target_id
            self._take_up_progress(mark)
            if mark.apply > self.last_apply:
                self.count_local(mark.local)
            self.marked_version = max(self.marked_version, row.target_version)
            self.last_apply = max(self.last_apply, mark.apply)
            self.tokens[mark.token] = mark.apply
            for part in mark.applied:
                self._user_streams.add(part.ids)
                self.dead_letters[part.stream] = max(
                    part.dead_letters, self.dead_letters.get(part.stream, 0)
                )
        if len(self.tokens) > KEPT_TOKENS:
            newest = sorted(self.tokens.items(), key=lambda entry: entry[1])[-KEPT_TOKENS:]
            self.tokens = dict(newest)

    def _begin_with_copy(self, mark: Mark) -> None:
        """Forget what the marks before a copy say."""
        self.copied, self.late_commits = mark.apply, mark.local or 0
        self.marked_version, self.columns = -1, AppliedColumns()
        self._columns_at, self._user_streams, self.tokens = {}, set(), {}

    def _take_up_progress(self, mark: Mark) -> None:
        """The newest mark that has a vector says how far the table was; later ones add to it.

        Rows may come late: of a mark before that one, everything is in its vector, or was undone.
        """
        if mark.apply < self.vector_apply:
            return
        if mark.vector is not None and mark.logs is not None:
            if mark.apply > self.last_apply:
                self.progress = Progress.of(mark.vector, mark.logs, self.progress.lost)
            else:
                self.progress.add(mark.vector, mark.logs)
            self.vector_apply = mark.apply
            return
        for part in mark.applied:
            self.progress.advance(part.key, part.through, part)


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


def ranges(numbers: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """Return ascending numbers as ranges.

    >>> ranges([1, 2, 3, 7])
    ((1, 3), (7, 7))
    """
    ordered = list(numbers)
    if not ordered:
        return ()
    gaps = [(before, after) for before, after in pairwise(ordered) if after != before + 1]
    firsts = [ordered[0], *(after for _, after in gaps)]
    lasts = [*(before for before, _ in gaps), ordered[-1]]
    return tuple(zip(firsts, lasts, strict=True))
