"""``python -m bench.forwarding``: what sites behind a site cost.

*Forwarding beside applying*: a site applies each epoch to a table of a million rows, and forwards
it to a channel in another folder, in turns. Timed are all steps of each, from reading the log to
the ack and to the checkpoint. Epochs have 1,000 and 500,000 rows.

*A star*: a sender, a process of its own, captures a table for one remote, or for four over the same
channel. The bench commits 1,000 rows at a time, and writes the acks that the remotes would write,
so that only the sender is measured: the CPU time of the process and its JVM for so many epochs,
after some to warm up. One remote and four take turns.

The figures go to ``bench/results/forwarding.json``.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import statistics
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import yaml
from deltalake import write_deltalake

from bench.figures import record
from bench.jobs import Process, wait_for
from bench.small_apply import SmallApply
from spark_wan.channels.registry import open_channel
from spark_wan.forward.forwarder import Forwarder
from spark_wan.local import local_session
from spark_wan.log.notes import put_ack
from spark_wan.log.stream_log import StreamLog
from spark_wan.state.checkpoints import StoredCheckpoints
from spark_wan.steps import run
from spark_wan.topology.model import forwarded_name
from spark_wan.topology.parsing import parse_topology
from spark_wan.units import milliseconds
from spark_wan.wire.ack import Ack

HERE = Path(__file__).parent
SCRATCH = HERE / "scratch" / "forwarding"
RESULTS = HERE / "results" / "forwarding.json"
ROWS = 1_000_000
"""Rows of the table that epochs are applied to."""
SIZES = {"1k": (1_000, 7), "500k": (500_000, 3)}
"""Rows of an epoch, and rounds that count."""
WARM_UP = 2
REMOTES = (1, 4)
ROUNDS = 3
EPOCHS, EPOCHS_BEFORE = 60, 20
"""Epochs of a star that count, and those before."""


def forwarding(spark: Any, place: Path) -> dict[str, Any]:
    """Return the seconds of forwarding and applying the same epochs, and their ratio, by size."""
    figures: dict[str, Any] = {}
    for size, (rows, rounds) in SIZES.items():
        one = SmallApply(spark, place / size, vectors=True)
        one.make_tables(ROWS, 4)
        forwarder = _forwarder(one)
        seconds: dict[str, list[float]] = {"forward": [], "apply": []}
        chosen = random.Random(rows)
        for n in range(WARM_UP + rounds):
            one.send(one.rows(chosen.sample(range(ROWS), rows), change=n + 1))
            took = {}
            for name in sorted(seconds, reverse=bool(n % 2)):  # each goes first in turn
                began = time.monotonic()
                one.apply() if name == "apply" else run(forwarder.round())
                took[name] = time.monotonic() - began
            if forwarder.counts.epochs != n + 1:
                raise RuntimeError(f"epoch {n + 1} was not forwarded")
            print(f"{size}: round {n}: {took}", flush=True)
            for name in took if n >= WARM_UP else ():
                seconds[name].append(took[name])
        pairs = zip(seconds["forward"], seconds["apply"], strict=True)
        figures |= {
            f"forward_{size}_s": round(statistics.median(seconds["forward"]), 4),
            f"apply_{size}_s": round(statistics.median(seconds["apply"]), 3),
            f"forward_to_apply_{size}": round(statistics.median(a / b for a, b in pairs), 4),
        }
        shutil.rmtree(place / size)
    figures["forward_to_apply"] = max(figures[f"forward_to_apply_{size}"] for size in SIZES)
    return figures


def _forwarder(one: SmallApply) -> Forwarder:
    """Return the forwarder of a site that sends on what :class:`SmallApply` applies."""
    place = one.place
    links = {"east": ("newark", "seattle", "channel"), "west": ("seattle", "denver", "onward")}
    topology = parse_topology(
        {
            "version": 1,
            "sites": {
                site: {"state": str(place / site)} for site in ("newark", "seattle", "denver")
            },
            "senders": {
                name: {"site": site, "remotes": [remote], "channel": str(place / channel)}
                for name, (site, remote, channel) in links.items()
            },
            "tables": {
                "orders": {
                    "keys": ["order_id"],
                    "writers": ["newark"],
                    "senders": list(links),
                    "at": {
                        "newark": one.source,
                        "seattle": one.target,
                        "denver": str(place / "denver" / "orders"),
                    },
                }
            },
        },
        str(place / "forwarding"),
    )
    inbound = one.applier.log
    sender = topology.sender("west")
    channel = open_channel(sender.channel)
    channel.prepare()
    return Forwarder(
        topology,
        topology.table("orders"),
        sender,
        inbound,
        StreamLog(channel, forwarded_name("seattle", "west", inbound.stream)),
        StoredCheckpoints(str(place / "seattle" / "checkpoints"), {}),
        milliseconds,
    )


def star(place: Path) -> dict[str, Any]:
    """Return the CPU seconds of a sender by its number of remotes, and their ratio."""
    seconds: dict[int, list[float]] = {remotes: [] for remotes in REMOTES}
    for n in range(ROUNDS):
        for remotes in REMOTES if n % 2 else REMOTES[::-1]:
            seconds[remotes].append(_star(place / f"{n}-{remotes}", remotes))
            print(f"star: round {n}: {remotes} remotes: {seconds[remotes][-1]} s", flush=True)
    one, four = (seconds[remotes] for remotes in REMOTES)
    pairs = zip(four, one, strict=True)
    return {
        "star_cpu_1_s": round(statistics.median(one), 2),
        "star_cpu_4_s": round(statistics.median(four), 2),
        "star_cpu_ratio": round(statistics.median(a / b for a, b in pairs), 3),
    }


def _star(place: Path, number: int) -> float:
    """Return the CPU seconds in which a sender publishes the epochs and trims them."""
    remotes = [f"remote{n}" for n in range(number)]
    sites = ["newark", *remotes]
    content = {
        "version": 1,
        "sites": {site: {"state": f"./{site}/_wan"} for site in sites},
        "senders": {
            "center": {
                "site": "newark",
                "remotes": remotes,
                "channel": "./channel",
                "batch_interval": "100ms",
            }
        },
        "tables": {
            "orders": {
                "keys": ["id"],
                "writers": ["newark"],
                "senders": ["center"],
                "at": {site: f"./{site}/orders" for site in sites},
            }
        },
    }
    place.mkdir(parents=True)
    (place / "wan.yaml").write_text(yaml.safe_dump(content))
    _commit(place, 0)
    log = StreamLog(open_channel(str(place / "channel")), "newark.center.orders")
    sender = Process("send", "newark", place / "wan.yaml")
    try:
        before = 0.0
        for epoch in range(1, EPOCHS_BEFORE + EPOCHS + 1):
            wait_for(lambda epoch=epoch: log.newest_epoch() >= epoch, 300, f"epoch {epoch}")
            manifest = log.read(epoch)
            for site in remotes:
                ack = Ack(site, log.stream, manifest.log_id, epoch)
                put_ack(log.channel, log.stream, site, ack.encode())
            wait_for(lambda: not log.channel.frames(log.stream), 300, "the frames are trimmed")
            if epoch == EPOCHS_BEFORE:
                before = sender.cpu_seconds()
            _commit(place, epoch)
        return round(sender.cpu_seconds() - before, 2)
    finally:
        sender.stop()
        shutil.rmtree(place)


def _commit(place: Path, n: int) -> None:
    """Commit 1,000 new rows."""
    ids = range(1_000 * n, 1_000 * n + 1_000)
    rows = pa.table({"id": ids, "item": [f"item {i}" for i in ids], "amount": [i / 4 for i in ids]})
    feed = {"delta.enableChangeDataFeed": "true"}
    write_deltalake(place / "newark" / "orders", rows, mode="append", configuration=feed)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.forwarding",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("parts", nargs="*", help="forwarding, star; default: both")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    shutil.rmtree(SCRATCH, ignore_errors=True)
    if "star" in options.parts or not options.parts:
        found = record(options.output, star(SCRATCH / "star"))
    if "forwarding" in options.parts or not options.parts:
        spark = local_session("bench", **{"spark.master": "local[2]", "spark.driver.memory": "4g"})
        found = record(options.output, forwarding(spark, SCRATCH / "forwarding"))
        spark.stop()
    print(json.dumps(found, indent=2))
    shutil.rmtree(SCRATCH, ignore_errors=True)


if __name__ == "__main__":
    main()
