"""``demo``: two sites on this machine."""

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
    days: Annotated[
        int, typer.Option(min=20, max=365, help="Only the first days of the year.")
    ] = 365,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Replicate a year of flights between two sites here, with a crash, and compare all rows."""
    with reporting_errors(output):
        from spark_wan.demo import run_demo

        # However the demo ends, its processes end with it.
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.default_int_handler)
        if not run_demo(directory, days, as_json=output is Format.JSON):
            raise typer.Exit(1)
