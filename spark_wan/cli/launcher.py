"""Runs a sender or receiver with a Spark session until it ends or is stopped; and other work that
needs a session, to its end."""

from __future__ import annotations

import copy
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from spark_wan import messages
from spark_wan.cli.options import Format, JobOptions, SessionOptions, WithSession
from spark_wan.cli.output import Output
from spark_wan.delta.errors import error_text
from spark_wan.delta.sessions import lost_session
from spark_wan.errors import SessionLostError, WanError
from spark_wan.messages import message_log
from spark_wan.runtime.handle import JobHandle, S, Status
from spark_wan.runtime.progress import WorkWatch
from spark_wan.runtime.standby import News, StandbyHandle

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = message_log(__name__)
T = TypeVar("T")

AnyHandle = JobHandle[S] | StandbyHandle[S]

POLL_INTERVAL = 0.25
"""Seconds between polls of a job's status."""
LOG_LINES = 20
"""Number of lines of the log that are shown when Spark does not start."""
RELOAD_RETRY = 10.0
"""Seconds until a job is started again that could not be after a reload."""
SIGNAL_WAIT = 1.0
"""Seconds within which a signal that has ended the JVM reaches this process too."""
MEMORY, MEMORY_PER_TABLE = 1_024, 4
"""Heap of a local session's JVM, in MiB: Spark's default, and 2.7 measured for each table, whose
state Delta keeps for an hour."""


@dataclass(frozen=True)
class Reload:
    """How a running job is replaced by one that has read the topology again."""

    asked: threading.Event
    replace: Callable[[AnyHandle[Any]], AnyHandle[Any]]
    """Takes the handle of the running job, and returns that of the job that runs then."""


def launch(
    kind: str,
    new_job: Callable[[Any], Any],
    options: JobOptions,
    *,
    out: Output,
    report: Callable[[S], None],
) -> None:
    """Run what ``new_job`` makes with a session, a Sender or Receiver, until it ends or is stopped.

    SIGHUP calls ``new_job`` again, which reads the topology file again, and runs the new job in
    place of the old one, in the same session. A file that is refused changes nothing.

    With ``--standby``, the session is there before the job is needed: it waits while another one
    runs.

    Raises:
        WanError: an option or a name is invalid, or the job failed (see :func:`watch`).
    """
    options.session_settings()  # refuses what is none before anything else
    stopped = threading.Event()

    def interrupt(*_: object) -> None:
        stopped.set()
        raise KeyboardInterrupt

    def stop(*_: object) -> None:
        stopped.set()

    hangup, hear_hangups = _on_hangup(stop)
    # Until there is a session, a signal ends whatever is under way.
    _on_signals(interrupt)
    try:
        job = new_job(None)  # refuses unknown names before Spark takes its time to start
        tables = len(job.topology.tables)
        with _session_at(kind, options, tables, out) as spark:
            _on_signals(stop)  # again: Spark has installed handlers of its own
            hear_hangups()
            job.spark = spark
            handle: AnyHandle[S]
            if options.standby:
                handle = job.stand_by()  # which says itself when it has started
            else:
                handle = job.start(available_now=options.available_now)
                out.job_event("started", kind, options.site)

            def reload(running: AnyHandle[S]) -> AnyHandle[S]:
                nonlocal job
                try:
                    following = new_job(spark)
                except WanError as error:
                    out.error(error)
                    return running
                running.stop(gives_way=True)

                def begin(job: Any) -> AnyHandle[S]:
                    following: AnyHandle[S] = (
                        job.stand_by(running) if options.standby else job.start()
                    )
                    return following

                begun = _first_to_start(chain([following], repeat(job)), begin, stopped, out)
                if begun is None:
                    return running
                if begun[0] is following:
                    job = following
                    out.job_event("reloaded", kind, options.site)
                return begun[1]

            again = None if options.available_now else Reload(hangup, reload)
            watch(
                handle,
                stopped,
                report,
                WorkWatch(out.work, out.work_ended, out.work_interval),
                again,
                lambda news: out.standby(news, kind, options.site),
            )
    except KeyboardInterrupt:
        log.debug("interrupted before there was a session")
    except Exception as error:
        # A signal to the whole process group ends the JVM too: calls to it fail from then on.
        if not stopped.is_set():
            raise
        log.debug("after the signal to stop: %s", error)
    out.job_event("stopped" if stopped.is_set() else "finished", kind, options.site)


