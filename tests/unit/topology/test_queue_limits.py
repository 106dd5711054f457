"""Limits of queues in a topology: which count, and which are refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from topologies import REMOVED, changed, refusal, topology

from spark_wan.datasource.options import SinkOptions
from spark_wan.errors import OptionError
from spark_wan.topology.model import QueueLimits

SENDER, TABLE = "senders.east", "tables.flights"
SINK = (("tables.readings.source", "sink"), ("tables.readings.at.newark", REMOVED))


def limits(*changes: tuple[str, object]) -> QueueLimits:
    """The limits of flights in east."""
    loaded = topology(*changes)
    return QueueLimits.of(loaded.sender("east"), loaded.table("flights"))


def test_a_queue_has_no_limit_unless_one_is_given() -> None:
    assert limits() == QueueLimits(None, None, "block")
    assert not limits().exist


def test_a_sender_limits_the_queues_of_all_its_tables() -> None:
    changes = (f"{SENDER}.max_queue_bytes", "10GiB"), (f"{SENDER}.on_queue_limit", "hold")
    assert limits(*changes) == QueueLimits(10 * 2**30, None, "hold")
    assert limits((f"{SENDER}.max_queue_age", "12h")).exist


def test_a_table_may_have_limits_of_its_own() -> None:
    """Each setting for itself. Fails when those of the sender win, or go with one of the table."""
    of_sender = (
        (f"{SENDER}.max_queue_bytes", "10GiB"),
        (f"{SENDER}.max_queue_age", "12h"),
        (f"{SENDER}.on_queue_limit", "hold"),
    )
    own = (f"{TABLE}.max_queue_bytes", "1GiB"), (f"{TABLE}.on_queue_limit", "block")
    assert limits(*of_sender, *own) == QueueLimits(2**30, 43_200.0, "block")


@pytest.mark.parametrize("where", [SENDER, TABLE])
def test_a_policy_without_a_limit_is_refused(where: str) -> None:
    """It looks as if something was limited. Fails when it means nothing, silently."""
    message = refusal((f"{where}.on_queue_limit", "drop_reader"))
    assert f"{where}.on_queue_limit: is drop_reader, but nothing limits" in message
    assert "set max_queue_bytes or max_queue_age, or take it out" in message
    topology((f"{SENDER}.on_queue_limit", "hold"), (f"{TABLE}.max_queue_age", "1h"))


@pytest.mark.parametrize(
    ("setting", "value", "problem"),
    [
        ("max_queue_bytes", 0, "must be 1 or more"),
        ("max_queue_bytes", "ten", "must be a size such as"),
        ("max_queue_age", "-1s", "must be seconds or a duration"),
        ("max_queue_age", 0, "must be above 0"),
        ("on_queue_limit", "drop_readers", "did you mean 'drop_reader'?"),
    ],
)
def test_settings_that_are_none_are_refused(setting: str, value: object, problem: str) -> None:
    for where in (SENDER, TABLE):
        message = refusal((f"{where}.{setting}", value))
        assert f"{where}.{setting}: " in message and problem in message


def test_no_site_is_dropped_from_a_user_stream() -> None:
    """No table has what it would lack. Fails when a site loses events for good."""
    drop = (f"{SENDER}.on_queue_limit", "drop_reader"), (f"{SENDER}.max_queue_bytes", "1GiB")
    message = refusal(*SINK, *drop)
    assert "tables.readings.on_queue_limit: would be drop_reader in sender 'east'" in message
    assert "set it to block or hold for the table" in message
    topology(*SINK, *drop, ("tables.readings.on_queue_limit", "block"))
    with pytest.raises(OptionError, match="option onQueueLimit is drop_reader"):
        SinkOptions.parse({**BY_OPTIONS, "onQueueLimit": "drop_reader", "maxQueueAge": "1h"})


BY_OPTIONS = {
    "channel": "/c",
    "site": "newark",
    "remotes": "seattle",
    "table": "t",
    "key": "id",
    "eventId": "e",
}


def test_a_sink_has_the_same_limits_as_options() -> None:
    options = SinkOptions.parse({**BY_OPTIONS, "maxQueueBytes": "1GiB", "onQueueLimit": "hold"})
    assert options.queue_limits == QueueLimits(2**30, None, "hold")
    with pytest.raises(OptionError, match="option onQueueLimit is hold, but nothing limits the"):
        SinkOptions.parse({**BY_OPTIONS, "onQueueLimit": "hold"})


def test_a_sink_with_a_topology_has_the_limits_of_its_table(tmp_path: Path) -> None:
    """Fails when it has those of its sender, or the default policy."""
    content = changed(
        *SINK,
        (f"{SENDER}.max_queue_bytes", "10GiB"),
        (f"{SENDER}.on_queue_limit", "hold"),
        ("tables.readings.max_queue_bytes", "1GiB"),
    )
    (tmp_path / "wan.yaml").write_text(yaml.safe_dump(content))
    config = {"config": str(tmp_path / "wan.yaml"), "sender": "east", "table": "readings"}
    options = SinkOptions.parse({**config, "eventId": "e"})
    assert options.queue_limits == QueueLimits(2**30, None, "hold")
    options = SinkOptions.parse({**config, "eventId": "e", "maxQueueBytes": "5GB"})
    assert options.queue_limits == QueueLimits(5 * 10**9, None, "hold")
