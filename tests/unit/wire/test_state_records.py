"""Decisions and control: what a site keeps in its state beside checkpoints.

The golden bytes of checkpoints are in tests/unit/state.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_wan.errors import LedgerError
from spark_wan.wire.control import AT_VERSION, NEWEST, Control, End, Ending, Rule
from spark_wan.wire.decisions import Decisions, Entry

LOG = "0123456789abcdef" * 2
DECISIONS_V1 = (
    b'{"version":1,"operations":{"7":"distribute","12":"skip"},"new_logs":["'
    + LOG.encode()
    + b'"]}'
)
DECISIONS = Decisions({7: "distribute", 12: "skip"}, frozenset((LOG,)))


def test_golden_decisions_are_read_and_written() -> None:
    assert Decisions.decode(DECISIONS_V1, "here") == DECISIONS
    assert DECISIONS.encode() == DECISIONS_V1
    more = DECISIONS_V1.replace(b'"operations"', b'"more":[1],"operations"')
    assert Decisions.decode(more, "here") == DECISIONS


@pytest.mark.parametrize(
    ("changed", "what"),
    [(b'"version":3', "in version 3"), (b'"version":1,"requires":["until"]', "it requires until")],
    ids=["version 3", "requires"],
)
def test_f51_decisions_of_a_newer_spark_wan_are_an_error(changed: bytes, what: str) -> None:
    """Fails when they are read without what they require."""
    data = DECISIONS_V1.replace(b'"version":1', changed)
    with pytest.raises(LedgerError, match=f"here: .*newer spark_wan.*{what}.*Update"):
        Decisions.decode(data, "here")


@pytest.mark.parametrize("apart", [False, True])
def test_decisions_come_to_the_same_however_they_are_joined(apart: bool) -> None:
    """The command joins those of its options before it adds them to those in the state."""
    first = Decisions({7: "skip", 8: "skip"}, frozenset((LOG,)))
    second = Decisions({7: "distribute"})
    third = Decisions({7: "skip", 9: "skip"})
    joined = first | (second | third) if apart else (first | second) | third
    assert joined == Decisions({7: "skip", 8: "skip", 9: "skip"}, frozenset((LOG,)))


WITHDRAWN_V1 = (
    b'{"version":1,"operations":{"13":"skip"},"new_logs":[],"withdrawn":["%s","12"],'
    b'"requires":["withdrawn"],"by":"ann at here","at":5}' % LOG.encode()
)


def test_a_golden_entry_that_withdraws_is_read_and_written() -> None:
    """Who does not know of that does not act on what was withdrawn. Fails when it is not
    required."""
    new = Decisions({13: "skip"}, withdrawn=frozenset(("12", LOG)))
    assert new.encode("ann at here", 5) == WITHDRAWN_V1
    assert Decisions.entry(WITHDRAWN_V1, "here") == Entry(new, "ann at here", 5)
    before = Decisions({12: "skip"}, frozenset((LOG, "c" * 32)), frozenset((12, 14)))
    after = before | Decisions.decode(WITHDRAWN_V1, "here")
    assert (after.operations, after.new_logs, after.resyncs) == ({13: "skip"}, {"c" * 32}, {14})


@pytest.mark.parametrize("apart", [False, True])
def test_withdrawals_come_to_the_same_however_they_are_joined(apart: bool) -> None:
    first, third = Decisions({12: "skip", 13: "skip"}), Decisions({12: "distribute"})
    second = Decisions({14: "skip"}, withdrawn=frozenset(("12", "13")))
    joined = first | (second | third) if apart else (first | second) | third
    assert joined.operations == {12: "distribute", 14: "skip"}


CONTROL_V1 = (
    b'{"version":1,"verb":"pause","sender":"east","table":null,"by":"ann at here","at":5,'
    b'"rules":[{"sender":"east","table":null,"paused":true,"capture":false,"generation":3,'
    b'"by":"ann at here","at":5}]}'
)


def test_a_golden_control_entry_is_read_and_written() -> None:
    rule = Rule("east", None, paused=True, capture=False, generation=3, by="ann at here", at=5)
    entry = Control("pause", "east", None, "ann at here", 5, (rule,))
    assert (entry.encode(), Control.decode(CONTROL_V1, "here")) == (CONTROL_V1, entry)
    more = CONTROL_V1.replace(b'"verb"', b'"more":[1],"verb"')
    assert Control.decode(more, "here") == entry


CONTROL_WITH_ENDS = (
    b'{"version":1,"verb":"drain","sender":null,"table":"orders","by":"ann at here","at":5,'
    b'"rules":[],"ends":[{"sender":null,"table":"orders","end":{"kind":"version","point":41},'
    b'"generation":3,"by":"ann at here","at":5},{"sender":"east","table":"orders","end":null,'
    b'"generation":4,"by":"ann at here","at":6}],"requires":["ends"]}'
)


def test_a_golden_control_entry_with_ends_is_read_and_written() -> None:
    """Who does not know of ends does not go on. Fails when they are not required."""
    by = "ann at here"
    ends = (
        Ending(None, "orders", End(AT_VERSION, 41), generation=3, by=by, at=5),
        Ending("east", "orders", None, generation=4, by=by, at=6),
    )
    entry = Control("drain", None, "orders", by, 5, (), ends)
    assert entry.encode() == CONTROL_WITH_ENDS
    assert Control.decode(CONTROL_WITH_ENDS, "here") == entry
    newest = replace(entry, ends=(replace(ends[0], end=End(NEWEST)),))
    assert Control.decode(newest.encode(), "here") == newest


def test_f51_an_end_of_a_newer_spark_wan_is_an_error() -> None:
    """Fails when the stream ends somewhere else, or goes on."""
    unknown = CONTROL_WITH_ENDS.replace(b'"kind":"version"', b'"kind":"moon"')
    with pytest.raises(LedgerError, match="Update spark_wan"):
        Control.decode(unknown, "here")


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        (b'"version":2', "Update spark_wan"),
        (b'"version":1,"requires":["until"]', "Update spark_wan"),
        (b'"version":0', "cannot be read"),
    ],
)
def test_f51_a_control_entry_of_a_newer_spark_wan_is_an_error(changed: bytes, what: str) -> None:
    """Fails when a pause is forgotten silently."""
    with pytest.raises(LedgerError, match=what):
        Control.decode(CONTROL_V1.replace(b'"version":1', changed), "here")
