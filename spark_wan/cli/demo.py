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
        Path,
        typer.Option(
            metavar="FOLDER",
            help="Keep the sites' tables here. Each run deletes this folder first.",
        ),
    ] = Path("demo-data"),
    sites: Annotated[
        int,
        typer.Option(
            metavar="2|4",
            help="Run two sites (newark sends to seattle), or four (newark sends to chicago, which "
            "forwards to denver and seattle).",
        ),
    ] = 2,
    days: Annotated[
        int | None,
        typer.Option(
            min=20,
            max=365,
            metavar="DAYS",
            help="Replicate only the first days of the year, 20 to 365. Default: 365; with four "
            "sites or --join 60.",
        ),
    ] = None,
    join: Annotated[
        bool,
        typer.Option(
            "--join",
            help="Run two sites, which a third one joins in the middle. Later one of them loses a "
            "table. Both get copies.",
        ),
    ] = False,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Replicate a year of flights on this machine. Kill a receiver, and compare all rows."""
    if sites not in (2, 4):
        raise typer.BadParameter(f"{sites} sites; give 2 or 4", param_hint="--sites")
    if join and sites != 2:
        raise typer.BadParameter("--join is for two sites", param_hint="--join")
    with reporting_errors(output):
        from spark_wan.demo import run_demo

        # However the demo ends, its processes end with it.
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.default_int_handler)
        if not run_demo(directory, 3 if join else sites, days, as_json=output is Format.JSON):
            raise typer.Exit(1)
