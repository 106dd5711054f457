"""f55 with Spark: any one file of a site's state, or of the checkpoint of a user's query, is
deleted or truncated; with all files, also emptied or restored.

The files are those of the ledger's Delta tables, the receivers' checkpoints, the decisions, and the
checkpoint of a query that writes a user stream. Each is damaged alone, while epochs wait; one of
them redelivers events of applied epochs. Then either both sites have the same rows, each event
once, or a cause is reported that names a remedy. For other files see
``tests/unit/sender/test_file_family.py``.

By default this damages the newest file of a few kinds. ``SPARK_WAN_ALL_FILES=1`` damages every file
in every way, which takes about an hour; with ``-s`` it prints the outcome of each.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from file_faults import Fault, cut_in_half, deleted, emptied, restored
from sites import NEWARK, SEATTLE, Sites, at

from spark_wan.receiver.job import Receiver
from spark_wan.sender.job import Sender
from spark_wan.state.decisions import StoredDecisions
from spark_wan.wire.decisions import Decisions

ALL = os.environ.get("SPARK_WAN_ALL_FILES") == "1"
REMEDY = re.compile(r"[Rr]estore|[Dd]elete|decide|newLog|a copy|a place of its own")
TABLES = ("orders", "readings", "clicks")


def clicks(numbers: Iterable[int]) -> list[dict[str, Any]]:
    return [{"event": f"c{n:03}", "at": at(n), "page": f"/{n}"} for n in numbers]


def publish(spark: Any, wan: Sites) -> list[str]:
    """Run the sender and the user's query until nothing is left to publish; return the errors."""
    causes = []
    handle = Sender(spark, wan.topology, NEWARK, senders=["east"]).start(available_now=True)
    try:
        handle.await_termination()
    except Exception as error:
        causes.append(f"sender: {error}")
    reader = spark.readStream.format("delta").option("maxFilesPerTrigger", 1)
    writer = (
        reader.load(str(wan.path("clicks")))
        .writeStream.format("wan")
        .options(**wan.sink_options("clicks"))
    )
    for tries_left in reversed(range(5)):  # Python may start too slowly on a busy machine
        try:
            writer.option("checkpointLocation", str(wan.folder / "query"))
            writer.trigger(availableNow=True).start().awaitTermination()
            break
        except Exception as error:
            if not tries_left or "Python worker failed to connect back" not in str(error):
                return [*causes, f"query: {error}"]
    return causes


def receive(spark: Any, wan: Sites) -> list[str]:
    """Run seattle's receiver until nothing is left to apply; return errors and causes of holds."""
    receiver = Receiver(spark, wan.topology, SEATTLE, senders=["east", "events"])
    try:
        handle = receiver.start(available_now=True)
    except Exception as error:
        return [f"start: {error}"]
    causes = []
    try:
        handle.await_termination()
    except Exception as error:
        causes.append(f"receiver: {error}")
    return causes + [f"held: {status.held}" for status in handle.status() if status.held]


@dataclass(frozen=True)
class World:
    """``now``: epochs 1 to 3 of each stream are applied, 4 waits. ``backup``: after epoch 2."""

    now: Sites
    backup: Sites


@pytest.fixture(scope="module")
def world(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> World:
    folder = tmp_path_factory.mktemp("world")
    wan = Sites.make(folder / "now")
    decisions = StoredDecisions(str(wan.folder / SEATTLE / "_wan"))
    backup = wan
    for epoch in range(4):
        wan.change(10 + 20 * epoch)
        wan.append("clicks", clicks(range(10 * epoch, 10 * epoch + 10)))
        decisions.record("orders", Decisions(new_logs=frozenset({f"{epoch:032x}"})))
        assert publish(spark, wan) == []
        if epoch == 3:
            redelivered = spark.createDataFrame(
                clicks(range(5, 35)), "event string, at timestamp, page string"
            )
            wan.write_events("clicks", redelivered)
        else:
            assert receive(spark, wan) == []
        if epoch == 1:
            backup = wan.copy(folder / "backup")
    return World(wan, backup)


def files(wan: Sites) -> list[str]:
    """Return the files to damage, without Hadoop's checksum files: object stores have none."""
    places = [wan.folder / SEATTLE / "_wan", wan.folder / "query"]
    paths = [path for place in places for path in place.rglob("*") if path.is_file()]
    return sorted(
        str(path.relative_to(wan.folder)) for path in paths if not path.name.startswith(".")
    )


def kind_of(name: str) -> str:
    """Return the name without its numbers and IDs."""
    name = re.sub(r"[0-9a-f]{12,}", "*", re.sub(r"/\d+(?=\.|$)", "/N", name))
    return re.sub(r"part-.*parquet", "*.parquet", name)


LEDGER = "seattle/_wan/ledger"
FEW: dict[Fault, list[str]] = {
    deleted: [
        f"{LEDGER}/event_ids/_delta_log/N.json",
        f"{LEDGER}/applied/*.parquet",
        "query/metadata",
    ],
    cut_in_half: [f"{LEDGER}/applied/_delta_log/N.json"],
    emptied: [],
    restored: [],
}
"""Fault -> the kinds of files (:func:`kind_of`) to damage by default."""


@pytest.mark.timeout(0 if ALL else 1_800)
@pytest.mark.parametrize(
    "fault", [fault for fault in FEW if ALL or FEW[fault]], ids=lambda fault: fault.__name__
)
def test_f55_any_one_damaged_state_file_loses_and_doubles_nothing(
    spark: Any, world: World, tmp_path: Path, fault: Fault
) -> None:
    names = files(world.now)
    if not ALL:
        newest = {kind_of(name): name for name in names}
        names = [newest[kind] for kind in FEW[fault]]
    failures = []
    for name in names:
        backup = world.backup.folder / name
        if fault is restored and (
            not backup.exists() or backup.read_bytes() == (world.now.folder / name).read_bytes()
        ):
            continue
        wan = world.now.copy(tmp_path / "wan")
        fault(wan.folder / name, backup)
        (wan.folder / name).with_name(f".{Path(name).name}.crc").unlink(missing_ok=True)
        wan.change(90)
        wan.append("clicks", clicks(range(40, 45)))
        causes = publish(spark, wan) + receive(spark, wan)
        if any(cause.startswith("query: ") for cause in causes):
            # As the README says. The receiver deduplicates the redelivered events.
            shutil.rmtree(wan.folder / "query")
        if causes:
            causes = publish(spark, wan) + receive(spark, wan)
        equal = all(wan.rows(table) == wan.rows(table, NEWARK) for table in TABLES)
        doubled = [
            table for table in ("readings", "clicks") if wan.rows(table) - wan.rows(table, NEWARK)
        ]
        print(
            f"{fault.__name__:12} {name}: {'equal' if equal else 'unequal'} {doubled} {causes}",
            flush=True,
        )
        if doubled or not (equal or causes) or any(not REMEDY.search(cause) for cause in causes):
            failures.append((name, equal, doubled, causes))
        shutil.rmtree(wan.folder)
    assert not failures, "\n".join(map(str, failures))
