"""B1. What a site could not apply, its sender can name: which event, why, and its row."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from sites import NEWARK, SEATTLE, Sites
from waiting import until

import spark_wan
from spark_wan.channels.registry import open_channel
from spark_wan.errors import ChannelError, OptionError
from spark_wan.log import notes
from spark_wan.log.stream_log import StreamLog
from spark_wan.status.reports import read_status
from spark_wan.sync.letters import Chosen, Reported, discard, letters, replay, reported

ORDERS = "newark.east.orders"


def refuse(spark: Any, wan: Sites, *ids: int) -> None:
    """Send rows of which the target refuses these."""
    rows = [{"id": n, "item": "pear", "amount": -1.0 if n in ids else 1.0} for n in (*ids, 99)]
    wan.append("orders", rows)
    wan.send(spark, tables=["orders"])
    status = wan.receive(spark)
    assert {each.held for each in status.values()} == {None}


def told_by(wan: Sites) -> Reported:
    """What the sites say of orders that newark has sent. It has another sender, whose topics are
    not there: nobody uses it."""
    return reported(wan.topology, NEWARK, Chosen(table="orders"))


def link(wan: Sites) -> Any:
    streams = [each for channel in read_status(wan.topology) for each in channel.streams]
    [site] = next(each.sites for each in streams if each.stream == ORDERS)
    return site


def test_b36_the_sender_can_name_each_event_that_failed(
    spark: Any, wan: Sites, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """By what the receiver writes before the ack that counts it. Fails when the sender only learns
    how many there are; when it lists what was mended; and when a channel that refuses the report
    holds up the ack."""
    refuse(spark, wan)
    table = f"delta.`{wan.path('orders', SEATTLE)}`"
    spark.sql(f"ALTER TABLE {table} ADD CONSTRAINT positive CHECK (amount >= 0)")
    refuse(spark, wan, 7, 8)
    caplog.clear()
    with caplog.at_level(logging.WARNING, logger="spark_wan.sender.acks"):
        wan.send(spark, tables=["orders"])
    here = letters(wan.topology, SEATTLE)
    told = told_by(wan)
    assert (told.more, told.problems, letters(wan.topology, NEWARK)) == (0, [], [])
    assert {each.site for each in told.letters} == {SEATTLE}
    assert sorted(each.letter.key or "" for each in told.letters) == ['{"id":7}', '{"id":8}']
    assert {each.letter.event_id: (each.letter.cause, each.letter.row) for each in here} == {
        each.letter.event_id: (each.letter.cause, each.letter.row) for each in told.letters
    }
    assert (link(wan).dead_letters, link(wan).open_dead_letters) == (2, 2)
    # --- what was done about one is not listed any more, at both ends
    [seven] = [each for each in here if each.letter.key == '{"id":7}']
    with pytest.raises(OptionError, match="is a dead letter of site seattle: give --site seattle"):
        discard(wan.topology, NEWARK, told.letters)
    discard(wan.topology, SEATTLE, [seven])
    [left] = told_by(wan).letters
    assert left.letter.key == '{"id":8}'
    assert (link(wan).dead_letters, link(wan).open_dead_letters) == (2, 1)
    # --- more of them: the receiver tells again, without the one that was discarded
    put = notes.put_refused

    def fails(*_: Any) -> None:
        raise ChannelError("no permission for refused/")

    monkeypatch.setattr(notes, "put_refused", fails)
    with caplog.at_level(logging.WARNING):
        refuse(spark, wan, 9)
    assert "the sender is not told which events could not be applied: no permission" in caplog.text
    assert (link(wan).dead_letters, link(wan).open_dead_letters) == (3, 1)
    monkeypatch.setattr(notes, "put_refused", put)
    refuse(spark, wan, 10)
    keys = [each.letter.key for each in told_by(wan).letters]
    assert keys == ['{"id":10}', '{"id":9}', '{"id":8}']


def test_b36_the_sender_knows_what_a_copy_has_changed(spark: Any, wan: Sites) -> None:
    """Though nothing follows it: letters that it supersedes are not open any more, and rows that
    the table refuses again are. Fails when a row is missing, and status, check and the sender know
    nothing of it."""
    refuse(spark, wan)
    table = f"delta.`{wan.path('orders', SEATTLE)}`"
    spark.sql(f"ALTER TABLE {table} ADD CONSTRAINT positive CHECK (amount >= 0)")
    refuse(spark, wan, 7)
    receiver = spark_wan.Receiver(spark, wan.topology, SEATTLE, senders=["east"]).start()
    try:
        until(lambda: link(wan).answered_at_ms is not None)
        for statement, counts in (
            ("SET TBLPROPERTIES ('user.cause' = 'not mended')", (2, 1)),
            ("DROP CONSTRAINT positive", (2, 0)),
        ):
            spark.sql(f"ALTER TABLE {table} {statement}")
            replay(wan.topology, SEATTLE, letters(wan.topology, SEATTLE))
            assert link(wan).open_dead_letters == 0
            wan.send(spark, tables=["orders"])
            until(lambda: not requests(wan))
            until(lambda counts=counts: known(wan) == counts)
            assert [each.letter.key for each in told_by(wan).letters] == ['{"id":7}'] * counts[1]
    finally:
        receiver.stop()
    assert letters(wan.topology, SEATTLE) == []
    assert (-1.0, 7, "pear") in wan.rows("orders")


def known(wan: Sites) -> tuple[int, int | None]:
    return link(wan).dead_letters, link(wan).open_dead_letters


def requests(wan: Sites) -> list[str]:
    """The copies of orders that are asked for, and not there yet."""
    copies = f"{ORDERS}~copy~{SEATTLE}"
    sender = wan.topology.sender("east")
    channel = open_channel(sender.channel, sender.storage)
    ack = StreamLog(channel, copies).ack(SEATTLE)
    return [ack.wanted.request] if ack is not None and ack.wanted is not None else []
