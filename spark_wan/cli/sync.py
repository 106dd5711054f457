"""``sync``: gives a site that lacks something a copy of a table. Needs no Spark."""

from __future__ import annotations

from typing import Annotated

import typer

from spark_wan.cli.options import Config, Format, OutputFormat
from spark_wan.cli.output import reporting_errors
from spark_wan.sync.request import request_copy, withdraw_request
from spark_wan.topology.parsing import load_topology


def sync(
    config: Config,
    table: Annotated[str, typer.Option("--table", metavar="TABLE", help="Copy this table.")],
    site: Annotated[str, typer.Option("--site", metavar="SITE", help="Copy it to this site.")],
    source: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="SITE",
            help="Ask this site. Default: first those that have copies themselves, in the order of "
            "the topology; at last the one that writes the table.",
        ),
    ] = None,
    full: Annotated[
        bool, typer.Option("--full", help="Ask even if auto_init of the site is false.")
    ] = False,
    cancel: Annotated[
        bool, typer.Option("--cancel", help="Take the request back, and no copy that comes.")
    ] = False,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Ask for a copy of a table, which takes the place of all rows that the site has of it.

    Another site serves it, and the site's receiver takes it, in one commit."""
    if cancel and (source is not None or full):
        raise typer.BadParameter("--cancel takes neither --from nor --full")
    with reporting_errors(output) as out:
        topology = load_topology(config)
        if cancel:
            was_open = withdraw_request(topology, table, site)
            out.copy_cancelled(topology.table(table).name, topology.site(site).name, was_open)
        else:
            out.copy_requested(request_copy(topology, table, site, by=source, full=full))
