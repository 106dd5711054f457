"""The clock of a table: a stamp for each commit, for sites that write the same table (decision 21).

A commit's *stamp* is in milliseconds since 1970 UTC, like its time. A commit that a receiver made
has the stamp of what it applied: the ``clock`` in its mark. Any other commit has its time, or 1
more than the highest stamp before it in the table's log if that is more.

It does not matter in which ranges the history is read. A history shows a commit's time, moved
behind the time of the commit before it if that one was asked for, too. So the time that counts here
is always behind that of the commit before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from spark_wan.delta.commits import Commit
from spark_wan.wire.records import TableClock


@dataclass(frozen=True)
class Stamps:
    """The stamps of some commits, and the table's clock after the last of them."""

    by_version: Mapping[int, int]
    clock: TableClock | None
    """None: there is no commit yet."""


def stamps(commits: Iterable[Commit], clock: TableClock | None) -> Stamps:
    """Return the stamps of ``commits``: ascending, without gaps.

    ``clock``: the table's clock before the first of them; None: the history begins with it.
    """
    found: dict[int, int] = {}
    for commit in commits:
        time = commit.time if clock is None else max(commit.time, clock.time + 1)
        stamp = commit.applied_clock
        if stamp is None:
            stamp = time if clock is None else max(time, clock.stamp + 1)
        found[commit.version] = stamp
        clock = TableClock(stamp if clock is None else max(stamp, clock.stamp), time)
    return Stamps(found, clock)
