"""Where a captured stream ends, because an operator has asked for that: the publisher's part."""

from __future__ import annotations

import logging
import random
from dataclasses import replace

import pytest
from fakes import STREAM, ack, commit
from publishing import Site
from seeds import seed

from spark_wan.delta.commits import Commit
from spark_wan.errors import ChannelError, HistoryLostError, SourceError, SourceUnreadableError
from spark_wan.sender.acks import AckManager
from spark_wan.sender.ending import LATE_COMMITS
from spark_wan.sender.publish import Glance
from spark_wan.sender.serve import PublishedTable
from spark_wan.steps import run
from spark_wan.topology.ack_policy import AckPolicy
from spark_wan.wire.control import AT_TIME, AT_VERSION, NEWEST, End, Ending, WantedEnd
from spark_wan.wire.decisions import Decisions

START = 1_700_000_000_000
"""When version 0 of the source was committed; each version is a second later."""


def asked(kind: str | None, point: int = 0, generation: int = 1) -> WantedEnd:
    """What is wanted after a request for an end; None: for going on."""
    end = None if kind is None else End(kind, point)
    return WantedEnd(generation, Ending(None, None, end, generation, by="ann at here", at=5))


def ended(site: Site) -> tuple[int, int, int] | None:
    """Epoch, version and request of the end of the log; None: it has not ended."""
    last = site.log.newest_manifest()
    return (last.epoch, last.last_version, last.control) if last and last.end else None


def test_b21_a_drained_stream_has_what_was_committed_and_nothing_more() -> None:
    """Also after a restart, and for whoever else publishes it. Fails when the end is the newest
    version of each look, which a table that is written to never reaches."""
    site = Site()
    for _ in range(3):
        site.source.add()
    site.wanted = asked(NEWEST)
    assert site.published().last_version == 3
    site.source.add()  # after the request
    end = site.published()
    assert (end.frames, end.first_version, end.last_version) == ((), 4, 3)
    assert ended(site) == (2, 3, 1)
    for _ in range(2):
        assert site.round() is None
        site.restart()
    site.wanted = asked(None, generation=2)
    assert (site.published().last_version, site.round()) == (4, None)


def test_an_idle_stream_ends_too() -> None:
    """Fails when nothing is looked at, because nothing has come."""
    site = Site()
    site.rounds()
    assert site.publisher.is_quiet()
    site.wanted = asked(NEWEST)
    assert not site.publisher.is_quiet()
    assert site.published().end
    assert site.publisher.has_ended and not site.publisher.is_to_end


def test_a_drain_that_is_asked_for_again_has_what_was_committed_since() -> None:
    site = Site()
    site.wanted = asked(NEWEST)
    site.rounds()
    assert ended(site) == (2, 0, 1)
    site.source.add()
    site.wanted = asked(NEWEST, generation=2)
    site.rounds()
    assert ended(site) == (4, 1, 2)


@pytest.mark.parametrize("quiet", [(), (3,), (2, 3, 4)], ids=["events", "empty", "all-empty"])
def test_a_stream_ends_with_a_version(quiet: tuple[int, ...]) -> None:
    """Whatever comes behind it, and whether it has events or not. Fails when a range without events
    is left for later, or the end waits for a commit that is behind it."""
    site = Site(max_epoch_rows=100)
    site.source.without_events = {*quiet}
    site.source.add()
    site.wanted = asked(AT_VERSION, 3)
    site.rounds()
    assert ended(site) is None and site.publisher.is_to_end
    for _ in range(5):
        site.source.add()
    site.rounds()
    last = site.log.newest_manifest()
    assert last is not None and (last.end, last.last_version) == (True, 3)
    carried = {c["version"] for n in site.log.epochs() for c in site.log.read(n).commits}
    assert carried == {0, 1, 2, 3} - {*quiet}


@pytest.mark.parametrize("kind", [NEWEST, AT_VERSION])
def test_a_stream_ends_behind_commits_without_events(kind: str) -> None:
    """Though nothing comes behind them. Fails when they are left for later, and the end with
    them."""
    site = Site()
    site.rounds()
    site.source.without_events = {1, 2}
    site.source.add()
    site.source.add(rows=0)
    site.wanted = asked(kind, 2 if kind == AT_VERSION else 0)
    site.rounds()
    last = site.log.newest_manifest()
    assert last is not None and (last.end, last.last_version) == (True, 2)


