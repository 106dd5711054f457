"""With nothing new at the source nothing is written and nothing runs: at the source, in the channel, at the target."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql.streaming.listener import StreamingQueryListener
from sites import NEWARK, SEATTLE, Sites
from waiting import started, wait_until

from spark_wan import Receiver, Sender
from spark_wan.ledger.tables import SCHEMAS
from spark_wan.sender.publish import Publisher

TABLES = ("orders", "readings")
LOOKS = 8


class IdleEvents(StreamingQueryListener):
    """Counts how often a query has looked and found nothing."""

    def __init__(self) -> None:
        self.looks = 0

    def onQueryStarted(self, event: Any) -> None: ...

    def onQueryProgress(self, event: Any) -> None: ...

    def onQueryIdle(self, event: Any) -> None:
        self.looks += 1

    def onQueryTerminated(self, event: Any) -> None: ...


def versions(sites: Sites) -> dict[str, int]:
    """The Delta version of every table of both sites, those of seattle's ledger included."""
    tables = [sites.path(table, site) for table in TABLES for site in (NEWARK, SEATTLE)]
    tables += [sites.folder / SEATTLE / "_wan" / "ledger" / name for name in SCHEMAS]
    return {str(table): DeltaTable(table).version() for table in tables}


def files(folder: Path) -> dict[str, tuple[int, int]]:
    """Everything below a folder, with its size and the time that it was written."""
    return {
        str(path): (path.stat().st_size, path.stat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_an_idle_sender_and_receiver_write_nothing_and_run_no_jobs(
    spark: Any, sites: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No Delta commits, no channel writes and no Spark jobs at either end, over several looks of both; also after a commit at the source
    that changes no rows. Then they are awake at once.

    Taken out once: the look at the newest version in `Publisher.round` (jobs to read the history), the comparison of acks in
    `TableApplier._ack` is not reached by an idle receiver.
    """
    here: Sites = sites()
    here.change(10)
    looked = dict.fromkeys(TABLES, 0)
    newer = Publisher._newer

    def counted(publisher: Publisher, *args: Any) -> bool:
        looked[publisher.settings.table] += 1
        return newer(publisher, *args)

    monkeypatch.setattr(Publisher, "_newer", counted)
    before = spark.conf.get("spark.sql.streaming.noDataProgressEventInterval")
    spark.conf.set("spark.sql.streaming.noDataProgressEventInterval", "0")
    listener = IdleEvents()
    spark.streams.addListener(listener)
    handles = (
        Sender(spark, here.topology, NEWARK, senders=["east"]).start(),
        started(Receiver(spark, here.topology, SEATTLE, senders=["east"], interval=0.1)),
    )

    def settled() -> bool:
        return all(
            here.acked(table) == here.numbers(table)[-1] and not here.frames(table)
            for table in TABLES
        )

    def jobs() -> int:
        return int(spark.sparkContext._jsc.sc().dagScheduler().numTotalJobs())

    def some_looks() -> None:
        sent, received = dict(looked), listener.looks
        wait_until(
            lambda: all(looked[t] >= sent[t] + LOOKS for t in TABLES), "the sender looks", *handles
        )
        wait_until(lambda: listener.looks >= received + LOOKS, "the receiver looks", *handles)

    try:
        wait_until(
            lambda: all(here.numbers(table) for table in TABLES) and settled(),
            "all is applied",
            *handles,
        )
        some_looks()
        found = (
            versions(here),
            files(here.folder / "channel"),
            files(here.folder / NEWARK / "_wan"),
            jobs(),
        )
        some_looks()
        assert (
            versions(here),
            files(here.folder / "channel"),
            files(here.folder / NEWARK / "_wan"),
            jobs(),
        ) == found

        DeltaTable(here.path("orders")).optimize.compact()
        some_looks()
        quiet = jobs()
        some_looks()
        assert jobs() == quiet
        assert files(here.folder / "channel") == found[1]

        before_change = here.acked("orders")
        here.change(30)
        # Into how many epochs the commits fall, and which of them is acked at a look, is chance.
        wait_until(lambda: here.acked("orders") > before_change, "it is awake", *handles)
    finally:
        for handle in handles:
            handle.stop()
        spark.streams.removeListener(listener)
        spark.conf.set("spark.sql.streaming.noDataProgressEventInterval", before)
    here.replicate(spark)
    here.assert_equal()
