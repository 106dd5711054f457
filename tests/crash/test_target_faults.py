"""Faults at the target: collisions, rows it refuses, tables that are not what they were."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from colliding import CollidingChannel
from deltalake import DeltaTable, write_deltalake
from sites import SEATTLE, Sites

import spark_wan.receiver.apply as apply
from spark_wan.steps import run


@pytest.mark.parametrize("writer", ["OPTIMIZE", "local writer"])
def test_f26_another_commit_collides_with_an_apply(
    spark: Any, waiting: Sites, tmp_path: Path, writer: str
) -> None:
    """While the MERGE runs, somebody else commits to the target. It is decided again from step 1 and takes effect once; the stream is not held.

    Taken out once: that a conflict goes back to step 1 (`WriteConflict` in `DeltaTarget._errors`).
    """
    _spread(waiting)
    applier = waiting.applier(spark, "orders")
    version = waiting.version("orders")
    applier.target.channel = CollidingChannel(
        waiting.channel(), waiting.path("orders", SEATTLE), writer, tmp_path / "collided", 1
    )
    outcome = run(applier.round())
    assert (outcome.applied, outcome.held) == (3, None)
    assert waiting.version("orders") == version + 2
    waiting.assert_equal("orders")


def test_f26_collisions_without_end(
    spark: Any, waiting: Sites, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attempts are bounded: the stream is held, with the reason, and succeeds when it is tried again later.

    Taken out once: the bound `ATTEMPTS`.
    """
    monkeypatch.setattr(apply, "ATTEMPTS", 2)
    applier = waiting.applier(spark, "orders")
    applier.target.channel = CollidingChannel(
        waiting.channel(), waiting.path("orders", SEATTLE), "local writer", tmp_path / "collided", 2
    )
    outcome = run(applier.round())
    assert (outcome.applied, outcome.held) == (2, 3)
    assert "2 writes in a row lost" in str(outcome.cause)
    assert waiting.acked("orders") == 2
    assert run(applier.round()).held is None
    waiting.assert_equal("orders")


def test_f27_same_key_many_times_in_one_apply(spark: Any, replicated: Sites) -> None:
    """A dozen commits of one key, deleted and made again between, in frames of three events: the last one wins.

    Taken out once: one row per key (`_last_of_runs` and `last_event_wins`).
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


def test_f30_rows_that_the_target_refuses(spark: Any, sites: Any) -> None:
    """NOT NULL and CHECK at the target: such rows become dead letters with their causes, the others go on, and a later event of the same key supersedes.

    Taken out once: the look for the target's constraints (`constraints_of`).
    """
    wan: Sites = sites()
    target = wan.path("orders", SEATTLE)
    spark.sql(
        f"CREATE TABLE delta.`{target}` (id BIGINT, item STRING NOT NULL, amount DOUBLE) USING delta"
    ).collect()
    spark.sql(f"ALTER TABLE delta.`{target}` ADD CONSTRAINT paid CHECK (amount >= 0)").collect()
    good = [{"id": i, "item": "good", "amount": 1.0} for i in range(5)]
    wan.append(
        "orders",
        [
            *good,
            {"id": 5, "item": None, "amount": 1.0},
            {"id": 6, "item": "poison", "amount": -1.0},
        ],
    )
    wan.append("readings", [{"sensor": "attic", "value": 1.0}])
    status = wan.replicate(spark)["orders"]
    assert (status.held, status.dead_letters) == (None, 2)
    assert {row[1] for row in wan.rows("orders")} == set(range(5))
    wan.assert_equal("readings")
    ack = wan.ack("orders")
    assert ack is not None and (ack.applied, ack.held, ack.dead_letters) == (1, None, 2)
    causes = {
        json.loads(letter["key"])["id"]: letter["cause"] for letter in wan.dead_letters("orders")
    }
    assert causes == {5: "null in NOT NULL column item", 6: "CHECK paid: amount >= 0"}

    wan.upsert(
        "orders",
        [{"id": 5, "item": "mended", "amount": 1.0}, {"id": 6, "item": "mended", "amount": 0.0}],
    )
    # A bad row does not take the delete before it with it: the row that was there goes, however the commits are batched.
    source = wan.path("orders")
    spark.sql(f"DELETE FROM delta.`{source}` WHERE id = 0").collect()
    wan.append("orders", [{"id": 0, "item": "poison", "amount": -2.0}])
    assert wan.replicate(spark)["orders"].dead_letters == 1
    assert {row[1] for row in wan.rows("orders", SEATTLE)} == set(range(1, 7))
    spark.sql(f"DELETE FROM delta.`{source}` WHERE id = 0").collect()
    wan.replicate(spark)
    wan.assert_equal("orders")


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("dropped", "is missing"),
        ("dropped and made again", "has the ID"),
        ("put back from a backup", "restored to an older state"),
        ("RESTORE", "is a RESTORE"),
    ],
    ids=["dropped", "dropped and made again", "put back from a backup", "RESTORE"],
)
def test_f32_target_is_not_what_it_was(
    spark: Any, waiting: Sites, tmp_path: Path, fault: str, told: str
) -> None:
    """It is held and reported, and nothing is written to it; the other table goes on.

    Taken out once, each for its fault: the missing table, the ID, the lost versions and the RESTORE in `Ledger`.
    """
    target = waiting.path("orders", SEATTLE)
    shutil.copytree(target, tmp_path / "backup")
    if fault == "put back from a backup":
        waiting.apply(spark)
        waiting.change(70)
        waiting.send(spark)
    if fault == "RESTORE":
        spark.sql(f"RESTORE TABLE delta.`{target}` TO VERSION AS OF 0").collect()
    else:
        shutil.rmtree(target)
    if fault == "dropped and made again":
        waiting.append("orders", [{"id": 1, "item": "new", "amount": 0.0}], SEATTLE)
    if fault == "put back from a backup":
        shutil.copytree(tmp_path / "backup", target)
    before = DeltaTable(target).version() if target.exists() else None

    applied = waiting.acked("orders")
    waiting.apply(spark, rounds=2)
    ack = waiting.ack("orders")
    assert ack is not None and (ack.applied, ack.held) == (applied, applied + 1)
    assert (
        ack.cause is not None
        and "orders" in ack.cause
        and told in ack.cause
        and "full copy" in ack.cause
    )
    assert (DeltaTable(target).version() if target.exists() else None) == before
    waiting.assert_equal("readings")


def _spread(sites: Sites) -> None:
    """The target's rows in two files, so that OPTIMIZE has something to do."""
    rows = sites.table("orders", SEATTLE)
    for part, mode in ((rows.slice(0, 8), "overwrite"), (rows.slice(8), "append")):
        write_deltalake(sites.path("orders", SEATTLE), part, mode=mode)
