"""The newest mark says how far a table is, whatever earlier ones say; and how many commits of
others it has."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
from fakes import MANIFEST, STREAM, Clock, LedgerRows, commit, memory_channel, publish
from fakes import Target as FakeTarget
from ledgers import ORIGIN, PLACE, ledger, mark, of_earlier_version, target

from spark_wan.apply.applier import TableApplier
from spark_wan.delta.commits import DAY
from spark_wan.ledger.folding import fold
from spark_wan.ledger.ledger import Ledger
from spark_wan.ledger.progress import Progress
from spark_wan.log.stream_log import StreamLog
from spark_wan.steps import run
from spark_wan.wire.ledger import LedgerRow
from spark_wan.wire.mark import LOCAL_ONLY, Mark

DENVER = ("denver", "b" * 32, "all")
LOG = (STREAM, MANIFEST.log_id)


def whole(apply: int, through: int, epoch: int, **changes: Any) -> Mark:
    """A mark that says that the table has this and nothing else."""
    vector, logs = ((*ORIGIN, through),), ((*LOG, epoch, MANIFEST.fingerprint),)
    return mark(apply, through=through, epoch=epoch, vector=vector, logs=logs, **changes)


def rows(*marks: Mark) -> list[LedgerRow]:
    return [LedgerRow("target-1", each.apply, each) for each in marks]


def progress(*marks: Mark) -> Progress:
    """What a new process takes from a ledger with these marks."""
    found = ledger(LedgerRows(rows(*marks)))
    found._load()
    return found.progress


# --- the newest mark ------------------------------------------------------------------------------


BACK = (mark(1), mark(2, origin="denver", table_id="b" * 32), mark(3), whole(4, 19, 2))
"""The last one went back, as a copy of an older state does."""


def test_the_newest_mark_with_a_vector_says_how_far_the_table_is() -> None:
    """Fails when progress is the highest that any mark says: what went back is never sent again."""
    found = ledger()
    found.catch_up(target(*BACK))
    assert found.progress.through == {ORIGIN: 19}
    assert found.progress.positions == {PLACE: 2}


@pytest.mark.parametrize("order", [*itertools.permutations(range(4))])
def test_the_order_of_the_ledgers_rows_does_not_matter(order: tuple[int, ...]) -> None:
    """Receivers record marks late. Fails when the row that comes last is taken for the newest."""
    found = ledger()
    for place in order:
        found.take_up(None, rows(BACK[place]))
    assert found.progress == progress(*BACK)
    assert found.progress.through == {ORIGIN: 19}


def test_a_mark_without_a_vector_adds_to_the_one_before() -> None:
    """A receiver of an earlier version has applied since."""
    later = mark(5, origin="denver", table_id="b" * 32, stream="denver.west.orders")
    found = progress(*BACK, later)
    assert found.through == {ORIGIN: 19, DENVER: 49}
    assert found.positions == {PLACE: 2, ("denver.west.orders", MANIFEST.log_id): 5}


def test_a_late_row_adds_to_marks_without_a_vector() -> None:
    found = ledger()
    found.take_up(None, rows(mark(3)))
    found.take_up(None, rows(whole(2, 19, 2)))
    assert (found.progress.through, found.vector_apply) == ({ORIGIN: 29}, 2)
    found.take_up(None, rows(mark(1, origin="denver", table_id="b" * 32)))
    assert found.progress.through == {ORIGIN: 29}  # undone before the second apply


def test_a_summary_keeps_which_mark_was_the_newest_with_a_vector() -> None:
    """The mark of the first apply was lost before the others were folded, and is recorded later.

    Fails when a summary forgets: what the first apply had, and the last has not, seems applied.
    """
    lost = mark(1, origin="denver", table_id="b" * 32)
    store = LedgerRows(rows(*BACK[1:]))
    assert run(fold(store, "seattle", "orders", least=1)) == 3
    assert store.summaries[0].vector_apply == 4
    store.rows = rows(lost)
    found = ledger(store)
    found._load()
    assert found.progress.through == {ORIGIN: 19}


# --- what receivers write -------------------------------------------------------------------------


class Site:
    """A table that two streams of two origins are applied to."""

    def __init__(self) -> None:
        self.channel = memory_channel()
        self.table, self.store = FakeTarget(self.channel), LedgerRows()
        self.logs = [StreamLog(self.channel, name) for name in (STREAM, "denver.west.orders")]
        publish(self.logs[0], 1)
        publish(self.logs[1], 1, origin="denver", table_id="b" * 32, log_id="b" * 32)

    def apply(self, stream: int, found: Ledger | None = None) -> Mark:
        """Apply what a stream has, in a new process, and return the mark of its commit."""
        log = self.logs[stream]
        own = found or Ledger("seattle", "orders", self.store, clock=Clock())
        result = run(TableApplier("seattle", "orders", log, self.table, own).round())
        assert result.held is None, result.cause
        written = Mark.read(self.table.commits[-1].user_metadata, "seattle", "orders")
        assert written is not None
        return written


def test_each_mark_has_the_whole_vector() -> None:
    site = Site()
    site.apply(0)
    written = site.apply(1)
    assert written.vector is not None and written.logs is not None
    assert {entry[:3]: entry[3] for entry in written.vector} == {ORIGIN: 9, DENVER: 9}
    assert [entry[:3] for entry in written.logs] == [
        (*LOG, 1),
        ("denver.west.orders", "b" * 32, 1),
    ]
    assert [part.origin for part in written.applied] == ["denver"]
    assert Mark.read(written.user_metadata(), "seattle", "orders") == written


def test_a_lost_mark_does_no_harm_when_a_later_one_has_the_vector() -> None:
    """Neither ledger nor history has the first mark any more."""
    site = Site()
    site.apply(0)
    site.apply(1)
    del site.store.rows[0], site.table.commits[:2]
    publish(site.logs[0], 2)
    assert site.apply(0).apply == 3
    site.logs.append(StreamLog(site.channel, "boston.south.orders"))
    publish(site.logs[2], 1, origin="boston", table_id="c" * 32, log_id="c" * 32)
    assert site.apply(2).apply == 4  # the lost mark was not of this stream
    assert site.table.written == [[1], [1], [2], [1]]


def test_a_receiver_whose_ledger_lost_marks_writes_no_vector() -> None:
    """Marks of an earlier version, of which the first is lost. Fails when the next mark denies what
    the lost one had applied: once the ledger is restored, it would be applied again."""
    site = Site()
    for stream in (0, 1):
        site.apply(stream)
    of_earlier_version(site.table, site.store)
    lost = site.store.rows.pop(0)
    del site.table.commits[:2]
    publish(site.logs[1], 2, origin="denver", table_id="b" * 32, log_id="b" * 32)
    written = site.apply(1)
    assert (written.apply, written.vector, written.logs) == (3, None, None)
    site.store.rows.append(lost)
    assert site.apply(0).apply == 3  # nothing new
    assert site.table.written == [[1], [1], [2]]


# --- commits of others ----------------------------------------------------------------------------


def counted(found: Ledger, table: FakeTarget) -> int | None:
    found.catch_up(table)
    return found.known_local


def test_commits_of_others_are_counted_across_processes() -> None:
    """Fails when each process counts from its start: the next one takes the table for untouched."""
    table, store = target(mark(1, local=0)), LedgerRows()
    table.put(None)
    table.put(None, "OPTIMIZE")
    table.put(LOCAL_ONLY)
    table.put(None, "FSCK")
    assert counted(ledger(store), table) == 3
    table.put(mark(2, local=0).user_metadata())  # its writer did not see these commits
    assert counted(ledger(store), table) == 3
    assert store.rows[-1].mark.local == 3
    table.put(None)
    assert counted(ledger(store), table) == 4
    assert counted(ledger(LedgerRows()), table) == 4  # counted again


def test_what_comes_while_a_copy_is_written_is_still_there() -> None:
    """Where writers do not conflict. Fails when rows of the site's own are taken for the copy's."""
    table, store = target(mark(1, local=0)), LedgerRows()
    table.put(None)  # the copy takes these away
    before = len(table.commits) - 1
    table.put(None)
    table.put(replace(mark(2, local=0), replaced=before).user_metadata())
    for found in (ledger(store), ledger(LedgerRows())):
        assert counted(found, table) == 1


def test_a_target_that_a_receiver_has_created_has_no_rows_of_its_own() -> None:
    table = target()
    table.commits = [replace(commit(0, "CREATE TABLE AS SELECT"), user_metadata=LOCAL_ONLY)]
    table.put(mark(1, local=0).user_metadata())
    assert counted(ledger(), table) == 0


def test_they_are_counted_before_the_first_apply() -> None:
    table = target()
    table.put(None)
    found = ledger()
    assert counted(found, table) == 1
    table.put(mark(1, local=1).user_metadata())
    assert counted(found, table) == 1


def test_their_number_outlives_log_cleanup() -> None:
    """They are in a position."""
    table, store = target(mark(1, local=0)), LedgerRows()
    table.put(None, time=-DAY * 60)
    assert counted(ledger(store), table) == 1
    assert [each.local for each in store.positions] == [1]
    table.put(None)
    del table.commits[:3]
    assert counted(ledger(store), table) == 2
    fresh = ledger(LedgerRows())
    table.put(mark(2, local=8).user_metadata())
    assert counted(fresh, table) == 8
    table.put(None)
    assert counted(fresh, table) == 9


def test_a_position_before_the_newest_mark_does_not_say_their_number() -> None:
    table, store = target(mark(1, local=0)), LedgerRows()
    table.put(None, time=-DAY * 60)
    found = ledger(store)
    assert counted(found, table) == 1
    table.put(None)
    table.put(mark(2, local=2).user_metadata())
    assert counted(found, table) == 2
    assert ([each.local for each in store.positions], counted(ledger(store), table)) == ([1], 2)


def test_their_number_is_unknown_where_earlier_versions_have_applied() -> None:
    """It is counted from there on, for the status."""
    table, store = target(mark(1)), LedgerRows(rows(mark(1)))
    table.put(None)
    found = ledger(store)
    assert counted(found, table) is None and found.local_commits == 1
    table.put(mark(2).user_metadata())
    assert counted(found, table) is None and store.rows[-1].mark.local is None


def test_a_fold_keeps_their_number() -> None:
    table, store = target(mark(1, local=0)), LedgerRows()
    table.put(None)
    table.put(mark(2, local=0).user_metadata())
    ledger(store).catch_up(table)
    run(fold(store, "seattle", "orders", least=1))
    assert counted(ledger(store), table) == 1
