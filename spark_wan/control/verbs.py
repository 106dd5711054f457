"""``pause`` and ``resume``: what people ask of the streams that a site sends. No Spark."""

from __future__ import annotations

import getpass
import socket
from dataclasses import dataclass

from spark_wan.channels.registry import open_channel
from spark_wan.control.enforce import Controlled, controlled, enforce
from spark_wan.errors import OptionError, TopologyError
from spark_wan.log.notes import last_pause, pauses
from spark_wan.state.control import ControlLog
from spark_wan.topology.model import Topology
from spark_wan.units import milliseconds
from spark_wan.wire.control import PAUSE, RESUME, Control, Scope


@dataclass(frozen=True)
class ControlAnswer:
    """What a verb has found and done."""

    verb: str
    """``pause`` or ``resume``."""
    site: str
    streams: tuple[str, ...]
    """Those that the verb was about, without those of copies."""
    changed: bool
    """False: all of them were already as the verb wants them."""
    generation: int
    """The number of the newest entry in the control log of the site."""


def pause(
    topology: Topology,
    site: str,
    *,
    sender: str | None = None,
    table: str | None = None,
    capture: bool = False,
) -> ControlAnswer:
    """Have no site take anything of the streams that a site sends, until they are resumed.

    What a site has begun to apply, it applies. The sender goes on to add to the channel, so that
    the source need not keep its history for the pause. It holds across restarts, wherever the jobs
    run, and for streams that are added to the topology later.

    Args:
        topology: Who sends what to whom.
        site: The site that sends, also what it forwards.
        sender: Only of this sender; default: of all of the site.
        table: Only of this table; default: of all.
        capture: Have the sender add nothing to the channel, either, within half a minute. The
            source must keep its history meanwhile.

    Raises:
        TopologyError: the site, the sender or the table is unknown, or there is no such stream.
        OptionError: ``capture`` where no stream is captured.
        ChannelError, LedgerError: a channel or the state of the site cannot be read or written.

    Example::

        spark_wan.pause(topology, "newark", table="orders")
        ...
        spark_wan.resume(topology, "newark", table="orders")
    """
    return _ask(PAUSE, topology, site, Scope(sender, table), capture)


def resume(
    topology: Topology, site: str, *, sender: str | None = None, table: str | None = None
) -> ControlAnswer:
    """Have the sites go on to take what a site sends: the opposite of :func:`pause`, with the same
    arguments and errors. Harmless for streams that are not paused."""
    return _ask(RESUME, topology, site, Scope(sender, table))


def _ask(
    verb: str, topology: Topology, site: str, scope: Scope, capture: bool = False
) -> ControlAnswer:
    here = topology.site(site)
    streams = _streams(topology, here.name, scope)
    if capture and not any(each.captured for each in streams):
        raise OptionError(
            f"pause: no sender captures {', '.join(sorted({each.table.name for each in streams}))} "
            f"at site {site}: a query of yours writes it, or it is forwarded. Stop the query; or "
            "pause without capture."
        )
    log = ControlLog(here.state, here.storage)

    def decide(generation: int, control: Control) -> Control | None:
        if all(_is_as_wanted(control, each, verb, capture) for each in streams):
            return None
        by = f"{getpass.getuser()} at {socket.gethostname()}"
        return control.following(
            verb, scope, generation=generation, by=by, at=milliseconds(), capture=capture
        )

    changed = log.add(decide, least=_newest_generation(streams))
    enforce(topology, here.name, log)
    names = tuple(each.stream for each in streams if not each.is_copy)
    return ControlAnswer(verb, here.name, names, changed, generation=log.read()[0])


def _is_as_wanted(control: Control, each: Controlled, verb: str, capture: bool) -> bool:
    rule = control.pause_of(each.sender.name, each.table.name)
    return (rule is None) if verb == RESUME else (rule is not None and rule.capture == capture)


def _streams(topology: Topology, site: str, scope: Scope) -> list[Controlled]:
    """Return the streams of a scope. Raises TopologyError where there are none."""
    if scope.sender is not None and topology.sender(scope.sender).site != site:
        raise TopologyError(
            f"{topology.file}: senders.{scope.sender} runs at site "
            f"{topology.sender(scope.sender).site}, not at {site}."
        )
    if scope.table is not None:
        topology.table(scope.table)
    streams = [*controlled(topology, site, scope)]
    if not any(not each.is_copy for each in streams):
        what = f"table {scope.table}" if scope.table is not None else "anything"
        by = f"sender {scope.sender}" if scope.sender is not None else f"site {site}"
        raise TopologyError(f"{topology.file}: {by} does not send {what}.")
    return streams


def _newest_generation(streams: list[Controlled]) -> int:
    """Return the highest generation that the channels know of: the control log may be lost."""
    newest = 0
    for url, sender in {each.sender.channel: each.sender for each in streams}.items():
        channel = open_channel(url, sender.storage)
        for name in pauses(channel).keys() & {each.stream for each in streams}:
            known = last_pause(channel, name)
            newest = max(newest, known.generation if known is not None else 0)
    return newest
