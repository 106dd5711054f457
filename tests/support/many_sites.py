"""Several sites in a folder, in any topology. The first site of ``links`` writes ``orders``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import yaml
from default_channel import channel_settings
from deltalake import DeltaTable, write_deltalake
from sites import COLUMNS, Row, Sites

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
        channels: str | None = None,
        sync: str = "manual",
        **settings: object,
    ) -> ManySites:
        """``links``: site -> the remotes of each of its senders, called ``<site>0``, ``<site>1`` …
        ``tables``: name -> what differs from a table that the first site writes, at all sites.
        ``channels``: what the URL of each sender's channel begins with, before the sender's name;
        None: channels of the tests' default kind. ``sync``: of all sites.
        """

        def own(sender: str) -> Row:
            return settings if channels is None else {"channel": channels + sender, **settings}

        names = tuple(links)
        senders = {
            f"{site}{number}": {
                "site": site,
                "remotes": list(remotes),
                "batch_interval": "100ms",
                **channel_settings(folder, f"{site}{number}", own(f"{site}{number}")),
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
            "sites": {site: {"state": f"./{site}/_wan", "sync": sync} for site in names},
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

    def commit(self, site: str, table: str, rows: Iterable[Row]) -> None:
        """Upsert rows of orders in one commit; the first one creates the table."""
        place, new = self.tables.path(table, site), [dict(row) for row in rows]
        arrow = pa.Table.from_pylist(new, schema=COLUMNS["orders"])
        if not DeltaTable.is_deltatable(str(place)):
            feed = {"delta.enableChangeDataFeed": "true"}
            write_deltalake(place, arrow, configuration=feed)
            return
        merge = DeltaTable(place).merge(arrow, "t.id = s.id", source_alias="s", target_alias="t")
        merge.when_matched_update_all().when_not_matched_insert_all().execute()

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

    def assert_equal(self, table: str = "orders", writer: str | None = None) -> None:
        """Check that all sites have the rows of the ``writer`` (default: the first one), each as
        often."""
        writer = writer or self.sites[0]
        expected = self.tables.rows(table, writer)
        for site in self.sites:
            found = self.tables.rows(table, site)
            assert found == expected, (
                f"{table}: missing at {site} {expected - found}, too many {found - expected}"
            )