def test_a_stream_ends_with_a_time() -> None:
    """Once that has passed, though nothing comes behind it: with the last commit until then. Fails
    when a commit at that very moment is left out, or the end comes before it."""
    site = Site()
    site.clock.now = START + 2_000
    site.wanted = asked(AT_TIME, START + 2_000)
    site.source.add()
    site.rounds()
    assert ended(site) is None and site.publisher.is_quiet()
    site.source.add()  # at that moment
    assert site.published().last_version == 2
    assert site.round() is None
    site.clock.pass_seconds(LATE_COMMITS / 1000)
    assert site.publisher.is_quiet()
    site.clock.pass_seconds(0.001)
    assert not site.publisher.is_quiet()
    site.source.add()  # a second later
    site.rounds()
    assert ended(site) is not None
    assert site.log.read(site.log.newest_epoch()).last_version == 2


def test_a_stream_that_begins_with_a_snapshot_ends_with_an_earlier_version() -> None:
    """Fails when it begins with the newest one, which is beyond the end."""
    site = Site(start=None)
    for _ in range(4):
        site.source.add()
    site.wanted = asked(AT_VERSION, 2)
    site.rounds()
    assert ended(site) == (2, 2, 1)
    assert "snapshot 2" in site.source.calls


def test_a_stream_whose_table_is_younger_than_its_end_sends_nothing() -> None:
    site = Site(start=None)
    site.wanted = asked(AT_TIME, START - 1)
    assert site.rounds() == []


def test_a_lost_control_log_leaves_an_end_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    """Or one that was restored to an older state. Fails when the stream goes on, though nobody has
    asked for that."""
    site = Site()
    site.wanted = asked(NEWEST, generation=5)
    site.rounds()
    site.source.add()
    for lost in (WantedEnd(), WantedEnd(9), asked(None, generation=4), asked(NEWEST, generation=3)):
        site.wanted = lost
        site.restart()
        assert site.round() is None and site.publisher.has_ended
    with caplog.at_level(logging.WARNING):
        site.wanted = WantedEnd()
        site.round()
    assert "ended by request 5" in caplog.text and "spark-wan resume" in caplog.text
    site.wanted = asked(None, generation=6)
    assert site.published().last_version == 1


def test_who_was_slower_reads_what_is_wanted_again() -> None:
    """A sender captures, another one of the site ends the stream: what was captured is not behind
    the end. Fails when what is wanted is read once, before the log."""
    site = Site()
    site.rounds()
    slow = site.new()
    steps = slow.round()
    site.source.add()
    for step in steps:
        if step.startswith("publish.3"):
            break
    wanted = asked(AT_VERSION, 0)
    site.wanted = wanted
    site.restart()
    assert site.published().end
    assert run(steps) is None
    assert ended(site) == (2, 0, 1)


def test_lost_history_holds_a_stream_that_ends_with_a_version() -> None:
    """A copy of the newest version would be beyond the end. Fails when the stream goes over it."""
    site = Site()
    site.rounds()
    site.source.commits += [commit(version) for version in range(3, 6)]  # 1 and 2 are gone
    site.wanted = asked(AT_VERSION, 4)
    site.held(HistoryLostError, "spark-wan resume")
    site.wanted = asked(NEWEST, generation=2)
    site.rounds()
    last = site.log.newest_manifest()
    assert last is not None and (last.end, last.last_version) == (True, 5)


def test_acks_of_an_end_are_collected() -> None:
    site = Site()
    site.wanted = asked(NEWEST)
    site.rounds()
    clock = site.clock
    manager = AckManager(site.log, site.checkpoints, AckPolicy.ALL, 60_000, clock, ["seattle"])
    last = site.log.read(2)
    ack(site.log, "seattle", 2, log_id=last.log_id)
    state = run(manager.round())
    assert state.backlog == 0 and site.log.epochs() == [2]


def test_at_any_moment_a_stream_ends_where_it_was_asked_to() -> None:
    """Random requests, commits, restarts and losses of the control log. What is behind an end is
    sent only once somebody has asked for it; everything else is, in order and without a gap."""
    rng = random.Random(seed())
    for _ in range(150):
        site = Site(max_epoch_rows=3)
        generation, newest, stop = 0, 0, None
        for _ in range(rng.randrange(5, 40)):
            step = rng.choice(
                ["commit", "commit", "round", "round", "ask", "go", "lose", "restart"]
            )
            if step == "commit":
                newest = site.source.add().version
                if rng.random() < 0.3:
                    site.source.without_events.add(newest)
            elif step == "round":
                site.round()
            elif step == "restart":
                site.restart()
            elif step == "lose":
                last = site.log.newest_manifest()
                if last is not None and last.end and site.wanted.has_ended(last):
                    site.wanted, stop = replace(site.wanted, ending=None), last.last_version
            else:
                generation += 1
                if step == "ask":
                    before = site.log.newest_manifest()
                    published = before.last_version if before is not None else 0
                    stop = max(published, rng.randrange(newest + 3))
                    site.wanted = asked(AT_VERSION, stop, generation)
                elif step == "go":
                    site.wanted, stop = asked(None, generation=generation), None
            last = site.log.newest_manifest()
            if last is not None and stop is not None:
                assert last.last_version <= stop, seed()
        site.restart()
        site.rounds()
        last = site.log.newest_manifest()
        assert last is not None
        if stop is not None and newest >= stop:
            assert last.end and last.last_version == stop, seed()
        versions = [c["version"] for n in site.log.epochs() for c in site.log.read(n).commits]
        through = last.last_version
        events = [v for v in range(through + 1) if v not in site.source.without_events]
        assert versions == events, seed()


