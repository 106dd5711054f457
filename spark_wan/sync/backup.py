"""Backups: how one is made, and which backup fits which topology. Imports no Spark.

:meth:`BackupMaker.round` is a numbered path. Nothing is locked: one version of the table is read,
while writes go on. A backup that is interrupted is none:

    backup.1 planned    the version, and what its rows are. Nothing is written
    backup.2 written    the rows, as a Delta table
    backup.3 digested   nothing: all files were read again
    backup.4 certified  the certificate: now there is a backup

How one is adopted is in :mod:`spark_wan.apply.adopt`.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from spark_wan.errors import BackupError, TopologyError
from spark_wan.events.columns import check_columns, check_keys
from spark_wan.steps import Steps
from spark_wan.sync.place import Place
from spark_wan.topology.model import Stream, Table, Topology
from spark_wan.topology.routes import streams_of
from spark_wan.topology.signing import keys_of
from spark_wan.wire.certificate import BackedUp, Certificate
from spark_wan.wire.mark import VectorEntry
from spark_wan.wire.signature import Signer


@dataclass(frozen=True)
class Cut:
    """One version of a table, as it is backed up."""

    source: BackedUp
    vector: VectorEntry
    schema: Mapping[str, Any]
    """The columns that are backed up."""
    rows: int
    created: int
    """When the version was chosen, in milliseconds since 1970 UTC."""


class TableToBackUp(Protocol):
    """A table at a site. The Spark adapter and unit tests each implement it."""

    def cut(self) -> Cut:
        """Choose the version to back up. Raises BackupError where the rows are not those of the
        origin, and what makes that impossible to tell."""

    def write(self, cut: Cut, place: str) -> None:
        """Write the rows of the version as a Delta table. Raises BackupError."""

    def count(self, place: str) -> tuple[int, bool]:
        """Return the number of rows at the place, and whether no two have the same key."""


@dataclass
class BackupMaker:
    """Makes a backup of one table at one site."""

    site: str
    table: Table
    place: Place
    source: TableToBackUp
    signer: Signer | None = None
    """Signs the certificate; None: the site has no keys."""

    def plan(self) -> Cut:
        """Return what would be backed up. Writes nothing. Raises BackupError, and what the source
        does."""
        self.place.check_free()
        cut = self.source.cut()
        check_columns(cut.schema, self.table.name)
        if self.table.keys:
            check_keys(cut.schema, list(self.table.keys), self.table.name)
        return cut

    def round(self) -> Steps[Certificate]:
        """Make the backup, and return its certificate. Raises what :meth:`plan` does."""
        cut = self.plan()
        yield "backup.1 planned"
        self.source.write(cut, self.place.url)
        yield "backup.2 written"
        rows, unique = self.source.count(self.place.url)
        files = self.place.digested()
        yield "backup.3 digested"
        certificate = Certificate(
            backup=uuid.uuid4().hex,
            site=self.site,
            table=self.table.name,
            source=cut.source,
            vector=(cut.vector,),
            keys=self.table.keys,
            schema=cut.schema,
            files=files,
            rows=rows,
            unique=unique,
            created=cut.created,
        )
        if self.signer is not None:
            certificate = certificate.signed_by(self.signer)
        self.place.put_certificate(certificate)
        yield "backup.4 certified"
        return certificate


def backed_up_table(topology: Topology, table: str, site: str) -> Table:
    """Return a table of which a site can make a backup. Raises TopologyError."""
    found, name = topology.table(table), topology.site(site).name
    if name not in found.at:
        raise TopologyError(
            f"{topology.file}: table {found.name} is not at site {name}: there is nothing to back "
            f"up. It is at {', '.join(sorted(found.at))}."
        )
    if found.source != "table":
        raise TopologyError(
            f"{topology.file}: table {found.name} is written by a sink. There are no backups of "
            "such tables yet, since the event IDs would be missing: write the events again, with "
            "their IDs, to a new stream."
        )
    return found


def adopting_streams(topology: Topology, table: str, site: str) -> list[Stream]:
    """Return the streams by which a site that adopts a backup of a table gets what comes after it,
    those with fewer hops first. Raises TopologyError."""
    found, name = backed_up_table(topology, table, site), topology.site(site).name
    if name in found.writers:
        raise TopologyError(
            f"{topology.file}: site {name} writes table {found.name}, and adopts no backup of it: "
            "other sites would not get the rows. To restore it, overwrite the table from the "
            "backup, which is a Delta table, in a commit of your own."
        )
    return [each for each in streams_of(topology, found) if name in each.addressees]


def check_fits(topology: Topology, certificate: Certificate, table: Table, site: str) -> None:
    """Raise BackupError unless a backup is of a table of this topology, and of whom the site
    believes. SigningKeyError when that cannot be found out."""
    what = f"the backup {certificate.backup[:8]}…"
    if certificate.table != table.name:
        raise BackupError(
            f"{what} is of table {certificate.table}, not of {table.name}. Nothing of it is used. "
            "Name the table that it is of, or another backup."
        )
    if certificate.keys != table.keys:
        raise BackupError(
            f"{what} of table {table.name} was made with the keys {_shown(certificate.keys)}; in "
            f"{topology.file} the table has {_shown(table.keys)}. Nothing of it is used. Make "
            "another backup with this topology."
        )
    if certificate.origin not in table.writers or certificate.site not in table.at:
        raise BackupError(
            f"{what} has rows that site {certificate.origin} wrote, and was made at site "
            f"{certificate.site}; in {topology.file} table {table.name} is written at "
            f"{', '.join(table.writers)}, and is at {', '.join(sorted(table.at))}. Nothing of it "
            "is used. Make another backup with this topology."
        )
    _check_trust(topology, certificate, what, site)


def _check_trust(topology: Topology, certificate: Certificate, what: str, site: str) -> None:
    accepted, keys = topology.site(site).accept_from, keys_of(topology)
    for each in (certificate.site, certificate.origin):
        if accepted is not None and each not in accepted:
            raise BackupError(
                f"{what} is of site {each}, which is not in accept_from of site {site} "
                f"({', '.join(accepted)}). Nothing of it is used. Add the site there, or make a "
                "backup at a site that is."
            )
    own = keys.get(certificate.site)
    if own:
        wrong = certificate.not_signed_with(own)
    else:
        signs = certificate.origin in keys
        wrong = f"site {certificate.site}, which made it, has no signing_keys" if signs else None
    if wrong is not None:
        raise BackupError(
            f"{what} is not to be trusted: {wrong}. Nothing of it is used. Check that both sites "
            "have the same topology and keys, and where the backup comes from; or make another."
        )


def _shown(keys: tuple[str, ...]) -> str:
    return ", ".join(keys) or "none"
