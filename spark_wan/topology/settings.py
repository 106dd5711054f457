"""Settings: what a user may set in a topology file or as an option, each declared once.

A setting is a field of a dataclass with a default, a parser and a help text. The topology file writes its name as it
is (``batch_size``), an option of sink and source in camelCase (``batchSize``).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Setting(Generic[T]):
    """One setting. ``parse`` returns the value as it is used, or raises ValueError."""

    name: str
    default: T
    """``dataclasses.MISSING``: it must be given."""
    parse: Callable[[object], T]
    help: str


def setting(default: T, parse: Callable[[object], object], help: str) -> T:
    """Declare a field of a dataclass as a setting."""
    declared: Any = dataclasses.field(default=default, metadata={"parse": parse, "help": help})
    return declared  # type: ignore[no-any-return]


def required(parse: Callable[[object], T], help: str) -> T:
    """Declare a field of a dataclass as a setting without a default."""
    declared: Any = dataclasses.field(metadata={"parse": parse, "help": help})
    return declared  # type: ignore[no-any-return]


def shared(kind: type, name: str) -> Any:
    """Declare the setting ``name`` of another dataclass once more: same default, parser and help."""
    found = settings_of(kind)[name]
    return setting(found.default, found.parse, found.help)


def settings_of(kind: type) -> dict[str, Setting[Any]]:
    """Return the settings of a dataclass by name."""
    return {
        each.name: Setting(each.name, each.default, each.metadata["parse"], each.metadata["help"])
        for each in dataclasses.fields(kind)
        if "parse" in each.metadata
    }
