"""``pause``, ``resume``, ``drain``, ``stop``, ``clean``: what people ask of the streams that a site
sends. Need no Spark."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import Annotated

import typer

from spark_wan.cli.options import Config, Format, OutputFormat, confirm, parsed
from spark_wan.cli.output import describe_waiting, reporting_errors
from spark_wan.control import verbs
from spark_wan.topology.parsing import load_topology
from spark_wan.units import parse_seconds

Site = Annotated[str, typer.Option("--site", metavar="SITE", help="What this site sends.")]
Sender = Annotated[
    str | None,
    typer.Option("--sender", metavar="SENDER", help="Only this sender of it. Default: all."),
]
Table = Annotated[
    str | None, typer.Option("--table", metavar="TABLE", help="Only this table. Default: all.")
]

NOT_ARRIVED = 3
"""The exit code where a wait has ended before all sites have everything."""


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


def drain(
    config: Config,
    site: Site,
    sender: Sender = None,
    table: Table = None,
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout",
            parser=parsed(partial(parse_seconds, zero=True)),
            metavar="TIME",
            help="Wait so long at most: 30s, 10m. What has not arrived by then still does.",
        ),
    ] = 600.0,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Send what is committed now, then nothing more until it is resumed; wait until all sites have
    it. Exits with 3 if they do not in time. Needs no Spark, but running jobs."""
    with reporting_errors(output) as out:
        topology = load_topology(config)
        with out.ending() as show:
            answer = verbs.drain(
                topology, site, sender=sender, table=table, timeout=timeout, progress=show
            )
        out.controlled(answer)
    if not answer.arrived:
        raise typer.Exit(NOT_ARRIVED)


def stop(
    config: Config,
    site: Site,
    at: Annotated[
        str,
        typer.Option(
            "--at",
            metavar="VERSION|TIME",
            help="The last version that is sent, with --table; or a time, such as "
            "2026-03-01T22:05:00Z: the last commit until then is the last one that is sent.",
        ),
    ],
    sender: Sender = None,
    table: Table = None,
    timeout: Annotated[
        float | None,
        typer.Option(
            "--timeout",
            parser=parsed(partial(parse_seconds, zero=True)),
            metavar="TIME",
            help="Wait so long until all sites have it, and exit with 3 if they do not. Default: "
            "do not wait.",
        ),
    ] = None,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Send everything through a version or a time, then nothing more until it is resumed. Needs no
    Spark."""
    with reporting_errors(output) as out:
        topology = load_topology(config)
        with out.ending() as show:
            answer = verbs.stop_at(
                topology,
                site,
                _version_or_time(at),
                sender=sender,
                table=table,
                timeout=timeout,
                progress=show,
            )
        out.controlled(answer)
    if not answer.arrived:
        raise typer.Exit(NOT_ARRIVED)


def clean(
    config: Config,
    site: Site,
    sender: Sender = None,
    table: Table = None,
    remote: Annotated[
        str | None,
        typer.Option("--remote", metavar="SITE", help="Only what waits for this site."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Drop what waits for other sites: they get copies of the tables instead. Needs no Spark."""
    with reporting_errors(output) as out:
        topology, which = load_topology(config), {"sender": sender, "table": table}
        found = verbs.waiting(topology, site, **which, remote=remote)
        if found:
            events = sum(each.events for each in found)
            places = "".join(f"\n  {describe_waiting(each)}" for each in found)
            confirm(
                "clean",
                yes,
                f"Drop {events:,} events that wait?{places}\nEach of these sites gets a copy of "
                "the table as it is then, if its `sync` and `auto_init` let it; until it has it, "
                "it takes nothing. Those events are not sent to it; the copy has what they did.",
            )
        out.controlled(verbs.clean(topology, site, **which, remote=remote, shown=found))


def _version_or_time(text: str) -> int | datetime:
    if text.isdecimal():
        return int(text)
    try:
        return datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        raise typer.BadParameter(
            f"--at {text!r} is neither a version nor a time such as 2026-03-01T22:05:00Z."
        ) from None
