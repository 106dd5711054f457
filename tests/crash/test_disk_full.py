"""f31 with Spark: the disk of the channel, of a site's state or of a target table is full, and has
room again. Without Spark: ``tests/unit/channels/test_full_disk.py``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sites import SEATTLE, Sites
from small_disk import SmallDisk, small_disk

from spark_wan.errors import DISK_FULL, StreamsHeldError


def check_goes_on(spark: Any, sites: Sites, disk: SmallDisk) -> None:
    """With room, everything arrives, though nobody does anything."""
    disk.free()
    sites.replicate(spark)
    sites.assert_equal("orders")


def test_f31_a_sender_waits_for_room_on_the_disk_of_its_channel(spark: Any, tmp_path: Path) -> None:
    """Fails when an epoch counts that is not whole, or half of it stays."""
    sites = Sites.make(tmp_path / "wan")
    with small_disk(sites.folder / "channel", "4m") as disk:
        sites.change(10)
        sites.replicate(spark)
        sites.send(spark)  # trims: what that frees would take a small epoch
        acked, numbers, files = sites.acked("orders"), sites.numbers("orders"), disk.files()
        sites.change(70)
        disk.fill()
        for _ in range(2):
            with pytest.raises(StreamsHeldError) as held:
                sites.send(spark)
            assert DISK_FULL in str(held.value)
        assert (sites.acked("orders"), sites.numbers("orders")) == (acked, numbers)
        assert disk.files() == files
        check_goes_on(spark, sites, disk)


@pytest.mark.parametrize(
    ("place", "size", "said"),
    [("seattle/orders", "2m", "the table at site seattle"), ("seattle/_wan", "4m", "the ledger")],
    ids=["target", "state"],
)
def test_f31_a_receiver_waits_for_room(
    spark: Any, tmp_path: Path, place: str, size: str, said: str
) -> None:
    """On the disk of the table, or of the ledger. The channel keeps what is not applied. Fails when
    an apply counts that is not whole."""
    sites = Sites.make(tmp_path / "wan")
    with small_disk(sites.folder / place, size) as disk:
        sites.change(10)
        sites.replicate(spark)
        acked = sites.acked("orders")
        sites.change(70)
        sites.send(spark)
        named = sites.named_frames("orders")
        disk.fill()
        for _ in range(2):
            held = sites.apply(spark)["orders"].held
            assert held is not None and said in held and DISK_FULL in held
        ack = sites.ack("orders")
        assert ack is not None and ack.applied == acked
        assert ack.site == SEATTLE and DISK_FULL in str(ack.cause)
        sites.send(spark)  # its ack manager trims nothing of it
        assert named <= sites.frames("orders")
        check_goes_on(spark, sites, disk)
