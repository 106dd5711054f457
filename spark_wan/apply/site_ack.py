"""A site's ack for one inbound stream: the lower of applied and forwarded, whoever is the later."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from spark_wan.log.stream_log import StreamLog
from spark_wan.units import milliseconds
from spark_wan.wire.ack import Ack

Through = Callable[[str], int | None]
"""Returns through which epoch the log with an ID is forwarded; None: not known yet."""


@dataclass
class SiteAck:
    """The ack of one inbound stream. The apply and the forwarders report in threads of their own,
    and each report is written at once, unless it changes nothing."""

    site: str
    log: StreamLog
    forwarded: Sequence[Through] = ()
    """How far each of the site's senders is that forward the stream."""
    clock: Callable[[], int] = milliseconds
    """Milliseconds since 1970 UTC."""
    _applied: Ack | None = None
    """What the apply said last: ``applied`` is what the table has."""
    _known: Ack | None = None
    """The ack that is in the channel, as far as is known here."""
    _holds: dict[str, tuple[str, bool]] = field(default_factory=dict)
    """Outbound stream -> why its forwarding is held, and whether that may pass."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def read(self) -> Ack | None:
        """Return the ack that is in the channel."""
        return self.log.ack(self.site)

    def report_applied(self, applied: Ack, before: Ack | None) -> None:
        """Take the apply's report; ``before``: the ack in the channel when its round began."""
        with self._lock:
            self._applied, self._known = applied, before
            self._write()

    @property
    def known(self) -> Ack | None:
        """The ack that is in the channel, as far as is known here."""
        return self._known

    def report_dead_letters(self, count: int) -> None:
        """Take it that so many events are dead letters by now. Before the apply has reported,
        nothing is written."""
        with self._lock:
            if self._applied is not None:
                self._applied = replace(self._applied, dead_letters=count)
            self._write()

    def report_forwarded(self, outbound: str, held: str | None, passes: bool = False) -> None:
        """Note that the forwarder of an outbound stream has moved on, or why it is ``held``, and
        whether that may pass. Before the apply has reported, nothing is written."""
        with self._lock:
            self._holds.pop(outbound, None)
            if held is not None:
                self._holds[outbound] = held, passes
            self._write()

    def forget(self) -> None:
        """Write nothing until the apply reports again: something else has written the ack."""
        with self._lock:
            self._applied = None

    def _write(self) -> None:
        if self._applied is None:
            return
        ack = self._lower(self._applied).held_since(self._known, self.clock())
        if ack != self._known:
            self.log.put_ack(ack)
            self._known = ack

    def _lower(self, applied: Ack) -> Ack:
        """Return the ack that counts no epoch before it is applied and forwarded."""
        known = self._known
        # What was acked before a restart was forwarded.
        acked = known.applied if known is not None and known.log_id == applied.log_id else 0
        through = [each(applied.log_id) for each in self.forwarded]
        forwarded = min((acked if each is None else each for each in through), default=None)
        lower = applied.applied if forwarded is None else min(applied.applied, forwarded)
        ack = replace(applied, applied=lower, ahead=applied.applied - lower)
        if not self._holds:
            return ack
        holds = [*self._holds.values()]
        if applied.cause is not None:
            holds = [(applied.cause, applied.passes), *holds]
        return replace(
            ack,
            held=applied.held if applied.held is not None else lower + 1,
            cause="; ".join(cause for cause, _ in holds),
            passes=all(passes for _, passes in holds),
        )
