"""Numbered steps: where a process may die or freeze, and where tests make it do so.

Every routine that depends on its order is a generator that yields the name of each step once the
step is done (``publish.4 frames-written`` …). Its driver runs it with :func:`run`; a simulation
advances it by hand, interleaves it with others and drops it between any two steps.

The hook is inert without two environment variables. ``SPARK_WAN_CRASH_AT`` names a step as ``name``
or ``name:n`` (when it is reached for the n-th time, from 1): there the process kills itself with
SIGKILL. ``SPARK_WAN_FREEZE_AT`` names steps, separated by blanks: the process stops itself with
SIGSTOP when it first reaches each of them, until it gets SIGCONT.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Generator
from typing import TypeVar

T = TypeVar("T")
Steps = Generator[str, None, T]

CRASH_VARIABLE = "SPARK_WAN_CRASH_AT"
FREEZE_VARIABLE = "SPARK_WAN_FREEZE_AT"
_passed: dict[str, int] = {}
_lock = threading.Lock()


def reached(step: str) -> None:
    """Mark ``step`` (its first word) as done. Kills or stops the process if a test asks for it."""
    crash, freeze = os.environ.get(CRASH_VARIABLE), os.environ.get(FREEZE_VARIABLE)
    if not crash and not freeze:
        return
    here = step.split()[0]
    with _lock:  # several threads may reach a step at the same moment
        passed = _passed[here] = _passed.get(here, 0) + 1
    name, _, nth = (crash or "").partition(":")
    if here == name and passed == int(nth or 1):
        os.kill(os.getpid(), signal.SIGKILL)
    if here in (freeze or "").split() and passed == 1:
        # To this thread, which holds the interpreter lock: signals to the process that arrive
        # before it has stopped would count as one.
        signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)


def run(steps: Steps[T], check: Callable[[], None] = lambda: None) -> T:
    """Run a routine of numbered steps to its end and return its result. ``check`` is called before
    each step; if it raises an error, the routine is left there."""
    while True:
        check()
        try:
            reached(next(steps))
        except StopIteration as end:
            result: T = end.value
            return result