# --- what may not be at the end


def lost(site: Site, first: int, last: int) -> None:
    """The history has only these versions left."""
    site.source.commits = [commit(version) for version in range(first, last + 1)]


@pytest.mark.parametrize("kind", [AT_VERSION, AT_TIME])
def test_lost_history_before_an_end_holds_the_stream(kind: str) -> None:
    """Also where all that is left is behind the end. Fails when the stream ends without what was
    lost, or waits for ever and says nothing."""
    site = Site()
    site.rounds()
    lost(site, 5, 6)
    site.clock.now = START + 60_000
    site.wanted = asked(kind, 3 if kind == AT_VERSION else START + 4_500)
    site.held(HistoryLostError, "spark-wan resume")


@pytest.mark.parametrize("kind", [AT_VERSION, AT_TIME])
def test_lost_history_before_an_end_holds_a_first_snapshot(kind: str) -> None:
    site = Site(start=None)
    lost(site, 5, 6)
    site.clock.now = START + 60_000
    site.wanted = asked(kind, 3 if kind == AT_VERSION else START + 4_500)
    site.held(SourceError, "the oldest version that its history has is 5")


def test_a_commit_that_comes_while_the_history_is_read_is_before_the_end() -> None:
    """Fails when the time is taken after the history, which lacks the commit."""
    site = Site()
    site.rounds()
    site.source.add()
    site.rounds()
    site.wanted = asked(AT_TIME, START + 2_000)
    read = site.source.history

    def slow(after: int) -> list[Commit]:
        found = read(after)
        if site.clock() < START + 2_000:
            site.source.add()  # at the time of the end
            site.clock.now = START + 2_000 + LATE_COMMITS + 1
        return found

    site.source.history = slow  # type: ignore[method-assign]
    assert site.rounds() == []  # at the next look, it is there
    site.rounds()
    last = site.log.newest_manifest()
    assert last is not None and (last.end, last.last_version) == (True, 2)


@pytest.mark.parametrize("start", [0, None])
def test_an_end_that_is_asked_for_during_a_capture_counts(start: int | None) -> None:
    """Fails when what is captured is sent all the same: of a large table that takes hours."""
    site = Site(start=start)
    for _ in range(4):
        site.source.add()
    steps = site.publisher.round()
    for step in steps:
        if step.startswith("publish.3"):
            break
    known = site.wanted
    site.publisher.wanted_before = lambda: known
    site.publisher.wanted = lambda: asked(AT_VERSION, 2)
    frames = len(site.channel.frames(STREAM))
    next(steps)  # the frames are written
    assert len(site.channel.frames(STREAM)) > frames
    site.publisher.wanted_before = lambda: asked(AT_VERSION, 2)
    first = run(steps)
    assert first is not None and first.last_version == 2
    site.rounds()
    assert ended(site) == (2, 2, 1)
    named = {frame.path for n in site.log.epochs() for frame in site.log.read(n).frames}
    assert {path for path, _ in site.channel.frames(STREAM)} == named


def test_f55_a_state_that_does_not_answer_leaves_no_frames() -> None:
    """What is wanted is read once they are written, and the round is tried again and again. Fails
    when each try of a large capture stays until it is swept."""
    site = Site()

    def refused() -> WantedEnd:
        raise ChannelError("no route to the state")

    site.publisher.wanted = refused
    for _ in range(2):
        with pytest.raises(ChannelError, match="no route"):
            site.round()
    assert site.channel.frames(STREAM) == [] and site.log.epochs() == []
    site.restart()
    assert site.published().frames


def test_a_drain_that_is_asked_for_during_a_capture_keeps_it() -> None:
    """Fails when hours of work are thrown away for nothing."""
    site = Site(start=None)
    steps = site.publisher.round()
    for step in steps:
        if step.startswith("publish.3"):
            break
    site.wanted = asked(NEWEST)
    run(steps)
    assert site.source.calls.count("snapshot 0") == 1


