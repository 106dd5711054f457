"""``decide``, ``withdraw`` and ``decisions``: what operators have decided about what holds a
stream. No Spark."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from spark_wan.control.verbs import who
from spark_wan.errors import OptionError
from spark_wan.state.decisions import StoredDecisions, parse_decisions
from spark_wan.status.reports import ChannelReport, exists, read_status
from spark_wan.topology.model import Topology
from spark_wan.units import milliseconds
from spark_wan.wire.decisions import Decisions, Entry


@dataclass(frozen=True)
class DecisionAnswer:
    """What became of a decision, or of its withdrawal."""

    table: str
    decision: str
    """As ``--decide`` takes it; of a withdrawal ``<table>@<version>`` or ``<table>@<log ID>``."""
    changed: bool
    """False: it was recorded before; of a withdrawal: there was nothing to take back."""
    early: bool = False
    """Nothing is held there now, as far as the channels show."""


@dataclass(frozen=True)
class RecordedDecision:
    """A decision that counts."""

    table: str
    decision: str
    """As ``--decide`` takes it."""
    by: str | None
    """Who decided; None: it was given to a job, or to an earlier version."""
    at_ms: int | None
    """When, in milliseconds since 1970 UTC; None: not known."""
    held: bool
    """Whether something is held there now that waits for it, as far as the channels show."""


def decide(
    topology: Topology, site: str, decisions: Iterable[str], *, early: bool = False
) -> list[DecisionAnswer]:
    """Record decisions about what holds streams at a site. Its jobs act on them with their next
    retry.

    Args:
        topology: Who sends what to whom.
        site: The site that holds the streams.
        decisions: As the message of the hold has them, ``orders@12=distribute``.
        early: Record them also where nothing is held yet.

    Raises:
        OptionError: a decision is not understood, or nothing is held there, and not ``early``.
            Then none is recorded.
        TopologyError: the site or a table is unknown.
        ChannelError, LedgerError: the state of the site cannot be read or written.
    """
    texts = [*decisions]
    parsed, stored = parse_decisions(texts), _stored(topology, site)
    reports = read_status(topology, site) if texts else []
    answers = _answers(topology, site, texts, stored, reports)
    for each in answers:
        if each.changed and each.early and not early:
            raise OptionError(f"decide: {each.decision}: {_why_early(reports, site, each.table)}")
    for table, decided in parsed.items():
        stored.record(table, decided, by=who(), at=milliseconds())
    return answers


def early_decisions(topology: Topology, site: str, decisions: Iterable[str]) -> list[str]:
    """Return those decisions about what is not held, that are not recorded yet. Raises as
    :func:`decide`, but for these."""
    texts = [*decisions]
    if not texts:
        return []
    reports = read_status(topology, site)
    answers = _answers(topology, site, texts, _stored(topology, site), reports)
    return [each.decision for each in answers if each.changed and each.early]


def _answers(
    topology: Topology,
    site: str,
    decisions: Iterable[str],
    stored: StoredDecisions,
    reports: Sequence[ChannelReport],
) -> list[DecisionAnswer]:
    """Return what would become of decisions."""
    answers = []
    for text in decisions:
        [(name, decided)] = parse_decisions([text]).items()
        before = stored.load(topology.table(name).name)
        is_new = before | decided != before
        answers.append(DecisionAnswer(name, text, is_new, not is_held(reports, site, text)))
    return answers


def withdraw(topology: Topology, site: str, places: Iterable[str]) -> list[DecisionAnswer]:
    """Take decisions back. What a job has done by them already stays done.

    Args:
        places: What was decided about: ``orders@12``, or ``orders@<log ID>``.

    Raises:
        OptionError: a place is not understood.
        TopologyError, ChannelError, LedgerError: as :func:`decide`.
    """
    asked = []
    for place in places:
        table, _, what = place.partition("=")[0].rpartition("@")
        if not table or not what:
            raise OptionError(
                f"decide: --withdraw {place!r} is not understood; write <table>@<version> or "
                "<table>@<log ID>."
            )
        asked.append((topology.table(table).name, what))
    stored, answers = _stored(topology, site), []
    for table, what in asked:
        taken = Decisions(withdrawn=frozenset((what,)))
        changed = stored.record(table, taken, by=who(), at=milliseconds())
        answers.append(DecisionAnswer(table, f"{table}@{what}", changed))
    return answers


def decisions(topology: Topology, site: str, table: str | None = None) -> list[RecordedDecision]:
    """Return the decisions of a site that count, by table, in the order of their versions.

    Raises TopologyError, ChannelError, LedgerError."""
    names = [*topology.tables] if table is None else [topology.table(table).name]
    stored, reports = _stored(topology, site), read_status(topology, site)
    found = []
    for name in names:
        for text, entry in _in_effect(stored.entries(name), name).items():
            held = is_held(reports, site, text)
            found.append(RecordedDecision(name, text, entry.by, entry.at or None, held))
    return found


def _in_effect(entries: Iterable[Entry], table: str) -> dict[str, Entry]:
    """Return the decisions that count, with the entries that made each of them count."""
    total, found = Decisions(), dict[str, Entry]()
    for entry in entries:
        total |= entry.decisions
        found = {text: found.get(text, entry) for text in total.texts(table)}
    return found


def is_held(reports: Iterable[ChannelReport], site: str, decision: str) -> bool:
    """Whether something is held at a site whose message offers a decision."""
    place, _, action = decision.partition("=")
    causes = [cause for cause in _causes(reports, site) if f" {place}=" in f" {cause}"]
    return any(re.search(rf"={re.escape(action)}\b", cause) for cause in causes)


def _causes(reports: Iterable[ChannelReport], site: str) -> Iterator[str]:
    """Yield why streams are held at a site, as a sender and as a receiver."""
    for channel in reports:
        for stream in channel.streams:
            if stream.from_site == site and stream.sender is not None and stream.sender.held:
                yield stream.sender.held
            for each in stream.sites:
                if each.site == site and each.cause is not None:
                    yield each.cause


def _why_early(reports: Sequence[ChannelReport], site: str, table: str) -> str:
    streams = [each for channel in reports for each in channel.streams if each.table == table]
    held = [*dict.fromkeys(_causes([ChannelReport("", tuple(streams))], site))]
    unread = [channel.url for channel in reports if channel.problem is not None]
    unread += [each.stream for each in streams if each.problem is not None]
    told = [f"nothing is held there at site {site}."]
    if held:
        told.append(f"What is held: {' '.join(held)}")
    if unread:
        told.append(f"{', '.join(unread)} cannot be read, so a hold there is not known.")
    told.append("If you mean what comes, add --early: it counts once it comes.")
    return " ".join(told)


def _stored(topology: Topology, site: str) -> StoredDecisions:
    here = topology.site(site)
    if not exists(here.state):  # to open it would create it, where no job reads it
        raise OptionError(
            f"decide: the state of site {site}, {here.state}, is not there. Run the command where "
            "the site's jobs run, or give it a `state` that both can reach."
        )
    return StoredDecisions(here.state, here.storage)
