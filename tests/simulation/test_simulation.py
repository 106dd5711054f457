"""The core under random schedules, at the sites of a small topology
(:mod:`simulation.family`): processes that die between and inside steps, that run twice, that
overtake each other; acks and checkpoints that are lost, late, doubled or restored; channels that
fail; clocks that are wrong; months of rest, after which log cleanup has acted.
:mod:`simulation.invariants` has what must hold, :mod:`simulation.schedules` how to run more.
"""

from __future__ import annotations

import pytest
from hypothesis import Phase

from simulation.machine import Replication
from simulation.schedules import counts, simulate


@pytest.mark.parametrize("count", counts(0.6))
def test_nothing_is_lost_doubled_or_reordered(count: int) -> None:
    """Checked at every write to a target, every ack, every manifest and every trimming, and once
    more when all has come to rest.

    Taken out and found, beside the mutations in ``test_mutations.py``: deciding again after a table
    was created (two receivers at first contact), and recognising one's own manifest when the store
    repeated its write."""
    simulate(Replication, count, Phase.generate, Phase.shrink)
