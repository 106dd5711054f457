"""Log cleanup at both ends of an idle stream: Delta's own, with a short retention and aged log
files.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pair import Pair
from sites import SEATTLE

from spark_wan.delta.tables import history
from spark_wan.state.decisions import parse_decisions
from spark_wan.sync.request import request_copy

SHORT = (
    "delta.logRetentionDuration = 'interval 4 hours', "
    "delta.deletedFileRetentionDuration = 'interval 4 hours', "
    "delta.checkpointInterval = 2"
)
DAY = 86_400


def age(table: str, days: float) -> None:
    """Age all commits by so many days. Delta takes a commit's time from its file."""
    log = Path(table) / "_delta_log"
    for place, file in enumerate(sorted(log.glob("*.json")) + sorted(log.glob("*.checkpoint*"))):
        when = time.time() - days * DAY + place
        os.utime(file, (when, when))


def maintain(spark: Any, name: str, times: int) -> None:
    """Make commits that change no rows."""
    for turn in range(times):
        spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES (turn = '{turn}')").collect()


def oldest_version(spark: Any, table: str) -> int:
    return history(spark, table, -1)[0].version


@pytest.fixture
def pair(spark: Any, tmp_path: Path) -> Callable[..., Pair]:
    def make() -> Pair:
        sites = Pair.of(tmp_path / "wan", {"orders": {}})
        sites.make(spark, "orders", "id bigint, item string", SHORT)
        sites.sql(spark, "orders", "INSERT INTO {t} VALUES (1, 'pear'), (2, 'plum')")
        age(sites.location("orders"), 5)
        sites.replicate(spark)
        spark.sql(
            f"ALTER TABLE {sites.name('orders', SEATTLE)} SET TBLPROPERTIES ({SHORT})"
        ).collect()
        return sites

    return make


def test_f49_a_source_idle_past_its_log_retention_goes_on(
    spark: Any, pair: Callable[..., Pair]
) -> None:
    """Its quiet commits are old, so the sender records them at its next poll; then log cleanup may
    delete them.

    Fails without the age in `Publisher._worth_recording`.
    """
    here = pair()
    published = here.manifests("orders")[-1].last_version
    maintain(spark, here.name("orders"), 5)
    age_newer(here.location("orders"), published)
    here.send(spark)
    recorded = here.manifests("orders")[-1]
    assert (recorded.first_version, recorded.last_version, recorded.frames) == (
        published + 1,
        published + 5,
        (),
    )
    maintain(spark, here.name("orders"), 4)
    assert oldest_version(spark, here.location("orders")) > published + 1
    here.sql(spark, "orders", "UPDATE {t} SET item = 'quince' WHERE id = 1")
    here.replicate(spark)
    here.assert_same(spark, "orders")


@pytest.mark.parametrize("seen", ["recorded", "no restore", "restored"])
def test_f49_a_target_idle_past_its_log_retention_goes_on(
    spark: Any, pair: Callable[..., Pair], seen: str
) -> None:
    """A receiver has recorded in time what it saw, or somebody knows that there was no RESTORE.
    Else the site needs a copy: no commit in the table says so."""
    here = pair()
    place, name = here.location("orders", SEATTLE), here.name("orders", SEATTLE)
    applied = max(commit.version for commit in history(spark, place, -1) if commit.received_from)
    if seen == "restored":
        spark.sql(f"RESTORE TABLE {name} TO VERSION AS OF {applied - 1}").collect()
        spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ({SHORT})").collect()
    maintain(spark, name, 5)
    age(place, 3)
    if seen == "recorded":
        assert here.receive(spark)["orders"].held is None
    maintain(spark, name, 4)
    assert oldest_version(spark, place) > applied + 1
    here.sql(spark, "orders", "UPDATE {t} SET item = 'quince' WHERE id = 1")
    held = here.replicate(spark)["orders"].held
    if seen != "recorded":
        assert "log cleanup has removed versions" in str(held)
    if seen == "restored":
        request_copy(here.topology, "orders", SEATTLE)
        held = here.replicate(spark)["orders"].held
    elif seen == "no restore":
        [decided] = re.findall(r"decide (orders@\d+=no-restore)`", str(held))
        held = here.receive(spark, decisions=parse_decisions([decided]))["orders"].held
    assert held is None
    here.assert_same(spark, "orders")


def age_newer(table: str, version: int) -> None:
    """Age the commits above ``version`` by three days; the others keep their age."""
    kept = {file: file.stat().st_mtime for file in sorted((Path(table) / "_delta_log").glob("*"))}
    age(table, 3)
    for file, when in kept.items():
        if file.name.split(".")[0].isdigit() and int(file.name.split(".")[0]) <= version:
            os.utime(file, (when, when))
