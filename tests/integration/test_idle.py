"""With nothing new at the source, nothing is written and no job runs: at source, channel and
target.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from default_channel import contents
from deltalake import DeltaTable
from sites import NEWARK, SEATTLE, Sites
from waiting import wait_until

from spark_wan import Receiver, Sender
from spark_wan.log import heart
from spark_wan.log.notes import receiver_record, sender_record
from spark_wan.receiver.inbound import InboundChannel
from spark_wan.sender.outbound_stream import OutboundStream
from spark_wan.wire.ledger import SCHEMAS

TABLES = ("orders", "readings")
POLLS = 8


def counted(look: Any, looks: Counter[str]) -> Any:
    """Count the looks at each activity."""

    def count(activity: Any, spark: Any) -> Any:
        looks[activity.name] += 1
        return look(activity, spark)

    return count


def versions(sites: Sites) -> dict[str, int]:
    """Return the Delta version of every table of both sites, with those of seattle's ledger."""
    tables = [sites.path(table, site) for table in TABLES for site in (NEWARK, SEATTLE)]
    tables += [sites.folder / SEATTLE / "_wan" / "ledger" / name for name in SCHEMAS]
    return {str(table): DeltaTable(table).version() for table in tables}


def files(folder: Path) -> dict[str, tuple[int, int]]:
    """Return all files below a folder with size and modification time."""
    return {
        str(path): (path.stat().st_size, path.stat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_an_idle_sender_and_receiver_write_nothing_and_run_no_jobs(
    spark: Any, wan: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No Delta commits, no channel writes and no Spark jobs at either end, over several polls; also
    after a commit at the source that changes no rows. A change then wakes them at once. Signs of
    life do not count: they are written whether a job has work or not.

    Fails when `OutboundStream` begins a round without a glance, and `Publisher` plans in it though
    nothing is new. Either glance alone runs no jobs.
    """
    wan.change(10)
    monkeypatch.setattr(heart, "EVERY", 24 * 3600 * 1000)
    looks: Counter[str] = Counter()
    for kind in (OutboundStream, InboundChannel):
        monkeypatch.setattr(kind, "look", counted(kind.look, looks))
    handles = (
        Sender(spark, wan.topology, NEWARK, senders=["east"]).start(),
        Receiver(spark, wan.topology, SEATTLE, senders=["east"], interval=0.1).start(),
    )

    def recorded(table: str) -> bool:
        """Whether the records of both ends, which are written every few seconds, have all
        epochs."""
        log, newest = wan.log(table), wan.numbers(table)[-1]
        sent = sender_record(log.channel, log.stream)
        applied = receiver_record(log.channel, log.stream, SEATTLE)
        return (
            sent is not None
            and applied is not None
            and sent.epoch == sent.epochs == applied.epochs == newest
        )

    def settled() -> bool:
        return all(
            wan.acked(table) == wan.numbers(table)[-1] and not wan.frames(table) and recorded(table)
            for table in TABLES
        )

    def jobs() -> int:
        return int(spark.sparkContext._jsc.sc().dagScheduler().numTotalJobs())

    def state() -> tuple[Any, ...]:
        state = files(wan.folder / NEWARK / "_wan")
        kept = {path: found for path, found in state.items() if "/_wan/alive/" not in path}
        return versions(wan), contents(wan.channel()), kept, jobs()

    def wait_for_polls() -> None:
        before = Counter(looks)
        wait_until(
            lambda: all(looks[name] >= before[name] + POLLS for name in looks),
            "all are looked at",
            *handles,
        )

    try:
        wait_until(
            lambda: all(wan.numbers(table) for table in TABLES) and settled(),
            "all is applied",
            *handles,
        )
        wait_for_polls()
        before_polls = state()
        wait_for_polls()
        assert state() == before_polls

        DeltaTable(wan.path("orders")).optimize.compact()
        wait_for_polls()
        quiet = jobs()
        wait_for_polls()
        assert jobs() == quiet
        assert contents(wan.channel()) == before_polls[1]

        before_change = wan.acked("orders")
        wan.change(30)
        # How many epochs the commits make, and which of them is acked at a poll, varies.
        wait_until(lambda: wan.acked("orders") > before_change, "both ends wake up", *handles)
    finally:
        for handle in handles:
            handle.stop()
    wan.replicate(spark)
    wan.assert_equal()
