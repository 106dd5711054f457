"""Folding: the marks of a table are replaced by their sum, so that the ledger does not grow.

:func:`fold` is a numbered path. A crash between any two steps changes nothing, and the next fold
goes on where it ended:

    fold.1  claimed      a claim says which applies are folded. Of rival claims one is accepted
    fold.2  ids-renamed  their event IDs have one token per origin, a range: they always count
    fold.3  letters-renamed  so have their dead letters
    fold.4  folded       one commit adds the summary and deletes the marks

Until fold.4 the marks count, then the summary. IDs count throughout, first by a mark with their
token, then by their range; ``fold.2`` is one commit, so a range is there for all of its applies or
for none. A claim is a row of version 2: an older spark_wan that starts refuses the ledger, before
the first token is renamed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from spark_wan.ledger.event_ids import RecordedIds, check_event_ids, copied_by, lost_applies
from spark_wan.ledger.interfaces import LedgerStore
from spark_wan.ledger.total import Total, sorted_rows
from spark_wan.steps import Steps
from spark_wan.wire.ledger import FoldedIds, LedgerRecord, Summary, range_token
from spark_wan.wire.mark import Mark

LEAST_MARKS = 100
"""A fold is worth its commits from so many marks on."""
MOST_MARKS = 2_000
"""Maximum number of marks of one fold: their tokens are literals of a statement."""


def fold(
    store: LedgerStore, site: str, table: str, *, least: int = LEAST_MARKS, most: int = MOST_MARKS
) -> Steps[int]:
    """Fold the oldest marks of a table; return how many. 0: fewer than ``least`` were there.

    Raises LedgerError when event IDs, or marks that make them count, are lost: nothing is folded.
    """
    rows = store.load(table)
    claim = _open_claim(rows)
    if claim is None:
        claim = _next_claim(store, table, rows, site=site, least=least, most=most)
        if claim is None:
            return 0
        store.claim(table, claim)
        yield "fold.1 claimed"
        rows = store.load(table)
        claim = _open_claim(rows)
        if claim is None:
            return 0  # another process has folded meanwhile
    before, marks, positions = sorted_rows(rows)
    folded = [row.mark for row in marks if row.mark.apply <= claim.apply]
    counting = [mark for mark in folded if mark.apply >= claim.copied]
    known = before.ids if before is not None else ()
    _rename_ids(store, table, [ids for ids in claim.ids if ids not in known], counting)
    yield "fold.2 ids-renamed"
    letters = sum(before.dead_letters.values()) if before is not None else 0
    if folded and sum(claim.dead_letters.values()) != letters:
        first = before.apply + 1 if before is not None else 1
        # A copy supersedes the letters before it, so they do not share a token with later ones.
        for low, high in ((first, claim.copied - 1), (max(first, claim.copied), claim.apply)):
            tokens = {mark.token for mark in folded if low <= mark.apply <= high}
            if tokens:
                store.rename_letters(table, tokens, range_token(low, high))
    yield "fold.3 letters-renamed"
    current = [each for each in positions if each.apply >= claim.copied]
    newest = max((position.target_version for position in current), default=0)
    store.replace(table, claim.accepted(), max(newest, claim.target_version))
    yield "fold.4 folded"
    return len(folded)


def _open_claim(rows: Sequence[LedgerRecord]) -> Summary | None:
    """Return the claim that no summary follows, or None."""
    claims = [row for row in rows if isinstance(row, Summary)]
    newest = max(claims, key=lambda row: (row.number, not row.claimed), default=None)
    return newest if newest is not None and newest.claimed else None


def _next_claim(
    store: LedgerStore,
    table: str,
    rows: Sequence[LedgerRecord],
    *,
    site: str,
    least: int,
    most: int,
) -> Summary | None:
    before, newer, _ = sorted_rows(rows)
    newer.sort(key=lambda row: row.mark.apply)
    copied = copied_by([row.mark for row in newer])
    newer = [row for row in newer if row.mark.apply >= copied]
    marks = [row.mark for row in newer]
    taken = newer[:most]
    if len(newer) < least or len({row.target_id for row in newer}) > 1:
        return None
    lost = lost_applies(marks, before)
    users = any(part.ids for mark in marks for part in mark.applied)
    if lost or users or (before is not None and before.ids):
        check_event_ids(table, site, marks, store.recorded_ids(table), folded=before)
    last = max(taken[-1].mark.apply, before.apply if before is not None else 0)
    taken += [row for row in newer[most:] if row.mark.apply == last]  # duplicate rows
    total = Total()
    total.take_up(before, taken)
    known = [ids for ids in (before.ids if before is not None else ()) if ids.last >= copied]
    ids = folded_ids(known, [row.mark for row in taken])
    return total.summary(
        before.number + 1 if before is not None else 1,
        ids,
        (number for number in lost if number <= last),
    ).as_claim()


def folded_ids(before: Sequence[FoldedIds], marks: Iterable[Mark]) -> list[FoldedIds]:
    """Return the ranges of event IDs once ``marks`` are folded, too.

    A range joins the one before it unless that has more than twice as many IDs. So there are few
    ranges, about the logarithm of the number of IDs, and an ID is rewritten about as often.
    """
    with_ids = {
        (mark.token, place): (mark.apply, part)
        for mark in marks
        for place, part in enumerate(mark.applied)
        if part.ids and part.new_ids != 0
    }
    kept = list(before)
    by_origin = sorted(with_ids.values(), key=lambda each: (each[1].origin, each[0]))
    for origin, of_origin in groupby(by_origin, key=lambda each: each[1].origin):
        new: FoldedIds | None = None
        for apply, part in of_origin:
            each = FoldedIds(origin, apply, apply, count=part.new_ids, until=part.ids_until)
            new = each if new is None else new.joined(each)
        assert new is not None
        while own := [ids for ids in kept if ids.origin == origin]:
            if (own[-1].count or 0) > 2 * (new.count or 0):
                break
            kept.remove(own[-1])
            new = own[-1].joined(new)
        kept.append(new)
    return kept


def _rename_ids(
    store: LedgerStore, table: str, new: Sequence[FoldedIds], marks: Sequence[Mark]
) -> None:
    if not new:
        return
    recorded = store.recorded_ids(table)
    tokens = {ids: _replaced_tokens(ids, marks, recorded) for ids in new}
    if tokens := {ids: of for ids, of in tokens.items() if of}:
        store.rename_ids(table, tokens)


def _replaced_tokens(ids: FoldedIds, marks: Sequence[Mark], recorded: RecordedIds) -> set[str]:
    """Return the recorded tokens, of applies and of ranges, that a range is to replace."""
    inside = {
        range_token(first, last)
        for first, last in recorded.ranges.get(ids.origin, ())
        if ids.first <= first and last <= ids.last
    }
    applies = {
        mark.token for mark in marks if any(part.origin == ids.origin for part in mark.applied)
    }
    return (inside | (applies & recorded.tokens)) - {ids.token}
