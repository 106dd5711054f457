"""The publisher's numbered path, with a source that is a list of commits."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any
from unittest.mock import Mock, patch

import pytest
from fakes import MANIFEST, STREAM, ack, commit, schema
from faulty_channel import Fault
from publishing import Site

from spark_wan.apply.plan import StreamPlanner
from spark_wan.capture.ranges import CaptureRange, CaptureResult
from spark_wan.errors import (
    NEW_SITE,
    SOURCE,
    ChangeFeedError,
    ChannelError,
    ForwardingError,
    HistoryLostError,
    KeylessChangeError,
    LogGapError,
    ManifestExists,
    SchemaError,
    SourceError,
    SourceUnreadableError,
    TableOperationError,
    TableReplacedError,
    UnsupportedTypeError,
    WanError,
)
from spark_wan.ledger.progress import Progress, origin_of
from spark_wan.log.frame_age import STALE_AGE
from spark_wan.log.inbound import InboundLog
from spark_wan.log.stream_log import StreamLog
from spark_wan.log.writer import MOST_REFUSALS
from spark_wan.sender.acks import AckManager
from spark_wan.sender.publish import QUIET_COMMITS
from spark_wan.steps import run
from spark_wan.topology.ack_policy import AckPolicy
from spark_wan.units import milliseconds
from spark_wan.wire.checkpoint import SenderCheckpoint
from spark_wan.wire.decisions import Decisions
from spark_wan.wire.frame import FrameHeader
from spark_wan.wire.manifest import CAPTURE, EVENTS, SNAPSHOT, Manifest
from spark_wan.wire.mark import LOCAL_ONLY
from spark_wan.wire.records import TableClock

STEPS = [
    "publish.1 log-read",
    "publish.2 source-checked",
    "publish.3 range-planned",
    "publish.4 frames-written",
    "publish.5 manifest-added",
    "publish.6 checkpointed",
]


# --- first contact


def test_a_stream_begins_at_a_version() -> None:
    site = Site(start=2)
    for _ in range(4):
        site.source.add()
    first = site.published()
    assert (first.epoch, first.kind, first.first_version, first.last_version, first.start) == (
        1,
        CAPTURE,
        2,
        4,
        True,
    )
    assert [ref["version"] for ref in first.commits] == [2, 3, 4]
    assert site.source.calls[-1] == "capture 2-4"


def test_a_stream_waits_for_the_version_that_it_begins_at() -> None:
    site = Site(start=1)
    assert site.round() is None
    site.source.add()
    assert site.published().first_version == 1


def test_a_start_beyond_the_next_version_is_an_error() -> None:
    site = Site(start=5)
    site.held(SourceError, "start at version 5, but its newest is 0")


def test_a_stream_begins_with_a_snapshot() -> None:
    site = Site(start=None)
    for _ in range(3):
        site.source.add()
    first = site.published()
    assert (first.kind, first.first_version, first.last_version, first.start) == (
        SNAPSHOT,
        0,
        3,
        True,
    )
    assert site.source.calls == ["look", "history", "snapshot 3"]
    site.source.add()
    second = site.published()
    assert (second.kind, second.first_version, second.last_version, second.start) == (
        CAPTURE,
        4,
        4,
        False,
    )


def test_the_manifest_of_a_captured_stream() -> None:
    site = Site()
    first = site.published()
    expected = replace(
        MANIFEST,
        log_id=first.log_id,
        sent_to=("seattle", "tacoma"),
        last_version=0,
        commits=first.commits,
        identity=site.source.commits[0].identity,
        frames=first.frames,
        created=site.clock(),
        clock=TableClock(1_700_000_000_000, 1_700_000_000_000),
    )
    assert first == expected
    assert site.log.newest_manifest() == first
    assert [frame.path for frame in first.frames] == [
        path for path, _ in site.channel.frames(STREAM)
    ]


def test_epochs_follow_each_other_under_one_log_id() -> None:
    site = Site(max_epoch_rows=2)
    for _ in range(5):
        site.source.add()
    ranges = [
        (each.epoch, each.first_version, each.last_version, each.start) for each in site.rounds()
    ]
    assert ranges == [(1, 0, 1, True), (2, 2, 3, False), (3, 4, 5, False)]
    assert len({site.log.read(epoch).log_id for epoch in (1, 2, 3)}) == 1


def test_the_steps_come_in_their_order() -> None:
    assert list(Site().publisher.round()) == STEPS


def test_nothing_is_visible_before_the_manifest_and_a_crash_changes_nothing() -> None:
    """Invariants 1 and 3: dropped after each of the steps, begun again by another process."""
    for steps in range(1, len(STEPS) + 1):
        site = Site()
        site.source.add()
        attempt = site.publisher.round()
        for step in range(steps):
            assert next(attempt) == STEPS[step]
            assert site.inner.epochs() == ({STREAM: [1]} if step >= 4 else {})
        attempt.close()
        site.restart()
        site.rounds()
        last = site.log.newest_manifest()
        assert last is not None and (last.epoch, last.first_version, last.last_version) == (1, 0, 1)
        site.source.add()
        assert site.published().first_version == 2


# --- idle and quiet


def test_an_idle_source_is_only_looked_at() -> None:
    site = Site()
    site.published()
    site.source.calls.clear()
    for _ in range(5):
        assert site.round() is None
    assert site.source.calls == ["look"] * 5
    assert site.inner.epochs() == {STREAM: [1]}


def test_b83_maintenance_commits_are_no_epoch_and_are_read_once() -> None:
    site = Site()
    site.published()
    site.source.add("OPTIMIZE")
    site.source.add("VACUUM END")
    site.source.calls.clear()
    assert site.rounds() == []
    assert site.rounds() == []
    assert site.source.calls.count("history") == 1
    site.source.add()
    assert (site.published().first_version, site.log.since(0)) == (1, [1, 2])


def test_b84_local_only_commits_are_no_epoch() -> None:
    site = Site()
    site.published()
    site.source.add(user_metadata=LOCAL_ONLY)
    assert site.rounds() == []
    site.source.add()
    assert [ref["version"] for ref in site.published().commits] == [2]


def test_a_commit_of_a_receiver_holds_the_stream_until_it_is_decided() -> None:
    """The addressees are those of the sender. Fails when the publisher does not say who they
    are."""
    site = Site()
    site.published()
    site.source.add(user_metadata='{"spark_wan": {"site": "newark", "origin": "denver"}}')
    site.held(
        ForwardingError, "rows from site denver; this sender does not send them on to seattle"
    )
    site.decisions = Decisions({1: "distribute"})
    assert [ref["version"] for ref in site.published().commits] == [1]
    site.source.add(user_metadata='{"spark_wan": {"site": "newark", "origin": "seattle"}}')
    assert site.rounds() == []


def test_a_site_that_is_new_is_named_before_anything_is_sent_to_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Once. Fails when the first word of it is that its receiver holds the stream."""
    site = Site()
    site.published()
    site.restart(addressees=("seattle", "denver", "tacoma"))
    assert [each.rows for each in site.rounds()] == [0]
    site.source.add()
    site.published()
    named = [line for line in caplog.messages if "denver, tacoma are new to this stream" in line]
    assert len(named) == 1 and "everything through version 0" in named[0] and NEW_SITE in named[0]


