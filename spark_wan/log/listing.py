"""What a channel's listing shows of one log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spark_wan.log.stream_log import StreamLog

Announced = tuple[tuple[int, int], ...]
"""(epoch, attempt) of each epoch that was announced again."""


@dataclass(frozen=True)
class Listing:
    """One stream as the channel was listed. ``epochs`` rise and are not empty."""

    log: StreamLog
    epochs: Sequence[int]
    announced: Announced

    @property
    def newest(self) -> int:
        return self.epochs[-1]

    @property
    def state(self) -> tuple[int, Announced]:
        """What changes when there may be something to apply."""
        return self.newest, self.announced

    def through(self, epoch: int | None) -> tuple[tuple[int, ...], Announced]:
        """Return the listing up to ``epoch`` (None: all). Later epochs release no hold."""
        return tuple(each for each in self.epochs if epoch is None or each <= epoch), self.announced
