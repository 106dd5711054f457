"""Marks are folded into their sum: nothing that the ledger tells changes, at no step."""

from __future__ import annotations

import copy
import random
from dataclasses import replace
from typing import Any

import pytest
from fakes import LedgerRows, Target
from ledgers import held, ledger, mark, target

from spark_wan.errors import LedgerError, TableReplacedError
from spark_wan.ledger.dead_letters import Applies
from spark_wan.ledger.event_ids import RecordedIds
from spark_wan.ledger.folding import fold, folded_ids
from spark_wan.ledger.ledger import Ledger
from spark_wan.ledger.total import KEPT_TOKENS
from spark_wan.steps import run
from spark_wan.wire.ledger import (
    DeadLetter,
    FoldedIds,
    HistoryPosition,
    LedgerRow,
    range_token,
    token_range,
)
from spark_wan.wire.mark import Mark


def users(apply: int, **changes: Any) -> Mark:
    """The mark of an apply of a user stream with three new events."""
    return mark(apply, **{"ids": True, "through": -1, "new_ids": 3, **changes})


def recorded(*marks: Mark) -> tuple[Target, LedgerRows]:
    """A target with these applies, and a ledger that has them with their IDs."""
    store = LedgerRows(tokens_with_ids={each.token for each in marks if each.applied[0].new_ids})
    store.letters = [each.token for each in marks]
    table = target(*marks)
    ledger(store).catch_up(table)
    return table, store


