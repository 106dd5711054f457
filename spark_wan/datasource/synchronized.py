"""Reading a table of a site once it is synchronized."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from spark_wan.delta.tables import load
from spark_wan.errors import JoinFailureError, LockoutError, TopologyError
from spark_wan.sync.request import CopyRequests
from spark_wan.topology.model import Topology

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
    requests = CopyRequests(topology, found, here)
    while here.name not in found.writers and (why := _lockout(requests)):
        if not wait:
            raise LockoutError(why)
        left = POLL_INTERVAL if end is None else min(POLL_INTERVAL, end - time.monotonic())
        if left <= 0:
            raise LockoutError(f"{why} It was not synchronized within {timeout:g} s.")
        time.sleep(left)
    return load(spark, place)


def _lockout(requests: CopyRequests) -> str:
    """Return why a table is not synchronized at a site; empty: it is. Raises JoinFailureError."""
    table, site = requests.table, requests.site
    where = f"{table.name}: site {site.name}"
    if not requests.inbound:
        raise TopologyError(
            f"{requests.topology.file}: nobody sends table {table.name} to site {site.name}."
        )
    acks = [ack for log in requests.inbound if (ack := log.ack(site.name)) is not None]
    for ack in acks:
        if ack.needs is not None:
            why = f"{where} needs a copy of the table: {ack.cause}"
            if not site.auto_init:
                raise JoinFailureError(why)
            return why
    if not any(ack.in_table for ack in acks):
        return f"{where} has nothing of the table yet."
    request = requests.open() if requests.is_possible else None
    if request is not None:
        return f"{where} waits for a copy from site {request.by.sender.site}."
    return ""
