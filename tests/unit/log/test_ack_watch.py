"""A look at the acks of a channel, which all its streams share."""

from __future__ import annotations

import threading
import uuid

import pytest
from counted_channel import CountedChannel

from spark_wan.log.ack_watch import HEADS_INTERVAL, AckWatch
from spark_wan.log.notes import put_ack, put_head


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def channel() -> CountedChannel:
    return CountedChannel(f"dict://{uuid.uuid4().hex}")


def test_only_acks_that_were_replaced_are_read(channel: CountedChannel) -> None:
    """Fails when each look reads the acks of all sites again."""
    watch = AckWatch(channel)
    for site in ("denver", "seattle", "tacoma"):
        put_ack(channel, "orders", site, b"1")
    watch.look()
    assert watch.acks("orders") == {"denver": b"1", "seattle": b"1", "tacoma": b"1"}
    before = watch.tag("orders")
    put_ack(channel, "orders", "seattle", b"2")
    channel.delete(["acks/orders/tacoma.json"])
    channel.counted()
    assert watch.acks("orders")["seattle"] == b"1"  # as of the last look
    assert channel.counted() == {}
    watch.look()
    assert watch.tag("orders") != before
    assert watch.acks("orders") == {"denver": b"1", "seattle": b"2"}
    assert channel.counted() == {"list": 1, "get": 1}
    assert watch.acks("nothing") == {}


def test_acks_are_never_taken_for_none_before_the_first_look(channel: CountedChannel) -> None:
    """Fails when a round without a look finds no acks: sites would seem to have lost theirs."""
    put_ack(channel, "orders", "seattle", b"1")
    assert AckWatch(channel).acks("orders") == {"seattle": b"1"}


def test_an_ack_that_is_deleted_after_its_listing_is_left_out(channel: CountedChannel) -> None:
    watch = AckWatch(channel)
    put_ack(channel, "orders", "seattle", b"1")
    watch.look()
    channel.delete(["acks/orders/seattle.json"])
    assert watch.acks("orders") == {}


def test_threads_share_a_look(channel: CountedChannel) -> None:
    """Fails when the thread of each stream lists the channel."""
    clock = Clock()
    watch = AckWatch(channel, clock)
    threads = [threading.Thread(target=watch.look, args=(0.5,)) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert channel.counted() == {"list": 3}  # acks, heads, and once all logs
    for passed, lists in ((0.4, {}), (0.1, {"list": 1}), (-5.0, {"list": 3}), (0.0, {})):
        clock.now += passed
        watch.look(0.5)
        assert channel.counted() == lists


def test_what_another_process_appends_is_seen(channel: CountedChannel) -> None:
    """A user's query appends, and the sender of its site collects the acks. Fails when only acks
    show that there is something to do: an epoch that nobody acks would never be overdue."""
    clock = Clock()
    watch = AckWatch(channel, clock)
    watch.look()
    before = watch.tag("orders")
    channel.append("orders", 1, b"1")
    put_head(channel, "orders", 1, b"1")
    clock.now += HEADS_INTERVAL
    watch.look()
    assert watch.tag("orders") != before
    before = watch.tag("orders")
    clock.now += HEADS_INTERVAL
    watch.look()
    assert watch.tag("orders") == before


def test_only_acks_are_news(channel: CountedChannel) -> None:
    """Fails when what the job itself has sent has it list the acks in quick succession, minutes
    later."""
    clock = Clock()
    watch = AckWatch(channel, clock)
    channel.append("orders", 1, b"1")
    put_ack(channel, "orders", "seattle", b"1")
    found = []
    for change in (
        lambda: None,
        lambda: None,
        lambda: put_head(channel, "orders", 2, b"2"),
        lambda: put_ack(channel, "orders", "seattle", b"2"),
        lambda: channel.delete(["acks/orders/seattle.json"]),
    ):
        change()
        clock.now += HEADS_INTERVAL
        before, changes = watch.tag("orders"), watch.changes
        watch.look()
        found.append((watch.changes > changes, watch.tag("orders") != before))
    assert found == [(True, True), (False, False), (False, True), (True, True), (True, True)]
