"""Reading a table of a site once it is synchronized."""

from __future__ import annotations

import uuid
from types import SimpleNamespace
from typing import Any

import pytest
from fakes import ack

from spark_wan.channels.registry import open_channel
from spark_wan.datasource import synchronized as module
from spark_wan.datasource.synchronized import synchronized
from spark_wan.errors import JoinFailureError, LockoutError, TopologyError
from spark_wan.log.stream_log import StreamLog
from spark_wan.sync.request import request_copy, withdraw_request
from spark_wan.topology.model import Topology
from spark_wan.topology.parsing import parse_topology
from spark_wan.wire.ack import Need

STREAM = "newark.east.orders"


def made(**settings: Any) -> Topology:
    return parse_topology(
        {
            "version": 1,
            "sites": {
                "newark": {"state": "/newark"},
                "seattle": {"state": "/seattle", **settings},
            },
            "senders": {
                "east": {
                    "site": "newark",
                    "remotes": ["seattle"],
                    "channel": f"memory://{uuid.uuid4().hex}",
                }
            },
            "tables": {
                "orders": {
                    "keys": ["id"],
                    "writers": ["newark"],
                    "senders": ["east"],
                    "at": {site: f"/{site}/orders" for site in ("newark", "seattle")},
                }
            },
        },
        "wan.yaml",
    )


def log(topology: Topology) -> StreamLog:
    sender = topology.sender("east")
    return StreamLog(open_channel(sender.channel, sender.storage), STREAM)


@pytest.fixture(autouse=True)
def loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "load", lambda spark, place: f"rows of {place}")


def read(topology: Topology, site: str = "seattle", **options: Any) -> Any:
    return synchronized(None, topology, site, "orders", **{"wait": False, **options})  # type: ignore[arg-type]


def test_a_table_is_locked_out_until_it_has_a_whole_state() -> None:
    """Before the first apply, while it needs a copy, and while one is on its way."""
    topology = made()
    with pytest.raises(LockoutError, match="site seattle has nothing of the table yet"):
        read(topology)
    ack(log(topology), "seattle", 3)
    assert read(topology) == "rows of /seattle/orders"
    ack(log(topology), "seattle", 3, held=4, cause="gone", needs=Need("table", (), 5))
    with pytest.raises(LockoutError, match="needs a copy of the table: gone"):
        read(topology)
    ack(log(topology), "seattle", 3)
    request_copy(topology, "orders", "seattle")
    with pytest.raises(LockoutError, match="waits for a copy from site newark"):
        read(topology)
    withdraw_request(topology, "orders", "seattle")
    assert read(topology) == "rows of /seattle/orders"
    assert read(topology, "newark") == "rows of /newark/orders"


def test_a_hold_that_no_copy_mends_is_no_lockout() -> None:
    """The state is old, and whole."""
    topology = made()
    ack(log(topology), "seattle", 3, held=4, cause="the disk is full")
    assert read(topology) == "rows of /seattle/orders"


def test_what_nobody_may_mend_is_not_waited_for() -> None:
    topology = made(auto_init=False)
    ack(log(topology), "seattle", 3, held=4, cause="gone", needs=Need("table", (), 5))
    with pytest.raises(JoinFailureError, match="needs a copy of the table: gone"):
        read(topology, wait=True)


def test_it_waits_until_then_and_no_longer_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    topology, now = made(), [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds
        if now[0] == 5.0:
            ack(log(topology), "seattle", 1)

    clock = SimpleNamespace(sleep=sleep, monotonic=lambda: now[0])
    monkeypatch.setattr(module, "time", clock)  # not that of other threads
    with pytest.raises(LockoutError, match=r"yet\. It was not synchronized within 4 s"):
        read(topology, wait=True, timeout=4)
    assert read(topology, wait=True, timeout=4) == "rows of /seattle/orders"


@pytest.mark.parametrize(("site", "table"), [("boston", "orders"), ("seattle", "order")])
def test_unknown_names_are_refused(site: str, table: str) -> None:
    with pytest.raises(TopologyError, match="is unknown"):
        synchronized(None, made(), site, table)  # type: ignore[arg-type]
