"""Copies of a table from a site that has one itself: of what, and of what not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from fakes import MANIFEST, STREAM, Clock, LedgerRows, Target, commit, publish, schema

from spark_wan.apply.applier import TableApplier
from spark_wan.capture.ranges import CaptureResult, Part
from spark_wan.capture.source import DeltaSource
from spark_wan.errors import TargetError
from spark_wan.ledger.ledger import Ledger
from spark_wan.ledger.progress import origin_of
from spark_wan.log.stream_log import StreamLog
from spark_wan.log.writer import StreamSettings
from spark_wan.receiver.copied_ids import RecordedEventIds
from spark_wan.receiver.copies import AppliedTable, served_to
from spark_wan.sender.serve import LARGE_BYTES, PARTS, CopyServer, Cut
from spark_wan.steps import run
from spark_wan.topology.model import copy_name
from spark_wan.topology.parsing import parse_topology
from spark_wan.wire.ack import Ack, Wanted
from spark_wan.wire.frame import FrameHeader
from spark_wan.wire.manifest import Manifest

ORIGIN = origin_of(MANIFEST)
NAME = copy_name("seattle.north.orders", "tacoma")


class Rows:
    """Reads the site's table, and says what it was asked for."""

    def __init__(self, target: Target) -> None:
        self.target, self.read = target, list[tuple[int, int, list[str]]]()
        self.size, self.parts = 1_000, list[int]()

    def schema_at(self, version: int) -> Any:
        return self.target.columns

    def amount(self, version: int) -> tuple[int, int | None]:
        return 1, self.size

    def rows_at(
        self, version: int, columns: Any, header: FrameHeader, *, part: Part, source_version: int
    ) -> CaptureResult:
        self.parts.append(part.number)
        self.read.append((version, source_version, [each["name"] for each in columns["fields"]]))
        return CaptureResult((), True)


class Seattle:
    """Has applied two epochs of newark's orders, and serves copies to tacoma."""

    def __init__(self) -> None:
        from fakes import memory_channel

        self.channel, self.waits = memory_channel(), False
        self.target, self.store = Target(self.channel), LedgerRows()
        self.rows = Rows(self.target)
        publish(StreamLog(self.channel, STREAM), 1, 2)
        log = StreamLog(self.channel, STREAM)
        applier = TableApplier("seattle", "orders", log, self.target, self.ledger())
        assert run(applier.round()).held is None

    def ledger(self) -> Ledger:
        return Ledger("seattle", "orders", self.store, clock=Clock())

    @property
    def copies(self) -> StreamLog:
        return StreamLog(self.channel, NAME)

    def server(self) -> CopyServer:
        settings = StreamSettings(NAME, "orders", ("id",), "newark", ("tacoma",), ("tacoma",))
        source = cast(DeltaSource, self.rows)
        table = AppliedTable(
            settings, "seattle", self.ledger(), self.target, source, lambda: self.waits
        )
        return CopyServer(settings, self.copies, table, Clock())

    def serve(self, least: tuple[Any, ...] = ()) -> Manifest:
        """Serve a copy to tacoma, or refuse it."""
        self.copies.put_ack(Ack("tacoma", NAME, "", 0, wanted=Wanted("r1", least)))
        manifest = run(self.server().round())
        assert manifest is not None and manifest.copy is not None
        return manifest

    def refusal(self, least: tuple[Any, ...] = ()) -> str:
        manifest = self.serve(least)
        assert manifest.copy is not None and self.rows.read == []
        return str(manifest.copy.refused)


def test_a_copy_has_what_the_newest_mark_says() -> None:
    """Of the site's own version, as rows of the writer's. Fails when it has another vector."""
    seattle = Seattle()
    seattle.target.commits.append(replace(commit(2, "OPTIMIZE"), version=2))
    manifest = seattle.serve(((*ORIGIN, 19),))
    assert manifest.copy is not None and manifest.copy.refused is None
    assert manifest.copy.vector == ((*ORIGIN, 19),)
    assert (manifest.origin, manifest.table_id) == ORIGIN[:2]
    assert seattle.rows.read == [(2, 19, ["id", "city"])]


def replaced_by_a_copy(seattle: Seattle) -> None:
    """The same versions are those of another table."""
    seattle.target.id = "target-2"


def replaced_in_place(seattle: Seattle) -> None:
    """The table's directory is another one's, with the same ID."""
    seattle.target.commits[-1] = replace(seattle.target.commits[-1], time=5)


@pytest.mark.parametrize(
    ("change", "read"),
    [
        (None, [1, 2, 3, 4]),
        (replaced_by_a_copy, [1, 2]),  # and it is refused
        (replaced_in_place, [1, 2, 1, 2, 3, 4]),
    ],
    ids=["the same", "replaced by a copy", "replaced in place"],
)
def test_a_copy_in_parts_goes_on_if_the_table_is_the_same(
    change: Callable[[Seattle], None] | None, read: list[int]
) -> None:
    """Fails when the rows of two tables become one copy."""
    seattle = Seattle()
    seattle.rows.size = LARGE_BYTES + 1
    seattle.copies.put_ack(Ack("tacoma", NAME, "", 0, wanted=Wanted("r1")))
    steps = seattle.server().round()
    for step in steps:
        if step == "copy.4 manifest-added" and len(seattle.rows.parts) == 2:
            break
    steps.close()
    if change is not None:
        change(seattle)
    manifest = run(seattle.server().round())
    assert manifest is not None and manifest.copy is not None
    assert seattle.rows.parts == read
    assert (manifest.copy.refused is None) == (read[-1] == PARTS)
    assert {each[:2] for each in seattle.rows.read} == {(1, 19)}
    first = manifest.epoch - manifest.copy.part + 1
    assert seattle.copies.epochs() == [*range(first, manifest.epoch + 1)]


