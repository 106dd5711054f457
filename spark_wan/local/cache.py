"""The cache folder of this machine."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
MOST_LOG_BYTES = 10 * 2**20


def cache_folder() -> Path:
    """Return the folder for files that can be downloaded or built again."""
    if (_ROOT / "setup.cfg").is_file():
        return _ROOT / ".cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "spark_wan"


def log_path(name: str) -> Path:
    """Return the file ``logs/<name>.log`` of the cache folder, to append to; in the folder for
    temporary files if that cannot be written. A file above :data:`MOST_LOG_BYTES` is renamed first,
    to ``<name>.log.1``."""
    folder = cache_folder() / "logs"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK):
            raise PermissionError(folder)
    except OSError:
        folder = Path(tempfile.gettempdir())
    path = folder / f"{name}.log"
    if path.exists() and path.stat().st_size > MOST_LOG_BYTES:
        path.replace(f"{path}.1")
    return path
