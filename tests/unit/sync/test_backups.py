"""How a backup is made, and which backup fits which topology."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from fakes import MANIFEST, schema

from spark_wan.errors import BackupError, SchemaError, TopologyError, UnsupportedTypeError
from spark_wan.steps import run
from spark_wan.sync.backup import (
    BackupMaker,
    Cut,
    adopting_streams,
    backed_up_table,
    check_fits,
)
from spark_wan.sync.place import Place
from spark_wan.topology.model import Topology
from spark_wan.topology.parsing import parse_topology
from spark_wan.wire.certificate import CERTIFICATE, BackedUp, Certificate
from spark_wan.wire.signature import KeyReference, Signer

STEPS = ["backup.1 planned", "backup.2 written", "backup.3 digested", "backup.4 certified"]
SITES = ("newark", "chicago", "denver")


def topology(**sites: Mapping[str, Any]) -> Topology:
    """newark writes; chicago gets its tables from there and forwards orders to denver."""
    table: dict[str, Any] = {"keys": ["id"], "writers": ["newark"], "senders": ["east", "west"]}

    def at(name: str) -> dict[str, str]:
        return {site: f"/{site}/{name}" for site in SITES}

    return parse_topology(
        {
            "version": 1,
            "sites": {
                site: {"state": f"/{site}", **sites.get(site, {})} for site in (*SITES, "boston")
            },
            "senders": {
                "east": {"site": "newark", "remotes": ["chicago"], "channel": "memory://east"},
                "west": {"site": "chicago", "remotes": ["denver"], "channel": "memory://west"},
            },
            "tables": {
                "orders": {**table, "at": at("orders")},
                "clicks": {**table, "source": "sink", "at": at("clicks")},
            },
        },
        "wan.yaml",
    )


@dataclass
class Rows:
    """A table whose backup is one file."""

    schema: Mapping[str, Any] = field(default_factory=lambda: schema())
    fails: Exception | None = None

    def cut(self) -> Cut:
        source = BackedUp(MANIFEST.table_id, 7, "x@1")
        return Cut(source, ("newark", MANIFEST.table_id, "all", 7), self.schema, 3, created=5)

    def write(self, cut: Cut, place: str) -> None:
        log = Path(place) / "_delta_log"
        log.mkdir(parents=True)
        (log / "0.json").write_text(str(cut.source.version))
        if self.fails is not None:
            raise self.fails

    def count(self, place: str) -> tuple[int, bool]:
        return 3, True


def maker(place: Path, rows: Rows | None = None, signer: Signer | None = None) -> BackupMaker:
    table = topology().table("orders")
    return BackupMaker("newark", table, Place(str(place)), rows or Rows(), signer)


def test_the_steps_are_these(tmp_path: Path) -> None:
    assert list(maker(tmp_path / "b").round()) == STEPS
    place = Place(str(tmp_path / "b"))
    made = place.certificate()
    place.check(made)
    assert (made.site, made.table, made.keys, made.rows) == ("newark", "orders", ("id",), 3)
    assert (made.origin, made.through, made.source.version) == ("newark", 7, 7)


@pytest.mark.parametrize("died", range(1, len(STEPS)))
def test_a_backup_that_dies_at_any_step_is_none(tmp_path: Path, died: int) -> None:
    """Fails when the certificate is there before all that it names."""
    place = tmp_path / "b"
    list(itertools.islice(maker(place).round(), died))
    with pytest.raises(BackupError, match="no backup at this place"):
        Place(str(place)).certificate()
    if died > 1:
        with pytest.raises(BackupError, match="something at this place already"):
            run(maker(place).round())


def test_a_disk_that_is_full(tmp_path: Path) -> None:
    error = BackupError("No space left on device")
    with pytest.raises(BackupError, match="No space left"):
        run(maker(tmp_path / "b", Rows(fails=error)).round())
    with pytest.raises(BackupError, match="interrupted"):
        Place(str(tmp_path / "b")).certificate()


def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    cut = maker(tmp_path / "b").plan()
    assert (cut.rows, cut.vector[3]) == (3, 7)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("columns", "error"),
    [
        ({"city": "string"}, SchemaError),
        ({"id": "double"}, UnsupportedTypeError),
        ({"id": "long", "at": "time(6)"}, UnsupportedTypeError),
    ],
)
def test_a_table_that_could_not_be_replicated(
    tmp_path: Path, columns: dict[str, str], error: type[Exception]
) -> None:
    """Fails when a backup is made that no site could adopt."""
    with pytest.raises(error):
        run(maker(tmp_path / "b", Rows(schema(**columns))).round())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("table", "site", "match"),
    [
        ("order", "chicago", "did you mean 'orders'"),
        ("orders", "chicagoo", "did you mean 'chicago'"),
        ("orders", "boston", "nothing to back up. It is at chicago, denver, newark"),
        ("clicks", "newark", "is written by a sink"),
    ],
)
def test_what_has_no_backup(table: str, site: str, match: str) -> None:
    with pytest.raises(TopologyError, match=match):
        backed_up_table(topology(), table, site)


def test_who_adopts_a_backup() -> None:
    """Also a site that gets the table from one that forwards it."""
    streams = {site: adopting_streams(topology(), "orders", site) for site in SITES[1:]}
    assert [each.name for each in streams["chicago"]] == ["newark.east.orders"]
    assert [each.name for each in streams["denver"]] == ["chicago.west~newark.east.orders"]
    with pytest.raises(TopologyError, match="newark writes table orders, and adopts no backup"):
        adopting_streams(topology(), "orders", "newark")


def certificate(tmp_path: Path, signer: Signer | None = None, **changes: Any) -> Certificate:
    """A certificate as it is read, with other values."""
    made = run(maker(tmp_path / "b").round())
    made = replace(made, **changes)
    data = (made if signer is None else made.signed_by(signer)).encode()
    return Certificate.decode(data, "x")


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"table": "readings"}, "is of table readings, not of orders"),
        ({"keys": ("item",)}, "was made with the keys item; in wan.yaml the table has id"),
        ({"keys": ()}, "was made with the keys none"),
        ({"site": "boston"}, "was made at site boston; in wan.yaml table orders is written at"),
        ({"vector": (("denver", "x", "all", 7),)}, "has rows that site denver wrote"),
    ],
    ids=["table", "other keys", "no keys", "place", "writer"],
)
def test_a_backup_of_something_else(tmp_path: Path, changes: dict[str, Any], match: str) -> None:
    """Fails when rows of another table, or of another writer, take the place of this one's."""
    found = certificate(tmp_path, **changes)
    with pytest.raises(BackupError, match=match):
        check_fits(topology(), found, topology().table("orders"), "chicago")


