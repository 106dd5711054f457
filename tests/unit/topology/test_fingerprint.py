"""Two readings of a topology are compared by the settings of each stream."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from topologies import VALID, changed, topology

from spark_wan.topology.fingerprint import settings_fingerprint
from spark_wan.topology.model import Topology
from spark_wan.topology.parsing import load_topology


def of(topology: Topology, sender: str = "east", table: str = "flights") -> str:
    return settings_fingerprint(topology, topology.sender(sender), topology.table(table))


@pytest.mark.parametrize(
    "change",
    [
        ("sites.newark.send_parallel", 3),
        ("sites.newark.state", "./elsewhere"),
        ("senders.east.batch_size", 7),
        ("senders.east.remotes", ["seattle", "denver"]),
        ("senders.east.channel", "./another"),
        ("tables.flights.keys", ["flight_id"]),
        ("tables.flights.start", {"version": 5}),
        ("tables.flights.at.seattle", "./seattle/others"),
        ("tables.flights.on_table_operation", "skip"),
    ],
)
def test_other_settings_of_a_stream_have_another_fingerprint(change: tuple[str, object]) -> None:
    changes = [change]
    if change[0].endswith("remotes"):
        changes.append(("tables.flights.at.denver", "./denver/flights"))
        changes.append(("tables.readings.at.denver", "./denver/readings"))
    assert of(topology(*changes)) != of(topology())


@pytest.mark.parametrize(
    "change",
    [
        ("sites.seattle.receive_parallel", 3),
        ("senders.west.batch_size", 7),
        ("tables.readings.keys", ["id"]),
        ("senders.east.batch_size", 10_000),
        ("senders.east.storage", {"aws_secret_access_key": "s3cret"}),
    ],
    ids=lambda change: change[0],
)
def test_settings_of_others_defaults_and_secrets_do_not_count(change: tuple[str, object]) -> None:
    """Fails when a later version with one setting more would see a difference in every stream, or
    when a password could be guessed from the fingerprint."""
    store = ("senders.east.channel", "s3://bucket/wan")
    assert of(topology(store, change)) == of(topology(store))


def test_the_same_file_on_another_machine_has_the_same_fingerprint(tmp_path: Path) -> None:
    """Fails when paths that are relative in the file count as they are on this machine."""
    found = set()
    for folder in (tmp_path / "a", tmp_path / "b" / "c"):
        folder.mkdir(parents=True)
        (folder / "wan.yaml").write_text(yaml.safe_dump(VALID))
        found.add(of(load_topology(folder / "wan.yaml")))
    assert found == {of(topology())}
    moved = yaml.safe_dump(changed(("senders.east.channel", "/mnt/wan/channel")))
    (tmp_path / "wan.yaml").write_text(moved)
    assert of(load_topology(tmp_path / "wan.yaml")) not in found
