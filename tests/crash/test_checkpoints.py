"""Checkpoints deleted or put back from a backup: work is done again, no row is."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from sites import Sites

TABLES = ("orders", "readings")
WHOSE = pytest.mark.parametrize(
    "whose", [("sender",), ("receiver",), ("sender", "receiver")], ids="+".join
)


def checkpoints(sites: Sites, whose: tuple[str, ...]) -> list[Path]:
    return [
        {"sender": sites.sender_checkpoint, "receiver": sites.receiver_checkpoint}[name]
        for name in whose
    ]


@WHOSE
def test_f06_checkpoint_deleted(
    spark: Any, sites: Any, _replicated: Sites, tmp_path: Path, whose: tuple[str, ...]
) -> None:
    """Keyed and keyless: the sender goes on where the log ends, the receiver where its ledger ends.

    Taken out once: that the log decides at the sender (its checkpoint did) and the ledger at the receiver (an empty progress did).
    """
    wan = _with_checkpoints(spark, _replicated, tmp_path)
    before = [wan.version(table) for table in TABLES]
    for folder in checkpoints(wan, whose):
        shutil.rmtree(folder)
    wan.change(50)
    wan.send(spark)
    assert [wan.numbers(table)[-1] for table in TABLES] == [3, 3]
    wan.receive(spark)
    wan.assert_equal()
    assert [wan.version(table) for table in TABLES] == [version + 1 for version in before]
    assert all(folder.exists() for folder in checkpoints(wan, whose))


@WHOSE
def test_f07_checkpoint_restored_from_a_backup(
    spark: Any, _replicated: Sites, tmp_path: Path, whose: tuple[str, ...]
) -> None:
    """Keyed and keyless: the checkpoints know of two epochs, the source, the log and the tables are further.

    Taken out once: that the log decides at the sender (its checkpoint did) and the ledger at the receiver (an empty progress did).
    """
    wan = _with_checkpoints(spark, _replicated, tmp_path)
    for folder in checkpoints(wan, whose):
        shutil.copytree(folder, tmp_path / "backup" / folder.name)
    wan.change(50)
    wan.send(spark)
    wan.receive(spark)
    before = [wan.version(table) for table in TABLES]
    wan.change(70)
    for folder in checkpoints(wan, whose):
        shutil.rmtree(folder)
        shutil.copytree(tmp_path / "backup" / folder.name, folder)
    wan.send(spark)
    assert [wan.numbers(table)[-1] for table in TABLES] == [4, 4]
    wan.receive(spark)
    wan.assert_equal()
    assert [wan.version(table) for table in TABLES] == [version + 1 for version in before]


def _with_checkpoints(spark: Any, replicated: Sites, tmp_path: Path) -> Sites:
    """Replicated sites whose receiver has a checkpoint for the channel at its place."""
    wan = replicated.copy(tmp_path / "wan")
    wan.receive(spark)
    assert all(any(folder.iterdir()) for folder in checkpoints(wan, ("sender", "receiver")))
    return wan
