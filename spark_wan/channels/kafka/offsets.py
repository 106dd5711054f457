"""Sets of offsets."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator, Sequence


class OffsetRanges:
    """A set of offsets of one partition, kept as ranges: neighbours are joined."""

    def __init__(self, ranges: Iterable[Sequence[int]] = ()) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        for start, end in ranges:
            self._starts.append(start)
            self._ends.append(end)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Yield (first offset, last offset + 1), ascending."""
        return zip(self._starts, self._ends, strict=True)

    def __contains__(self, offset: int) -> bool:
        return self.after(offset) != offset

    def add(self, offset: int) -> None:
        at = bisect.bisect_right(self._starts, offset)
        if at and self._ends[at - 1] > offset:
            return
        joins_before = at > 0 and self._ends[at - 1] == offset
        joins_after = at < len(self._starts) and self._starts[at] == offset + 1
        if joins_before and joins_after:
            self._ends[at - 1] = self._ends.pop(at)
            del self._starts[at]
        elif joins_before:
            self._ends[at - 1] += 1
        elif joins_after:
            self._starts[at] = offset
        else:
            self._starts.insert(at, offset)
            self._ends.insert(at, offset + 1)

    def after(self, offset: int) -> int:
        """Return the first offset from ``offset`` on that is not in the set."""
        at = bisect.bisect_right(self._starts, offset)
        return max(offset, self._ends[at - 1]) if at else offset

    def drop_below(self, offset: int) -> None:
        """Forget the offsets below one."""
        at = bisect.bisect_left(self._ends, offset + 1)
        del self._starts[:at], self._ends[:at]
        if self._starts and self._starts[0] < offset:
            self._starts[0] = offset

    def count(self, start: int, end: int) -> int:
        """Return the number of offsets in ``start`` to ``end`` - 1."""
        return sum(max(0, min(last, end) - max(first, start)) for first, last in self)
