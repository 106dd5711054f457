"""The queue of a stream at its limits: what may follow, who is waited for, who is dropped."""

from __future__ import annotations

import logging
import time
from dataclasses import replace

import pytest
from fakes import STREAM
from limited_site import ACK_TIMEOUT, LimitedSite, one_epoch
from publishing import Site

from spark_wan.errors import QueueFullError
from spark_wan.log.notes import put_pause, put_sender_record
from spark_wan.log.progress import waited_through
from spark_wan.sender.publish import QUIET_COMMITS
from spark_wan.sender.sweep import Sweep
from spark_wan.topology.model import QueueLimits
from spark_wan.units import format_bytes
from spark_wan.wire.head import Pause
from spark_wan.wire.manifest import Manifest
from spark_wan.wire.sender_record import SenderRecord

SIZE = one_epoch()


def test_an_epoch_waits_while_the_queue_has_its_limit_and_goes_on_by_itself() -> None:
    """Fails when a stream is extended whatever waits, or waits on when acks have made room."""
    site = LimitedSite(QueueLimits(bytes=2 * SIZE))
    site.commits(5)
    for _ in range(2):
        site.published()
    with pytest.raises(QueueFullError) as full:
        site.round()
    assert not full.value.is_hold
    size = format_bytes(2 * SIZE)
    assert str(full.value).startswith(
        f"{STREAM}: its queue is full: {size} wait for seattle, which has acked epoch 0 of 2, "
    )
    assert f"max_queue_bytes is {size}. Nothing is added until they ack" in str(full.value)
    assert site.publisher.is_queue_full()
    site.ack("seattle", 1)
    assert not site.publisher.is_queue_full()
    assert site.published().epoch == 3
    assert site.is_full()


def test_a_full_queue_leaves_nothing_behind_and_is_as_full_after_a_restart() -> None:
    """Fails when the frames of an epoch that waits are written, or a new sender begins to count
    anew."""
    site = LimitedSite(QueueLimits(bytes=2 * SIZE))
    site.commits(5)
    for _ in range(2):
        site.published()
    site.held(QueueFullError, "its queue is full")


def test_an_empty_queue_takes_an_epoch_that_is_larger_than_its_limit() -> None:
    """Fails when the epoch itself counts: it would wait forever."""
    site = LimitedSite(QueueLimits(bytes=1))
    site.commits(3)
    assert site.published().epoch == 1
    assert site.is_full()
    site.ack("seattle", 1)
    assert site.published().epoch == 2


def test_the_slowest_of_the_sites_counts() -> None:
    """Fails when the queue of one site, or what has been acked by one, is taken for that of all."""
    site = LimitedSite(QueueLimits(bytes=2 * SIZE), "seattle", "tacoma")
    site.commits(5)
    for _ in range(2):
        site.published()
    site.ack("seattle", 2)
    with pytest.raises(QueueFullError, match=r"B wait for tacoma, which has acked epoch 0 of 2"):
        site.round()
    site.ack("tacoma", 1)
    assert site.published().epoch == 3


def test_a_site_that_is_no_longer_served_does_not_count() -> None:
    site = LimitedSite(QueueLimits(bytes=2 * SIZE), "seattle", "tacoma")
    site.commits(5)
    for _ in range(2):
        site.published()
    site.ack("seattle", 2)
    assert site.is_full()
    site.settings = replace(site.settings, addressees=("seattle",))
    site.restart()
    assert site.published().epoch == 3


def test_an_epoch_waits_while_the_oldest_in_the_queue_is_too_old() -> None:
    """Fails when the age is that of the newest, or of an epoch that everybody has acked."""
    site = LimitedSite(QueueLimits(age=600.0))
    site.commits(5)
    site.published()
    site.clock.pass_seconds(400)
    site.published()
    site.clock.pass_seconds(201)
    with pytest.raises(QueueFullError, match=r"the oldest for 10 min; max_queue_age is 10 min\."):
        site.round()
    site.ack("seattle", 1)
    assert site.published().epoch == 3
    site.clock.pass_seconds(400)
    assert site.is_full()


def test_an_epoch_without_events_never_waits() -> None:
    """It records commits before log cleanup takes them, and names new sites. Fails when it waits
    for acks."""
    site = LimitedSite(QueueLimits(bytes=1))
    site.published()
    site.settings = replace(site.settings, addressees=("seattle", "tacoma"))
    site.restart()
    named = site.published()
    assert (named.addressees, named.frames) == (("seattle", "tacoma"), ())
    for _ in range(QUIET_COMMITS):
        site.source.add("OPTIMIZE", 0)
    assert site.published().last_version == QUIET_COMMITS


