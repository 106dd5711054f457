"""The ledger: the sum of a table's marked commits, and tables that were replaced or restored."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from fakes import MANIFEST, STREAM, LedgerRows, Target, commit, memory_channel
from ledgers import APPLIED, MARK, ORIGIN, PLACE, held, ledger, mark, target

from spark_wan.errors import (
    RESEND,
    SYNC,
    LedgerError,
    NewerRecordError,
    TableReplacedError,
    TargetError,
)
from spark_wan.ledger.folding import fold
from spark_wan.ledger.ledger import Ledger
from spark_wan.steps import run
from spark_wan.wire.ledger import LedgerRow, decode_row, encode_row
from spark_wan.wire.mark import LOCAL_ONLY, Mark
from spark_wan.wire.records import EpochRef

MARK_V1 = (
    '{"spark_wan":{"version":1,"site":"seattle","table":"orders","apply":1,"token":"t1",'
    '"origin":"newark","table_id":"11111111-2222-3333-4444-555555555555","selection":"all",'
    '"through":9,"stream":"newark.east.orders",'
    '"incarnation":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa","epoch":1,"fingerprint":"'
    + MANIFEST.fingerprint
    + '","ids":false,"dead_letters":0}}'
)


# --- marks ----------------------------------------------------------------------------------------


MARK_V2 = (
    '{"spark_wan":{"version":2,"site":"seattle","table":"orders","apply":1,"token":"t1","applied":['
    '{"origin":"newark","table_id":"11111111-2222-3333-4444-555555555555","selection":"all",'
    '"through":9,"stream":"newark.east.orders",'
    '"log_id":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa","epoch":1,"fingerprint":"'
    + MANIFEST.fingerprint
    + '","ids":false,"dead_letters":0}]}}'
)
MARK_V3 = '{"spark_wan":{"version":3,"site":"seattle","table":"orders","what":[{"from":"newark"}]}}'
"""Made up."""

SECOND = replace(
    APPLIED,
    origin="denver",
    stream="seattle.west~denver.north.orders",
    epoch=7,
    through=70,
    clock=1_700_000_000_000,
    via=EpochRef("denver.north.orders", "b" * 32, 5, "f" * 32),
)
SECOND_V2 = (
    ',{"origin":"denver","table_id":"11111111-2222-3333-4444-555555555555","selection":"all",'
    '"through":70,"stream":"seattle.west~denver.north.orders",'
    '"log_id":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa","epoch":7,"fingerprint":"'
    + MANIFEST.fingerprint
    + '","ids":false,"dead_letters":0,"clock":1700000000000,'
    '"via":{"stream":"denver.north.orders","log_id":"bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb",'
    '"epoch":5,"fingerprint":"ffffffffffffffffffffffffffffffff"}}'
)
WHOLE = replace(
    MARK,
    vector=(("newark", MANIFEST.table_id, "all", 9), ("denver", MANIFEST.table_id, "all", 70)),
    logs=((STREAM, "a" * 32, 1, "f" * 32),),
    local=2,
)
WHOLE_V2 = MARK_V2[:-2] + (
    ',"vector":[["newark","11111111-2222-3333-4444-555555555555","all",9],'
    '["denver","11111111-2222-3333-4444-555555555555","all",70]],'
    '"logs":[["newark.east.orders","aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",1,'
    '"ffffffffffffffffffffffffffffffff"]],"local":2}}'
)
TWO = replace(MARK, applied=(APPLIED, SECOND))
TWO_V2 = MARK_V2.replace("}]}}", f"}}{SECOND_V2}]}}}}")


def test_b82_marks_of_both_versions_are_read_and_version_2_is_written() -> None:
    assert Mark.read(MARK_V1, "seattle", "orders") == MARK
    assert Mark.read(MARK_V2, "seattle", "orders") == MARK
    assert MARK.user_metadata() == MARK_V2


def test_a_mark_of_the_whole_table_survives_a_round_trip_in_its_golden_bytes() -> None:
    assert WHOLE.user_metadata() == WHOLE_V2
    assert Mark.read(WHOLE_V2, "seattle", "orders") == WHOLE


def test_a_mark_of_several_streams_survives_a_round_trip_in_its_golden_bytes() -> None:
    """With its clock and the inbound epoch that was forwarded; in the ledger too."""
    assert Mark.read(TWO_V2, "seattle", "orders") == TWO
    assert TWO.user_metadata() == TWO_V2
    row = LedgerRow("target-1", 7, TWO)
    assert decode_row("target-1", 7, encode_row(row)["mark"]) == row


def test_marks_of_other_sites_and_tables_are_ignored() -> None:
    for site, table in (("tacoma", "orders"), ("seattle", "cities")):
        assert Mark.read(MARK_V1, site, table) is None
    for text in (None, "", "nightly", LOCAL_ONLY, '{"spark_wan": 5}'):
        assert Mark.read(text, "seattle", "orders") is None


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (MARK_V3, "in version 3; this spark_wan reads versions 1 and 2"),
        (
            MARK_V2.replace('"apply"', '"requires":["applied","sealed"],"apply"'),
            "it requires sealed, unknown to this spark_wan",
        ),
        (
            MARK_V2.replace('"apply"', '"requires":["applied.rows"],"apply"'),
            "it requires applied.rows",
        ),
    ],
    ids=["version 3", "requires", "requires of a stream"],
)
def test_f51_a_mark_of_a_newer_spark_wan_holds_the_table(text: str, what: str) -> None:
    """In the table's history, and, if it has no version, in the ledger."""
    table = target()
    table.commits.append(commit(1, "MERGE", user_metadata=text))
    with pytest.raises(LedgerError, match=f"written by a newer spark_wan.*{what}.*Update"):
        ledger().catch_up(table)
    content = json.loads(text)["spark_wan"]
    if content.pop("version") == 2:
        with pytest.raises(NewerRecordError, match=what):
            decode_row("target-1", 7, json.dumps(content))


