"""The same schedules at sites that ask for copies: because they join late, have lost their table,
its newer states or their ledger, or for no reason.

A file of its own, so that it runs beside the others.
"""

from __future__ import annotations

import pytest
from hypothesis import Phase

from simulation.copying import Copied
from simulation.schedules import counts, simulate


@pytest.mark.rest
@pytest.mark.parametrize("count", counts(0.2)[-1:])
def test_a_site_that_asks_for_a_copy_ends_equal(count: int) -> None:
    """And whoever needs one says so, and goes on behind it; the rows of copies are removed."""
    simulate(Copied, count, Phase.generate, Phase.shrink)
