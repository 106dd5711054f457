"""What happens when the ack policy is not met in time: waits end, alerts come and go."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from counted_channel import CountedChannel
from event_sink import SCHEMA, Sink, row
from event_sink import STREAM as SINK_STREAM
from fakes import STREAM, Checkpoints, Clock, ack, memory_channel, publish

from spark_wan.datasource import sink as sink_module
from spark_wan.datasource.sink import EventsSink, WanCommitMessage
from spark_wan.errors import ChannelError, OptionError
from spark_wan.log.notes import put_pause, sender_record
from spark_wan.log.stream_log import StreamLog
from spark_wan.sender.ack_timeouts import AckTimeout, AckTimeouts, Decide, check_decide
from spark_wan.sender.acks import AckManager
from spark_wan.steps import run
from spark_wan.topology.ack_policy import AckPolicy
from spark_wan.units import milliseconds
from spark_wan.wire.head import Pause
from spark_wan.wire.manifest import Manifest

TIMEOUT = 60
SITES = ("denver", "seattle")


class Waiting:
    """A stream for two sites, and what decides its ack timeouts."""

    def __init__(
        self, decide: Decide = "wait", policy: AckPolicy = AckPolicy.ALL, channel: Any = None
    ) -> None:
        self.log, self.clock = StreamLog(channel or memory_channel(), STREAM), Clock()
        self.decide, self.policy = decide, policy
        self.restart()

    def restart(self) -> None:
        """Begin as a new process does, which knows nothing but the log and the acks."""
        acks = AckManager(self.log, Checkpoints(), self.policy, TIMEOUT * 1000, self.clock, SITES)
        self.timeouts = AckTimeouts(acks, self.decide)

    def publish(self, epoch: int) -> Manifest:
        created = self.clock.now
        (manifest,) = publish(self.log, epoch, addressees=SITES, sent_to=SITES, created=created)
        return manifest

    def look(self, manifest: Manifest | None = None, seconds: float = 0) -> bool:
        """Do a round after ``seconds``; return whether the wait for ``manifest`` ends."""
        self.clock.pass_seconds(seconds)
        run(self.timeouts.acks.round())
        self.timeouts.act(manifest)
        return manifest is not None and self.timeouts.ends_wait(manifest)

    @property
    def alert(self) -> AckTimeout | None:
        return self.timeouts.alert


def test_f43_a_wait_lasts_until_the_policy_is_met() -> None:
    """Also longer than ``ack_timeout``: how long at most, ``block_on_ack`` says."""
    stream = Waiting()
    first = stream.publish(1)
    assert not stream.look(first)
    ack(stream.log, "seattle", 1)
    assert not stream.look(first, 10 * TIMEOUT)
    ack(stream.log, "denver", 1)
    assert stream.look(first)
    assert stream.alert is None


def test_f43_a_site_that_is_known_to_be_down_ends_later_waits_at_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Fails when each commit waits its whole time anew. Also a process that has just started
    knows. Once the site acks what it owes, commits wait for it again."""
    stream = Waiting()
    first = stream.publish(1)
    ack(stream.log, "seattle", 1)
    assert not stream.look(first, TIMEOUT)
    second = stream.publish(2)
    for _ in range(2):
        assert stream.look(second)
        stream.restart()
    stream.look(second)
    assert stream.alert == AckTimeout(
        STREAM,
        first.log_id,
        1,
        AckPolicy.ALL,
        frozenset({"seattle"}),
        frozenset({"denver"}),
        first.created,
    )
    assert str(stream.alert) == (
        "epoch 1, published 2023-11-14 22:13:20 UTC, does not meet the ack policy all: acked by "
        "seattle, not by denver"
    )
    caplog.clear()
    with caplog.at_level(logging.INFO):
        ack(stream.log, "denver", 1)
        assert not stream.look(second)
    assert stream.alert is None
    assert caplog.messages == [f"{STREAM}: the ack policy is met again, or the log is another one"]


