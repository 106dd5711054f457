"""Dead letters in an operator's hands: which there are, and what becomes of them. No Spark, but
``deltalake`` to read them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from spark_wan.control.verbs import who
from spark_wan.errors import OptionError
from spark_wan.ledger.dead_letters import dead_letters
from spark_wan.state.handled import HandledLetters
from spark_wan.sync.request import most_trusted, request_copy, serving_sites
from spark_wan.topology.model import Topology
from spark_wan.topology.routes import Serving
from spark_wan.units import milliseconds
from spark_wan.wire.handled import DISCARDED, REPLAYED, Handled, LetterKey
from spark_wan.wire.ledger import DeadLetter


def key_of(letter: DeadLetter) -> LetterKey:
    return letter.side, letter.stream, letter.event_id


@dataclass(frozen=True)
class Letter:
    """A dead letter, and what was done about it."""

    letter: DeadLetter
    handled: Handled | None
    """None: nothing; it is *open*."""

    @property
    def key(self) -> LetterKey:
        return key_of(self.letter)


@dataclass(frozen=True)
class Replay:
    """A copy that was asked for in place of dead letters."""

    table: str
    by: Serving
    """Who was asked for it."""
    difference: bool
    """The site writes only the rows that differ."""
    letters: int


def letters(
    topology: Topology,
    site: str,
    *,
    table: str | None = None,
    since: int | None = None,
    cause: str | None = None,
    events: Collection[str] = (),
    handled: bool = False,
) -> list[Letter]:
    """Return the dead letters of a site, by table, stream and version.

    Args:
        topology: Says where the site's state is.
        site: The site that has them: a sender's are at its own site.
        table: Only those of this table.
        since: Only those that were recorded since, in milliseconds since 1970 UTC, or by an
            earlier version, which did not note the time.
        cause: Only those whose cause has this text.
        events: Only those with one of these event IDs.
        handled: Also those about which something was done.

    Raises:
        TopologyError: the topology has no such site or table.
        LedgerError, ChannelError: the ledger or the state cannot be read.
        WanError: ``deltalake`` is not installed.
    """
    done = _handled(topology, site).load()
    found = [Letter(each, _done_about(each, done)) for each in dead_letters(topology, site, table)]
    return [
        each
        for each in found
        if (handled or each.handled is None)
        and (since is None or each.letter.at is None or each.letter.at >= since)
        and (cause is None or cause.lower() in each.letter.cause.lower())
        and (not events or each.letter.event_id in events)
    ]


def _done_about(letter: DeadLetter, done: Mapping[LetterKey, Handled]) -> Handled | None:
    """Return what was done about a letter. One that was recorded later is another one: an event
    that was refused again."""
    handled, at = done.get(key_of(letter)), letter.at
    return handled if handled is None or at is None or at <= handled.at else None


def discard(topology: Topology, site: str, chosen: Sequence[Letter], why: str = "") -> None:
    """Note that nothing is to be done about some dead letters. They stay in the ledger, and are
    listed no more. Raises TopologyError, ChannelError."""
    _record(topology, site, DISCARDED, chosen, why)


def replay(topology: Topology, site: str, chosen: Sequence[Letter]) -> list[Replay]:
    """Have a site get what the rows of some dead letters should be: by a copy of each of their
    tables, which changes only the rows that differ, if the table has keys. So a later event of the
    same row is never undone, and the cause has to be mended before. The copy replaces rows of the
    site's own, too.

    Raises:
        OptionError: a letter is of the sender of this site: change the row at the source.
        TopologyError, ChannelError: no site serves such a copy; it cannot be asked for.
    """
    sent = [each for each in chosen if each.letter.side == "sender"]
    if sent:
        raise OptionError(
            f"dead-letters: {sent[0].letter.event_id} could not be sent: mend its row in "
            f"{sent[0].letter.table} at {site}, which sends it, and discard the letter."
        )
    counts = Counter(each.letter.table for each in chosen)
    # All of them first: nothing is asked for if one is not served.
    serving = {
        table: most_trusted(serving_sites(topology, table, site)) for table in sorted(counts)
    }
    done = []
    for table, by in serving.items():
        keyed, count = bool(topology.table(table).keys), counts[table]
        request_copy(topology, table, site, by=by.sender.site, full=True, difference=keyed)
        done.append(Replay(table, by, keyed, count))
        of_table = [each for each in chosen if each.letter.table == table]
        _record(topology, site, REPLAYED, of_table, f"by a copy from {by.sender.site}")
    return done


def _record(topology: Topology, site: str, what: str, chosen: Sequence[Letter], why: str) -> None:
    if chosen:
        keys = tuple(each.key for each in chosen)
        entry = Handled(what, who(), milliseconds(), why, keys)
        _handled(topology, site).add(entry)


def _handled(topology: Topology, site: str) -> HandledLetters:
    here = topology.site(site)
    return HandledLetters(here.state, here.storage)
