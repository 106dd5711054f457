"""Checkpoints deleted or restored from a backup: work is repeated, rows are not."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from sites import Sites

TABLES = ("orders", "readings")
OWNERS = pytest.mark.parametrize(
    "owners", [("sender",), ("receiver",), ("sender", "receiver")], ids="+".join
)


def checkpoints(sites: Sites, owners: tuple[str, ...]) -> list[Path]:
    folders = {"sender": sites.sender_checkpoint, "receiver": sites.receiver_checkpoint}
    return [folders[owner] for owner in owners]


@OWNERS
def test_f06_a_deleted_checkpoint_loses_and_doubles_nothing(
    spark: Any, _replicated: Sites, tmp_path: Path, owners: tuple[str, ...]
) -> None:
    """Keyed and keyless: the sender continues where the log ends, the receiver where its ledger
    ends.

    Fails when the sender's checkpoint decides instead of the log, or the receiver starts from an
    empty progress.
    """
    wan = with_checkpoints(spark, _replicated, tmp_path)
    before = [wan.version(table) for table in TABLES]
    for folder in checkpoints(wan, owners):
        shutil.rmtree(folder)
    wan.change(50)
    wan.send(spark)
    assert [wan.numbers(table)[-1] for table in TABLES] == [3, 3]
    wan.receive(spark)
    wan.assert_equal()
    assert [wan.version(table) for table in TABLES] == [version + 1 for version in before]
    assert all(folder.exists() for folder in checkpoints(wan, owners))


@OWNERS
def test_f07_a_checkpoint_restored_from_a_backup_loses_and_doubles_nothing(
    spark: Any, _replicated: Sites, tmp_path: Path, owners: tuple[str, ...]
) -> None:
    """Keyed and keyless: the checkpoints know two epochs; source, log and tables are further.

    Fails when the sender's checkpoint decides instead of the log, or the receiver starts from an
    empty progress.
    """
    wan = with_checkpoints(spark, _replicated, tmp_path)
    for folder in checkpoints(wan, owners):
        shutil.copytree(folder, tmp_path / "backup" / folder.name)
    wan.change(50)
    wan.send(spark)
    wan.receive(spark)
    before = [wan.version(table) for table in TABLES]
    wan.change(70)
    for folder in checkpoints(wan, owners):
        shutil.rmtree(folder)
        shutil.copytree(tmp_path / "backup" / folder.name, folder)
    wan.send(spark)
    assert [wan.numbers(table)[-1] for table in TABLES] == [4, 4]
    wan.receive(spark)
    wan.assert_equal()
    assert [wan.version(table) for table in TABLES] == [version + 1 for version in before]


def with_checkpoints(spark: Any, replicated: Sites, tmp_path: Path) -> Sites:
    """Replicated sites owners receiver has a checkpoint for the channel at its path."""
    wan = replicated.copy(tmp_path / "wan")
    wan.receive(spark)
    assert all(any(folder.iterdir()) for folder in checkpoints(wan, ("sender", "receiver")))
    return wan
