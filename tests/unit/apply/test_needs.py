"""Why a site needs a copy of a table, and from where on: in its ack, for programs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import obstore
import pytest
from fakes import (
    MANIFEST,
    STREAM,
    Clock,
    LedgerRows,
    Target,
    commit,
    memory_channel,
    publish,
    schema,
)

from spark_wan.apply.applier import ApplyResult, TableApplier
from spark_wan.channels.object_store import open_store
from spark_wan.errors import TableReplacedError, TargetError
from spark_wan.ledger.ledger import Ledger
from spark_wan.ledger.progress import origin_of
from spark_wan.log.stream_log import StreamLog
from spark_wan.receiver.copies import AppliedTable
from spark_wan.steps import run
from spark_wan.sync.automatic import Synchronizer
from spark_wan.wire.ack import Ack, Need
from spark_wan.wire.manifest import EVENTS, SNAPSHOT
from spark_wan.wire.mark import LOCAL_ONLY, Mark

ORIGIN = origin_of(MANIFEST)


class Site:
    """A receiving site that has applied two epochs of a stream."""

    def __init__(self, applied: int = 2, **changes: Any) -> None:
        self.channel = memory_channel()
        self.log = StreamLog(self.channel, STREAM)
        self.target, self.store, self.clock = Target(self.channel), LedgerRows(), Clock()
        if applied:
            publish(self.log, *range(1, applied + 1), **changes)
            assert self.round().held is None

    def round(self) -> ApplyResult:
        """A round of a new process."""
        ledger = Ledger("seattle", "orders", self.store, clock=self.clock)
        log = StreamLog(self.channel, STREAM)
        return run(TableApplier("seattle", "orders", log, self.target, ledger).round())

    @property
    def ack(self) -> Ack:
        ack = self.log.ack("seattle")
        assert ack is not None
        return ack

    def lose_ack(self) -> None:
        obstore.delete(open_store(self.channel.url), f"acks/{STREAM}/seattle.json")

    def trim(self, through: int) -> None:
        for epoch in range(1, through + 1):
            self.channel.trim_manifest(STREAM, epoch)


def joined(site: Site) -> None:
    publish(site.log, 1, 2, 3, 4)
    site.trim(3)


def epochs_deleted(site: Site) -> None:
    publish(site.log, 3, 4, 5)
    site.trim(4)


def frame_deleted(site: Site) -> None:
    """Of an epoch that the site has not applied: a copy has to have that one."""
    [manifest] = publish(site.log, 3)
    site.channel.trim_frames(STREAM, [manifest.frames[0].path])


def log_rewritten(site: Site) -> None:
    site.trim(2)
    publish(site.log, 1, 2, 3, created=1)


def snapshot_again(site: Site) -> None:
    site.trim(2)
    log_id = "b" * 32
    publish(site.log, 1, kind=SNAPSHOT, log_id=log_id, first_version=0, last_version=50)


def source_replaced(site: Site) -> None:
    site.trim(2)
    publish(site.log, 1, table_id="another", log_id="b" * 32)


def table_dropped(site: Site) -> None:
    site.target.id, site.target.commits = None, []
    publish(site.log, 3)


def table_recreated(site: Site) -> None:
    site.target.id = "target-2"


def table_restored(site: Site) -> None:
    site.target.put(None, "RESTORE")


def column_dropped(site: Site) -> None:
    site.target.columns = schema(id="long")
    version = site.target.commits[-1].version + 1
    dropped = replace(commit(version, "DROP COLUMNS"), parameters={"columns": '["city"]'})
    site.target.commits.append(dropped)
    publish(site.log, 3)


def ledger_deleted(site: Site) -> None:
    site.store.rows, site.target.commits = [], [commit(7)]


def ledger_restored(site: Site) -> None:
    """To a state without the newest mark, which the table's history no longer has either."""
    publish(site.log, 3)
    site.store.rows.pop()
    site.target.commits = [commit(7)]


def through(version: int) -> tuple[Any, ...]:
    return ((*ORIGIN, version),)


