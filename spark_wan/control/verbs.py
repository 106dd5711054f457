"""``pause`` and ``resume``: what people ask of the streams that a site sends. No Spark."""

from __future__ import annotations

import getpass
import os
import socket
from dataclasses import dataclass, replace

from spark_wan.control.enforce import Controlled, Enforcer, controlled
from spark_wan.errors import OptionError, TopologyError
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
    enforcer = Enforcer(topology, here.name, log)
    least, rules = enforcer.rebuilt()

    def decide(generation: int, control: Control) -> Control | None:
        is_lost = generation == least + 1 and log.read()[0] < least
        if is_lost:  # what the channels say was asked for
            control = replace(control, rules=rules)
        following = control.following(
            verb, scope, generation=generation, by=_who(), at=milliseconds(), capture=capture
        )
        return following if is_lost or following.meaning != control.meaning else None

    changed = log.add(decide, least)
    enforcer.enforce()
    names = tuple(each.stream for each in streams if not each.is_copy)
    return ControlAnswer(verb, here.name, names, changed, generation=log.read()[0])


def _who() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # in a container, a user may have no name
        user = str(os.getuid())
    return f"{user} at {socket.gethostname()}"


def _streams(topology: Topology, site: str, scope: Scope) -> list[Controlled]:
    """Return the streams of a scope. Raises TopologyError where there are none."""
    if scope.sender is not None:
        topology.sender_at(site, scope.sender)
    if scope.table is not None:
        topology.table(scope.table)
    streams = [*controlled(topology, site, scope)]
    if all(each.is_copy for each in streams):
        what = f"table {scope.table}" if scope.table is not None else "anything"
        by = f"sender {scope.sender}" if scope.sender is not None else f"site {site}"
        raise TopologyError(f"{topology.file}: {by} does not send {what}.")
    return streams
