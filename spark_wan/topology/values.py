"""Values of a topology file and of options.

Each parser returns the value in its final form, or raises ValueError.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Literal, cast, get_args

from spark_wan.channels.registry import CHANNELS
from spark_wan.errors import TopologyError, nearest
from spark_wan.units import parse_count
from spark_wan.wire.signature import KeyReference

OnAckTimeout = Literal["wait", "continue"]
OnFailure = Literal["dead_letter", "retry"]
OnQueueLimit = Literal["block", "hold", "drop_reader"]
OnTableOperation = Literal["hold", "distribute", "skip"]
Optimize = Literal["latency", "throughput"]
OrderPolicy = Literal["commit"]
Source = Literal["table", "sink"]
Sync = Literal["auto", "delayed", "manual"]
SyncFrom = Literal["any", "primary"]

STATE_SCHEMES = ("file", "s3", "s3a", "gs", "abfs", "abfss")
"""The channel schemes that Spark knows too: it writes the ledger and its own checkpoints."""

MOST_PRIORITY = 100
"""Of a table; and the least is as far below 0."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_CATALOG_PART = re.compile(r"(\w+)|`((?:[^`]|``)+)`")
_CATALOG_NAME = re.compile(rf"(?:{_CATALOG_PART.pattern})(?:\.(?:{_CATALOG_PART.pattern})){{1,3}}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_INSTEAD = {
    "dbfs": "write the URL of the object store (s3://, abfss://, gs://)",
    "hdfs": "write the path of an HDFS mount (NFS gateway), or the URL of an object store",
    "wasb": "write abfs://container@account.dfs.core.windows.net/...",
    "wasbs": "write abfss://container@account.dfs.core.windows.net/...",
}
"""What to write for a scheme that Spark knows and a channel does not."""
_URL = re.compile(
    rf"([A-Za-z][A-Za-z0-9+.-]*)(?=:/)|({'|'.join({**CHANNELS, **_INSTEAD})})(?=:)", re.IGNORECASE
)
"""A scheme: any before ``:/``, and a known one before ``:``, which begins no path."""
_WEAKER_ORDERS = ("key", "thread", "partition", "none")
"""Order policies of gateway senders, and none."""
_UNKNOWN_TO_SPARK = {
    **dict.fromkeys(
        CHANNELS.keys() - set(STATE_SCHEMES),
        "Spark does not know it; write a directory or the URL of an object store",
    ),
    "az": "Spark does not know it; write abfss://container@account.dfs.core.windows.net/...",
}


def is_path(location: str) -> bool:
    """Return whether a table's location is a path or URL; otherwise it is a catalog name."""
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


def parse_flag(value: object) -> bool:
    """Return true or false; ValueError for anything else."""
    if not isinstance(value, bool):
        raise ValueError(f"must be true or false, not {value!r}")
    return value


def parse_name(value: object) -> str:
    """Return a name that can be part of a path; ValueError otherwise."""
    if not _NAME.fullmatch(parse_text(value)):
        raise ValueError(
            f"{value!r} is not a name; use letters, digits, _ . - and begin with a letter or digit"
        )
    return str(value)


def parse_channel(value: object, base: str) -> str:
    """Return a channel's URL, or its directory as an absolute path; ``base``: of relative ones."""
    return _parse_place(value, base, tuple(CHANNELS), _INSTEAD)


def parse_state(value: object, base: str) -> str:
    """Return a state's URL, or its directory as an absolute path; ``base``: of relative ones."""
    return _parse_place(value, base, STATE_SCHEMES, {**_INSTEAD, **_UNKNOWN_TO_SPARK})


def parse_location(value: object, base: str) -> str:
    """Return a table's catalog name, URL or absolute path. Any scheme that Spark knows will do."""
    location = parse_text(value)
    if is_path(location):
        return _parse_place(location, base, None, _UNKNOWN_TO_SPARK)
    if not _CATALOG_NAME.fullmatch(location):
        raise ValueError(
            f"{value!r} is neither a path nor a catalog name; write a path (./{location}) or "
            "catalog.schema.table (with odd names in backticks)"
        )
    parts = catalog_parts(location)
    if parts[0].lower() == "delta" and len(parts) == 2 and "/" in parts[1]:
        raise ValueError(f"{value!r} is Spark's way to name a path; write {parts[1]}")
    return location


def _parse_place(
    value: object, base: str, schemes: Collection[str] | None, instead: Mapping[str, str]
) -> str:
    """Return a directory as an absolute path, or a URL with one of the schemes (None: any).

    ``instead``: refused schemes, and what to write for each.
    """
    place = parse_text(value)
    url = _URL.match(place)
    if not url:
        return os.path.normpath(os.path.join(base, os.path.expanduser(place)))
    scheme = url[0]
    refused = scheme if schemes is None else scheme.lower()
    if refused in instead:
        raise ValueError(
            f"{value!r}: the scheme {scheme!r} cannot be used here; {instead[refused]}"
        )
    if schemes is None and scheme == "dbfs":
        return place
    if schemes is not None and scheme not in schemes:
        raise ValueError(f"unknown scheme {scheme!r} in {value!r}; {nearest(scheme, schemes)}")
    if "://" not in place:
        raise ValueError(f"{value!r} is not a URL; write {scheme}://...")
    if scheme == "file" and not place.startswith("file:///"):
        raise ValueError(f"{value!r} is not absolute; write file:///... or a path")
    return place


def parse_each(
    values: Iterable[object], parse: Callable[[object], str], normalize: Callable[[str], str] = str
) -> tuple[tuple[str, ...], list[tuple[int, str]]]:
    """Return the values that ``parse`` accepts, each once, and index and problem of the others.

    Two values are equal when ``normalize`` returns one result for both (``str.lower``: names that
    differ by case only).
    """
    valid: list[str] = []
    invalid: list[tuple[int, str]] = []
    for index, value in enumerate(values):
        try:
            parsed = parse(value)
            if normalize(parsed) in map(normalize, valid):
                raise ValueError(f"{parsed!r} is given twice; keep one")
            valid.append(parsed)
        except ValueError as problem:
            invalid.append((index, str(problem)))
    return tuple(valid), invalid


def one_of(value: object, words: Collection[str]) -> str:
    """Return the value when it is one of the words; ValueError otherwise."""
    if value not in words:
        raise ValueError(f"unknown value {value!r}; {nearest(value, words)}")
    return str(value)


def known_name(value: object, kind: str, known: Collection[str]) -> str:
    """Return a name that is ``known``; ValueError otherwise. ``kind`` says what it names."""
    name = parse_text(value)
    if name not in known:
        raise ValueError(f"unknown {kind} {name!r}; {nearest(name, known)}")
    return name


def parse_on_ack_timeout(value: object) -> OnAckTimeout:
    return cast(OnAckTimeout, one_of(value, get_args(OnAckTimeout)))


def parse_table_priority(value: object) -> int:
    """Return a priority of a table, from -100 to 100; ValueError otherwise."""
    priority = parse_count(value, minimum=-MOST_PRIORITY)
    if priority > MOST_PRIORITY:
        raise ValueError(f"must be {MOST_PRIORITY} or less, not {priority}")
    return priority


def parse_on_failure(value: object) -> OnFailure:
    return cast(OnFailure, one_of(value, get_args(OnFailure)))


def parse_optimize(value: object) -> Optimize:
    return cast(Optimize, one_of(value, get_args(Optimize)))


def parse_order_policy(value: object) -> OrderPolicy:
    """Return an order policy; ValueError otherwise, also for those of other products."""
    if value in _WEAKER_ORDERS:
        raise ValueError(
            f"{value!r} is not supported: write commit, or leave it out. Sites see whole commits "
            "in their order, and so the events of each key, thread and partition, too. A weaker "
            "order would gain nothing, since an apply uses all cores as it is."
        )
    return cast(OrderPolicy, one_of(value, get_args(OrderPolicy)))


def parse_on_queue_limit(value: object) -> OnQueueLimit:
    return cast(OnQueueLimit, one_of(value, get_args(OnQueueLimit)))


def parse_on_table_operation(value: object) -> OnTableOperation:
    return cast(OnTableOperation, one_of(value, get_args(OnTableOperation)))


def parse_source(value: object) -> Source:
    return cast(Source, one_of(value, get_args(Source)))


def parse_sync(value: object) -> Sync:
    return cast(Sync, one_of(value, get_args(Sync)))


def parse_sync_from(value: object) -> SyncFrom:
    return cast(SyncFrom, one_of(value, get_args(SyncFrom)))


def parse_signing_keys(value: object) -> tuple[KeyReference, ...]:
    """Return one or two references to keys. No error shows the value: it may be a key itself."""
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, list) or not 1 <= len(items) <= 2:
        raise ValueError(
            "must be a list of one or two references to keys, such as [env:WAN_KEY, file:/run/key]"
        )
    references = tuple(_key_reference(each) for each in items)
    if len(set(references)) != len(references):
        raise ValueError(f"{references[0]} is given twice; keep one")
    return references


def _key_reference(value: object) -> KeyReference:
    kind, colon, place = value.strip().partition(":") if isinstance(value, str) else ("", "", "")
    place = place.removeprefix("//") if kind == "file" else place
    valid = (kind == "env" and _VARIABLE.fullmatch(place)) or (
        kind == "file" and place.startswith("/") and place.isprintable()
    )
    if not colon or not valid:
        raise ValueError(
            "say where the key is: env:NAME (an environment variable) or file:/path (absolute). "
            "The key itself must not be in this file; if it is, replace the key. (It is not "
            "repeated here.)"
        )
    return KeyReference(kind, place)


def parse_accept_from(value: object) -> tuple[str, ...]:
    """Return names of sites."""
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, list):
        raise ValueError(f"must be a list of sites such as [a, b], not {value!r}")
    valid, invalid = parse_each(
        (each.strip() if isinstance(each, str) else each for each in items), parse_name
    )
    if invalid:
        raise ValueError("; ".join(f"[{index}] {problem}" for index, problem in invalid))
    if not valid:
        raise ValueError("is empty; name a site, or leave it out to accept all")
    return valid
