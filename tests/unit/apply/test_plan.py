"""Planning: every epoch is known, new, waiting or held, decided from log and ledger alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from fakes import MANIFEST, STREAM, chained, manifest, schema

from spark_wan.apply.plan import StreamPlan, StreamPlanner
from spark_wan.errors import EPOCHS, ManifestError
from spark_wan.ledger.progress import Progress, origin_of
from spark_wan.log.inbound import InboundLog
from spark_wan.wire.frame import FrameRef
from spark_wan.wire.manifest import EVENTS, SNAPSHOT, Manifest
from spark_wan.wire.records import EpochRef

ORIGIN = origin_of(MANIFEST)
A = MANIFEST.log_id
FRAME = FrameRef("f", 5, 100, 0)


class Log:
    """Manifests by number; reading is counted."""

    stream = STREAM

    def __init__(self, *manifests: Manifest) -> None:
        self.manifests = {each.epoch: each for each in chained(manifests)}
        self.reads: list[int] = []
        self.broken: set[int] = set()
        self.accepts: Callable[[str], bool] = lambda log_id: False

    def extend(self, added: Manifest) -> None:
        self.manifests[added.epoch] = replace(
            added, previous=self.manifests[added.epoch - 1].fingerprint
        )

    def read(self, number: int) -> Manifest:
        self.reads.append(number)
        if number in self.broken:
            raise ManifestError(f"manifest {number} is broken")
        return self.manifests[number]

    peek = read


def plan(
    log: Log, progress: Progress | None = None, acked: int = 0, site: str = "seattle", **limits: Any
) -> StreamPlan:
    wide = {"max_bytes": 1 << 40, "max_epochs": 1_000}
    progress = progress.copy() if progress is not None else Progress()
    for place, position in progress.positions.items():
        if not progress.fingerprints[place] and position in log.manifests:
            progress.fingerprints[place] = log.manifests[position].fingerprint
    inbound = cast(InboundLog, log)
    planner = StreamPlanner(inbound, site, progress, {A: acked}, **{**wide, **limits})
    return planner.plan(sorted(log.manifests))


def in_log(epoch: int, fingerprint: str) -> Any:
    """An epoch of the log with a fingerprint of the test's own."""
    return SimpleNamespace(stream=STREAM, log_id=A, epoch=epoch, fingerprint=fingerprint)


def applied(through: int, epoch: int, fingerprint: str = "", **origin: Any) -> Progress:
    """What a site has applied. By default, the log's manifest is the applied one."""
    progress = Progress()
    origin_key = origin_of(replace(MANIFEST, **origin))
    progress.advance(origin_key, through, in_log(epoch, fingerprint))
    return progress


def new(found: StreamPlan) -> list[tuple[int, int]]:
    return [(each.manifest.epoch, each.above) for each in found.new]


def epochs(*numbers: int, **changes: Any) -> Log:
    return Log(*(manifest(number, frames=(FRAME,), **changes) for number in numbers))


def test_epochs_without_events_behind_new_ones_are_left_to_the_next_round() -> None:
    """They count once those are applied: with --available-now, nothing would ack them. Fails when
    the plan ends with what is to be written."""
    past = {"first_version": 10, "last_version": 9, "start": False, "frames": ()}
    log = Log(manifest(1, frames=(FRAME,)), manifest(2, **past))
    found = plan(log)
    assert (new(found), found.more) == ([(1, -1)], True)
    found = plan(log, applied(9, 1))
    assert (new(found), found.known, found.more) == ([], 2, False)


