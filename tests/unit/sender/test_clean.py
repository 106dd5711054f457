"""What waits for other sites is dropped because an operator has asked for it: the publisher's
part."""

from __future__ import annotations

import logging
from itertools import islice

import pytest
from fakes import STREAM
from limited_site import LimitedSite

from spark_wan.errors import ChannelError
from spark_wan.topology.model import QueueLimits
from spark_wan.wire.control import AT_VERSION, NEWEST, Clean, End, Ending, WantedEnd
from spark_wan.wire.manifest import Manifest


def asked(
    site: LimitedSite, *sites: str, through: int = 3, generation: int = 1, log_id: str = ""
) -> WantedEnd:
    """What is wanted after a request to drop what waits for sites through an epoch."""
    log = log_id or newest(site).log_id
    lost = tuple((STREAM, log, each, through) for each in sites)
    clean = Clean(None, None, None, lost, generation, by="ann at here", at=5)
    return WantedEnd(generation, cleans=(clean,))


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
    """Once, whoever publishes it then. Fails when a restart drops again what came since."""
    site = site_with_backlog("denver", "seattle")
    site.wanted = asked(site, "seattle")
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
    site.restart()
    assert site.round() is None


def test_several_requests_are_done_together() -> None:
    """Fails when the second takes the place of the first, which the sender has not seen."""
    site = site_with_backlog("boston", "denver", "seattle")
    first, second = asked(site, "denver"), asked(site, "seattle", through=2, generation=2)
    site.wanted = WantedEnd(2, cleans=(*first.cleans, *second.cleans))
    assert site.published().dropped == {"denver": 3, "seattle": 2}
    site.restart()
    assert site.round() is None


def test_only_what_was_shown_is_dropped() -> None:
    """Not what is published between the request and the sender's look, for a site that has acked
    since, or in another log. Fails when sites are dropped that nobody was asked about."""
    site = site_with_backlog("denver", "seattle")
    site.wanted = asked(site, "seattle")
    site.commits(1)
    site.wanted, wanted = WantedEnd(), site.wanted
    site.published()  # denver lacks it, too
    site.wanted = wanted
    assert site.published().dropped == {"seattle": 3}
    site = site_with_backlog("denver", "seattle")
    site.wanted = asked(site, "seattle")
    site.ack("seattle", 3)
    assert site.round() is None
    site = site_with_backlog("denver", "seattle")
    site.wanted = asked(site, "seattle", log_id="another")
    assert site.round() is None


def test_what_was_acked_when_the_sender_notices_is_not_dropped() -> None:
    """Nor what is sent afterwards. Fails when the request waits for something to drop."""
    site = site_with_backlog("seattle")
    site.wanted = asked(site, "seattle")
    site.ack("seattle", 3)
    assert site.round() is None
    assert site.publisher.is_quiet()
    for _ in range(2):
        site.commits(1)
        following = site.published()
        assert (following.dropped, following.control) == ({}, 1)
        site.restart()


