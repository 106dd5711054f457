"""``sync``: gives a site that lacks something a copy of a table. Needs no Spark."""

from __future__ import annotations

from typing import Annotated

import typer

from spark_wan.cli.options import Config, Format, OutputFormat
from spark_wan.cli.output import reporting_errors
from spark_wan.sync.request import request_copy
from spark_wan.topology.parsing import load_topology


def sync(
    config: Config,
    table: Annotated[str, typer.Option("--table", metavar="TABLE", help="Copy this table.")],
    site: Annotated[str, typer.Option("--site", metavar="SITE", help="Copy it to this site.")],
    output: OutputFormat = Format.TEXT,
) -> None:
    """Ask for a copy of a table, which takes the place of all rows that the site has of it.

    The sender of the table serves it, and the site's receiver takes it, in one commit."""
    with reporting_errors(output) as out:
        topology = load_topology(config)
        stream = request_copy(topology, table, site)
        out.copy_requested(topology.table(table).name, site, stream)
