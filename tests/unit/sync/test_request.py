"""Who may ask for a copy of what, and what the request says."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from fakes import ack

from spark_wan.channels.registry import open_channel
from spark_wan.errors import TopologyError
from spark_wan.log.stream_log import StreamLog
from spark_wan.sync.request import request_copy
from spark_wan.topology.model import Topology
from spark_wan.topology.parsing import parse_topology
from spark_wan.wire.ack import Ack, Need


@pytest.fixture
def topology() -> Topology:
    """newark writes; chicago gets its tables from there and forwards orders to denver."""
    place = f"memory://{uuid.uuid4().hex}"
    sites = ("newark", "chicago", "denver")
    everywhere = {site: f"/{site}/orders" for site in sites}
    table: dict[str, Any] = {"keys": ["id"], "writers": ["newark"], "senders": ["east"]}
    return parse_topology(
        {
            "version": 1,
            "sites": {site: {"state": f"/{site}"} for site in (*sites, "boston")},
            "senders": {
                "east": {"site": "newark", "remotes": ["chicago"], "channel": f"{place}/east"},
                "west": {"site": "chicago", "remotes": ["denver"], "channel": f"{place}/west"},
            },
            "tables": {
                "orders": {**table, "senders": ["east", "west"], "at": everywhere},
                "clicks": {
                    **table,
                    "source": "sink",
                    "at": {site: f"/{site}/clicks" for site in ("newark", "chicago")},
                },
            },
        },
        "wan.yaml",
    )


def log(topology: Topology, stream: str) -> StreamLog:
    sender = topology.sender("east")
    return StreamLog(open_channel(sender.channel, sender.storage), stream)


def test_a_request_says_what_the_site_lacks(topology: Topology) -> None:
    need = Need("epochs", (("newark", "an id", "all", 29),), 5)
    ack(log(topology, "newark.east.orders"), "chicago", 0, needs=need)
    assert request_copy(topology, "orders", "chicago") == "newark.east.orders~copy~chicago"
    found = log(topology, "newark.east.orders~copy~chicago").ack("chicago")
    assert found is not None and found.wanted is not None
    assert (found.applied, found.held, found.wanted.least) == (0, None, need.least)


def test_a_second_request_is_another_one(topology: Topology) -> None:
    """b79. The copy that answers the first answers it no more."""
    requests = []
    for _ in range(2):
        name = request_copy(topology, "orders", "chicago")
        found = log(topology, name).ack("chicago")
        assert found is not None and found.wanted is not None
        requests.append(found.wanted.request)
    assert len({*requests}) == 2


def test_a_request_keeps_what_was_acked(topology: Topology) -> None:
    name = request_copy(topology, "orders", "chicago")
    log(topology, name).put_ack(Ack("chicago", name, "a" * 32, 3, held=4, cause="full"))
    request_copy(topology, "orders", "chicago")
    found = log(topology, name).ack("chicago")
    assert found is not None
    assert (found.log_id, found.applied, found.held, found.cause) == ("a" * 32, 3, None, None)


def test_a_request_may_ask_for_the_difference(topology: Topology) -> None:
    name = request_copy(topology, "orders", "chicago", difference=True)
    found = log(topology, name).ack("chicago")
    assert found is not None and found.wanted is not None and found.wanted.difference


@pytest.mark.parametrize(
    ("table", "site", "match"),
    [
        ("order", "chicago", "did you mean 'orders'"),
        ("orders", "chicagoo", "did you mean 'chicago'"),
        ("orders", "newark", "writes table orders, and gets no copy of it"),
        ("orders", "boston", "table orders is not at site boston. Add it"),
        ("orders", "denver", "from a site that forwards it"),
        ("clicks", "chicago", "is written by a sink"),
    ],
)
def test_a_copy_that_nobody_could_serve_is_refused(
    topology: Topology, table: str, site: str, match: str
) -> None:
    with pytest.raises(TopologyError, match=match):
        request_copy(topology, table, site)
    assert log(topology, "newark.east.orders").channel.notes("acks") == {}