def test_an_epoch_that_is_not_late_does_not_end_later_waits() -> None:
    stream = Waiting()
    stream.publish(1)
    stream.clock.pass_seconds(TIMEOUT - 1)
    second = stream.publish(2)
    assert not stream.look(second)
    assert stream.look(second, 1)


def test_a_site_that_the_policy_can_do_without_ends_no_wait() -> None:
    stream = Waiting(policy=AckPolicy.QUORUM)
    stream.publish(1)
    ack(stream.log, "seattle", 1)
    stream.clock.pass_seconds(2 * TIMEOUT)
    second = stream.publish(2)
    assert not stream.look(second)
    ack(stream.log, "seattle", 2)
    assert stream.look(second)
    assert stream.alert is None


def test_f43_continue_ends_the_wait_and_raises_an_alert(caplog: pytest.LogCaptureFixture) -> None:
    stream = Waiting("continue")
    first = stream.publish(1)
    assert not stream.look(first, TIMEOUT - 1)
    with caplog.at_level(logging.WARNING):
        assert stream.look(first, 1)
        assert stream.look(first, TIMEOUT)
    assert stream.alert is not None
    (message,) = (text for text in caplog.messages if "does not meet" in text)
    assert message.startswith(f"{STREAM}: epoch 1, published ")
    assert message.endswith(
        "does not meet the ack policy all: acked by no site, not by denver, seattle. It stays in "
        "the channel, and later acks count. Check that the receivers of the sites whose acks are "
        "missing run."
    )


def test_f43_continue_raises_an_alert_also_where_no_commit_waits() -> None:
    """It names the lowest epoch, and what that still lacks; it ends once the policy is met."""
    stream = Waiting("continue")
    stream.publish(1)
    stream.clock.pass_seconds(1)
    stream.publish(2)
    stream.look(seconds=TIMEOUT)
    ack(stream.log, "denver", 2)
    stream.look()
    assert stream.alert is not None
    assert (stream.alert.epoch, set(stream.alert.missing)) == (1, {"seattle"})
    ack(stream.log, "seattle", 1)
    stream.look()
    assert stream.alert is not None
    assert stream.alert.epoch == 2
    ack(stream.log, "seattle", 2)
    stream.look()
    assert stream.alert is None


def test_the_lowest_epoch_is_found_with_few_reads() -> None:
    """However long the log is, and again only when there are other acks. Fails when a commit that
    waits reads the log from its beginning, at each look."""
    channel = CountedChannel("dict://ack-timeouts")
    stream = Waiting("continue", channel=channel)
    for epoch in range(1, 301):
        stream.publish(epoch)
    ack(stream.log, "seattle", 200)
    ack(stream.log, "denver", 150)
    run(stream.timeouts.acks.round())
    stream.clock.pass_seconds(TIMEOUT)
    channel.counted()
    stream.timeouts.act()
    assert stream.alert is not None and stream.alert.epoch == 151
    assert 0 < channel.counted()["get"] <= 10
    stream.timeouts.act()
    assert channel.counted() == {}


class Asked:
    """A function of the user that decides."""

    def __init__(self, answer: Any) -> None:
        self.answer, self.asked = answer, list[AckTimeout]()

    def __call__(self, timeout: AckTimeout) -> Any:
        self.asked.append(timeout)
        return self.answer


def test_a_function_decides_by_what_was_acked() -> None:
    """It is asked once for an epoch, and again every ``ack_timeout`` while it says ``wait``."""
    decide = Asked("wait")
    stream = Waiting(decide)
    first = stream.publish(1)
    ack(stream.log, "denver", 1)
    assert not stream.look(first, TIMEOUT - 1)
    assert decide.asked == []
    assert not stream.look(first, 1)
    assert not stream.look(first, TIMEOUT - 1)
    (asked,) = decide.asked
    assert (asked.stream, asked.epoch, asked.policy) == (STREAM, 1, AckPolicy.ALL)
    assert (asked.acked, asked.missing) == ({"denver"}, {"seattle"})
    decide.answer = "continue"
    assert stream.look(first, 1)
    assert stream.alert is not None
    assert stream.look(first, 5 * TIMEOUT)
    assert len(decide.asked) == 2