@pytest.mark.parametrize(
    "change",
    [{"origin": "denver"}, {"table_id": "another"}, {"selection": "half"}],
    ids=",".join,
)
def test_a_plan_is_cut_where_the_origin_changes(change: dict[str, str]) -> None:
    """One commit says of a stream how far one origin is applied. Fails when the epochs of both are
    planned together: the first origin's would count as the second's."""
    log = Log(
        *(manifest(epoch, frames=(FRAME,)) for epoch in (1, 2)),
        manifest(3, frames=(FRAME,), start=True, **{"origin": "denver", **change}),
    )
    found = plan(log)
    assert (new(found), found.more, found.held) == ([(1, -1), (2, -1)], True, None)
    assert new(plan(log, applied(19, 2))) == [(3, -1)]


def test_an_empty_log_plans_nothing() -> None:
    found = plan(Log())
    assert (found.new, found.held, found.known) == ([], None, 0)


def test_first_contact_begins_at_the_start_of_the_stream() -> None:
    found = plan(epochs(1, 2, 3))
    assert new(found) == [(1, -1), (2, -1), (3, -1)]
    assert (found.log_id, found.known, found.held) == (A, 0, None)


def test_known_epochs_are_not_read() -> None:
    log = epochs(1, 2, 3)
    found = plan(log, applied(19, 2), acked=2)
    assert (new(found), found.known, found.duplicates) == ([(3, -1)], 2, 0)
    assert set(log.reads) == {3}


def test_b40_known_epochs_that_were_not_acked_are_duplicates() -> None:
    found = plan(epochs(1, 2, 3), applied(29, 3), acked=1)
    assert (new(found), found.known, found.duplicates) == ([], 3, 10)
    assert (found.covered, found.elsewhere) == (0, 0)


def test_f25_a_version_proves_an_epoch_known_when_the_position_is_lost() -> None:
    """Also when the rows came by another path: only the version counts."""
    progress = applied(19, 2)
    progress.positions.clear()
    found = plan(epochs(1, 2, 3), progress)
    assert (new(found), found.known, found.duplicates) == ([(3, -1)], 2, 10)


def test_epochs_that_the_table_has_by_another_way_are_counted_apart() -> None:
    """A copy, for example. Fails when nobody can tell them from what came again; or when they count
    in each round, since they are acked by then."""
    copied = applied(19, 2)
    copied.positions.clear()
    found = plan(epochs(1, 2, 3), copied)
    assert (found.covered, found.duplicates) == (10, 10)
    found = plan(epochs(1, 2, 3), copied, acked=2)
    assert (found.known, found.covered, found.duplicates) == (2, 0, 0)


def test_an_overlapping_epoch_applies_only_the_rows_above() -> None:
    """Invariant 2. Fails when the whole epoch is applied."""
    found = plan(Log(manifest(7, first_version=5, last_version=14, frames=(FRAME,))), applied(9, 3))
    assert new(found) == [(7, 9)]


def test_an_epoch_above_the_next_version_waits() -> None:
    """Invariant 2. Fails when the range's first version is not compared."""
    found = plan(Log(manifest(7, first_version=21, last_version=30)), applied(9, 3))
    assert (found.held, found.new, found.known) == (7, [], 3)
    assert "waits for the versions 10 to 20" in str(found.cause)
    assert "drop_reader" not in str(found.cause)


@pytest.mark.parametrize("progress", [None, "applied"])
def test_a_site_that_was_dropped_is_told_so(progress: str | None) -> None:
    """Fails when somebody looks for manifests that were deleted by hand."""
    log = Log(manifest(7, first_version=21, last_version=30, dropped={"seattle": 6, "denver": 5}))
    found = plan(log, *([applied(9, 3)] if progress else []))
    assert (found.held, found.needs) == (7, EPOCHS)
    assert "has dropped what this site had not acked through epoch 6" in str(found.cause)


def test_first_contact_in_the_middle_of_a_stream_is_held() -> None:
    """The beginning was trimmed before this site read it. Fails when `start` is ignored."""
    found = plan(epochs(4, 5))
    assert (found.held, found.new) == (4, [])
    assert "begins at version 30, and this site has nothing of the table yet" in str(found.cause)