def test_a_new_site_that_has_everything_is_not_named(caplog: pytest.LogCaptureFixture) -> None:
    """It got a copy, and acked. Fails when the acks are not asked: an operator makes another."""
    site = Site()
    first = site.published()
    ack(site.log, "denver", first.epoch, log_id=first.log_id)
    site.restart(addressees=("seattle", "denver"))
    assert [each.rows for each in site.rounds()] == [0]
    site.restart(addressees=("seattle", "denver", "tacoma"))
    assert [each.rows for each in site.rounds()] == [0]
    named = [line for line in caplog.messages if "new to this stream" in line]
    assert len(named) == 1 and ": tacoma is new to this stream" in named[0]


def test_an_epoch_without_events_names_a_new_site_at_once() -> None:
    """Fails when it waits for the next commit, which may take months: until then nobody sees that
    the site lacks something."""
    site = Site()
    first = site.published()
    site.restart(addressees=("seattle", "denver"))
    (naming,) = site.rounds()
    assert naming.addressees == ("seattle", "denver")
    assert (naming.first_version, naming.last_version) == (
        first.last_version + 1,
        first.last_version,
    )
    assert (naming.start, naming.frames, naming.commits, naming.identity) == (
        False,
        (),
        (),
        first.identity,
    )
    assert naming.clock == first.clock and naming.schema == first.schema
    assert site.rounds() == []
    site.restart(addressees=("seattle",))  # a site that leaves needs no word
    assert site.rounds() == []
    site.source.add()
    assert site.published().first_version == first.last_version + 1


def test_commits_that_wait_name_a_new_site_by_themselves() -> None:
    site = Site()
    site.published()
    site.source.add()
    site.restart(addressees=("seattle", "denver"))
    (only,) = site.rounds()
    assert (only.rows, only.addressees) == (1, ("seattle", "denver"))


def test_commits_without_events_do_not_hide_a_new_site() -> None:
    """Fails when a range that turns out to have no events ends the round."""
    site = Site()
    site.published()
    site.source.add(user_metadata=LOCAL_ONLY)
    site.restart(addressees=("seattle", "denver"))
    (only,) = site.rounds()
    assert (only.rows, only.addressees) == (0, ("seattle", "denver"))


def test_a_receiver_that_has_all_passes_over_an_epoch_that_names_sites() -> None:
    """The new one is held there, and says what it needs."""
    site = Site()
    site.published()
    site.restart(addressees=("seattle", "denver"))
    (naming,) = site.rounds()
    site.log.channel.trim_manifest(STREAM, 1)
    has_all = Progress({origin_of(naming): naming.last_version})
    inbound = InboundLog(site.log, "orders")
    seattle = StreamPlanner(inbound, "seattle", has_all, {}, 1 << 40, 9).plan([2])
    assert (seattle.known, seattle.held, seattle.new) == (2, None, [])
    denver = StreamPlanner(inbound, "denver", Progress(), {}, 1 << 40, 9).plan([2])
    assert (denver.held, denver.needs) == (2, "epochs")
    assert denver.least == ((*origin_of(naming), naming.last_version),)


# --- the source's clock


def clocks(made: Manifest) -> list[tuple[int, int]]:
    return [(ref["version"], ref["clock"]) for ref in made.commits]


def test_each_commit_travels_with_its_stamp() -> None:
    """A receiver's commit between the site's own has the stamp of what it applied, and is left
    out; the next one of the site's own has a higher stamp. Fails when an epoch does not go on from
    the clock of the one before it."""
    site = Site(max_epoch_rows=1)
    for time in (5_000, 4_000, 6_000):
        site.source.add(time=time)
    mark = {"site": "newark", "applied": [{"origin": "seattle", "clock": 9_000}]}
    site.source.commits[0] = commit(0, time=1_000)
    site.source.add("MERGE", user_metadata=json.dumps({"spark_wan": mark}), time=7_000)
    site.source.add(time=7_500)
    rounds = []
    while (made := site.round()) is not None:
        rounds.append(clocks(made))
        site.restart()
    assert rounds == [[(0, 1_000)], [(1, 5_000)], [(2, 5_001)], [(3, 6_000)], [(5, 9_001)]]
    newest = site.log.newest_manifest()
    assert newest is not None and newest.clock == TableClock(9_001, 7_500)


