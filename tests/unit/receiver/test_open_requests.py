"""A receiver looks after its open requests for copies, and reads no acks for nothing."""

from __future__ import annotations

from typing import Any, cast

from spark_wan.channels.base import Version
from spark_wan.errors import ChannelError
from spark_wan.receiver.requests import INTERVAL, OpenRequests
from spark_wan.runtime.scheduler import Next
from spark_wan.sync.automatic import Synchronizer

NAME = "newark.east.orders~copy~seattle"


class Asked:
    """A table of which a copy may be asked for."""

    def __init__(self) -> None:
        self.looks, self.is_open, self.error = 0, True, cast("Exception | None", None)

    def pass_over(self, stream: str) -> bool:
        assert stream == NAME
        self.looks += 1
        if self.error is not None:
            raise self.error
        return self.is_open


def test_open_requests_are_looked_at_and_ended_ones_are_not() -> None:
    """Fails when the ack of each table that ever had a copy is read again and again."""
    asked, acks = Asked(), dict[str, Version | None]()
    requests = OpenRequests({NAME: cast(Synchronizer, asked)}, lambda: acks, timeout=60.0)

    def look() -> int:
        assert requests.look(cast(Any, None)) == Next(INTERVAL)
        return asked.looks

    assert look() == 0  # there is no ack yet
    acks[NAME] = cast(Version, "1")
    assert (look(), look()) == (1, 2)
    asked.is_open = False
    assert (look(), look(), look()) == (3, 3, 3)
    acks[NAME] = cast(Version, "2")
    asked.error = ChannelError("not now")
    assert (look(), look()) == (4, 5)
    asked.error = None
    assert (look(), look()) == (6, 6)


def test_a_short_timeout_is_kept() -> None:
    requests = OpenRequests({}, dict, timeout=1.0)
    assert requests.look(cast(Any, None)) == Next(0.5)
