"""Several sites: receivers that forward, on supported topologies of every kind."""

from __future__ import annotations

import copy
import random
from pathlib import Path
from typing import Any

import pytest
from fakes import Checkpoints
from network import Durable, Network

from spark_wan.channels.registry import CHANNELS
from spark_wan.errors import SYNC, TargetError
from spark_wan.status.reports import StreamReport, read_status
from spark_wan.wire.sender_record import NotSent

PAIR = {"a": [["b"]], "b": [["a"]]}
CHAIN = {"a": [["b"]], "b": [["c"], ["a"]], "c": [["d"], ["b"]], "d": [["c"]]}
RING = {"a": [["b"]], "b": [["c"]], "c": [["d"]], "d": [["a"]]}
TOPOLOGIES: dict[str, Any] = {
    "b09 f33 two-way pair": PAIR,
    "b04 star": {"hub": [["x", "y"], ["z"]], "x": [["hub"]], "y": [["hub"]], "z": [["hub"]]},
    "chain": CHAIN,
    "b10 ring": RING,
    "f34 ring of three, both ways": {
        "a": [["b"], ["c"]],
        "b": [["a"], ["c"]],
        "c": [["a"], ["b"]],
    },
    "b11 mesh": {
        "a": [["b", "c", "d"]],
        "b": [["a", "c", "d"]],
        "c": [["a", "b"], ["d"]],
        "d": [["a", "b", "c"]],
    },
    "mesh with rays": {
        "x": [["a"]],
        "a": [["b", "c"], ["x"]],
        "b": [["a", "c"], ["y"]],
        "c": [["a", "b"]],
        "y": [["b"]],
    },
}


def go_at_random(network: Network, choose: random.Random) -> None:
    """Write every table, in a random order of all that happens; now and then a receiver starts
    anew."""
    sites = list(network.topology.sites)
    for _ in range(40):
        network.write(f"of-{choose.choice(sites)}")
        if choose.random() < 0.2:
            network.restart(choose.choice(sites))
        network.go(sites=choose.sample(sites, 2))
    for table in network.topology.tables:
        network.write(table)
    network.settle()
    network.check_settled()


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_b04_b09_b10_b11_b47_f33_f34_all_arrive_once(tmp_path: Path, name: str) -> None:
    """Every site writes a table that all others have."""
    go_at_random(Network(tmp_path, TOPOLOGIES[name]), random.Random(name))


