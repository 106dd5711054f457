"""Asking for a copy: the request is an ack, in the log of the copy that does not exist yet."""

from __future__ import annotations

import uuid
from dataclasses import replace

from spark_wan.channels.registry import open_channel
from spark_wan.errors import TopologyError
from spark_wan.log.stream_log import StreamLog
from spark_wan.topology.model import Stream, Topology, copy_name
from spark_wan.topology.routes import streams_of
from spark_wan.topology.signing import receiving_trust
from spark_wan.wire.ack import Ack, Wanted


def serving_stream(topology: Topology, table: str, site: str) -> Stream:
    """Return the stream whose sender serves copies of a table to a site. Raises TopologyError."""
    found = topology.table(table)
    name = topology.site(site).name
    if name in found.writers:
        raise TopologyError(
            f"{topology.file}: site {name} writes table {found.name}, and gets no copy of it."
        )
    if name not in found.at:
        raise TopologyError(
            f"{topology.file}: table {found.name} is not at site {name}. Add it below `tables:` "
            f"with `at: {{{name}: …}}`."
        )
    if found.source != "table":
        raise TopologyError(
            f"{topology.file}: table {found.name} is written by a sink. There are no copies of "
            "such tables yet: write the events again, with their IDs, to a new stream."
        )
    for stream in streams_of(topology, found):
        if stream.inbound is None and name in stream.addressees:
            return stream
    raise TopologyError(
        f"{topology.file}: site {name} gets table {found.name} from a site that forwards it. There "
        "are no copies from such sites yet: give it a sender of its own at the site that writes "
        "the table."
    )


def request_copy(topology: Topology, table: str, site: str, *, difference: bool = False) -> str:
    """Ask for a copy of a table, in the name of a site. A second request replaces the first.
    ``difference``: of a table with keys, the site is to write only the rows that differ.

    Returns the name of the stream by which it comes. Raises TopologyError, ChannelError."""
    stream = serving_stream(topology, table, site)
    sender = stream.sender
    channel = open_channel(sender.channel, sender.storage)
    trust = receiving_trust(topology, site, sender.channel)
    needs = StreamLog(channel, stream.name, trust(stream.name)).ack(site)
    least = needs.needs.least if needs is not None and needs.needs is not None else ()
    name = copy_name(stream.name, site)
    copies = StreamLog(channel, name, trust(name))
    before = copies.ack(site) or Ack(site, name, log_id="", applied=0)
    wanted = Wanted(uuid.uuid4().hex, least, difference)
    copies.put_ack(replace(before, wanted=wanted, held=None, cause=None))
    return name
