"""A job of the demo as a child process. It fails before it starts Spark."""

from __future__ import annotations

import time

import pytest

from spark_wan.demo.processes import Job
from spark_wan.errors import WanError


@pytest.fixture
def job(tmp_path):
    job = Job("send", tmp_path / "missing.yaml", site="newark", log=tmp_path / "sender.log")
    yield job
    job.clean_up()
    job._reader.join(60)


def test_a_job_that_has_failed_is_reported_with_its_error(job):
    job.process.wait(60)
    with pytest.raises(WanError, match=r"send at newark: .*missing\.yaml.*\(see .*sender\.log\)"):
        job.check()
    with pytest.raises(WanError, match="send at newark: exited with code 1"):
        job.stop()


def test_a_killed_job_is_not_reported(job):
    job.kill()
    job.check()
    assert job.process.returncode == -9


@pytest.mark.parametrize("minutes", [0, 1])
def test_a_job_that_holds_a_stream_for_long_is_reported(job, monkeypatch, minutes):
    monkeypatch.setattr(job.process, "poll", lambda: None)
    job._handle({"event": "progress", "stream": "flights", "held": "the history is lost"})
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 60 * minutes)
    if minutes:
        with pytest.raises(WanError, match="flights is held: the history is lost"):
            job.check()
        job._handle({"event": "progress", "stream": "flights", "held": None})
    job.check()
