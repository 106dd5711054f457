"""Running random schedules of a machine.

Each commit runs others (:mod:`seeds`); ``make simulate SCHEDULES=100000`` runs more. Of a failing
one the shortest that was found is printed: the rules in their order, and above each the numbered
steps that it made.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable
from typing import Any
from unittest import mock

import pytest
import seeds
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.internal.conjecture.providers import HypothesisProvider
from hypothesis.stateful import run_state_machine_as_test

from simulation.machine import Replication

GIVEN = os.environ.get("SPARK_WAN_SCHEDULES")
CORE, REST = 500, 2_000
"""Schedules in `make test`, and beside it."""
FIXED_SEED = int(
    "a560ff7ddd009b061b3bea9af2463456635027a8e967cba0"
    "277baec378443cf274622898d581c1ff1065014039503830",
    16,
)
"""For mutations: how many schedules it takes to find one depends on the seed."""
NO_CONSTANTS = mock.patch.object(HypothesisProvider, "_maybe_draw_constant", lambda *_, **__: None)
"""Hypothesis draws constants of the code, too: those of all modules that happen to be loaded. So
an edit anywhere, or another test in the same process, would change the schedules."""

Mutation = Callable[[pytest.MonkeyPatch], None]
"""Takes a rule out of the code."""


def counts(share: float, of_rest: float | None = None) -> list[Any]:
    """Return how many schedules to run, as parameters of a test: a share of those given, or those
    of each tier. ``of_rest``: another share of the rest."""
    more = share if of_rest is None else of_rest
    if GIVEN:
        return [int(int(GIVEN) * more)]
    return [
        pytest.param(int(CORE * share), marks=pytest.mark.core),
        pytest.param(int(REST * more), marks=pytest.mark.rest),
    ]


def mutations(found: Iterable[Mutation], of_rest: Collection[Mutation]) -> list[Any]:
    """Return mutations as parameters of a test, by name; some of them in the rest alone."""
    return [
        pytest.param(each, id=each.__name__, marks=[pytest.mark.rest] * (each in of_rest))
        for each in found
    ]


def simulate(
    machine: type[Replication], count: int, *phases: Phase, begin: int | None = None
) -> None:
    """Run so many schedules, those of a seed (default: that of the run)."""
    chosen = settings(
        max_examples=count,
        stateful_step_count=60,
        database=None,
        deadline=None,
        phases=phases,
        print_blob=False,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    # A longer run begins with other schedules than a shorter one.
    first = seeds.seed() + count if begin is None else begin
    with NO_CONSTANTS:
        run_state_machine_as_test(seed(first)(machine), settings=chosen)
