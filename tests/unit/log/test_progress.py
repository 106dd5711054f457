"""How far sites are with a log."""

from __future__ import annotations

import pytest
from fakes import STREAM, manifest, memory_channel, publish

from spark_wan.log.progress import acked_through, lowest
from spark_wan.log.stream_log import StreamLog
from spark_wan.wire.ack import Ack

NEWEST = manifest(5, addressees=("denver", "seattle"))


def acked(applied: int, log_id: str = NEWEST.log_id, **more: bool) -> int:
    found = acked_through(NEWEST, {"denver": Ack("denver", STREAM, log_id, applied)}, **more)
    assert found["seattle"] == 0
    return found["denver"]


def test_an_ack_counts_for_its_own_log_and_not_beyond_its_end() -> None:
    """One beyond the end is older than the log, unless the log may have grown since it was read."""
    assert [acked(5), acked(6), acked(5, "b" * 32)] == [5, 0, 0]
    assert [acked(6, log_read_first=True), acked(6, "b" * 32, log_read_first=True)] == [6, 0]


def test_of_no_sites_none_has_acked() -> None:
    """None is served any more. Fails when the addressees of the manifest count in their place: the
    log would not be trimmed."""
    assert acked_through(NEWEST, {}, ()) == {}


@pytest.mark.parametrize("first", range(1, 10))
def test_the_lowest_epoch_with_a_property_is_found(first: int) -> None:
    """Also where the epochs below are trimmed."""
    log = StreamLog(memory_channel(), STREAM)
    publish(log, *range(1, 9))
    log.trim(3, [])
    found = lowest(log, range(1, 9), lambda each: each.epoch >= first)
    assert (found.epoch if found is not None else None) == (max(first, 4) if first < 9 else None)
    assert lowest(log, [], lambda each: True) is None
