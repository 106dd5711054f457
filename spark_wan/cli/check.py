"""``check``: what is wrong, for cron and for probes. Needs no Spark."""

from __future__ import annotations

import signal
import socket
from pathlib import Path
from typing import Annotated, Any

import typer

from spark_wan.cli.options import Config, Format, OutputFormat, parsed
from spark_wan.cli.output import reporting_errors
from spark_wan.status.check import Limits, exit_code
from spark_wan.status.check import check as find
from spark_wan.status.watch import Watch
from spark_wan.topology.parsing import load_topology
from spark_wan.units import parse_bytes, parse_seconds

_ENDS = signal.SIGINT, signal.SIGTERM
_DEFAULT = Limits()


def _time(help: str) -> Any:
    return typer.Option(parser=parsed(parse_seconds), metavar="TIME", help=help)


def check(
    config: Config,
    site: Annotated[
        str | None, typer.Option("--site", metavar="SITE", help="Only this site's streams.")
    ] = None,
    behind: Annotated[
        float,
        _time("Warn of a site that lacks a change which is older than this."),
    ] = _DEFAULT.behind,
    queue: Annotated[
        int | None,
        typer.Option(
            parser=parsed(parse_bytes),
            metavar="SIZE",
            help="Warn if more than this waits for a site. Default: never.",
        ),
    ] = None,
    history: Annotated[
        float,
        _time("Warn if a source keeps what is not sent for less than this."),
    ] = _DEFAULT.history,
    paused: Annotated[
        float,
        _time("Warn of a stream that is paused for this long."),
    ] = _DEFAULT.paused,
    dead_letters: Annotated[
        float,
        typer.Option(
            "--dead-letters",
            min=0.0,
            metavar="COUNT",
            help="Warn of more dead letters per minute since the last check. Needs --memory.",
        ),
    ] = _DEFAULT.dead_letters,
    memory: Annotated[
        Path | None,
        typer.Option("--memory", metavar="FILE", help="Keep the counters of this check here."),
    ] = None,
    every: Annotated[
        float | None,
        typer.Option(
            parser=parsed(parse_seconds),
            metavar="TIME",
            help="Check again and again, until Ctrl-C: a line for what is new, and once it is "
            "over.",
        ),
    ] = None,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Say what is wrong, one line each, with what to do. Exit codes of probes: 0 nothing, 1 a
    warning, 2 critical, 3 it cannot be told. Needs no Spark."""
    if every is not None and memory is not None:
        raise typer.BadParameter("--every keeps no counters in a file", param_hint="--memory")
    if dead_letters and every is None and memory is None:
        raise typer.BadParameter("needs --memory or --every", param_hint="--dead-letters")
    limits = Limits(behind, queue, history, paused, dead_letters)
    code = 3  # of errors, too: a probe must not take them for a warning
    with reporting_errors(output, code) as out:
        if every is not None:
            _watch(
                Watch(
                    load_topology(config),
                    out.alert,
                    site=site,
                    limits=limits,
                    every=every,
                    logs=False,
                )
            )
            return
        found = find(load_topology(config), site, limits, memory)
        out.checked(found)
        code = exit_code(found)
    if code:
        raise typer.Exit(code)


def _watch(watch: Watch) -> None:
    """Print what changes until SIGINT or SIGTERM."""
    ends, told = socket.socketpair()
    with ends, told, watch.start():
        told.setblocking(False)
        # Wakes this thread whichever thread gets the signal, and raises nothing in the middle of
        # something.
        fd = signal.set_wakeup_fd(told.fileno())
        before = {each: signal.signal(each, lambda *_: None) for each in _ENDS}
        try:
            ends.recv(1)
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)
            signal.set_wakeup_fd(fd)
