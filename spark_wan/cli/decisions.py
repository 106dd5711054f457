"""``decide`` and ``decisions``: an operator's answers to what holds a stream. Need no Spark."""

from __future__ import annotations

from typing import Annotated

import typer

from spark_wan.cli.options import Config, Format, OutputFormat, Repeated
from spark_wan.cli.output import reporting_errors
from spark_wan.control import decide as verbs
from spark_wan.topology.parsing import load_topology

Site = Annotated[
    str, typer.Option("--site", metavar="SITE", help="The site that holds the streams.")
]


def decide(
    config: Config,
    site: Site,
    decision: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[DECISION]...",
            help="As the message of the hold has it: TABLE@VERSION=distribute, =skip, =resync or"
            " =no-restore, or TABLE@LOG=new-log.",
            show_default=False,
        ),
    ] = None,
    early: Annotated[
        bool, typer.Option("--early", help="Record it also where nothing is held yet.")
    ] = False,
    withdraw: Annotated[
        Repeated,
        typer.Option(
            "--withdraw",
            metavar="PLACE",
            help="Take back what was decided about TABLE@VERSION or TABLE@LOG. What was done by it"
            " stays done. May be repeated.",
        ),
    ] = None,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Decide about held streams, or take that back. Needs no Spark."""
    if bool(decision) == bool(withdraw):
        raise typer.BadParameter("give a decision, or --withdraw; not both")
    with reporting_errors(output) as out:
        topology = load_topology(config)
        answers = verbs.decide(topology, site, decision or (), early=early)
        taken = verbs.withdraw(topology, site, withdraw or ())
        out.decided(answers, taken)


def decisions(
    config: Config,
    site: Annotated[str, typer.Option("--site", metavar="SITE", help="The site that decided.")],
    table: Annotated[
        str | None,
        typer.Option("--table", metavar="TABLE", help="Only about this table. Default: all."),
    ] = None,
    output: OutputFormat = Format.TEXT,
) -> None:
    """List the decisions of a site that count. Needs no Spark."""
    with reporting_errors(output) as out:
        out.decisions(verbs.decisions(load_topology(config), site, table))
