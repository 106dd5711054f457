"""Entries of a topology file, read key by key; every problem is collected with its path."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import fields
from typing import Any, TypeVar

from spark_wan.errors import TopologyError, nearest
from spark_wan.topology.settings import settings_of
from spark_wan.topology.values import parse_each, parse_name

T = TypeVar("T")


MOST_PROBLEMS = 100
"""Problems that are listed, at most: each unknown name is compared with all known ones."""


class Problems:
    """The problems of one file, a line each. The hundredth is the last."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._lines: list[str] = []

    def add(self, path: str, problem: object) -> None:
        where = path.replace("\n", "\\n") or "the file"
        if len(self._lines) < MOST_PROBLEMS:  # whoever reads a value catches the error as its own
            self._lines.append(f"{self._file}: {where}: {problem}")
        if len(self._lines) == MOST_PROBLEMS:
            self.raise_any()

    def raise_any(self) -> None:
        if self._lines:
            raise TopologyError("\n".join(self._lines))


class Entry:
    """One mapping of the file. An invalid value is noted as a problem and read as its default."""

    def __init__(
        self, data: object, path: str, *, known: Collection[str], problems: Problems, name: str = ""
    ) -> None:
        self.name = name
        self.path = path
        self.problems = problems
        self.values = self._mapping(data, path)
        for key in self.values:
            if key not in known:
                self.add_problem(key, f"unknown key; {nearest(key, known)}")

    def add_problem(self, key: str, problem: object) -> None:
        self.problems.add(join_path(self.path, key), problem)

    def read(self, key: str, parse: Callable[[object], T], *, default: T, required: str = "") -> T:
        """Return the value of ``key`` parsed. ``required`` says what to add when it is missing."""
        if key not in self.values:
            if required:
                self.add_problem(key, f"is missing; add {required}")
            return default
        try:
            return parse(self.values[key])
        except ValueError as problem:
            self.add_problem(key, problem)
            return default

    def settings(self, kind: type) -> dict[str, Any]:
        """Return all settings of the dataclass ``kind``: parsed, or their defaults."""
        return {
            name: self.read(name, setting.parse, default=setting.default)
            for name, setting in settings_of(kind).items()
        }

    def items(
        self,
        key: str,
        parse: Callable[[object], str],
        *,
        same: Callable[[str], str] = str,
        required: str = "",
    ) -> tuple[str, ...]:
        """Return the items of the list at ``key``, parsed, without duplicates."""
        empty: list[object] = []
        items = self.read(key, _list, default=empty, required=required)
        valid, invalid = parse_each(items, parse, same)
        for index, problem in invalid:
            self.add_problem(f"{key}[{index}]", problem)
        return valid

    def mapping(
        self, key: str, parse: Callable[[object], str], *, required: str = ""
    ) -> dict[str, str]:
        """Return the mapping at ``key`` with its values parsed."""
        values = self._section(key, required)
        entry = Entry(values, join_path(self.path, key), known=values, problems=self.problems)
        parsed = {name: entry.read(name, parse, default="") for name in values}
        return {name: value for name, value in parsed.items() if value}

    def entries(self, key: str, kind: type) -> Iterator[Entry]:
        """Yield the named entries of a section, whose keys are the fields of ``kind``."""
        known = [field.name for field in fields(kind) if field.name != "name"]
        for name, data in self._section(key, f"{key}: {{name: ...}}").items():
            path = join_path(key, name)
            try:
                parse_name(name)
            except ValueError as problem:
                self.problems.add(path, problem)
            yield Entry(data, path, known=known, problems=self.problems, name=name)

    def _section(self, key: str, required: str) -> dict[str, object]:
        path, empty = join_path(self.path, key), dict[str, object]()
        return self.read(
            key, lambda value: self._mapping(value, path), default=empty, required=required
        )

    def _mapping(self, data: object, path: str) -> dict[str, object]:
        if not isinstance(data, Mapping):
            self.problems.add(path, f"must be a mapping (key: value), not {data!r}")
            return {}
        for key in data:
            if not isinstance(key, str):
                problem = f"the key must be text; write {str(key)!r} in quotes"
                self.problems.add(join_path(path, key), problem)
        return {key: value for key, value in data.items() if isinstance(key, str)}


def _list(value: object) -> list[object]:
    if not isinstance(value, list):
        raise ValueError(f"must be a list such as [a, b], not {value!r}")
    return value


def join_path(path: str, key: object) -> str:
    return f"{path}.{key}" if path else str(key)