def test_a_lost_log_does_not_take_sites_beyond_an_end() -> None:
    """A copy has the newest version. Fails when it is served in place of the lost log."""
    site = Site(start=None)
    last = site.published()
    for _ in range(4):
        site.source.add()
    site.rounds()
    for epoch in site.log.epochs():
        site.channel.trim_manifest(STREAM, epoch)
    site.decisions = Decisions(new_logs=frozenset((last.log_id,)))
    # As an earlier version wrote it, which did not say what is published.
    site.checkpoints.kept[STREAM] = replace(site.checkpoints.kept[STREAM], published=None)
    site.wanted = asked(AT_VERSION, 5)
    site.restart()
    with pytest.raises(SourceError, match="spark-wan resume"):
        site.round()


def test_a_request_that_the_control_log_has_lost_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Fails when a cut-over that was asked for is forgotten silently."""
    site = Site()
    site.wanted = asked(AT_VERSION, 3, generation=5)
    site.rounds()
    site.wanted = WantedEnd(2)
    site.source.add()
    with caplog.at_level(logging.WARNING):
        site.rounds()
        site.source.add()
        site.rounds()
    told = [each for each in caplog.messages if "knows request 5" in each]
    assert len(told) == 1 and "ask again" in told[0]


def test_a_drain_goes_over_a_table_that_was_replaced() -> None:
    """With the versions of the new one. Fails when it waits for a version of the old one."""
    site = Site()
    for _ in range(9):
        site.source.add()
    site.rounds()
    site.wanted = asked(NEWEST)
    steps = site.publisher.round()
    for step in steps:
        if step.startswith("publish.3"):
            break
    lost(site, 0, 2)
    site.source.id = "another"
    site.decisions = Decisions(resyncs=frozenset((9,)))
    site.rounds()
    last = site.log.newest_manifest()
    assert last is not None and (last.end, last.last_version) == (True, 2)


def test_a_stream_that_has_nothing_to_send_ends_without_a_log() -> None:
    """And is left alone then. Fails when each look at it is a round."""
    site = Site(start=1)
    site.wanted = asked(NEWEST)
    assert site.rounds() == []
    assert site.publisher.has_ended and site.publisher.waiting == 0
    site.source.add()
    assert site.publisher.has_ended
    site.wanted = asked(None, generation=2)
    assert not site.publisher.has_ended
    assert site.published().last_version == 1


def test_what_is_behind_an_end_does_not_wait() -> None:
    """Fails when the status counts commits that nobody wants."""
    site = Site()
    for _ in range(5):
        site.source.add()
    site.wanted = asked(AT_VERSION, 2)
    site.published()
    assert site.publisher.waiting == 0
    site.rounds()
    assert site.publisher.waiting == 0
    site.wanted = asked(None, generation=2)
    site.publisher._quiet.end = Glance(5, None)
    assert site.publisher.waiting == 3


def test_no_copy_has_what_is_behind_an_end() -> None:
    """Of one that has come, and of one that will. Fails when a site that asks for a copy goes
    beyond a cut-over point, and nobody says so."""
    site = Site()
    site.source.add()
    site.wanted = asked(AT_VERSION, 1)
    site.rounds()
    table = PublishedTable(site.settings, site.log, site.source, lambda: site.wanted)
    assert table.cut().version == 1
    site.source.add("TRUNCATE")
    for wanted in (site.wanted, WantedEnd(), asked(None, generation=1)):
        site.wanted = wanted
        assert table.cut().version == 1  # what the others have, too
    commits = site.source.commits
    site.source.commits = commits[2:]  # log cleanup
    with pytest.raises(SourceUnreadableError, match="spark-wan resume"):
        table.cut()
    site.source.commits = [*commits[:2], commit(2)]
    site.wanted = asked(None, generation=2)
    assert table.cut().version == 2
    site.rounds()
    site.source.add()
    site.wanted = asked(AT_VERSION, 2, generation=3)
    with pytest.raises(SourceUnreadableError, match="asked to end before version 3"):
        table.cut()
    site.wanted = asked(NEWEST, generation=4)
    with pytest.raises(SourceUnreadableError, match="until the end has come"):
        table.cut()
    site.rounds()
    assert table.cut().version == 3


def test_a_copy_that_is_being_made_is_not_added_behind_an_end() -> None:
    """Somebody has asked for that meanwhile. Fails when it is checked only before."""
    site = Site()
    site.rounds()
    site.source.add()
    table = PublishedTable(site.settings, site.log, site.source, lambda: site.wanted)
    cut = table.cut()
    table.check(cut)
    site.wanted = asked(AT_VERSION, 0)
    with pytest.raises(SourceUnreadableError, match="asked to end before version 1"):
        table.check(cut)
