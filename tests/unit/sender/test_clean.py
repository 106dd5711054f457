"""What waits for other sites is dropped because an operator has asked for it: the publisher's
part."""

from __future__ import annotations

import logging

import pytest
from fakes import STREAM
from test_queue import LimitedSite

from spark_wan.topology.model import QueueLimits
from spark_wan.wire.control import NEWEST, Clean, End, Ending, WantedEnd
from spark_wan.wire.manifest import Manifest


def asked(generation: int = 1, remote: str | None = None, seen: int = 0) -> WantedEnd:
    """What is wanted after a request to drop what waits. ``seen``: the newest request."""
    clean = Clean(None, None, remote, generation, by="ann at here", at=5)
    return WantedEnd(max(generation, seen), clean=clean)


def site_with_backlog(*sites: str) -> LimitedSite:
    """Three epochs, of which the first site has acked all, and the others one."""
    site = LimitedSite(QueueLimits(), *sites)
    site.commits(2)  # beside the first
    for _ in range(3):
        site.published()
    for n, name in enumerate(sites):
        site.ack(name, 1 if n or len(sites) == 1 else 3)
    return site


def newest(site: LimitedSite) -> Manifest:
    last = site.log.newest_manifest()
    assert last is not None
    return last


def test_b23_what_waits_is_dropped_and_what_comes_is_sent() -> None:
    """Once, whoever publishes it then. Fails when a restart drops again what came since, or when
    sites that have everything are dropped, too."""
    site = site_with_backlog("denver", "seattle")
    site.wanted = asked()
    clean = site.published()
    assert (clean.dropped, clean.frames, clean.control) == ({"seattle": 3}, (), 1)
    site.collect()
    assert site.log.epochs() == [4]
    for _ in range(2):
        site.commits(1)
        assert site.published().dropped == {"seattle": 3}
        site.restart()
    assert site.round() is None
    site.collect()
    assert site.log.epochs() == [4, 5, 6]  # they wait for it, as for all
    site.ack("seattle", 4)
    site.commits(1)
    assert site.published().dropped == {}


def test_only_what_waits_for_one_site_is_dropped() -> None:
    site = site_with_backlog("boston", "denver", "seattle")
    site.wanted = asked(remote="denver")
    assert site.published().dropped == {"denver": 3}
    site.wanted = asked(2)
    assert site.published().dropped == {"denver": 3, "seattle": 4}


def test_what_was_acked_when_the_sender_notices_is_not_dropped() -> None:
    """Nor what is sent afterwards. Fails when the request waits for something to drop."""
    site = site_with_backlog("seattle")
    site.ack("seattle", 3)
    site.wanted = asked()
    assert site.round() is None
    assert site.publisher.is_quiet()
    for _ in range(2):
        site.commits(1)
        following = site.published()
        assert (following.dropped, following.control) == ({}, 1)
        site.restart()


def test_a_sender_at_rest_notices_the_request() -> None:
    site = site_with_backlog("seattle")
    site.rounds()
    assert site.publisher.is_quiet() and not site.publisher.is_to_clean
    site.wanted = asked()
    assert not site.publisher.is_quiet() and site.publisher.is_to_clean
    site.published()
    assert site.publisher.is_quiet() and not site.publisher.is_to_clean


def test_a_stream_that_has_ended_stays_ended(caplog: pytest.LogCaptureFixture) -> None:
    """Fails when a clean has a drained stream go on, or an ended one drops nothing."""
    site = site_with_backlog("seattle")
    ending = Ending(None, None, End(NEWEST), 1, by="ann", at=5)
    site.wanted = WantedEnd(1, ending)
    assert site.published().end
    site.commits(1)
    clean = asked(2).clean
    site.wanted = WantedEnd(2, ending, clean)
    with caplog.at_level(logging.ERROR):
        dropping = site.published()
    assert (dropping.end, dropping.dropped, dropping.last_version) == (True, {"seattle": 4}, 2)
    assert site.round() is None
    [message] = caplog.messages
    assert message.startswith(
        f"{STREAM}: ann at here has asked for it, so the stream goes on without site seattle: what "
        "it has not acked through epoch 4 is deleted"
    )
    site.wanted = WantedEnd(3, Ending(None, None, None, 3, by="ann", at=6), clean)
    assert site.published().last_version == 3


def test_epochs_without_events_are_not_worth_dropping() -> None:
    """A site that lacks but them needs no copy."""
    site = site_with_backlog("seattle")
    site.ack("seattle", 3)
    site.wanted = WantedEnd(1, Ending(None, None, End(NEWEST), 1, by="ann", at=5))
    assert site.published().end
    site.wanted = WantedEnd(2, site.wanted.ending, asked(2).clean)
    assert site.round() is None


def test_an_older_request_than_the_log_knows_is_done() -> None:
    """The control log was restored. Fails when what was sent since is dropped."""
    site = site_with_backlog("seattle")
    site.wanted = asked(4)
    site.published()
    site.commits(1)
    assert site.published().control == 4
    site.restart()
    site.wanted = asked(3)
    assert site.round() is None
    assert newest(site).epoch == 5
