"""Sites that send on what they receive."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from deltalake.exceptions import TableNotFoundError
from many_sites import ManySites
from sites import at
from waiting import wait_until

import spark_wan
from spark_wan import Receiver, Sender
from spark_wan.errors import NEW_SITE
from spark_wan.status.reports import read_status

CHAIN = {"newark": [["chicago"]], "chicago": [["denver", "seattle"]], "denver": [], "seattle": []}
RING = {"newark": [["chicago"]], "chicago": [["denver"]], "denver": [["newark"]]}


def clicks(spark: Any, sites: ManySites, first: int, last: int) -> None:
    """Write events with the sink; the IDs of some were used before."""
    rows = [{"event": f"c{n:03}", "at": at(n), "page": f"/{n}"} for n in range(first, last)]
    frame = spark.createDataFrame(rows, "event string, at timestamp, page string")
    writer = frame.write.format("wan").mode("append").option("eventId", "event")
    writer.options(config=str(sites.folder / "wan.yaml"), sender="newark0", table="clicks").save()


@pytest.mark.core
def test_a_site_forwards_what_it_receives(spark: Any, tmp_path: Path) -> None:
    """Tables with and without a key, and a user stream, of which events come twice."""
    spark_wan.register(spark)
    sites = ManySites.make(
        tmp_path,
        CHAIN,
        {
            "orders": {"keys": ["id"]},
            "readings": {"start": {"version": 0}},
            "clicks": {
                "source": "sink",
                "at": {site: f"./{site}/clicks" for site in ("chicago", "denver", "seattle")},
            },
        },
    )
    for start in (10, 30):
        sites.tables.change(start)
        sites.send(spark, "newark")
        clicks(spark, sites, start - 5, start + 20)
        status = sites.receive(spark, "chicago")
        assert {each.held for each in status.values()} == {None}
        assert {each.forwarded for each in status.values()} == {1 if start == 10 else 2}
        for site in ("denver", "seattle"):
            status = sites.receive(spark, site)
            assert {each.held for each in status.values()} == {None}, status
            assert {each.table: each.duplicates for each in status.values()} == {
                "orders": 0,
                "readings": 0,
                "clicks": 0 if start == 10 else 5,
            }
    sites.receive(spark, "chicago")
    for table in ("orders", "readings"):
        sites.assert_equal(table)
    for site in ("chicago", "denver", "seattle"):
        found = sites.tables.rows("clicks", site)
        assert sorted(row[1] for row in found.elements()) == [f"c{n:03}" for n in range(5, 50)]


def test_b36_an_event_that_a_site_cannot_apply_is_recorded_there_and_forwarded(
    spark: Any, tmp_path: Path
) -> None:
    """Each such event with its cause. Fails when chicago forwards what it has applied."""
    sites = ManySites.make(
        tmp_path, {"newark": [["chicago"]], "chicago": [["denver"]], "denver": []}
    )
    tables = sites.tables
    sites.commit("newark", "orders", [{"id": 1, "item": "pear", "amount": 1.0}])
    sites.send(spark, "newark")
    sites.receive(spark, "chicago")
    place = tables.path("orders", "chicago")
    spark.sql(f"ALTER TABLE delta.`{place}` ADD CONSTRAINT small CHECK (amount < 100)")
    rows = [{"id": n, "item": "gold", "amount": 99.0 + n} for n in range(3)]
    sites.commit("newark", "orders", rows)
    sites.send(spark, "newark")
    status = sites.receive(spark, "chicago")["newark.newark0.orders"]
    assert (status.held, status.dead_letters, status.forwarded) == (None, 2, 2)
    letters = tables.dead_letters("orders", "chicago")
    assert sorted(json.loads(letter["key"])["id"] for letter in letters) == [1, 2]
    assert all("small" in letter["cause"] for letter in letters)
    sites.receive(spark, "denver")
    assert tables.rows("orders", "denver") == tables.rows("orders", "newark")
    assert tables.rows("orders", "chicago") != tables.rows("orders", "newark")


def test_b07_b10_b26_f33_a_ring_in_which_all_write_and_one_sender_is_down_for_a_while(
    spark: Any, tmp_path: Path
) -> None:
    """While chicago's sender is stopped, chicago receives and forwards, and what it writes waits.
    Then all catch up. Nothing comes back to the site that wrote it, and nothing arrives twice."""
    sites = ManySites.make(
        tmp_path,
        RING,
        {f"of-{site}": {"keys": ["id"], "writers": [site]} for site in RING},
        ack_timeout="5s",
    )

    rows = sites.tables.rows

    def commit(first: int) -> None:
        for site in RING:
            for n in range(first, first + 2):
                rows = [{"id": i, "item": f"{site} {n}", "amount": i / 4} for i in range(n, n + 3)]
                sites.commit(site, f"of-{site}", rows)

    def equal(*writers: str) -> bool:
        try:
            for site in writers or RING:
                sites.assert_equal(f"of-{site}", site)
        except (AssertionError, TableNotFoundError):  # the second: not all are made yet
            return False
        return True

    commit(1)
    senders = [Sender(spark, sites.topology, site).start() for site in RING]
    receivers = {site: Receiver(spark, sites.topology, site).start() for site in RING}
    try:
        wait_until(equal, "all are equal", *senders, *receivers.values())
        senders[1].stop()
        commit(3)
        others = senders[::2]
        wait_until(
            lambda: equal("newark", "denver"),
            "what the others write arrives everywhere",
            *others,
            *receivers.values(),
        )
        assert rows("of-chicago", "denver") != rows("of-chicago", "chicago")
        senders[1] = Sender(spark, sites.topology, "chicago").start()
        wait_until(equal, "chicago's rows arrive too", *senders, *receivers.values())
        for site, handle in receivers.items():
            for status in handle.status():
                assert (status.duplicates, status.local_commits, status.held) == (0, 0, None), (
                    site,
                    status,
                )
                assert not status.stream.endswith(f".of-{site}")
    finally:
        for handle in (*senders, *receivers.values()):
            handle.stop()


def test_a_site_that_is_added_to_a_running_stream_gets_a_copy_as_the_advice_says(
    spark: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As a remote of the sender that runs, it is held, and the sender and the status have said so
    before. With a sender of its own it gets all, and the other site is not concerned."""
    alone = {"orders": {"keys": ["id"], "start": "snapshot"}}
    sites = ManySites.make(tmp_path, {"newark": [["chicago"]], "chicago": []}, alone)
    sites.tables.change(10)
    for _ in range(2):
        sites.send(spark, "newark")
        sites.receive(spark, "chicago")

    rest: dict[str, list[list[str]]] = {"chicago": [], "denver": []}
    added = ManySites.make(tmp_path, {"newark": [["chicago", "denver"]], **rest}, alone)
    (channel,) = read_status(added.topology)
    chicago, denver = channel.streams[0].sites
    assert (chicago.state, denver.state, denver.lacks_before) == ("up to date", "late", 4)
    added.tables.change(30)
    added.send(spark, "newark")
    assert "denver is new to this stream, which has sent everything through" in caplog.text
    (status,) = added.receive(spark, "denver").values()
    assert status.held is not None and NEW_SITE in status.held

    own = ManySites.make(tmp_path, {"newark": [["chicago"], ["denver"]], **rest}, alone)
    own.tables.change(50)
    own.send(spark, "newark")
    for site in ("chicago", "denver"):
        (status,) = own.receive(spark, site).values()
        assert status.held is None
    own.assert_equal("orders")
