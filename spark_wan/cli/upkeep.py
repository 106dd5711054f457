"""``remove``: what is left of streams that a topology does not have any more, or whose log is to
begin anew. Needs no Spark."""

from __future__ import annotations

from typing import Annotated

import typer

from spark_wan.channels.registry import open_channel
from spark_wan.cli.options import Config, Format, OutputFormat
from spark_wan.cli.output import reporting_errors
from spark_wan.errors import TopologyError
from spark_wan.log.notes import ack_versions
from spark_wan.topology.model import Topology
from spark_wan.topology.parsing import load_topology
from spark_wan.topology.routes import all_streams


def remove(
    stream: Annotated[
        str, typer.Argument(metavar="STREAM", help="Name of the stream, as `status` shows it.")
    ],
    config: Config,
    begin_anew: Annotated[
        bool,
        typer.Option(
            "--begin-anew",
            help="Remove a stream that the topology has, so that its log begins anew. Stop its "
            "sender first. Sites lose what they have not applied.",
        ),
    ] = False,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Remove a stream that is no longer in the topology from its channel. Needs no Spark."""
    with reporting_errors(output) as out:
        topology = load_topology(config)
        channels = remove_stream(topology, stream, begin_anew)
        out.removed(stream, channels)


def remove_stream(topology: Topology, stream: str, begin_anew: bool = False) -> list[str]:
    """Remove a stream from all channels of a topology that have it; return their URLs.

    Raises TopologyError for a stream of the topology, unless ``begin_anew``, and for one that no
    channel has.
    """
    if not begin_anew and stream in (each.name for each in all_streams(topology)):
        raise TopologyError(
            f"{topology.file} has the stream {stream}: its sites need what the channel holds. "
            "Nothing was removed. Take its table or sender out of the topology first, and stop "
            "the jobs that still know it. Or, if its log is to begin anew, add --begin-anew."
        )
    found, others = [], set[str]()
    storage = {sender.channel: sender.storage for sender in topology.senders.values()}
    for url, options in sorted(storage.items()):
        channel = open_channel(url, options)
        names = {*channel.epochs(), *ack_versions(channel)}
        if stream in names:
            channel.remove(stream)
            found.append(url)
        others |= names
    if not found:
        raise TopologyError(
            f"no channel of {topology.file} has the stream {stream}. They have: "
            f"{', '.join(sorted(others)) or 'none'}."
        )
    return found
