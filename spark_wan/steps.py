"""Numbered steps: where a process may die, and a test makes sure that it does.

Every routine whose order makes it correct is a generator that yields the name of each step once the
step is done (``publish.3 frames-written`` …). Its driver runs it with :func:`run`; a simulation advances it by
hand, interleaves it with others and drops it between any two steps.

The hook is inert unless the environment variable ``SPARK_WAN_CRASH_AT`` names a step as
``name`` or ``name:n`` (at the n-th passing, from 1): then the process kills itself with SIGKILL there.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")
Steps = Generator[str, None, T]

CRASH_VARIABLE = "SPARK_WAN_CRASH_AT"
_passed: dict[str, int] = {}


def reached(step: str) -> None:
    """Say that ``step`` (its first word counts) is done. Kills the process when a crash test asks for it here."""
    wanted = os.environ.get(CRASH_VARIABLE)
    if not wanted:
        return
    name, _, nth = wanted.partition(":")
    here = step.split()[0]
    if here != name:
        return
    _passed[here] = _passed.get(here, 0) + 1
    if _passed[here] == int(nth or 1):
        os.kill(os.getpid(), signal.SIGKILL)


def run(steps: Steps[T]) -> T:
    """Run a routine of numbered steps to its end and return its result."""
    while True:
        try:
            reached(next(steps))
        except StopIteration as end:
            result: T = end.value
            return result
