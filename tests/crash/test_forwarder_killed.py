"""A receiver that forwards, killed with SIGKILL between manifest and checkpoint of a forward, and
while its forwarding lags: one process, which works at a copy of the sites for each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from default_channel import frames
from many_sites import ManySites

from crash.processes import Killed
from spark_wan.log.stream_log import StreamLog

CHAIN = {"newark": [["chicago"]], "chicago": [["denver"]], "denver": []}
TABLES = ("orders", "readings")
INBOUND = {table: f"newark.newark0.{table}" for table in TABLES}
LAGGING = "forward.3+apply.8:2"
"""Both tables are applied, while the forwarding of both is before its first manifest."""


@pytest.fixture(scope="module")
def waiting(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> ManySites:
    """All sites have epoch 1 of each stream. Epochs 2 and 3 wait for chicago, which forwards."""
    tables = {"orders": {"keys": ["id"]}, "readings": {"start": {"version": 0}}}
    sites = ManySites.make(tmp_path_factory.mktemp("waiting") / "wan", CHAIN, tables)
    sites.tables.change(10)
    sites.send(spark, "newark")
    for site in ("chicago", "denver"):
        sites.receive(spark, site)
    for start in (30, 50):
        sites.tables.change(start)
        sites.send(spark, "newark")
    return sites


@pytest.fixture(scope="module")
def killed(waiting: ManySites, killed_at: Callable[..., Killed]) -> Mapping[str, ManySites]:
    """By step: chicago is killed while it applies and forwards epochs 2 and 3."""
    copies = killed_at(waiting.tables, do="receive", site="chicago", senders=None)
    return {step: ManySites(copy.folder, waiting.sites) for step, copy in copies.items()}


def inbound(sites: ManySites, table: str) -> StreamLog:
    return log(sites, "newark0", INBOUND[table])


def outbound(sites: ManySites, table: str) -> StreamLog:
    return log(sites, "chicago0", f"chicago.chicago0~{INBOUND[table]}")


def log(sites: ManySites, sender: str, stream: str) -> StreamLog:
    return StreamLog(sites.tables.channel(sender), stream)


def acked(sites: ManySites) -> list[int]:
    """Return what chicago has acked, by table."""
    return [inbound(sites, table).acks()["chicago"].applied for table in TABLES]


def forwarded(sites: ManySites) -> list[list[int]]:
    """Return the inbound epochs that the outbound logs have, by table. Some may be trimmed."""
    logs = [outbound(sites, table) for table in TABLES]
    vias = [[log.read(epoch).via for epoch in log.since(0)] for log in logs]
    return [[via.epoch for via in each if via is not None] for each in vias]


def orphans(sites: ManySites) -> set[str]:
    """Return the frames in chicago's channel that no manifest lists."""
    logs = [outbound(sites, table) for table in TABLES]
    listed = {frame.path for log in logs for e in log.since(0) for frame in log.read(e).frames}
    return {path for log in logs for path in frames(log.channel, log.stream)} - listed


def versions(sites: ManySites, site: str) -> list[int]:
    return [sites.tables.version(table, site) for table in TABLES]


def assert_all_arrive_once(spark: Any, sites: ManySites) -> None:
    """Run chicago's receiver again, elsewhere, and then denver's."""
    left, before = orphans(sites), versions(sites, "denver")
    for status in sites.receive(spark, "chicago").values():
        assert (status.held, status.forwarded) == (None, 3), status
    assert all(epochs in ([1, 2, 3], [2, 3]) for epochs in forwarded(sites))
    assert acked(sites) == [3, 3]
    assert orphans(sites) == left
    for status in sites.receive(spark, "denver").values():
        assert (status.held, status.applied, status.duplicates) == (None, 3, 0), status
    for table in TABLES:
        sites.assert_equal(table)
    assert versions(sites, "denver") == [version + 1 for version in before]


@pytest.mark.core
@pytest.mark.parametrize("step", ["forward.4"])
def test_b30_f22_a_killed_forwarder_forwards_each_epoch_once(
    spark: Any, killed: Mapping[str, ManySites], step: str
) -> None:
    """Nothing is acked that is not forwarded. The receiver that takes over, in another process,
    goes on behind the newest `via` of the outbound log.

    Fails when the plan starts from the beginning of the inbound log.
    """
    sites = killed[step]
    for ack, epochs in zip(acked(sites), forwarded(sites), strict=True):
        assert ack <= epochs[-1]
    assert 2 in [epochs[-1] for epochs in forwarded(sites)]
    assert_all_arrive_once(spark, sites)


@pytest.mark.parametrize("step", [LAGGING])
def test_b30_f24_a_receiver_killed_while_its_forwarding_lags_has_not_acked(
    spark: Any, waiting: ManySites, killed: Mapping[str, ManySites], step: str
) -> None:
    """Both tables are written, but newark may trim nothing yet: denver lacks it. The next receiver
    forwards without another write, and names no frame that the killed one has left.

    Fails when an ack says what is applied.
    """
    lagging = killed[step]
    applied = [version + 1 for version in versions(waiting, "chicago")]
    assert versions(lagging, "chicago") == applied
    assert acked(lagging) == [1, 1]
    assert forwarded(lagging) == [[1], [1]]
    assert orphans(lagging)

    assert_all_arrive_once(spark, lagging)
    assert versions(lagging, "chicago") == applied
