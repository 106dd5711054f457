"""``preflight``: checks links before their jobs start."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

import spark_wan
from spark_wan.cli.launcher import session_of
from spark_wan.cli.options import (
    Conf,
    Config,
    Format,
    LogFile,
    OutputFormat,
    Repeated,
    Verbose,
    WithSession,
    takes,
)
from spark_wan.cli.output import reporting_errors
from spark_wan.rehearsal.findings import Verdict
from spark_wan.rehearsal.scope import Scope
from spark_wan.topology.parsing import load_topology


@dataclass(frozen=True)
class PreflightOptions(WithSession):
    """Options of a check with Spark that may be about all sites."""

    context: typer.Context
    config: Config
    site: Annotated[
        str | None,
        typer.Option(
            metavar="SITE",
            help="Check the links of this site, from there: what other sites have may be out of"
            " reach. Default: all links, and all must be within reach.",
        ),
    ] = None
    conf: Conf = None
    verbose: Verbose = False
    log_file: LogFile = None
    output: OutputFormat = Format.TEXT


@takes(PreflightOptions)
def preflight(
    options: PreflightOptions,
    sender: Annotated[
        Repeated, typer.Option(metavar="SENDER", help="Only this sender. May be repeated.")
    ] = None,
    table: Annotated[
        Repeated, typer.Option(metavar="TABLE", help="Only this table. May be repeated.")
    ] = None,
    no_keys: Annotated[
        bool,
        typer.Option(
            "--no-keys",
            help="Do not read the rows, which takes as long as a first copy: whether keys are"
            " unique, and rows can be sent and applied, is not checked.",
        ),
    ] = False,
    probe: Annotated[
        bool,
        typer.Option(
            "--probe",
            help="Write to each channel, and delete again, a probe file; compare its clock.",
        ),
    ] = False,
) -> None:
    """Check links before their jobs start: what would hold them. Changes nothing.

    Ends with 1 if something failed, or is not within reach and should be."""
    with reporting_errors(options.output) as out:
        topology = load_topology(options.config)
        Scope(topology, options.site, sender, table).links()  # before Spark takes its time to start
        with session_of("preflight", options, tables=len(topology.tables)) as spark:
            found = spark_wan.preflight(
                spark,
                topology,
                site=options.site,
                senders=sender,
                tables=table,
                keys=not no_keys,
                probe=probe,
            )
        out.preflight(found)
        if found.verdict is Verdict.FAILED:
            raise typer.Exit(1)
