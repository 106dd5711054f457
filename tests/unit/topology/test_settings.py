"""Settings: declared once, and set in the topology, on the command line or in Python."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import pytest
from topologies import topology

from spark_wan import Receiver, Sender
from spark_wan.datasource.options import SinkOptions, SourceOptions
from spark_wan.topology.model import Site, Table
from spark_wan.topology.settings import setting, settings_of, shared, store_options
from spark_wan.units import parse_count, parse_seconds

NO_SPARK: Any = None
SET = (
    ("sites.newark.send_parallel", 7),
    ("sites.seattle.receive_interval", "250ms"),
    ("sites.seattle.receive_parallel", 4),
    ("sites.seattle.receive_max_bytes", "8MiB"),
)


def receiver_limits(receiver: Receiver) -> tuple[float, int, int]:
    return receiver.interval, receiver.parallel, receiver.max_bytes


def test_senders_and_receivers_take_the_settings_of_their_site() -> None:
    loaded = topology(*SET)
    assert Sender(NO_SPARK, loaded, "newark").parallel == 7
    assert receiver_limits(Receiver(NO_SPARK, loaded, "seattle")) == (0.25, 4, 8 << 20)


def test_settings_of_a_site_have_defaults() -> None:
    assert Sender(NO_SPARK, topology(), "newark").parallel == 2
    assert receiver_limits(Receiver(NO_SPARK, topology(), "seattle")) == (0.5, 2, 256 << 20)


def test_arguments_in_python_win_over_the_settings_of_the_site() -> None:
    loaded = topology(*SET)
    assert Sender(NO_SPARK, loaded, "newark", parallel=1).parallel == 1
    receiver = Receiver(NO_SPARK, loaded, "seattle", interval=0.0, parallel=1, max_bytes=5)
    assert receiver_limits(receiver) == (0.0, 1, 5)


@dataclass(frozen=True)
class Limits:
    name: str
    rows: int = setting(5, parse_count, "Number of rows.")
    wait: float | None = setting(None, parse_seconds, "Seconds.")


@dataclass(frozen=True)
class Others:
    rows: int = shared(Limits, "rows")
    storage: dict[str, str] = store_options()


def test_settings_are_the_fields_with_a_parser() -> None:
    assert list(settings_of(Limits)) == ["rows", "wait"]
    assert settings_of(Others) == {"rows": settings_of(Limits)["rows"]}
    assert (Limits("a").rows, Limits("a").wait) == (5, None)


def test_text_of_digits_is_a_number_where_the_setting_is_one() -> None:
    """Fails when all text of digits becomes a number: a table may be called 2024."""
    rows, wait = settings_of(Limits).values()
    assert rows.parse_text(" 12 ") == 12
    assert wait.parse_text("2") == 2.0
    with pytest.raises(ValueError, match="must be 1 or more, not -1"):
        rows.parse_text("-1")
    with pytest.raises(ValueError, match="must be a whole number, not 'ten'"):
        rows.parse_text("ten")
    assert settings_of(SinkOptions)["table"].parse_text("2024") == "2024"


@pytest.mark.parametrize("kind", [Site, Table, SinkOptions, SourceOptions])
def test_every_setting_has_a_help_text(kind: type) -> None:
    for declared in settings_of(kind).values():
        assert declared.help.endswith("."), declared.name


def test_options_of_a_store_are_separate_and_not_shown() -> None:
    one, other = Others(), Others()
    one.storage["secret"] = "hunter2"
    assert other.storage == {}
    assert "hunter2" not in repr(one)
    assert [field.name for field in fields(Others) if "store" in field.metadata] == ["storage"]
