"""Sites that are dropped where others send on what they receive (:mod:`simulation.limits`), and
where sites get copies (:mod:`simulation.dropped`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import seeds
from hypothesis import Phase

from simulation.dropped import Dropped
from simulation.limits import DroppingForwarded, DroppingWorld, Limited
from simulation.schedules import FIXED_SEED, counts, mutations, simulate
from simulation.test_limited_queues import dropped_for_good, drops_forgotten
from spark_wan.apply import plan
from spark_wan.errors import LogGapError, WanError
from spark_wan.forward import forwarder as forwarder_module
from spark_wan.forward.forwarder import Forwarder
from spark_wan.log.writer import LogWriter
from spark_wan.sender.queue import OutboundQueue
from spark_wan.wire.manifest import Manifest

BEGIN = int(seeds.GIVEN or FIXED_SEED)


@pytest.mark.parametrize("count", counts(0.008, 0.1))
def test_a_site_on_the_way_that_is_dropped_hides_nothing_from_those_behind_it(count: int) -> None:
    """They are held, too, if it has not sent on what it was dropped for; else they go on. And so
    are those that it drops itself."""
    before = DroppingWorld.drops, DroppingWorld.behind
    simulate(DroppingForwarded, count, Phase.generate, Phase.shrink)
    assert DroppingWorld.drops > before[0] or count < 50, "no site was dropped"
    assert DroppingWorld.behind > before[1] or count < 50, "no site was behind one"


@pytest.mark.parametrize("count", counts(0.008, 0.1))
def test_a_site_that_is_dropped_ends_equal_with_a_copy(count: int) -> None:
    """Whether it asks by itself or somebody does, and also where the site that serves it was
    dropped itself."""
    before = DroppingWorld.drops
    simulate(Dropped, count, Phase.generate, Phase.shrink)
    assert DroppingWorld.drops > before or count < 50, "no site was dropped"


def gap_hidden(patch: pytest.MonkeyPatch) -> None:
    """What is sent on follows what was sent on before, also where epochs did not come."""
    following = Forwarder._following

    def contiguous(forwarder: Forwarder, last: Manifest | None, *args: Any) -> Manifest:
        manifest = following(forwarder, last, *args)
        if last is None or manifest.first_version <= last.last_version + 1:
            return manifest
        return replace(manifest, first_version=last.last_version + 1)

    patch.setattr(Forwarder, "_following", contiguous)


def gap_not_seen(patch: pytest.MonkeyPatch) -> None:
    """A site that was dropped applies what comes next."""
    patch.setattr(plan, "_NEXT_VERSIONS", (plan._check_no_snapshot,))


def gap_not_passed(patch: pytest.MonkeyPatch) -> None:
    """A forwarder stops where epochs did not come."""
    after = forwarder_module.epochs_after

    def without_gap(log: Any, via: Any, epochs: Sequence[int]) -> Sequence[int]:
        if epochs[0] > via.epoch + 1:
            raise LogGapError("those between were deleted")
        return after(log, via, epochs)

    patch.setattr(forwarder_module, "epochs_after", without_gap)


def dropped_from_the_topology(patch: pytest.MonkeyPatch) -> None:
    """A site that was dropped is no addressee any more."""
    without_rows = LogWriter.without_rows

    def gone(writer: LogWriter, last: Manifest, settings: Any, **fields: Any) -> Manifest:
        left = {*settings.addressees} - {*fields.get("dropped", ())}
        fewer = replace(settings, addressees=tuple(sorted(left)))
        return without_rows(writer, last, fewer, **fields)

    patch.setattr(LogWriter, "without_rows", gone)


def hold_without_a_need(patch: pytest.MonkeyPatch) -> None:
    """Errors do not say that a copy helps."""

    def without(error: WanError, *args: object, needs: str | None = None) -> None:
        Exception.__init__(error, *args)
        error.needs = None

    patch.setattr(WanError, "__init__", without)


def dropped_with_what_comes(patch: pytest.MonkeyPatch) -> None:
    """A site is dropped for the epoch that drops it, too: it sees no gap before the next one."""
    check = OutboundQueue.check

    def through_the_next(queue: OutboundQueue, last: Manifest | None) -> Any:
        found = check(queue, last)
        known = last.dropped if last is not None else {}
        return {site: at if site in known else at + 1 for site, at in found.items()}

    patch.setattr(OutboundQueue, "check", through_the_next)


MUTATIONS: dict[Callable[[pytest.MonkeyPatch], None], tuple[type[Limited], str]] = {
    gap_hidden: (DroppingForwarded, "should hold"),
    gap_not_seen: (DroppingForwarded, "should hold"),
    gap_not_passed: (DroppingForwarded, "those between were deleted"),
    drops_forgotten: (
        DroppingForwarded,
        "is needed, and not there any more|is trimmed, but|added to a full queue",
    ),
    dropped_for_good: (Dropped, "is trimmed, but"),
    dropped_from_the_topology: (Dropped, "goes on elsewhere|goes from"),
    hold_without_a_need: (Dropped, "does not say that it needs a copy|does not come to rest"),
    dropped_with_what_comes: (Dropped, "is dropped through epoch"),
}
FAST = (gap_hidden, gap_not_seen, gap_not_passed, drops_forgotten)


@pytest.mark.parametrize("mutation", mutations(MUTATIONS, MUTATIONS.keys() - {*FAST}))
def test_mutations_of_drops_on_the_way_and_of_copies_are_found(
    mutation: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within 500 schedules."""
    machine, found = MUTATIONS[mutation]
    mutation(monkeypatch)
    with pytest.raises(AssertionError, match=found):
        simulate(machine, 500, Phase.generate, begin=BEGIN)
