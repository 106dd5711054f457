"""The same schedules, with channels on topics: a log of operations in place of files that are
created if absent, and a keeper that moves frames and deletes what is acked."""

from __future__ import annotations

import pytest
from hypothesis import Phase

from simulation.machine import OnTopics
from simulation.schedules import counts, simulate


@pytest.mark.parametrize("count", counts(0.1))
def test_nothing_is_lost_doubled_or_reordered_on_topics(count: int) -> None:
    """Fails when a reader counts a rival, or a keeper deletes a frame that a site still needs."""
    simulate(OnTopics, count, Phase.generate, Phase.shrink)
