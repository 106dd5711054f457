"""Spark jobs cancelled from outside (in Spark's UI, by another thread of the session), and
sessions that end.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sites import NEWARK, SEATTLE, Sites
from spark_connect import run_script
from waiting import wait_until

import spark_wan.receiver.stream as receiver_stream
import spark_wan.runtime.hold as hold
from spark_wan import Receiver, Sender
from spark_wan.receiver.inbound import InboundChannel

TABLES = ("orders", "readings")
SCRIPT = Path(__file__).with_name("ended_session.py")
CAUSE = "its Spark job was cancelled from outside"


def test_f50_cancelled_jobs_are_reported_and_retried(
    spark: Any, wan: Sites, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """First a job of the sender, then one of the receiver. No stream ends.

    Fails without the retry in `OutboundStream._hold`, or in `InboundTable._round`.
    """
    monkeypatch.setattr(receiver_stream, "FIRST_RETRY", 3_600.0)
    monkeypatch.setattr(hold, "LONGEST_WAIT", 3_600.0)
    wan.change(10)
    sender = Sender(spark, wan.topology, NEWARK, senders=["east"]).start()
    held: dict[str, set[str]] = {"sender": set(), "receiver": set()}

    def cancelled(side: str, handle: Any) -> bool:
        # One by one, as in Spark's UI: cancelAllJobs misses a job without running stages, and its
        # caller then waits forever.
        for number in spark.sparkContext.statusTracker().getActiveJobsIds():
            spark.sparkContext._jsc.sc().cancelJob(number)
        held[side] |= {status.table for status in handle.status() if CAUSE in str(status.held)}
        return bool(held[side])

    def retried(receiver: Any) -> bool:
        for activity in list(receiver.scheduler._entries):
            for stream in activity.streams.all() if isinstance(activity, InboundChannel) else ():
                stream.retry_now()
        return True

    def acked() -> bool:
        return all(wan.acked(table) == wan.numbers(table)[-1] for table in TABLES)

    try:
        wait_until(lambda: cancelled("sender", sender), "a sender's job is cancelled", sender)
        wait_until(lambda: all(map(wan.numbers, TABLES)), "all is published", sender)
        assert sender.is_active and sender.exception() is None
        assert CAUSE in caplog.text
        caplog.clear()

        receiver = Receiver(spark, wan.topology, SEATTLE, senders=["east"], interval=0.2).start()
        try:
            wait_until(
                lambda: cancelled("receiver", receiver), "a receiver's job is cancelled", receiver
            )
            assert CAUSE in caplog.text
            for table in held["receiver"]:
                wait_until(
                    lambda table=table: wan.ack(table) is not None,
                    "the ack has the cause",
                    receiver,
                )
                assert CAUSE in str(wan.ack(table).cause)  # type: ignore[union-attr]
            wait_until(lambda: retried(receiver) and acked(), "all is acked", sender, receiver)
            wait_until(
                lambda: [status.held for status in receiver.status()] == [None, None],
                "nothing is held",
                receiver,
            )
            assert receiver.is_active and receiver.exception() is None
        finally:
            receiver.stop()
        assert receiver.exception() is None
    finally:
        sender.stop()
    wan.assert_equal()


def test_f50_the_end_of_the_session_ends_sender_and_receiver(wan: Sites, tmp_path: Path) -> None:
    """In a process of its own. Both report the error, neither hangs, and no stream is held. So do
    they over Connect: see ``test_connect.py``.

    Fails without `lost_session` in `OutboundStream._hold` and `InboundTable._round`.
    """
    reports = run_script(SCRIPT, tmp_path, wan.folder, timeout=500)
    assert reports == {
        name: {
            "active": False,
            "exception": "SessionLostError",
            "raised": "SessionLostError",
            "held": [],
        }
        for name in ("sender", "receiver")
    }
