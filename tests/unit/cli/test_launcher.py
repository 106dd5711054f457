"""How a command watches a sender or receiver."""

from __future__ import annotations

import json
import logging
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer import Exit

from spark_wan.cli import launcher
from spark_wan.cli.launcher import watch
from spark_wan.cli.options import Format, JobOptions
from spark_wan.cli.output import open_output, reporting_errors
from spark_wan.delta.jobs import watched_jobs
from spark_wan.errors import SessionLostError, WanError
from spark_wan.local import cache
from spark_wan.local.session import children_print_to
from spark_wan.messages import message_log
from spark_wan.runtime import progress
from spark_wan.runtime.progress import Progress, Work, WorkWatch, under_way, works
from spark_wan.runtime.standby import News
from spark_wan.sender.outbound_stream import StreamStatus


class Job:
    """A job whose other streams still run after ``error`` has ended one."""

    def __init__(self, error: BaseException | None) -> None:
        self.error, self.stopped, self.gave_way = error, False, False

    @property
    def is_active(self) -> bool:
        return not self.stopped

    def status(self) -> list[Any]:
        return []

    def exception(self) -> BaseException | None:
        return self.error

    def stop(self, *, gives_way: bool = False) -> None:
        self.stopped, self.gave_way = True, gives_way


def test_f50_a_stream_that_ends_with_an_error_ends_the_command_while_others_run() -> None:
    """Fails (hangs) when the exception is read only once nothing is active."""
    job = Job(ValueError("a thread has died"))
    with pytest.raises(WanError, match="a thread has died"):
        watch(job, threading.Event(), print, WorkWatch(print))
    assert job.stopped


def test_f50_an_ended_session_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launcher, "SIGNAL_WAIT", 0.0)
    with pytest.raises(SessionLostError):
        watch(
            Job(SessionLostError("the Spark session has ended")),
            threading.Event(),
            print,
            WorkWatch(print),
        )


def test_a_signal_that_ends_the_jvm_first_is_a_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGTERM to the process group: Python may see the end of the session before its own signal."""
    monkeypatch.setattr(launcher, "SIGNAL_WAIT", 60.0)
    stopped = threading.Event()

    class Slow(Job):
        def stop(self) -> None:
            super().stop()
            stopped.set()

    watch(Slow(SessionLostError("the Spark session has ended")), stopped, print, WorkWatch(print))


@pytest.mark.parametrize(
    "tables, conf, memory",
    [(2, {}, "1032m"), (1_000, {}, "5024m"), (1_000, {"spark.driver.memory": "2g"}, "2g")],
)
def test_a_local_session_has_memory_for_all_tables(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    tables: int,
    conf: dict[str, Any],
    memory: str,
) -> None:
    """Delta keeps the state of each. With Spark's 1 GB, a receiver of 350 tables mostly collects
    garbage. What the user says counts."""
    asked: list[dict[str, Any]] = []

    def local_session(name: str, *, log_file: Path, **settings: Any) -> Any:
        asked.append(settings)
        raise WanError("enough is known")

    monkeypatch.setattr("spark_wan.local.local_session", local_session)
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    monkeypatch.setattr("pyspark.sql.SparkSession.getActiveSession", lambda: None)
    with pytest.raises(WanError, match="enough is known"):
        launched(monkeypatch, tmp_path / "log", tables, conf)
    assert asked == [{"spark.driver.memory": memory}]


def launched(
    monkeypatch: pytest.MonkeyPatch, log_file: Path, tables: int = 1, conf: Any = None
) -> None:
    """Launch a sender, with JSON as output."""
    for name in ("_on_signals", "_set_up_logging"):
        monkeypatch.setattr(launcher, name, lambda *_: None)
    monkeypatch.setattr(launcher, "_on_hangup", lambda *_: (threading.Event(), lambda: None))
    options: Any = SimpleNamespace(
        site="newark",
        verbose=False,
        standby=False,
        submitted=False,
        log_format=Format.TEXT,
        session_settings=lambda: conf or {},
        log_path=lambda kind: log_file,
        spark_log_path=lambda kind, log_file: log_file,
    )
    job = SimpleNamespace(topology=SimpleNamespace(tables=range(tables)))
    launcher.launch("sender", lambda _: job, options, out=open_output(Format.JSON), report=print)


def test_the_first_line_is_the_jobs_own_and_names_the_log(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It comes before Spark takes its time. When Spark does not start, the error has the end of the
    log, where the JVM says why."""

    def local_session(name: str, *, log_file: Path, **settings: Any) -> Any:
        log_file.write_text("".join(f"line {n}\n" for n in range(30)) + "no space left\n")
        raise RuntimeError("Java gateway process exited")

    monkeypatch.setattr("spark_wan.local.local_session", local_session)
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    monkeypatch.setattr("pyspark.sql.SparkSession.getActiveSession", lambda: None)
    log_file = tmp_path / "log"
    with pytest.raises(WanError) as error:
        launched(monkeypatch, log_file)
    text = str(error.value)
    assert text.startswith("Spark did not start: ") and "Java gateway process exited" in text
    assert f"{log_file} ends with:\n  line 11\n" in text and text.endswith("\n  no space left")
    starting = json.loads(capsys.readouterr().out)
    assert (starting["event"], starting["log"]) == ("starting", str(log_file))


