"""The tests that a run of pytest would have."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def collected(*arguments: str) -> set[str]:
    """Return their IDs, given files and options of pytest."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    ended = subprocess.run([*command, *arguments], cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return {line for line in ended.stdout.splitlines() if "::" in line}
