"""Backups through Spark: :func:`make_backup` and :func:`adopt_backup`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from spark_wan.apply.adopt import Adopter, Adoption
from spark_wan.apply.change import Backup
from spark_wan.apply.replace import CopyWriter
from spark_wan.backup.tables import ReceivedTable, SparkTable, UnwrittenLedger, WrittenTable
from spark_wan.channels.base import Channel
from spark_wan.channels.registry import open_channel
from spark_wan.delta.sessions import CurrentSession, job_session
from spark_wan.errors import OptionError
from spark_wan.ledger.ledger import Ledger
from spark_wan.ledger.store import DeltaLedgerStore
from spark_wan.ledger.tables import LedgerTables
from spark_wan.log.stream_log import StreamLog
from spark_wan.steps import run
from spark_wan.sync.backup import (
    BackupMaker,
    Cut,
    adopting_streams,
    backed_up_table,
    check_fits,
)
from spark_wan.sync.place import Place
from spark_wan.sync.request import CopyRequests
from spark_wan.target.delta_table import DeltaTarget
from spark_wan.topology.model import Sender, Site, Table, Topology, copy_name
from spark_wan.topology.routes import streams_of
from spark_wan.topology.signing import keys_of, sending_trust
from spark_wan.topology.values import parse_state
from spark_wan.wire.certificate import Certificate
from spark_wan.wire.signature import Signer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def plan_backup(spark: SparkSession, topology: Topology, table: str, site: str, to: str) -> Cut:
    """Return what :func:`make_backup` would write, and write nothing."""
    with job_session(spark) as session:
        return _maker(session, topology, table, site, to).plan()


def make_backup(
    spark: SparkSession, topology: Topology, table: str, site: str, to: str
) -> Certificate:
    """Make a backup of a table while writes go on: its rows in one version as a Delta table, and a
    certificate of them. Return the certificate.

    Args:
        spark: A session, classic or Connect.
        topology: Who sends what to whom.
        table: The table, by its name in the topology.
        site: The site whose table is read. At another site than the one that writes the table, it
            must have nothing that the writer's does not have.
        to: The place of the backup: a directory, or the URL of an object store. Nothing is there.

    Raises:
        TopologyError: the table is not at the site.
        BackupError: there is something at the place, it cannot be written, or the rows are not the
            origin's.
        SchemaError, UnsupportedTypeError: the table cannot be replicated.
        LedgerError, TargetError: at a site that receives the table, what holds its stream.
    """
    with job_session(spark) as session:
        return run(_maker(session, topology, table, site, to).round())


def plan_adoption(
    spark: SparkSession, topology: Topology, table: str, site: str, place: str
) -> Adoption:
    """Return what would become of a backup in :func:`adopt_backup`, after all checks; write
    nothing."""
    with job_session(spark) as session:
        return _adopter(session, topology, table, site, place=place, writes=False).check()


def adopt_backup(
    spark: SparkSession, topology: Topology, table: str, site: str, place: str
) -> Adoption:
    """Put the rows of a backup in place of all that a site has of a table, in one marked commit.
    The table's streams go on behind it. Does nothing if the table has the backup already.

    Args:
        spark: A session, classic or Connect.
        topology: Who sends what to whom.
        table: The table, by its name in the topology.
        site: The site that adopts the backup. Its receiver may run.
        place: Where the backup is: a directory, or the URL of an object store.

    Raises:
        TopologyError: the site does not receive the table.
        BackupError: there is no whole backup of this table at the place, or the stream would be
            held behind it. The table is as it was.
        ChannelError: a channel by which the table comes cannot be read.
        LedgerError, TargetError: the table or the ledger cannot be written.
    """
    with job_session(spark) as session:
        return run(_adopter(session, topology, table, site, place=place, writes=True).round())


def _maker(spark: SparkSession, topology: Topology, table: str, site: str, to: str) -> BackupMaker:
    found, here = backed_up_table(topology, table, site), topology.site(site)
    place, session = _place(topology, site, to), CurrentSession(spark)
    source: SparkTable
    if here.name in found.writers:
        source = WrittenTable(session, here.name, found, _sent_logs(topology, found, here.name))
    else:
        logs = CopyRequests(topology, found, here).inbound
        target, ledger = _target(session, found, here, logs[0].channel, writes=False)
        source = ReceivedTable(session, here.name, found, logs, target, ledger)
    own = keys_of(topology).get(here.name)
    signer = Signer(here.name, "", own) if own else None
    return BackupMaker(here.name, found, place, source, signer)


def _adopter(
    spark: SparkSession, topology: Topology, table: str, site: str, *, place: str, writes: bool
) -> Adopter:
    adopting_streams(topology, table, site)  # refuses what makes no sense
    found, here = topology.table(table), topology.site(site)
    requests = CopyRequests(topology, found, here)
    logs = requests.inbound
    at = _place(topology, site, place)
    certificate = at.certificate()
    check_fits(topology, certificate, found, here.name)
    copies = StreamLog(logs[0].channel, copy_name(logs[0].stream, here.name), logs[0].trust)
    session = CurrentSession(spark)
    target, ledger = _target(session, found, here, logs[0].channel, writes=writes)
    return Adopter(
        here.name,
        found.name,
        Backup(at, certificate),
        logs,
        copies=copies,
        writer=CopyWriter(here.name, found.name, target, ledger),
        writers=found.writers,
        withdraw=requests.withdraw_all,
    )


def _place(topology: Topology, site: str, place: str) -> Place:
    try:
        return Place(parse_state(place, os.getcwd()), topology.site(site).storage)
    except ValueError as problem:
        raise OptionError(f"the place of the backup: {problem}") from None


def _sent_logs(topology: Topology, table: Table, site: str) -> list[StreamLog]:
    """Return the logs by which the site that writes a table sends it."""
    return [
        StreamLog(_channel(stream.sender), stream.name, sending_trust(topology, stream.sender))
        for stream in streams_of(topology, table)
        if stream.inbound is None and stream.origin == site
    ]


def _channel(sender: Sender) -> Channel:
    return open_channel(sender.channel, sender.storage)


def _target(
    session: CurrentSession, table: Table, site: Site, channel: Channel, *, writes: bool
) -> tuple[DeltaTarget, Ledger]:
    """Return a table as a target at its site, and its ledger: as it is there, or to read only."""
    tables = LedgerTables(session, site.state)
    if writes:
        tables.ensure()
    store = DeltaLedgerStore(tables) if writes else UnwrittenLedger(tables)
    ledger = Ledger(site.name, table.name, store)
    target = DeltaTarget.at(
        session, site, table, channel=channel, ledger=tables, known_id=lambda: ledger.target_id
    )
    return target, ledger