def test_a_function_that_raises_is_called_again_after_the_ack_timeout() -> None:
    """Its error holds the stream meanwhile. Fails when each look calls it."""
    calls = list[AckTimeout]()

    def decide(timeout: AckTimeout) -> Any:
        calls.append(timeout)
        raise ZeroDivisionError

    stream = Waiting(decide)
    first = stream.publish(1)
    for seconds in (TIMEOUT, 1, TIMEOUT - 2):
        with pytest.raises(ZeroDivisionError):
            stream.look(first, seconds)
    assert len(calls) == 1
    with pytest.raises(ZeroDivisionError):
        stream.look(first, 1)
    assert len(calls) == 2


@pytest.mark.parametrize("answer", ["go on", None, True, 5])
def test_another_answer_of_the_function_is_refused(answer: Any) -> None:
    stream = Waiting(Asked(answer))
    first = stream.publish(1)
    with pytest.raises(OptionError, match=f"{STREAM}: on_ack_timeout has returned something else"):
        stream.look(first, TIMEOUT)


@pytest.mark.parametrize("decide", ["stop", 5, None, ["wait"]])
def test_b75_what_decides_is_a_word_or_can_be_called(decide: Any) -> None:
    with pytest.raises(OptionError, match=r"on_ack_timeout: .*; or give a function"):
        check_decide(decide)


def test_an_alert_says_what_its_epoch_lacks_now() -> None:
    """Before it is late, too."""
    stream = Waiting()
    first = stream.publish(1)
    stream.look(first)
    stream.timeouts.wait_failed(first)
    ack(stream.log, "denver", 1)
    stream.look()
    assert stream.alert is not None and stream.alert.missing == {"seattle"}


def test_f17_the_alert_of_a_log_that_is_gone_ends() -> None:
    stream = Waiting("continue")
    stream.publish(1)
    stream.look(seconds=TIMEOUT)
    assert stream.alert is not None
    stream.log.channel.trim(STREAM, 1, [])
    stream.log.forget()
    created = stream.clock.now
    publish(stream.log, 1, addressees=SITES, sent_to=SITES, created=created, log_id="b" * 32)
    stream.timeouts.acks.checkpoints = Checkpoints()
    stream.look()
    assert stream.alert is None


def test_f52_an_epoch_whose_sites_are_no_longer_served_raises_no_alert() -> None:
    """Nobody could end it. Fails with the policy ``one``, which no site then meets."""
    stream = Waiting("continue", AckPolicy.ONE)
    first = stream.publish(1)
    stream.timeouts.acks.served = ["tacoma"]
    assert stream.look(first, 2 * TIMEOUT)
    assert stream.alert is None


def test_an_epoch_for_other_sites_than_the_later_ones_is_waited_for_by_itself() -> None:
    """Fails when a later epoch that meets the policy stands for those below it."""
    stream = Waiting("continue", AckPolicy.QUORUM)
    (first,) = publish(stream.log, 1, addressees=("denver",), created=stream.clock.now)
    more = ("denver", "seattle", "tacoma")
    publish(stream.log, 2, addressees=more, sent_to=more, created=stream.clock.now)
    stream.timeouts.acks.served = more
    for site in more[1:]:
        ack(stream.log, site, 2)
    assert not stream.look(first)
    assert stream.look(first, TIMEOUT)
    assert stream.alert is not None and stream.alert.missing == {"denver"}


