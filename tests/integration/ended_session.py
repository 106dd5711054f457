"""End the session of a running sender and receiver, and print their reports as JSON."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from sites import NEWARK, SEATTLE, Sites
from spark_connect import connect
from waiting import wait_until

from spark_wan import Receiver, Sender
from spark_wan.local import local_session


def end_session(spark: Any, kind: str) -> None:
    if kind == "connect":
        spark.stop()
    else:
        # As a cluster manager does: the context in Python does not change.
        spark.sparkContext._jsc.sc().stop()


def main() -> None:
    kind, sites = sys.argv[1], Sites(Path(sys.argv[2]))
    if kind == "connect":
        spark = connect()
    else:
        spark = local_session("ended", quick=True, **{"spark.master": "local[2]"})
    sites.change(10)
    sender = Sender(spark, sites.topology, NEWARK, senders=["east"]).start()
    receiver = Receiver(spark, sites.topology, SEATTLE, senders=["east"], interval=0.2).start()
    handles: dict[str, Any] = {"sender": sender, "receiver": receiver}

    wait_until(
        lambda: all(sites.acked(table) > 0 for table in ("orders", "readings")),
        "all is applied",
        *handles.values(),
    )
    began = time.monotonic()
    end_session(spark, kind)
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
    print(json.dumps(reports), flush=True)


if __name__ == "__main__":
    main()