def test_a_snapshot_stands_for_everything_through_its_version() -> None:
    log = Log(
        manifest(1, kind=SNAPSHOT, first_version=0, last_version=50),
        manifest(2, first_version=51, last_version=60),
    )
    assert new(plan(log)) == [(1, -1), (2, -1)]
    found = plan(log, applied(50, 1))
    assert (new(found), found.known) == ([(2, -1)], 1)


def test_a_snapshot_over_applied_rows_is_held() -> None:
    """Rows deleted in between would stay."""
    found = plan(Log(manifest(1, kind=SNAPSHOT, first_version=0, last_version=50)), applied(20, 0))
    assert found.held == 1
    assert "is a snapshot of version 50" in str(found.cause)


@pytest.mark.parametrize("change", [{"table_id": "another"}, {"selection": "east only"}])
def test_f40_a_replaced_source_is_held(change: dict[str, str]) -> None:
    """Fails when table ID and selection are not compared together with the origin."""
    found = plan(Log(manifest(1, **change)), applied(50, 0))
    assert found.held == 1
    assert "The source was replaced" in str(found.cause)


def test_the_same_table_of_another_origin_is_a_stream_of_its_own() -> None:
    found = plan(Log(manifest(1)), applied(50, 0, origin="denver"))
    assert new(found) == [(1, -1)]


def test_epochs_for_other_sites_are_skipped() -> None:
    log = Log(manifest(1), manifest(2, addressees=("tacoma",)), manifest(3))
    found = plan(log, site="tacoma")
    assert (found.known, found.held) == (1, 2)
    log = Log(manifest(1, addressees=("seattle", "tacoma")), manifest(2), manifest(3))
    found = plan(log, site="nowhere")
    assert (found.known, found.new, found.duplicates, found.elsewhere) == (3, [], 0, 3)
    assert plan(log, site="nowhere", acked=2).elsewhere == 1


def test_f20_an_unreadable_manifest_holds_the_stream_there_and_not_before() -> None:
    for broken in (2, 3):
        log = epochs(1, 2, 3)
        log.broken = {broken}
        found = plan(log)
        assert [number for number, _ in new(found)] == list(range(1, broken))
        assert (found.held, found.cause) == (broken, f"manifest {broken} is broken")


def test_f17_a_log_rewritten_in_the_middle_is_held() -> None:
    """Fails when log IDs are not compared."""
    log = Log(manifest(1), manifest(2, log_id="b" * 32))
    found = plan(log)
    assert (new(found), found.held) == ([(1, -1)], 2)
    assert "was rewritten" in str(found.cause)


def test_f17_a_restarted_log_is_decided_by_versions() -> None:
    """Another log ID: positions do not count, versions do."""
    log = Log(*(manifest(number, log_id="b" * 32, frames=(FRAME,)) for number in (1, 2, 3)))
    found = plan(log, applied(19, 9))
    assert (new(found), found.known, found.log_id) == ([(3, -1)], 2, "b" * 32)


def test_f17_a_log_restored_to_an_older_state_is_held() -> None:
    """Fails when a log shorter than what was applied of it counts as one with nothing new."""
    found = plan(epochs(1, 2), applied(49, 5))
    assert (found.held, found.new, found.known) == (3, [], 0)
    assert "ends at manifest 2, but this site has applied through 5" in str(found.cause)


def test_f17_a_log_restored_and_written_to_again_is_held() -> None:
    """Its epochs go beyond what this site has applied, so only the chain reveals it.

    Fails when `previous` is not compared, at the site's position or between manifests; the epochs
    in between would be lost silently.
    """
    old, again = users(1, 2, 3), users(1, 2)
    for number in (3, 4, 5):
        again.extend(replace(users(number).manifests[number], created=7))
    found = plan(again, position(3, old.manifests[3].fingerprint))
    assert (found.held, found.new) == (4, [])
    assert "is not the one that this site has applied, or does not follow it" in str(found.cause)
    assert found.known == 0
    mixed = users(1, 2, 3)
    mixed.manifests[2] = replace(mixed.manifests[2], created=7)
    found = plan(mixed)
    assert (found.held, new(found)) == (3, [(1, -1), (2, -1)])


