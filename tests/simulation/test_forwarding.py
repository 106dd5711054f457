"""The same schedules at up to six sites that send on what they receive: chains, stars, rings,
meshes, trees, and random graphs that are supported.

A file of its own, so that it runs beside the other.
"""

from __future__ import annotations

from hypothesis import Phase

from simulation.machine import Forwarded
from simulation.schedules import FORWARDING, simulate


def test_what_is_forwarded_arrives_once_at_every_site() -> None:
    """And never where it was; no ack counts an epoch before it is forwarded."""
    simulate(Forwarded, FORWARDING, Phase.generate, Phase.shrink)
