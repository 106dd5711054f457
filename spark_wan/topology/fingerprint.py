"""Fingerprint of the settings of a stream, by which two readings of a topology are compared.

A sender records it (:mod:`spark_wan.wire.sender_record`), so that ``status`` can tell whether the
sender runs with the topology that it was given itself.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import MISSING, Field, asdict, fields
from typing import Any

from spark_wan.topology.model import Sender, Table, Topology


def settings_fingerprint(topology: Topology, sender: Sender, table: Table) -> str:
    """Return the fingerprint of the settings with which ``sender`` publishes ``table``, 32
    hexadecimal digits: of the entries of its site, of the sender and of the table.

    The same for the same file on another machine: paths below its folder count from there, settings
    that have their default do not count, nor do the options of stores, which may hold secrets.
    """
    site, folder = topology.site(sender.site), os.path.dirname(os.path.abspath(topology.file))
    entries = [_entry(each, folder) for each in (site, sender, table)]
    content = json.dumps(entries, sort_keys=True, default=str).encode()
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def _entry(part: Any, folder: str) -> dict[str, Any]:
    values = asdict(part)
    return {
        field.name: _placed(values[field.name], folder)
        for field in fields(part)
        if "store" not in field.metadata and values[field.name] != _default(field)
    }


def _default(field: Field[Any]) -> object:
    return field.default if field.default is not MISSING else object()


def _placed(value: Any, folder: str) -> Any:
    """Return a value with paths below ``folder`` relative to it."""
    if isinstance(value, Mapping):
        return {name: _placed(inner, folder) for name, inner in value.items()}
    if isinstance(value, str) and value.startswith(f"{folder}/"):
        return value.removeprefix(folder)
    return value
