"""Several sites in a folder, in any topology. The first site of ``links`` writes ``orders``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from sites import Sites

from spark_wan.errors import StreamsHeldError
from spark_wan.receiver.job import Receiver
from spark_wan.receiver.stream import TableStatus
from spark_wan.sender.job import Sender
from spark_wan.topology.model import Topology
from spark_wan.topology.parsing import load_topology


@dataclass(frozen=True)
class ManySites:
    """Sites below ``folder``, each with its senders. Rows are those of :class:`sites.Sites`."""

    folder: Path
    sites: tuple[str, ...]

    @classmethod
    def make(
        cls,
        folder: Path,
        links: Mapping[str, Sequence[Sequence[str]]],
        tables: Mapping[str, Mapping[str, Any]] | None = None,
        **settings: object,
    ) -> ManySites:
        """``links``: site -> the remotes of each of its senders, called ``<site>0``, ``<site>1`` …
        ``tables``: name -> what differs from a table that the first site writes, at all sites."""
        names = tuple(links)
        senders = {
            f"{site}{number}": {
                "site": site,
                "remotes": list(remotes),
                "channel": f"./channels/{site}{number}",
                "batch_interval": "100ms",
                **settings,
            }
            for site, all_remotes in links.items()
            for number, remotes in enumerate(all_remotes)
        }
        table = {
            "writers": [names[0]],
            "senders": list(senders),
        }
        content = {
            "version": 1,
            "sites": {site: {"state": f"./{site}/_wan"} for site in names},
            "senders": senders,
            "tables": {
                name: {"at": {site: f"./{site}/{name}" for site in names}, **table, **own}
                for name, own in (tables or {"orders": {"keys": ["id"]}}).items()
            },
        }
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "wan.yaml").write_text(yaml.safe_dump(content))
        return cls(folder, names)

    @property
    def topology(self) -> Topology:
        return load_topology(self.folder / "wan.yaml")

    @property
    def tables(self) -> Sites:
        """Writes and reads the tables of any site."""
        return Sites(self.folder)

    def send(self, spark: Any, site: str, **settings: Any) -> None:
        """Run a site's senders until nothing is left to publish."""
        Sender(spark, self.topology, site, **settings).start(available_now=True).await_termination()

    def receive(self, spark: Any, site: str, **settings: Any) -> dict[str, TableStatus]:
        """Run a site's receiver until nothing is left to apply and to forward; return the status of
        each stream."""
        handle = Receiver(spark, self.topology, site, **settings).start(available_now=True)
        with suppress(StreamsHeldError):
            handle.await_termination()
        return {status.stream: status for status in handle.status()}

    def assert_equal(self, table: str = "orders", sites: Iterable[str] | None = None) -> None:
        """Check that the sites have the rows of the first one, each as often."""
        expected = self.tables.rows(table, self.sites[0])
        for site in sites or self.sites[1:]:
            found = self.tables.rows(table, site)
            assert found == expected, (
                f"{table}: missing at {site} {expected - found}, too many {found - expected}"
            )