@pytest.fixture
def root_logger() -> Iterator[logging.Logger]:
    """The root logger, with what it has before and after a test."""
    root = logging.getLogger()
    before = [*root.handlers], root.level, [*root.filters]
    hooks = sys.excepthook, threading.excepthook
    yield root
    logging.captureWarnings(False)
    for handler in {*root.handlers} - {*before[0]}:
        handler.close()
    root.handlers[:], root.filters[:] = before[0], before[2]
    root.setLevel(before[1])
    sys.excepthook, threading.excepthook = hooks
    logging.getLogger("py4j").setLevel(logging.NOTSET)


def test_the_log_of_an_application_stays_as_it_is(
    root_logger: logging.Logger, tmp_path: Path
) -> None:
    """Fails when a notebook that runs a command gets each line twice, or when a command whose
    process has no log writes none."""
    before = [*root_logger.handlers]
    launcher._set_up_logging(True, Format.TEXT, tmp_path / "log")
    assert before and root_logger.handlers == before
    root_logger.handlers[:] = []
    launcher._set_up_logging(True, Format.TEXT, tmp_path / "log")
    message_log("spark_wan.sender.test").info("x", event="published")
    assert (tmp_path / "log").read_text().endswith(" INFO spark_wan.sender.test: x\n")


@pytest.mark.parametrize("named", [True, False])
def test_lines_of_json_are_kept_apart_from_what_spark_prints(
    monkeypatch: pytest.MonkeyPatch,
    root_logger: logging.Logger,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    named: bool,
) -> None:
    """Fails when the log of a job is no longer one object per line: the JVM prints text."""
    printed: list[Path | None] = []

    def local_session(name: str, *, log_file: Path, **settings: Any) -> Any:
        printed.append(log_file)
        log_file.write_text("WARNING: Using incubator modules\n")
        return SimpleNamespace(stop=lambda: None)

    monkeypatch.setattr("spark_wan.local.local_session", local_session)
    monkeypatch.setattr(cache, "cache_folder", lambda: tmp_path)
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    monkeypatch.setattr("pyspark.sql.SparkSession.getActiveSession", lambda: None)
    options = JobOptions(
        SimpleNamespace(obj=None),  # type: ignore[arg-type]
        Path("topology.yaml"),
        "newark",
        log_file=tmp_path / "wan.log" if named else None,
        verbose=True,
        log_format=Format.JSON,
    )
    begun: list[Mapping[str, str]] = []
    with launcher.session_of("sender", options, begins=begun.append):
        message_log("spark_wan.sender.test").info("two\nlines", event="published")
    if named:
        lines, spark = (tmp_path / "wan.log").read_text(), tmp_path / "wan.spark.log"
        assert begun == [{"log": str(tmp_path / "wan.log"), "spark_log": str(spark)}]
    else:
        lines, spark = capsys.readouterr().err, tmp_path / "logs" / "sender-newark.spark.log"
        assert begun == [{"spark_log": str(spark)}]
    assert printed == [spark] and "incubator" in spark.read_text()
    assert [json.loads(line)["message"] for line in lines.splitlines()] == ["two\nlines"]


