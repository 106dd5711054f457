"""Verdicts, which of them counts, and which links are checked."""

from __future__ import annotations

import pytest
from topologies import topology

from spark_wan.errors import SOURCE, HistoryLostError, SourceError, TopologyError
from spark_wan.errors import SourceUnreadableError as Unreadable
from spark_wan.rehearsal.findings import (
    Finding,
    LinkCheck,
    Part,
    Preflight,
    Verdict,
    failed,
    ok,
    unknown,
    warning,
    worst,
)
from spark_wan.rehearsal.scope import Scope


def part(name: str, *findings: Finding) -> Part:
    return Part("state", name, name, f"/{name}", findings)


def link(site: str, *parts: Part) -> LinkCheck:
    return LinkCheck("newark.east.orders", "orders", "newark", site, parts)


def test_a_failure_counts_before_a_warning_and_that_before_what_is_not_known() -> None:
    order = [Verdict.OK, Verdict.UNKNOWN, Verdict.WARNING, Verdict.FAILED]
    for number, verdict in enumerate(order):
        assert worst(order[: number + 1]) is worst(reversed(order[: number + 1])) is verdict
    assert worst(()) is Verdict.OK


def test_a_link_is_as_good_as_the_worst_of_its_parts_which_others_may_share() -> None:
    newark = part("newark", ok("state", "seen"), warning("control", "odd"))
    found = Preflight(
        (
            link("seattle", newark, part("seattle", ok("state", "seen"))),
            link("denver", newark, part("denver", failed("state", "gone"))),
            link("tacoma", part("tacoma", unknown("state", "far"), ok("control", "seen"))),
        )
    )
    assert [each.verdict.value for each in found.links] == ["warning", "failed", "unknown"]
    assert [each.name for each in found.parts] == ["newark", "seattle", "denver", "tacoma"]
    assert found.verdict is Verdict.FAILED


@pytest.mark.parametrize(
    ("error", "is_here", "verdict"),
    [
        (Unreadable("throttled"), True, Verdict.FAILED),
        (Unreadable("throttled"), False, Verdict.UNKNOWN),
        (Unreadable("a file is gone", needs=SOURCE), False, Verdict.FAILED),
        (SourceError("no table"), False, Verdict.FAILED),
        (HistoryLostError("lost"), False, Verdict.FAILED),
    ],
    ids=["here", "elsewhere", "needs a copy", "no table", "lost history"],
)
def test_only_what_may_pass_is_unknown_of_another_site(
    error: SourceError, is_here: bool, verdict: Verdict
) -> None:
    assert failed("start", error, is_here) == Finding("start", verdict, str(error))


def links(**chosen: object) -> list[tuple[str, str]]:
    return [(stream.name, site) for stream, site in Scope(topology(), **chosen).links()]  # type: ignore[arg-type]


def test_links_are_those_of_the_site_the_senders_and_the_tables() -> None:
    both = [("newark.east.flights", "seattle"), ("newark.east.readings", "seattle")]
    assert (
        links() == links(site="newark") == links(site="seattle") == links(senders=["east"]) == both
    )
    assert links(tables=["readings"], senders=["east"], site="seattle") == both[1:]


@pytest.mark.parametrize(
    ("chosen", "says"),
    [
        ({"site": "seatle"}, "did you mean 'seattle'"),
        ({"senders": ["easter"]}, "did you mean 'east'"),
        ({"tables": ["flight"]}, "did you mean 'flights'"),
        ({"site": "denver"}, "nothing to check: .* is sent or received by site denver"),
        ({"senders": ["west"]}, "nothing to check"),
    ],
)
def test_a_name_that_is_unknown_or_has_no_link_is_refused(
    chosen: dict[str, object], says: str
) -> None:
    with pytest.raises(TopologyError, match=says):
        links(**chosen)


def test_what_the_site_that_checks_has_is_here_and_without_one_everything() -> None:
    assert Scope(topology()).is_here("seattle")
    assert Scope(topology(), "newark").is_here("newark")
    assert not Scope(topology(), "newark").is_here("seattle")
