"""What a pause means to a sender: nobody owes an ack, and with ``capture`` it adds nothing."""

from __future__ import annotations

from dataclasses import replace

from fakes import STREAM, ack
from managed_stream import TIMEOUT, ManagedStream

from spark_wan.log.notes import put_pause
from spark_wan.sender.ack_timeouts import AckTimeouts
from spark_wan.steps import run
from spark_wan.wire.head import Pause

PAUSED = Pause(1, "ann at here", 5)


def test_f10_what_sites_do_not_ack_while_paused_is_not_announced_again() -> None:
    """And not at once when they are resumed: from then on they owe it. Fails when a pause fills the
    log with warnings."""
    stream = ManagedStream(1, 2)
    stream.ack("seattle", 1)
    stream.round()
    put_pause(stream.log.channel, STREAM, PAUSED)
    for _ in range(3):
        stream.clock.pass_seconds(TIMEOUT + 1)
        assert not stream.round().overdue
    put_pause(stream.log.channel, STREAM, replace(PAUSED, until=stream.clock()))
    stream.clock.pass_seconds(TIMEOUT - 1)
    assert not stream.round().overdue and stream.announced() == []
    stream.clock.pass_seconds(2)
    assert stream.round().overdue and stream.announced() == [(2, 1)]


def test_f43_a_pause_is_no_ack_timeout() -> None:
    """Fails when an alert, or the user's function, says that the policy is not met in time."""
    stream, asked = ManagedStream(1), list[int]()

    def decide(timeout: object) -> str:
        asked.append(1)
        return "continue"

    timeouts = AckTimeouts(stream.manager, decide)  # type: ignore[arg-type]
    put_pause(stream.log.channel, STREAM, PAUSED)
    stream.clock.now = stream.log.read(1).created

    def look(seconds: float) -> None:
        stream.clock.pass_seconds(seconds)
        run(stream.manager.round())
        timeouts.act()

    for _ in range(3):
        look(TIMEOUT + 1)
    assert (timeouts.alert, asked) == (None, [])
    put_pause(stream.log.channel, STREAM, replace(PAUSED, until=stream.clock()))
    look(TIMEOUT - 1)
    assert (timeouts.alert, asked) == (None, [])
    another = AckTimeouts(stream.new(), decide)  # type: ignore[arg-type]
    run(another.acks.round())  # of a process that has not seen the pause
    another.act()
    assert (another.alert, asked) == (None, [])
    look(2)
    assert timeouts.alert is not None and asked == [1]
    ack(stream.log, "seattle", 1)
    look(1)
    assert timeouts.alert is None
