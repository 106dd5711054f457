"""How often to look: less and less often while nothing happens."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

SHARE = 0.05
"""The wait, as a share of the time for which nothing has happened."""


@dataclass
class Pace:
    """Seconds between looks, from ``shortest`` to ``longest`` if that is more."""

    shortest: float
    longest: float
    _since: float = field(default_factory=time.monotonic)

    def happened(self) -> None:
        """Note that something has happened: the next wait is the shortest again."""
        self._since = time.monotonic()

    def wait(self) -> float:
        """Return the seconds until the next look."""
        quiet = time.monotonic() - self._since
        return max(self.shortest, min(self.longest, quiet * SHARE))
