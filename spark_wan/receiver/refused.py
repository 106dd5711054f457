"""Tells the sender of a stream which events the site could not apply, and why.

The ledger has them, and is what counts. So whatever stands in the way of telling them is logged,
and holds nothing up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from spark_wan.errors import WanError
from spark_wan.ledger.dead_letters import Applies
from spark_wan.ledger.ledger import Ledger
from spark_wan.ledger.store import DeltaLedgerStore
from spark_wan.log.stream_log import StreamLog
from spark_wan.messages import message_log
from spark_wan.state.handled import HandledLetters
from spark_wan.sync.letters import open_of, with_what_was_done
from spark_wan.wire.ledger import DeadLetter
from spark_wan.wire.refused import RefusedEvents

log = message_log(__name__)

TOLD_INTERVAL = 10_000
"""Milliseconds between two records of a stream. Each reads the ledger."""
MOST_LETTERS = 1_000
"""Number of the newest dead letters of a table that are looked at. Of older ones only the ledger
tells."""


@dataclass
class RefusedReporter:
    """Keeps the record of the events of one stream that the site could not apply."""

    site: str
    table: str
    log: StreamLog
    ledger: Ledger
    store: DeltaLedgerStore
    handled: HandledLetters
    clock: Callable[[], int]
    """Milliseconds since 1970 UTC."""
    _told_at: int | None = None

    def __call__(self, at_once: bool = False) -> bool:
        """Write the record, by the ledger, unless that was just done and it need not be done at
        once. Returns whether it did."""
        now = self.clock()
        is_soon = self._told_at is not None and 0 <= now - self._told_at < TOLD_INTERVAL
        if is_soon and not at_once:
            return False
        self._told_at = now
        try:
            stream = self.log.stream
            self.log.put_refused(RefusedEvents.of_letters(self.site, stream, self._open(), now))
            return True
        except WanError as error:
            log.warning(
                "%s: the sender is not told which events could not be applied: %s",
                self.log.stream,
                error,
                event="not-told",
                stream=self.log.stream,
                cause=str(error),
                what_to_do="The dead letters of this site have them: `spark-wan dead-letters list "
                f"--site {self.site}`.",
            )
            return False

    def _open(self) -> list[DeadLetter]:
        """Return the open dead letters of the stream, and of copies of its table, the newest
        first."""
        applies = Applies(self.ledger.tokens, self.ledger.copied)
        there = self.store.letters(self.table, MOST_LETTERS)
        counting = [(each, applies.is_before_copy(each)) for each in there if applies.counts(each)]
        return open_of(with_what_was_done(counting, self.handled.load()), self.log.stream)