def vector(rng: random.Random, apply: int) -> dict[str, Any]:
    """What a mark says of the whole table: it may have gone back."""
    versions = [(origin, "id", "all", rng.randint(0, apply)) for origin in ("newark", "denver")]
    epochs = [(stream, "a" * 32, rng.randint(1, apply), "f" * 32) for stream in ("a", "b")]
    local = rng.choice([None, apply // 4])
    return {"vector": tuple(versions), "logs": tuple(epochs), "local": local}


def fold_all(store: LedgerRows, **limits: int) -> None:
    while run(fold(store, "seattle", "orders", **{"least": 1, **limits})):
        pass


def told(found: Ledger) -> dict[str, Any]:
    """What a ledger knows, but for the tokens of older applies."""
    names = ("progress", "target_id", "marked_version", "last_apply", "dead_letters", "columns")
    names = (*names, "vector_apply", "known_local")
    return {name: getattr(found, name) for name in (*names, "_user_streams")}


def counting(store: LedgerRows) -> set[str]:
    """Tokens of event IDs and dead letters that count."""
    marked = {row.mark.token for row in store.rows}
    tokens = {*store.tokens_with_ids, *store.letters, *(token for _, token in store.ranges)}
    return {token for token in tokens if token in marked or token_range(token)}


MIXED = [
    mark(1, dead_letters=1, columns=("id", "a"), moved={"a": "b"}),
    users(2, stream="newark.events.orders", dead_letters=2, columns=("id", "a")),
    mark(3, origin="denver", stream="denver.west.orders", through=7, columns=("id", "a", "c")),
    users(4, stream="newark.events.orders", dead_letters=5, new_ids=0, columns=("id", "a", "c")),
    users(5, origin="denver", stream="denver.events.orders", ids_until=50, columns=("id", "a")),
    mark(6, log_id="f" * 32, epoch=2, through=80, dead_letters=3, columns=("id", "a", "c")),
]


@pytest.mark.parametrize("most", [1, 2, 4, 100])
def test_a_folded_ledger_tells_the_same(most: int) -> None:
    table, store = recorded(*MIXED)
    before = ledger(LedgerRows([*store.rows], tokens_with_ids={*store.tokens_with_ids}))
    fold_all(store, most=most)
    assert (store.rows, len(store.summaries)) == ([], 1)
    found = ledger(store)
    assert (before.catch_up(table), found.catch_up(table)) == (7, 7)
    assert told(found) == told(before)
    assert "t6" in found.tokens
    table.put(users(7).user_metadata())
    store.tokens_with_ids.add("t7")
    assert (found.catch_up(table), ledger(store).catch_up(table)) == (8, 8)


@pytest.mark.parametrize("seed", range(40))
def test_any_marks_fold_to_what_they_tell(seed: int) -> None:
    """Random streams, columns, duplicates and positions; folded in random parts."""
    rng = random.Random(seed)
    marks = []
    for apply in range(1, rng.randint(2, 30)):
        kind = rng.choice([mark, users])
        stream = rng.choice(["a", "b"])
        marks.append(
            kind(
                apply,
                stream=f"{kind is users} {stream}",
                origin=rng.choice(["newark", "denver"]),
                dead_letters=apply // 3,
                columns=tuple(rng.sample(["id", "x", "y", "z"], rng.randint(0, 4))),
                ids_until=rng.choice([None, 5, apply]),
                **rng.choice([{}, vector(rng, apply)]),
            )
        )
    table, store = recorded(*marks)
    store.rows += rng.sample(store.rows, min(len(store.rows), 3))
    store.positions = [
        HistoryPosition("target-1", version, table.commits[0].identity, {"x": "q"})
        for version in (2, len(marks) + 1)
    ]
    whole = copy.deepcopy(store)
    table.put(None)
    store.positions[1] = replace(store.positions[1], identity=table.commits[-1].identity)
    whole.positions = list(store.positions)
    for _ in range(rng.randint(1, 4)):
        run(fold(store, "seattle", "orders", least=1, most=rng.randint(1, 10)))
    one, other = ledger(store), ledger(whole)
    assert one.catch_up(table) == other.catch_up(table) == len(marks) + 1
    assert told(one) == told(other)
    assert one._read_version == other._read_version


STEPS = 4


def test_letters_before_a_copy_do_not_share_a_token_with_later_ones() -> None:
    """The copy supersedes them, and only them. Fails when a fold across the copy has one range."""
    marks = [mark(number, dead_letters=number) for number in (1, 2, 3, 5)]
    marks.insert(3, mark(4, dead_letters=4, replaced=1))
    table, store = recorded(*marks)
    fold_all(store)
    assert store.letters == [*[range_token(1, 3)] * 3, *[range_token(4, 5)] * 2]
    found = ledger(store)
    found.catch_up(table)
    applies = Applies(found.tokens, found.copied)
    letters = [
        DeadLetter("receiver", "orders", "s", "e", 1, "put", None, "c", "{}", None, token=token)
        for token in store.letters
    ]
    assert [applies.is_before_copy(each) for each in letters] == [True] * 3 + [False] * 2


@pytest.mark.parametrize("steps", range(STEPS + 1))
@pytest.mark.parametrize("earlier", [0, 3])
def test_a_fold_that_dies_changes_nothing_and_is_continued(steps: int, earlier: int) -> None:
    """Between any two steps: all IDs and dead letters count, and nothing is held.

    Fails when tokens are renamed after the marks are deleted.
    """
    marks = [users(number, dead_letters=number) for number in range(1, 8)]
    table, store = recorded(*marks)
    if earlier:
        run(fold(store, "seattle", "orders", least=1, most=earlier))
    dying = fold(store, "seattle", "orders", least=1)
    for _ in range(steps):
        next(dying)
        table_now, found = table, ledger(store)
        assert found.catch_up(table_now) == 8
        everything = {*store.tokens_with_ids, *store.letters, *(token for _, token in store.ranges)}
        assert counting(store) == everything
    dying.close()
    fold_all(store)
    assert (store.rows, store.tokens_with_ids, len(store.summaries)) == ([], set(), 1)
    assert ledger(store).catch_up(table) == 8
    assert all(token_range(token) for token in store.letters)


@pytest.mark.parametrize("at", range(1, STEPS))
def test_a_fold_that_is_overtaken_does_no_harm(at: int) -> None:
    """A process is frozen inside a fold while others fold, apply and fold again."""
    table, store = recorded(*(users(number) for number in range(1, 6)))
    frozen = fold(store, "seattle", "orders", least=1)
    for _ in range(at):
        next(frozen)
    for number in range(6, 12):
        table.put(users(number).user_metadata())
        store.tokens_with_ids.add(f"t{number}")
        assert ledger(store).catch_up(table) == number + 1
        fold_all(store)
    run(frozen)
    assert ledger(store).catch_up(table) == 12
    everything = {*store.tokens_with_ids, *(token for _, token in store.ranges)}
    assert counting(store) == everything
    fold_all(store)
    assert ledger(store).catch_up(table) == 12


def test_of_rival_claims_one_is_accepted() -> None:
    """Both processes then fold the same applies.

    Fails when each folds its own: IDs that the other renamed would lack.
    """
    table, store = recorded(*(users(number) for number in range(1, 6)))
    one, other = (fold(store, "seattle", "orders", least=1, most=most) for most in (2, 5))
    next(one)
    rows = store.load("orders")
    summaries, store.summaries = store.summaries, []
    next(other)  # it read the ledger before the first claim, and claims after it
    store.summaries = summaries
    assert rows == store.load("orders")
    run(one)
    run(other)
    assert ledger(store).catch_up(table) == 6
    assert [summary.apply for summary in store.summaries] == [2]


def test_few_marks_are_not_folded() -> None:
    """Fails without the minimum: an apply an hour would cost three commits."""
    _, store = recorded(mark(1), mark(2))
    assert run(fold(store, "seattle", "orders", least=3)) == 0
    assert store.summaries == []


# --- what a folded ledger may have lost


def folded(*marks: Mark, **limits: int) -> tuple[Target, LedgerRows]:
    table, store = recorded(*marks)
    fold_all(store, **limits)
    return table, store


LOST_FOLDED = "has lost the 9 event IDs of applies 1 to 3"


def test_f55_lost_event_ids_of_folded_applies_hold_the_stream() -> None:
    """Fails when folded applies are not checked: replays are applied again."""
    table, store = folded(users(1), users(2), users(3))
    lost, store.ranges = store.ranges, set()
    running = ledger(store)
    held(running, table, LedgerError, LOST_FOLDED)
    store.ranges = lost
    assert running.catch_up(table) == 4


def test_f55_event_ids_restored_to_before_the_fold_hold_the_stream() -> None:
    """Their tokens are those of marks that are folded: they do not count.

    Fails when any range inside the folded one suffices.
    """
    marks = [users(number) for number in range(1, 4)]
    table, store = recorded(*marks)
    run(fold(store, "seattle", "orders", least=1, most=2))
    before = set(store.ranges), set(store.tokens_with_ids)
    fold_all(store)
    store.ranges, store.tokens_with_ids = before
    held(ledger(store), table, LedgerError, LOST_FOLDED)


def test_f55_marks_restored_to_before_the_fold_are_used() -> None:
    """Their IDs have the range's token, which covers them; lost marks hold the stream."""
    marks = [users(number) for number in range(1, 4)]
    table, store = recorded(*marks)
    backup = list(store.rows)
    fold_all(store)
    store.rows, store.summaries = backup, []
    assert ledger(store).catch_up(table) == 4
    store.rows = backup[2:]
    del table.commits[:3]
    held(ledger(store), table, LedgerError, "has lost the marks of 2 applies")


@pytest.mark.parametrize(("until", "floor", "is_held"), [(50, 50, False), (51, 50, True)])
def test_f55_expired_event_ids_of_folded_applies_are_not_lost(
    until: int, floor: int, is_held: bool
) -> None:
    table, store = folded(users(1, ids_until=20), users(2, ids_until=until))
    store.ranges, store.floors = set(), {"newark": floor}
    if is_held:
        held(ledger(store), table, LedgerError, "has lost the 6 event IDs of applies 1 to 2")
    else:
        assert ledger(store).catch_up(table) == 3


def test_f55_marks_that_were_lost_before_a_fold_stay_lost() -> None:
    """Those of a captured stream. A stream without any mark is held, not taken for a new one.

    Fails when the summary forgets them.
    """
    table, store = recorded(mark(1), mark(2), mark(3))
    del store.rows[0], table.commits[:3]
    fold_all(store)
    found = ledger(store)
    assert found.catch_up(table) == 4
    assert found.progress.lost
    store.rows.append(LedgerRow("target-1", 1, mark(1)))
    found = ledger(store)
    assert found.catch_up(table) == 4
    assert not found.progress.lost


def test_f55_nothing_is_folded_when_something_is_lost() -> None:
    """Fails when the fold hides it."""
    _, store = recorded(*(users(number) for number in range(1, 4)))
    store.tokens_with_ids.remove("t2")
    with pytest.raises(LedgerError, match="has lost the 3 event IDs of apply 2"):
        fold_all(store)
    assert (store.summaries, len(store.rows)) == ([], 3)


def test_f55_event_ids_of_version_0_1_0_are_checked_when_folded() -> None:
    """Marks of that version do not count their IDs."""
    old = [users(number, new_ids=None) for number in (1, 2)]
    table, store = target(*old), LedgerRows(tokens_with_ids={"t2"})
    store.append("orders", [LedgerRow("target-1", n, each) for n, each in enumerate(old, 1)])
    fold_all(store)
    assert ledger(store).catch_up(table) == 3
    store.ranges = set()
    held(ledger(store), table, LedgerError, "has none of the event IDs of all applies")


def test_a_restored_table_is_detected_by_a_folded_ledger() -> None:
    """Fails when the summary lacks the newest mark's token or version."""
    table, store = folded(mark(1), mark(2))
    assert ledger(store).catch_up(table) == 3
    del table.commits[2:]
    for _ in range(3):
        table.put(None)
    held(ledger(store), table, TableReplacedError, "is not the commit that the ledger knows")


# --- sizes


def test_the_ranges_of_event_ids_are_few_and_ids_are_rewritten_rarely() -> None:
    """Fails when all ranges are joined each time, or none."""
    ranges: list[FoldedIds] = []
    rewritten = 0
    for hour in range(1_000):
        before = set(ranges)
        ranges = folded_ids(ranges, [users(hour + 1)])
        rewritten += sum(ids.count or 0 for ids in ranges if ids not in before)
        assert [ids.last + 1 for ids in ranges[:-1]] == [ids.first for ids in ranges[1:]]
    assert sum(ids.count or 0 for ids in ranges) == 3_000
    assert len(ranges) <= 12
    assert rewritten <= 3_000 * 12


def test_tokens_in_memory_are_bounded() -> None:
    table, found = target(mark(1)), ledger()
    found.catch_up(table)
    for number in range(2, 3 * KEPT_TOKENS):
        found.take_up(None, [LedgerRow("target-1", number, mark(number))])
    assert len(found.tokens) == KEPT_TOKENS and f"t{3 * KEPT_TOKENS - 1}" in found.tokens


# --- formats


def test_tokens_of_ranges_sort_after_all_others() -> None:
    """A statement may skip the files that have only such tokens. Floors have the token `floor`."""
    assert token_range(range_token(1, 2)) == (1, 2) and not token_range("floor")
    assert not token_range("f" * 32) and range_token(1, 2) > "f" * 32


def test_recorded_ids_are_read_per_origin() -> None:
    rows = [("newark", "t1", 1), ("newark", "marked 2-5", 2), ("denver", None, 7)]
    found = RecordedIds.of(rows)
    assert found == RecordedIds(frozenset({"t1"}), {"denver": 7}, {"newark": frozenset({(2, 5)})})

    def has(each: Mark) -> bool:
        return found.has(each, each.applied[0])

    assert [has(users(number)) for number in (1, 2, 5, 6)] == [True, True, True, False]
    assert not has(users(3, origin="denver"))


def copied(apply: int) -> Mark:
    """The mark of a copy with the IDs of the rows that it has."""
    return users(apply, replaced=5, vector=(), logs=(("a", "a" * 32, apply, "f" * 32),), local=0)


@pytest.mark.parametrize("most", [1, 2, 10])
@pytest.mark.parametrize("folds", [False, True], ids=["marks", "ranges"])
def test_event_ids_of_before_a_copy_are_not_joined_with_those_of_the_copy(
    most: int, folds: bool
) -> None:
    """Their rows are gone, and may come again. Fails when a fold has them count again."""
    table, store = recorded(users(1), users(2))
    if folds:
        fold_all(store)
    before = {token for _, token in store.ranges} | store.tokens_with_ids
    for each in (copied(3), users(4)):
        table.put(each.user_metadata())
        store.tokens_with_ids.add(each.token)
    assert ledger(store).catch_up(table) == 5
    fold_all(store, most=most)
    now = {token for _, token in store.ranges} | store.tokens_with_ids
    assert before <= now  # nothing was renamed, and none of them counts
    joined = [token_range(token) for token in now - before]
    assert all(found is not None and found[0] >= 3 for found in joined)
    assert ledger(store).catch_up(table) == 5


@pytest.mark.parametrize("fold_first", [False, True])
def test_event_ids_that_were_lost_before_a_copy_are_not_missed(fold_first: bool) -> None:
    """The copy has brought others. Fails when the site is held, or copies for ever."""
    table, store = recorded(users(1), users(2))
    if fold_first:
        fold_all(store)
    store.ranges, store.tokens_with_ids = set(), set()
    held(ledger(store), table, LedgerError, "has lost the")
    table.put(copied(3).user_metadata())
    store.tokens_with_ids = {"t3"}
    for _ in range(2):  # and after a restart
        found = ledger(store)
        assert found.catch_up(table) == 4
    store.tokens_with_ids = set()
    held(ledger(store), table, LedgerError, "event IDs of apply 3")