def test_f51_a_mark_whose_required_fields_are_known_is_read() -> None:
    required = '"requires":["applied","applied.clock","moved"],"color":1,"apply"'
    assert Mark.read(MARK_V2.replace('"apply"', required), "seattle", "orders") == MARK


def test_a_mark_of_several_streams_advances_all_of_them() -> None:
    """In one apply. Fails when the ledger takes up only one: the other is applied again."""
    found = ledger()
    users = replace(SECOND, stream="denver.web.orders", table_id="events", through=-1, ids=True)
    mark = replace(TWO, applied=(*TWO.applied, replace(users, dead_letters=3, new_ids=0)))
    assert found.catch_up(target(mark)) == 2
    origin = ("denver", MANIFEST.table_id, "all")
    assert found.progress.through == {ORIGIN: 9, origin: 70}
    assert found.progress.positions == {
        PLACE: 1,
        (SECOND.stream, MANIFEST.log_id): 7,
        ("denver.web.orders", MANIFEST.log_id): 7,
    }
    assert found.dead_letters == {STREAM: 0, SECOND.stream: 0, "denver.web.orders": 3}
    assert "write the events with the sink" in found.copy_advice


def test_lost_event_ids_of_any_stream_of_a_mark_hold_the_table() -> None:
    """Fails when only the first stream of a mark is looked at."""
    users = replace(SECOND, table_id="events", through=-1, ids=True, new_ids=4)
    with pytest.raises(LedgerError, match="has lost the 4 event IDs of apply 1"):
        ledger().catch_up(target(replace(TWO, applied=(APPLIED, users))))


@pytest.mark.parametrize("field", ["token", "through", "epoch"])
def test_a_mark_with_missing_fields_is_a_ledger_error(field: str) -> None:
    content = json.loads(MARK_V1)
    del content["spark_wan"][field]
    with pytest.raises(LedgerError, match="did not write"):
        Mark.read(json.dumps(content), "seattle", "orders")


def test_unknown_fields_of_a_mark_are_ignored() -> None:
    """In the table and in the ledger.

    Fails when they raise an error: the older of two receivers could not go on.
    """
    for text in (MARK_V1, MARK_V2, MARK_V2.replace('"apply"', '"color":{},"apply"')):
        assert Mark.read(text.replace('"ids"', '"color":1,"ids"'), "seattle", "orders") == MARK
    text = json.dumps({**MARK.content(), "color": 1})
    assert decode_row("target-1", 7, text) == LedgerRow("target-1", 7, MARK)


# --- catching up ----------------------------------------------------------------------------------


def test_without_a_table_there_is_no_apply_number() -> None:
    found = ledger()
    assert found.catch_up(Target(memory_channel(), id=None)) is None
    assert found.target_id is None


def test_a_table_without_marks_is_at_apply_1() -> None:
    assert ledger().catch_up(target()) == 1


