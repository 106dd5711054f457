"""Streams wait at the limits of their queues, whatever else happens, and go on
(:mod:`simulation.limits`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import seeds
from hypothesis import Phase

from simulation.limits import Dropping, DroppingWorld, Limited, LimitedWorld
from simulation.schedules import FIXED_SEED, counts, simulate
from spark_wan.log.writer import LogWriter
from spark_wan.sender.acks import AckManager
from spark_wan.sender.queue import OutboundQueue
from spark_wan.wire.manifest import Manifest

BEGIN = int(seeds.GIVEN or FIXED_SEED)


@pytest.mark.parametrize("count", counts(0.1))
def test_a_queue_has_at_most_its_limit_and_one_epoch(count: int) -> None:
    """Also after restarts, with two senders, and where acks are lost or late. Once all faults have
    ended, everything arrives."""
    before = LimitedWorld.waits
    simulate(Limited, count, Phase.generate, Phase.shrink)
    assert LimitedWorld.waits > before + count, "no queue was full"


def unlimited(patch: pytest.MonkeyPatch) -> None:
    """Nothing ever waits."""
    patch.setattr(OutboundQueue, "check", lambda queue, last: {})


def begun_anew(patch: pytest.MonkeyPatch) -> None:
    """A sender that starts does not count what was added before the newest epoch."""
    real = OutboundQueue._take_up

    def take_up(queue: OutboundQueue, last: Manifest) -> None:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(queue.acks.log, "epochs", lambda *_: [])
            real(queue, last)

    patch.setattr(OutboundQueue, "_take_up", take_up)


def of_the_fastest(patch: pytest.MonkeyPatch) -> None:
    """What one site has acked waits no more."""
    waiting = OutboundQueue._waiting

    def least(queue: OutboundQueue, through: Mapping[str, int]) -> object:
        newest = max(through.values(), default=0)
        return waiting(queue, dict.fromkeys(through, newest))

    patch.setattr(OutboundQueue, "_waiting", least)


def full_for_good(patch: pytest.MonkeyPatch) -> None:
    """Acks make no room."""
    full: set[tuple[int, str]] = set()
    real = OutboundQueue._through_if_full

    def through(queue: OutboundQueue, last: Manifest) -> Mapping[str, int] | None:
        place = id(queue.acks.checkpoints), last.log_id
        found = real(queue, last)
        if found is not None:
            full.add(place)
        return found or ({"seattle": 0} if place in full else None)

    patch.setattr(OutboundQueue, "_through_if_full", through)


def too_large_for_an_empty_queue(patch: pytest.MonkeyPatch) -> None:
    """An epoch that is larger than the limit waits for room that there never is."""
    exceed = OutboundQueue._exceed

    def exceeds(queue: OutboundQueue, waiting: Any) -> bool:
        return queue.limits.bytes == 1 or exceed(queue, waiting)

    patch.setattr(OutboundQueue, "_exceed", exceeds)


MUTATIONS = {
    unlimited: "added to a full queue",
    begun_anew: "added to a full queue",
    of_the_fastest: "added to a full queue",
    full_for_good: "does not come to rest",
    too_large_for_an_empty_queue: "does not come to rest",
}


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__name__)
def test_mutations_of_limits_are_found(
    mutation: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within 500 schedules."""
    mutation(monkeypatch)
    with pytest.raises(AssertionError, match=MUTATIONS[mutation]):
        simulate(Limited, 500, Phase.generate, begin=BEGIN)


# --- drop_reader


@pytest.mark.parametrize("count", counts(0.1))
def test_what_is_trimmed_is_acked_or_its_site_was_dropped(count: int) -> None:
    """And a site that was dropped is held, and says that it needs a copy."""
    before = DroppingWorld.drops
    simulate(Dropping, count, Phase.generate, Phase.shrink)
    assert DroppingWorld.drops > before, "no site was dropped"


def drops_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Only the epoch that drops a site says so."""
    patch.setattr(LogWriter, "_still_dropped", lambda writer, last: {})


def dropped_for_good(patch: pytest.MonkeyPatch) -> None:
    """Nothing is kept for a site that was dropped."""

    def without(manager: AckManager, manifest: Manifest) -> set[str]:
        newest = manager.state.newest
        return set(newest.dropped) if newest is not None else set()

    patch.setattr(AckManager, "_without", without)


DROP_MUTATIONS = {
    drops_forgotten: "is needed, and not there any more|is trimmed, but|added to a full queue",
    dropped_for_good: "is trimmed, but",
}


@pytest.mark.parametrize("mutation", DROP_MUTATIONS, ids=lambda mutation: mutation.__name__)
def test_mutations_of_drops_are_found(
    mutation: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within 500 schedules."""
    mutation(monkeypatch)
    with pytest.raises(AssertionError, match=DROP_MUTATIONS[mutation]):
        simulate(Dropping, 500, Phase.generate, begin=BEGIN)
