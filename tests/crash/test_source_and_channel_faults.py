"""Faults of the source's history and of the channel: reported, confined to their stream, without
loss.
"""

from __future__ import annotations

from typing import Any

import pytest
from default_channel import unreachable
from deltalake import DeltaTable
from sites import NEWARK, SEATTLE, Sites
from waiting import wait_until

from spark_wan.errors import WanError
from spark_wan.receiver.job import Receiver
from spark_wan.sender.job import Sender


@pytest.mark.parametrize("what", ["VACUUM", "log cleanup"])
def test_f09_lost_history_holds_a_lagging_sender(spark: Any, replicated: Sites, what: str) -> None:
    """The stream is held before the lost versions and the cause is reported. Nothing after the loss
    is published, and the other table is not affected.

    Fails without `source_error`, and without the check of the oldest version in `RangePlanner`.
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


@pytest.mark.channels("directory", "kafka")  # a server in memory forgets all when it ends
def test_f12_both_ends_retry_while_the_channel_is_unreachable(
    spark: Any, replicated: Sites
) -> None:
    """The site keeps writing. Once the channel is back, both ends catch up by themselves.

    Fails when an error ends the sender's stream instead of holding it (`SenderStream._go_on`).
    """
    topology = replicated.topology
    sender = Sender(spark, topology, NEWARK, senders=["east"]).start()
    receiver = Receiver(spark, topology, SEATTLE, senders=["east"], interval=0.1).start()
    try:
        with unreachable(replicated.channel()):
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


@pytest.mark.channels("directory", "s3")
@pytest.mark.parametrize("damage", ["truncated", "altered", "deleted"])
def test_f20_a_damaged_frame_holds_its_stream(spark: Any, waiting: Sites, damage: str) -> None:
    """Earlier epochs are applied. The damaged one is held and named, and neither acked nor trimmed;
    the other table is not affected. Once the frame is restored, everything arrives.

    Fails without the comparison of checksums in `check_frame` (altered), or without applying the
    earlier epochs in `TableApplier._before_bad_frame` (truncated, deleted).
    """
    waiting.change(70)
    waiting.send(spark)
    log = waiting.log("orders")
    channel: Any = log.channel
    name = log.read(4).frames[0].path
    content = channel.read(name)
    if damage == "deleted":
        channel.delete([name])
    else:
        half, altered = content[: len(content) // 2], content[:-9] + b"!" + content[-8:]
        channel.put(name, half if damage == "truncated" else altered)

    waiting.apply(spark, rounds=2)
    ack = waiting.ack("orders")
    assert ack is not None and (ack.applied, ack.held) == (3, 4)
    assert ack.cause is not None and name in ack.cause
    waiting.assert_equal("readings")
    statuses = {status.table: status for status in waiting.send(spark)}
    assert name in statuses["orders"].remote_holds[SEATTLE]
    assert waiting.numbers("orders")[-1] == 4
    assert waiting.named_frames("orders") - {name} <= waiting.frames("orders")

    channel.put(name, content)
    waiting.apply(spark)
    waiting.assert_equal()
