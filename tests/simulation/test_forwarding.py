"""The same schedules at up to six sites that send on what they receive: chains, stars, rings,
meshes, trees, and random graphs that are supported.

A file of its own, so that it runs beside the other.
"""

from __future__ import annotations

import pytest
from hypothesis import Phase

from simulation.machine import Forwarded
from simulation.schedules import counts, simulate


@pytest.mark.parametrize("count", counts(0.4))
def test_what_is_forwarded_arrives_once_at_every_site(count: int) -> None:
    """And never where it was; no ack counts an epoch before it is forwarded."""
    simulate(Forwarded, count, Phase.generate, Phase.shrink)
