"""Spark jobs that are cancelled from outside (in Spark's UI, by another thread of the session), and sessions that end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from sites import NEWARK, SEATTLE, Sites
from waiting import wait_until

import spark_wan.receiver.job as receiver_job
from spark_wan import Receiver, Sender

TABLES = ("orders", "readings")
SCRIPT = Path(__file__).with_name("ended_session.py")
TOLD = "its Spark job was cancelled from outside"


def test_f50_cancelled_jobs_are_reported_and_retried(
    spark: Any, sites: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """First the sender's, then the receiver's. No stream ends; the receiver's batch does not count as done while one is not.

    Taken out once: the retry in `SenderHandle._hold` (the thread ended without a word), and the wait for cancelled streams in
    `ChannelReceiver.apply_all` (the batch was committed).
    """
    monkeypatch.setattr(receiver_job, "RETRY_INTERVAL", 3_600.0)
    monkeypatch.setattr(receiver_job, "LONGEST_RETRY", 3_600.0)
    here: Sites = sites()
    here.change(10)
    sender = Sender(spark, here.topology, NEWARK, senders=["east"]).start()
    held: dict[str, set[str]] = {"sender": set(), "receiver": set()}

    def cancelled(of: str, handle: Any) -> bool:
        # One by one, as Spark's UI does: cancelAllJobs loses a job that has no stage at work yet, and who runs it waits for ever.
        for number in spark.sparkContext.statusTracker().getActiveJobsIds():
            spark.sparkContext._jsc.sc().cancelJob(number)
        held[of] |= {status.table for status in handle.status() if TOLD in str(status.held)}
        return bool(held[of])

    def retried(receiver: Any) -> bool:
        for retry in list(receiver._inbound[0]._retries.values()):
            retry.at = 0.0
        return True

    def acked() -> bool:
        return all(here.acked(table) == here.numbers(table)[-1] for table in TABLES)

    try:
        wait_until(lambda: cancelled("sender", sender), "a sender's job is cancelled", sender)
        wait_until(lambda: all(map(here.numbers, TABLES)), "all is published", sender)
        assert sender.is_active and sender.exception() is None
        assert TOLD in caplog.text
        caplog.clear()

        receiver = Receiver(spark, here.topology, SEATTLE, senders=["east"], interval=0.2).start()
        try:
            query = receiver.queries[0]
            wait_until(
                lambda: cancelled("receiver", receiver), "a receiver's job is cancelled", receiver
            )
            assert TOLD in caplog.text
            for table in held["receiver"]:
                wait_until(
                    lambda table=table: here.ack(table) is not None, "the ack says so", receiver
                )
                assert TOLD in str(here.ack(table).cause)  # type: ignore[union-attr]
            assert not list(here.receiver_checkpoint.glob("*/commits/0"))
            wait_until(lambda: retried(receiver) and acked(), "all is acked", sender, receiver)
            wait_until(
                lambda: bool(list(here.receiver_checkpoint.glob("*/commits/0"))),
                "the batch is done",
                receiver,
            )
            assert receiver.queries == [query] and query.isActive
            assert [status.held for status in receiver.status()] == [None, None]
            assert receiver.is_active and receiver.exception() is None
        finally:
            receiver.stop()
        assert receiver.exception() is None
    finally:
        sender.stop()
    here.assert_equal()


@pytest.mark.parametrize("kind", ["classic", "connect"])
def test_f50_the_end_of_the_session_ends_sender_and_receiver(tmp_path: Path, kind: str) -> None:
    """In a process of its own. Both say so, and hang in nothing; their streams are not held for it.

    Taken out once: `lost_session` in `SenderHandle._hold` and `ReceiverHandle._end`.
    """
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SPARK_", "PYSPARK_"))
    }
    done = subprocess.run(
        [sys.executable, str(SCRIPT), kind, str(tmp_path / "wan")],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr[-6000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found == {
        name: {
            "active": False,
            "exception": "SessionLostError",
            "raised": "SessionLostError",
            "held": [],
        }
        for name in ("sender", "receiver")
    }
