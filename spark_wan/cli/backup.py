"""``backup`` and ``adopt``: a copy of a table that is carried by hand."""

from __future__ import annotations

from typing import Annotated

import typer

from spark_wan.cli.launcher import run_with_session
from spark_wan.cli.options import SessionOptions, takes
from spark_wan.cli.output import reporting_errors
from spark_wan.sync.backup import adopting_streams, backed_up_table
from spark_wan.topology.parsing import load_topology

_DryRun = Annotated[bool, typer.Option("--dry-run", help="Make all checks, and write nothing.")]


@takes(SessionOptions)
def backup(
    options: SessionOptions,
    table: Annotated[str, typer.Option("--table", metavar="TABLE", help="Back up this table.")],
    to: Annotated[
        str,
        typer.Option(
            "--to", metavar="PLACE", help="Write to this directory or URL. Nothing is there yet."
        ),
    ],
    dry_run: _DryRun = False,
) -> None:
    """Back up a table of a site while writes go on.

    Writes the rows of one version as a Delta table, and a certificate that says what they are.
    `spark-wan adopt` gives them to another site."""
    with reporting_errors(options.output) as out:
        topology = load_topology(options.config)
        from spark_wan.backup.job import make_backup, plan_backup

        backed_up_table(topology, table, options.site)  # before Spark takes its time to start
        arguments = (topology, table, options.site, to)
        if dry_run:
            cut = run_with_session("backup", options, out, lambda s: plan_backup(s, *arguments))
            out.backup_planned(table, options.site, to, cut)
            return
        made = run_with_session("backup", options, out, lambda s: make_backup(s, *arguments))
        out.backup_made(made, to)


@takes(SessionOptions)
def adopt(
    options: SessionOptions,
    table: Annotated[str, typer.Option("--table", metavar="TABLE", help="Replace this table.")],
    place: Annotated[
        str, typer.Option("--from", metavar="PLACE", help="The directory or URL of the backup.")
    ],
    dry_run: _DryRun = False,
) -> None:
    """Put the rows of a backup in place of all that a site has of a table, in one commit.

    The streams of the table go on behind it. The site's receiver may run."""
    with reporting_errors(options.output) as out:
        topology = load_topology(options.config)
        from spark_wan.backup.job import adopt_backup, plan_adoption

        adopting_streams(topology, table, options.site)
        arguments = (topology, table, options.site, place)
        do = plan_adoption if dry_run else adopt_backup
        adoption = run_with_session("adopt", options, out, lambda s: do(s, *arguments))
        out.backup_adopted(adoption, options.site, place, dry_run)
