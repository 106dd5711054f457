"""Heartbeats: one per sender and interval, whatever the number of streams."""

from __future__ import annotations

import math
import uuid

import pytest
from counted_channel import CountedChannel
from fakes import Clock
from faulty_channel import Fault, FaultyChannel

from spark_wan.channels.base import Note
from spark_wan.log.heart import EVERY, Heart
from spark_wan.log.notes import heartbeat, put_heartbeat
from spark_wan.wire.heartbeat import MISSED, Heartbeat

GOLDEN = (
    b'{"version":2,"sender":"east","site":"seattle","began":1,"every":60000,"written":5,'
    b'"stopped":null}'
)
BEAT = Heartbeat("east", "seattle", 1, 60_000, 5)


@pytest.fixture
def channel() -> CountedChannel:
    return CountedChannel(f"dict://{uuid.uuid4().hex}")


def test_a_golden_heartbeat_is_read_and_written(channel: CountedChannel) -> None:
    assert BEAT.encode() == GOLDEN
    note = Note("heartbeat", "east", "seattle")
    for data, found in (
        (GOLDEN, BEAT),
        (GOLDEN.replace(b'"began"', b'"more":1,"began"'), BEAT),
        (GOLDEN.replace(b'"began"', b'"requires":["more"],"began"'), None),
        (GOLDEN.replace(b"seattle", b"denver"), None),
        (GOLDEN.replace(b'"every":60000', b'"every":-1'), None),
        (GOLDEN.replace(b'"written":5', b'"written":-5'), None),
        (b"damaged", None),
    ):
        channel.put_note(note, data)
        assert heartbeat(channel, "east", "seattle") == found


def test_a_job_beats_every_90_seconds_for_each_sender(channel: CountedChannel) -> None:
    """With one request each. Fails when each look is a request, or a clock that was set back stops
    them."""
    clock = Clock()
    heart = Heart(channel, "seattle", clock, {"east", "west"})
    puts = []
    for seconds in (0, 0, 89, 1, 91, -3_600, 90):
        clock.pass_seconds(seconds)
        channel.counted()
        heart.beat()
        puts.append(channel.counted().get("put", 0))
    assert puts == [2, 0, 0, 2, 2, 2, 2]
    assert heart.left() == EVERY / 1000
    assert Heart(channel, "seattle", clock, set()).left() == math.inf
    found = heartbeat(channel, "west", "seattle")
    assert found == Heartbeat("west", "seattle", Clock()(), EVERY, clock())


def test_a_sender_that_is_added_has_one_at_once(channel: CountedChannel) -> None:
    clock = Clock()
    heart = Heart(channel, "seattle", clock, set())
    heart.beat()
    heart.add("east")
    assert heart.left() == 0
    heart.beat()
    assert heartbeat(channel, "east", "seattle") is not None
    heart.add("east")
    assert heart.left() > 0


def test_a_channel_that_refuses_one_is_asked_again_later(
    channel: CountedChannel, caplog: pytest.LogCaptureFixture
) -> None:
    """And stops nothing. Fails when each of them is a warning."""
    faulty = FaultyChannel(channel, [Fault("put_heartbeat", n, "fail") for n in (1, 2)])
    clock = Clock()
    heart = Heart(faulty, "seattle", clock, {"east"})  # type: ignore[arg-type]
    for _ in range(3):
        heart.beat()
        heart.beat()
        clock.pass_seconds(EVERY / 1000)
    assert faulty.calls["put_heartbeat"] == 3
    assert [record.levelname for record in caplog.records if record.levelno >= 30] == ["WARNING"]
    assert heartbeat(channel, "east", "seattle") is not None


def test_b73_a_job_that_is_stopped_says_so(channel: CountedChannel) -> None:
    """Unless another one has gone on, or the stop has given up. Fails when a restart looks like a
    stop."""
    clock = Clock()
    first, second = (Heart(channel, "seattle", clock, {"east"}) for _ in range(2))
    first.beat()
    clock.pass_seconds(1)
    first.stop(lambda: True)
    found = heartbeat(channel, "east", "seattle")
    assert found is not None and found.stopped is None
    first.stop()
    found = heartbeat(channel, "east", "seattle")
    assert found is not None and found.stopped == found.written == clock()
    second.beat()
    clock.pass_seconds(1)
    second.beat()
    put_heartbeat(channel, BEAT)  # a third one
    second.stop()
    assert heartbeat(channel, "east", "seattle") == BEAT


@pytest.mark.parametrize(
    ("every", "stopped", "late", "silent"),
    [
        (EVERY, None, 0, False),
        (EVERY, None, 1, True),
        (EVERY, 7, 1, False),
        (0, None, 1, False),
    ],
)
def test_a_job_is_silent_when_it_has_missed_three(
    every: int, stopped: int | None, late: int, silent: bool
) -> None:
    beat = Heartbeat("east", "seattle", 1, every, 5, stopped)
    assert beat.is_silent(5 + MISSED * EVERY + late) is silent
