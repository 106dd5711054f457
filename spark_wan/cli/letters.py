"""``dead-letters``: what a site could not apply or send, and what becomes of it. Needs no Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from spark_wan.cli.options import Config, Format, OutputFormat, confirm, parsed
from spark_wan.cli.output import reporting_errors
from spark_wan.errors import OptionError
from spark_wan.sync import letters as verbs
from spark_wan.sync.letters import Chosen, Letter
from spark_wan.topology.model import Topology
from spark_wan.topology.parsing import load_topology
from spark_wan.units import milliseconds, parse_seconds

app = typer.Typer(
    help="List, show, replay or discard what a site could not apply or send. Needs no Spark.",
    no_args_is_help=True,
)

_ALL = "`spark-wan dead-letters list --all` shows all that it has."

Site = Annotated[
    str, typer.Option("--site", metavar="SITE", help="The site that has the dead letters.")
]
Events = Annotated[
    list[str] | None,
    typer.Argument(metavar="[EVENT]...", help="Event IDs, as listed.", show_default=False),
]
Table = Annotated[
    str | None, typer.Option("--table", metavar="TABLE", help="Only those of this table.")
]
Cause = Annotated[
    str | None, typer.Option("--cause", metavar="TEXT", help="Only those with this in the cause.")
]


@app.command("list")
def list_letters(
    config: Config,
    site: Site,
    table: Table = None,
    since: Annotated[
        float | None,
        typer.Option(
            parser=parsed(parse_seconds), metavar="TIME", help="Only those of the last 30m, 2d …"
        ),
    ] = None,
    cause: Cause = None,
    handled: Annotated[
        bool, typer.Option("--all", help="Also those that were replayed or discarded.")
    ] = False,
    output: OutputFormat = Format.TEXT,
) -> None:
    """List them: by table, stream and version; and those that other sites have of what the site
    sends to them."""
    with reporting_errors(output) as out:
        moment = None if since is None else milliseconds() - int(since * 1000)
        topology = load_topology(config)
        chosen = Chosen(table, moment, cause=cause, handled=handled)
        here = verbs.letters(topology, site, chosen)
        out.letters(here, verbs.reported(topology, site, chosen))


@app.command()
def show(
    config: Config,
    site: Site,
    event: Annotated[str, typer.Argument(metavar="EVENT", help="The event ID, as listed.")],
    output: OutputFormat = Format.TEXT,
) -> None:
    """Show one in full, with its row; of an event that several sites refused, that of each."""
    with reporting_errors(output) as out:
        out.letter(_chosen(load_topology(config), site, [event], handled=True))


@app.command()
def replay(
    config: Config,
    site: Site,
    events: Events = None,
    table: Table = None,
    cause: Cause = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Have the site get what their rows should be, once the cause is mended: by a copy that changes
    only the rows that differ."""
    with reporting_errors(output) as out:
        topology = load_topology(config)
        chosen = _chosen(topology, site, events, table=table, cause=cause, handled=bool(events))
        tables = sorted({each.letter.table for each in chosen})
        confirm(
            "dead-letters",
            yes,
            f"Replay {_count(chosen)} by copies of {', '.join(tables)} to {site}? Its rows will be "
            "those of the site that writes the table: so rows go, or come, that differ on purpose, "
            "too, by a decision to skip, by local_only, or since a letter was discarded. To see "
            "which: `spark-wan verify`.",
        )
        out.replayed(verbs.replay(topology, site, chosen), site)


@app.command()
def discard(
    config: Config,
    site: Site,
    events: Events = None,
    table: Table = None,
    cause: Cause = None,
    why: Annotated[str, typer.Option("--why", metavar="TEXT", help="A remark, kept.")] = "",
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Note that nothing is to be done about them. They stay in the ledger."""
    with reporting_errors(output) as out:
        topology = load_topology(config)
        chosen = _chosen(topology, site, events, table=table, cause=cause, handled=bool(events))
        confirm("dead-letters", yes, f"Discard {_count(chosen)} of {site}? It is listed no more.")
        verbs.discard(topology, site, chosen, why)
        out.discarded(chosen)


def _chosen(
    topology: Topology,
    site: str,
    events: list[str] | None,
    *,
    table: str | None = None,
    cause: str | None = None,
    handled: bool = False,
) -> list[Letter]:
    """Return the letters that are meant. Raises OptionError: there is none, or none is named."""
    if not events and table is None and cause is None:
        raise OptionError("dead-letters: name events, a --table or a --cause.")
    which = Chosen(table, cause=cause, handled=handled)
    there = verbs.letters(topology, site, which)
    if events:
        there += verbs.reported(topology, site, which).letters
    named = [_named(there, each, site) for each in dict.fromkeys(events or ())]
    found = [each for letters in named for each in letters] if events else there
    if not found:
        raise OptionError(f"dead-letters: site {site} has no such dead letter. {_ALL}")
    return found


def _named(there: Sequence[Letter], event: str, site: str) -> list[Letter]:
    """Return the letters of the event whose ID begins so: those of the site, or else those of other
    sites. An event may be refused at several, and again."""
    found = [each for each in there if each.letter.event_id.startswith(event)]
    exact = [each for each in found if each.letter.event_id == event]
    if not found:
        raise OptionError(f"dead-letters: site {site} has no dead letter {event}. {_ALL}")
    chosen = [each for each in exact or found if not each.site] or exact or found
    places = {(each.letter.event_id, each.letter.table) for each in chosen}
    if len(places) > 1:
        raise OptionError(
            f"dead-letters: site {site} has {len(places)} dead letters {event}: name more of the "
            "event ID, or the --table."
        )
    return chosen


def _count(chosen: Sequence[Letter]) -> str:
    return f"{len(chosen)} dead {'letter' if len(chosen) == 1 else 'letters'}"
