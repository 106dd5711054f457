"""Certificates of backups: what is written, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from fakes import MANIFEST, schema

from spark_wan.errors import BackupError
from spark_wan.wire.certificate import BackedUp, BackupFile, Certificate, is_inside
from spark_wan.wire.manifest import COPY, CopyOf
from spark_wan.wire.signature import KeyReference, Signer

CERTIFICATE = Certificate(
    backup="c" * 32,
    site="newark",
    table="orders",
    source=BackedUp(MANIFEST.table_id, 7, "0123456789abcdef01234567@1700000000000"),
    vector=(("newark", MANIFEST.table_id, "all", 7),),
    keys=("id",),
    schema=schema(id="long"),
    files=(
        BackupFile("_delta_log/00000000000000000000.json", 12, "1" * 64),
        BackupFile("part-00000.parquet", 34, "2" * 64),
    ),
    rows=3,
    unique=True,
    created=1_700_000_000_000,
)
GOLDEN = (
    b'{"version":1,"backup":"cccccccccccccccccccccccccccccccc","site":"newark","table":"orders",'
    b'"source":{"table_id":"11111111-2222-3333-4444-555555555555","version":7,'
    b'"identity":"0123456789abcdef01234567@1700000000000"},'
    b'"vector":[["newark","11111111-2222-3333-4444-555555555555","all",7]],"keys":["id"],'
    b'"schema":{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,'
    b'"metadata":{}}]},'
    b'"files":[{"path":"_delta_log/00000000000000000000.json","bytes":12,"digest":"'
    + b"1" * 64
    + b'"},{"path":"part-00000.parquet","bytes":34,"digest":"'
    + b"2" * 64
    + b'"}],"rows":3,"unique":true,"created":1700000000000,'
    b'"digest":"1ab27e079479513ddc3600c141b4add335d6fe87dc37dcbe2d0455f381b08bc4"}'
)
WHERE = "/disk/wan-copy.json"


def read(data: bytes) -> Certificate:
    return Certificate.decode(data, WHERE)


def written(**changes: Any) -> bytes:
    """A certificate with other values, and the digest that these have."""
    return replace(CERTIFICATE, **changes).encode()


def altered(**changes: Any) -> bytes:
    """The same, with values that the class does not take."""
    record = {**json.loads(CERTIFICATE.encode()), **changes}
    del record["digest"]
    forged = replace(CERTIFICATE)
    forged.__dict__["_content"] = lambda: record
    return forged.encode()


def test_the_bytes_of_version_1() -> None:
    assert CERTIFICATE.encode() == GOLDEN
    certificate = read(GOLDEN)
    assert replace(certificate, digest="") == CERTIFICATE
    assert (certificate.origin, certificate.selection, certificate.through) == ("newark", "all", 7)
    assert (certificate.table_id, certificate.bytes) == (MANIFEST.table_id, 46)


def test_damage_is_found() -> None:
    """Each byte, another one. Fails when a version could become another."""
    data = CERTIFICATE.encode()
    for place in range(len(data)):
        damaged = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
        with pytest.raises(BackupError, match="/disk/wan-copy"):
            read(damaged)
        with pytest.raises(BackupError):
            read(data[:place])


def test_unknown_fields_are_ignored_unless_they_are_required() -> None:
    assert read(altered(weight=3)).backup == CERTIFICATE.backup
    with pytest.raises(BackupError, match="Update spark_wan"):
        read(altered(weight=3, requires=["weight"]))
    with pytest.raises(BackupError, match="written by a newer spark_wan"):
        read(altered(version=2))


@pytest.mark.parametrize(
    "path",
    ["", "/etc/passwd", "../orders/x", "a/../../x", "./x", "a//x", "a/", "a\\..\\x", "a\nb", ".."],
)
def test_a_file_outside_of_the_backup_is_refused(path: str) -> None:
    """Fails when a certificate could name a file elsewhere."""
    assert not is_inside(path)
    with pytest.raises(BackupError, match="is not a file inside the backup"):
        read(written(files=(BackupFile(path, 1, "1" * 64),)))


@pytest.mark.parametrize(
    "changes",
    [
        {"rows": -1},
        {"created": -1},
        {"source": BackedUp("id", -1, "x@1")},
        {"vector": ()},
        {"vector": (("newark", "id", "all", 7), ("boston", "id", "all", 8))},
        {"vector": (("newark", "id", "all", -1),)},
        {"backup": "../x"},
        {"site": "../x"},
        {"table": "a/b"},
        {"vector": (("../x", "id", "all", 7),)},
        {"files": (BackupFile("x", -1, "1" * 64),)},
        {"files": (BackupFile("x", 1, "1"),)},
        {"files": (BackupFile("x", 1, "1" * 64), BackupFile("x", 2, "1" * 64))},
    ],
    ids=repr,
)
def test_what_no_backup_has_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(BackupError, match="no certificate of a backup"):
        read(written(**changes))


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b"\xff", b'{"version":1}', b"[" * 9000])
def test_what_is_no_certificate(data: bytes) -> None:
    with pytest.raises(BackupError, match="/disk/wan-copy"):
        read(data)


def test_a_signature_is_of_the_site_and_covers_everything(monkeypatch: Any) -> None:
    """Fails when a forger could write the digest of what he has altered."""
    monkeypatch.setenv("NEWARK", "n" * 32)
    monkeypatch.setenv("BOSTON", "b" * 32)
    newark, boston = (KeyReference("env", name) for name in ("NEWARK", "BOSTON"))
    signed = CERTIFICATE.signed_by(Signer("newark", "", (newark,)))
    certificate = read(signed.encode())
    assert certificate.not_signed_with([newark]) is None
    assert "none of the keys" in str(certificate.not_signed_with([boston]))
    forged = read(replace(signed, rows=4).encode())
    assert "its signature is wrong" in str(forged.not_signed_with([newark]))
    other = read(CERTIFICATE.signed_by(Signer("boston", "", (boston,))).encode())
    assert other.not_signed_with([newark]) == "it is signed by site 'boston'"
    assert read(CERTIFICATE.encode()).not_signed_with([newark]) == "it is not signed"


def test_what_a_mark_says_of_it() -> None:
    """The same each time: a second adoption knows the first by it."""
    manifest = read(GOLDEN).as_copy("newark.east.orders~copy~seattle", "seattle")
    again = read(GOLDEN).as_copy("newark.east.orders~copy~seattle", "seattle")
    assert manifest.fingerprint == again.fingerprint
    assert (manifest.kind, manifest.log_id, manifest.epoch) == (COPY, "c" * 32, 1)
    assert manifest.copy == CopyOf("c" * 32, CERTIFICATE.vector)
    assert (manifest.last_version, manifest.keys, manifest.disjoint) == (7, ("id",), True)
