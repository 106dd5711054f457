"""What all persisted formats have in common.

A record is one JSON object in UTF-8. Manifests, headers of frames, acks, marks, checkpoints and
senders' records are written in version 2, and version 1 is read (decision 18). Version 2 has other
names for some fields (:data:`RENAMED`) and no ``generation``, which nothing read. The other formats
have versions of their own.

The class of a record says what its fields are: :func:`from_fields` takes JSON for the annotations
of a dataclass, and for nothing else.

A later spark_wan may add fields (decision 21). A reader ignores those that it does not know, unless
the record lists them:

============  ===============  ====================================================================
``requires``  list of strings  fields without which the record means something else, such as
                               ``clock`` or ``frames.rows``, and other names that a reader must
                               know; absent: none
============  ===============  ====================================================================

A record that requires an unknown name, and one of a later version, is a NewerRecordError.
"""

from __future__ import annotations

import collections.abc
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import MISSING, Field, asdict, astuple, dataclass, fields, is_dataclass
from functools import cache, partial
from types import NoneType
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

from spark_wan.errors import NewerRecordError

T = TypeVar("T")
C = TypeVar("C", bound="Counts")

VERSION = 2

UNREADABLE = (ValueError, TypeError, KeyError, AttributeError, RecursionError)
"""Errors of reading JSON that spark_wan did not write. RecursionError: nested too deeply."""
MAX_DEPTH = 200
"""Levels of JSON, at most. Python reads nearly a thousand, and then can neither write nor copy
them; a column's type has two or three for each level of its own."""

_LATEST = 250_000_000_000_000
"""The year 9892. Python has no local times after 9999."""

_RESTORE = (
    "estore the object from a backup or another version of it; without it the remote site needs a "
    "copy of the table."
)
RESTORE = f"Its stream is held. R{_RESTORE}"
UPDATE = "Its stream is held. Update spark_wan at this site."
OR_RESTORE = f"If no newer version wrote it, r{_RESTORE}"

RENAMED = {
    "incarnation": "log_id",
    "number": "epoch",
    "first": "first_version",
    "last": "last_version",
}
"""Field of version 1 -> its name since version 2."""
_FORMER = {"generation", *RENAMED}


@dataclass(frozen=True)
class EpochRef:
    """An epoch of a log: its place, and the fingerprint of its manifest."""

    stream: str
    log_id: str
    epoch: int
    fingerprint: str


@dataclass(frozen=True)
class VersionRef:
    """A version of a table."""

    table_id: str
    version: int
    identity: str
    """Of its commit; empty: not known."""


@dataclass(frozen=True)
class TableClock:
    """A table's clock after a commit (:mod:`spark_wan.delta.clock`). Both in ms since 1970 UTC."""

    stamp: int
    """The highest stamp so far."""
    time: int
    """The time of the commit, behind that of the commit before it."""


@dataclass(frozen=True)
class Counts:
    """Numbers by name, all 0 at first."""

    def __add__(self: C, other: C) -> C:
        pairs = zip(astuple(self), astuple(other), strict=True)
        return type(self)(*(one + another for one, another in pairs))

    @property
    def is_valid(self) -> bool:
        """Whether the numbers can be true."""
        return min(astuple(self), default=0) >= 0


@dataclass(frozen=True)
class LongWork:
    """A capture or an apply that takes long, in the record of the job that does it."""

    rows: int
    """Number of rows; of a capture an estimate."""
    began: int
    """In ms since 1970 UTC."""
    bytes: int | None = None
    """Size of what is read; null: not known."""
    percent: int | None = None
    """How much of it was done when the record was written; null: not known."""

    @property
    def is_valid(self) -> bool:
        """Whether the numbers can be true."""
        return (
            self.rows >= 0
            and is_time(self.began)
            and (self.bytes is None or self.bytes >= 0)
            and (self.percent is None or 0 <= self.percent <= 100)
        )


def is_time(moment: int | None) -> bool:
    """Whether a time in ms since 1970 UTC is one that Python can show, or there is none."""
    return moment is None or 0 <= moment <= _LATEST


