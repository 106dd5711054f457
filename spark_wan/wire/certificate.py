"""Certificates: what a backup of a table has. ``wan-copy.json``, beside its ``_delta_log``.

The certificate is written last. A place without one holds no backup. A JSON object:

=============  ===============  ===================================================================
``version``    int              1
``backup``     string           a random ID: 32 hexadecimal digits
``site``       string           the site whose table was read
``table``      string           the table's name in the topology
``source``     object           the version that was read: ``table_id``, Delta's ID of the table at
                                ``site``, ``version``, and ``identity`` of its commit, as in a
                                manifest
``vector``     list of lists    what the rows are, as in a mark: one entry, (origin site, table ID,
                                selection, the origin's version through which everything is in
                                them)
``keys``       list of strings  key columns; empty: a keyless table
``schema``     object           the columns, as Spark's schema JSON
``files``      list of objects  all files of the backup but this one: ``path`` (relative), ``bytes``
                                and ``digest`` (SHA-256, 64 hexadecimal digits)
``rows``       int              number of rows
``unique``     bool             no key is in two of the rows; true without keys
``created``    int              when the version was read, by the clock of ``site``, in milliseconds
                                since 1970 UTC
``digest``     string           SHA-256 of everything above, as JSON with sorted names and without
                                blanks: finds damage, but no forger
``signature``  object           by ``site`` (:mod:`spark_wan.wire.signature`); absent: it has no
                                keys
=============  ===============  ===================================================================

Unknown fields are ignored, unless ``requires`` lists them (:mod:`spark_wan.wire.records`).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, cast

from spark_wan.errors import BackupError, NewerRecordError
from spark_wan.wire.manifest import COPY, CopyOf, Manifest
from spark_wan.wire.mark import VectorEntry
from spark_wan.wire.names import is_safe, shown
from spark_wan.wire.records import (
    UNREADABLE,
    check_requires,
    check_version,
    from_fields,
    is_time,
    known_names,
    read_json,
    written_fields,
)
from spark_wan.wire.signature import SIGNATURE, KeyReference, Signature, Signer, is_signed_with

CERTIFICATE = "wan-copy.json"
"""The certificate's name in the place of a backup."""
VERSION = 1
MAX_CERTIFICATE_BYTES = 256 * 2**20
"""Size of a certificate, at most: of some million files."""
_KIND = f"wan-copy {VERSION}"
_HEX = re.compile(r"[0-9a-f]{64}")
_ID = re.compile(r"[0-9a-f]{32}")
_Data = bytes  # where a class has a member called bytes


@dataclass(frozen=True)
class BackupFile:
    """A file of a backup, with the fields of the format."""

    path: str
    bytes: int
    digest: str


@dataclass(frozen=True)
class BackedUp:
    """The version of a table that was read, with the fields of the format."""

    table_id: str
    version: int
    identity: str


