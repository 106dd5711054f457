"""Dead letters in an operator's hands: which there are, at the site and at those that it sends to,
and what becomes of them. No Spark, but ``deltalake`` to read those of the site."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from spark_wan.channels.parallel import in_order
from spark_wan.channels.registry import open_channel
from spark_wan.control.verbs import who
from spark_wan.errors import OptionError, WanError
from spark_wan.events.dead_letters import ID_EXPIRED, ID_USED_AGAIN
from spark_wan.ledger.dead_letters import letters_and_copies
from spark_wan.log.stream_log import StreamLog
from spark_wan.log.trust import StreamTrust
from spark_wan.messages import message_log
from spark_wan.state.handled import HandledLetters
from spark_wan.status.reports import exists
from spark_wan.sync.request import most_trusted, request_copy, serving_sites
from spark_wan.topology.model import Stream, Topology, copied_stream
from spark_wan.topology.routes import Serving, all_streams
from spark_wan.topology.signing import receiving_trust, sending_trust
from spark_wan.units import milliseconds
from spark_wan.wire.handled import DISCARDED, REPLAYED, SUPERSEDED, Handled, LetterKey
from spark_wan.wire.ledger import DeadLetter
from spark_wan.wire.refused import RefusedEvents

log = message_log(__name__)

LONG_ROW = "(long: only the ledger of the site has it)"
"""In place of a row that was not sent back."""


def key_of(letter: DeadLetter) -> LetterKey:
    return letter.side, letter.stream, letter.event_id


@dataclass(frozen=True)
class Letter:
    """A dead letter, and what was done about it."""

    letter: DeadLetter
    handled: Handled | None
    """None: nothing; it is *open*. If the ledger shows that it needs nothing any more, it is
    ``superseded``, by nobody."""
    site: str = ""
    """The site that has it, and has told the sender of its stream; empty: the site that was asked
    about."""

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


@dataclass(frozen=True)
class Chosen:
    """Which dead letters are meant.

    Args:
        table: Only those of this table.
        since: Only those that were recorded since, in milliseconds since 1970 UTC, or by an
            earlier version, which did not note the time.
        cause: Only those whose cause has this text.
        events: Only those with one of these event IDs.
        handled: Also those about which something was done.
    """

    table: str | None = None
    since: int | None = None
    cause: str | None = None
    events: Collection[str] = ()
    handled: bool = False

    def has(self, each: Letter) -> bool:
        letter = each.letter
        return (
            self.table in (None, letter.table)
            and (self.handled or each.handled is None)
            and (self.since is None or letter.at is None or letter.at >= self.since)
            and (self.cause is None or self.cause.lower() in letter.cause.lower())
            and (not self.events or letter.event_id in self.events)
        )


ALL = Chosen()


def letters(topology: Topology, site: str, chosen: Chosen = ALL) -> list[Letter]:
    """Return the dead letters of a site, by table, stream and version. A sender's are at its own
    site.

    Raises:
        TopologyError: the topology has no such site or table.
        LedgerError, ChannelError: the ledger or the state cannot be read.
        WanError: ``deltalake`` is not installed.
    """
    there = letters_and_copies(topology, site, chosen.table)
    found = with_what_was_done(there, _handled(topology, site).load())
    return [each for each in found if chosen.has(each)]


@dataclass(frozen=True)
class Reported:
    """What sites could not apply of what a site sends to them, as they have told it."""

    letters: list[Letter]
    """The newest open ones of each stream and site."""
    more: int
    """Number of others, at least. The ledgers of the sites have them."""
    problems: list[str]
    """Why something cannot be told."""


def reported(topology: Topology, site: str, chosen: Chosen = ALL) -> Reported:
    """Return the dead letters that other sites have of what a site sends to them.

    Raises TopologyError: the topology has no such site or table.
    """
    topology.site(site)
    name = None if chosen.table is None else topology.table(chosen.table).name
    links = [
        (stream, remote)
        for stream in all_streams(topology)
        if stream.sender.site == site and name in (None, stream.table.name)
        for remote in stream.addressees
    ]

    def read(link: tuple[Stream, str]) -> RefusedEvents | str | None:
        stream, remote = link
        sender = stream.sender
        try:
            if not exists(sender.channel):
                return f"{sender.channel} is not there: its file system is not mounted here?"
            channel = open_channel(sender.channel, sender.storage)
            return StreamLog(channel, stream.name, sending_trust(topology, sender)).refused(remote)
        except WanError as error:
            return str(error)

    found, more, problems = list[Letter](), 0, dict[str, None]()
    for (stream, remote), told in zip(links, in_order(read, links), strict=True):
        if isinstance(told, str):
            problems[told] = None
        elif told is not None:
            found += _letters_of(told, stream, remote)
            more += told.open - len(told.events)
    return Reported([each for each in found if chosen.has(each)], more, [*problems])


def _letters_of(told: RefusedEvents, stream: Stream, site: str) -> list[Letter]:
    return [
        Letter(
            DeadLetter(
                "receiver",
                stream.table.name,
                stream.name,
                each.event_id,
                each.origin_version,
                operation=each.operation,
                key=each.key,
                cause=each.cause,
                row=LONG_ROW if each.row is None else each.row,
                payload=None,
                at=each.at,
            ),
            None,
            site,
        )
        for each in told.events
    ]


def open_of(found: Iterable[Letter], stream: str) -> list[DeadLetter]:
    """Return what a site tells the sender of a stream: its open dead letters, and those of copies
    of its table, the newest first."""
    chosen = [
        each.letter
        for each in found
        if each.handled is None
        and each.letter.side == "receiver"
        and (each.letter.stream == stream or copied_stream(each.letter.stream) is not None)
    ]
    return sorted(chosen, key=lambda each: (each.at or 0, each.origin_version), reverse=True)


def with_what_was_done(
    found: Sequence[tuple[DeadLetter, bool]], done: Mapping[LetterKey, Handled]
) -> list[Letter]:
    """Return dead letters with what was done about them. The given ones have whether a copy of
    their table has come since: it has their rows as they should be."""
    newest: dict[tuple[str, str], int] = {}
    for letter, _ in found:
        if (row := _row_of(letter)) is not None:
            newest[row] = max(letter.origin_version, newest.get(row, letter.origin_version))

    def state(letter: DeadLetter, is_copied: bool) -> Handled | None:
        row = _row_of(letter)
        if (said := _done_about(letter, done)) is not None:
            return said
        if is_copied:
            return _superseded(letter, "a copy of the table has come since")
        if row is not None and letter.origin_version < newest[row]:
            return _superseded(letter, "a later event of the row was refused, too")
        return None

    return [Letter(letter, state(letter, is_copied)) for letter, is_copied in found]


def _row_of(letter: DeadLetter) -> tuple[str, str] | None:
    """Return stream and key of the row that the target refused; None: it has no key, or the row is
    not why the event is a dead letter here."""
    if letter.side != "receiver" or letter.cause in (ID_USED_AGAIN, ID_EXPIRED):
        return None
    return None if letter.key is None else (letter.stream, letter.key)


def _superseded(letter: DeadLetter, why: str) -> Handled:
    return Handled(SUPERSEDED, "", 0, why, (key_of(letter),))


def _done_about(letter: DeadLetter, done: Mapping[LetterKey, Handled]) -> Handled | None:
    """Return what was done about a letter. One that was recorded later is another one: an event
    that was refused again."""
    handled, at = done.get(key_of(letter)), letter.at
    return handled if handled is None or at is None or at <= handled.at else None


def discard(topology: Topology, site: str, chosen: Sequence[Letter], why: str = "") -> None:
    """Note that nothing is to be done about some dead letters of a site. They stay in the ledger,
    and are listed no more. Raises OptionError, TopologyError, ChannelError."""
    _check_here(site, chosen)
    _record(topology, site, DISCARDED, chosen, why)


def replay(topology: Topology, site: str, chosen: Sequence[Letter]) -> list[Replay]:
    """Have a site get what the rows of some dead letters should be: by a copy of each of their
    tables, which changes only the rows that differ, if the table has keys. So a later event of the
    same row is never undone, and the cause has to be mended before. The copy replaces rows of the
    site's own, too.

    Raises:
        OptionError: a letter is of the sender of this site: change the row at the source; or it is
            at another site.
        TopologyError, ChannelError: no site serves such a copy; it cannot be asked for.
    """
    _check_here(site, chosen)
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
        # By the later of both clocks: a letter that is recorded later is another one.
        at = max(milliseconds(), *(each.letter.at or 0 for each in chosen))
        entry = Handled(what, who(), at, why, keys)
        _handled(topology, site).add(entry)
        _tell_senders(topology, site, chosen)


def _check_here(site: str, chosen: Sequence[Letter]) -> None:
    elsewhere = [each for each in chosen if each.site not in ("", site)]
    if elsewhere:
        raise OptionError(
            f"dead-letters: {elsewhere[0].letter.event_id} is a dead letter of site "
            f"{elsewhere[0].site}: give --site {elsewhere[0].site}, where its ledger can be read."
        )


def _tell_senders(topology: Topology, site: str, chosen: Sequence[Letter]) -> None:
    """Take dead letters about which something was done out of what the site has told the senders.
    With its next one it tells them anew."""
    tables = {each.letter.table for each in chosen if each.letter.side == "receiver"}
    trusts: dict[str, Callable[[str], StreamTrust]] = {}
    of_table = cache(lambda table: letters(topology, site, Chosen(table)))  # reads the ledger
    for stream in all_streams(topology):
        if stream.table.name not in tables or site not in stream.addressees:
            continue
        url = stream.sender.channel
        try:
            if url not in trusts:
                trusts[url] = receiving_trust(topology, site, url)
            if not exists(url):
                continue
            channel = open_channel(url, stream.sender.storage)
            told = StreamLog(channel, stream.name, trusts[url](stream.name))
            if told.refused(site) is not None:
                left = open_of(of_table(stream.table.name), stream.name)
                told.put_refused(RefusedEvents.of_letters(site, stream.name, left, milliseconds()))
        except WanError as error:
            log.warning(
                "%s: its sender is not told that something was done about dead letters: %s",
                stream.name,
                error,
                event="not-told",
                stream=stream.name,
                cause=str(error),
                what_to_do="It lists them until there is another one.",
            )


def _handled(topology: Topology, site: str) -> HandledLetters:
    here = topology.site(site)
    return HandledLetters(here.state, here.storage)