def test_marked_commits_determine_the_apply_number() -> None:
    table, found = target(mark(1), mark(2)), ledger()
    assert found.catch_up(table) == 3
    assert found.progress.through == {ORIGIN: 19}
    assert found.progress.positions == {PLACE: 2}
    assert "t2" in found.tokens and "t3" not in found.tokens
    assert [row.target_version for row in found.store.load("orders")] == [1, 2]
    table.put(mark(3).user_metadata())
    assert found.catch_up(table) == 4
    assert found.progress.through == {ORIGIN: 29}


def test_f25_marks_that_the_ledger_lost_are_recovered_from_the_table() -> None:
    """Killed between table commit and ledger commit; or the whole ledger lost."""
    table = target(mark(1), mark(2))
    assert ledger().catch_up(table) == 3
    store = LedgerRows()
    ledger(store).catch_up(target(mark(1)))
    found = ledger(store)
    assert found.catch_up(table) == 3
    assert found.progress.through == {ORIGIN: 19}


def test_the_ledger_keeps_marks_that_log_cleanup_removed() -> None:
    """Log cleanup took the marked commits."""
    table, store = target(mark(1), mark(2)), LedgerRows()
    ledger(store).catch_up(table)
    table.put(None)
    table.commits = table.commits[2:]
    found = ledger(store)
    assert found.catch_up(table) == 3
    assert found.progress.through == {ORIGIN: 19}


def test_duplicate_ledger_rows_do_no_harm() -> None:
    table, store = target(mark(1), mark(2)), LedgerRows()
    ledger(store).catch_up(table)
    store.rows += store.rows
    found = ledger(store)
    assert (found.catch_up(table), found.progress.through) == (3, {ORIGIN: 19})


def test_ledger_rows_may_come_in_any_order() -> None:
    table, store = target(mark(1), mark(2), mark(3)), LedgerRows()
    ledger(store).catch_up(table)
    store.rows.reverse()
    found = ledger(store)
    assert (found.catch_up(table), found.progress.positions) == (4, {PLACE: 3})


def test_streams_of_one_table_share_its_apply_numbers() -> None:
    other = {"origin": "denver", "stream": "denver.west.orders"}
    found = ledger()
    assert found.catch_up(target(mark(1), mark(2, **other, epoch=7, through=70), mark(3))) == 4
    assert found.progress.through == {ORIGIN: 29, ("denver", MANIFEST.table_id, "all"): 70}
    assert found.progress.positions == {PLACE: 3, ("denver.west.orders", MANIFEST.log_id): 7}


def test_dead_letters_are_counted_by_the_marks() -> None:
    found = ledger()
    found.catch_up(target(mark(1, dead_letters=2), mark(2, dead_letters=5)))
    assert found.dead_letters == {STREAM: 5}


def test_local_commits_are_counted_and_cost_nothing() -> None:
    table, found = target(mark(1)), ledger()
    table.put(None)
    table.put(None, "OPTIMIZE")
    table.put(LOCAL_ONLY)
    found.catch_up(table)
    assert (found.local_commits, len(found.store.load("orders"))) == (2, 1)
    found.catch_up(table)
    assert found.local_commits == 2


def test_a_compaction_that_version_0_1_recorded_as_an_apply_holds_nothing() -> None:
    """It had the mark of the write before it. Fails when the table seems to be restored."""
    table, found = target(mark(1)), ledger()
    found.catch_up(table)
    table.put(mark(1).user_metadata(), "OPTIMIZE")
    (row,) = found.store.load("orders")
    found.store.append("orders", [replace(row, target_version=2)])
    table.put(mark(2).user_metadata())
    newer = ledger(found.store)
    assert newer.catch_up(table) == 3
    assert run(fold(found.store, "seattle", "orders", least=1)) == 3
    assert ledger(found.store).catch_up(table) == 3


def test_an_unchanged_table_adds_no_ledger_rows() -> None:
    table, found = target(mark(1)), ledger()
    found.catch_up(table)
    before = list(found.store.load("orders"))
    assert found.catch_up(table) == 2
    assert found.store.load("orders") == before


# --- a table that is not what it was --------------------------------------------------------------


def known(*marks: Mark) -> tuple[Target, Ledger]:
    table, found = target(*marks), ledger()
    found.catch_up(table)
    return table, found


def test_b33_a_dropped_table_is_reported_and_not_recreated() -> None:
    table, found = known(mark(1))
    table.id, table.commits = None, []
    held(found, table, TargetError, "the table is missing at site seattle, but the ledger knows it")


def test_f32_a_recreated_table_is_detected() -> None:
    """Fails when table IDs are not compared."""
    _, found = known(mark(1))
    again = target()
    again.id = "target-2"
    for _ in range(5):
        again.put(None)
    held(found, again, TableReplacedError, "has the ID target-2; the ledger knows target-1")