def test_b10_channels_of_different_kinds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ring whose channels are a directory, two object stores, and another kind."""
    monkeypatch.setitem(CHANNELS, "dict", "dict_channel:DictChannel")
    network = Network(tmp_path, RING)
    kinds = (str(tmp_path / "channel"), "dict://ring", "memory://ring-c", "memory://ring-d")
    senders = network.content["senders"]
    network.load(
        senders={
            name: {**entry, "channel": kind}
            for (name, entry), kind in zip(senders.items(), kinds, strict=True)
        }
    )
    go_at_random(network, random.Random("kinds"))


def healthy(site: str, url: str, method: str) -> None:
    """No fault."""


def chain(tmp_path: Path, **tables: Any) -> Network:
    """a -> b -> c -> d, and back; a writes."""
    return Network(tmp_path, CHAIN, **(tables or {"orders": {"writers": ["a"]}}))


def acks(network: Network, stream: str) -> dict[str, int]:
    return {site: ack.applied for site, ack in network.log(stream).acks().items()}


def test_b05_several_tables_with_different_senders(tmp_path: Path) -> None:
    links = {"a": [["b"], ["c"]], "b": [["d"]], "c": [["d"]], "d": []}
    network = Network(
        tmp_path,
        links,
        by_b={"writers": ["a"], "senders": ["a0", "b0"], "at": at("abd", "by_b")},
        by_c={"writers": ["a"], "senders": ["a1", "c0"], "at": at("acd", "by_c")},
    )
    network.write("by_b")
    network.write("by_c")
    network.settle()
    network.check_settled()
    assert (network.through("c", "by_b"), network.through("b", "by_c")) == (0, 0)


def at(sites: str, table: str) -> dict[str, str]:
    return {site: f"/{site}/{table}" for site in sites}


def test_b32_a_site_is_down_and_up_again(tmp_path: Path) -> None:
    network = chain(tmp_path)
    network.write("orders")
    network.settle()
    network.stop("c")
    for _ in range(5):
        network.write("orders")
        network.go(3)
    assert network.through("b", "orders") == 6
    assert network.through("d", "orders") == 1
    network.restart("c")
    network.settle()
    network.check_settled()


def test_b14_a_remote_that_does_not_exist_yet(tmp_path: Path) -> None:
    network = chain(tmp_path)
    for site in ("b", "c", "d"):
        network.stop(site)
    network.write("orders")
    network.go(2)
    for site in ("b", "c", "d"):
        network.restart(site)
        network.write("orders")
        network.go(2)
    network.settle()
    network.check_settled()


def test_an_ack_says_the_lower_of_applied_and_forwarded(tmp_path: Path) -> None:
    network = chain(tmp_path)
    onward = network.topology.sender("b0").channel
    network.fault = lambda site, url, method: (
        "fail" if (site, url, method) == ("b", onward, "append") else None
    )
    network.write("orders")
    network.go(3)
    assert network.through("b", "orders") == 1
    ack = network.log("a.a0.orders").acks()["b"]
    assert (ack.applied, ack.ahead, ack.in_table, ack.held) == (0, 1, 1, 1)
    assert ack.cause is not None and "append is refused" in ack.cause
    status = network.statuses()["b", "a.a0.orders"]
    assert (status.applied, status.forwarded) == (1, 0)
    assert status.held is not None and "append is refused" in status.held
    network.write("orders")
    network.go(3)
    assert network.log("a.a0.orders").epochs() == [1, 2], "trimmed before it was forwarded"
    network.fault = healthy
    network.settle()
    network.check_settled(orphans=True)


def forwarded_link(network: Network) -> StreamReport:
    """Return what status shows of the link from b to c."""
    streams = [each for report in read_status(network.topology) for each in report.streams]
    return next(each for each in streams if each.stream == "b.b0~a.a0.orders")


def test_status_shows_a_forwarded_link_and_what_holds_its_forwarder(tmp_path: Path) -> None:
    """Without asking b. Fails when a forwarder that is held leaves no record of it."""
    network = chain(tmp_path)
    network.write("orders")
    network.settle()
    onward = network.topology.sender("b0").channel
    network.fault = lambda site, url, method: (
        "fail" if (site, url, method) == ("b", onward, "append") else None
    )
    network.write("orders")
    network.go(2)
    report = forwarded_link(network)
    assert report.sender is not None and report.sender.held is not None
    assert "append is refused" in report.sender.held
    assert not report.sender.other_settings
    assert (report.epoch, report.from_site, report.origin) == (1, "b", "a")
    assert [site.path for site in report.sites] == ["a -> a0 -> b -> b0 -> c"]
    network.fault = healthy
    network.settle()
    report = forwarded_link(network)
    assert report.sender is not None and report.sender.held is None
    assert (report.epoch, [site.acked for site in report.sites]) == (2, [2])


def test_what_a_site_does_not_send_on_is_counted(tmp_path: Path) -> None:
    """b has a sender for c, and one for a, where the events come from. Fails when nobody can say
    why an epoch went no further."""
    network = chain(tmp_path)
    for _ in range(2):
        network.write("orders")
        network.settle()
    channels = network.running["b"].forwards.channels
    found = {each.name: each.status for channel in channels for each in channel.streams}
    assert {name: (status.epochs, status.not_sent) for name, status in found.items()} == {
        "b.b0~a.a0.orders": (2, NotSent()),
        "b.b1~a.a0.orders": (0, NotSent(elsewhere=2)),
    }


def limit_b(network: Network, **settings: object) -> None:
    """Give the sender of b settings of its own."""
    senders = copy.deepcopy(network.content["senders"])
    senders["b0"] |= settings
    network.load(senders=senders)


@pytest.mark.parametrize("policy", ["block", "hold"])
def test_a_site_whose_queue_is_full_takes_nothing_more_to_send_on(
    tmp_path: Path, policy: str
) -> None:
    """It applies what comes, and does not ack what waits, so that a keeps it. Fails when b is held
    though nobody wants that, when a trims what waits, or nothing goes on once c is back."""
    network = chain(tmp_path)
    limit_b(network, max_queue_bytes=1, on_queue_limit=policy)
    network.write("orders")
    network.settle()
    network.stop("c")
    for _ in range(3):
        network.write("orders")
        network.go(2)
    assert (network.through("b", "orders"), network.log("a.a0.orders").epochs()) == (4, [3, 4])
    report = forwarded_link(network)
    assert (report.epoch, report.sender is not None) == (2, True)
    assert report.sender is not None and report.sender.queue_full is not None
    assert "wait for c, which has acked epoch 1 of 2" in report.sender.queue_full
    assert (report.sender.held is not None) == (policy == "hold")
    ack = network.log("a.a0.orders").ack("b")
    assert ack is not None and (ack.applied, ack.held is not None) == (2, policy == "hold")
    network.restart("c")
    network.settle()
    report = forwarded_link(network)
    assert report.sender is not None and report.sender.queue_full is None
    network.check_settled()


def test_b13_one_bad_channel_among_good_ones(tmp_path: Path) -> None:
    """b sends on to c and to d; the channel to c refuses everything. d gets all; the log waits."""
    links = {"a": [["b"]], "b": [["c"], ["d"]], "c": [], "d": []}
    network = Network(tmp_path, links, orders={"writers": ["a"]})
    bad = network.topology.sender("b0").channel
    network.fault = lambda site, url, method: "fail" if (site, url) == ("b", bad) else None
    for _ in range(3):
        network.write("orders")
        network.go(2)
    assert network.through("d", "orders") == 3
    assert network.log("a.a0.orders").epochs() == [1, 2, 3]
    network.fault = healthy
    network.settle()
    network.check_settled()


def test_a_table_that_is_held_does_not_starve_those_behind_it(tmp_path: Path) -> None:
    """Nor is anything trimmed that it lacks."""
    network = chain(tmp_path)
    network.write("orders")
    network.settle()

    def refuse(site: str, table: str) -> None:
        if site == "b":
            raise TargetError("the disk is full")

    network.before_apply = refuse
    network.write("orders")
    network.write("orders")
    network.go(8)
    assert network.through("d", "orders") == 3
    ack = network.log("a.a0.orders").acks()["b"]
    assert (ack.applied, ack.held) == (1, 2)
    assert network.log("a.a0.orders").epochs() == [2, 3]
    network.before_apply = lambda site, table: None
    network.settle()
    network.check_settled()


def leave(network: Network) -> None:
    """c leaves the ring: b sends to d now."""
    senders = {
        **network.content["senders"],
        "b1": {"site": "b", "remotes": ["d"], "channel": f"memory://{network.memory}-b1"},
    }
    del senders["c0"], senders["b0"]
    tables = {
        name: {**entry, "senders": list(senders), "at": at("abd", name)}
        for name, entry in network.content["tables"].items()
    }
    sites = {site: entry for site, entry in network.content["sites"].items() if site != "c"}
    network.stop("c")
    network.load(sites=sites, senders=senders, tables=tables)


def ring(tmp_path: Path) -> Network:
    """a -> b -> c -> d -> a. a and d write; all but c stay."""
    return Network(tmp_path, RING, **{f"of-{site}": {"writers": [site]} for site in "ad"})


def test_f35_a_site_leaves_a_ring_once_it_has_forwarded_everything(tmp_path: Path) -> None:
    """Those that stay go on without a copy."""
    network = ring(tmp_path)
    for _ in range(3):
        for table in network.topology.tables:
            network.write(table)
        network.settle()
    network.check_settled()
    leave(network)
    for table in network.topology.tables:
        network.write(table)
    network.settle()
    network.check_settled()


def test_f35_a_site_leaves_a_ring_with_events_that_it_has_not_forwarded(tmp_path: Path) -> None:
    """Those who lack them are held, with the advice to make a copy; the others go on."""
    network = ring(tmp_path)
    for table in network.topology.tables:
        network.write(table)
    network.settle()
    network.stop("c")
    for table in network.topology.tables:
        network.write(table)
    network.go(4)
    leave(network)
    for table in network.topology.tables:
        network.write(table)
    network.settle()
    held = {where: status.held for where, status in network.statuses().items() if status.held}
    assert set(held) == {("d", "b.b1~a.a0.of-a")}
    for cause in held.values():
        assert cause is not None and SYNC in cause
    assert network.through("d", "of-a") == 1
    assert network.through("b", "of-a") == network.through("b", "of-d") == 3


def test_b06_a_site_rebuilt_from_a_backup_receives_and_forwards_again(tmp_path: Path) -> None:
    """Its checkpoints are lost: how far it has forwarded, the log says."""
    network = chain(tmp_path)
    network.write("orders")
    network.settle()
    network.stop("b")
    backup = copy.deepcopy(network.durable["b"])
    network.write("orders")
    network.durable["b"], network.checkpoints["b"] = backup, Checkpoints()
    network.restart("b")
    network.write("orders")
    network.settle()
    network.check_settled()


def test_b06_f40_a_site_rebuilt_from_nothing_is_held_and_forwards(tmp_path: Path) -> None:
    """So is another site under its name. It needs a copy; those behind it get everything meanwhile.
    With a copy, here its old tables, it goes on, and drops what it has."""
    network = chain(tmp_path)
    network.write("orders")
    network.settle()
    copied = network.durable["b"]
    network.durable["b"], network.checkpoints["b"] = Durable(), Checkpoints()
    network.restart("b")
    network.write("orders")
    network.settle()
    held = {where: status.held for where, status in network.statuses().items() if status.held}
    assert set(held) == {("b", "a.a0.orders")}
    assert "needs a copy" in str(held["b", "a.a0.orders"])
    assert network.through("c", "orders") == network.through("d", "orders") == 2
    network.durable["b"] = copied
    network.restart("b")
    network.settle()
    network.check_settled(duplicates=True)


def test_b26_a_sender_is_removed_and_the_others_go_on(tmp_path: Path) -> None:
    """First it is stopped: what it should send waits, and nothing of it is trimmed. Then it is
    taken out of the topology, with the site that it served."""
    network = Network(tmp_path, {"a": [["b"], ["c"]], "b": [], "c": []}, orders={"writers": ["a"]})
    network.write("orders")
    network.settle()
    stopped = network.streams["a.a1.orders"]
    network.stop("c")
    for _ in range(2):
        network.write("orders")
        network.settle()
    assert network.through("b", "orders") == 3
    assert network.log(stopped.name).epochs() == [2, 3]
    network.load(
        sites={site: entry for site, entry in network.content["sites"].items() if site != "c"},
        senders={"a0": network.content["senders"]["a0"]},
        tables={"orders": {"writers": ["a"], "senders": ["a0"], "at": at("ab", "orders")}},
    )
    network.write("orders")
    network.settle()
    network.check_settled()


WRITES = ("put_frame", "append", "put_head", "put_ack", "trim", "put_again")


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("kind", ["acks lost", "partitions", "f12 one way", "flaps"])
def test_f11_f12_f14_channels_fail_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, seed: int
) -> None:
    """Acks are lost; a site reaches none of its channels, or can only read; calls fail at random.
    Receivers start anew meanwhile. Once all is well, all have everything, and logs are trimmed."""
    choose = random.Random(f"{kind} {seed}")
    shape = choose.choice([CHAIN, RING, TOPOLOGIES["b11 mesh"], TOPOLOGIES["b04 star"]])
    network = Network(tmp_path, shape)
    monkeypatch.setattr("spark_wan.forward.job.milliseconds", network.clock)
    down: set[str] = set()

    def fault(site: str, url: str, method: str) -> str | None:
        if kind == "acks lost":
            return "lose" if method == "put_ack" and choose.random() < 0.7 else None
        if kind == "flaps":
            return "fail" if choose.random() < 0.1 else None
        away = site in down and (kind == "partitions" or method in WRITES)
        return "fail" if away else None

    network.fault = fault
    sites = list(network.topology.sites)
    for _ in range(30):
        down = {site for site in sites if choose.random() < 0.3}
        network.write(f"of-{choose.choice(sites)}")
        if choose.random() < 0.2:
            network.restart(choose.choice(sites))
        network.go(sites=choose.sample(sites, 2))
    network.fault = healthy
    network.restart(*sites)  # a site of which no ack ever arrived is not told again
    for _ in range(3):
        network.settle()
        network.clock.pass_seconds(120)
    network.check_settled(duplicates=True, orphans=True)
