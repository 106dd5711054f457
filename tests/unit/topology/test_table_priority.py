"""The priority of a table, from the topology to what a job works on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from fakes import memory_channel
from inline import Running
from topologies import changed, refusal, topology

from spark_wan import Receiver, Sender
from spark_wan.control.keeper import ControlKeeper
from spark_wan.log.ack_watch import AckWatch
from spark_wan.sender.rate import SendRate
from spark_wan.topology.model import QueueLimits
from spark_wan.topology.parsing import load_topology
from spark_wan.topology.values import MOST_PRIORITY

NO_SPARK: Any = None


def test_a_table_has_a_priority_within_limits() -> None:
    """Fails when one table could keep all others waiting for days."""
    assert topology().table("flights").priority == 0
    assert topology(("tables.flights.priority", -7)).table("flights").priority == -7
    for value, problem in (
        (MOST_PRIORITY + 1, "must be 100 or less, not 101"),
        (-MOST_PRIORITY - 1, "must be -100 or more, not -101"),
        ("high", "must be a whole number"),
        (1.5, "must be a whole number"),
    ):
        assert problem in refusal(("tables.flights.priority", value)), value


def test_a_receiver_applies_by_the_priority_of_the_table() -> None:
    """Fails when it is read and means nothing."""
    receiver = Receiver(NO_SPARK, topology(("tables.flights.priority", 7)), "seattle")
    tables = receiver._tables(Running(), False)
    assert [tables.get(name).priority for name in ("flights", "readings")] == [7, 0]


def test_a_sender_captures_with_the_settings_of_table_and_sender(tmp_path: Path) -> None:
    """Priority, delay, limits and rate. Fails when one is read and means nothing."""
    content = changed(
        ("tables.flights.priority", 7),
        ("tables.flights.delay", "2s"),
        ("tables.flights.max_queue_bytes", 5),
        ("senders.east.max_rows_per_second", 9),
    )
    (tmp_path / "wan.yaml").write_text(yaml.safe_dump(content))
    loaded = load_topology(tmp_path / "wan.yaml")
    east, site = loaded.sender("east"), loaded.site("newark")
    rate, control = SendRate.of(east), ControlKeeper(loaded, site)
    made = Sender(NO_SPARK, loaded, "newark")._stream(
        Running(),
        east,
        loaded.table("flights"),
        watch=AckWatch(memory_channel()),
        available_now=True,
        control=control,
        rate=rate,
    )
    assert (made.priority, made.rate, rate.rows) == (7, rate, 9)
    assert made.publisher is not None and made.publisher.queue is not None
    assert made.publisher.settings.delay == 2_000
    assert made.publisher.queue.limits == QueueLimits(5)
    assert made.publisher.queue.acks is made.acks
