"""``validate`` and ``status``: reports on a topology. They need no Spark."""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from spark_wan.cli.options import Config, Format, OutputFormat, parsed
from spark_wan.cli.output import Output, open_output, reporting_errors
from spark_wan.errors import TopologyError
from spark_wan.status.reports import (
    FAILED,
    HELD,
    NO_ANSWER,
    STOPPED,
    UNKNOWN,
    ChannelReport,
    StatusReader,
)
from spark_wan.topology.model import Topology
from spark_wan.topology.parsing import load_topology
from spark_wan.units import parse_seconds

WATCH_INTERVAL = 2.0
"""Seconds from one status to the next, with ``--watch``."""


def validate(config: Config, output: OutputFormat = Format.TEXT) -> None:
    """Check a topology file, and show what is sent where. Needs no Spark."""
    out = open_output(output)
    out.valid_topology(load_valid(config, out))


def load_valid(config: Path, out: Output) -> Topology:
    """Return the topology in a file. One with mistakes ends the command: all are printed."""
    try:
        return load_topology(config)
    except TopologyError as error:
        out.invalid_topology(str(config), str(error).splitlines())
        raise typer.Exit(1) from None


def status(
    config: Config,
    seconds: Annotated[
        float | None,
        typer.Argument(
            parser=parsed(parse_seconds),
            metavar="SECONDS",
            help="Interval of --watch: seconds, or 500ms, 1m. Default: 2.",
        ),
    ] = None,
    site: Annotated[
        str | None, typer.Option(metavar="SITE", help="Show only this site's streams.")
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Refresh the status until Ctrl-C.")
    ] = False,
    counts: Annotated[
        bool,
        typer.Option("--counts", help="Show also what was not sent or not applied, by reason."),
    ] = False,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Show how far behind each site is, and why a stream is held. Needs no Spark."""
    if seconds is not None and not watch:
        raise typer.BadParameter("an interval needs --watch", param_hint="SECONDS")
    with reporting_errors(output) as out:
        reader = StatusReader(load_topology(config), site)
        if watch:
            _watch(reader, out, WATCH_INTERVAL if seconds is None else seconds, counts)
            return
        channels = reader.read()
        out.status(channels, reader.topology.file, counts)
        if code := exit_code(channels):
            raise typer.Exit(code)


def exit_code(channels: Sequence[ChannelReport]) -> int:
    """Return the exit code of a status. The first that applies:

    1: something cannot be read; 3: a link is held, or has failed; 4: a site does not answer, or a
    sender does not run; 0: all others are up to date, or on their way. (2 is that of a wrong
    option.)
    """
    streams = [stream for channel in channels for stream in channel.streams]
    states = {site.state for stream in streams for site in stream.sites}
    if any(channel.problem for channel in channels) or any(each.problem for each in streams):
        return 1
    if states & {HELD, FAILED}:
        return 3
    return 4 if states & {NO_ANSWER, STOPPED, UNKNOWN} else 0


def _watch(reader: StatusReader, out: Output, seconds: float, counts: bool) -> None:
    """Show the status until SIGINT or SIGTERM. A channel that cannot be read is shown as such, and
    read again."""
    # SIGTERM as Ctrl-C, so that the terminal gets its cursor back.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with out.renewed_status(reader.topology.file, seconds, counts) as show:
            while True:
                show(reader.read())
                time.sleep(seconds)
    except KeyboardInterrupt:
        return
    finally:
        signal.signal(signal.SIGTERM, before)
