"""Where frames are in the topic ``<prefix>.frames``, and the paths by which manifests name them.

A path is ``frames/<stream>/<attempt>-<index, 5 digits>@<partition>:<offset>+<partition>:<offset>…``
with a place for each record that holds a part of the frame.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple


class Place(NamedTuple):
    """Where a record is."""

    partition: int
    offset: int


class FramePath(NamedTuple):
    """The path of a frame, in parts."""

    stream: str
    name: str
    """``<attempt>-<index>``: what tells the frame from any other."""
    places: tuple[Place, ...]

    def __str__(self) -> str:
        places = "+".join(f"{place.partition}:{place.offset}" for place in self.places)
        return f"frames/{self.stream}/{self.name}@{places}"

    def key(self, part: int) -> bytes:
        """Return the key of the record that holds a part."""
        return f"{self.stream}/{self.name}/{part}".encode()


_PLACE = r"[0-9]{1,9}:[0-9]{1,18}"
# Text from elsewhere comes here: there is one way only to match it.
_PATH = re.compile(rf"frames/([^/]+)/([0-9a-f]{{1,64}}-[0-9]{{5,10}})@({_PLACE}(?:\+{_PLACE})*)")


def parse_path(path: str) -> FramePath | None:
    """Return the parts of a path; None when it names no frame of a topic."""
    match = _PATH.fullmatch(path)
    if match is None:
        return None
    numbers = (place.split(":") for place in match[3].split("+"))
    places = tuple(Place(int(partition), int(offset)) for partition, offset in numbers)
    return FramePath(match[1], match[2], places)


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
