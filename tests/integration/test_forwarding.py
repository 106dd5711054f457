"""Sites that send on what they receive."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from many_sites import ManySites

CHAIN = {"newark": [["chicago"]], "chicago": [["denver", "seattle"]], "denver": [], "seattle": []}


def test_a_site_forwards_what_it_receives(spark: Any, tmp_path: Path) -> None:
    sites = ManySites.make(
        tmp_path, CHAIN, {"orders": {"keys": ["id"]}, "readings": {"start": {"version": 0}}}
    )
    for start in (10, 30):
        sites.tables.change(start)
        sites.send(spark, "newark")
        status = sites.receive(spark, "chicago")
        assert {each.held for each in status.values()} == {None}
        for site in ("denver", "seattle"):
            status = sites.receive(spark, site)
            assert {each.held for each in status.values()} == {None}, status
            assert set(status) == {
                "chicago.chicago0~newark.newark0.orders",
                "chicago.chicago0~newark.newark0.readings",
            }
    for table in ("orders", "readings"):
        sites.assert_equal(table)