def test_f17_a_log_restored_and_as_long_again_is_held() -> None:
    """Fails when the manifest at the site's position is not compared."""
    found = plan(users(1, 2, 3), position(3, "of another manifest"))
    assert (found.held, found.new, found.known) == (4, [], 0)
    assert "manifest 3 is not the one that this site has applied" in str(found.cause)


def test_f17_a_rewritten_log_is_held_while_its_newest_manifest_is_unreadable() -> None:
    """Fails when only the newest manifest gives the site's position: the last rewritten epoch would
    be applied.
    """
    log = users(1, 2, 3, 4)
    log.broken = {4}
    found = plan(log, position(2, "of another manifest"))
    assert (found.held, found.new) == (2, [])


def for_others(*numbers: int, of: int) -> Log:
    """A user stream of so many epochs, of which some were not sent to the site."""
    others = users(*range(1, of + 1))
    for number in numbers:
        others.manifests[number] = replace(others.manifests[number], addressees=("tacoma",))
    return Log(*others.manifests.values())


@pytest.mark.parametrize(("of", "has", "held"), [(3, 0, 1), (2, 0, 1), (3, 1, 2)])
def test_a_site_does_not_go_without_epochs_of_a_user_stream_that_were_sent_to_others(
    of: int, has: int, held: int
) -> None:
    """It was added since. Fails when it silently lacks the events before."""
    log = for_others(1, 2, of=of)
    found = plan(log, position(has) if has else None)
    assert (found.held, found.new, found.needs) == (held, [], "epochs")
    assert "was not sent to site seattle" in str(found.cause)
    log.accepts = lambda log_id: log_id == A
    found = plan(log, position(has) if has else None)
    assert (new(found), found.held) == ([(3, -1)] if of == 3 else [], None)


def test_epochs_that_a_copy_has_are_known_although_they_were_sent_to_others() -> None:
    found = plan(for_others(1, 2, of=3), position(2))
    assert (new(found), found.held) == ([(3, -1)], None)


ROOT = EpochRef("newark.sink.orders", "f" * 32, 4, "of the origin's manifest")


def forwarded(*numbers: int, first: int = 1, **changes: Any) -> Log:
    """A user stream that was forwarded: its epoch 1 is epoch ``first`` of its origin's log."""
    log = users(*numbers, **changes)
    return Log(
        *(
            replace(
                each, root=replace(ROOT, epoch=first + epoch - 1), via=replace(ROOT, stream="a~b")
            )
            for epoch, each in log.manifests.items()
        )
    )


def copied(epoch: int) -> Progress:
    """What a copy says of the origin's log."""
    progress = Progress()
    progress.add((), [(ROOT.stream, ROOT.log_id, epoch, ROOT.fingerprint)])
    return progress


def test_a_forwarded_user_stream_goes_on_behind_a_copy_from_elsewhere() -> None:
    """The copy names the log of the origin, not the one by which this site gets the stream."""
    log = forwarded(1, 2, 3, first=4)
    found = plan(log, copied(5))
    assert (new(found), found.held, found.known) == ([(3, -1)], None, 2)
    found = plan(log, copied(6))
    assert (new(found), found.held, found.known) == ([], None, 3)
    later = Log(*(replace(each, start=False) for each in log.manifests.values()))
    found = plan(later, copied(3))
    assert (new(found), found.held) == ([(1, -1), (2, -1), (3, -1)], None)
    assert plan(later, copied(2)).held == 1


