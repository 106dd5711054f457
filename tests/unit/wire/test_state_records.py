"""Decisions: what a site keeps in its state beside checkpoints.

The golden bytes of checkpoints are in tests/unit/state.
"""

from __future__ import annotations

import pytest

from spark_wan.errors import LedgerError
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