def test_epochs_without_events_fill_no_queue() -> None:
    """However long nobody acks them. Fails when a site that is named, and away, stops the
    stream."""
    site = LimitedSite(QueueLimits(age=600.0))
    site.published()
    site.ack("seattle", 1)
    site.settings = replace(site.settings, addressees=("seattle", "tacoma"))
    site.restart()
    assert site.published().frames == ()
    site.clock.pass_seconds(700)
    site.commits(1)
    assert site.published().frames


def test_hold_says_that_the_stream_is_held() -> None:
    site = LimitedSite(QueueLimits(bytes=1, policy="hold"))
    site.commits(1)
    site.published()
    with pytest.raises(QueueFullError) as full:
        site.round()
    assert full.value.is_hold


def test_a_queue_of_which_much_was_acked_elsewhere_is_counted_anew() -> None:
    """Another sender has extended and trimmed the log. Fails when what this one knows of it stays
    in the queue."""
    site = LimitedSite(QueueLimits(bytes=3 * SIZE))
    site.commits(9)
    for _ in range(3):
        site.published()
    other = site.publisher
    site.restart()
    site.ack("seattle", 3)
    for _ in range(3):
        site.published()
    site.ack("seattle", 5)
    site.collect()
    site.publisher = other
    assert [site.published().epoch, site.published().epoch] == [7, 8]
    assert site.is_full()


# --- drop_reader


def dropping(*sites: str, limit: int = 2) -> LimitedSite:
    site = LimitedSite(QueueLimits(bytes=limit * SIZE, policy="drop_reader"), *sites)
    site.commits(9)
    for _ in range(limit):
        site.published()
    return site


def test_the_stream_goes_on_without_a_site_that_lags() -> None:
    """Fails when the drop is forgotten at the next epoch or restart, or the trim waits for the site
    all the same."""
    site = dropping("seattle", "tacoma")
    site.ack("seattle", 2)
    dropped = site.published()
    assert (dropped.epoch, dict(dropped.dropped), dropped.frames) == (3, {"tacoma": 2}, ())
    assert dropped.addressees == ("seattle", "tacoma")
    assert site.published().dropped == {"tacoma": 2}
    site.restart()
    site.ack("seattle", 4)
    site.collect()
    assert site.log.epochs() == [3, 4]
    following = site.published()
    assert (following.epoch, dict(following.dropped)) == (5, {"tacoma": 2})


def test_what_comes_behind_the_drop_is_kept_for_the_site() -> None:
    """Else its copy would be worth nothing. Fails when a site that was dropped counts no more."""
    site = dropping("seattle", "tacoma")
    site.ack("seattle", 2)
    for _ in range(3):
        site.published()
    site.ack("seattle", 5)
    site.collect()
    assert site.log.epochs() == [3, 4, 5]
    again = site.published()
    assert (again.epoch, dict(again.dropped)) == (6, {"tacoma": 5})


def test_a_drop_ends_once_the_site_has_what_it_was_dropped_for() -> None:
    """By a copy. Fails when it stays dropped, or is taken back before."""
    site = dropping("seattle", "tacoma")
    site.ack("seattle", 2)
    site.published()
    site.ack("tacoma", 1)
    assert site.published().dropped == {"tacoma": 2}
    site.ack("tacoma", 3)
    assert site.published().dropped == {}
    site.ack("seattle", 5)
    site.collect()
    assert site.log.epochs() == [4, 5]


def test_only_the_sites_are_dropped_that_are_furthest_behind() -> None:
    site = dropping("chicago", "seattle", "tacoma", limit=4)
    site.ack("seattle", 2)
    site.ack("chicago", 1)
    dropped = site.published().dropped
    assert dropped == {"tacoma": 4}
    site = dropping("chicago", "seattle", "tacoma", limit=4)
    site.ack("seattle", 4)
    assert site.published().dropped == {"chicago": 4, "tacoma": 4}


