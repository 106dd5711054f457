"""Reading a table of a site once it is synchronized."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from spark_wan.channels.registry import open_channel
from spark_wan.delta.tables import load
from spark_wan.errors import JoinFailureError, LockoutError, TopologyError
from spark_wan.log.stream_log import StreamLog
from spark_wan.sync.request import CopyRequests
from spark_wan.topology.model import Table, Topology
from spark_wan.topology.routes import streams_of
from spark_wan.topology.signing import receiving_trust

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

POLL_INTERVAL = 1.0
"""Seconds between looks at the acks."""


def synchronized(
    spark: SparkSession,
    topology: Topology,
    site: str,
    table: str,
    wait: bool = True,
    timeout: float | None = None,
) -> DataFrame:
    """Return a table of a site, once the site has a whole state of it: it needs no copy and waits
    for none. How old the state is does not count; ``wait_for_ack`` waits for a commit.

    Args:
        wait: Wait for it; else raise LockoutError at once.
        timeout: Seconds to wait at most; None: as long as it takes.

    Raises:
        LockoutError: the site is not synchronized, or was not in time.
        JoinFailureError: the site needs a copy, and its ``auto_init`` is false.
        TopologyError: the site or the table is unknown, or the table is not at the site.
        ChannelError: no answer of the site can be read.
    """
    found, here = topology.table(table), topology.site(site)
    place = found.location(here.name)
    end = None if timeout is None else time.monotonic() + timeout
    while here.name not in found.writers and (why := _lockout(topology, found, here.name)):
        if not wait:
            raise LockoutError(why)
        left = POLL_INTERVAL if end is None else min(POLL_INTERVAL, end - time.monotonic())
        if left <= 0:
            raise LockoutError(f"{why} It was not synchronized within {timeout:g} s.")
        time.sleep(left)
    return load(spark, place)


def _lockout(topology: Topology, table: Table, site: str) -> str:
    """Return why a table is not synchronized at a site; empty: it is. Raises JoinFailureError."""
    where = f"{table.name}: site {site}"
    streams = [each for each in streams_of(topology, table) if site in each.addressees]
    if not streams:
        raise TopologyError(f"{topology.file}: nobody sends table {table.name} to site {site}.")
    applied = False
    for stream in streams:
        sender = stream.sender
        channel = open_channel(sender.channel, sender.storage)
        trust = receiving_trust(topology, site, sender.channel)
        ack = StreamLog(channel, stream.name, trust(stream.name)).ack(site)
        if ack is not None and ack.needs is not None:
            if not topology.site(site).auto_init:
                raise JoinFailureError(f"{where} needs a copy of the table: {ack.cause}")
            return f"{where} needs a copy of the table: {ack.cause}"
        applied = applied or (ack is not None and ack.in_table > 0)
    if not applied:
        return f"{where} has nothing of the table yet."
    requests = CopyRequests(topology, table, topology.site(site))
    if requests.is_possible:
        request = requests.open()
        if request is not None:
            return f"{where} waits for a copy from site {request.by.sender.site}."
    return ""
