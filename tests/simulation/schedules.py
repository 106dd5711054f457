"""Running random schedules of a machine.

``make simulate SCHEDULES=100000`` runs more schedules, ``SPARK_WAN_SEED=7`` others. Of a failing
one the shortest that was found is printed: the rules in their order, and above each the numbered
steps that it made.
"""

from __future__ import annotations

import os
from unittest import mock

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.internal.conjecture.providers import HypothesisProvider
from hypothesis.stateful import run_state_machine_as_test

from simulation.machine import Replication

SCHEDULES = int(os.environ.get("SPARK_WAN_SCHEDULES", "2000"))
SMALL = SCHEDULES * 6 // 10
"""Schedules at the sites of small topologies."""
FORWARDING = SCHEDULES - SMALL
"""Schedules at sites that forward. Each takes half as long again, and both kinds run at once."""
ON_TOPICS = SCHEDULES // 10
"""Schedules more, with channels on topics."""
FIXED_SEED = int(
    "a560ff7ddd009b061b3bea9af2463456635027a8e967cba0"
    "277baec378443cf274622898d581c1ff1065014039503830",
    16,
)
"""Fixed, so that an edit of the rules' text does not change the schedules."""
NO_CONSTANTS = mock.patch.object(HypothesisProvider, "_maybe_draw_constant", lambda *_, **__: None)
"""Hypothesis draws constants of the code, too: those of all modules that happen to be loaded. So
an edit anywhere, or another test in the same process, would change the schedules."""
SEED = int(os.environ.get("SPARK_WAN_SEED", FIXED_SEED))


def simulate(machine: type[Replication], count: int, *phases: Phase) -> None:
    """Run so many schedules, the same ones every time unless a seed is given."""
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
    with NO_CONSTANTS:
        run_state_machine_as_test(seed(SEED)(machine), settings=chosen)
