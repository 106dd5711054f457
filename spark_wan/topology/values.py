"""What a value in a topology file or an option may be: each parser returns it as it is used, or raises ValueError."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Literal, cast, get_args

from spark_wan.errors import TopologyError, nearest

OnTableOperation = Literal["hold", "distribute", "skip"]
Source = Literal["table", "sink"]

CHANNEL_SCHEMES = ("file", "memory", "s3", "s3a", "gs", "az", "abfs", "abfss")
STATE_SCHEMES = ("file", "s3", "s3a", "gs", "abfs", "abfss")
"""Of those, what Spark knows as well: the ledger and the checkpoints are Spark's, the sender's memory is not."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/")
_CATALOG_PART = re.compile(r"(\w+)|`((?:[^`]|``)+)`")
_CATALOG_NAME = re.compile(rf"(?:{_CATALOG_PART.pattern})(?:\.(?:{_CATALOG_PART.pattern})){{1,3}}")
_INSTEAD = {
    "dbfs": "write its mount /dbfs/..., or a volume /Volumes/...",
    "hdfs": "write the path of an HDFS mount (NFS gateway), or the URL of an object store",
    "wasb": "write abfs://container@account.dfs.core.windows.net/...",
    "wasbs": "write abfss://container@account.dfs.core.windows.net/...",
}
"""What to write for a scheme that Spark knows and a channel does not."""
_UNKNOWN_TO_SPARK = {
    "az": "Spark does not know it; write abfss://container@account.dfs.core.windows.net/...",
    "memory": "Spark does not know it; write a directory or the URL of an object store",
}


def is_path(location: str) -> bool:
    """Say whether a table's location is a path or URL; otherwise it is a catalog name."""
    return ("/" in location or location.startswith((".", "~"))) and not _CATALOG_NAME.fullmatch(
        location
    )


def catalog_parts(name: str) -> tuple[str, ...]:
    """Return the parts of a catalog name, without the backticks around them.

    >>> catalog_parts("main.`my schema`.`a.``b`")
    ('main', 'my schema', 'a.`b')
    """
    if not _CATALOG_NAME.fullmatch(name):
        raise TopologyError(
            f"{name!r} is not a catalog name; write catalog.schema.table, odd names in backticks"
        )
    return tuple(
        plain or quoted.replace("``", "`") for plain, quoted in _CATALOG_PART.findall(name)
    )


def parse_text(value: object) -> str:
    """Return text that is not empty; ValueError otherwise."""
    if not isinstance(value, str):
        raise ValueError(f"must be text, not {value!r}; give it a value in quotes")
    if not value.strip():
        raise ValueError("is empty; give it a value or leave it out")
    return value


def parse_name(value: object) -> str:
    """Return a name that can be part of a path; ValueError otherwise."""
    if not _NAME.fullmatch(parse_text(value)):
        raise ValueError(
            f"{value!r} is not a name; use letters, digits, _ . - and begin with a letter or digit"
        )
    return str(value)


def parse_channel(value: object, base: str) -> str:
    """Return a channel's URL, or its directory made absolute from ``base``; ValueError when the scheme is unknown."""
    return _stored(value, base, CHANNEL_SCHEMES, _INSTEAD)


def parse_state(value: object, base: str) -> str:
    return _stored(value, base, STATE_SCHEMES, {**_INSTEAD, **_UNKNOWN_TO_SPARK})


def _stored(value: object, base: str, schemes: Collection[str], instead: Mapping[str, str]) -> str:
    """A directory made absolute, or a URL with one of the schemes. ``instead``: what to write for some of the others."""
    place = _place(value, base)
    url = _URL.match(place)
    if url and url[1].lower() in instead:
        raise ValueError(
            f"{value!r}: the scheme {url[1]!r} cannot be used here; {instead[url[1].lower()]}"
        )
    if url and url[1] not in schemes:
        raise ValueError(f"unknown scheme {url[1]!r} in {value!r}; {nearest(url[1], schemes)}")
    return _checked_url(value, place)


def _checked_url(value: object, place: str) -> str:
    url = _URL.match(place)
    if url and "://" not in place:
        raise ValueError(f"{value!r} is not a URL; write {url[1]}://...")
    if url and url[1] == "file" and not place.startswith("file:///"):
        raise ValueError(f"{value!r} is not absolute; write file:///... or a path")
    return place


def parse_each(
    values: Iterable[object], parse: Callable[[object], str], same: Callable[[str], str] = str
) -> tuple[tuple[str, ...], list[tuple[int, str]]]:
    """Return the values that ``parse`` accepts, each once, and index and problem of the others.

    ``same`` gives what two equal values have in common (``str.lower``: names that do not differ by case).
    """
    good: list[str] = []
    wrong: list[tuple[int, str]] = []
    for index, value in enumerate(values):
        try:
            parsed = parse(value)
            if same(parsed) in map(same, good):
                raise ValueError(f"{parsed!r} is given twice; keep one")
            good.append(parsed)
        except ValueError as problem:
            wrong.append((index, str(problem)))
    return tuple(good), wrong


def _place(value: object, base: str) -> str:
    place = parse_text(value)
    return (
        place
        if _URL.match(place)
        else os.path.normpath(os.path.join(base, os.path.expanduser(place)))
    )


def parse_location(value: object, base: str) -> str:
    location = parse_text(value)
    if is_path(location):
        return _table_path(location, base)
    if not _CATALOG_NAME.fullmatch(location):
        raise ValueError(
            f"{value!r} is neither; write a path (./{location}) or a catalog name (catalog.schema.table, odd names in backticks)"
        )
    parts = catalog_parts(location)
    if parts[0].lower() == "delta" and len(parts) == 2 and "/" in parts[1]:
        raise ValueError(f"{value!r} is Spark's way to name a path; write {parts[1]}")
    return location


def _table_path(location: str, base: str) -> str:
    """A table's path or URL. Spark reads it, so any scheme that Spark knows will do."""
    place = _place(location, base)
    url = _URL.match(place)
    if url and url[1] in _UNKNOWN_TO_SPARK:
        raise ValueError(
            f"{location!r}: the scheme {url[1]!r} cannot be used here; {_UNKNOWN_TO_SPARK[url[1]]}"
        )
    return place if url and url[1] == "dbfs" else _checked_url(location, place)


def one_of(value: object, words: Collection[str]) -> str:
    """Return the value when it is one of the words; ValueError otherwise."""
    if value not in words:
        raise ValueError(f"unknown value {value!r}; {nearest(value, words)}")
    return str(value)


def known_name(value: object, kind: str, known: Collection[str]) -> str:
    name = parse_text(value)
    if name not in known:
        raise ValueError(f"unknown {kind} {name!r}; {nearest(name, known)}")
    return name


def parse_on_table_operation(value: object) -> OnTableOperation:
    return cast(OnTableOperation, one_of(value, get_args(OnTableOperation)))


def parse_source(value: object) -> Source:
    return cast(Source, one_of(value, get_args(Source)))
