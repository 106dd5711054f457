"""Copies of a table whose events users' queries write: from a site that has it, with the event IDs.

Nobody captures such a table, so its writer serves no copy. Events that are in a copy are known at
the site that takes it: written again, they are dropped.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from many_sites import ManySites
from sites import at

import spark_wan
from spark_wan.channels.registry import open_channel
from spark_wan.delta.sessions import CurrentSession
from spark_wan.errors import SourceUnreadableError
from spark_wan.ledger.applied_ids import AppliedEventIds
from spark_wan.ledger.folding import fold
from spark_wan.ledger.ledger import Ledger
from spark_wan.ledger.store import DeltaLedgerStore
from spark_wan.ledger.tables import LedgerTables
from spark_wan.receiver.copied_ids import RecordedEventIds
from spark_wan.steps import run
from spark_wan.sync.request import request_copy
from spark_wan.target.delta_table import DeltaTarget
from spark_wan.topology.model import copied_stream

CHAIN = {"newark": [["chicago"]], "chicago": [["denver"]], "denver": []}
STAR = {"newark": [["chicago", "denver"]], "chicago": [["denver"]], "denver": []}
KEYED = {"source": "sink", "keys": ["page"]}
KEYLESS = {"source": "sink"}


def sites_of(folder: Path, links: Any, senders: list[str], **settings: Any) -> ManySites:
    """``senders``: those that the tables are attached to; others serve copies alone."""
    at = {site: f"./{site}" for site in ("chicago", "denver")}
    tables = {
        name: {**table, "senders": senders, "at": {s: f"{path}/{name}" for s, path in at.items()}}
        for name, table in (("clicks", KEYLESS), ("pages", KEYED))
    }
    return ManySites.make(folder, links, tables, **settings)


def write(spark: Any, sites: ManySites, first: int, last: int, **options: str) -> None:
    rows = [
        {"event": f"c{n:03}", "at": at(n), "page": f"/{n % 7}", "n": n} for n in range(first, last)
    ]
    frame = spark.createDataFrame(rows, "event string, at timestamp, page string, n int")
    for table in ("clicks", "pages"):
        writer = frame.write.format("wan").mode("append").option("eventId", "event")
        more = {"sequence": "n", "eventTime": "at", **options} if table == "pages" else options
        writer = writer.options(config=str(sites.folder / "wan.yaml"), sender="newark0", **more)
        if "stream" in options:
            writer = writer.option("stream", f"{options['stream']}.{table}")
        writer.option("table", table).save()


def pass_on(spark: Any, sites: ManySites, *order: str) -> dict[str, Any]:
    statuses: dict[str, Any] = {}
    for site in order:
        statuses |= sites.receive(spark, site)
    return statuses


def held(statuses: dict[str, Any]) -> list[str]:
    return [each.held for each in statuses.values() if each.held is not None]


def duplicates(statuses: dict[str, Any]) -> set[int]:
    return {each.duplicates for name, each in statuses.items() if copied_stream(name) is None}


def read(spark: Any, sites: ManySites, table: str, site: str) -> list[str]:
    place = str(sites.tables.path(table, site))
    return sorted(map(str, spark.read.format("delta").load(place).collect()))


def assert_same(spark: Any, sites: ManySites) -> None:
    for table in ("clicks", "pages"):
        rows = [read(spark, sites, table, site) for site in ("chicago", "denver")]
        assert rows[0] == rows[1] and rows[0]


@pytest.mark.parametrize("folded", [False, True], ids=["marks", "folded"])
def test_a_lost_table_comes_back_with_its_event_ids(
    spark: Any, tmp_path: Path, folded: bool
) -> None:
    """In a chain. What is written again is dropped, also where it was lost, and the stream goes
    on."""
    spark_wan.register(spark)
    sites = sites_of(tmp_path, CHAIN, ["newark0", "chicago0"])
    for first in (0, 10, 20):
        write(spark, sites, first, first + 12)
        assert not held(pass_on(spark, sites, "chicago", "denver"))
    if folded:
        state = sites.topology.site("chicago").state
        store = DeltaLedgerStore(LedgerTables(CurrentSession(spark), state))
        for table in ("clicks", "pages"):
            assert run(fold(store, "chicago", table, least=2)) == 3
    for table in ("clicks", "pages"):
        shutil.rmtree(sites.tables.path(table, "denver"))
    shutil.rmtree(Path(sites.topology.site("denver").state) / "ledger")
    write(spark, sites, 32, 36)
    lost = held(pass_on(spark, sites, "chicago", "denver"))
    assert len(lost) == 2
    for table in ("clicks", "pages"):
        asked = request_copy(sites.topology, table, "denver")
        assert asked.sender.site == "chicago"
    assert not held(pass_on(spark, sites, "chicago", "denver", "denver"))
    assert_same(spark, sites)
    write(spark, sites, 5, 40)  # some are new
    statuses = pass_on(spark, sites, "chicago", "denver")
    assert not held(statuses)
    assert duplicates(statuses) == {31}
    assert_same(spark, sites)
    again = sites.receive(spark, "denver")  # a new process reads marks and IDs
    assert not held(again)


def test_a_site_that_joins_gets_a_copy_by_itself(spark: Any, tmp_path: Path) -> None:
    """In a star, whose writer serves none. Fails when the site goes without what was sent before
    it was there."""
    spark_wan.register(spark)
    sites = sites_of(tmp_path, STAR, ["newark0"], sync="auto")
    file = sites.folder / "wan.yaml"
    content = yaml.safe_load(file.read_text())
    before = yaml.safe_load(file.read_text())
    for table in before["tables"].values():
        del table["at"]["denver"]
    before["senders"]["newark0"]["remotes"].remove("denver")
    del before["senders"]["chicago0"]
    file.write_text(yaml.safe_dump(before))
    write(spark, sites, 0, 10)
    write(spark, sites, 10, 20)
    assert not held(pass_on(spark, sites, "chicago"))
    file.write_text(yaml.safe_dump(content))
    joined = held(sites.receive(spark, "denver"))
    assert len(joined) == 2
    assert all("has asked site chicago for a copy" in cause for cause in joined), joined
    write(spark, sites, 20, 30)
    assert not held(pass_on(spark, sites, "chicago", "denver", "denver"))
    assert_same(spark, sites)
    write(spark, sites, 0, 35)
    statuses = pass_on(spark, sites, "chicago", "denver")
    assert duplicates(statuses) == {30}
    assert_same(spark, sites)


@contextmanager
def hidden(sites: ManySites, stream: str) -> Iterator[None]:
    """A stream of newark is not in its channel yet."""
    channel = Path(sites.topology.sender("newark0").channel)
    moved = [channel / "log" / stream, channel / "heads" / f"{stream}.json"]
    for each in moved:
        each.rename(each.with_suffix(".aside"))
    yield
    for each in moved:
        each.with_suffix(".aside").rename(each)


@pytest.mark.channels("directory")
def test_what_a_copy_does_not_have_comes_again_behind_it(spark: Any, tmp_path: Path) -> None:
    """The site that serves has nothing of another stream yet. Fails when the events' IDs still
    count though their rows are gone."""
    spark_wan.register(spark)
    sites = sites_of(tmp_path, STAR, ["newark0"])
    write(spark, sites, 0, 10)
    assert not held(pass_on(spark, sites, "chicago", "denver"))
    write(spark, sites, 10, 20, stream="newark.newark0.more")
    sites.receive(spark, "denver")
    request_copy(sites.topology, "clicks", "denver")
    with hidden(sites, "newark.newark0.more.clicks"):
        pass_on(spark, sites, "chicago")
    assert len(read(spark, sites, "clicks", "chicago")) == 10
    assert not held(pass_on(spark, sites, "denver", "denver"))
    assert len(read(spark, sites, "clicks", "denver")) == 20
    assert not held(pass_on(spark, sites, "chicago"))
    assert read(spark, sites, "clicks", "chicago") == read(spark, sites, "clicks", "denver")


@pytest.mark.parametrize("expired", [5, 10])
def test_expired_event_ids_stay_expired(spark: Any, tmp_path: Path, expired: int) -> None:
    """The site that serves has deleted old IDs, and takes no event of that time any more: nor does
    the site that gets the copy."""
    spark_wan.register(spark)
    sites = sites_of(tmp_path, CHAIN, ["newark0", "chicago0"])
    write(spark, sites, 0, 10)
    assert not held(pass_on(spark, sites, "chicago", "denver"))
    tables = LedgerTables(CurrentSession(spark), sites.topology.site("chicago").state)
    until = int(at(expired - 1).timestamp() * 1_000_000)
    AppliedEventIds(tables, "pages", "newark").expire(until)
    shutil.rmtree(sites.tables.path("pages", "denver"))
    request_copy(sites.topology, "pages", "denver")
    assert not held(pass_on(spark, sites, "chicago", "denver", "denver"))
    there = spark.read.format("delta").load(
        str(Path(sites.topology.site("denver").state) / "ledger" / "event_ids")
    )
    kept = there.where("`table` = 'pages' AND event_id IS NOT NULL").select("event_id").distinct()
    found = sorted(row[0] for row in kept.collect())
    assert expired == 10 or found == [f"c{n:03}" for n in range(expired, 10)]
    write(spark, sites, 0, 10)
    statuses = pass_on(spark, sites, "chicago", "denver")
    assert statuses["chicago.chicago0~newark.newark0.pages"].dead_letters == expired
    assert_same(spark, sites)


def recorded(spark: Any, sites: ManySites) -> tuple[RecordedEventIds, Ledger, DeltaLedgerStore]:
    """The event IDs of pages that chicago serves, and its ledger."""
    tables = LedgerTables(CurrentSession(spark), sites.topology.site("chicago").state)
    store = DeltaLedgerStore(tables)
    ledger = Ledger("chicago", "pages", store)
    site, table = sites.topology.site("chicago"), sites.topology.table("pages")
    channel = open_channel(str(sites.folder / "unused"))
    target = DeltaTarget.at(CurrentSession(spark), site, table, channel=channel, ledger=tables)
    ledger.catch_up(target, write=False)
    source: Any = None
    return RecordedEventIds(tables, "pages", "newark", source), ledger, store


def test_ids_of_later_applies_are_not_in_a_copy(spark: Any, tmp_path: Path) -> None:
    """Also when a fold joins them with those of the version that is copied. Fails when an event
    counts as known at a site whose copy does not have it."""
    spark_wan.register(spark)
    sites = sites_of(tmp_path, CHAIN, ["newark0", "chicago0"])
    for first in (0, 10):
        write(spark, sites, first, first + 10)
        pass_on(spark, sites, "chicago")
    ids, ledger, store = recorded(spark, sites)
    assert (ledger.last_apply, len(ids.cut(ledger).tokens)) == (2, 2)
    ledger.last_apply = 1  # the copy is of the first
    assert len(ids.cut(ledger).tokens) == 1
    assert run(fold(store, "chicago", "pages", least=2)) == 2
    with pytest.raises(SourceUnreadableError, match="was folded meanwhile"):
        ids.cut(ledger)
    ledger.last_apply = 2
    assert len(ids.cut(ledger).tokens) == 1
