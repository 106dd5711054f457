"""One pass of a receiver over its logs, with a target table that is a list of commits."""

from __future__ import annotations

from typing import Any

from fakes import STREAM, LedgerRows, Target, memory_channel, publish

from spark_wan.channels import StreamLog
from spark_wan.receiver.apply import Outcome, TableApplier
from spark_wan.receiver.job import InboundChannel
from spark_wan.receiver.ledger import Ledger
from spark_wan.topology import parse_topology

TOPOLOGY = parse_topology(
    {
        "version": 1,
        "sites": {"newark": {"state": "/newark"}, "seattle": {"state": "/seattle"}},
        "senders": {"east": {"site": "newark", "remotes": ["seattle"], "channel": "/channel"}},
        "tables": {
            "orders": {
                "keys": ["id"],
                "writers": ["newark"],
                "senders": ["east"],
                "at": {"newark": "/newark/orders", "seattle": "/seattle/orders"},
            }
        },
    },
    "wan.yaml",
)


def test_a_pass_ends_though_somebody_publishes_all_the_time() -> None:
    """Otherwise other tables would wait for ever, and `--available-now` would not end."""
    channel = memory_channel()
    log = StreamLog(channel, STREAM)
    publish(log, 1, 2, 3)
    applier = TableApplier(
        "seattle",
        "orders",
        log,
        Target(channel, "target-1"),
        Ledger("seattle", "orders", LedgerRows()),
        max_epochs=1,
    )
    seen: list[int] = []

    def busy(_: str, outcome: Outcome) -> None:
        seen.append(outcome.applied)
        publish(log, 3 + len(seen))

    spark: Any = None
    inbound = InboundChannel(TOPOLOGY, "seattle", "/channel", {}, parallel=1, max_bytes=1 << 20, on_outcome=busy)
    inbound._appliers[STREAM] = applier
    inbound._apply_stream(spark, "orders", log, log.since(0), ())
    assert seen == [1, 2, 3]
    inbound._apply_stream(spark, "orders", log, log.since(0), ())
    assert seen == [1, 2, 3, 4, 5, 6]