def _first_to_start(
    jobs: Iterable[Any],
    begin: Callable[[Any], AnyHandle[S]],
    stopped: threading.Event,
    out: Output,
) -> tuple[Any, AnyHandle[S]] | None:
    """Start the first of ``jobs`` that can be started; return it and its handle. None: stopped.

    The channels of the new topology may be wrong, and those of the old one fail for the moment:
    so the second one is tried at once, and those after it again and again."""
    for tried, job in enumerate(jobs):
        if tried > 1 and stopped.wait(RELOAD_RETRY):
            break
        try:
            return job, begin(job)
        except WanError as error:
            out.error(error)
    return None


def run_with_session(
    kind: str, options: SessionOptions, out: Output, work: Callable[[Any], T]
) -> T:
    """Return the result of ``work`` with a session.

    Raises:
        WanError: an option is invalid, the work failed, or a signal interrupted it.
    """
    stopped = threading.Event()

    def interrupt(*_: object) -> None:
        stopped.set()
        raise KeyboardInterrupt

    _on_signals(interrupt)
    try:
        with _session_at(kind, options, 1, out) as spark:
            _on_signals(interrupt)  # again: Spark has installed handlers of its own
            with _reported_work(out):
                return work(spark)
    except (Exception, KeyboardInterrupt) as error:
        # A signal to the whole process group ends the JVM too: calls to it fail from then on.
        if stopped.is_set():
            raise WanError(f"{kind} was interrupted, and is not done. Begin again.") from error
        if isinstance(error, WanError):
            raise
        raise WanError(f"{kind} ended with an error: {error_text(error)}") from error


@contextmanager
def _reported_work(out: Output) -> Iterator[None]:
    """Report work that takes long, while the caller does it."""
    ended, told = threading.Event(), WorkWatch(out.work, out.work_ended, out.work_interval)

    def poll() -> None:
        while not ended.wait(POLL_INTERVAL):
            told.poll()

    thread = threading.Thread(target=poll, name="wan-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        told.poll()


def watch(
    job: AnyHandle[S],
    stopped: threading.Event,
    report: Callable[[S], None],
    work: WorkWatch,
    reload: Reload | None = None,
    tell: Callable[[News], None] = lambda news: None,
) -> None:
    """Report each stream whenever its status changes, and work that takes long; stop the job in the
    end. ``tell`` is called with the news of a standby.

    That is when the job ends, when a stream ends with an error, or when ``stopped`` is set.

    Raises:
        WanError: the job or a stream ended with an error, or the job ended while a stream was held.
    """
    reported: dict[str, S] = {}

    def poll() -> None:
        if isinstance(job, StandbyHandle):
            for news in job.news():
                tell(news)
        for status in job.status():
            if reported.get(status.stream) != status and not _is_blank(status):
                reported[status.stream] = copy.deepcopy(status)
                report(reported[status.stream])
        work.poll()

    try:
        while job.is_active and job.exception() is None and not stopped.wait(POLL_INTERVAL):
            poll()
            if reload is not None and reload.asked.is_set():
                reload.asked.clear()
                job = reload.replace(job)
    finally:
        job.stop()
    poll()
    if stopped.is_set():
        return
    error = job.exception()
    if isinstance(error, SessionLostError) and stopped.wait(SIGNAL_WAIT):
        return  # SIGTERM to a process group ends the JVM too, which may be faster
    if isinstance(error, WanError):
        raise error
    if error is not None:
        raise WanError(f"ended by an error: {error_text(error)}") from error
    held = [f"{name}: held: {status.held}" for name, status in reported.items() if status.held]
    if held:
        raise WanError("\n".join(held))


def _is_blank(status: Status) -> bool:
    """Whether nothing is known of a stream yet."""
    return status == type(status)(status.stream, status.table)


def _on_hangup(stop: Callable[[], None]) -> tuple[threading.Event, Callable[[], None]]:
    """Return an event that SIGHUP sets, and what installs its handler (again). It calls ``stop``
    instead if it came because the terminal of this process is gone: a job without one must not live
    on unseen. Under nohup it may; there the JVM must inherit that SIGHUP is ignored, so no handler
    is installed before."""
    asked = threading.Event()
    had_terminal = _has_terminal()

    def handle(*_: object) -> None:
        if had_terminal and not _has_terminal():
            stop()
        else:
            asked.set()

    if not hasattr(signal, "SIGHUP"):  # Windows
        return asked, lambda: None

    def install() -> None:
        signal.signal(signal.SIGHUP, handle)

    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        had_terminal = False
    else:
        install()
    return asked, install


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


def _on_signals(handler: Callable[..., None]) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, handler)