def test_an_error_that_ends_a_command_is_a_line_of_json_too(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Also before there is a log. Fails when standard error has a line that no collector reads."""
    with pytest.raises(Exit), reporting_errors(Format.TEXT, log_format=Format.JSON):
        raise WanError("topology.yaml: two\nproblems")
    out, err = capsys.readouterr()
    told = json.loads(err)
    assert (out, told["event"], told["level"]) == ("", "failed", "ERROR")
    assert told["message"] == told["cause"] == "topology.yaml: two\nproblems"


def test_work_is_reported_every_ten_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is known of nothing is not reported. Fails when Spark is asked at each poll how far the
    work is."""
    now = 1_700_000_000_000
    reported: list[tuple[int, str]] = []
    asked: list[float] = []

    def share() -> float:
        asked.append(0.5)
        return 0.5

    work = [
        Work(Progress("a.b.t", "a", "capturing", 9, None, now), share),
        Work(Progress("a.b.u", "b", "applying", 9, 9, now), share),
    ]
    stopped = threading.Event()

    class Clocked(Job):
        def status(self) -> list[Any]:
            return [StreamStatus("a.b.t", "t"), StreamStatus("a.b.u", "u", published=1)]

        def exception(self) -> BaseException | None:
            nonlocal now
            now += 4_000
            if now >= 1_700_000_027_000:
                stopped.set()
            return None

    monkeypatch.setattr(launcher, "POLL_INTERVAL", 0.0)
    monkeypatch.setattr(progress, "milliseconds", lambda: now)
    monkeypatch.setattr(progress, "works", lambda: work)
    streams: list[str] = []
    watch(
        Clocked(None),
        stopped,
        lambda status: streams.append(status.stream),
        WorkWatch(lambda each: reported.append(((now - each.began_ms) // 1000, each.stream))),
    )
    assert reported == [(12, "a.b.t"), (12, "a.b.u"), (24, "a.b.t"), (24, "a.b.u")]
    assert streams == ["a.b.u"]
    assert len(asked) == len(reported)


def test_work_is_under_way_until_it_ends() -> None:
    """Also if it fails."""
    with pytest.raises(ValueError), under_way("applying", "a.b.t", "b", rows=3, size=9):
        [work] = works()
        assert (work.progress().stream, work.progress().share) == ("a.b.t", None)
        raise ValueError
    assert works() == []


def test_jobs_of_a_context_that_has_ended_have_no_share() -> None:
    """The error of the jobs is raised, not that of the context."""

    def ended(*_: object) -> None:
        raise ConnectionRefusedError

    context = SimpleNamespace(_jsc=None, addJobTag=lambda _: None, removeJobTag=ended)
    planned = SimpleNamespace(optimizedPlan=lambda: None)
    query: Any = SimpleNamespace(
        sparkSession=SimpleNamespace(sparkContext=context),
        _jdf=SimpleNamespace(queryExecution=lambda: planned),
    )
    with pytest.raises(ValueError), watched_jobs(query, 1) as share:
        assert share() is None
        raise ValueError


def test_a_log_file_is_appended_to_and_renamed_when_it_is_large(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(cache, "cache_folder", lambda: tmp_path)
    path = cache.log_path("sender-newark")
    assert path == tmp_path / "logs" / "sender-newark.log"
    path.write_text("before")
    assert cache.log_path("sender-newark").read_text() == "before"
    monkeypatch.setattr(cache, "MOST_LOG_BYTES", 5)
    assert not cache.log_path("sender-newark").exists()
    assert path.with_name("sender-newark.log.1").read_text() == "before"
    monkeypatch.setattr(cache, "cache_folder", lambda: path.with_name("sender-newark.log.1"))
    assert cache.log_path("x").parent == Path(tempfile.gettempdir())


def test_what_the_jvm_prints_is_appended_to_the_log(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """As long as it lives. This process goes on printing where it did."""
    log_file = tmp_path / "log"
    log_file.write_text("before\n")
    with children_print_to(log_file):
        child = subprocess.Popen(
            ["sh", "-c", "read go; echo out; echo err >&2"], stdin=subprocess.PIPE
        )
    print("own")
    child.communicate(b"go\n")
    assert capfd.readouterr() == ("own\n", "")
    assert log_file.read_text() == "before\nout\nerr\n"


class Topologies:
    """The topology file: each time it is read it has the next content."""

    def __init__(self, *contents: str | WanError) -> None:
        self.contents, self.ran, self.jobs = list(contents), list[str](), list[Job]()
        self.followed: list[Job | None] = []
        """Of standbys: in whose place they were started."""

    def new_job(self, spark: Any) -> Any:
        content = self.contents.pop(0)
        if isinstance(content, WanError):
            raise content
        topologies = self

        class Sender:
            topology = SimpleNamespace(tables=())

            def stand_by(self, instead_of: Job | None = None) -> Job:
                topologies.followed.append(instead_of)
                return self.start()

            def start(self, available_now: bool = False) -> Job:
                if content == "no channel" and topologies.ran:
                    raise WanError("the channel cannot be used")
                topologies.ran.append(content)
                topologies.jobs.append(Job(None))
                return topologies.jobs[-1]

        return Sender()


def reloaded(
    monkeypatch: pytest.MonkeyPatch, topologies: Topologies, hangups: int, standby: bool = False
) -> None:
    """Launch a sender, send it so many SIGHUPs, and stop it."""
    hangup, left = threading.Event(), [hangups]

    def wait(timeout: float) -> bool:
        if left[0]:
            left[0] -= 1
            hangup.set()
            return False
        return True

    class Stopped(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            if wait(timeout or 0.0):
                self.set()
            return self.is_set()

    monkeypatch.setattr(launcher, "_on_hangup", lambda stop: (hangup, lambda: None))
    monkeypatch.setattr(launcher, "_on_signals", lambda *_: None)
    monkeypatch.setattr(launcher, "_set_up_logging", lambda *_: None)
    monkeypatch.setattr(launcher, "_has_session", lambda options: True)
    monkeypatch.setattr(launcher, "_session", lambda *_: nullcontext(object()))
    monkeypatch.setattr(launcher.threading, "Event", Stopped)
    options: Any = SimpleNamespace(
        site="newark",
        verbose=False,
        log_format=Format.TEXT,
        available_now=False,
        standby=standby,
        session_settings=dict,
    )
    launcher.launch(
        "sender", topologies.new_job, options, out=open_output(Format.JSON), report=print
    )


def test_b76_a_hangup_reads_the_topology_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Fails when a site cannot be added without a restart, or the status says meanwhile that the
    job was stopped."""
    topologies = Topologies("one", "two", "three")
    reloaded(monkeypatch, topologies, 2)
    assert topologies.ran == ["one", "two", "three"]
    assert [job.gave_way for job in topologies.jobs] == [True, True, False]
    events = [json.loads(line)["event"] for line in capsys.readouterr().out.splitlines()]
    assert events == ["starting", "started", "reloaded", "reloaded", "stopped"]


def test_b76_a_standby_reads_the_topology_again_and_keeps_its_place(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It says itself when it has started. Fails when the one that follows waits for the one before
    it, or a channel that cannot be used ends the job."""
    topologies = Topologies("one", "no channel", "three")
    reloaded(monkeypatch, topologies, 2, standby=True)
    assert topologies.ran == ["one", "one", "three"]
    first, second, _ = topologies.jobs
    assert topologies.followed == [None, first, first, second]
    events = [json.loads(line)["event"] for line in capsys.readouterr().out.splitlines()]
    assert events == ["starting", "error", "reloaded", "stopped"]


def test_the_news_of_a_standby_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails when an operator does not see why a job does nothing."""
    stopped = threading.Event()

    class Standby(Job):
        def news(self) -> list[News]:
            stopped.set()
            return [News("waiting")] if not self.stopped else [News("took-over")]

    monkeypatch.setattr(launcher, "StandbyHandle", Standby)
    monkeypatch.setattr(launcher, "POLL_INTERVAL", 0.0)
    told: list[str] = []
    job: Any = Standby(None)
    watch(job, stopped, print, WorkWatch(print), None, lambda news: told.append(news.event))
    assert told[0] == "waiting" and told[-1] == "took-over"


@pytest.mark.parametrize("second", [WanError("senders.east: unknown key"), "no channel"])
def test_b76_a_topology_that_is_refused_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], second: Any
) -> None:
    """The job goes on as it was. Fails when a mistake in the file ends replication."""
    topologies = Topologies("one", second, "three")
    reloaded(monkeypatch, topologies, 2)
    assert topologies.ran == ["one", *["one"] * (second == "no channel"), "three"]
    events = [json.loads(line)["event"] for line in capsys.readouterr().out.splitlines()]
    assert events == ["starting", "started", "error", "reloaded", "stopped"]


@pytest.mark.parametrize(
    ("terminals", "stops"), [((True, True), 0), ((False, False), 0), ((True, False), 1)]
)
def test_a_hangup_of_the_terminal_is_a_stop(
    monkeypatch: pytest.MonkeyPatch, terminals: tuple[bool, bool], stops: int
) -> None:
    """Fails when a job lives on unseen after its window was closed."""
    before, here = signal.signal(signal.SIGHUP, signal.SIG_DFL), list(terminals)
    monkeypatch.setattr(launcher, "_has_terminal", lambda: here.pop(0) if here else terminals[1])
    stopped: list[int] = []
    try:
        asked, _ = launcher._on_hangup(lambda: stopped.append(1))
        handler = signal.getsignal(signal.SIGHUP)
        assert callable(handler)
        handler(signal.SIGHUP, None)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert (len(stopped), asked.is_set()) == (stops, not stops)


def test_a_hangup_under_nohup_reads_the_topology_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which lets a job outlive its terminal. Fails when it ignores the user's signal, or stops."""
    before, here = signal.signal(signal.SIGHUP, signal.SIG_IGN), [True]
    monkeypatch.setattr(launcher, "_has_terminal", lambda: bool(here) and here.pop())
    stopped: list[int] = []
    try:
        asked, install = launcher._on_hangup(lambda: stopped.append(1))
        # A process that is started now goes on ignoring it.
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        install()
        signal.raise_signal(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert (stopped, asked.is_set()) == ([], True)
