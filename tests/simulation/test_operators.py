"""Operators pause and resume streams, and have what waits dropped, whatever else happens
(:mod:`simulation.operating`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import seeds
from hypothesis import Phase

from simulation.operating import Operated, OperatedWorld
from simulation.schedules import FIXED_SEED, counts, mutations, simulate
from spark_wan.control import enforce
from spark_wan.control.enforce import Enforcer
from spark_wan.control.keeper import ControlKeeper
from spark_wan.log.heads import Heads
from spark_wan.sender.acks import AckManager
from spark_wan.sender.queue import OutboundQueue
from spark_wan.wire.control import Clean, Scope
from spark_wan.wire.head import Pause
from spark_wan.wire.manifest import Manifest

BEGIN = int(seeds.GIVEN or FIXED_SEED)


@pytest.mark.parametrize("count", counts(0.012, 0.1))
def test_what_operators_ask_for_happens_and_nothing_else(count: int) -> None:
    """Nothing is taken of a paused stream, and all of it once it is resumed. What a clean has shown
    is dropped, and nothing that came later; each site ends with all rows, or says what it needs.
    Also where commands and jobs die between any two writes, and control logs are lost."""
    before = {**OperatedWorld.counts}
    simulate(Operated, count, Phase.generate, Phase.shrink)
    for what in ("taken nothing of a paused stream", "dropped as somebody asked"):
        happened = OperatedWorld.counts.get(what, 0) - before.get(what, 0)
        assert happened or count < 50, f"never: {what}"


# --- pauses


def pauses_not_read(patch: pytest.MonkeyPatch) -> None:
    """A receiver does not look at pauses."""
    patch.setattr(Heads, "_look_at_pauses", lambda heads, listed: None)


def captured_though_paused(patch: pytest.MonkeyPatch) -> None:
    """A sender does not know of pauses."""
    patch.setattr(ControlKeeper, "pause_of", lambda keeper, sender, table: None)


def lifted_by_any_entry(patch: pytest.MonkeyPatch) -> None:
    """A pause that the control log says nothing of ends, though the log may have been lost."""
    following = enforce._following

    def lifted(now: Pause | None, rule: object, generation: int) -> Pause | None:
        if rule is None and now is not None and now.until is None:
            return replace(now, until=now.since)
        return following(now, rule, generation)  # type: ignore[arg-type]

    patch.setattr(enforce, "_following", lifted)


def not_rebuilt(patch: pytest.MonkeyPatch) -> None:
    """Who asks for something does not look which pauses a lost control log had."""
    patch.setattr(Enforcer, "rebuilt", lambda enforcer: (0, ()))


def left_to_the_command(patch: pytest.MonkeyPatch) -> None:
    """Jobs do not finish what a command that died has begun."""
    patch.setattr(ControlKeeper, "enforce", lambda keeper: keeper._enforcer.read())


def never_ended(patch: pytest.MonkeyPatch) -> None:
    """A pause stays in the channel when somebody has resumed the stream."""
    following = enforce._following

    def stays(now: Pause | None, rule: object, generation: int) -> Pause | None:
        return now if rule is None else following(now, rule, generation)  # type: ignore[arg-type]

    patch.setattr(enforce, "_following", stays)


def narrower_replaces_wider(patch: pytest.MonkeyPatch) -> None:
    """A request about one table takes the place of one about all."""
    covers = Scope.covers

    def meets(scope: Scope, other: Scope) -> bool:
        is_stream = None not in (other.sender, other.table)
        return covers(scope, other) if is_stream else scope.meets(other)

    patch.setattr(Scope, "covers", meets)


def dropped_while_paused(patch: pytest.MonkeyPatch) -> None:
    """A queue that is full for a pause drops sites."""
    patch.setattr(AckManager, "is_excused", lambda manager: False)


# --- cleans


def all_that_waits(patch: pytest.MonkeyPatch) -> None:
    """What came after the question is dropped, too."""
    dropped = Clean.dropped

    def through_the_newest(clean: Clean, last: Manifest) -> dict[str, int]:
        return dict.fromkeys(dropped(clean, last), last.epoch)

    patch.setattr(Clean, "dropped", through_the_newest)


def never_done(patch: pytest.MonkeyPatch) -> None:
    """Who was dropped still counts as one that lacks what it was dropped for."""
    patch.setattr(OutboundQueue, "still_lacking", lambda queue, last, sites: sites)


MUTATIONS = {
    pauses_not_read: "takes something of",
    captured_though_paused: "whose capture is paused",
    lifted_by_any_entry: "nobody has asked for that",
    not_rebuilt: "nobody has asked for that|paused, and should be",
    left_to_the_command: "paused, and should be",
    never_ended: "paused, and should be|does not come to rest",
    narrower_replaces_wider: "nobody has asked for that|paused, and should be",
    dropped_while_paused: "which is paused",
    all_that_waits: "about which nobody was asked",
    never_done: "does not come to rest|has no end",
}
FAST = (lifted_by_any_entry, left_to_the_command)


@pytest.mark.parametrize("mutation", mutations(MUTATIONS, MUTATIONS.keys() - {*FAST}))
def test_mutations_of_requests_are_found(
    mutation: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within 500 schedules."""
    mutation(monkeypatch)
    with pytest.raises(AssertionError, match=MUTATIONS[mutation]):
        simulate(Operated, 500, Phase.generate, begin=BEGIN)
