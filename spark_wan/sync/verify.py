"""Comparing the copies of a table with the table at its writer, at the same cut.

Nothing is locked, and nothing is written: both sides are read by time travel, while writers,
senders and receivers go on.

>>> for found in spark_wan.verify(spark, topology, "orders"):
...     print(found.site, found.is_equal, dict(found.counts))
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from spark_wan.delta.sessions import job_session
from spark_wan.delta.tables import newest_commit, newest_commits, table_id
from spark_wan.errors import CompareError, OptionError, WanError
from spark_wan.ledger.dead_letters import dead_letters
from spark_wan.sync.compare import BUCKETS, Found, Side, TableComparer
from spark_wan.sync.cut import Cut, compared_sites, compared_table, cut_of, newest_mark
from spark_wan.sync.findings import Comparison
from spark_wan.topology.model import Table, Topology
from spark_wan.wire.ledger import DeadLetter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_wan.delta.commits import Commit

LOOK_BACK = 64
"""Commits of a target among which its newest mark is looked for first; then eight times as many."""


def verify(
    spark: SparkSession,
    topology: Topology,
    table: str,
    *,
    sites: Sequence[str] | None = None,
    sample: float = 100.0,
    limit: int = 20,
    rate: int | None = None,
) -> list[Comparison]:
    """Compare a table at the site that writes it with its copies, and return what was found of
    each site.

    Args:
        spark: A session that can read the table at all these sites.
        topology: Says where the table is.
        table: Its name in the topology.
        sites: Only these; None: all sites that have the table.
        sample: Percentage of the key buckets that are compared.
        limit: Number of rows that are returned as examples for a site. Counts are whole.
        rate: Maximum of bytes per second that are read of the table's files, of one site at a
            time; None: no maximum.

    Raises:
        TopologyError: the table or a site is unknown, or a site does not have the table.
        CompareError: the table at its writer cannot be compared. What is wrong at another site is
            the ``problem`` of that site.
        OptionError: ``sample``, ``limit`` or ``rate`` is out of range.
    """
    found = compared_table(topology, table)
    chosen = compared_sites(topology, found, sites)
    _check_options(sample, limit, rate)
    with job_session(spark) as session:
        verifier = _Verifier(session, topology, found, sample, limit, rate)
        return [verifier.compared(site) for site in chosen]


def _check_options(sample: float, limit: int, rate: int | None) -> None:
    if not 100 / BUCKETS <= sample <= 100:
        raise OptionError(
            f"sample must be a percentage from {100 / BUCKETS} to 100, not {sample:g}"
        )
    if limit < 0:
        raise OptionError(f"limit must be 0 or more, not {limit}")
    if rate is not None and rate < 1:
        raise OptionError(f"rate must be 1 or more bytes per second, not {rate}")


@dataclass(frozen=True)
class _Verifier:
    spark: SparkSession
    topology: Topology
    table: Table
    sample: float
    limit: int
    rate: int | None

    @property
    def origin(self) -> str:
        return self.table.writers[0]

    def compared(self, site: str) -> Comparison:
        """Return what was found at a site, or why it was not compared."""
        here = Comparison(self.table.name, site, self.origin)
        # Of the origin, an error concerns all sites.
        identity = self._origin_id()
        try:
            commits = self._commits(site)
            cut = cut_of(commits, site, self.table, identity)
            here = replace(
                here, origin_version=cut.origin_version, target_version=cut.target_version
            )
            self._check_origin(cut)
            found, share = self._compare(site, cut)
        except WanError as error:
            return replace(here, problem=str(error))
        counts, examples, notes = found.counts, found.examples, self._limits(cut)
        if any(counts.values()):
            letters, unread = self._letters(site)
            notes += [*_told(letters), *unread]
            causes = {each.key: each.cause for each in letters if each.key is not None}
            examples = [replace(each, dead_letter=causes.get(each.row)) for each in examples]
        return replace(
            here,
            share=share,
            origin_rows=found.origin_rows,
            target_rows=found.target_rows,
            counts=counts,
            columns=found.by_column,
            only_at_origin=found.columns.only_at_origin,
            not_compared=found.columns.not_compared,
            examples=tuple(examples),
            notes=tuple(notes),
        )

    def _origin_id(self) -> str:
        side = self._side(self.origin, -1)
        with side.errors(self.spark):
            identity = table_id(self.spark, side.location)
        if identity is None:
            raise CompareError(
                f"{self.table.name}: there is no Delta table at site {self.origin} "
                f"({side.location}), which writes it. Check the place below `at:` in the topology, "
                "and that it can be read from here."
            )
        return identity

    def _commits(self, site: str) -> list[Commit]:
        """Return the newest commits of a target, down to its newest mark if there is one."""
        side, limit = self._side(site, -1), LOOK_BACK
        with side.errors(self.spark):
            if table_id(self.spark, side.location) is None:
                raise CompareError(
                    f"{self.table.name}: there is no Delta table at site {site} "
                    f"({side.location}). Either nothing is applied there yet, or it was deleted: "
                    "see `spark-wan status`."
                )
            while True:
                commits = newest_commits(self.spark, side.location, limit)
                marked = newest_mark(commits, site, self.table.name)
                if marked is not None or len(commits) < limit:
                    return commits
                limit *= 8

    def _check_origin(self, cut: Cut) -> None:
        side = self._side(self.origin, cut.origin_version)
        with side.errors(self.spark):
            newest = newest_commit(self.spark, side.location).version
        if newest < cut.origin_version:
            raise CompareError(
                f"{self.table.name}: version {cut.origin_version} is not at site {self.origin} any "
                f"more, where the newest is {newest}: the table was restored from a backup. "
                "`spark-wan status` says what its sender holds."
            )

    def _compare(self, site: str, cut: Cut) -> tuple[Found, float]:
        buckets = round(self.sample * BUCKETS / 100)
        comparer = TableComparer(
            self.spark,
            self.table.keys,
            self._side(self.origin, cut.origin_version),
            self._side(site, cut.target_version),
            buckets,
            self.limit,
            self.rate,
        )
        return comparer.compare(), buckets / BUCKETS

    def _side(self, site: str, version: int) -> Side:
        return Side(self.table.name, site, self.table.location(site), version)

    def _limits(self, cut: Cut) -> list[str]:
        """Return what a reader of the result should know of a cut."""
        if not cut.local:
            return []
        commits = "1 commit" if cut.local == 1 else f"{cut.local:,} commits"
        return [
            f"{commits} of others changed rows of this site after what its receiver applied last; "
            "what they changed is compared"
        ]

    def _letters(self, site: str) -> tuple[list[DeadLetter], list[str]]:
        """Return the dead letters of the table at both ends, and what could not be read."""
        found: list[DeadLetter] = []
        unread = []
        for place in (site, self.origin):
            try:
                found += dead_letters(self.topology, place, self.table.name)
            except WanError as error:
                unread.append(f"dead letters of {place} may explain rows, but: {error}")
        return found, unread


def _told(letters: Sequence[DeadLetter]) -> list[str]:
    received = sum(each.side == "receiver" for each in letters)
    sent = len(letters) - received
    notes = []
    if received:
        notes.append(
            f"dead letters of the table in the ledger of the site: {received:,}; their rows could "
            "not be applied (spark_wan.dead_letters)"
        )
    if sent:
        notes.append(
            f"dead letters of the table in the ledger of the writer: {sent:,}; their rows could "
            "not be sent (spark_wan.dead_letters)"
        )
    return notes
