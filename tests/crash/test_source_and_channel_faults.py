"""Faults of the source's history and of the channel: loud, alone, nothing lost."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from sites import NEWARK, SEATTLE, Sites
from waiting import DEADLINE, started, wait_until

from spark_wan.errors import WanError
from spark_wan.receiver.job import Receiver
from spark_wan.sender.job import Sender


@pytest.mark.parametrize("what", ["VACUUM", "log cleanup"])
def test_f09_history_overtakes_a_lagging_sender(spark: Any, replicated: Sites, what: str) -> None:
    """The sender stops before the lost versions and says so; the other table goes on; nothing behind the loss is published.

    Taken out once: `source_error`, and the comparison with the history's beginning in `RangePlanner`.
    """
    equal = replicated.rows("orders")
    replicated.change(50)
    source = replicated.path("orders")
    if what == "VACUUM":
        spark.sql(f"VACUUM delta.`{source}` RETAIN 0 HOURS").collect()
    else:
        table = DeltaTable(source)
        table.create_checkpoint()
        for version in range(table.version()):
            (source / "_delta_log" / f"{version:020d}.json").unlink()
    for _ in range(2):
        with pytest.raises(WanError, match=r"orders: .*(VACUUM|log cleanup).* full copy"):
            replicated.send(spark)
        assert replicated.numbers("orders")[-1] == 2
    replicated.apply(spark)
    assert replicated.rows("orders") == equal
    replicated.assert_equal("readings")


def test_f12_channel_unreachable_for_a_while(spark: Any, replicated: Sites) -> None:
    """Both ends lose the channel and keep trying; the site goes on writing; they converge by themselves once it is back.

    Taken out once: the sender's hold on an error (`SenderStream._publish`).
    """
    topology = replicated.topology
    sender = Sender(spark, topology, NEWARK, senders=["east"]).start()
    receiver = started(Receiver(spark, topology, SEATTLE, senders=["east"], interval=0.1))
    try:
        with unreachable(replicated):
            replicated.change(50)
            wait_until(lambda: all(status.held for status in sender.status()), "a hold", sender)
            replicated.change(70)
            assert sender.is_active and receiver.is_active
        wait_until(
            lambda: (
                all(replicated.acked(table) > 2 for table in ("orders", "readings"))
                and replicated.are_equal()
            ),
            "equal sites",
            sender,
            receiver,
        )
        wait_until(
            lambda: [status.held for status in sender.status()] == [None, None],
            "no hold",
            sender,
            receiver,
        )
        assert receiver.exception() is None
    finally:
        sender.stop()
        receiver.stop()
    replicated.assert_equal()


def test_f12_channel_lost_in_the_middle_of_a_micro_batch(
    spark: Any, waiting: Sites, caplog: pytest.LogCaptureFixture
) -> None:
    """The receiver was woken, and the channel is gone: the micro-batch neither fails nor counts as done.

    Taken out once: the wait in `ChannelReceiver.__call__`.
    """
    inbound = waiting.inbound()
    micro_batch = threading.Thread(target=inbound, args=(spark.range(0), 0))
    with unreachable(waiting):
        micro_batch.start()
        wait_until(lambda: "cannot be opened" in caplog.text, "the warning")
        assert micro_batch.is_alive()
    micro_batch.join(DEADLINE)
    waiting.assert_equal()


@contextmanager
def unreachable(sites: Sites) -> Iterator[None]:
    """The channel's directory cannot be entered."""
    channel = Path(sites.topology.sender("east").channel)
    file = channel.with_name("in the way")
    file.write_text("no directory any more")
    exchange(channel, file)
    try:
        yield
    finally:
        exchange(channel, file)


def exchange(one: Path, other: Path) -> None:
    """Swap two names at once: between two renames a store would make the directory anew."""
    at_cwd, exchange_flag = -100, 2
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(at_cwd, bytes(one), at_cwd, bytes(other), exchange_flag):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


@pytest.mark.parametrize("damage", ["truncated", "altered", "gone"])
def test_f20_damaged_frame_holds_its_stream(spark: Any, waiting: Sites, damage: str) -> None:
    """The epochs before it are applied, its own is held and named, and neither acked nor trimmed; other tables go on. With the frame
    put back, all of it arrives.

    Taken out once: the comparison of checksums in `check_frame` (altered), and the epochs before the bad one in `_before_bad_frame` (truncated, gone).
    """
    waiting.change(70)
    waiting.send(spark)
    log = waiting.log("orders")
    name = log.read(4).frames[0].path
    path = Path(log.channel.url) / name
    content = path.read_bytes()
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(
            content[: len(content) // 2]
            if damage == "truncated"
            else content[:-9] + b"!" + content[-8:]
        )

    waiting.apply(spark, rounds=2)
    ack = waiting.ack("orders")
    assert ack is not None and (ack.applied, ack.held) == (3, 4)
    assert ack.cause is not None and name in ack.cause
    waiting.assert_equal("readings")
    statuses = {status.table: status for status in waiting.send(spark)}
    assert name in statuses["orders"].remote_holds[SEATTLE]
    assert waiting.numbers("orders")[-1] == 4
    assert waiting.named_frames("orders") - {name} <= waiting.frames("orders")

    path.write_bytes(content)
    waiting.apply(spark)
    waiting.assert_equal()