@dataclass(frozen=True)
class Certificate:
    """What a backup has, with the fields of the format."""

    backup: str
    site: str
    table: str
    source: BackedUp
    vector: tuple[VectorEntry, ...]
    keys: tuple[str, ...]
    schema: Mapping[str, Any]
    files: tuple[BackupFile, ...]
    rows: int
    unique: bool
    created: int
    digest: str = ""
    signature: Signature | None = field(default=None, compare=False)
    _record: ClassVar[Mapping[str, Any] | None] = None
    """The JSON of a certificate that was read."""

    @property
    def origin(self) -> str:
        return self.vector[0][0]

    @property
    def table_id(self) -> str:
        """Delta's ID of the origin's table."""
        return self.vector[0][1]

    @property
    def selection(self) -> str:
        return self.vector[0][2]

    @property
    def through(self) -> int:
        """Everything through this version of the origin's table is in the rows."""
        return self.vector[0][3]

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)

    def encode(self) -> _Data:
        record = {**self._content(), "digest": _digest(self._content())}
        if self.signature is not None:
            record[SIGNATURE] = written_fields(self.signature)
        return json.dumps(record, separators=(",", ":")).encode()

    def _content(self) -> dict[str, Any]:
        """Return all that the digest covers."""
        content = {"version": VERSION, **written_fields(self)}
        del content["digest"], content[SIGNATURE]
        return content

    def signed_by(self, signer: Signer) -> Certificate:
        """Return the certificate with a signature. Raises SigningKeyError."""
        record = {**self._content(), "digest": _digest(self._content())}
        return replace(self, signature=signer.sign(_KIND, record))

    def not_signed_with(self, keys: Sequence[KeyReference]) -> str | None:
        """Return why a certificate that was read is not signed by its site with one of ``keys``;
        None: it is. Raises SigningKeyError."""
        if self.signature is None or self._record is None:
            return "it is not signed"
        if self.signature.site != self.site:
            return f"it is signed by site {self.signature.site!r}"
        return is_signed_with(_KIND, self._record, self.signature, keys)

    @classmethod
    def decode(cls, data: _Data, where: str) -> Certificate:
        """Read a certificate. Raises BackupError, which names ``where`` and what is invalid."""
        try:
            record = read_json(data)
            check_version(record["version"], VERSION)
            covered = {name: value for name, value in record.items() if name not in _UNCOVERED}
            if record["digest"] != _digest(covered):
                raise BackupError(
                    f"{where}: the certificate was altered or damaged: it does not have its own "
                    "digest. Nothing of the backup is used. Copy it again, or make another one."
                )
            check_requires(record, known_names(cast(Any, cls)))
            certificate = from_fields(cls, record, renamed=False)
            certificate._check()
        except NewerRecordError as error:
            raise BackupError(
                f"{where}: the certificate was {error}. Update spark_wan at this site."
            ) from error
        except UNREADABLE as error:
            raise BackupError(
                f"{where}: this is no certificate of a backup ({type(error).__name__}: "
                f"{shown(str(error))}). Nothing of it is used. Copy the backup again, or make "
                "another one."
            ) from error
        certificate.__dict__["_record"] = record
        return certificate

    def _check(self) -> None:
        """Raise ValueError for what no backup has."""
        numbers = [self.rows, self.source.version, *(file.bytes for file in self.files)]
        if min(numbers) < 0 or not is_time(self.created):
            raise ValueError("a number is negative")
        if len(self.vector) != 1 or self.through < 0:
            raise ValueError("the vector is not that of one origin")
        if not _ID.fullmatch(self.backup):
            raise ValueError(f"its ID is {shown(self.backup)}")
        for name in (self.site, self.table, self.origin):
            if not is_safe(name):
                raise ValueError(f"{shown(name)} is not a name")
        if len({file.path for file in self.files}) < len(self.files):
            raise ValueError("a file is named twice")
        for file in self.files:
            if not is_inside(file.path) or not _HEX.fullmatch(file.digest):
                raise ValueError(f"{shown(file.path)} is not a file inside the backup")

    def as_copy(self, stream: str, site: str) -> Manifest:
        """Return the manifest that a copy with these rows would have, in a log of its own: what a
        mark says of it. ``stream``: that of the copies for ``site``."""
        return Manifest(
            stream=stream,
            log_id=self.backup,
            epoch=1,
            previous="",
            kind=COPY,
            origin=self.origin,
            sent_to=(site,),
            addressees=(site,),
            table=self.table,
            table_id=self.table_id,
            selection=self.selection,
            keys=self.keys,
            schema=self.schema,
            first_version=0,
            last_version=self.through,
            start=True,
            commits=(),
            identity=self.source.identity,
            frames=(),
            disjoint=self.unique,
            created=self.created,
            copy=CopyOf(self.backup, self.vector),
        )


_UNCOVERED = ("digest", SIGNATURE)


def is_inside(path: str) -> bool:
    """Whether a relative path stays in its folder, and can be shown."""
    parts = path.split("/")
    return path.isprintable() and "\\" not in path and not {"", ".", ".."} & {*parts}


def _digest(content: Mapping[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
