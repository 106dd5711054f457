"""The place of a backup: what its certificate says of it is what is there, or nothing is used."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import obstore
import pytest
from fakes import MANIFEST, schema

from spark_wan.channels.object_store import open_store
from spark_wan.errors import BackupError
from spark_wan.sync.place import Place
from spark_wan.wire.certificate import CERTIFICATE, BackedUp, Certificate

FILES = {
    "_delta_log/00000000000000000000.json": b"{}",
    "part-00000.parquet": b"rows",
    "part-00001.parquet": b"more rows",
}


def certificate(place: Place) -> Certificate:
    return Certificate(
        backup=uuid.uuid4().hex,
        site="newark",
        table="orders",
        source=BackedUp(MANIFEST.table_id, 7, "x@1"),
        vector=(("newark", MANIFEST.table_id, "all", 7),),
        keys=("id",),
        schema=schema(),
        files=place.digested(),
        rows=2,
        unique=True,
        created=1,
    )


@pytest.fixture(params=["directory", "file", "store"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """A backup, in a directory or in an object store."""
    kinds = {"directory": f"{tmp_path}/b", "file": f"file://{tmp_path}/b"}
    made = Place(kinds.get(request.param, f"memory://{uuid.uuid4().hex}"))
    for path, content in FILES.items():
        obstore.put(open_store(made.url), path, content)
    made.put_certificate(certificate(made))
    return made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The same in a directory, to be damaged by hand."""
    made = Place(f"{tmp_path}/b")
    for path, content in FILES.items():
        obstore.put(open_store(made.url), path, content)
    made.put_certificate(certificate(made))
    return tmp_path / "b"


def test_a_backup_is_what_its_certificate_says(place: Place) -> None:
    found = place.certificate()
    assert [(file.path, file.bytes) for file in found.files] == [
        (path, len(content)) for path, content in FILES.items()
    ]
    place.check(found)


def missing(folder: Path) -> None:
    (folder / "part-00000.parquet").unlink()


def changed(folder: Path) -> None:
    """One byte, and neither size nor time show it."""
    path = folder / "part-00000.parquet"
    before = path.stat()
    path.write_bytes(b"r0ws")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def truncated(folder: Path) -> None:
    (folder / "part-00001.parquet").write_bytes(b"more")


def extra(folder: Path) -> None:
    (folder / "_delta_log" / "00000000000000000001.json").write_bytes(b"{}")


def linked(folder: Path) -> None:
    """To a file with the same content."""
    path = folder / "part-00000.parquet"
    shutil.copy(path, folder.parent / "elsewhere")
    path.unlink()
    path.symlink_to(folder.parent / "elsewhere")


@pytest.mark.parametrize(
    ("damage", "match"),
    [
        (missing, "file part-00000.parquet is missing: the backup is not as it was made"),
        (changed, "file part-00000.parquet was changed: the backup is not as it was made"),
        (truncated, "file part-00001.parquet was changed"),
        (extra, "file '_delta_log/00000000000000000001.json' is no part of the backup"),
        (linked, "file part-00000.parquet was changed"),
    ],
    ids=["missing", "changed", "truncated", "extra", "linked"],
)
def test_another_content_is_refused(
    folder: Path, damage: Callable[[Path], None], match: str
) -> None:
    """f20. Fails when a file that is missing, changed or added goes unnoticed."""
    place = Place(str(folder))
    found = place.certificate()
    damage(folder)
    with pytest.raises(BackupError, match=match):
        place.check(found)


def test_a_backup_that_was_interrupted_is_none(folder: Path) -> None:
    (folder / CERTIFICATE).unlink()
    with pytest.raises(BackupError, match=r"a backup that was interrupted.*Make another backup"):
        Place(str(folder)).certificate()


def test_a_place_without_anything(tmp_path: Path) -> None:
    """Fails when a path that was mistyped is created."""
    with pytest.raises(BackupError, match=r"no backup at this place.*Check the path"):
        Place(f"{tmp_path}/nothing").certificate()
    Place(f"{tmp_path}/nothing").check_free()
    assert not (tmp_path / "nothing").exists()


def test_a_place_that_holds_something_is_refused(place: Place) -> None:
    with pytest.raises(BackupError, match="there is something at this place already"):
        place.check_free()


@pytest.mark.parametrize("name", [CERTIFICATE, "notes.txt"])
def test_any_file_is_something(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("x")
    with pytest.raises(BackupError, match=name):
        Place(str(tmp_path)).check_free()
    with pytest.raises(BackupError, match="Not a directory"):
        Place(str(tmp_path / name)).check_free()


def test_of_two_backups_at_one_place_the_first_stays(place: Place) -> None:
    with pytest.raises(BackupError, match="another backup was made at this place meanwhile"):
        place.put_certificate(certificate(place))
    place.check(place.certificate())


def test_a_certificate_is_there_as_a_whole(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that is full. Fails when half of it is found under its name."""
    (folder / CERTIFICATE).unlink()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    place = Place(str(folder))
    with pytest.raises(BackupError, match=r"cannot be written to .*No space left"):
        place.put_certificate(replace(certificate(place)))
    with pytest.raises(BackupError, match="interrupted"):
        place.certificate()


def test_what_is_much_too_large_is_not_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark_wan.sync.place.MAX_CERTIFICATE_BYTES", 10)
    with pytest.raises(BackupError, match="which no certificate has"):
        Place(str(folder)).certificate()


def test_a_store_that_does_not_answer() -> None:
    place = Place("s3://nowhere/b", {"endpoint": "http://127.0.0.1:9", "allow_http": "true"})
    with pytest.raises(BackupError, match="cannot be read"):
        replace(place, storage={**place.storage, "no_such": "option"}).certificate()
