"""What the receiver would do with what a log has: its own path, up to the table.

:class:`~spark_wan.apply.applier.TableApplier` plans, and hands what it would apply to a table that
checks it and takes nothing.
"""

from __future__ import annotations

from spark_wan.apply.applier import ApplyResult, TableApplier
from spark_wan.errors import StoppedError
from spark_wan.rehearsal.findings import Finding, failed, ok, warning


class Rehearsed(StoppedError):
    """The rehearsal ends here: from here on a job would write."""


def next_of(applier: TableApplier, *, asks: bool, is_here: bool = True) -> Finding:
    """Rehearse the next apply of a stream, and return what was found.

    Args:
        applier: Its ledger and its ack are written nowhere, and its table raises
            :class:`Rehearsed` in place of the first write.
        asks: Whether the site asks for a copy by itself when it needs one.
        is_here: Whether table and ledger must be within reach.
    """
    stream = applier.log.stream
    round_ = applier.round()
    try:
        while True:
            next(round_)
    except Rehearsed:
        return ok("stream", f"{stream}: the next epoch can be applied")
    except StopIteration as end:
        result: ApplyResult = end.value
    if result.cause is None:
        return ok("stream", f"{stream}: there is nothing to apply now")
    if result.needs is not None and asks:
        return warning(
            "stream",
            f"{result.cause} The site asks for a copy by itself, if its sources serve one.",
        )
    return failed("stream", result.cause, is_here or not result.passes)