def test_columns_of_the_sites_own_do_not_travel() -> None:
    seattle = Seattle()
    seattle.target.columns = schema(id="long", city="string", note="string")
    seattle.serve()
    assert seattle.rows.read == [(1, 19, ["id", "city"])]


def local_rows(seattle: Seattle) -> None:
    seattle.target.put(None)


def local_rows_unknown(seattle: Seattle) -> None:
    for number, each in enumerate(seattle.store.rows):
        seattle.store.rows[number] = replace(each, mark=replace(each.mark, local=None))
    newest = seattle.target.commits[-1]
    assert newest.user_metadata is not None
    old = newest.user_metadata.replace('"local":0,', "").replace('"local": 0, ', "")
    seattle.target.commits[-1] = replace(newest, user_metadata=old)


def dead_letters(seattle: Seattle) -> None:
    seattle.target.letters_per_apply = 1
    publish(StreamLog(seattle.channel, STREAM), 3)
    log = StreamLog(seattle.channel, STREAM)
    run(TableApplier("seattle", "orders", log, seattle.target, seattle.ledger()).round())


def column_renamed(seattle: Seattle) -> None:
    parameters = {"oldColumnPath": "city", "newColumnPath": "town"}
    renamed = replace(commit(9, "RENAME COLUMN"), version=2, parameters=parameters)
    seattle.target.commits.append(renamed)


def table_replaced(seattle: Seattle) -> None:
    seattle.target.id = "target-2"


def table_dropped(seattle: Seattle) -> None:
    seattle.target.id, seattle.target.commits = None, []


def waits_itself(seattle: Seattle) -> None:
    seattle.waits = True


def nothing_applied(seattle: Seattle) -> None:
    seattle.store.rows, seattle.target.commits = [], [commit(0, "CREATE TABLE")]
    seattle.target.transactions.clear()


FAULTS: list[tuple[Callable[[Seattle], None], str]] = [
    (local_rows, "1 commits here are not the receiver's"),
    (local_rows_unknown, "it is not known whether others wrote to it"),
    (dead_letters, "1 rows became dead letters here"),
    (column_renamed, "column city was renamed or dropped here"),
    (table_replaced, "It was dropped and recreated, or replaced"),
    (table_dropped, "the table is missing at site seattle"),
    (waits_itself, "it needs or waits for one itself"),
    (nothing_applied, "the site has applied nothing of it"),
]


@pytest.mark.parametrize(("fault", "why"), FAULTS, ids=[fault.__name__ for fault, _ in FAULTS])
def test_rows_that_are_not_the_writers_are_not_served(
    fault: Callable[[Seattle], None], why: str
) -> None:
    """Fails when another site gets what this one alone has, or lacks what this one lacks."""
    seattle = Seattle()
    fault(seattle)
    assert why in seattle.refusal()


def test_a_site_that_does_without_earlier_events_serves_no_copy() -> None:
    """Fails when another site loses what this one has never had."""
    seattle = Seattle()
    settings = StreamSettings(NAME, "orders", ("id",), "newark", ("tacoma",), ("tacoma",))
    ids = SimpleNamespace(cut=lambda ledger: SimpleNamespace(floor=None))
    source, accepted = cast(DeltaSource, seattle.rows), {"a" * 32}
    table = AppliedTable(
        settings,
        "seattle",
        seattle.ledger(),
        seattle.target,
        source,
        lambda: False,
        recorded=cast(RecordedEventIds, ids),
        new_logs=lambda: accepted,
    )
    with pytest.raises(TargetError, match="may lack events that came before log aaaa"):
        table.cut()
    accepted.clear()
    assert [log[0] for log in table.cut().logs] == [STREAM]


@pytest.mark.parametrize("least", [(*ORIGIN, 20), ("newark", "a later one", "all", 0)])
def test_a_site_that_has_less_than_is_needed_serves_no_copy(least: tuple[Any, ...]) -> None:
    """Also of a source table that it does not know yet. Fails when the stream has a gap again."""
    assert "asks for a copy that has version" in Seattle().refusal((least,))


def test_a_table_that_is_replaced_meanwhile_is_not_served() -> None:
    seattle = Seattle()
    settings = StreamSettings(NAME, "orders", ("id",), "newark", ("tacoma",), ("tacoma",))
    source = cast(DeltaSource, seattle.rows)
    table = AppliedTable(
        settings, "seattle", seattle.ledger(), seattle.target, source, lambda: False
    )
    cut: Cut = table.cut()
    table.check(cut)
    seattle.target.id = "target-2"
    with pytest.raises(Exception, match="it has another table now"):
        table.check(cut)


def test_what_a_site_serves_goes_through_any_of_its_senders() -> None:
    """Of tables that it has and does not write, to sites that have them, too."""
    sites = ("newark", "seattle", "tacoma")
    sender = {"site": "newark", "remotes": ["seattle", "tacoma"], "channel": "/east"}
    topology = parse_topology(
        {
            "version": 1,
            "sites": {site: {"state": f"/{site}"} for site in (*sites, "boston")},
            "senders": {
                "east": sender,
                "north": {
                    "site": "seattle",
                    "remotes": ["newark", "tacoma", "boston"],
                    "channel": "/north",
                },
            },
            "tables": {
                "orders": {
                    "keys": ["id"],
                    "writers": ["newark"],
                    "senders": ["east"],
                    "at": {site: f"/{site}/orders" for site in sites},
                }
            },
        },
        "wan.yaml",
    )
    assert [by.stream for by in served_to(topology, "seattle", "/north")] == [NAME]
    assert served_to(topology, "newark", "/east") == []
