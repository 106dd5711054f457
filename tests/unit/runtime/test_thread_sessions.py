"""The sessions of a job's threads."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from waiting import LONG

from spark_wan.runtime.sessions import ThreadSessions


class Session:
    """A Connect session that ends while a thread begins."""

    __module__ = "pyspark.sql.connect.session"

    def __init__(self) -> None:
        self.conf = SimpleNamespace(get=self.addTag)

    def getTags(self) -> set[str]:
        return set()

    def addTag(self, *_: object) -> None:
        raise ConnectionRefusedError(111, "Connection refused")


def test_f50_a_session_that_ends_while_a_thread_begins_is_reported(capfd: Any) -> None:
    """Fails when the thread ends with a traceback: nobody would look at anything again, and the
    job would go on forever."""
    spark: Any = Session()
    lost, ran = list[Any](), list[Any]()
    thread = ThreadSessions(spark, "tag", lost.append).thread("wan-look", ran.append)
    thread.start()
    thread.join(LONG)
    [error] = lost
    assert "the Spark session has ended" in str(error) and ran == []
    assert "Traceback" not in capfd.readouterr().err