def test_the_stamp_of_a_snapshot_is_the_highest_through_its_version() -> None:
    """It stands for all commits before it. Fails when only its own commit is looked at: its rows
    may be newer than that."""
    site = Site(start=None)
    site.source.add(time=1_700_000_500_000)
    mark = {"site": "newark", "applied": [{"origin": "seattle", "clock": 4}]}
    site.source.add("MERGE", user_metadata=json.dumps({"spark_wan": mark}))
    first = site.published()
    assert (first.kind, clocks(first)) == (SNAPSHOT, [(2, 1_700_000_500_000)])
    site.source.add()
    assert clocks(site.published()) == [(3, 1_700_000_500_002)]


def test_the_clock_of_a_long_history_is_read_in_parts() -> None:
    """Fails when only the first part counts: later stamps would be lower than earlier ones."""
    site = Site(start=9)
    for number in range(12):
        site.source.add(time=1_700_000_900_000 if number == 6 else 1_700_000_000_000 + number)
    site.source.most = 4
    assert clocks(site.published())[0] == (9, 1_700_000_900_002)


@pytest.mark.parametrize("start", [0, 2, None])
def test_a_stream_of_a_version_that_kept_no_clock_gets_the_same_stamps(start: int | None) -> None:
    """So does one that begins later. Fails when the clock begins anew there."""
    site, other = Site(start=0), Site(start=start)
    for each in (site, other):
        each.source.add(time=1_700_000_900_000)
        each.source.add()
    site.published()
    first = other.published()
    commits = tuple({"version": ref["version"], "time": ref["time"]} for ref in first.commits)
    other.inner.trim_manifest(STREAM, 1)
    other.inner.append(STREAM, 1, replace(first, commits=commits, clock=None).encode())
    other.restart()
    for each in (site, other):
        each.source.add()
    assert clocks(site.published()) == clocks(other.published()) == [(3, 1_700_000_900_002)]


def test_an_epoch_without_events_carries_the_clock_on() -> None:
    site = Site()
    site.published()
    for _ in range(QUIET_COMMITS):
        site.source.add("OPTIMIZE")
    quiet = site.published()
    newest = site.source.newest().time
    assert (quiet.commits, quiet.frames, quiet.clock) == ((), (), TableClock(newest, newest))
    assert quiet.highest_stamp == newest


def test_f51_a_mark_of_a_newer_spark_wan_holds_the_stream_before_its_commit() -> None:
    """Fails when its commit is judged by what this version knows of it: it may be something else
    than a receiver's commit, or have another stamp."""
    for mark in ({"version": 3, "site": "newark"}, {"local_only": True, "requires": ["expired"]}):
        site = Site()
        site.published()
        site.source.add()
        site.source.add(user_metadata=json.dumps({"spark_wan": mark}))
        assert site.published().last_version == 1
        site.held(SourceError, "version 2 carries a mark written by a newer spark_wan.*Update")


def test_commits_without_events_are_no_epoch() -> None:
    """An update that changes nothing: only the change feed tells."""
    site = Site()
    site.published()
    site.source.add()
    site.source.without_events = {1}
    site.source.calls.clear()
    assert site.rounds() == []
    assert site.rounds() == []
    assert [call for call in site.source.calls if call.startswith("capture")] == ["capture 1-1"]
    site.source.add()
    assert (site.published().first_version, site.source.calls[-1]) == (1, "capture 1-2")


def test_a_long_quiet_range_is_recorded_without_frames() -> None:
    """Before log cleanup takes it. Fails when quiet ranges never become a manifest."""
    site = Site()
    site.published()
    for _ in range(QUIET_COMMITS - 1):
        site.source.add("OPTIMIZE")
    assert site.rounds() == []
    site.source.add("OPTIMIZE")
    (recorded,) = site.rounds()
    assert (recorded.first_version, recorded.last_version, recorded.frames, recorded.commits) == (
        1,
        QUIET_COMMITS,
        (),
        (),
    )


def test_a_quiet_range_before_other_commits_is_recorded() -> None:
    """A table operation that was skipped, and a limit right behind it."""
    site = Site(max_epoch_rows=1)
    site.published()
    site.source.without_events = {1}
    site.source.add()
    site.source.add()
    assert [
        (each.first_version, each.last_version, len(each.frames)) for each in site.rounds()
    ] == [(1, 1, 0), (2, 2, 1)]


def test_b80_new_columns_are_recorded_without_any_row() -> None:
    site = Site()
    site.published()
    wider = schema(id="long", city="string", zip="string")
    site.source.add("ADD COLUMNS")
    site.source.columns[1] = wider
    (recorded,) = site.rounds()
    assert (recorded.schema, recorded.frames) == (wider, ())


# --- columns


def test_f41_epochs_are_cut_where_the_columns_change() -> None:
    site = Site()
    for _ in range(5):
        site.source.add()
    site.source.columns[3] = schema(id="long", city="string", zip="string")
    assert [
        (each.first_version, each.last_version, len(each.schema["fields"]))
        for each in site.rounds()
    ] == [(0, 2, 2), (3, 5, 3)]


@pytest.mark.parametrize("columns", [schema(id="long"), schema(id="string", city="string")])
def test_f41_columns_dropped_or_retyped_hold_the_stream_before_that_version(
    columns: dict[str, Any],
) -> None:
    """Fails when columns are not compared with those of the last manifest."""
    site = Site()
    for _ in range(3):
        site.source.add()
    site.source.columns[2] = columns
    assert [(each.first_version, each.last_version) for each in [site.published()]] == [(0, 1)]
    site.held(SchemaError, "at version 2")


def test_types_that_cannot_be_carried_are_refused_before_anything_is_sent() -> None:
    site = Site()
    site.source.columns[0] = schema(id="long", since="interval year to month")
    site.held(UnsupportedTypeError, "since")


