"""Where this machine keeps what can be fetched or built again."""

from __future__ import annotations

import os
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]


def cache_folder() -> Path:
    """The folder for what can be fetched or built again."""
    if (_ROOT / "setup.cfg").is_file():
        return _ROOT / ".cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "spark_wan"
