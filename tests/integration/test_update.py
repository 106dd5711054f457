"""An update from version 0.1.0: sites that it has made go on with this version.

``data/sites_0_1_0.tar.gz`` has two sites, their channels, checkpoints and ledger, as 0.1.0 left
them. Two epochs of each stream are applied; a third waits. See ``data/make_0_1_0.py``.
"""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any

import pytest
from sites import NEWARK, Sites, at

import spark_wan
from spark_wan.ledger import tables as ledger_tables

ARCHIVE = Path(__file__).with_name("data") / "sites_0_1_0.tar.gz"
TABLES = ("orders", "readings", "clicks")


@pytest.fixture
def sites_0_1_0(tmp_path: Path) -> Sites:
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path / "wan", filter="data")
    return Sites.make(tmp_path / "wan")


def receive(spark: Any, sites: Sites) -> dict[str, Any]:
    status = sites.receive(spark, senders=["east", "events"])
    assert not any(each.held for each in status.values()), status
    return status


def assert_equal(sites: Sites) -> None:
    """But for the rows without a key, which are dead letters at the source."""
    sites.assert_equal("readings", "clicks")
    here = sites.rows("orders", NEWARK)
    keyless = {row: count for row, count in here.items() if row[1] is None}
    assert len(sites.dead_letters("orders", NEWARK)) == sum(keyless.values())
    assert sites.rows("orders") == here - type(here)(keyless)


@pytest.mark.channels("directory")  # the archive has the channels as directories
def test_sites_of_version_0_1_0_go_on(
    spark: Any, sites_0_1_0: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What waits is applied by a later version, which adds columns to the ledger. Then this version
    goes on with new changes; events that 0.1.0 has applied are known.

    Fails when a record of 0.1.0 is not read: manifests, frames, acks, marks, checkpoints, ledger.
    """
    spark_wan.register(spark)
    sites = sites_0_1_0
    letters = sites.dead_letters("clicks")
    assert [letter["event_id"] for letter in letters] == ["c003"]
    with monkeypatch.context() as later:
        grown = {
            name: f"{columns}, later string" for name, columns in ledger_tables.SCHEMAS.items()
        }
        later.setattr(ledger_tables, "SCHEMAS", grown)
        status = receive(spark, sites)
    assert {table: status[table].epochs for table in TABLES} == dict.fromkeys(TABLES, 1)
    assert (status["clicks"].events, status["clicks"].duplicates) == (15, 5)
    assert_equal(sites)

    sites.change(70)
    clicks = [{"event": f"c{n:03}", "at": at(n), "page": f"/{n}"} for n in range(35)]
    sites.append("clicks", clicks[30:])
    sites.send(spark)
    rows = spark.createDataFrame(clicks, "event string, at timestamp, page string")
    sites.write_events("clicks", rows)
    status = receive(spark, sites)
    assert (status["clicks"].duplicates, status["clicks"].dead_letters) == (30, 0)
    assert_equal(sites)
    # 0.1.0 did not record when.
    kept = [{**letter, "at": None, "later": None} for letter in letters]
    assert sites.dead_letters("clicks") == kept