@pytest.mark.parametrize("start", [0, None])
def test_missing_keys_are_refused_by_name(start: int | None) -> None:
    site = Site(keys=("id", "zip"), start=start)
    site.held(SchemaError, "key column 'zip' is not there")


# --- table operations


@pytest.mark.parametrize("action", ["skip", "distribute"])
def test_a_table_operation_without_events_is_recorded_at_once(action: str) -> None:
    """It is skipped, or the table was empty. Fails when sites that ask for a copy wait for days,
    until something else is published."""
    site = Site(on_table_operation=action)
    site.published()
    site.source.add("TRUNCATE")
    site.source.without_events = {1}
    recorded = site.published()
    assert (recorded.last_version, recorded.frames) == (1, ())
    assert site.rounds() == []


def truncated(**settings: Any) -> Site:
    site = Site(**settings)
    site.source.add()
    site.source.add("TRUNCATE")
    site.source.add()
    return site


def test_a_table_operation_holds_the_stream_once_earlier_commits_are_published() -> None:
    site = truncated()
    assert site.published().last_version == 1
    site.held(TableOperationError, "orders@2=distribute")


@pytest.mark.parametrize(
    ("action", "versions"), [("distribute", [0, 1, 2, 3]), ("skip", [0, 1, 3])]
)
def test_a_table_operation_is_decided_by_the_topology_or_once(
    action: str, versions: list[int]
) -> None:
    site = truncated(on_table_operation=action)
    assert [ref["version"] for each in site.rounds() for ref in each.commits] == versions
    site = truncated()
    site.published()
    site.decisions = Decisions({2: action})
    assert [ref["version"] for each in site.rounds() for ref in each.commits] == versions[2:]


# --- a source that is not what it was


def test_a_source_restored_to_an_older_state_is_held() -> None:
    """A restored backup: fewer versions than were published."""
    site = Site()
    site.source.add()
    site.published()
    del site.source.commits[1:]
    site.held(TableReplacedError, "newest version is 0, but version 1 was published")


@pytest.mark.parametrize("more", [0, 1])
def test_f07_a_source_restored_and_written_to_again_is_held(more: int) -> None:
    """The published version is another commit now. Fails when identities are not compared; and,
    where there are no newer versions yet, when a publisher that begins does not compare them: the
    hold would come with the next commit, perhaps weeks later."""
    site = Site()
    site.source.add()
    site.published()
    site.source.commits[1] = commit(1, rows=77)
    for _ in range(more):
        site.source.add()
    site.restart()
    site.held(TableReplacedError, "version 1 is not the commit that was published")


def test_a_table_that_was_replaced_is_held() -> None:
    """Dropped and made again: other commits under the old numbers. Fails when identities and table
    IDs are not compared."""
    site = Site()
    site.published()
    site.source.id = "another"
    site.source.commits = [commit(0, rows=5), commit(1)]
    site.held(TableReplacedError, "has the ID another")


@pytest.mark.parametrize(
    "seen", ["nothing", "no table", "fewer versions", "another table, in vain"]
)
def test_f07_a_source_that_is_replaced_by_one_with_as_many_versions_is_held(seen: str) -> None:
    """While a publisher is idle, whatever it saw on the way. Fails (nothing is held until the next
    commit) when a source is compared only once, or when an error on the way is forgotten as soon as
    the number of versions fits."""

    def held(error: type[WanError], match: str) -> None:
        with pytest.raises(error, match=match):
            site.round()

    site = Site()
    site.source.add()
    site.published()
    assert site.round() is None
    seen_before = site.source.look(1)
    site.source.id, site.source.commits = "another", [commit(0, rows=5), commit(1, rows=7)]
    if seen == "no table":
        site.source.commit = Mock(side_effect=SourceError("gone"))  # type: ignore[method-assign]
        held(SourceError, "gone")
        del site.source.commit
    elif seen == "fewer versions":
        last = site.source.commits.pop()
        held(TableReplacedError, "has the ID another")
        site.source.commits.append(last)
    elif seen != "nothing":
        site.source.add()
        held(TableReplacedError, "has the ID another")
        site.source.commits.pop()
    if seen != "nothing":
        # Now it looks as it did before, by chance: what was met must not be forgotten.
        site.source.look = lambda _: seen_before  # type: ignore[method-assign]
    for _ in range(2):
        held(TableReplacedError, "has the ID another")


def test_a_published_commit_removed_by_log_cleanup_is_no_error() -> None:
    site = Site()
    site.source.add()
    site.published()
    site.source.add()
    site.source.commits = site.source.commits[2:]
    site.restart()
    assert site.published().first_version == 2


def lagging(**settings: Any) -> Site:
    """A site whose sender has been overtaken by log cleanup: version 1 is gone, 2 and 3 are not."""
    site = Site(**settings)
    site.published()
    for _ in range(3):
        site.source.add()
    site.source.commits = site.source.commits[2:]
    return site


def goes_over(manifest: Manifest, version: int) -> None:
    """Whoever lacks anything through ``version`` sees a gap."""
    assert (manifest.first_version, manifest.last_version) == (version + 1, version)
    assert (manifest.kind, manifest.start, manifest.frames) == (CAPTURE, False, ())


