"""Whether the process that started this one has ended."""

from __future__ import annotations

import os

_parent = os.getppid()


def _remember_parent() -> None:
    global _parent
    _parent = os.getppid()


os.register_at_fork(after_in_child=_remember_parent)


def is_orphan() -> bool:
    """Whether the process that started this one has ended, so that the kernel gave it another parent: process 1 or a subreaper.

    That the parent is process 1 means nothing by itself: in a container that may be the JVM."""
    return os.getppid() != _parent
