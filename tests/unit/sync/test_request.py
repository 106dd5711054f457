"""Who may ask whom for a copy of what, and what the request says."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Any

import pytest
from fakes import ack

from spark_wan.channels.registry import open_channel
from spark_wan.errors import JoinFailureError, TopologyError
from spark_wan.log.stream_log import StreamLog
from spark_wan.sync.request import (
    CopyRequests,
    request_copy,
    serving_sites,
    withdraw_request,
)
from spark_wan.topology.model import Topology
from spark_wan.topology.parsing import parse_topology
from spark_wan.wire.ack import Ack, Need


def made(tables: dict[str, Any] | None = None, **changes: Any) -> Topology:
    """newark writes; chicago gets its tables from there and forwards orders to denver, which sends
    to chicago, too, but nothing of orders. ``tables``: changes of tables; ``changes``: of sites."""
    place = f"memory://{uuid.uuid4().hex}"
    sites = ("newark", "chicago", "denver")
    everywhere = {site: f"/{site}/orders" for site in sites}
    table: dict[str, Any] = {"keys": ["id"], "writers": ["newark"], "senders": ["east"]}
    return parse_topology(
        {
            "version": 1,
            "sites": {site: {"state": f"/{site}"} for site in (*sites, "boston")} | changes,
            "senders": {
                "east": {"site": "newark", "remotes": ["chicago"], "channel": f"{place}/east"},
                "west": {"site": "chicago", "remotes": ["denver"], "channel": f"{place}/west"},
                "back": {"site": "denver", "remotes": ["chicago"], "channel": f"{place}/back"},
            },
            "tables": {
                "orders": {**table, "senders": ["east", "west"], "at": everywhere},
                "clicks": {
                    **table,
                    "source": "sink",
                    "at": {site: f"/{site}/clicks" for site in ("newark", "chicago")},
                    **(tables or {}).get("clicks", {}),
                },
            },
        },
        "wan.yaml",
    )


@pytest.fixture
def topology() -> Topology:
    return made()


def log(topology: Topology, stream: str) -> StreamLog:
    sender = topology.sender(stream.split(".")[1])
    return StreamLog(open_channel(sender.channel, sender.storage), stream)


def test_a_request_says_what_the_site_lacks(topology: Topology) -> None:
    need = Need("epochs", (("newark", "an id", "all", 29),), 5)
    ack(log(topology, "newark.east.orders"), "chicago", 0, needs=need)
    by = request_copy(topology, "orders", "chicago", by="newark")
    assert by.stream == "newark.east.orders~copy~chicago"
    found = log(topology, "newark.east.orders~copy~chicago").ack("chicago")
    assert found is not None and found.wanted is not None
    assert (found.applied, found.held, found.wanted.least) == (0, None, need.least)


def test_a_second_request_is_another_one(topology: Topology) -> None:
    """b79. The copy that answers the first answers it no more."""
    requests = []
    for _ in range(2):
        name = request_copy(topology, "orders", "chicago").stream
        found = log(topology, name).ack("chicago")
        assert found is not None and found.wanted is not None
        requests.append(found.wanted.request)
    assert len({*requests}) == 2


def test_a_request_keeps_what_was_acked(topology: Topology) -> None:
    name = request_copy(topology, "orders", "chicago").stream
    log(topology, name).put_ack(Ack("chicago", name, "a" * 32, 3, held=4, cause="full"))
    request_copy(topology, "orders", "chicago")
    found = log(topology, name).ack("chicago")
    assert found is not None
    assert (found.log_id, found.applied, found.held, found.cause) == ("a" * 32, 3, None, None)


def test_a_request_may_ask_for_the_difference(topology: Topology) -> None:
    name = request_copy(topology, "orders", "chicago", difference=True).stream
    found = log(topology, name).ack("chicago")
    assert found is not None and found.wanted is not None and found.wanted.difference


@pytest.mark.parametrize(
    ("table", "site", "match"),
    [
        ("order", "chicago", "did you mean 'orders'"),
        ("orders", "chicagoo", "did you mean 'chicago'"),
        ("orders", "newark", "writes table orders, and gets no copy of it"),
        ("orders", "boston", "table orders is not at site boston. Add it"),
        ("clicks", "chicago", "queries write its events, and no sender of another site"),
    ],
)
def test_a_copy_that_nobody_could_serve_is_refused(
    topology: Topology, table: str, site: str, match: str
) -> None:
    with pytest.raises(TopologyError, match=match):
        request_copy(topology, table, site)
    assert log(topology, "newark.east.orders").channel.notes("acks") == {}


def asked(topology: Topology, table: str, site: str) -> list[str]:
    return [by.stream for by in serving_sites(topology, table, site)]


def test_sites_that_have_a_copy_are_asked_first_and_the_writer_last(topology: Topology) -> None:
    """Through any sender; a site behind another one, too. Fails when only the writer serves."""
    assert asked(topology, "orders", "chicago") == [
        "denver.back.orders~copy~chicago",
        "newark.east.orders~copy~chicago",
    ]
    assert asked(topology, "orders", "denver") == ["chicago.west.orders~copy~denver"]


def test_the_writer_of_a_user_stream_serves_no_copy() -> None:
    """It has no table, whatever the topology says. Fails when it is asked, and nobody answers."""
    at = {site: f"/{site}/clicks" for site in ("newark", "chicago", "denver")}
    topology = made(tables={"clicks": {"at": at, "senders": ["east", "west"]}})
    assert asked(topology, "clicks", "chicago") == ["denver.back.clicks~copy~chicago"]
    assert asked(topology, "clicks", "denver") == ["chicago.west.clicks~copy~denver"]


def test_sync_from_primary_asks_the_writer_alone() -> None:
    topology = made(
        chicago={"state": "/chicago", "sync_from": "primary"},
        denver={"state": "/denver", "sync_from": "primary"},
    )
    assert asked(topology, "orders", "chicago") == ["newark.east.orders~copy~chicago"]
    with pytest.raises(TopologyError, match="sync_from of site denver is primary"):
        request_copy(topology, "orders", "denver")


def test_what_its_writer_signs_is_not_taken_from_a_site_that_signs_nothing() -> None:
    """Nor from one that is not accepted. Fails when whoever may write to its channel can replace
    the table."""
    keys = {"state": "/newark", "signing_keys": ["env:WAN_KEY"]}
    only = ["newark.east.orders~copy~chicago"]
    assert asked(made(newark=keys), "orders", "chicago") == only
    accepting = {"state": "/chicago", "accept_from": ["newark"]}
    assert asked(made(chicago=accepting), "orders", "chicago") == only


def test_a_receiver_asks_only_whom_it_hears(topology: Topology) -> None:
    channels = {topology.sender("east").channel}
    requests = CopyRequests(
        topology, topology.table("orders"), topology.site("chicago"), channels=channels
    )
    assert [by.sender.name for by in requests.sites] == ["east"]
    nobody = replace(requests, channels=set())
    assert not nobody.is_possible


def test_who_is_asked_may_be_chosen(topology: Topology) -> None:
    assert request_copy(topology, "orders", "chicago", by="newark").sender.name == "east"
    with pytest.raises(TopologyError, match=r"boston does not serve this copy\. These do: denver"):
        request_copy(topology, "orders", "chicago", by="boston")


def test_a_request_to_another_site_takes_the_place_of_the_first(topology: Topology) -> None:
    """Fails when both serve it."""
    request_copy(topology, "orders", "chicago")
    second = request_copy(topology, "orders", "chicago", by="newark")
    first = log(topology, "denver.back.orders~copy~chicago").ack("chicago")
    assert first is not None and first.wanted is None
    requests = CopyRequests(topology, topology.table("orders"), topology.site("chicago"))
    found = requests.open()
    assert found is not None and found.by == second


def test_the_next_site_is_asked_for_the_same(topology: Topology) -> None:
    need = Need("epochs", (("newark", "an id", "all", 29),), 5)
    ack(log(topology, "newark.east.orders"), "chicago", 0, needs=need)
    first = request_copy(topology, "orders", "chicago")
    requests = CopyRequests(topology, topology.table("orders"), topology.site("chicago"))
    found = requests.open()
    assert found is not None and found.wanted.again == 0
    second = requests.ask_next(first.stream, found.wanted)
    assert second is not None and second.sender.site == "newark"
    found = requests.open()
    assert found is not None and (found.wanted.again, found.wanted.least) == (1, need.least)
    assert requests.ask_next(second.stream, found.wanted) is None
    assert requests.open() == found


def test_a_request_that_is_taken_back_is_gone(topology: Topology) -> None:
    assert not withdraw_request(topology, "orders", "chicago")
    request_copy(topology, "orders", "chicago")
    assert withdraw_request(topology, "orders", "chicago")
    requests = CopyRequests(topology, topology.table("orders"), topology.site("chicago"))
    assert requests.open() is None
    assert not withdraw_request(topology, "orders", "chicago")


def test_no_surprise_of_a_whole_table() -> None:
    """auto_init: false. Fails when the command alone is enough."""
    topology = made(chicago={"state": "/chicago", "auto_init": False})
    with pytest.raises(JoinFailureError, match=r"auto_init of site chicago is false.*--full"):
        request_copy(topology, "orders", "chicago")
    requests = CopyRequests(topology, topology.table("orders"), topology.site("chicago"))
    assert requests.open() is None
    assert request_copy(topology, "orders", "chicago", full=True).site == "chicago"
    assert requests.open() is not None