CASES: list[tuple[Callable[[Site], None], int, str, tuple[Any, ...]]] = [
    (joined, 0, "epochs", through(29)),
    (epochs_deleted, 2, "epochs", through(39)),
    (frame_deleted, 2, "epochs", through(29)),
    (log_rewritten, 2, "epochs", through(19)),
    (snapshot_again, 2, "epochs", through(50)),
    (source_replaced, 2, "source", (("newark", "another", "all", -1),)),
    (table_dropped, 2, "table", through(19)),
    (table_recreated, 2, "table", through(19)),
    (table_restored, 2, "table", through(19)),
    (column_dropped, 2, "columns", through(19)),
    (ledger_deleted, 2, "ledger", ()),
    (ledger_restored, 2, "ledger", ()),
]


@pytest.mark.parametrize(
    ("fault", "applied", "why", "least"), CASES, ids=[case[0].__name__ for case in CASES]
)
def test_a_site_says_why_it_needs_a_copy(
    fault: Callable[[Site], None], applied: int, why: str, least: tuple[Any, ...]
) -> None:
    """And what the copy has to have: everything before the epoch that it cannot take."""
    site = Site(applied)
    fault(site)
    assert site.round().needs == why
    assert site.ack.held is not None and site.ack.needs is not None
    assert (site.ack.needs.why, site.ack.needs.least) == (why, least)


def test_a_user_stream_needs_its_events_and_no_version() -> None:
    changes = {"kind": EVENTS, "first_version": -1, "last_version": -1}
    site = Site(0)
    publish(site.log, 1, 2, **changes)
    site.trim(1)
    assert site.round().held == 2
    assert site.ack.needs is not None
    assert (site.ack.needs.why, site.ack.needs.least) == ("epochs", ())


@pytest.mark.parametrize("fault", ["renamed", "restored log"])
def test_what_a_copy_would_not_mend_is_no_need(fault: str) -> None:
    site = Site()
    if fault == "restored log":
        site.trim(2)
        publish(site.log, 1)
    else:
        site.target.columns = schema(id="long", town="string")
        parameters = {"oldColumnPath": "city", "newColumnPath": "town"}
        site.target.commits.append(
            replace(
                commit(site.target.commits[-1].version + 1, "RENAME COLUMN"), parameters=parameters
            )
        )
        publish(site.log, 3)
    result = site.round()
    assert result.held is not None and result.needs is None and site.ack.needs is None


def test_a_need_keeps_its_time_and_ends_with_the_hold() -> None:
    """Fails when each round reports it as new: the ack is written for ever."""
    site = Site()
    table, site.target.id = site.target.id, "target-2"
    site.round()
    first = site.ack
    site.clock.now += 60_000
    site.round()
    assert site.ack == first and first.needs is not None
    site.target.id = table
    site.round()
    assert (site.ack.needs, site.ack.held) == (None, None)
    site.target.id = "target-3"
    site.round()
    assert site.ack.needs == replace(first.needs, since=first.needs.since + 60_000)


@pytest.mark.parametrize("late", [False, True], ids=["nothing after it", "an apply after it"])
def test_log_cleanup_does_not_end_a_need(late: bool) -> None:
    """The RESTORE that a site was held for is deleted, and so is its ack. Fails when the stream
    goes on, without the rows that the RESTORE took."""
    site = Site()
    last = Mark.read(site.target.commits[-1].metadata, "seattle", "orders")
    assert last is not None
    table_restored(site)
    if late:  # by another receiver, which had not seen the RESTORE
        site.target.put(replace(last, apply=last.apply + 1, token="late").user_metadata(), "MERGE")
    assert site.round().needs == "table"
    for _ in range(2):
        site.target.put(None, "OPTIMIZE")
    site.target.commits = site.target.commits[-3 if late else -2 :]
    for epoch in (3, 4):
        publish(site.log, epoch)
        site.lose_ack()
        found = site.round()
        assert (found.needs, found.held is None) == ("table", False), found.cause