def test_f32_a_table_restored_to_an_older_state_is_detected() -> None:
    """Fails when the newest version is not compared."""
    table, found = known(mark(1), mark(2))
    table.commits = table.commits[:2]
    held(
        found,
        table,
        TableReplacedError,
        "no longer has version 2. It was restored to an older state",
    )


def test_f32_a_table_restored_and_written_to_again_is_detected() -> None:
    """The ledger's version exists, but is another commit.

    Fails when its mark is not compared.
    """
    table, found = known(mark(1), mark(2))
    table.commits = table.commits[:2]
    for _ in range(3):
        table.put(None)
    held(
        found,
        table,
        TableReplacedError,
        "version 2 at site seattle is not the commit that the ledger knows",
    )


def test_f32_a_restore_is_detected() -> None:
    """Fails when RESTORE counts as a local commit."""
    table, found = known(mark(1), mark(2))
    table.put(None, "RESTORE")
    held(found, table, TableReplacedError, "version 3 at site seattle is a RESTORE")


def test_a_restore_before_the_first_apply_is_allowed() -> None:
    table = target()
    table.put(None, "RESTORE")
    table.put(mark(1).user_metadata())
    assert ledger().catch_up(table) == 2


def test_a_history_that_does_not_reach_back_to_the_ledger_holds_the_stream() -> None:
    """Marks may be missing in between. Fails when the gap is not detected."""
    table, found = known(mark(1))
    for _ in range(4):
        table.put(None)
    table.commits = table.commits[-2:]
    table.log_is_readable = False
    for each in (ledger(found.store),):  # type: ignore[arg-type]
        with pytest.raises(LedgerError, match="begins at version 4, the ledger ends at 1"):
            each.catch_up(table)


def test_f29_a_ledger_lost_with_its_event_ids_holds_the_stream() -> None:
    """Replays of a user stream would not be recognised. Fails when the IDs are not checked."""
    table = target(mark(1, ids=True, through=-1))
    held(ledger(), table, LedgerError, "has none of the event IDs of 1 applies")
    store = LedgerRows(tokens_with_ids={"t1"})
    assert ledger(store).catch_up(table) == 2


def test_f25_a_first_apply_without_new_event_ids_has_lost_none() -> None:
    """All of its events were dead letters; then the receiver was killed before it ledgered.

    Fails when a first mark without IDs counts as a lost ledger: the stream could never go on.
    """
    assert ledger().catch_up(target(users(1, new_ids=0))) == 2


LOST_IDS = "has lost the 3 event IDs of apply 2"
LOST_MARKS = r"has lost the marks of 1 applies, the first of them apply 2"


def users(apply: int, **changes: Any) -> Mark:
    """The mark of an apply of a user stream with three new events."""
    return mark(apply, **{"ids": True, "through": -1, "new_ids": 3, **changes})


def test_f55_lost_event_ids_hold_the_stream() -> None:
    """The newest log files of the ledger's table are deleted, or it was restored.

    Fails when only the first apply's IDs are checked: replays of the others are applied again.
    """
    table = target(users(1), users(2), users(3))
    store = LedgerRows(tokens_with_ids={"t1", "t2", "t3"})
    assert ledger(store).catch_up(table) == 4
    store.tokens_with_ids = {"t1", "t3"}
    for known_marks in (
        store,
        replace(store, rows=store.rows[:1]),
    ):  # also for marks that are found in the table's history
        held(ledger(known_marks), table, LedgerError, LOST_IDS)
    store.tokens_with_ids.add("t2")
    again = ledger(store)
    assert again.catch_up(table) == 4
    table.put(users(4).user_metadata())
    assert again.catch_up(table) == 5  # its own applies it has recorded itself


@pytest.mark.parametrize(
    ("until", "floor", "is_held"),
    [(50, 50, False), (51, 50, True), (None, 50, True), (50, None, True)],
)
def test_f55_expired_event_ids_are_not_lost(
    until: int | None, floor: int | None, is_held: bool
) -> None:
    """Fails when the floor is ignored, or counts for events without a time, which never expire."""
    table = target(users(1), users(2, ids_until=until))
    floors = {"newark": floor} if floor is not None else {}
    store = LedgerRows(tokens_with_ids={"t1"}, floors=floors)
    if is_held:
        held(ledger(store), table, LedgerError, LOST_IDS)
    else:
        assert ledger(store).catch_up(table) == 3


