"""``pause`` and ``resume``: what people ask of the streams that a site sends. Need no Spark."""

from __future__ import annotations

from typing import Annotated

import typer

from spark_wan.cli.options import Config, Format, OutputFormat
from spark_wan.cli.output import reporting_errors
from spark_wan.control import verbs
from spark_wan.topology.parsing import load_topology

Site = Annotated[str, typer.Option("--site", metavar="SITE", help="What this site sends.")]
Sender = Annotated[
    str | None,
    typer.Option("--sender", metavar="SENDER", help="Only this sender of it. Default: all."),
]
Table = Annotated[
    str | None, typer.Option("--table", metavar="TABLE", help="Only this table. Default: all.")
]


def pause(
    config: Config,
    site: Site,
    sender: Sender = None,
    table: Table = None,
    capture: Annotated[
        bool,
        typer.Option(
            "--capture",
            help="Have the sender add nothing to the channel, either. The source must keep its "
            "history until it is resumed.",
        ),
    ] = False,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Have no site take anything of what a site sends, until it is resumed. Needs no Spark."""
    with reporting_errors(output) as out:
        topology = load_topology(config)
        out.controlled(
            verbs.pause(topology, site, sender=sender, table=table, capture=capture), capture
        )


def resume(
    config: Config,
    site: Site,
    sender: Sender = None,
    table: Table = None,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Have the sites go on to take what a site sends. Needs no Spark."""
    with reporting_errors(output) as out:
        topology = load_topology(config)
        out.controlled(verbs.resume(topology, site, sender=sender, table=table))