def test_a_forwarded_log_that_begins_in_the_middle_has_not_the_events_before_it() -> None:
    """Its first epoch stands for them, and has none. Fails when it counts as the next epoch of a
    site that lacks that one."""
    beginning = replace(forwarded(1, first=30).manifests[1], start=False, frames=())
    found = plan(Log(beginning), copied(29))
    assert (found.held, found.new) == (1, [])
    assert "the stream has earlier events" in str(found.cause)
    assert plan(Log(beginning), copied(30)).held is None


def test_a_gap_of_the_site_that_forwards_is_seen_behind_it() -> None:
    log = forwarded(1, 2, 3)
    skipped = {**log.manifests}
    skipped[3] = replace(skipped[3], root=replace(ROOT, epoch=7))
    log = Log(*skipped.values())
    found = plan(log, copied(2))
    assert (found.held, found.new) == (3, [])
    assert "lacks what is between" in str(found.cause) and found.needs == "epochs"
    log.accepts = lambda log_id: log_id == A
    assert new(plan(log, copied(2))) == [(3, -1)]


def test_a_log_goes_on_behind_epochs_that_are_known_at_the_origin() -> None:
    """Then another log of the origin begins. Fails when the site asks for a copy."""
    log = forwarded(1, 2, 3, first=4)
    epochs = {**log.manifests}
    epochs[3] = replace(epochs[3], root=replace(ROOT, log_id="9" * 32, epoch=1))
    assert new(plan(Log(*epochs.values()), copied(5))) == [(3, -1)]


@pytest.mark.parametrize("trimmed", [1, 2])
def test_a_user_does_without_the_beginning_of_a_log_that_is_trimmed(trimmed: int) -> None:
    """Fails when the decision that the message names does not help."""
    log = for_others(1, 2, of=4)
    for number in range(1, trimmed + 1):
        del log.manifests[number]
    found = plan(log)
    assert found.new == [] and "new-log" in str(found.cause)
    log.accepts = lambda log_id: log_id == A
    assert new(plan(log)) == [(3, -1), (4, -1)]


def test_what_a_forwarded_user_stream_brings_counts_for_its_origin() -> None:
    log = forwarded(1, 2)
    found = plan(log)
    assert new(found) == [(1, -1), (2, -1)]
    progress = Progress()
    for each in found.new:
        manifest = each.manifest
        progress.advance(origin_of(manifest), -1, manifest, manifest.written_at_origin)
    assert progress.positions[ROOT.stream, ROOT.log_id] == 2
    assert progress.has(replace(ROOT, epoch=2)) and not progress.has(replace(ROOT, epoch=3))


def test_the_epoch_after_a_trimmed_part_of_the_log_is_not_compared() -> None:
    log = epochs(1, 2, 3, 4)
    del log.manifests[1], log.manifests[2]
    assert new(plan(log, applied(19, 1, "of the trimmed manifest"))) == [(3, -1), (4, -1)]


# --- limits ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "taken"),
    [
        ({"max_epochs": 2}, 2),
        ({"max_bytes": 250}, 2),
        ({"max_bytes": 300}, 3),
        ({"max_bytes": 1}, 1),
        ({"max_epochs": 9}, 3),
    ],
)
def test_a_plan_ends_at_its_limits(limits: dict[str, int], taken: int) -> None:
    found = plan(epochs(1, 2, 3), **limits)
    assert (len(found.new), found.more) == (taken, taken < 3)


@pytest.mark.parametrize(
    "change", [{"schema": schema(id="long", city="string", zip="string")}, {"keys": ("city",)}]
)
def test_epochs_with_other_columns_or_keys_are_applied_separately(
    change: dict[str, Any],
) -> None:
    log = Log(manifest(1), replace(manifest(2), **change), replace(manifest(3), **change))
    found = plan(log)
    assert (new(found), found.more) == ([(1, -1)], True)
    found = plan(log, applied(9, 1))
    assert (new(found), found.more) == ([(2, -1), (3, -1)], False)