def test_a_need_stays_while_the_table_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails when it is forgotten, and then what showed it is deleted."""
    site = Site()
    table_restored(site)
    site.round()
    need = site.ack.needs
    assert need is not None

    def refused(*_: object) -> list[Any]:
        raise TargetError("403")

    with monkeypatch.context() as patch:
        patch.setattr(site.target, "history", refused)
        assert site.round().cause == "403"
        assert site.ack.needs == need
    assert site.round().needs == "table"


def test_a_site_that_is_asked_for_a_copy_does_not_end_its_own_need() -> None:
    """Fails when it records that it has read what log cleanup has deleted, and the stream then
    goes on."""
    site = Site()
    table_restored(site)
    site.round()
    for _ in range(2):
        site.target.put(None, "OPTIMIZE")
    site.target.commits = site.target.commits[-2:]
    other = Ledger("seattle", "orders", site.store, clock=site.clock)
    nothing = cast("Any", None)
    serves = AppliedTable(nothing, "seattle", other, site.target, nothing, lambda: False)
    with pytest.raises(TableReplacedError, match="log cleanup has removed"):
        serves.cut()
    publish(site.log, 3)
    assert site.round().needs == "table"


def test_another_need_has_its_own_time() -> None:
    old, new = Need("table", (), 5), Need("ledger", (), 9)
    assert new.since_before(old) == new
    assert replace(new, why="table").since_before(old) == replace(old, since=5)
    assert new.since_before(None) == new


def own(site: Site) -> None:
    site.target.put(None)


def own_before_the_first_apply(site: Site) -> None:
    """Somebody made the table at the place of the target."""
    site.target.id = "target-2"
    site.target.commits = [commit(0, "CREATE TABLE AS SELECT"), commit(1, "OPTIMIZE")]


def made_empty(site: Site) -> None:
    site.target.id = "target-2"
    site.target.commits = [commit(0, "CREATE TABLE"), commit(1, "ADD COLUMNS")]


def history_gone(site: Site) -> None:
    """And no mark is left that would say."""
    site.target.commits = [commit(7, "OPTIMIZE")]


def history_gone_behind_a_mark(site: Site) -> None:
    site.target.commits = site.target.commits[-1:]


def history_gone_behind_two_marks(site: Site) -> None:
    publish(site.log, 3)
    assert site.round().held is None
    site.target.commits = site.target.commits[-2:]


def own_during_an_apply(site: Site) -> None:
    """The mark's writer had read the history before."""
    publish(site.log, 3)
    assert site.round().held is None
    site.target.commits[-1] = replace(site.target.commits[-1], version=3)
    site.target.commits.insert(-1, commit(2))


def own_then_copied_then_restored(site: Site) -> None:
    site.target.put(None)
    ledger = Ledger("seattle", "orders", site.store, clock=site.clock)
    ledger.catch_up(site.target)
    last = site.store.rows[-1].mark
    site.target.put(replace(last, apply=9, token="t9", local=0, replaced=2).user_metadata())
    site.target.put(None, "RESTORE")


def local_only(site: Site) -> None:
    site.target.put(LOCAL_ONLY)


def of_another_table(site: Site) -> None:
    other = replace(site.store.rows[-1].mark, table="invoices")
    site.target.put(other.user_metadata())


def optimized(site: Site) -> None:
    site.target.put(None, "OPTIMIZE")


@pytest.mark.parametrize(
    ("fault", "has"),
    [
        (table_dropped, False),
        (table_restored, False),
        (made_empty, False),
        (optimized, False),
        (history_gone_behind_a_mark, True),
        (history_gone_behind_two_marks, False),
        (own_during_an_apply, True),
        (own_then_copied_then_restored, True),
        (local_only, True),
        (of_another_table, True),
        (own, True),
        (own_before_the_first_apply, True),
        (history_gone, True),
    ],
)
def test_rows_that_no_receiver_wrote(fault: Callable[[Site], None], has: bool) -> None:
    """In whatever state the ledger is. Fails when a copy that nobody asked for takes them away."""
    site = Site()
    fault(site)
    for store in (site.store, LedgerRows()):
        ledger = Ledger("seattle", "orders", store, clock=site.clock)
        assert ledger.has_own_rows(site.target) is has


def test_what_the_site_does_about_it_is_in_the_ack() -> None:
    """Fails when people do not see whether a copy comes by itself."""
    site, told = Site(), list[tuple[str, str, bool]]()
    table_dropped(site)

    class Asks:
        def needed(self, stream: str, need: Need, cause: str, has_own_rows: Any) -> str:
            told.append((stream, need.why, has_own_rows()))
            return f"{cause} A copy was asked for."

    ledger = Ledger("seattle", "orders", site.store, clock=site.clock)
    log = StreamLog(site.channel, STREAM)
    applier = TableApplier("seattle", "orders", log, site.target, ledger)
    applier.synchronizer = cast(Synchronizer, Asks())
    result = run(applier.round())
    assert told == [(STREAM, "table", False)]
    assert str(site.ack.cause).endswith(" A copy was asked for.") and result.cause == site.ack.cause
