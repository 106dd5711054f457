"""``spark-wan``: the command line.

    spark-wan demo                                      two sites on this machine, real data, a crash on the way
    spark-wan validate --config topology.yaml           is the topology right, and what goes where
    spark-wan send     --config topology.yaml --site A  run the senders of a site
    spark-wan receive  --config topology.yaml --site B  run the receiver of a site
    spark-wan status   --config topology.yaml           how far every stream is at every site (needs no Spark)

Every command takes ``--output json``. Exit codes: 0 done, or stopped by SIGINT or SIGTERM; 1 an error (one line
says which); 2 wrong usage.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

try:
    import typer

    from spark_wan.cli.output import JsonOutput, Output, TextOutput
except ModuleNotFoundError as missing:
    sys.exit(f"spark-wan needs {missing.name}: pip install 'spark_wan[cli]'")

import spark_wan
from spark_wan.cli.launcher import quiet_py4j, stop_on_signals, watch
from spark_wan.control.decisions import parse_decisions
from spark_wan.delta.sessions import lost_session
from spark_wan.errors import OptionError, TopologyError, WanError
from spark_wan.status.reports import read_status
from spark_wan.topology.parsing import load_topology

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


log = logging.getLogger(__name__)


app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


class Format(str, Enum):
    """How commands print."""

    TEXT = "text"
    JSON = "json"


Config = Annotated[Path, typer.Option("--config", "-c", help="Topology file.")]
Site = Annotated[str, typer.Option("--site", help="Site that runs here.")]
OutputFormat = Annotated[
    Format, typer.Option("--output", "-o", help="Text for people or JSON for scripts.")
]
Senders = Annotated[
    list[str] | None, typer.Option("--sender", help="Only this sender. May be repeated.")
]
AvailableNow = Annotated[
    bool, typer.Option("--available-now", help="Do what is there to do, and end.")
]
Conf = Annotated[
    list[str] | None,
    typer.Option("--conf", help="Setting of the local session, as key=value. May be repeated."),
]
Decide = Annotated[
    list[str] | None,
    typer.Option(
        help="What to do about what holds a stream: <table>@<version>=distribute or =skip, <table>@<log>=new-log. Recorded: once is enough."
    ),
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Log to standard error.")]


@app.callback()
def common() -> None:
    """WAN replication for Delta tables."""


@app.command()
def demo(
    directory: Annotated[
        Path, typer.Option(help="Where the sites' tables go. Made anew by each run.")
    ] = Path("demo-data"),
    days: Annotated[
        int, typer.Option(min=20, max=365, help="Only the first days of the year.")
    ] = 365,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Replicate a year of flights between two sites here, with a crash on the way, and compare all rows."""
    with _errors(output):
        from spark_wan.demo import run_demo

        # However it ends, its processes end with it.
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.default_int_handler)
        if not run_demo(directory, days, as_json=output is Format.JSON):
            raise typer.Exit(1)


@app.command()
def send(
    config: Config,
    site: Site,
    sender: Senders = None,
    table: Annotated[
        list[str] | None, typer.Option("--table", help="Only this table. May be repeated.")
    ] = None,
    available_now: AvailableNow = False,
    decide: Decide = None,
    conf: Conf = None,
    verbose: Verbose = False,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Run a site's gateway senders until stopped."""
    with _errors(output) as out:
        topology = load_topology(config)
        job = partial(
            spark_wan.Sender,
            topology=topology,
            site=site,
            senders=sender,
            tables=table,
            decisions=parse_decisions(decide or ()),
        )
        _run("sender", job, site, available_now, conf, verbose, out)


@app.command()
def receive(
    config: Config,
    site: Site,
    sender: Senders = None,
    available_now: AvailableNow = False,
    decide: Decide = None,
    conf: Conf = None,
    verbose: Verbose = False,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Run a site's gateway receiver until stopped."""
    with _errors(output) as out:
        job = partial(
            spark_wan.Receiver,
            topology=load_topology(config),
            site=site,
            senders=sender,
            decisions=parse_decisions(decide or ()),
        )
        _run("receiver", job, site, available_now, conf, verbose, out)


@app.command()
def validate(config: Config, output: OutputFormat = Format.TEXT) -> None:
    """Say what goes where, or what is wrong with a topology file."""
    out = _output(output)
    try:
        topology = load_topology(config)
    except TopologyError as error:
        out.problems(str(config), str(error).splitlines())
        raise typer.Exit(1) from None
    out.topology(topology)


@app.command()
def status(
    config: Config,
    site: Annotated[str | None, typer.Option("--site", help="Only this site's streams.")] = None,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Say how far every stream is at every site, from channel logs and acks. Needs no Spark."""
    with _errors(output) as out:
        channels = read_status(load_topology(config), site)
        out.status(channels)
        if any(channel.problem for channel in channels):
            raise typer.Exit(1)


def main() -> None:
    """The entry point."""
    app(prog_name="spark-wan")


def _output(format: Format) -> Output:
    return JsonOutput() if format is Format.JSON else TextOutput()


@contextmanager
def _errors(format: Format) -> Iterator[Output]:
    """Errors of our own end a command with one message and exit code 1."""
    out = _output(format)
    try:
        yield out
    except WanError as error:
        out.error(error)
        raise typer.Exit(1) from None


@contextmanager
def _session(app_name: str, conf: list[str] | None, verbose: bool) -> Iterator[SparkSession]:
    """The session that is there (a notebook's, spark-submit's), else a local one, which is stopped at the end."""
    from pyspark.accumulators import AccumulatorTCPServer
    from pyspark.sql import SparkSession

    from spark_wan.local import local_session

    if verbose:
        logging.basicConfig(
            level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
        )
    else:
        logging.basicConfig(level=logging.WARNING)
        # What is held, and why, is printed as progress.
        own = logging.getLogger("spark_wan")
        own.addHandler(logging.NullHandler())
        own.propagate = False
    quiet_py4j()
    settings = _settings(conf or ())
    if SparkSession.getActiveSession() is not None or "PYSPARK_GATEWAY_PORT" in os.environ:
        yield SparkSession.builder.appName(app_name).config(map=settings).getOrCreate()
        return
    spark = local_session(app_name, **settings)
    # When SIGTERM ends the JVM too, what its server of accumulators has to say would only hide what matters.
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
    log.debug("a connection of the JVM's has ended", exc_info=True)


def _settings(texts: Any) -> dict[str, Any]:
    settings = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise OptionError(f"--conf {text!r} is not understood; write <key>=<value>")
        settings[name] = value
    return settings


def _run(
    kind: str,
    job: Callable[[Any], Any],
    site: str,
    available_now: bool,
    conf: list[str] | None,
    verbose: bool,
    out: Output,
) -> None:
    """Make a job with a session, and run it until it ends or is stopped."""
    job(None)  # unknown names are refused before Spark takes its time to start
    told = {"job": kind, "site": site}
    stopped = threading.Event()

    def interrupt(*_: object) -> None:
        stopped.set()
        raise KeyboardInterrupt

    # Until the session is there, a signal ends whatever is under way.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupt)
    try:
        with _session(f"spark-wan {kind}", conf, verbose) as spark:
            stop_on_signals(stopped)
            handle = job(spark).start(available_now=available_now)
            out.note("started", **told)
            watch(handle, stopped, out.progress)
    except KeyboardInterrupt:
        log.debug("interrupted before the session was there")
    except Exception as error:
        # A signal to the whole process group ends the JVM too: calls to it fail from then on.
        if not stopped.is_set():
            raise
        log.debug("after the signal to stop: %s", error)
    out.note("stopped" if stopped.is_set() else "finished", **told)
