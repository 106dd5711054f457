"""The files in ``bench/results``: figures by name, one file for each bench."""

from __future__ import annotations

import json
import os
import platform
from pathlib import Path
from typing import Any


def record(results: Path, measured: dict[str, Any]) -> dict[str, Any]:
    """Writes what was measured over the figures of the same names; returns all of the file."""
    found: dict[str, Any] = json.loads(results.read_text()) if results.is_file() else {}
    found |= measured | {"python": platform.python_version(), "cpus": os.cpu_count()}
    results.parent.mkdir(parents=True, exist_ok=True)
    results.write_text(json.dumps(found, indent=2) + "\n")
    return found
