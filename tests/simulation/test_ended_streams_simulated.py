"""Streams end where operators ask for it, and go on when somebody asks for that, whatever else
happens (:mod:`simulation.ending`)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import seeds
from hypothesis import Phase

from simulation.ending import Ended
from simulation.schedules import FIXED_SEED, counts, mutations, simulate
from spark_wan.sender.ending import EndPoint
from spark_wan.sender.publish import Publisher
from spark_wan.wire.control import WantedEnd
from spark_wan.wire.manifest import Manifest

BEGIN = int(seeds.GIVEN or FIXED_SEED)


@pytest.mark.parametrize("count", counts(0.1))
def test_nothing_follows_an_end_and_nothing_before_it_is_missing(count: int) -> None:
    """Also where the control log is lost, two senders run, and processes die at any moment. Once
    all is resumed, everything arrives."""
    simulate(Ended, count, Phase.generate, Phase.shrink)


def read_before_the_capture(patch: pytest.MonkeyPatch) -> None:
    """What is wanted is not read again before an epoch is added."""
    patch.setattr(Publisher, "_check_before_end", lambda publisher, manifest: None)


def forgotten_with_the_control_log(patch: pytest.MonkeyPatch) -> None:
    """A stream has ended as long as the control log says so."""

    def has_ended(wanted: WantedEnd, last: Manifest | None) -> bool:
        ending = wanted.ending
        return bool(last and last.end and ending and last.control >= ending.generation)

    patch.setattr(WantedEnd, "has_ended", has_ended)


def passed(patch: pytest.MonkeyPatch) -> None:
    """Commits behind an end are captured."""
    patch.setattr(EndPoint, "may_follow", lambda point, commit: True)


def of_another_request(patch: pytest.MonkeyPatch) -> None:
    """An end counts for every request that there is."""

    def has_ended(wanted: WantedEnd, last: Manifest | None) -> bool:
        is_end = wanted.ending is None or wanted.ending.end is not None
        return bool(last and last.end and is_end)

    patch.setattr(WantedEnd, "has_ended", has_ended)


def empty_commits_left_for_later(patch: pytest.MonkeyPatch) -> None:
    """A range without events before an end is not recorded."""
    patch.setattr(Publisher, "_may_be_at_end", lambda publisher, through: False)


MUTATIONS = {
    read_before_the_capture: "passes its end",
    forgotten_with_the_control_log: "goes on behind its end",
    passed: "passes its end",
    of_another_request: "ends early|has ended|has not ended",
    empty_commits_left_for_later: "has not ended",
}


SLOW = (forgotten_with_the_control_log,)


@pytest.mark.parametrize("mutation", mutations(MUTATIONS, SLOW))
def test_mutations_of_ends_are_found(
    mutation: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within 500 schedules."""
    mutation(monkeypatch)
    with pytest.raises(AssertionError, match=MUTATIONS[mutation]):
        simulate(Ended, 500, Phase.generate, begin=BEGIN)
