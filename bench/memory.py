"""Peak memory of a process tree."""

from __future__ import annotations

import os
import threading
from pathlib import Path


class PeakMemory:
    """Peak resident memory of a process (default: this one) and its descendants in bytes, sampled
    every 50 ms.

    Linux only; 0 on other systems.
    """

    def __init__(self, process: int | None = None) -> None:
        self.process = os.getpid() if process is None else process
        self.peak = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _sample(self) -> None:
        page = os.sysconf("SC_PAGE_SIZE")
        while not self._stop.wait(0.05):
            parents: dict[int, int] = {}
            pages: dict[int, int] = {}
            for stat in Path("/proc").glob("[0-9]*/stat"):
                try:
                    fields = stat.read_text().rpartition(")")[2].split()
                except OSError:
                    continue
                pid = int(stat.parent.name)
                parents[pid], pages[pid] = int(fields[1]), int(fields[21])
            family = {self.process}
            while more := {pid for pid, parent in parents.items() if parent in family} - family:
                family |= more
            # A process that a JVM has just forked still shows the JVM's memory as its own.
            counted = (pid for pid in family if not (_is_java(pid) and _is_java(parents[pid])))
            self.peak = max(self.peak, sum(pages[pid] for pid in counted if pid in pages) * page)


def _is_java(pid: int) -> bool:
    """Whether a process runs Java. Its name does not tell: a fork has that of the thread."""
    try:
        return os.readlink(f"/proc/{pid}/exe").endswith("/java")
    except OSError:
        return False
