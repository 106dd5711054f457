"""``verify``: compares a table with its copies at other sites, and asks for repairs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

import spark_wan
from spark_wan.cli.launcher import session_of
from spark_wan.cli.options import TableOptions, takes
from spark_wan.cli.output import Output, reporting_errors
from spark_wan.errors import OptionError, WanError
from spark_wan.sync.cut import compared_sites, compared_table
from spark_wan.sync.findings import Comparison, Repair
from spark_wan.sync.request import most_trusted, request_copy, serving_sites
from spark_wan.topology.model import Topology
from spark_wan.topology.parsing import load_topology
from spark_wan.units import parse_bytes

DIFFERS = 3
"""The exit code of ``verify`` if a site differs."""


@takes(TableOptions)
def verify(
    options: TableOptions,
    sites: Annotated[
        str | None,
        typer.Option(metavar="SITES", help="Compare these sites, parted by commas. Default: all."),
    ] = None,
    sample: Annotated[
        float,
        typer.Option(
            min=0.01, max=100, metavar="PERCENT", help="Compare this percentage of the keys."
        ),
    ] = 100.0,
    rate: Annotated[
        str | None,
        typer.Option(
            metavar="BYTES",
            help="Read at most so much of the table's files per second, such as 10MiB.",
        ),
    ] = None,
    repair: Annotated[
        bool,
        typer.Option(
            "--repair",
            help="Ask for a copy for each site that differs, which changes only the rows that do."
            " The running sender and receiver make it.",
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="With --repair: say what would be asked for.")
    ] = False,
) -> None:
    """Compare a table with its copies at other sites, while writers go on. Writes to no table.

    Each site is compared as of the version that it has of the writer's table. Ends with 0 if all
    are equal, with 3 if one differs."""
    with reporting_errors(options.output) as out:
        if dry_run and not repair:
            raise OptionError("--dry-run is for --repair: verify itself writes nothing")
        limited = None if rate is None else _bytes(rate)
        topology = load_topology(options.config)
        named = None if sites is None else [site.strip() for site in sites.split(",")]
        # Refuses unknown names before Spark takes its time to start.
        compared_sites(topology, compared_table(topology, options.table), named)
        with session_of("verify", options) as spark:
            found = spark_wan.verify(
                spark,
                topology,
                options.table,
                sites=named,
                sample=sample,
                limit=options.limit,
                rate=limited,
            )
        repairs = repairs_of(topology, found, dry_run=dry_run) if repair else []
        _end(out, found, repairs)


def _bytes(rate: str) -> int:
    try:
        return parse_bytes(rate)
    except ValueError as error:
        raise OptionError(f"--rate {error}") from error


def _end(out: Output, found: Sequence[Comparison], repairs: Sequence[Repair]) -> None:
    out.compared(found, repairs)
    if any(each.problem for each in found) or any(each.problem for each in repairs):
        raise typer.Exit(1)
    if not all(each.is_equal for each in found):
        raise typer.Exit(DIFFERS)


def repairs_of(topology: Topology, found: Sequence[Comparison], *, dry_run: bool) -> list[Repair]:
    """Ask for a copy for each site whose rows differ; return what was asked for, or would be.

    A MERGE leaves rows that are there twice: then the whole table is asked for."""
    repairs = []
    for each in found:
        if not each.rows_differ:
            continue
        difference = bool(topology.table(each.table).keys) and not each.has_twins
        try:
            by = most_trusted(serving_sites(topology, each.table, each.site))
            if not dry_run:
                request_copy(
                    topology,
                    each.table,
                    each.site,
                    by=by.sender.site,
                    full=True,
                    difference=difference,
                )
        except WanError as error:
            repairs.append(Repair(each.table, each.site, problem=str(error), dry_run=dry_run))
            continue
        repairs.append(Repair(each.table, each.site, by.stream, difference, dry_run=dry_run))
    return repairs
