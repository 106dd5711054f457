"""The sender's checkpoint deleted or restored from a backup: work is repeated, rows are not.

A receiver has no checkpoint: its ledger says how far it is.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from sites import Sites

TABLES = ("orders", "readings")


def test_f06_a_deleted_checkpoint_loses_and_doubles_nothing(spark: Any, replicated: Sites) -> None:
    """Keyed and keyless: the sender continues where the log ends.

    Fails when the sender's checkpoint decides instead of the log.
    """
    before = [replicated.version(table) for table in TABLES]
    shutil.rmtree(replicated.sender_checkpoint)
    replicated.change(50)
    replicated.send(spark)
    assert [replicated.numbers(table)[-1] for table in TABLES] == [3, 3]
    replicated.apply(spark)
    replicated.assert_equal()
    assert [replicated.version(table) for table in TABLES] == [version + 1 for version in before]
    assert replicated.sender_checkpoint.exists()


def test_f07_a_checkpoint_restored_from_a_backup_loses_and_doubles_nothing(
    spark: Any, replicated: Sites, tmp_path: Path
) -> None:
    """Keyed and keyless: the checkpoint knows two epochs; source, log and tables are further.

    Fails when the sender's checkpoint decides instead of the log.
    """
    shutil.copytree(replicated.sender_checkpoint, tmp_path / "backup")
    replicated.change(50)
    replicated.send(spark)
    replicated.apply(spark)
    before = [replicated.version(table) for table in TABLES]
    replicated.change(70)
    shutil.rmtree(replicated.sender_checkpoint)
    shutil.copytree(tmp_path / "backup", replicated.sender_checkpoint)
    replicated.send(spark)
    assert [replicated.numbers(table)[-1] for table in TABLES] == [4, 4]
    replicated.apply(spark)
    replicated.assert_equal()
    assert [replicated.version(table) for table in TABLES] == [version + 1 for version in before]