def test_f55_lost_marks_of_event_ids_hold_the_stream() -> None:
    """A commit in the middle of the ledger's table is lost.

    Marks that the table's history still has are recovered, and a running receiver notices a
    restored ledger. Fails when the newest mark is taken for the sum of all.
    """
    table = target(users(1), users(2), users(3))
    store = LedgerRows(tokens_with_ids={"t1", "t2", "t3"})
    ledger(store).catch_up(table)
    lost = store.rows.pop(1)
    assert ledger(store).catch_up(table) == 4
    assert sorted(row.mark.apply for row in store.rows) == [1, 2, 3]
    store.rows = [row for row in store.rows if row.mark.apply != 2]
    del table.commits[:3]
    running = ledger(store)
    held(running, table, LedgerError, LOST_MARKS)
    store.rows.append(lost)
    assert running.catch_up(table) == 4


def test_f55_lost_marks_of_a_user_stream_below_those_of_a_captured_stream_hold_the_stream() -> None:
    """Both streams go to one table. The IDs are recorded, but do not count without their marks.

    Fails when the lowest known mark, of a captured stream, is taken for the first that matters:
    older events are applied again.
    """
    table = target(users(1), users(2), mark(3), users(4))
    store = LedgerRows(tokens_with_ids={"t1", "t2", "t4"})
    ledger(store).catch_up(table)
    lost, store.rows = store.rows[:2], store.rows[2:]
    table.commits = table.commits[3:]
    running = ledger(store)
    held(running, table, LedgerError, "has lost the marks of 2 applies, the first of them apply 1")
    store.rows += lost
    assert running.catch_up(table) == 5
    store.rows = [
        row for row in store.rows if not row.mark.applied[0].ids
    ]  # none is left that tells of a user stream
    held(
        ledger(store),
        table,
        LedgerError,
        "has lost the marks of 2 applies, the first of them apply 1",
    )


def test_f55_a_captured_stream_alone_needs_only_its_newest_mark() -> None:
    table, store = target(mark(1), mark(2), mark(3)), LedgerRows()
    table.commits = table.commits[2:]
    found = ledger(store)
    assert found.catch_up(table) == 4
    assert found.progress.lost


def test_f55_event_ids_of_version_0_1_0_that_are_all_lost_hold_the_stream() -> None:
    """Marks of that version do not count their IDs. Fails when only counted IDs are checked."""
    old = [users(n, new_ids=None) for n in (1, 2)]
    table, store = (
        target(*old),
        LedgerRows(tokens_with_ids={"t2"}),
    )  # the first were all seen before
    store.append("orders", [LedgerRow("target-1", n, each) for n, each in enumerate(old, 1)])
    assert ledger(store).catch_up(table) == 3
    store.tokens_with_ids = set()
    held(ledger(store), table, LedgerError, "has none of the event IDs of 2 applies")


def test_a_lost_ledger_is_reported_when_the_history_does_not_reach_back() -> None:
    """Only Delta's transaction number is left.

    Fails when the table counts as one without applies: the hold then has another cause.
    """
    table, store = target(mark(1), mark(2)), LedgerRows()
    ledger(store).catch_up(table)
    rows, store.rows = store.rows, []
    table.put(None, "OPTIMIZE")
    table.commits = table.commits[-1:]
    running = ledger(store)
    held(
        running,
        table,
        LedgerError,
        r"has taken 2 applies, but neither its history nor the ledger has one.*restore the ledger",
    )
    store.rows = rows
    assert running.catch_up(table) == 3


def test_a_reused_apply_number_is_reported() -> None:
    """A receiver whose version names its transactions otherwise runs beside this one.

    Fails when the second mark is folded like any other.
    """
    table = target(mark(1), mark(2))
    found = ledger()
    found.catch_up(table)
    table.put(mark(2, token="other").user_metadata(), "MERGE")
    with pytest.raises(
        LedgerError,
        match=r"is apply 2, which the ledger knows as another commit.*may have been applied twice",
    ):
        found.catch_up(table)


def test_an_apply_number_that_is_twice_in_one_read_is_reported() -> None:
    """A receiver that was frozen in a write goes on in a table that was replaced meanwhile. Fails
    when both marks are new, and rows that are there twice go unnoticed."""
    table = target(mark(1), mark(2), mark(2, token="other"))
    with pytest.raises(LedgerError, match="is apply 2, which the ledger knows as another commit"):
        ledger().catch_up(table)


