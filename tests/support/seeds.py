"""The seed of random tests: another one for each commit, so that many commits try much."""

from __future__ import annotations

import os
import subprocess
from functools import cache
from pathlib import Path

VARIABLE = "SPARK_WAN_SEED"
GIVEN = os.environ.get(VARIABLE)
"""The seed that somebody chose, or None."""


@cache
def seed() -> int:
    """Return the given seed, or else that of the commit; 1 outside a repository."""
    if GIVEN:
        return int(GIVEN)
    head = subprocess.run(
        ["git", "rev-parse", "HEAD"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    return int(head.stdout[:8], 16) if head.returncode == 0 else 1
