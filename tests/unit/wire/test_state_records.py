"""Decisions and control: what a site keeps in its state beside checkpoints.

The golden bytes of checkpoints are in tests/unit/state.
"""

from __future__ import annotations

import pytest

from spark_wan.errors import LedgerError
from spark_wan.wire.control import Control, Rule
from spark_wan.wire.decisions import Decisions

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