def test_an_epoch_that_is_trimmed_while_it_is_looked_for_was_acked() -> None:
    """Another ack manager works on the same log."""
    stream = Waiting("continue")
    for epoch in (1, 2, 3):
        stream.publish(epoch)
    run(stream.timeouts.acks.round())
    stream.clock.pass_seconds(TIMEOUT)
    stream.log.trim(2, [])
    stream.timeouts.act()
    assert stream.alert is not None and stream.alert.epoch == 3


# --- commits of a sink


class WaitingSink(EventsSink):
    """A sink without tasks, whose channel the test can see."""

    def write_row(self, event: str, batch: int) -> None:
        written = Sink(self._channel()).task(row(event))
        self._commit([WanCommitMessage(written)], "q", str(batch))


@pytest.mark.parametrize(("on_ack_timeout", "limit"), [("wait", 0.3), ("continue", 3_600)])
def test_f43_a_commit_that_ends_without_the_policy_leaves_an_alert_in_the_record(
    on_ack_timeout: str, limit: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the end of ``blockOnAck`` or of ``ackTimeout``. Fails when a commit ends as if the policy
    were met."""
    channel = CountedChannel(f"dict://sink-{on_ack_timeout}")
    monkeypatch.setattr(sink_module, "open_channel", lambda *_: channel)
    more = {"on_ack_timeout": on_ack_timeout, "block_on_ack": limit, "ack_timeout": 0.2}
    sink = WaitingSink(Sink(**more).options, SCHEMA, None)
    sink.write_row("e1", 1)
    record = sender_record(channel, SINK_STREAM)
    assert record is not None and record.alert is not None
    assert record.alert.endswith("ack policy quorum: acked by no site, not by seattle, tacoma")
    log = StreamLog(channel, SINK_STREAM)
    newest = log.newest_manifest()
    assert newest is not None
    for site in newest.addressees:
        ack(log, site, newest.epoch, newest.log_id)
    sink.options = Sink(**{**more, "ack_policy": AckPolicy.NONE}).options
    sink.write_row("e2", 2)
    record = sender_record(channel, SINK_STREAM)
    assert record is not None and record.alert is None


def test_f43_commits_after_a_late_epoch_do_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each commit is another object, which knows nothing of the one before. Fails with a test that
    does not end."""
    channel = CountedChannel("dict://sink-down")
    monkeypatch.setattr(sink_module, "open_channel", lambda *_: channel)
    now = milliseconds()
    monkeypatch.setattr(sink_module, "milliseconds", lambda: now)
    first = WaitingSink(Sink(block_on_ack=0.01, ack_timeout=60.0).options, SCHEMA, None)
    first.write_row("e1", 1)
    monkeypatch.setattr(sink_module, "milliseconds", lambda: now + 60_000)
    later = WaitingSink(Sink(block_on_ack=3_600, ack_timeout=60.0).options, SCHEMA, None)
    later.write_row("e2", 2)
    record = sender_record(channel, SINK_STREAM)
    assert record is not None and record.alert is not None and record.alert.startswith("epoch 1, ")


def test_f10_a_commit_to_a_paused_stream_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does it fail where that cannot be asked: its epoch is in the log. Fails with a test that
    does not end, or when the rows are written twice."""
    channel = CountedChannel("dict://sink-paused")
    monkeypatch.setattr(sink_module, "open_channel", lambda *_: channel)
    put_pause(channel, SINK_STREAM, Pause(1, "ann", 5))
    sink = WaitingSink(Sink(block_on_ack=3_600, ack_timeout=60.0).options, SCHEMA, None)
    sink.write_row("e1", 1)
    record = sender_record(channel, SINK_STREAM)
    assert record is not None and record.alert is None

    def refused(*_: object) -> bool:
        raise ChannelError("503")

    monkeypatch.setattr(AckManager, "is_paused", refused)
    sink = WaitingSink(Sink(block_on_ack=0.01, ack_timeout=60.0).options, SCHEMA, None)
    sink.write_row("e2", 2)
    assert StreamLog(channel, SINK_STREAM).newest_epoch() == 2