# --- users' streams -------------------------------------------------------------------------------


def users(*numbers: int, **changes: Any) -> Log:
    return epochs(
        *numbers,
        **{
            "kind": EVENTS,
            "table_id": "events",
            "first_version": -1,
            "last_version": -1,
            **changes,
        },
    )


def position(epoch: int, fingerprint: str = "") -> Progress:
    progress = Progress()
    progress.advance(("newark", "events", "all"), -1, in_log(epoch, fingerprint))
    return progress


def test_a_user_stream_is_planned_by_its_position() -> None:
    assert new(plan(users(1, 2))) == [(1, -1), (2, -1)]
    found = plan(users(1, 2, 3), position(2))
    assert (new(found), found.known) == ([(3, -1)], 2)
    assert position(2).through == {}


def test_a_user_stream_with_a_gap_is_held() -> None:
    """Fails when the epoch is not compared with the position."""
    for progress, numbers in ((Progress(), (2, 3)), (position(2), (5, 6))):
        found = plan(users(*numbers), progress)
        assert (found.held, found.new) == (numbers[0], [])
        assert "is the first in the log" in str(found.cause)


def test_f48_a_restarted_log_of_a_user_stream_is_held_until_it_is_accepted() -> None:
    """Its channel was deleted: what this site had not applied is lost.

    Fails when a log with another ID begins at its first epoch: nothing would ever report that
    events are missing.
    """
    begun = "b" * 32
    log = users(1, 2, log_id=begun)
    found = plan(log, position(7))
    assert (found.held, found.new) == (1, [])
    assert f"this site has applied the log {A} through epoch 7" in str(found.cause)
    assert f"wan decide orders@{begun}=new-log" in str(found.cause)
    log.accepts = {A}.__contains__
    assert plan(log, position(7)).held == 1
    log.accepts = {begun}.__contains__
    assert new(plan(log, position(7))) == [(1, -1), (2, -1)]
    log.accepts = set[str]().__contains__
    went_on = position(7)
    went_on.advance(("newark", "events", "all"), -1, log.manifests[1])
    assert new(plan(log, went_on)) == [(2, -1)]


# --- progress -------------------------------------------------------------------------------------


def test_progress_never_goes_back() -> None:
    progress = applied(30, 3, "newer")
    progress.advance(ORIGIN, 20, in_log(2, "older"))
    assert (
        progress.through[ORIGIN],
        progress.positions[STREAM, A],
        progress.fingerprints[STREAM, A],
    ) == (
        30,
        3,
        "newer",
    )


def test_planning_changes_no_progress() -> None:
    progress = applied(9, 1)
    before = progress.copy()
    plan(epochs(1, 2, 3), progress)
    assert progress == before


@pytest.mark.parametrize("cut", range(1, 6))
def test_planning_in_parts_equals_planning_at_once(cut: int) -> None:
    everything = new(plan(epochs(1, 2, 3, 4, 5)))
    progress, found = Progress(), []
    while (part := plan(epochs(1, 2, 3, 4, 5), progress, max_epochs=cut)).new:
        for each in part.new:
            progress.advance(ORIGIN, each.manifest.last_version, each.manifest)
        found += new(part)
    assert found == everything


def test_a_plan_says_whether_its_last_epoch_is_the_end_of_the_stream() -> None:
    """Also after a restart, when all of it is applied. Fails when an end is told of a log that goes
    on behind it."""
    past = {"first_version": 10, "last_version": 9, "start": False, "frames": (), "end": True}
    log = Log(manifest(1, frames=(FRAME,)), manifest(2, **past))
    assert plan(log).ends
    assert plan(log, applied(9, 2)).ends
    assert not plan(log, applied(9, 2), max_epochs=0).new
    log.extend(manifest(3, first_version=10, last_version=10, start=False, frames=(FRAME,)))
    assert not plan(log).ends
    assert not plan(log, applied(9, 2)).ends
