"""End the session of a running sender and receiver, and print their reports as JSON."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sites import NEWARK, SEATTLE, Sites
from waiting import wait_until

from spark_wan import Receiver, Sender
from spark_wan.local import local_session


def end_of_session(spark: Any, sites: Sites, end: Callable[[], object]) -> dict[str, Any]:
    """Start a sender and a receiver, end their session once both have done something, and return a
    report of each."""
    tables = ("orders", "readings")
    before = {table: sites.numbers(table)[-1:] for table in tables}
    sites.change(70)
    sender = Sender(spark, sites.topology, NEWARK, senders=["east"]).start()
    receiver = Receiver(spark, sites.topology, SEATTLE, senders=["east"], interval=0.2).start()
    handles: dict[str, Any] = {"sender": sender, "receiver": receiver}

    wait_until(
        lambda: all([sites.acked(table)] > (before[table] or [0]) for table in tables),
        "all is applied",
        *handles.values(),
    )
    began = time.monotonic()
    end()
    reports = {}
    for name, handle in handles.items():
        wait_until(lambda handle=handle: not handle.is_active, f"the {name} ends")
        try:
            handle.await_termination()
            raised = None
        except Exception as error:
            raised = type(error).__name__
        handle.stop()
        reports[name] = {
            "active": handle.is_active,
            "exception": type(handle.exception()).__name__,
            "raised": raised,
            "held": [status.held for status in handle.status() if status.held],
        }
    print(f"ended after {time.monotonic() - began:.1f} s", file=sys.stderr)
    return reports


def main() -> None:
    spark = local_session("ended", quick=True, **{"spark.master": "local[2]"})
    # As a cluster manager does: the context in Python does not change.
    reports = end_of_session(spark, Sites(Path(sys.argv[1])), spark.sparkContext._jsc.sc().stop)
    print(json.dumps(reports), flush=True)


if __name__ == "__main__":
    main()
