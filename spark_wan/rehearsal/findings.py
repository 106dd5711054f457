"""What a check of links before their start has found: verdicts, their order, and their text."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

from spark_wan.errors import WanError, may_pass


class Verdict(str, Enum):
    """What a finding comes to."""

    OK = "ok"
    """Nothing is in the way."""
    UNKNOWN = "unknown"
    """It cannot be seen from here."""
    WARNING = "warning"
    """The stream starts, and somebody should know this."""
    FAILED = "failed"
    """A job would hold the stream, or not start."""


_WORST_LAST = tuple(Verdict)

STATE, CHANNEL, SOURCE, TARGET = "state", "channel", "source", "target"
CHECKS = {
    STATE: ("state", "control", "decisions", "signing keys"),
    CHANNEL: ("channel", "streams", "write", "clock"),
    SOURCE: ("start", "keys", "rows", "retention", "pause", "end", "hold"),
    TARGET: ("table", "stream", "columns", "constraints", "keys", "rows", "hold"),
}
"""The checks of each kind of part, in their order."""


@dataclass(frozen=True)
class Finding:
    """One thing that was checked."""

    check: str
    """One of :data:`CHECKS`."""
    verdict: Verdict
    text: str
    """What was seen; if that is not in order, what to do."""


@dataclass(frozen=True)
class Part:
    """A part of a link: the state of a site, a channel, the source of a stream, or a target."""

    kind: str
    """``state``, ``channel``, ``source`` or ``target``."""
    name: str
    """The site, the channel's URL, the stream, or the table."""
    site: str | None
    """None: a channel is of no site."""
    place: str
    """Directory, URL or catalog name."""
    findings: tuple[Finding, ...]

    @cached_property
    def verdict(self) -> Verdict:
        return worst(each.verdict for each in self.findings)


@dataclass(frozen=True)
class LinkCheck:
    """A link: a stream, and a site that it is sent to."""

    stream: str
    table: str
    from_site: str
    """The site that sends; another one than the writer if the stream is forwarded."""
    site: str
    """The site that receives."""
    parts: tuple[Part, ...]
    """All that the link needs. Links share parts."""

    @cached_property
    def verdict(self) -> Verdict:
        return worst(each.verdict for each in self.parts)


@dataclass(frozen=True)
class Preflight:
    """What was found of all links that were checked."""

    links: tuple[LinkCheck, ...]

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """The parts of all links, each once."""
        return tuple(dict.fromkeys(part for link in self.links for part in link.parts))

    @cached_property
    def verdict(self) -> Verdict:
        return worst(each.verdict for each in self.links)


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the worst verdict: failed, then warning, then unknown.

    >>> worst([Verdict.UNKNOWN, Verdict.OK]).value
    'unknown'
    """
    return max(verdicts, key=_WORST_LAST.index, default=Verdict.OK)


def ok(check: str, text: str) -> Finding:
    return Finding(check, Verdict.OK, text)


def warning(check: str, text: str) -> Finding:
    return Finding(check, Verdict.WARNING, text)


def unknown(check: str, text: str) -> Finding:
    return Finding(check, Verdict.UNKNOWN, text)


def failed(check: str, error: WanError | str, is_here: bool = True) -> Finding:
    """Return the finding that an error comes to. ``is_here``: it is about what must be within
    reach; else what may be out of reach from here alone is unknown."""
    out_of_reach = isinstance(error, WanError) and may_pass(error)
    verdict = Verdict.UNKNOWN if out_of_reach and not is_here else Verdict.FAILED
    return Finding(check, verdict, str(error))