def test_a_clean_that_cannot_be_added_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Fails when a channel that fails at this moment loses the request, or the log says that it was
    done."""
    site = site_with_backlog("seattle")
    site.wanted = asked(site, "seattle")

    def fails(*_: object, **__: object) -> None:
        raise ChannelError("full")

    with monkeypatch.context() as patch:
        patch.setattr(site.publisher._writer, "append", fails)
        with pytest.raises(ChannelError):
            site.round()
    assert caplog.messages == []
    assert site.published().dropped == {"seattle": 3}


def test_a_sender_at_rest_notices_the_request() -> None:
    site = site_with_backlog("seattle")
    site.rounds()
    assert site.publisher.is_quiet() and not site.publisher.is_to_clean
    site.wanted = asked(site, "seattle")
    assert not site.publisher.is_quiet() and site.publisher.is_to_clean
    site.published()
    site.rounds()
    assert site.publisher.is_quiet() and not site.publisher.is_to_clean


def test_a_sender_whose_queue_is_full_notices_the_request() -> None:
    """Fails when the way out of a full queue waits for room."""
    site = LimitedSite(QueueLimits(bytes=1), "seattle")
    site.commits(2)
    site.published()
    assert site.is_full()
    site.wanted = asked(site, "seattle", through=1)
    assert site.published().dropped == {"seattle": 1}
    assert site.published().last_version == 1


def test_a_stream_that_has_ended_stays_ended(caplog: pytest.LogCaptureFixture) -> None:
    """Fails when a clean has a drained stream go on, or an ended one drops nothing."""
    site = site_with_backlog("seattle")
    ending = Ending(None, None, End(NEWEST), 1, by="ann", at=5)
    site.wanted = WantedEnd(1, ending)
    assert site.published().end
    site.commits(1)
    cleans = asked(site, "seattle", generation=2).cleans
    site.wanted = WantedEnd(2, ending, cleans)
    with caplog.at_level(logging.ERROR):
        dropping = site.published()
    assert (dropping.end, dropping.dropped, dropping.last_version) == (True, {"seattle": 3}, 2)
    assert site.round() is None
    [message] = caplog.messages
    assert message.startswith(
        f"{STREAM}: somebody has asked for it, so the stream goes on without site seattle: what it "
        "has not acked through epoch 3 is deleted"
    )
    site.wanted = WantedEnd(3, Ending(None, None, None, 3, by="ann", at=6), cleans)
    assert site.published().last_version == 3


def test_a_stream_that_has_ended_goes_on_by_a_request_of_a_new_control_log() -> None:
    """The resume has the number of the clean, which was lost with the log. Fails when the epoch
    that drops a site answers every request that the sender knew of."""
    site = site_with_backlog("seattle")
    ending = Ending(None, None, End(NEWEST), 1, by="ann", at=5)
    site.wanted = WantedEnd(1, ending)
    assert site.published().control == 1
    site.wanted = WantedEnd(2, ending, asked(site, "seattle", generation=2).cleans)
    assert site.published().dropped == {"seattle": 3}
    site.commits(1)
    site.wanted = WantedEnd(2, Ending(None, None, None, 2, by="ann", at=6))
    assert site.published().last_version == 3


def test_a_stream_that_ends_after_a_clean_drops_nothing_more() -> None:
    """Fails when the end, which was asked for before, makes the clean look undone."""
    site = site_with_backlog("seattle")
    ending = Ending(None, None, End(NEWEST), 1, by="ann", at=5)
    site.wanted = WantedEnd(2, ending, asked(site, "seattle", generation=2).cleans)
    assert site.published().dropped == {"seattle": 3}
    end = site.published()
    assert end.end
    for _ in range(2):
        site.restart()
        assert site.round() is None


def test_a_stream_that_is_beyond_its_end_drops_what_waits_and_ends() -> None:
    """It was published further while somebody asked to stop it. Fails when its sender plans the
    drop again and again, and never rests."""
    site = site_with_backlog("seattle")
    ending = Ending(None, None, End(AT_VERSION, 1), 1, by="ann", at=5)
    site.wanted = WantedEnd(2, ending, asked(site, "seattle", generation=2).cleans)
    steps = [*islice(site.publisher.round(), 10)]
    assert steps[1:] == [
        "publish.4 frames-written",
        "publish.5 manifest-added",
        "publish.6 checkpointed",
    ]
    end = site.published()
    assert (end.end, end.last_version, end.dropped) == (True, 2, {"seattle": 3})
    assert site.round() is None


def test_epochs_without_events_are_not_worth_dropping() -> None:
    """A site that lacks but them needs no copy."""
    site = site_with_backlog("seattle")
    site.ack("seattle", 3)
    ending = Ending(None, None, End(NEWEST), 1, by="ann", at=5)
    site.wanted = WantedEnd(1, ending)
    assert site.published().end
    site.wanted = WantedEnd(2, ending, asked(site, "seattle", through=4, generation=2).cleans)
    assert site.round() is None
