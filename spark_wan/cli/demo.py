"""``demo``: two or four sites on this machine."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Annotated

import typer

from spark_wan.cli.options import Format, OutputFormat
from spark_wan.cli.output import reporting_errors


def demo(
    directory: Annotated[
        Path, typer.Option(help="Directory for the sites' tables. Recreated by each run.")
    ] = Path("demo-data"),
    sites: Annotated[
        int,
        typer.Option(
            help="2: newark sends to seattle. 4: newark sends to chicago, which sends on to denver "
            "and seattle."
        ),
    ] = 2,
    days: Annotated[
        int | None,
        typer.Option(
            min=20,
            max=365,
            help="Only the first days of the year; default: all, with four sites 60.",
        ),
    ] = None,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Replicate a year of flights between sites here, with crashes, and compare all rows."""
    if sites not in (2, 4):
        raise typer.BadParameter(f"{sites} sites; give 2 or 4", param_hint="--sites")
    with reporting_errors(output):
        from spark_wan.demo import run_demo

        # However the demo ends, its processes end with it.
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.default_int_handler)
        if not run_demo(directory, sites, days, as_json=output is Format.JSON):
            raise typer.Exit(1)
