"""Faults of one file. Each function takes the file and its backup."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

Fault = Callable[[Path, Path], None]


def deleted(path: Path, backup: Path) -> None:
    path.unlink()


def cut_in_half(path: Path, backup: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def emptied(path: Path, backup: Path) -> None:
    path.write_bytes(b"")


def altered(path: Path, backup: Path) -> None:
    """Flip one bit in the middle."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x20
    path.write_bytes(bytes(data))


def restored(path: Path, backup: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(backup, path)
