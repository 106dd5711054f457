"""Whether the process that started this one has ended."""

from __future__ import annotations

import os

_parent = os.getppid()


def _record_parent() -> None:
    global _parent
    _parent = os.getppid()


os.register_at_fork(after_in_child=_record_parent)


def is_orphan() -> bool:
    """Whether the process that started this one has ended: the kernel has given it another parent,
    process 1 or a subreaper. A parent that is process 1 proves nothing: in a container that may be
    the JVM."""
    return os.getppid() != _parent
