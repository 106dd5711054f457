"""A site that lags so far that its stream goes on without it, and comes back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sites import SEATTLE, Sites

from spark_wan.errors import StreamsHeldError
from spark_wan.status.reports import SiteReport, read_status

TABLES = ("orders", "readings")


def dropped(sites: Sites, table: str) -> dict[str, int]:
    newest = sites.log(table).newest_manifest()
    assert newest is not None
    return dict(newest.dropped)


def reported(sites: Sites, table: str) -> SiteReport:
    streams = [each for channel in read_status(sites.topology) for each in channel.streams]
    (stream,) = [each for each in streams if each.stream == sites.log(table).stream]
    return stream.sites[0]


def test_a_site_that_was_dropped_gets_a_copy_and_goes_on(spark: Any, tmp_path: Path) -> None:
    """It asks by itself, and says why. Rows that were deleted meanwhile vanish. Fails when it goes
    on with a gap, when nobody gives it what it lacks, or when it is dropped for good."""
    limits = {"max_queue_bytes": 1, "on_queue_limit": "drop_reader", "ack_timeout": "100ms"}
    sites = Sites.make(tmp_path, **limits)
    sites.set_site(SEATTLE, sync="auto")
    sites.change(10)
    sites.replicate(spark)
    sites.change(30)
    sites.send(spark)
    sites.change(50)
    with pytest.raises(StreamsHeldError, match="no site is dropped yet"):
        sites.send(spark)
    sites.send(spark)  # the run before it has found the queue full
    before = {table: dropped(sites, table)[SEATTLE] for table in TABLES}
    for table in TABLES:
        assert sites.acked(table) < before[table]
        assert reported(sites, table).dropped == before[table]
    sites.send(spark)  # trims what nobody waits for any more
    held = sites.apply(spark)
    for table in TABLES:
        assert min(sites.numbers(table)) > before[table]
        assert "`on_queue_limit: drop_reader`" in str(held[table].held)
    sites.send(spark)
    sites.apply(spark, rounds=3)
    sites.assert_equal()
    sites.change(70)
    sites.replicate(spark)
    sites.assert_equal()
    for table in TABLES:
        assert (dropped(sites, table), reported(sites, table).dropped) == ({}, None)
        ack = sites.ack(table)
        assert ack is not None and ack.held is None
