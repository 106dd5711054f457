"""Which links are checked, and what each of them needs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from spark_wan.errors import TopologyError
from spark_wan.topology.model import Stream, Topology
from spark_wan.topology.routes import all_streams


@dataclass(frozen=True)
class Scope:
    """The links to check, and what of them is here."""

    topology: Topology
    site: str | None = None
    """The site that checks; None: all that any site has is to be seen from here."""
    senders: Collection[str] | None = None
    tables: Collection[str] | None = None

    def __post_init__(self) -> None:
        """Raises TopologyError for a name that the topology does not have."""
        if self.site is not None:
            self.topology.site(self.site)
        for sender in self.senders or ():
            self.topology.sender(sender)
        for table in self.tables or ():
            self.topology.table(table)

    def is_here(self, site: str) -> bool:
        """Whether what a site has must be within reach: what is not, has failed. What another site
        has may be out of reach."""
        return self.site in (None, site)

    def links(self) -> Sequence[tuple[Stream, str]]:
        """Return the links: a stream and an addressee. Raises TopologyError if there are none."""
        found = [*self._links()]
        if not found:
            raise TopologyError(
                f"{self.topology.file}: nothing to check: no stream of these senders and tables "
                f"is sent{'' if self.site is None else f' or received by site {self.site}'}. See "
                "`spark-wan validate`."
            )
        return found

    def _links(self) -> Iterator[tuple[Stream, str]]:
        for stream in all_streams(self.topology):
            if self.senders is not None and stream.sender.name not in self.senders:
                continue
            if self.tables is not None and stream.table.name not in self.tables:
                continue
            for site in stream.addressees:
                if self.site in (None, stream.sender.site, site):
                    yield stream, site
