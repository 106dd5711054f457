"""A process whose session ends under a sender and a receiver, and what they say of it (the last line that it prints, in JSON)."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from over_connect import connect, start_receiver, wait_until
from sites import NEWARK, SEATTLE, Sites

from spark_wan import Receiver, Sender
from spark_wan.local import local_session


def end_session(spark: Any, kind: str) -> None:
    if kind == "connect":
        spark.stop()
    else:
        # As a cluster manager does, or the driver's own end: what Python knows of the context does not change.
        spark.sparkContext._jsc.sc().stop()


def main() -> None:
    kind, sites = sys.argv[1], Sites.make(Path(sys.argv[2]))
    spark = (
        connect()
        if kind == "connect"
        else local_session("ended", quick=True, **{"spark.master": "local[2]"})
    )
    sites.change(10)
    sender = Sender(spark, sites.topology, NEWARK, senders=["east"]).start()
    receiver: Any = (
        start_receiver(spark, sites)
        if kind == "connect"
        else Receiver(spark, sites.topology, SEATTLE, senders=["east"], interval=0.2).start()
    )
    handles: dict[str, Any] = {"sender": sender, "receiver": receiver}

    def told() -> object:
        return [
            str(part)
            for handle in handles.values()
            for part in (*handle.status(), handle.exception())
        ]

    wait_until(
        lambda: all(sites.acked(table) > 0 for table in ("orders", "readings")),
        "all is applied",
        told,
    )
    began = time.monotonic()
    end_session(spark, kind)
    found = {}
    for name, handle in handles.items():
        wait_until(lambda handle=handle: not handle.is_active, "it ends", told)
        try:
            handle.await_termination()
            raised = None
        except Exception as error:
            raised = type(error).__name__
        handle.stop()
        found[name] = {
            "active": handle.is_active,
            "exception": type(handle.exception()).__name__,
            "raised": raised,
            "held": [status.held for status in handle.status() if status.held],
        }
    print(f"ended after {time.monotonic() - began:.1f} s", told(), file=sys.stderr)
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