@pytest.mark.parametrize("kinds", [{False}, {True}, {False, True}])
def test_the_advice_fits_the_streams_that_were_applied(kinds: set[bool]) -> None:
    """Of a user stream there may be no site that serves a copy. Fails when sending the events again
    is not advised."""
    table = target(*(users(n) if user else mark(n) for n, user in enumerate(sorted(kinds), 1)))
    store = LedgerRows(tokens_with_ids={"t1", "t2"})
    ledger(store).catch_up(table)
    table.put(None, "RESTORE")
    with pytest.raises(TableReplacedError) as error:
        ledger(store).catch_up(table)
    assert SYNC in str(error.value)
    assert (RESEND in str(error.value)) == (True in kinds)


def test_f55_event_ids_reveal_a_user_stream_whose_marks_are_all_lost() -> None:
    """Ledger and history have only the mark of a captured stream.

    Fails when only marks decide whether IDs matter.
    """
    table, store = target(users(1), mark(2)), LedgerRows(tokens_with_ids={"t1"})
    ledger(store).catch_up(table)
    del store.rows[0]
    del table.commits[:2]
    held(
        ledger(store),
        table,
        LedgerError,
        "has lost the marks of 1 applies, the first of them apply 1",
    )


def test_f55_an_apply_without_new_event_ids_has_lost_none() -> None:
    """All its events were redelivered; or its mark is of version 0.1.0, without a count."""
    table = target(users(1), users(2, new_ids=0))
    assert ledger(LedgerRows(tokens_with_ids={"t1"})).catch_up(table) == 3


def test_rows_may_be_written_later() -> None:
    """Fails when a ledger whose rows are not durable seems current: an ack would say so."""
    table, store = target(mark(1)), LedgerRows()
    known = ledger(store)
    assert known.catch_up(table, write=False) == 2
    assert [row.mark.apply for row in known.unwritten] == [1] and store.rows == []
    assert not known.seems_current(table)
    known.write()
    known.write()
    assert [row.mark.apply for row in store.rows] == [1] and known.unwritten == ()
    assert known.seems_current(table)


def test_f47_a_receiver_frozen_past_the_log_retention_reads_the_ledger_again() -> None:
    """Another receiver has applied and ledgered meanwhile.

    Fails when the ledger is read once per process: only a full copy would help.
    """
    table, store = target(mark(1)), LedgerRows()
    frozen = ledger(store)
    frozen.catch_up(table)
    for apply in (2, 3, 4, 5):
        table.put(mark(apply).user_metadata(), "MERGE")
    ledger(store).catch_up(table)
    table.commits = table.commits[-2:]
    assert frozen.catch_up(table) == 6


def test_an_event_time_of_zero_is_a_time() -> None:
    """1970-01-01T00:00:00Z.

    Fails when a mark treats it like a missing time: expired IDs would count as lost.
    """
    table = target(users(1), users(2, ids_until=0))
    assert ledger(LedgerRows(tokens_with_ids={"t1"}, floors={"newark": 0})).catch_up(table) == 3


def test_the_newest_mark_of_a_captured_stream_suffices() -> None:
    table = target(mark(1), mark(2), mark(3))
    store = LedgerRows()
    ledger(store).catch_up(table)
    del store.rows[1]
    assert ledger(store).catch_up(table) == 4


def test_a_mark_of_a_user_stream_advances_no_version() -> None:
    store = LedgerRows(tokens_with_ids={"t1"})
    found = ledger(store)
    found.catch_up(target(mark(1, ids=True, through=-1)))
    assert (found.progress.through, found.progress.positions) == ({}, {PLACE: 1})


def test_f32_a_table_restored_behind_the_newest_mark_is_detected_while_running() -> None:
    """Local commits after the last mark were read.

    Then the table was restored to before that mark, and written to again.
    """
    table, found = target(mark(1), mark(2)), ledger()
    for _ in range(2):
        table.put(None)
    assert (found.catch_up(table), found.local_commits) == (3, 2)
    del table.commits[2:]
    for _ in range(5):
        table.put(None, "MERGE")
    held(
        found,
        table,
        TableReplacedError,
        "version 2 at site seattle is not the commit that the ledger knows",
    )


def test_a_table_restored_to_after_the_newest_mark_goes_on() -> None:
    table, found = target(mark(1)), ledger()
    for _ in range(2):
        table.put(None)
    assert found.catch_up(table) == 2
    del table.commits[2:]
    for _ in range(3):
        table.put(None, "MERGE")
    assert (found.catch_up(table), found.local_commits) == (2, 3)
