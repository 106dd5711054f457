"""A user's stream: the sink killed at each numbered step of its commit, tasks that run twice, micro-batches that come again."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from armed_sink import ArmedDataSource
from processes import Worker
from sites import Sites, at

import spark_wan
from spark_wan.sender.acks import AckManager
from spark_wan.sender.checkpoints import NoCheckpoints
from spark_wan.topology.ack_policy import AckPolicy
from spark_wan.units import milliseconds


@pytest.fixture
def clicked(spark: Any, sites: Any) -> Sites:
    """Ten clicks at newark, of which the first two are equal but for their IDs."""
    spark_wan.register(spark)
    spark.dataSource.register(ArmedDataSource)
    found: Sites = sites()
    found.append("clicks", clicks(range(10)))
    return found


def clicks(numbers: range) -> list[dict[str, Any]]:
    return [{"event": f"click {i}", "at": at(max(1, i)), "page": f"/{max(1, i)}"} for i in numbers]


def rows(spark: Any, sites: Sites) -> Any:
    return spark.readStream.format("delta").load(str(sites.path("clicks")))


def arm(checkpoint: Path, step: str) -> None:
    Path(f"{checkpoint}.armed").write_text(step)


@pytest.mark.parametrize("step", ["sink.1", "sink.2", "sink.3", "sink.4"])
def test_f04_commit_killed_then_the_same_micro_batch_with_other_partitions(
    spark: Any, clicked: Sites, tmp_path: Path, step: str
) -> None:
    """Spark's commit process dies, the query fails, Spark aborts the write. At the next start the micro-batch comes again, in
    other partitions: it is the next epoch if it was not in the log, and already done if it was.

    Taken out once: the comparison with the writes that the log has (`told in writes`): the replay was a second epoch.
    """
    checkpoint = tmp_path / "checkpoint"
    arm(checkpoint, step)
    with pytest.raises(Exception, match=r"(?i)exit|crash|worker|terminat"):
        ArmedDataSource.start(rows(spark, clicked), clicked, str(checkpoint)).awaitTermination()
    assert clicked.numbers("clicks") == ([1] if step == "sink.4" else [])
    assert clicked.named_frames("clicks") <= clicked.frames("clicks")

    ArmedDataSource.start(
        rows(spark, clicked).repartition(3), clicked, str(checkpoint)
    ).awaitTermination()
    assert clicked.numbers("clicks") == [1]
    assert clicked.named_frames("clicks") <= clicked.frames("clicks")
    # The killed process's manifest might still have arrived: its frames are left to the sweep.
    manager = AckManager(
        clicked.log("clicks"), NoCheckpoints(), AckPolicy.ALL, 60_000, milliseconds, ["seattle"]
    )
    assert manager.sweep(-60.0) == (0 if step == "sink.4" else 1)
    assert clicked.frames("clicks") == clicked.named_frames("clicks")
    clicked.apply(spark, "events")
    clicked.assert_equal("clicks")


@pytest.mark.parametrize("step", ["sink.3", "sink.4"])
def test_f02_driver_killed_while_the_sink_commits(
    spark: Any, clicked: Sites, tmp_path: Path, worker: Worker, step: str
) -> None:
    """Driver, JVM and commit process die together, so that nobody aborts anything. The replay comes in another process.

    Taken out once: the comparison with the writes that the log has (`told in writes`).
    """
    checkpoint = tmp_path / "checkpoint"
    arm(checkpoint, f"{step} {worker.pid}")
    worker.killed_by(clicked, do="sink", checkpoint=str(checkpoint))
    assert clicked.numbers("clicks") == ([1] if step == "sink.4" else [])

    ArmedDataSource.start(rows(spark, clicked), clicked, str(checkpoint)).awaitTermination()
    assert clicked.numbers("clicks") == [1]
    clicked.apply(spark, "events")
    clicked.assert_equal("clicks")


def test_f05_frames_of_a_failed_attempt_are_never_named(
    spark: Any, clicked: Sites, tmp_path: Path
) -> None:
    """A task fails after it has written its frames, and runs again. Both attempts' frames are there; the manifest names the second's.

    Taken out once: the fresh attempt in the names of frames: the second attempt wrote over the first.
    """
    checkpoint = tmp_path / "checkpoint"
    arm(checkpoint, "task")
    ArmedDataSource.start(rows(spark, clicked), clicked, str(checkpoint)).awaitTermination()
    assert (len(clicked.named_frames("clicks")), len(clicked.frames("clicks"))) == (1, 2)
    clicked.apply(spark, "events")
    clicked.assert_equal("clicks")


def test_f06_sinks_checkpoint_deleted(spark: Any, clicked: Sites, tmp_path: Path) -> None:
    """The whole stream comes again under a new query ID, together with what is new: the receiver drops what it had, by event ID.

    Taken out once: the filter of known event IDs in `AppliedEventIds.drop_redelivered`: rows were doubled.
    """
    checkpoint = tmp_path / "checkpoint"
    ArmedDataSource.start(rows(spark, clicked), clicked, str(checkpoint)).awaitTermination()
    clicked.apply(spark, "events")

    clicked.append("clicks", clicks(range(10, 14)))
    ArmedDataSource.start(
        rows(spark, clicked), clicked, str(tmp_path / "another checkpoint")
    ).awaitTermination()
    assert clicked.numbers("clicks") == [2]
    status = clicked.apply(spark, "events")["clicks"]
    clicked.assert_equal("clicks")
    assert (status.duplicates, status.dead_letters) == (10, 0)


def test_f27_same_key_many_times_in_one_write(spark: Any, sites: Any) -> None:
    """The sequence decides, in whatever order and partition the events of a key arrive.

    Taken out once: the order by sequence in `last_event_wins` (turned round).
    """
    spark_wan.register(spark)
    wan: Sites = sites()
    events = [(f"{key}.{turn}", turn, key, turn / 2) for key in range(3) for turn in range(7)]
    random.Random(27).shuffle(events)
    shuffled = spark.createDataFrame(events, "event string, turn long, id long, price double")
    wan.write_events("prices", shuffled.repartition(4), sequence="turn", batchSize=4)
    wan.apply(spark, "events")
    assert dict(wan.rows("prices")) == {(f"{key}.6", key, 3.0, 6): 1 for key in range(3)}


def test_f29_event_ids_expired_then_a_replay(spark: Any, clicked: Sites) -> None:
    """Event IDs are forgotten below a floor. A replay from below it is set aside, with its cause; what is newer is applied.

    Taken out once: the floor in `AppliedEventIds.drop_redelivered`.
    """
    origin = "newark"
    clicked.write_events(
        "clicks", spark.read.format("delta").load(str(clicked.path("clicks"))), eventTime="at"
    )
    clicked.apply(spark, "events")
    before = clicked.rows("clicks")
    clicked.applier(spark, "clicks").target.expire_event_ids(
        origin, int(at(5).timestamp() * 1_000_000)
    )

    clicked.append("clicks", clicks(range(10, 12)))
    clicked.write_events(
        "clicks", spark.read.format("delta").load(str(clicked.path("clicks"))), eventTime="at"
    )
    status = clicked.apply(spark, "events")["clicks"]
    clicked.assert_equal("clicks")
    assert sum(clicked.rows("clicks").values()) == sum(before.values()) + 2
    # Clicks 0 to 5 are at or below the floor, 6 to 9 are recognised.
    assert (status.dead_letters, status.duplicates) == (6, 4)
    letters = clicked.dead_letters("clicks")
    assert {json.loads(letter["row"])["event"] for letter in letters} == {
        f"click {i}" for i in range(6)
    }
    assert {letter["cause"] for letter in letters} == {
        "older than the event IDs that are kept: cannot be told from a replay"
    }
