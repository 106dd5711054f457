"""``python -m bench.counted FILE send …``: runs ``spark-wan send …`` and counts its requests.

While it runs, FILE has the number of requests to object stores (directories count too) and of looks
at the files of tables' logs so far, as JSON, renewed every half second. Requests are counted by
kind, and by kind and the first part of the path, as ``put heartbeats``.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import obstore

from spark_wan.cli.app import main
from spark_wan.delta.log_files import LogFiles

REQUESTS = ("delete", "get", "head", "list", "put")
INTERVAL = 0.5


def folder(_: object, path: Any = None, *more: object, prefix: str | None = None, **__: Any) -> str:
    """Return the first part of the path of a request to a store, or of the first of its paths."""
    first = path if isinstance(path, str) else next(iter(path or ()), prefix or "")
    return str(first).partition("/")[0]


def count(into: Path) -> None:
    """Count calls of obstore and of :meth:`LogFiles.look`, and keep writing the numbers."""
    counts: Counter[str] = Counter()
    lock = threading.Lock()

    def counted(name: str, call: Any) -> Any:
        def run(*args: Any, **options: Any) -> Any:
            with lock:
                counts[name] += 1
                if name in REQUESTS:
                    counts[f"{name} {folder(*args, **options)}"] += 1
            return call(*args, **options)

        return run

    for name in REQUESTS:
        setattr(obstore, name, counted(name, getattr(obstore, name)))
    LogFiles.look = counted("looks", LogFiles.look)  # type: ignore[method-assign]

    def keep_writing() -> None:
        while True:
            with lock:
                content = json.dumps({"pid": os.getpid(), **counts})
            draft = into.with_suffix(".new")
            draft.write_text(content)
            draft.rename(into)
            pause.wait(INTERVAL)

    pause = threading.Event()
    threading.Thread(target=keep_writing, name="counts", daemon=True).start()


if __name__ == "__main__":
    count(Path(sys.argv.pop(1)))
    main()