def test_a_site_accepts_backups_of_whom_it_accepts_events_from(tmp_path: Path) -> None:
    of_chicago = certificate(tmp_path, site="chicago")
    some = topology(denver={"accept_from": ["newark"]})
    with pytest.raises(BackupError, match="of site chicago, which is not in accept_from"):
        check_fits(some, of_chicago, some.table("orders"), "denver")
    both = topology(denver={"accept_from": ["newark", "chicago"]})
    check_fits(both, of_chicago, both.table("orders"), "denver")


def test_a_forged_certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails when a site that checks signatures adopts what nobody has signed."""
    monkeypatch.setenv("NEWARK_KEY", "n" * 32)
    monkeypatch.setenv("OTHER_KEY", "o" * 32)
    signs = topology(newark={"signing_keys": ["env:NEWARK_KEY"]})
    table = signs.table("orders")
    own = Signer("newark", "", (KeyReference("env", "NEWARK_KEY"),))
    other = Signer("newark", "", (KeyReference("env", "OTHER_KEY"),))
    check_fits(signs, certificate(tmp_path / "1", own), table, "chicago")
    for place, (signer, changes, match) in enumerate(
        [
            (None, {}, "it is not signed"),
            (other, {}, "none of the keys"),
            (None, {"site": "denver"}, "site denver, which made it, has no signing_keys"),
        ]
    ):
        found = certificate(tmp_path / f"forged {place}", signer, **changes)
        with pytest.raises(BackupError, match=f"is not to be trusted: .*{match}"):
            check_fits(signs, found, table, "chicago")


def test_a_site_with_keys_signs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEWARK_KEY", "n" * 32)
    reference = KeyReference("env", "NEWARK_KEY")
    run(maker(tmp_path / "b", signer=Signer("newark", "", (reference,))).round())
    assert Place(str(tmp_path / "b")).certificate().not_signed_with([reference]) is None
    record = json.loads((tmp_path / "b" / CERTIFICATE).read_text())
    assert record["signature"]["site"] == "newark"
