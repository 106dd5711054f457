"""How a table's log looks without Spark."""

from __future__ import annotations

import os
import shutil
import uuid
from pathlib import Path
from typing import Any

import obstore
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from obstore.exceptions import PermissionDeniedError

from spark_wan.channels.object_store import open_store
from spark_wan.delta import log_files as module
from spark_wan.delta.log_files import BLIND_INTERVAL, IDENTITY_INTERVAL, LogFiles


def make(place: Path, commits: int = 2) -> None:
    for number in range(commits):
        write_deltalake(place, pa.table({"id": [number]}), mode="append")


@pytest.mark.parametrize("url", [False, True])
@pytest.mark.parametrize("what", ["made again", "copied", "copied over", "put back"])
def test_a_table_that_may_have_been_replaced_looks_different(
    tmp_path: Path, what: str, url: bool
) -> None:
    """Fails when only the number of versions is compared."""
    table, backup = tmp_path / "orders", tmp_path / "backup"
    make(table)
    log = LogFiles(f"file://{table}" if url else str(table))
    before = log.look(1)
    assert before is not None and before == log.look(1)
    shutil.copytree(table, backup)
    if what == "copied over":  # the same file, its size and its time of change
        shutil.copytree(backup, table, dirs_exist_ok=True)
    else:
        shutil.rmtree(table)
    if what == "made again":
        make(table)
    elif what == "copied":
        shutil.copytree(backup, table)
    elif what == "put back":
        os.rename(backup, table)
    assert log.look(1) not in (before, None)


def test_a_newer_commit_is_seen_however_often_it_was_seen_before(tmp_path: Path) -> None:
    """Fails when two looks are equal that both see a newer commit: it would never be read."""
    make(tmp_path, 3)
    log = LogFiles(str(tmp_path))
    assert log.look(1) != log.look(1)
    assert log.look(2) == log.look(2) is not None


@pytest.mark.parametrize("location", ["main.sales.orders", "/nowhere/orders", "nope://lake/orders"])
def test_a_log_that_cannot_be_seen_is_left_to_spark(location: str) -> None:
    assert LogFiles(location).look(0) is None


def test_a_version_that_is_gone_is_left_to_spark(tmp_path: Path) -> None:
    """Log cleanup deleted it, or the table was restored to an older state."""
    make(tmp_path)
    (tmp_path / "_delta_log" / f"{1:020d}.json").unlink()
    assert LogFiles(str(tmp_path)).look(1) is None


class Lake:
    """A table in an object store, whose requests are counted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.url = f"memory://{uuid.uuid4().hex}"
        self.store = open_store(self.url)
        self.now, self.heads = 1_000.0, list[str]()
        self.error: Exception | None = None
        head = obstore.head

        def counted(store: Any, path: str) -> Any:
            self.heads.append(path)
            if self.error is not None:
                raise self.error
            return head(store, path)

        monkeypatch.setattr(module.obstore, "head", counted)
        monkeypatch.setattr(module.time, "monotonic", lambda: self.now)

    def commit(self, version: int, content: bytes = b"{}") -> None:
        obstore.put(self.store, f"_delta_log/{version:020d}.json", content)


@pytest.fixture
def lake(monkeypatch: pytest.MonkeyPatch) -> Lake:
    return Lake(monkeypatch)


def test_a_table_in_an_object_store_costs_one_request_per_look(lake: Lake) -> None:
    """Fails when a look lists the log, whose length grows."""
    lake.commit(7)
    log = LogFiles(lake.url)
    before = log.look(7)
    lake.heads.clear()
    assert log.look(7) == before is not None
    assert lake.heads == [f"_delta_log/{8:020d}.json"]
    lake.commit(8)
    assert log.look(7) != before


def test_a_commit_replaced_in_an_object_store_is_noticed_within_a_minute(lake: Lake) -> None:
    lake.commit(7)
    log = LogFiles(lake.url)
    before = log.look(7)
    lake.commit(7, b"another")
    lake.now += IDENTITY_INTERVAL
    assert log.look(7) not in (before, None)


def test_a_replaced_commit_is_noticed_at_once_by_a_look_afresh(lake: Lake) -> None:
    """As before a write: it would go into another table than the one that was read."""
    lake.commit(7)
    log = LogFiles(lake.url)
    before = log.look(7)
    assert log.look(7, afresh=True) == before
    lake.commit(7, b"another")
    assert log.look(7, afresh=True) not in (before, None)


def test_a_store_that_refuses_is_asked_again_only_after_an_hour(lake: Lake) -> None:
    """Fails when each look sends a request that is refused."""
    lake.commit(7)
    log = LogFiles(lake.url)
    lake.error = PermissionDeniedError("no credentials")
    assert [log.look(7), log.look(7)] == [None, None]
    assert len(lake.heads) == 1
    lake.error = None
    lake.now += BLIND_INTERVAL
    assert log.look(7) is not None
