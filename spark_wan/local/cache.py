"""The cache folder of this machine."""

from __future__ import annotations

import os
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]


def cache_folder() -> Path:
    """Return the folder for files that can be downloaded or built again."""
    if (_ROOT / "setup.cfg").is_file():
        return _ROOT / ".cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "spark_wan"