@contextmanager
def session_of(
    name: str,
    options: WithSession,
    *,
    tables: int = 1,
    begins: Callable[[Mapping[str, str]], None] = lambda logs: None,
) -> Iterator[SparkSession]:
    """Yield the session for work on so many tables. ``begins`` is called before it starts, with the
    files of the log of a local one: ``log``, and ``spark_log`` if that is another one. Raises
    WanError."""
    settings = options.session_settings()
    is_local = not _has_session(options)
    log_file = options.log_path(name) if is_local else None
    spark_log = options.spark_log_path(name, log_file) if is_local else None
    _set_up_logging(options.verbose, options.log_format, log_file)
    logs = {"log": log_file, "spark_log": spark_log if spark_log != log_file else None}
    begins({what: str(file) for what, file in logs.items() if file is not None})
    memory = f"{MEMORY + MEMORY_PER_TABLE * tables}m"
    conf = {"spark.driver.memory": memory, **settings} if is_local else settings
    with _session(f"spark-wan {name}", conf, is_local, spark_log) as spark:
        yield spark


@contextmanager
def _session_at(
    kind: str, options: SessionOptions, tables: int, out: Output
) -> Iterator[SparkSession]:
    """Yield the session for work at a site, and say that it begins."""

    def begins(logs: Mapping[str, str]) -> None:
        out.job_event("starting", kind, options.site, logs)

    with session_of(kind, options, tables=tables, begins=begins) as spark:
        yield spark


def _has_session(options: WithSession) -> bool:
    """Whether spark-submit or a notebook has made a session."""
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession() is not None
    return options.submitted or active or "PYSPARK_GATEWAY_PORT" in os.environ


@contextmanager
def _session(
    name: str, conf: dict[str, Any], is_local: bool, log_file: Path | None
) -> Iterator[SparkSession]:
    """Yield the session of spark-submit or of a notebook, else a local one, which ends here."""
    from pyspark.accumulators import AccumulatorTCPServer
    from pyspark.sql import SparkSession

    from spark_wan.local import local_session

    if not is_local:
        yield SparkSession.builder.appName(name).config(map=conf).getOrCreate()
        return
    try:
        spark = local_session(name, log_file=log_file, **conf)
    except WanError:
        raise
    except Exception as error:
        raise WanError(f"Spark did not start: {error_text(error)}{_end_of(log_file)}") from error
    # When SIGTERM ends the JVM too, errors of its accumulator server would hide what matters.
    AccumulatorTCPServer.handle_error = _log_request_error  # type: ignore[assignment, method-assign]
    try:
        yield spark
    finally:
        try:
            spark.stop()
        except Exception as error:
            if lost_session(spark) is None:
                raise
            log.debug("the JVM has ended before: %s", error)


def _log_request_error(*_: object) -> None:
    log.debug("a connection of the JVM has ended", exc_info=True)


def _end_of(log_file: Path | None) -> str:
    """Return the last lines of the log, for an error."""
    if log_file is None:
        return ""
    lines = log_file.read_text(errors="replace").splitlines()[-LOG_LINES:]
    return f"\n{log_file} ends with:\n" + "\n".join(f"  {line}" for line in lines)


def _set_up_logging(verbose: bool, log_format: Format, log_file: Path | None) -> None:
    if not verbose and log_file is None and log_format is Format.TEXT:
        # What is held, and why, is printed as progress.
        own = logging.getLogger(messages.ROOT)
        own.addHandler(logging.NullHandler())
        own.propagate = False
    level = logging.INFO if verbose else logging.WARNING
    if log_format is Format.JSON or not logging.getLogger().handlers:
        # Else an application runs the command, and has set up its log.
        messages.log_everything(messages.log_handler(log_format.value, log_file), level)
    # py4j logs what it raises: a stack for each call that was under way when the JVM ended.
    # Some of it goes to the root logger.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(lambda record: "while sending command" not in str(record.msg))
