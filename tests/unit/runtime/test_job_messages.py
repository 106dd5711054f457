"""What a job says in the log when it starts and when it stops."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fakes import ConnectSession
from waiting import LONG, until

import spark_wan
from spark_wan.messages import message_log
from spark_wan.runtime.handle import JobHandle
from spark_wan.runtime.scheduler import Activity, Found, Turn
from spark_wan.runtime.start import MOST_NAMES, say_started
from spark_wan.topology.model import Topology
from spark_wan.topology.parsing import load_topology
from spark_wan.topology.settings import changed_settings

FILE = """
version: 1
sites:
  newark: {state: ./n, idle_interval: 9, signing_keys: ["env:NEWARK_KEY"]}
  seattle: {state: ./s}
senders:
  east: {site: newark, remotes: [seattle], channel: "s3://wan/east", ack_policy: all,
    storage: {aws_secret_access_key: hunter2, aws_region: eu}}
tables:
  orders: {keys: [id], writers: [newark], senders: [east], at: {newark: ./o, seattle: ./p},
    max_dead_letters: 5}
"""


@pytest.fixture
def topology(tmp_path: Path) -> Topology:
    (tmp_path / "topology.yaml").write_text(FILE)
    return load_topology(tmp_path / "topology.yaml")


def started(
    topology: Topology, caplog: pytest.LogCaptureFixture, streams: list[str], **options: object
) -> Any:
    """The record with which a sender of newark says that it starts."""
    with caplog.at_level("INFO", "spark_wan"):
        say_started(
            "sender",
            topology.site("newark"),
            streams,
            topology.senders_at("newark"),
            [*topology.tables.values()],
            spark="4.2.0",
            options=options,
        )
    return caplog.records[-1]


def test_a_job_says_what_it_has_found_and_what_is_not_the_default(
    topology: Topology, caplog: pytest.LogCaptureFixture
) -> None:
    """Options of stores by name only. Fails when a setting that was overlooked can only be found by
    reading two files, or when a secret is in the log."""
    record = started(topology, caplog, ["newark.east.orders"], send_parallel=7, idle_interval=9.0)
    assert (record.event, record.site, record.levelname) == ("started", "newark", "INFO")
    assert record.streams == ["newark.east.orders"]
    assert record.channels == ["s3://wan/east"]
    assert record.settings == {
        "sites.newark.idle_interval": "9.0",
        "sites.newark.signing_keys": "env:NEWARK_KEY",
        "senders.east.ack_policy": "all",
        "senders.east.storage": "aws_region, aws_secret_access_key (values not shown)",
        "tables.orders.max_dead_letters": "5",
        "send_parallel": "7",
    }
    assert record.versions["spark_wan"] == spark_wan.__version__
    assert record.versions["spark"] == "4.2.0"
    assert {*record.versions} == {"spark_wan", "spark", "delta", "python"}
    text = record.getMessage()
    for part in ("Streams (1): newark.east.orders.", "s3://wan/east", "ack_policy=all", "4.2.0"):
        assert part in text
    assert "hunter2" not in text + str(vars(record))


def test_a_job_with_many_streams_says_how_many(
    topology: Topology, caplog: pytest.LogCaptureFixture
) -> None:
    """Fails when the first line of a job is longer than what collectors take."""
    record = started(topology, caplog, [f"newark.east.t{n:04}" for n in range(1_000)])
    text = record.getMessage()
    assert "Streams (1000): " in text and f"and {1_000 - MOST_NAMES} more" in text
    assert len(text) < 2_000 and len(record.streams) == 100


def test_settings_with_their_defaults_are_not_changed(topology: Topology) -> None:
    assert changed_settings(topology.site("seattle")) == {}
    assert changed_settings(topology.sender("east")) == {"ack_policy": "all"}


class Does(Activity):
    name, kind = "newark.east.orders", "stream"

    def __init__(self, look: Any) -> None:
        self.look = look  # type: ignore[method-assign]

    def look(self, spark: Any) -> Turn: ...


def new_handle(**settings: Any) -> JobHandle[Any]:
    status = SimpleNamespace(stream="a", held=None, epochs=2, events=30)
    session: Any = ConnectSession()
    return JobHandle(session, "sender", 2, lambda: [status], site="newark", **settings)


def test_a_stop_says_what_it_waits_for_and_what_was_done(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Once, however often the job is stopped. Fails when a stop that takes a minute is silent."""
    at_work = threading.Event()
    handle = new_handle(grace=0.01)

    def work(spark: Any) -> Turn:
        at_work.set()
        session: Any = handle.sessions.spark
        assert session.interrupted.wait(LONG)
        return None

    with caplog.at_level("INFO", "spark_wan"):
        handle.begin([Does(lambda spark: Found(work))])
        assert at_work.wait(LONG)
        handle.stop()
        handle.stop()
    stopping, stopped = (each for each in caplog.records if each.name.endswith("handle"))
    assert (stopping.event, stopping.streams) == ("stopping", ["newark.east.orders"])
    assert stopping.getMessage() == (
        "sender of site newark stops. At work: newark.east.orders. It has 0.01 s to end, then its "
        "Spark jobs are cancelled"
    )
    assert (stopped.event, stopped.rows, stopped.site) == ("stopped", 30, "newark")
    assert stopped.seconds >= 0.01
    text = stopped.getMessage()
    assert "; unfinished work was cancelled" in text and "2 epochs, 30 events" in text


def test_an_idle_job_stops_without_cancelling_work(caplog: pytest.LogCaptureFixture) -> None:
    """Also if a look is under way. Fails when each stop of a sender looks like a loss."""
    handle, looks = new_handle(), threading.Event()

    def look(spark: Any) -> Turn:
        looks.set()
        session: Any = handle.sessions.spark
        assert session.interrupted.wait(LONG)
        return None

    with caplog.at_level("INFO", "spark_wan"):
        handle.begin([Does(look)])
        assert looks.wait(LONG)
        handle.stop()
    stopping, stopped = (each for each in caplog.records if each.name.endswith("handle"))
    assert stopping.getMessage() == "sender of site newark stops. At work: nothing"
    told = stopped.getMessage()
    assert "cancelled" not in told and "0 streams are held" in told


def test_messages_of_a_job_name_its_site_and_a_crash_its_stream(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def look(spark: Any) -> Turn:
        message_log("spark_wan.sender.test").warning("here", event="held")
        raise ValueError("a bug")

    handle = new_handle()
    handle.begin([Does(look)])
    until(lambda: handle.exception() is not None)
    handle.stop()
    here, crashed, *_ = caplog.records
    assert getattr(here, "site", None) == "newark"
    told = (vars(crashed).get(name) for name in ("event", "site", "stream", "levelno"))
    assert (*told,) == ("crashed", "newark", "newark.east.orders", logging.ERROR)
