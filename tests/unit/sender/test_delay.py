"""Commits are published once they are as old as the stream's ``delay``."""

from __future__ import annotations

import random
from typing import Any

import pytest
from fakes import commit
from publishing import Site
from seeds import seed
from topologies import REMOVED, refusal, topology

from spark_wan.errors import SourceUnreadableError
from spark_wan.sender.serve import PublishedTable
from spark_wan.topology.model import delay_of
from spark_wan.wire.control import NEWEST, End, Ending, WantedEnd

HOUR = 3_600
SECOND = 1_000


def delayed(**settings: Any) -> Site:
    """A site with a delay of an hour, right after version 0 was committed. Each version is a second
    later."""
    return Site(delay=HOUR * SECOND, **settings)


def test_a_commit_is_published_once_it_is_old_enough() -> None:
    """To the millisecond. Fails when it is published before, or the look that would find it due
    sees that nothing has come."""
    site = delayed()
    assert site.round() is None
    assert (site.publisher.waiting, site.publisher.delayed) == (0, 1)
    assert site.publisher.is_quiet()
    site.clock.now += HOUR * SECOND - 1
    assert site.publisher.is_quiet() and site.round() is None
    site.clock.now += 1
    assert not site.publisher.is_quiet()
    assert site.published().last_version == 0
    assert site.publisher.delayed == 0


def test_commits_keep_their_order_whatever_their_times() -> None:
    """Fails when one that is old enough overtakes one that is not."""
    site = delayed()
    site.source.commits += [
        commit(1, time=site.clock.now + 5_000),
        commit(2, time=site.clock.now + 1_000),
    ]
    site.clock.now += HOUR * SECOND + 2_000
    assert [each.last_version for each in site.rounds()] == [0]
    assert site.publisher.delayed == 2
    site.clock.now += 3_000
    assert [each.last_version for each in site.rounds()] == [2]


def test_what_waits_for_its_age_costs_no_look_at_the_history() -> None:
    """Fails when each look reads it again for an hour."""
    site = delayed()
    site.rounds()
    site.source.calls.clear()
    for _ in range(5):
        assert site.publisher.is_quiet()
        assert site.round() is None
    assert "history" not in site.source.calls
    site.source.add()
    assert not site.publisher.is_quiet()  # something has come, and it is young, too
    assert site.round() is None and site.publisher.is_quiet()
    assert site.publisher.delayed == 2


def test_random_looks_publish_each_commit_within_its_time() -> None:
    """Fails when a commit is early, or is forgotten until another one comes."""
    choose = random.Random(seed())
    for _ in range(30):
        site = Site(delay=choose.choice([1, 5, 60]) * SECOND, max_epoch_rows=choose.choice([1, 99]))
        delay = site.settings.delay
        for _ in range(60):
            if choose.random() < 0.3:
                version = site.source.commits[-1].version + 1
                site.source.commits.append(commit(version, time=site.clock.now))
                if choose.random() < 0.3:
                    site.source.without_events.add(version)
            if choose.random() < 0.1:
                site.restart()
            site.clock.now += choose.choice([1, 300, 2_000])
            if not site.publisher.is_quiet():
                for manifest in site.rounds():
                    assert all(c["time"] + delay <= site.clock.now for c in manifest.commits)
            last = site.log.newest_manifest()
            through = max(last.last_version if last else -1, site.publisher._quiet.empty_through)
            due = [c.version for c in site.source.commits if c.time + delay <= site.clock.now]
            assert through >= max(due, default=-1)


def test_a_first_snapshot_has_the_version_that_is_old_enough() -> None:
    """Fails when a site that is to be an hour late begins with what was committed just now."""
    site = delayed(start=None)
    site.source.add()
    assert site.round() is None
    assert site.publisher.is_quiet() and site.publisher.delayed == 2
    site.clock.now += HOUR * SECOND
    snapshot = site.published()
    assert (snapshot.last_version, site.source.calls[-1]) == (0, "snapshot 0")
    site.clock.now += SECOND
    assert site.published().last_version == 1


def test_a_snapshot_waits_where_all_that_the_history_has_is_young() -> None:
    """Fails when it is held, or looks at the history all the time."""
    site = delayed(start=None)
    site.source.commits = [commit(7, time=site.clock.now)]
    assert site.round() is None and site.publisher.is_quiet()
    site.clock.now += HOUR * SECOND
    assert site.published().last_version == 7


def test_a_drain_waits_for_the_delay() -> None:
    """A mistake of a moment ago must not arrive because somebody restarts a machine. Fails when an
    end is an exception."""
    site = delayed()
    site.wanted = WantedEnd(1, Ending(None, None, End(NEWEST, 0), 1, by="ann at here", at=5))
    assert site.round() is None
    assert site.publisher.is_to_end
    site.clock.now += HOUR * SECOND
    published = site.rounds()
    assert [each.end for each in published] == [False, True]
    assert (site.publisher.delayed, site.publisher.has_ended) == (0, True)


def test_a_copy_has_nothing_that_was_not_published() -> None:
    """Fails when a site that asks for a copy gets what is not old enough."""
    site = delayed()
    site.clock.now += HOUR * SECOND
    site.rounds()
    site.source.add()
    table = PublishedTable(site.settings, site.log, site.source, is_delayed=True)
    assert table.cut().version == 0
    assert PublishedTable(site.settings, site.log, site.source).cut().version == 1
    site.source.commits = site.source.commits[1:]  # log cleanup
    with pytest.raises(SourceUnreadableError, match="version 1 is not old enough"):
        table.cut()


# --- in a topology


def test_a_table_may_have_a_delay_of_its_own() -> None:
    def delay(*changes: tuple[str, object]) -> float:
        loaded = topology(*changes)
        return delay_of(loaded.sender("east"), loaded.table("flights"))

    of_sender = ("senders.east.delay", "4h")
    assert (delay(), delay(of_sender)) == (0, 4 * HOUR)
    assert delay(of_sender, ("tables.flights.delay", 0)) == 0
    assert delay(("tables.flights.delay", "30m")) == HOUR / 2
    for where in ("senders.east.delay", "tables.flights.delay"):
        assert f"{where}: must be seconds or a duration" in refusal((where, "-1h"))


def test_a_delay_that_delays_nothing_is_refused() -> None:
    """Fails when somebody believes that a mistake can still be stopped."""
    sink = (("tables.readings.source", "sink"), ("tables.readings.at.newark", REMOVED))
    assert "tables.readings.delay: is for captured tables" in refusal(
        *sink, ("tables.readings.delay", "1h")
    )
    message = refusal(*sink, ("senders.east.delay", "1h"))
    assert "senders.east.delay: does not delay table 'readings', which a sink sends" in message
    topology(*sink, ("senders.east.delay", "1h"), ("tables.readings.delay", 0))
    message = refusal(("senders.back.delay", "1h"))
    assert "senders.back.delay: no table that site 'seattle' writes is attached to it" in message
