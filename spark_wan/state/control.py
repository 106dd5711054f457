"""The control log of a site: what people want of the streams that it sends
(:mod:`spark_wan.wire.control`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from spark_wan.state.objects import StateObjects
from spark_wan.wire.control import Control

KEPT = 100
"""Number of entries that are kept, to see who asked for what. The newest one says everything."""
_NAME = "control"


class ControlLog:
    """A numbered log in the site's ``state``, to which several processes may add. Its methods raise
    ChannelError when the state does not answer, and LedgerError for an entry that cannot be read.
    """

    def __init__(self, state: str, storage: Mapping[str, str] | None = None) -> None:
        self._objects = StateObjects(state.rstrip("/"), "the control log", storage)
        self._known: tuple[int, Control] = 0, Control()

    def read(self) -> tuple[int, Control]:
        """Return the newest entry with its number, the generation; 0: nobody has asked for
        anything. One request, while there is nothing new."""
        while True:
            newest = max(self._objects.numbers(_NAME), default=0)
            known = self._known  # another thread may replace it
            if newest == known[0]:
                return known
            found = self._objects.entry(_NAME, newest) if newest else ("", b"")
            if found is not None:  # else it was deleted just now: there is a newer one
                where, data = found
                known = newest, Control.decode(data, where) if newest else Control()
                self._known = known
                return known

    def add(self, decide: Callable[[int, Control], Control | None], least: int = 0) -> bool:
        """Add the entry that ``decide`` returns for a generation and the entry before it; None:
        none is needed. If another process was faster, read again, and decide again. ``least``: a
        generation that was seen elsewhere, above which the entry goes. Returns whether one was
        added."""
        while True:
            newest, control = self.read()
            generation = max(newest, least) + 1
            following = decide(generation, control)
            if following is None:
                return False
            if self._objects.create(_NAME, generation, following.encode()):
                self._known = generation, following
                old = [n for n in self._objects.numbers(_NAME) if n <= generation - KEPT]
                self._objects.delete_entries(_NAME, old)
                return True
