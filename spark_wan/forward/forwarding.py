"""The forwarding of one inbound stream by one sender, as the receiver of the stream sees it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from spark_wan.forward.forwarder import Forwarder
from spark_wan.log.listing import Listing
from spark_wan.runtime.hold import Hold


@dataclass(eq=False)
class Forwarding:
    """What the inbound log has, how far it is forwarded, and why it is held."""

    forwarder: Forwarder
    wake: Callable[[], None]
    """Called when there may be something to forward."""
    hold: Hold | None = None
    """None unless the last round failed."""
    is_due: bool = False
    """Whether the log was not forwarded since it was listed last, or the last round failed."""
    paused: bool = False
    """Whether nothing of the inbound stream is to be taken."""
    _given: Listing | None = None
    """What the log had when it was listed last."""

    @property
    def held(self) -> str | None:
        """Why nothing is forwarded at the moment."""
        hold = self.hold  # a worker replaces it at any time
        return hold.cause if hold is not None else None

    @property
    def through(self) -> int:
        """Through this epoch the newest log is forwarded."""
        position = self.forwarder.position
        return position[1] if position is not None else 0

    def pause(self, paused: bool) -> None:
        """Note whether the inbound stream is paused. What was left is forwarded afterwards."""
        was, self.paused = self.paused, paused
        if was and not paused and self.is_due:
            self.wake()

    def give(self, listing: Listing) -> None:
        """Take note of what the inbound log has."""
        if self._given is not listing:
            self._given, self.is_due = listing, True
            self.wake()