def test_f09_log_cleanup_that_overtakes_the_sender_gives_every_site_a_copy(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The table has lost nothing. Fails (held) when somebody has to do something."""
    site = lagging()
    goes_over(site.published(), 3)
    assert "versions 1 to 1 are no longer" in caplog.text
    assert "lacks what came before version 4 gets a copy" in caplog.text
    site.restart()
    assert site.rounds() == []
    site.source.add()
    assert site.published().first_version == 4


def test_what_vacuum_took_while_it_was_read_gives_every_site_a_copy() -> None:
    site = Site()
    site.published()
    site.source.add()
    lost = HistoryLostError("files are gone", needs=SOURCE)
    with patch.object(site.source, "capture", Mock(side_effect=lost)):
        goes_over(site.published(), 1)


@pytest.mark.parametrize("what", ["a TRUNCATE", "far behind", "empty"])
def test_a_lost_history_does_not_empty_the_sites(what: str) -> None:
    """Fails when a copy has what an operation did that was never decided on."""
    site = lagging()
    if what == "empty":
        site.source.empty = True
        match = "The table is empty now"
    else:
        site.source.most = 1 if what == "far behind" else None
        site.source.add("TRUNCATE")
        match = "Version 4 is a TRUNCATE"
    site.held(HistoryLostError, match + r".*decide orders@0=resync`\.")
    site.decisions = Decisions(resyncs=frozenset((0,)))
    goes_over(site.published(), site.source.newest().version)


def test_a_table_operation_that_is_decided_does_not_hold_a_lost_history() -> None:
    site = lagging()
    site.source.add("TRUNCATE")
    site.decisions = Decisions({4: "distribute"})
    goes_over(site.published(), 4)


def test_a_stream_that_has_published_nothing_goes_over_nothing() -> None:
    """There is nothing that sites may have."""
    site = Site(start=1)
    for _ in range(3):
        site.source.add()
    site.source.commits = site.source.commits[2:]
    site.held(HistoryLostError, "Nothing was published yet: set a later `start`")


def test_changed_keys_are_refused() -> None:
    site = Site()
    site.published()
    site.source.add()
    site.settings = replace(site.settings, keys=("city",))
    site.restart()
    site.held(SourceError, r"its keys are \['city'\] in the topology.*published with \['id'\]")


# --- a channel that is not what it was


def test_a_manifest_that_is_refused_again_and_again_holds_the_stream() -> None:
    """The log does not grow meanwhile: a topic that was made again below its end, or a forged one.
    No frame is left. Fails (RecursionError, or no end) when each refusal is taken for a rival."""
    site = Site()
    site.published()
    site.source.add()
    appended = Mock(side_effect=ManifestExists("it is there"))
    with patch.object(site.inner, "append", appended):
        for tries in (MOST_REFUSALS, 2 * MOST_REFUSALS):
            with pytest.raises(
                LogGapError, match=r"manifest 2 .* refused 5 times.*Restore the chan"
            ):
                site.round()
            assert appended.call_count == tries
    assert len(site.inner.frames(STREAM)) == 1
    assert site.published().epoch == 2


def test_f17_a_channel_that_was_deleted_is_held() -> None:
    """Fails when the log is not compared with the sender's checkpoint: a new log would begin where
    the source stands now."""
    site = Site()
    site.published()
    site.channel.trim_manifest(STREAM, 1)
    site.source.add()
    site.held(LogGapError, "is gone; it was at manifest 1")


def test_f17_a_channel_restored_to_an_older_state_is_held() -> None:
    site = Site(max_epoch_rows=1)
    site.source.add()
    site.rounds()
    site.channel.trim_manifest(STREAM, 2)
    site.held(LogGapError, "ends at manifest 1, but it was at 2")


@pytest.mark.parametrize("start", [0, None])
def test_f17_a_channel_with_another_log_is_held(start: int | None) -> None:
    """It is there, and says how far it is: what was published by the lost one need not be known.
    Fails when only a full copy is advised then."""
    site = Site(start=start)
    site.published()
    site.checkpoints.save(STREAM, SenderCheckpoint("another", 1))
    site.held(LogGapError, "another one than before.*orders@another=new-log")


def test_f06_a_lost_checkpoint_costs_only_the_check() -> None:
    site = Site()
    site.published()
    site.checkpoints.kept.clear()
    site.source.add()
    assert site.published().epoch == 2
    assert site.checkpoints.kept[STREAM].epoch == 2


def test_f48_a_new_log_continues_after_what_the_lost_one_published() -> None:
    """The user allows it, once and for this log. The new log goes on where the old one ended, so
    that sites that had all of it have all of it still. Fails when it begins with a snapshot: a site
    that has applied anything refuses that."""
    site = Site()
    first = site.published()
    site.channel.trim_manifest(STREAM, 1)
    site.source.add()
    site.held(LogGapError, f"is gone.*wan decide orders@{first.log_id}=new-log")
    site.decisions = Decisions(new_logs=frozenset((first.log_id,)))
    second = site.published()
    assert (second.epoch, second.start, second.kind) == (1, False, CAPTURE)
    assert (second.first_version, second.last_version) == (
        first.last_version + 1,
        first.last_version + 1,
    )
    assert second.log_id != first.log_id
    site.restart()
    site.source.add()
    assert site.published().epoch == 2
    site.channel.trim_manifest(STREAM, 1)
    site.channel.trim_manifest(STREAM, 2)
    site.held(LogGapError, f"is gone.*{second.log_id}")


def next_commit(site: Site, operation: str, now: Mapping[str, Any], **parameters: str) -> None:
    """One that changes the columns."""
    made = site.source.add(operation)
    site.source.commits[-1] = replace(made, parameters=parameters)
    site.source.columns[made.version] = now


RENAMED = {"oldColumnPath": "city", "newColumnPath": "town"}
TOWN = schema(id="long", town="string")


def lose(site: Site, first: Manifest) -> None:
    """The log is gone, and the user lets a new one begin."""
    for epoch in site.log.since(0):
        site.channel.trim_manifest(STREAM, epoch)
    site.decisions = Decisions(new_logs=frozenset((first.log_id,)))
    site.restart()


@pytest.mark.parametrize("lost", [False, True], ids=["with its log", "after a lost log"])
@pytest.mark.parametrize(
    "what", ["renamed", "dropped and added", "overwritten", "restored", "other keys"]
)
def test_f48_a_source_is_compared_with_what_was_published(what: str, lost: bool) -> None:
    """Also where a new log begins, by the sender's checkpoint. Fails (publishes) when only the
    log's newest manifest is asked: the remote sites have columns, rows or keys that the source has
    no more."""
    site = Site()
    for _ in range(3):
        site.source.add()
    first = site.published()
    site.restart()
    match = f"decide orders@{first.last_version}=resync"
    if what == "renamed":
        next_commit(site, "RENAME COLUMN", TOWN, **RENAMED)
        match = "city is named town now"
    elif what == "dropped and added":
        next_commit(site, "DROP COLUMNS", schema(id="long"), columns='["city"]')
        next_commit(site, "ADD COLUMNS", schema())
    elif what == "overwritten":
        next_commit(site, "WRITE", schema(id="long"))
    elif what == "restored":
        del site.source.commits[2:]
        for _ in range(4):
            site.source.add(rows=77)
    else:
        site.settings = replace(site.settings, keys=("id", "city"))
        site.restart()
        site.source.add()
    if lost:
        lose(site, first)
    site.held(WanError, match)
    site.decisions |= Decisions(resyncs=frozenset((first.last_version,)))
    newest = site.published()
    goes_over(newest, site.source.newest().version)
    assert newest.keys == site.settings.keys
    site.source.add()
    assert site.published().first_version == newest.first_version


def test_another_table_is_sent_once_that_is_decided() -> None:
    """With its own ID, so that sites see that the source was replaced. Fails when the decision
    counts for the next table, too."""
    site = Site()
    for _ in range(3):
        site.source.add()
    first = site.published()

    def another(table_id: str, rows: int) -> None:
        site.source.id, site.source.commits = table_id, [commit(0, rows=rows)]

    another("another", 77)
    site.held(TableReplacedError, f"has the ID another.*orders@{first.last_version}=resync")
    site.decisions = Decisions(resyncs=frozenset((first.last_version,)))
    second = site.published()
    goes_over(second, 0)
    assert second.table_id == "another"
    another("a third", 78)
    site.held(TableReplacedError, "has the ID a third.*orders@0=resync")


def test_what_holds_a_stream_before_it_begins_needs_no_other_start() -> None:
    """The message says what to do, and a snapshot follows. Fails when it adds that `start` is to be
    a later version."""
    site = Site(start=None)
    off = ChangeFeedError("the feed is off", needs=SOURCE)
    with patch.object(site.source, "snapshot", Mock(side_effect=off)):
        site.held(ChangeFeedError, "the feed is off$")


def test_a_table_without_a_feed_is_not_gone_over() -> None:
    """Nothing could follow the copies. Fails (a decision for each commit) when that shows later."""
    site = lagging()
    site.source.feed_error = ChangeFeedError("the feed is off")
    site.held(ChangeFeedError, "the feed is off")
    site.source.feed_error = None
    goes_over(site.published(), 3)


def test_a_table_that_went_back_is_sent_once_sites_can_tell() -> None:
    """What they have is told by versions. Fails (sites take what comes for known) when versions are
    used again."""
    site = Site()
    for _ in range(3):
        site.source.add()
    site.published()
    del site.source.commits[2:]
    site.decisions = Decisions(resyncs=frozenset((3,)))
    site.held(TableReplacedError, "above version 3, every site gets a copy")
    for _ in range(2):
        site.source.add(rows=77)
    site.held(TableReplacedError, "above version 3, every site gets a copy")
    site.source.add(rows=77)
    goes_over(site.published(), 4)


def test_changed_keys_that_are_decided_cost_no_copy() -> None:
    """Sites that have everything have nothing to ask for."""
    site = Site()
    first = site.published()
    site.settings = replace(site.settings, keys=("city",))
    site.restart()
    site.held(SourceError, f"its keys are.*orders@{first.last_version}=resync")
    site.decisions = Decisions(resyncs=frozenset((first.last_version,)))
    second = site.published()
    assert (second.first_version, second.keys) == (first.last_version + 1, ("city",))
    assert second.clock == first.clock


@pytest.mark.parametrize("start", [None, 0])
def test_a_publisher_does_not_extend_the_log_of_a_user_stream(start: int | None) -> None:
    """A sink with the sender's name, say. Fails (publishes) when such a log is taken for one that
    tells nothing of the source."""
    site = Site(start=start)
    users = replace(
        MANIFEST, kind=EVENTS, table_id="events", first_version=-1, last_version=-1, identity=""
    )
    site.log.append(users)
    site.held(SourceError, "carries events that a sink writes.*`source: sink`")


def test_the_checkpoint_of_a_user_stream_has_no_published_state() -> None:
    """Its log is out of the way, and a new one may begin. Fails (held forever: the stream carries
    events) when the ack manager saves the source that such a log names."""
    site = Site()
    users = replace(
        MANIFEST, kind=EVENTS, table_id="events", first_version=-1, last_version=-1, identity=""
    )
    site.log.append(users)
    run(
        AckManager(
            site.log, site.checkpoints, AckPolicy.ALL, 60_000, site.clock, ("seattle",)
        ).round()
    )
    assert site.checkpoints.kept[STREAM].log_id == users.log_id
    lose(site, users)
    first = site.published()
    assert (first.epoch, first.start, first.first_version) == (1, True, 0)


def test_f48_a_new_log_does_not_begin_with_a_snapshot() -> None:
    """Every site that has the table refuses one. Where it is not known how far the old log was, a
    site that lacks anything gets a copy."""
    site = Site(start=None)
    first = site.published()
    ack(site.log, "seattle", 1, first.log_id)
    site.channel.trim_manifest(STREAM, 1)
    site.checkpoints.kept.clear()
    site.restart()
    site.held(LogGapError, f"is gone.*orders@{first.log_id}=new-log")
    site.decisions = Decisions(new_logs=frozenset((first.log_id,)))
    second = site.published()
    assert (second.epoch, second.log_id == first.log_id) == (1, False)
    goes_over(second, site.source.newest().version)


def test_f48_acks_detect_a_log_lost_together_with_the_checkpoint() -> None:
    site = Site()
    first = site.published()
    ack(site.log, "seattle", 1, first.log_id)
    site.channel.trim_manifest(STREAM, 1)
    site.checkpoints.kept.clear()
    site.restart()
    site.held(LogGapError, "is gone; sites have acked it")


@pytest.mark.parametrize("checkpoint", [True, False])
@pytest.mark.parametrize("start", [0, None])
def test_f48_acks_detect_a_restored_log(checkpoint: bool, start: int | None) -> None:
    """The sender's checkpoint was restored with it, or is lost. Fails when the log is extended: an
    older ack counts for what is new, which is trimmed although no site has it."""
    site = Site(start=start)
    first = site.published()
    backup = dict(site.checkpoints.kept)
    site.source.add()
    site.published()
    ack(site.log, "seattle", 2, first.log_id)
    site.channel.trim_manifest(STREAM, 2)
    site.checkpoints.kept = backup if checkpoint else {}
    site.source.add()
    site.restart()
    way_out = "=new-log` to begin a new log"
    site.held(
        LogGapError,
        r"ends at manifest 1, but sites have acked more \({'seattle': 2}\): an older state .*"
        + way_out,
    )
    ack(site.log, "seattle", 1, first.log_id)
    assert site.published().epoch == 2


def test_an_ack_for_an_epoch_appended_meanwhile_is_not_beyond_the_end() -> None:
    site = Site()
    first = site.published()
    site.source.add()
    slow = site.new().round()
    advance(slow, STEPS[2])
    site.published()
    ack(site.log, "seattle", 2, first.log_id)
    assert run(slow) is None
    assert site.log.since(0) == [1, 2]


def test_a_capture_that_fails_leaves_no_frames() -> None:
    """A held stream is retried every half a minute. Fails when what an attempt has written
    stays until it is swept a day later."""
    site = Site()
    site.published()
    site.source.add()
    kept = site.channel.frames(STREAM)
    capture = site.source.capture

    def fails(*planned: Any) -> CaptureResult:
        capture(*planned)
        raise SourceUnreadableError("the store throttles")

    site.source.capture = fails  # type: ignore[method-assign]
    site.held(SourceUnreadableError, "throttles")
    assert site.channel.frames(STREAM) == kept


def test_f47_frames_that_were_swept_inside_append_are_not_named() -> None:
    """A publisher was frozen inside the write of its manifest for a day, and another ack manager
    swept. Fails when frames are checked only before the write."""
    site = Site()
    site.clock.now = milliseconds()
    append = site.channel.append
    frozen: list[int] = []

    def slow(stream: str, epoch: int, *more: Any, **named: Any) -> None:
        if not frozen:
            frozen.append(epoch)
            site.clock.pass_seconds(STALE_AGE + 1)
            site.channel.trim_frames(STREAM, [path for path, _ in site.channel.frames(STREAM)])
        append(stream, epoch, *more, **named)

    site.channel.append = slow  # type: ignore[method-assign]
    manifest = site.published()
    assert site.log.since(0) == [1]
    assert {path for path, _ in site.channel.frames(STREAM)} == {
        frame.path for frame in manifest.frames
    }


@pytest.mark.parametrize("swept", [False, True])
def test_f47_frames_that_may_be_swept_are_not_named(swept: bool) -> None:
    """A publisher that was frozen for most of a day writes its frames again. Fails when it names
    frames that a sweep may have removed, or ends over frames that one has removed."""
    site = Site()
    site.clock.now = milliseconds()  # the store's
    slow = site.publisher.round()
    advance(slow, STEPS[3])
    old = site.channel.frames(STREAM)
    site.clock.pass_seconds(STALE_AGE + 1)
    if swept:
        site.channel.trim_frames(STREAM, [path for path, _ in old])
    manifest = run(slow)
    assert manifest is not None
    assert not {path for path, _ in old} & {frame.path for frame in manifest.frames}
    assert {path for path, _ in site.channel.frames(STREAM)} == {
        frame.path for frame in manifest.frames
    }


def test_a_snapshot_may_take_days() -> None:
    """As long as its frames keep coming. Fails (never ends) when its beginning decides: each one is
    made again, without a word."""
    site = Site(start=None)
    site.clock.now = milliseconds() - 30 * 3_600_000
    snapshot = site.source.snapshot

    def slow(*planned: Any) -> CaptureResult:
        captured = snapshot(*planned)
        site.clock.now = milliseconds()
        return captured

    site.source.snapshot = slow  # type: ignore[method-assign]
    manifest = site.published()
    assert {path for path, _ in site.channel.frames(STREAM)} == {
        frame.path for frame in manifest.frames
    }
    assert site.source.calls == ["look", "snapshot 0"]


# --- two publishers, and a channel that fails


def advance(steps: Any, to: str) -> None:
    while next(steps) != to:
        pass


@pytest.mark.parametrize("at", STEPS[:4])
def test_of_two_publishers_one_extends_the_log_and_the_other_replans(at: str) -> None:
    """Invariant 2. Fails when the loser does not begin again: versions would be published twice or
    not at all."""
    site = Site()
    site.source.add()
    slow = site.publisher.round()
    advance(slow, at)
    site.restart()
    first = site.published()
    site.source.add()
    second = run(slow)
    assert second is not None
    assert (first.first_version, first.last_version, second.first_version, second.last_version) == (
        0,
        1,
        2,
        2,
    )
    assert site.log.since(0) == [1, 2]
    named = {frame.path for manifest in (first, second) for frame in manifest.frames}
    assert {path for path, _ in site.channel.frames(STREAM)} == named


def test_a_publisher_that_lost_the_race_may_have_nothing_left_to_publish() -> None:
    site = Site()
    slow = site.publisher.round()
    advance(slow, STEPS[3])
    site.restart()
    site.published()
    assert run(slow) is None
    assert site.log.since(0) == [1]


def test_a_publisher_frozen_while_the_log_was_extended_and_trimmed_replans() -> None:
    """Its number is free again. Fails when only the manifest's own number is checked: the log
    would have a gap."""
    site = Site(max_epoch_rows=1)
    slow = site.publisher.round()
    advance(slow, STEPS[3])
    site.source.add()
    site.source.add()
    site.restart()
    site.rounds()
    for epoch in (1, 2):
        site.channel.trim_frames(STREAM, [frame.path for frame in site.log.read(epoch).frames])
        site.channel.trim_manifest(STREAM, epoch)
    assert run(slow) is None
    assert site.log.since(0) == [3]


def test_two_publishers_with_one_checkpoint_raise_no_false_alarm() -> None:
    """One reads the log, the other extends it and saves its checkpoint. Fails when the checkpoint
    is read after the log."""
    site = Site()
    site.published()
    site.source.add()
    other = site.new()
    real: Callable[[int], Manifest | None] = site.log.newest_manifest
    log = StreamLog(site.channel, STREAM)

    def last_then_the_other_publishes(hint: int) -> Manifest | None:
        found = real(hint)
        log.newest_manifest = real  # type: ignore[method-assign]
        run(other.round())
        return found

    log.newest_manifest = last_then_the_other_publishes  # type: ignore[method-assign]
    assert run(replace(site.publisher, log=log).round()) is None
    assert site.log.since(0) == [1, 2]


@pytest.mark.parametrize("kind", ["fail", "vanish", "duplicate"])
@pytest.mark.parametrize("method", ["append", "put_frame"])
def test_f15_whatever_the_store_answers_the_epoch_is_there_once_and_whole(
    method: str, kind: Any
) -> None:
    """Fails for a doubled append when the publisher takes its own manifest for another's, and
    removes its frames."""
    site = Site(Fault(method, 1, kind))
    try:
        site.round()
    except ChannelError:
        site.restart()
        site.rounds()
    assert site.log.since(0) == [1]
    for frame in site.log.read(1).frames:
        assert len(site.inner.get_frame(frame.path)) == frame.bytes
    site.source.add()
    assert site.published().first_version == 1


def test_a_source_restored_within_its_quiet_commits_continues() -> None:
    """The quiet commits are other commits now. Fails when the publisher still takes them for quiet:
    it then never rests."""
    site = Site()
    site.published()
    for _ in range(5):
        site.source.add("OPTIMIZE")
    assert site.rounds() == []
    del site.source.commits[1:]
    for _ in range(3):
        site.source.add()
    assert [(manifest.first_version, manifest.last_version) for manifest in site.rounds()] == [
        (1, 3)
    ]
    site.source.calls.clear()
    assert site.rounds() == []
    assert site.source.calls == ["look"]


def test_a_change_of_a_keyless_table_does_not_hold_earlier_commits() -> None:
    site = Site(keys=())
    site.published()
    for _ in range(4):
        site.source.add()
    real = site.source.capture

    def capture(planned: CaptureRange, header: FrameHeader) -> CaptureResult:
        # A task tells of the first change that it meets, which need not be the oldest.
        found = [
            version
            for version in (4, 3)
            if planned.first_version <= version <= planned.last_version
        ]
        if found:
            raise KeylessChangeError(f"version {found[0]} changes rows", found[0])
        return real(planned, header)

    site.source.capture = capture  # type: ignore[method-assign]
    assert (published := site.published()).first_version == 1
    assert (published.last_version, [ref["version"] for ref in published.commits]) == (2, [1, 2])
    assert published.identity == site.source.commits[2].identity
    site.held(KeylessChangeError, "version 3")


def test_a_change_between_a_rename_and_the_rename_back_is_the_cause() -> None:
    """The range cannot end there: its columns have other names then. Fails when it is cut all the
    same, and the hold tells of a column that is gone."""
    site = Site(keys=())
    site.published()
    next_commit(site, "RENAME COLUMN", TOWN, **RENAMED)
    site.source.add()
    next_commit(site, "RENAME COLUMN", schema(), oldColumnPath="town", newColumnPath="city")
    real = site.source.capture

    def capture(planned: CaptureRange, header: FrameHeader) -> CaptureResult:
        if planned.last_version < 2:
            return real(planned, header)
        raise KeylessChangeError("version 2 changes rows", 2)

    site.source.capture = capture  # type: ignore[method-assign]
    site.held(KeylessChangeError, "version 2")


@pytest.mark.parametrize("back", [True, False])
def test_f41_a_dropped_column_holds_the_stream_also_when_one_of_its_name_came_back(
    back: bool,
) -> None:
    """At the source its old values are gone, at the remote sites they are not. Fails when only the
    columns are compared."""
    site = Site()
    site.source.columns[0] = schema(id="long", note="string")
    site.published()
    site.source.add()
    site.source.add("DROP COLUMNS")
    site.source.columns[2] = schema(id="long")
    if back:
        site.source.add("ADD COLUMNS")
        site.source.columns[3] = schema(id="long", note="string")
    site.source.add()
    assert [(manifest.first_version, manifest.last_version) for manifest in [site.published()]] == [
        (1, 1)
    ]
    site.held(SchemaError, "version 2 drops columns")
