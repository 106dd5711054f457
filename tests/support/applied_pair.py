"""newark writes orders, and seattle has applied them: for tests of what takes the place of all rows
there. Tables are lists of commits."""

from __future__ import annotations

from fakes import STREAM, Clock, LedgerRows, Target
from publishing import Site as Newark

from spark_wan.apply.applier import ApplyResult, TableApplier
from spark_wan.ledger.ledger import Ledger
from spark_wan.log.stream_log import StreamLog
from spark_wan.steps import run
from spark_wan.topology.model import copy_name

COPIES = copy_name(STREAM, "seattle")
"""The stream of the copies that newark serves to seattle."""


class AppliedPair:
    """newark writes orders, seattle has applied what newark has published. ``published``: newark
    has published its first commit."""

    def __init__(self, published: bool = True) -> None:
        self.newark = Newark(sent_to=("seattle",))
        self.channel = self.newark.channel
        self.target, self.store = Target(self.channel), LedgerRows()
        self.newark.source.add()
        if published:
            self.newark.rounds()
            self.apply()

    @property
    def copies(self) -> StreamLog:
        return StreamLog(self.channel, COPIES)

    def ledger(self) -> Ledger:
        """A ledger that knows only what is durable."""
        return Ledger("seattle", "orders", self.store, clock=Clock())

    def apply(self) -> ApplyResult:
        log = StreamLog(self.channel, STREAM)
        return run(TableApplier("seattle", "orders", log, self.target, self.ledger()).round())
