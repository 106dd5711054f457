"""The sessions of a job's threads."""

from __future__ import annotations

from typing import Any

from fakes import ConnectSession
from waiting import LONG

from spark_wan.runtime.sessions import ThreadSessions


def test_f50_a_session_that_ends_while_a_thread_begins_is_reported(capfd: Any) -> None:
    """Fails when the thread ends with a traceback: nobody would look at anything again, and the
    job would go on forever."""
    spark: Any = ConnectSession()
    lost, ran = list[Any](), list[Any]()
    thread = ThreadSessions(spark, "tag", lost.append).thread("wan-look", ran.append)
    spark.ended = True
    thread.start()
    thread.join(LONG)
    [error] = lost
    assert "the Spark session has ended" in str(error) and ran == []
    assert "Traceback" not in capfd.readouterr().err
