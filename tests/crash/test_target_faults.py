"""Faults of an apply: conflicting commits, damaged frames, a restored table."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from sites import SEATTLE, Sites

import spark_wan.target.decode as decode_module
from crash.collision import Collision
from spark_wan.delta.dataframes import map_in_arrow
from spark_wan.steps import run
from spark_wan.target.delta_table import DeltaTarget
from spark_wan.target.write import MarkedWrite


def collide(monkeypatch: pytest.MonkeyPatch, way: str, collision: Collision) -> None:
    """Let another writer commit while a task of the write reads the rows: merge or replace."""
    if way == "merge":
        monkeypatch.setattr(decode_module, "SMALL_BYTES", 0)
    write = getattr(MarkedWrite, way)

    def collided(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            collision()
            yield batch

    def colliding(marked: MarkedWrite, rows: Any, *more: Any) -> None:
        frame = map_in_arrow(rows.frame, collided, rows.frame.schema)
        write(marked, replace(rows, frame=frame), *more)

    monkeypatch.setattr(MarkedWrite, way, colliding)


@pytest.mark.parametrize(("writer", "way"), [("OPTIMIZE", "merge"), ("local writer", "replace")])
def test_f26_an_apply_that_collides_with_another_commit_is_retried(
    spark: Any,
    waiting: Sites,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    writer: str,
    way: str,
) -> None:
    """Another writer commits to the target during the write. The apply starts again at step 1 and
    takes effect once; the stream is not held.

    Fails when `DeltaTarget._errors` does not raise `WriteConflict`.
    """
    split_into_two_files(waiting)
    version = waiting.version("orders")
    collision = Collision(waiting.path("orders", SEATTLE), writer, tmp_path / "collided")
    collide(monkeypatch, way, collision)
    attempts: list[Any] = []
    read = DeltaTarget.read
    monkeypatch.setattr(DeltaTarget, "read", lambda *given: attempts.append(given) or read(*given))
    outcome = run(waiting.applier(spark, "orders").round())
    assert (outcome.applied, outcome.held) == (3, None), waiting.ack("orders")
    assert waiting.version("orders") == version + 2
    assert len(attempts) == 2, "the other commit was no conflict"
    waiting.assert_equal("orders")


@pytest.mark.channels("directory", "s3")
def test_f20_a_damaged_frame_that_a_task_decodes_holds_its_stream(
    spark: Any, waiting: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Earlier epochs are applied; the damaged one is held and named. Once the frame is restored, it
    is applied. (The driver decodes the frames of a small apply: ``unit/apply/test_applier.py``.)

    Fails when `DeltaTarget._errors` does not recognise the error of a task.
    """
    monkeypatch.setattr(decode_module, "SMALL_BYTES", 0)
    waiting.change(70)
    waiting.send(spark)
    log = waiting.log("orders")
    channel: Any = log.channel
    name = log.read(4).frames[0].path
    content = channel.read(name)
    channel.put(name, content[:-9] + bytes([content[-9] ^ 1]) + content[-8:])
    waiting.apply(spark)
    ack = waiting.ack("orders")
    assert ack is not None and (ack.applied, ack.held) == (3, 4)
    assert ack.cause is not None and name in ack.cause
    waiting.assert_equal("readings")

    channel.put(name, content)
    waiting.apply(spark)
    waiting.assert_equal()


def test_f27_the_last_commit_of_a_key_wins_in_one_apply(spark: Any, replicated: Sites) -> None:
    """A dozen commits delete and insert one key, in frames of three events.

    Fails without the reduction to one row per key (`last_of_runs` and `last_event_wins`).
    """
    replicated.write_topology(batch_size=3)
    for turn in range(5):
        replicated.upsert(
            "orders",
            [
                {"id": 99, "item": f"turn {turn}", "amount": float(turn)},
                {"id": 98, "item": "x", "amount": -turn},
            ],
        )
        replicated.delete("orders", "id = 98" if turn % 2 else "id = 99")
    replicated.upsert("orders", [{"id": 99, "item": "the last", "amount": 5.0}])
    replicated.send(spark)
    assert len(replicated.log("orders").read(3).frames) > 3
    replicated.apply(spark)
    replicated.assert_equal("orders")
    assert (5.0, 99, "the last") in replicated.rows("orders")


def test_f32_a_target_restored_from_a_backup_holds_the_stream(
    spark: Any, waiting: Sites, tmp_path: Path
) -> None:
    """The cause is reported and nothing is written; the other table is not affected.

    Fails without the check of lost versions in `Ledger`.
    """
    target = waiting.path("orders", SEATTLE)
    shutil.copytree(target, tmp_path / "backup")
    waiting.apply(spark)
    waiting.change(70)
    waiting.send(spark)
    shutil.rmtree(target)
    shutil.copytree(tmp_path / "backup", target)
    before = DeltaTable(target).version()

    waiting.apply(spark, rounds=2)
    ack = waiting.ack("orders")
    assert ack is not None and (ack.applied, ack.held) == (3, 4)
    for part in ("orders", "restored to an older state", "spark-wan sync"):
        assert part in str(ack.cause)
    assert DeltaTable(target).version() == before
    waiting.assert_equal("readings")


def split_into_two_files(sites: Sites) -> None:
    """Write the target's rows in two files, so that OPTIMIZE has something to do."""
    rows = sites.table("orders", SEATTLE)
    for part, mode in ((rows.slice(0, 8), "overwrite"), (rows.slice(8), "append")):
        write_deltalake(sites.path("orders", SEATTLE), part, mode=mode)
