"""A disk that is soon full, and has room again."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True)
class SmallDisk:
    """A file system of its own, in memory."""

    path: Path

    @property
    def _filler(self) -> Path:
        return self.path / "filler"

    def fill(self, left: int = 0) -> None:
        """Take all room but ``left`` bytes, rounded to blocks."""
        stat = os.statvfs(self.path)
        room = max(0, stat.f_bavail * stat.f_frsize - left)
        with self._filler.open("ab") as file:
            os.posix_fallocate(file.fileno(), file.tell(), room) if room else None

    def free(self) -> None:
        """Give it back."""
        self._filler.unlink()

    def files(self) -> set[str]:
        """Return all files but what fills the disk."""
        found = {each for each in self.path.rglob("*") if each.is_file()}
        return {str(each.relative_to(self.path)) for each in found - {self._filler}}


@contextmanager
def small_disk(path: Path, size: str) -> Iterator[SmallDisk]:
    """Mount a disk of a size (of tmpfs: ``64k``, ``8m``) at a path. Skips the test where that is
    not allowed."""
    path.mkdir(parents=True, exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path)]
    if os.geteuid() or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("a small disk needs root, and the right to mount")
    try:
        yield SmallDisk(path)
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)
