"""User streams: the sink killed before and after it appends its epoch, tasks that run twice, events
that are sent again when their IDs have expired.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import default_channel
import pytest
from sites import NEWARK, SEATTLE, Sites, at

import spark_wan
from crash.armed_sink import ArmedDataSource
from spark_wan.delta.sessions import CurrentSession
from spark_wan.ledger.applied_ids import AppliedEventIds
from spark_wan.ledger.tables import LedgerTables
from spark_wan.sender.acks import AckManager
from spark_wan.sender.sweep import Sweep
from spark_wan.topology.ack_policy import AckPolicy
from spark_wan.units import milliseconds


@pytest.fixture
def clicked(spark: Any, wan: Sites) -> Sites:
    """Ten clicks at newark. The first two differ only in their IDs."""
    spark_wan.register(spark)
    spark.dataSource.register(ArmedDataSource)
    wan.append("clicks", clicks(range(10)))
    return wan


def clicks(numbers: range) -> list[dict[str, Any]]:
    return [{"event": f"click {i}", "at": at(max(1, i)), "page": f"/{max(1, i)}"} for i in numbers]


def run_query(spark: Any, sites: Sites, checkpoint: Path, partitions: int | None = None) -> None:
    """Send the available clicks with a streaming query."""
    rows = spark.readStream.format("delta").load(str(sites.path("clicks")))
    if partitions:
        rows = rows.repartition(partitions)
    ArmedDataSource.start(rows, sites, str(checkpoint)).awaitTermination()


def arm(checkpoint: Path, step: str) -> None:
    Path(f"{checkpoint}.armed").write_text(step)


@pytest.mark.parametrize("step", ["sink.3", pytest.param("sink.4", marks=pytest.mark.core)])
def test_f04_a_micro_batch_retried_with_other_partitions_is_one_epoch(
    spark: Any, clicked: Sites, tmp_path: Path, step: str
) -> None:
    """Spark's commit process dies, the query fails, and Spark aborts the write. After a restart the
    micro-batch is redelivered in other partitions. It becomes the next epoch, or is skipped when
    the log has it already.

    Fails without the comparison with the writes in the log (`_append`): the retry is a second
    epoch.
    """
    checkpoint = tmp_path / "checkpoint"
    arm(checkpoint, step)
    with pytest.raises(Exception, match=r"(?i)exit|crash|worker|terminat"):
        run_query(spark, clicked, checkpoint)
    assert clicked.numbers("clicks") == ([1] if step == "sink.4" else [])
    assert clicked.named_frames("clicks") <= clicked.frames("clicks")

    run_query(spark, clicked, checkpoint, partitions=3)
    assert clicked.numbers("clicks") == [1]
    assert clicked.named_frames("clicks") <= clicked.frames("clicks")
    # The manifest of the killed process might still arrive, so only the sweep removes its frames.
    manager = AckManager(
        clicked.log("clicks"), None, AckPolicy.ALL, 60_000, milliseconds, [SEATTLE]
    )
    swept = Sweep(manager).run(-60.0)
    if default_channel.KIND != "kafka":  # a topic deletes no single frames
        assert swept == (0 if step == "sink.4" else 1)
        assert clicked.frames("clicks") == clicked.named_frames("clicks")
    clicked.apply(spark, "events")
    clicked.assert_equal("clicks")


def test_f05_frames_of_a_failed_attempt_are_never_named(
    spark: Any, clicked: Sites, tmp_path: Path
) -> None:
    """A task fails after it has written its frames, and runs again. The frames of both attempts
    exist; the manifest names those of the second.

    Fails without a new attempt ID in the names of frames: the second attempt overwrites the first.
    """
    checkpoint = tmp_path / "checkpoint"
    arm(checkpoint, "task")
    run_query(spark, clicked, checkpoint)
    assert (len(clicked.named_frames("clicks")), len(clicked.frames("clicks"))) == (1, 2)
    clicked.apply(spark, "events")
    clicked.assert_equal("clicks")


def test_f29_a_replay_of_expired_event_ids_is_set_aside(spark: Any, clicked: Sites) -> None:
    """Event IDs expire below a floor. Events at or below it become dead letters with their cause;
    newer ones are applied.

    Fails without the floor in `deduplicate`.
    """

    def write_all() -> None:
        rows = spark.read.format("delta").load(str(clicked.path("clicks")))
        clicked.write_events("clicks", rows, eventTime="at")

    write_all()
    clicked.apply(spark, "events")
    before = clicked.rows("clicks")
    tables = LedgerTables(CurrentSession(spark), clicked.topology.site(SEATTLE).state)
    AppliedEventIds(tables, "clicks", NEWARK).expire(int(at(5).timestamp() * 1_000_000))

    clicked.append("clicks", clicks(range(10, 12)))
    write_all()
    status = clicked.apply(spark, "events")["clicks"]
    clicked.assert_equal("clicks")
    assert sum(clicked.rows("clicks").values()) == sum(before.values()) + 2
    # Clicks 0 to 5 are at or below the floor, 6 to 9 are known duplicates.
    assert (status.dead_letters, status.duplicates) == (6, 4)
    letters = clicked.dead_letters("clicks")
    assert {json.loads(letter["row"])["event"] for letter in letters} == {
        f"click {i}" for i in range(6)
    }
    assert {letter["cause"] for letter in letters} == {
        "older than the event IDs that are kept: cannot be told from a replay"
    }
