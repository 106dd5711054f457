"""Acks: overdue ones are requested again, acked epochs are trimmed, holds are reported and
retried; a quorum is enough to go on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from many_sites import ManySites
from sites import NEWARK, SEATTLE, Sites
from waiting import wait_until

import spark_wan
import spark_wan.receiver.stream as receiver_stream
from spark_wan.errors import AckTimeoutError
from spark_wan.log.notes import announced
from spark_wan.log.stream_log import StreamLog
from spark_wan.receiver.job import Receiver
from spark_wan.runtime.handle import JobHandle
from spark_wan.sender.acks import AckManager
from spark_wan.sender.job import Sender
from spark_wan.sender.outbound_stream import StreamStatus

ORDERS = "newark.east.orders"


@pytest.fixture(scope="module")
def running(
    spark: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Sites, JobHandle[Any], JobHandle[Any]]]:
    """A running sender and receiver with a short ack timeout and a short retry interval."""
    wan = Sites.make(tmp_path_factory.mktemp("acks") / "wan", ack_timeout="300ms")
    wan.change(10)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(receiver_stream, "FIRST_RETRY", 0.5)
        sender = Sender(spark, wan.topology, NEWARK, senders=["east"]).start()
        receiver = Receiver(spark, wan.topology, SEATTLE, senders=["east"], interval=0.1).start()
    yield wan, sender, receiver
    sender.stop()
    receiver.stop()


def status(sender: JobHandle[Any], table: str = "orders") -> StreamStatus:
    return next(status for status in sender.status() if status.table == table)


def wait_until_all_acked(wan: Sites, *handles: Any) -> None:
    def done(table: str) -> bool:
        numbers = wan.numbers(table)
        return (
            bool(numbers)
            and wan.acked(table) == numbers[-1]
            and wan.rows(table) == wan.rows(table, NEWARK)
        )

    wait_until(lambda: done("orders") and done("readings"), "all acked", *handles)


def test_epochs_that_every_site_has_acked_are_trimmed(
    running: tuple[Sites, JobHandle[Any], JobHandle[Any]],
) -> None:
    """Frames first; each stream keeps its newest manifest."""
    wan, *handles = running
    wait_until_all_acked(wan, *handles)
    wan.change(30)
    wait_until_all_acked(wan, *handles)
    for table in ("orders", "readings"):
        wait_until(
            lambda table=table: len(wan.numbers(table)) == 1 and not wan.frames(table),
            "trimmed",
            *handles,
        )
        assert wan.numbers(table)[0] >= 2
    wan.assert_equal()


@pytest.mark.channels("directory", "s3")
def test_f11_a_lost_ack_is_restored_from_the_ledger(
    running: tuple[Sites, JobHandle[Any], JobHandle[Any]],
) -> None:
    """The sender re-announces the epoch after ``ack_timeout``, and the receiver acks it without
    another write to the table.

    Fails without the announcement: the receiver has no reason to read the stream.
    """
    wan, *handles = running
    wait_until_all_acked(wan, *handles)
    before, version = wan.ack("orders"), wan.version("orders")
    assert before is not None
    wan.channel().delete([f"acks/{ORDERS}/{SEATTLE}.json"])  # type: ignore[attr-defined]
    wait_until(lambda: wan.ack("orders") is not None, "another ack", *handles)
    assert replace(before, dead_letters=0) == wan.ack("orders")
    wait_until(
        lambda: announced(wan.channel(), ORDERS) is None, "the announcement is withdrawn", *handles
    )
    assert wan.version("orders") == version
    wan.assert_equal()


def test_b33_b34_a_hold_is_reported_and_retried(
    running: tuple[Sites, JobHandle[Any], JobHandle[Any]],
) -> None:
    """The target is away: the ack has the held epoch and the cause, the sender's status has the
    cause, and nothing of the epoch is trimmed. The other table is not affected. Once the target
    is back, the receiver continues by itself.

    Fails without the check in `Ledger.catch_up` for a table that the ledger knows: the receiver
    creates the table again, without its older rows.
    """
    wan, sender, receiver = running
    wait_until_all_acked(wan, sender, receiver)
    applied = wan.acked("orders")
    target = wan.path("orders", SEATTLE)
    target.rename(target.with_name("away"))
    wan.change(60)
    wait_until(
        lambda: SEATTLE in status(sender).remote_holds, "the hold is reported", sender, receiver
    )
    ack = wan.ack("orders")
    assert ack is not None and (ack.applied, ack.held) == (applied, applied + 1)
    assert ack.cause == status(sender).remote_holds[SEATTLE]
    assert "orders: the table is missing at site seattle" in str(ack.cause)
    assert "restore it" in str(ack.cause)
    held = [(each.table, each.held) for each in receiver.status() if each.held]
    assert held == [("orders", ack.cause)]
    assert status(sender).held is None
    wait_until(
        lambda: wan.rows("readings") == wan.rows("readings", NEWARK),
        "the other table continues",
        sender,
        receiver,
    )
    # Wait: the sender may be writing frames of another epoch, or trimming the last acked manifest.
    wait_until(
        lambda: wan.named_frames("orders") == wan.frames("orders") != set(),
        "the held epoch is not trimmed",
        sender,
        receiver,
    )

    assert not target.exists()
    target.with_name("away").rename(target)
    wait_until_all_acked(wan, sender, receiver)
    wait_until(
        lambda: not status(sender).remote_holds and not status(sender).backlog,
        "the hold is released",
        sender,
        receiver,
    )
    wan.assert_equal()


def test_f43_a_quorum_goes_on_without_a_site_and_nothing_is_trimmed_before_it_is_back(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """newark and seattle are two of three, and newark alone is not enough. Fails when the sender
    waits for denver, or trims what denver still needs."""
    polls, collect = list[int](), AckManager.round

    def counted(manager: AckManager) -> Any:
        polls.append(1)
        return collect(manager)

    monkeypatch.setattr(AckManager, "round", counted)
    wan = ManySites.make(
        tmp_path / "wan",
        {"newark": [["seattle", "denver"]], "seattle": [], "denver": []},
        block_on_ack="1h",
    )
    wan.commit("newark", "orders", [{"id": 1, "item": "pear", "amount": 1.0}])
    sender = Sender(spark, wan.topology, "newark").start()
    try:
        log = StreamLog(wan.tables.channel("newark0"), "newark.newark0.orders")
        wait_until(lambda: log.epochs() == [1], "the first epoch", sender)
        wan.commit("newark", "orders", [{"id": 2, "item": "plum", "amount": 2.0}])
        seen = len(polls)
        wait_until(lambda: len(polls) > seen + 5, "it looks for acks", sender)
        assert log.epochs() == [1]
        wan.receive(spark, "seattle")
        assert spark_wan.wait_for_ack(wan.topology, "orders", 0) == {"newark", "seattle"}
        wait_until(lambda: log.epochs() == [1, 2], "the second one", sender)
        with pytest.raises(AckTimeoutError) as raised:
            spark_wan.wait_for_ack(wan.topology, "orders", 1, policy="all", timeout=0)
        assert "denver" in raised.value.missing
        wan.receive(spark, "denver")
        wan.receive(spark, "seattle")
        assert spark_wan.wait_for_ack(wan.topology, "orders", 1, policy="all") == set(wan.sites)
        wait_until(lambda: log.epochs() == [2], "the first one is trimmed", sender)
        wan.assert_equal()
    finally:
        sender.stop()