def test_a_site_without_acks_gets_no_announcement_of_what_it_was_dropped_for() -> None:
    """Fails when the announcement names an epoch that is trimmed, again and again."""
    site = dropping("seattle", "tacoma")
    site.ack("seattle", 2)
    site.published()
    site.ack("seattle", 3)
    assert site.collect().backlog == 1
    site.clock.pass_seconds(2 * ACK_TIMEOUT // 1000)
    site.collect()
    site.clock.pass_seconds(2 * ACK_TIMEOUT // 1000)
    site.collect()
    assert site.acks._waiting is not None and site.acks._waiting[1] == 3


def test_no_site_is_dropped_while_the_stream_is_paused() -> None:
    """No site can ack then. Nor right after it. Fails when a pause costs every site its table."""
    site = dropping("seattle")
    put_pause(site.inner, STREAM, Pause(1, "ann at here", 5))
    with pytest.raises(QueueFullError, match="The stream is paused, or was until just now"):
        site.round()
    put_pause(site.inner, STREAM, Pause(1, "ann at here", 5, until=site.clock()))
    assert site.is_full()
    site.clock.pass_seconds(ACK_TIMEOUT / 1000 + 1)
    assert site.published().dropped == {"seattle": 2}


def test_the_age_of_what_waits_begins_when_a_pause_has_ended() -> None:
    site = LimitedSite(QueueLimits(age=600.0, policy="drop_reader"))
    site.commits(5)
    site.published()
    site.clock.pass_seconds(700)
    put_pause(site.inner, STREAM, Pause(1, "ann at here", 5))
    assert site.is_full()
    put_pause(site.inner, STREAM, Pause(1, "ann at here", 5, until=site.clock()))
    site.clock.pass_seconds(500)
    assert site.published().frames
    site.clock.pass_seconds(200)
    assert site.published().dropped == {"seattle": 2}


def test_a_drop_is_said_loudly(caplog: pytest.LogCaptureFixture) -> None:
    site = dropping("seattle", "tacoma")
    site.ack("seattle", 2)
    with caplog.at_level(logging.ERROR):
        site.published()
        site.published()
    (said,) = [record.getMessage() for record in caplog.records]
    assert "goes on without site tacoma: what it has not acked through epoch 2 is deleted" in said


def test_a_manifest_with_dropped_sites_is_read_as_it_was_written() -> None:
    site = dropping("seattle")
    dropped = site.published()
    assert Manifest.decode(dropped.encode(), "here") == dropped
    assert b'"dropped":{"seattle":2}' in dropped.encode()
    assert b"dropped" not in replace(dropped, dropped={}).encode()
    assert waited_through(dropped, {"seattle": 1}) == {"seattle": 2}


def test_orphans_are_swept_though_a_dropped_site_lacks_manifests() -> None:
    """Fails when its lack holds up the sweep until it is back."""
    site = dropping("seattle", "tacoma")
    site.ack("seattle", 2)
    site.collect()
    site.published()
    site.collect()
    site.ack("seattle", 3)
    site.collect()
    orphan = site.inner.put_frame(STREAM, "0" * 32, 0, b"orphan")
    site.inner.now = lambda: time.time() + 60  # type: ignore[method-assign]
    assert Sweep(site.acks).run(0.0) == 1
    assert orphan not in [path for path, _ in site.inner.frames(STREAM)]


def test_a_job_that_was_away_drops_nobody_before_sites_could_ack() -> None:
    """Fails when a common outage over a weekend ends with copies of all tables; and when a queue
    that stays full drops nobody, and no look finds out."""
    limits = QueueLimits(age=600.0, policy="drop_reader")
    site = LimitedSite(limits)
    site.commits(3)
    site.published()
    site.clock.pass_seconds(100_000)
    site.restart()
    with pytest.raises(QueueFullError, match=r"no site is dropped yet\."):
        site.round()
    assert site.publisher.is_queue_full()
    site.clock.pass_seconds(ACK_TIMEOUT / 1000 - 1)
    assert site.publisher.is_queue_full()
    site.clock.pass_seconds(1)
    assert not site.publisher.is_queue_full()
    assert Site.published(site).dropped == {"seattle": 1}


def test_a_site_is_not_dropped_for_what_it_is_not_sent() -> None:
    """Fails when a site that was added just now, and has acked nothing, goes before the one that
    lags."""
    site = LimitedSite(QueueLimits(bytes=3 * SIZE, policy="drop_reader"), "austin", "boston")
    site.commits(5)
    site.published()
    site.ack("boston", 1)
    site.restart(addressees=("austin", "boston", "newby"))
    named = site.published()
    assert "newby" in named.addressees
    for epoch in (3, 4):
        if site.published().dropped:
            break
        site.ack("boston", epoch)
    while not (last := site.published()).dropped:
        site.ack("boston", last.epoch)
    assert set(last.dropped) == {"austin"}


def test_a_new_site_is_named_though_the_queue_is_full() -> None:
    """What has no events does not wait."""
    site = LimitedSite(QueueLimits(bytes=1))
    site.commits(3)
    site.published()
    assert site.is_full()
    site.restart(addressees=("seattle", "tacoma"))
    named = site.published()
    assert (named.frames, named.addressees) == ((), ("seattle", "tacoma"))
    assert site.is_full()


def test_a_run_that_ends_drops_by_what_the_run_before_has_found() -> None:
    """Fails when senders with --available-now never drop anybody, or a job that was away does so
    at once."""
    site = LimitedSite(QueueLimits(bytes=SIZE, policy="drop_reader"))
    site.commits(3)
    site.published()
    now = site.clock()
    record = SenderRecord(STREAM, now, now, queue_full="full", queue_full_since=now)
    put_sender_record(site.log.channel, record)
    site.clock.pass_seconds(ACK_TIMEOUT / 1000)
    site.restart()
    assert Site.published(site).dropped == {"seattle": 1}
