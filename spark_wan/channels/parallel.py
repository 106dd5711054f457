"""Requests of one task that are in flight together, so that a long way to the store is not waited
for once per frame."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

AT_ONCE = 16
"""Maximum number of requests in flight, of one task."""
BYTES_AT_ONCE = 64 * 1024 * 1024
"""Bytes that these move, together. A larger frame is moved alone."""


def in_order(
    call: Callable[[T], R],
    items: Iterable[T],
    size: Callable[[T], int] = lambda item: 0,
    at_once: int = AT_ONCE,
) -> Iterator[R]:
    """Yield ``call(item)`` for each item, in their order, several of them at work at once.

    Items are taken when there is room for them, and results wait until those before them are taken,
    so that memory is bounded. A single item needs no thread.

    Args:
        call: Made in threads. Several may run at the same time.
        items: Iterated in the caller's thread.
        size: Bytes that an item or its result takes.
        at_once: Maximum number of calls at work or waiting to be taken.

    Raises:
        Exception: the first error, in the order of the items. No call is at work any more then.
    """
    waiting: deque[tuple[Future[R], int]] = deque()
    remaining = iter(items)
    first = next(remaining, None)
    second = next(remaining, None) if first is not None else None
    if first is None:
        return
    if second is None:
        yield call(first)
        return
    pool = ThreadPoolExecutor(at_once, thread_name_prefix="wan-frames")
    try:
        held = 0
        for item in itertools.chain((first, second), remaining):
            needed = size(item)
            while waiting and (len(waiting) >= at_once or held + needed > BYTES_AT_ONCE):
                done, released = waiting.popleft()
                yield done.result()
                held -= released
            # With the context of the caller: messages name the site of its job.
            waiting.append((pool.submit(copy_context().run, call, item), needed))
            held += needed
        while waiting:
            yield waiting.popleft()[0].result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
