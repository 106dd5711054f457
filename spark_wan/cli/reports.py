"""``validate`` and ``status``: reports on a topology. They need no Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from spark_wan.cli.options import Config, Format, OutputFormat
from spark_wan.cli.output import Output, open_output, reporting_errors
from spark_wan.errors import TopologyError
from spark_wan.status.reports import read_status
from spark_wan.topology.model import Topology
from spark_wan.topology.parsing import load_topology


def validate(config: Config, output: OutputFormat = Format.TEXT) -> None:
    """Show what goes where, or what is wrong with a topology file."""
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
    site: Annotated[str | None, typer.Option(help="Only this site's streams.")] = None,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Show how far every stream is at every site, from channel logs and acks. Needs no Spark."""
    with reporting_errors(output) as out:
        channels = read_status(load_topology(config), site)
        out.status(channels)
        if any(channel.problem for channel in channels):
            raise typer.Exit(1)
