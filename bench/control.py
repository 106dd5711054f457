"""``python -m bench.control``: what heartbeats, control, full queues and rows that a target refuses
cost.

``poison``
    An epoch of 100,000 random keys, applied to a table of 300,000 rows with two CHECK constraints
    and a NOT NULL column: as it is, and with one row for which a constraint is false, raises an
    error, or which has no value. Each round measures all four, each from the planned epoch to the
    ack, with the dead letter and its report to the sender. Figures are medians of the rounds, and
    of their ratios; also of the CPU time, which other work on the machine changes less.

``drain``
    ``spark_wan.drain`` of a link that has been quiet: until it returns. It is what the command does
    once it has started. A sender and a receiver run, each a process of its own. An interval is the
    one at which jobs look for requests, and at which quiet tables and channels are polled by
    default: 5 s.

``queue``
    2 million events queue for a site that is away: the resident memory of the sender with its JVM,
    once each tenth of them is in the channel, and the ratio of the last to the first. Each is a
    median over ten seconds. Threads are those of all its processes, and of the sender alone: the
    JVM has two pools, of 100 threads each, which fill as jobs run.

``idle``
    The three minutes of :mod:`bench.idle` with one table, whose figures go to
    ``bench/results/idle.json`` as well: requests for heartbeats and for control, and commits.

Figures go to ``bench/results/control.json``. ``--events``, ``--queued`` and ``--rounds`` are for
trying the bench out.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from bench import idle
from bench.end_to_end import TYPES
from bench.figures import chosen, parser, record, record_each, show
from bench.jobs import NEWARK, SEATTLE, ManyTables, Process, cpu_seconds, wait_for
from bench.small_apply import SmallApply
from spark_wan.channels.registry import open_channel
from spark_wan.control import verbs
from spark_wan.control.keeper import CONTROL_INTERVAL
from spark_wan.delta.sql import reference
from spark_wan.local import local_session
from spark_wan.log.stream_log import StreamLog
from spark_wan.receiver.refused import RefusedReporter
from spark_wan.state.handled import HandledLetters
from spark_wan.topology.parsing import load_topology
from spark_wan.units import milliseconds

HERE = Path(__file__).parent
SCRATCH = HERE / "scratch" / "control"
RESULTS = HERE / "results" / "control.json"

ROWS, FILES = 300_000, 4
"""Of the table whose constraints refuse a row."""
CONSTRAINTS = {"no_discount": "price >= 0", "share": "100 / quantity > 0"}
"""The second one raises an error for a quantity of 0."""
POISON: Mapping[str, tuple[str, Any]] = {
    "poison_row": ("price", -1.0),
    "raising_row": ("quantity", 0),
    "null_row": ("status", None),
}
"""Figure -> the column of one row, and its value."""
QUIET = 110.0
"""Seconds without a change after which a table is polled at the longest interval."""
COMMITS = 40
"""In which the events that queue are committed: four for each tenth of them."""
SETTLED, SAMPLES, EVERY = 5.0, 20, 0.5
"""Seconds to wait once a tenth has been queued, number of samples of the memory, and seconds
between them."""


def poison(place: Path, options: argparse.Namespace) -> dict[str, Any]:
    conf = {"spark.master": "local[2]", "spark.driver.memory": "4g"}
    spark = local_session("bench", **conf)
    one = PoisonedApply(spark, place, vectors=True)
    one.make_tables(ROWS, FILES)
    names = ["clean", *POISON]
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    for n in range(options.warm_up + options.rounds):
        for name in [*names[n % len(names) :], *names[: n % len(names)]]:
            took = one.poisoned_apply(options.events, POISON.get(name))
            if n >= options.warm_up:
                seconds[name].append(took)
            print(f"round {n}: {name} {took[0]:.2f} s, CPU {took[1]:.2f} s", flush=True)
    spark.stop()
    found: dict[str, Any] = {}
    for kind, unit in enumerate(("s", "cpu_s")):
        for name in names:
            median = statistics.median(each[kind] for each in seconds[name])
            found[f"{name}_{unit}"] = round(median, 2)
        for name in POISON:
            pairs = zip(seconds[name], seconds["clean"], strict=True)
            ratio = statistics.median(one[kind] / clean[kind] for one, clean in pairs)
            found[f"{name}_ratio" if unit == "s" else f"{name}_cpu_ratio"] = round(ratio, 2)
    return found


class PoisonedApply(SmallApply):
    """A table with constraints, to which epochs are applied that have a row that it refuses."""

    target_types = TYPES.replace("status string", "status string NOT NULL")
    applies = letters = 0

    def make_tables(self, rows: int, files: int) -> None:
        super().make_tables(rows, files)
        for name, condition in CONSTRAINTS.items():
            target = reference(self.target)
            self.spark.sql(f"ALTER TABLE {target} ADD CONSTRAINT {name} CHECK ({condition})")
        applier = self.applier
        applier.tell_refused = RefusedReporter(
            SEATTLE,
            "orders",
            log=applier.log,
            ledger=applier.ledger,
            store=applier.ledger.store,
            handled=HandledLetters(self.topology.site(SEATTLE).state),
            clock=milliseconds,
        )

    def poisoned_apply(self, events: int, poison: tuple[str, Any] | None) -> tuple[float, float]:
        """Return the seconds of an apply of so many rows, one of which has this value in that
        column, and its CPU time. Raises RuntimeError unless that one alone is a dead letter."""
        step, self.applies = ROWS // events, self.applies + 1
        rows = self.rows([*range(self.applies % step, ROWS, step)][:events], self.applies)
        if poison is not None:
            column, value = poison
            values = rows[column].to_pylist()
            values[events // 2] = value
            place = rows.schema.get_field_index(column)
            changed = pa.array(values, rows.schema.field(column).type)
            rows = rows.set_column(place, rows.schema.field(column).with_nullable(True), changed)
        self.send(rows)
        cpu = cpu_seconds(os.getpid())
        times = self.apply()
        cpu = cpu_seconds(os.getpid()) - cpu
        before, self.letters = self.letters, self.letters + (poison is not None)
        found = self.applier.log.acks()[SEATTLE].dead_letters
        if found != self.letters:
            raise RuntimeError(f"{found - before} dead letters, of {poison}")
        return times["apply.8 acked"] - times["apply.2 planned"], cpu


def drain(place: Path, options: argparse.Namespace) -> dict[str, Any]:
    tables = ManyTables(place, 1)
    tables.make()
    topology = load_topology(tables.topology)
    sender = Process("send", NEWARK, tables.topology)
    receiver = Process("receive", SEATTLE, tables.topology)
    seconds = []
    try:
        for n in range(options.rounds):
            wait_for(lambda: sender.streams and receiver.streams, 600, "both run")
            time.sleep(options.quiet + 1.7 * n)
            began = time.monotonic()
            if not verbs.drain(topology, NEWARK).arrived:
                raise RuntimeError("the drain has not ended")
            seconds.append(time.monotonic() - began)
            print(f"drain {n}: {seconds[-1]:.2f} s", flush=True)
            verbs.resume(topology, NEWARK)
    finally:
        for process in (sender, receiver):
            process.stop()
    return {
        "drain_s": round(statistics.median(seconds), 2),
        "drain_longest_s": round(max(seconds), 2),
        "drain_intervals": round(statistics.median(seconds) / CONTROL_INTERVAL, 2),
        "drain_longest_intervals": round(max(seconds) / CONTROL_INTERVAL, 2),
    }


def queue(place: Path, options: argparse.Namespace) -> dict[str, Any]:
    tables = ManyTables(place, 1)
    tables.write_topology(max_queue_bytes="100GiB")
    [name] = tables.names
    tables.append(name, [0])
    log = StreamLog(open_channel(str(place / "channel")), tables.stream(name))
    sender = Process("send", NEWARK, tables.topology)

    def queued(version: int) -> bool:
        newest = log.newest_manifest()
        return newest is not None and newest.last_version == version

    try:
        wait_for(lambda: queued(0), 600, "the sender sends")
        each, sizes, threads, own = options.queued // COMMITS, list[int](), list[int](), list[int]()
        for n in range(1, COMMITS + 1):
            tables.append(name, range(n * each, (n + 1) * each))
            wait_for(lambda n=n: queued(n), 600, f"commit {n} is in the channel")
            if n % (COMMITS // 10) == 0:
                time.sleep(SETTLED)
                sizes.append(_resident(sender))
                threads.append(sender.status("Threads"))
                own.append(len(os.listdir(f"/proc/{sender.process.pid}/task")))
                print(
                    f"{n * each:,} events: {sizes[-1]} MiB, {own[-1]} of {threads[-1]} threads",
                    flush=True,
                )
    finally:
        sender.stop()
    return {
        "queued_events": each * COMMITS,
        "queued_mib": sum(log.read(epoch).bytes for epoch in log.epochs()) // 2**20,
        "queue_rss_mib": sizes,
        "queue_memory_ratio": round(sizes[-1] / sizes[0], 3),
        "queue_threads": threads,
        "queue_threads_of_sender": own,
    }


def _resident(process: Process) -> int:
    """Return the median of some samples of the memory of a process with its JVM, in MiB."""
    samples = []
    for _ in range(SAMPLES):
        samples.append(process.status("VmRSS") // 1024)
        time.sleep(EVERY)
    return round(statistics.median(samples))


def idle_link(place: Path, options: argparse.Namespace) -> dict[str, Any]:
    found = idle.measure(1, place)
    record(idle.RESULTS, found)
    kinds = ("heartbeat", "control", "control_log", "sign_of_life")
    names = (*(f"{kind}_requests" for kind in kinds), "commits")
    return {f"idle_{name}_per_minute": found[f"{name}_per_minute_1"] for name in names}


FIGURES: Mapping[str, Callable[[Path, argparse.Namespace], dict[str, Any]]] = {
    "poison": poison,
    "drain": drain,
    "queue": queue,
    "idle": idle_link,
}
"""Name -> function of an empty folder and the options, which returns figures by name."""


def main() -> None:
    made = parser("python -m bench.control", __doc__, FIGURES, RESULTS)
    made.add_argument("--events", type=int, default=100_000, help="of an epoch")
    made.add_argument("--queued", type=int, default=2_000_000)
    made.add_argument("--rounds", type=int, default=3)
    made.add_argument("--warm-up", type=int, default=2)
    made.add_argument("--quiet", type=float, default=QUIET, help="seconds before a drain")
    options, names = chosen(made, FIGURES)

    def run(name: str, place: Path) -> dict[str, Any]:
        measured = FIGURES[name](place, options)
        print(json.dumps(measured), flush=True)
        return measured

    show(record_each(names, SCRATCH, options.output, run))


if __name__ == "__main__":
    main()
