"""``undo``: takes back what versions of a table did, by one ordinary commit of its writer."""

from __future__ import annotations

from typing import Annotated

import typer

import spark_wan
from spark_wan.cli.launcher import session_of
from spark_wan.cli.options import TableOptions, takes
from spark_wan.cli.output import reporting_errors
from spark_wan.sync.undone import parse_versions, undoable_table
from spark_wan.topology.parsing import load_topology


@takes(TableOptions)
def undo(
    options: TableOptions,
    versions: Annotated[
        str, typer.Option("--versions", metavar="A-B", help="Undo these versions of the table.")
    ],
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Set back keys that were changed again since, too. They lose that."
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be done, and write nothing.")
    ] = False,
) -> None:
    """Undo versions of a table at the site that writes it, by one commit, which is replicated.

    Each key that these versions have changed gets the row that it had before. Refused if one was
    changed again since."""
    with reporting_errors(options.output) as out:
        first, last = parse_versions(versions)
        topology = load_topology(options.config)
        undoable_table(topology, options.table)  # before Spark takes its time to start
        with session_of("undo", options) as spark:
            done = spark_wan.undo(
                spark,
                topology,
                options.table,
                first,
                last,
                force=force,
                dry_run=dry_run,
                limit=options.limit,
            )
        out.undone(done, dry_run)
