"""Replicate over Spark Connect, then dates, then end the session; print what was seen as one line
of JSON."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dates import ZONE, carry_dates
from ended_session import end_of_session
from sites import NEWARK, SEATTLE, Sites
from spark_connect import connect
from waiting import wait_until

import spark_wan.capture.source as source
from spark_wan import Receiver, Sender
from spark_wan.capture.altered_values import JAVA_TIME
from spark_wan.delta.sessions import is_connect
from spark_wan.sender.outbound_stream import OutboundStream


def histories_while_idle(*handles: Any) -> int:
    """Return how often an idle sender reads a history (a Spark job) in ten looks at its tables."""
    looks, histories = [], []
    look, history = OutboundStream.look, source.history

    def counted_look(stream: OutboundStream, spark: Any) -> Any:
        looks.append(stream.name)
        return look(stream, spark)

    def counted_history(*args: Any, **options: Any) -> Any:
        histories.append(args)
        return history(*args, **options)

    OutboundStream.look, source.history = counted_look, counted_history  # type: ignore[method-assign]
    try:
        wait_until(lambda: len(looks) >= 10, "the sender looks at its tables", *handles)
    finally:
        OutboundStream.look, source.history = look, history  # type: ignore[method-assign]
    return len(histories)


def replicate(spark: Any, sites: Sites) -> dict[str, Any]:
    sites.change(10)
    handles: list[Any] = [
        Receiver(spark, sites.topology, SEATTLE, senders=["east"], interval=0.2).start(),
        Sender(spark, sites.topology, NEWARK, senders=["east"]).start(),
    ]

    def applied(epochs: int) -> Callable[[], bool]:
        return lambda: all(
            sites.numbers(t)[-1:] >= [epochs] and sites.acked(t) == sites.numbers(t)[-1]
            for t in ("orders", "readings")
        )

    wait_until(applied(1), "the first epochs are applied", *handles)
    sites.change(30)
    wait_until(lambda: applied(2)() and sites.are_equal(), "all changes are applied", *handles)
    receiver, sender = handles
    wait_until(lambda: all(s.backlog == 0 for s in sender.status()), "all is acked", *handles)
    report = {
        "sender": [(s.table, s.held, s.events) for s in sender.status()],
        "receiver": [(s.table, s.held, s.applied) for s in receiver.status()],
        "errors": [str(handle.exception()) for handle in handles if handle.exception()],
    }
    report["histories_while_idle"] = histories_while_idle(*handles)
    sites.change(50)  # stopped with work left
    for handle in handles:
        handle.stop()
    report["active"] = [handle.is_active for handle in handles]

    sites.send(spark)
    sites.apply(spark)
    sites.assert_equal()
    report["rows"] = sites.rows("orders").total()
    return report


def replicate_dates(spark: Any, folder: Path) -> dict[str, Any]:
    spark.conf.set(ZONE, "UTC")
    rows = carry_dates(spark, folder, ["Europe/Amsterdam"])
    settings = (JAVA_TIME, "spark.sql.readSideCharPadding")
    return {"rows": rows, "settings": {name: spark.conf.get(name) for name in settings}}


def main() -> None:
    sites, folder = Sites(Path(sys.argv[1])), Path(sys.argv[2])
    spark = connect("-Duser.timezone=Africa/Monrovia")
    report = {
        "connect": is_connect(spark),
        "replicated": replicate(spark, sites),
        "dates": replicate_dates(spark, folder),
        "ended": end_of_session(spark, sites, spark.stop),
    }
    report["threads"] = [t.name for t in threading.enumerate() if t.name.startswith("wan-")]
    print(json.dumps(report), flush=True)


if __name__ == "__main__":
    main()
