"""Settings of the topology file and options of sink and source, each declared once.

A setting is a field of a dataclass with a default, a parser and a help text. The topology file
writes its name as it is (``batch_size``), an option of sink or source in camelCase (``batchSize``).
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Setting(Generic[T]):
    """One setting. ``parse`` returns the value in its final form, or raises ValueError."""

    name: str
    default: T
    """``dataclasses.MISSING`` for a required setting."""
    parse: Callable[[object], T]
    help: str
    is_integer: bool

    def parse_text(self, text: str) -> T:
        """Parse the text of an option or of the command line, where numbers are text too."""
        is_number = self.is_integer and re.fullmatch("-?[0-9]{1,18}", text.strip())
        return self.parse(int(text) if is_number else text)


def setting(default: T, parse: Callable[[object], object], help: str) -> T:
    """Declare a field of a dataclass as a setting."""
    field: T = dataclasses.field(default=default, metadata={"parse": parse, "help": help})
    return field


def required(parse: Callable[[object], T], help: str) -> T:
    """Declare a field of a dataclass as a setting without a default."""
    field: Any = dataclasses.field(metadata={"parse": parse, "help": help})
    return field  # type: ignore[no-any-return]


def shared(kind: type, name: str) -> Any:
    """Declare a setting of another dataclass here too: same default, parser and help."""
    original = settings_of(kind)[name]
    return setting(original.default, original.parse, original.help)


def store_options() -> dict[str, str]:
    """Declare a field for options of an object store. They may hold secrets: repr omits them."""
    return dataclasses.field(default_factory=dict, repr=False, metadata={"store": True})


def changed_settings(part: Any) -> dict[str, str]:
    """Return the settings of an object that do not have their defaults, as text, by name."""
    return {
        name: _text(getattr(part, name))
        for name, each in settings_of(type(part)).items()
        if getattr(part, name) != each.default
    }


def _text(value: object) -> str:
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, tuple):
        return ", ".join(map(_text, value))
    return str(value)


def settings_of(kind: type) -> dict[str, Setting[Any]]:
    """Return the settings of a dataclass by name."""
    return {
        field.name: Setting(
            field.name,
            field.default,
            field.metadata["parse"],
            field.metadata["help"],
            is_integer="int" in str(field.type),
        )
        for field in dataclasses.fields(kind)
        if "parse" in field.metadata
    }
