"""Threads for Spark jobs, whose session may have ended."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from fakes import ThreadOfAnEndedSession
from waiting import LONG

from spark_wan.delta.sessions import spark_thread

SPARK: Any = None


def test_a_thread_that_cannot_begin_reports_the_end_of_its_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Spark's threads first copy properties, and fail when the session has ended."""
    monkeypatch.setattr("pyspark.InheritableThread", ThreadOfAnEndedSession)
    lost = list[Any]()
    thread = spark_thread(SPARK, lambda: None, "wan-look", lost.append)
    thread.start()
    thread.join(LONG)
    [error] = lost
    assert "before wan-look could begin (ConnectionRefusedError" in str(error)


def test_an_error_of_the_work_is_no_lost_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails when every error that ends a thread counts as a lost session."""
    hooked, lost = list[Any](), list[Any]()
    monkeypatch.setattr(threading, "excepthook", lambda args: hooked.append(args.exc_value))

    def fail() -> None:
        raise ValueError("no")

    thread = spark_thread(SPARK, fail, "wan-work", lost.append)
    thread.start()
    thread.join(LONG)
    assert ([str(error) for error in hooked], lost) == (["no"], [])