def upgraded(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the fields of a record of version 1 or 2 under their names in version 2."""
    if _FORMER.isdisjoint(record):
        return record
    return {
        RENAMED.get(name, name): value for name, value in record.items() if name != "generation"
    }


@cache
def known_names(kind: Any) -> frozenset[str]:
    """Return the names that a record may require: fields of ``kind``, and those of records that
    they hold, such as ``frames`` with ``frames.rows``."""
    names, hints = set(), get_type_hints(kind)
    for name in (each.name for each in fields(kind)):
        inner = _record_in(hints[name])
        names |= {name} | {f"{name}.{each}" for each in (known_names(inner) if inner else ())}
    return frozenset(names)


def check_version(version: object, newest: int = VERSION) -> None:
    """Raise NewerRecordError for a later version, ValueError for any other that is not readable."""
    if type(version) is int and version > newest:
        reads = "version 1" if newest == 1 else f"versions 1 and {newest}"
        raise NewerRecordError(
            f"written by a newer spark_wan, in version {version}; this spark_wan reads {reads}"
        )
    if type(version) is not int or version < 1:
        raise ValueError(f"version {version!r}")


def check_requires(record: Mapping[str, Any], known: Collection[str]) -> None:
    """Raise NewerRecordError when a record requires names that are not known.

    Raises ValueError when ``requires`` is not a list of names.
    """
    required = record.get("requires", [])
    if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
        raise ValueError(f"requires is {required!r}")
    unknown = [name for name in required if name not in known]
    if unknown:
        raise NewerRecordError(
            f"written by a newer spark_wan: it requires {', '.join(unknown)}, unknown to this "
            "spark_wan"
        )


def from_fields(kind: type[T], record: Mapping[str, Any], renamed: bool = True) -> T:
    """Return the ``kind`` that the fields of a record describe, of any version.

    Fields that ``kind`` does not have are ignored, because a later version may add some. Raises an
    UNREADABLE error when a field is missing, or is not what its annotation says. ``renamed``: the
    record may be one of version 1, with its names.
    """
    take: Callable[[Any], T] = _taker(cast("Any", kind), renamed)
    return take(record)


_Take = Callable[[Any], Any]
"""Returns a JSON value as a field has it. Raises TypeError or ValueError when it is none."""


@cache
def _taker(hint: Any, renamed: bool) -> _Take:
    """Return what takes JSON values for an annotation."""
    args = get_args(hint)
    if hint is Any:
        return lambda value: value
    if hint is int:
        return _number
    if hint in (str, bool):
        return partial(_exactly, hint)
    if is_dataclass(hint):
        return _record_taker(hint, renamed)
    if get_origin(hint) is tuple:
        return _tuple_taker(args, renamed)
    if get_origin(hint) is collections.abc.Mapping:
        take = _taker(args[1], renamed)
        return lambda value: {key: take(each) for key, each in _exactly(dict, value).items()}
    [inner] = [each for each in args if each is not NoneType]  # or null
    take = _taker(inner, renamed)
    return lambda value: None if value is None else take(value)


def _exactly(kind: type[Any], value: Any) -> Any:
    if type(value) is not kind:
        raise TypeError(f"{value!r:.50} is no {kind.__name__}")
    return value


def _number(value: Any) -> int:
    if type(value) is int and -(2**63) <= value < 2**63:
        return value
    raise TypeError(f"{value!r:.50} is no whole number of 64 bits")


def _tuple_taker(args: Sequence[Any], renamed: bool) -> _Take:
    if args[-1] is Ellipsis:
        take = _taker(args[0], renamed)
        return lambda values: tuple(map(take, _exactly(list, values)))
    takes = [_taker(each, renamed) for each in args]

    def take_all(values: Any) -> tuple[Any, ...]:
        pairs = zip(takes, _exactly(list, values), strict=True)
        return tuple(take(value) for take, value in pairs)

    return take_all


def _record_taker(kind: Any, renamed: bool) -> _Take:
    hints = get_type_hints(kind)
    takes = [
        (each.name, _taker(hints[each.name], renamed), _is_required(each)) for each in fields(kind)
    ]

    def take_record(value: Any) -> Any:
        record = upgraded(_exactly(dict, value)) if renamed else _exactly(dict, value)
        taken = {}
        for name, take, is_required in takes:
            if name in record:
                taken[name] = take(record[name])
            elif is_required:
                raise KeyError(name)
        return kind(**taken)

    return take_record


def _is_required(field: Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def _record_in(hint: Any) -> Any:
    """Return the class of the records in fields with an annotation, if they hold records."""
    if is_dataclass(hint):
        return hint
    return next((inner for arg in get_args(hint) if (inner := _record_in(arg))), None)


def read_json(data: str | bytes) -> Any:
    """Return the content of JSON that somebody else may have written. Raises UNREADABLE errors."""
    content = json.loads(data)
    level = [content]
    for _ in range(MAX_DEPTH):
        inner = (
            each.values() if isinstance(each, dict) else each
            for each in level
            if isinstance(each, (dict, list))
        )
        level = [part for parts in inner for part in parts if isinstance(part, (dict, list))]
        if not level:
            return content
    raise ValueError(f"has more than {MAX_DEPTH} levels")


def read_record(
    kind: type[T], data: bytes, newest: int = VERSION, renamed: bool = True
) -> T | None:
    """Return the record in ``data``, as :func:`from_fields` does; None when it cannot be read.

    ``newest``: the version up to which it is readable. Raises NewerRecordError.
    """
    try:
        return strict_record(kind, data, newest, renamed)
    except UNREADABLE:
        return None


def strict_record(kind: type[T], data: bytes, newest: int = VERSION, renamed: bool = True) -> T:
    """Return the record in ``data`` as :func:`read_record` does. Raises UNREADABLE errors where
    that returns None."""
    record = read_json(data)
    check_version(record.get("version"), newest)
    check_requires(record, known_names(cast(Any, kind)))
    return from_fields(kind, record, renamed)


def write_record(record: Any, **omitted: object) -> bytes:
    """Return a record as JSON with its version, without the fields that have an omitted value."""
    content = {"version": VERSION, **written_fields(record, **omitted)}
    return json.dumps(content, separators=(",", ":")).encode()


def written_fields(record: Any, **omitted: object) -> dict[str, Any]:
    """Return the fields of a dataclass, without those that have the value in ``omitted``."""
    return {
        name: value
        for name, value in asdict(record).items()
        if (name, value) not in omitted.items()
    }
