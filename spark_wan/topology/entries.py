"""An entry of a topology file, read key by key: every problem is collected with its path."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import fields
from typing import Any

from spark_wan.errors import TopologyError, nearest
from spark_wan.topology.model import T
from spark_wan.topology.settings import settings_of
from spark_wan.topology.values import parse_each, parse_name


class Problems:
    """Everything that is wrong with one file, a line each."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._lines: list[str] = []

    def add(self, path: str, problem: object) -> None:
        where = path.replace("\n", "\\n") or "the file"
        self._lines.append(f"{self._file}: {where}: {problem}")

    def raise_any(self) -> None:
        if self._lines:
            raise TopologyError("\n".join(self._lines))


class Entry:
    """One mapping of the file. Values come out parsed; what is wrong is noted and its default stands in for it."""

    def __init__(
        self, data: object, path: str, known: Collection[str], problems: Problems, name: str = ""
    ) -> None:
        self.name = name
        self.path = path
        self.problems = problems
        self.values = self._mapping(data, path)
        for key in self.values:
            if key not in known:
                problems.add(join_path(path, key), f"unknown key; {nearest(key, known)}")

    def read(self, key: str, parse: Callable[[object], T], *, default: T, required: str = "") -> T:
        """Return the value of ``key`` parsed. ``required`` says what to add when it is missing."""
        if key not in self.values:
            if required:
                self.problems.add(join_path(self.path, key), f"is missing; add {required}")
            return default
        try:
            return parse(self.values[key])
        except ValueError as problem:
            self.problems.add(join_path(self.path, key), problem)
            return default

    def settings(self, kind: type) -> dict[str, Any]:
        """Return all settings of the dataclass ``kind``: those that are given parsed, the others with their defaults."""
        return {
            name: self.read(name, each.parse, default=each.default)
            for name, each in settings_of(kind).items()
        }

    def each(
        self,
        key: str,
        parse: Callable[[object], str],
        *,
        same: Callable[[str], str] = str,
        required: str = "",
    ) -> tuple[str, ...]:
        """Return the items of the list at ``key`` parsed, without duplicates; () when there is none."""
        nothing: list[object] = []
        items = self.read(key, _list, default=nothing, required=required)
        good, wrong = parse_each(items, parse, same)
        for index, problem in wrong:
            self.problems.add(f"{join_path(self.path, key)}[{index}]", problem)
        return good

    def mapping(
        self, key: str, parse: Callable[[object], str], *, required: str = ""
    ) -> dict[str, str]:
        """Return the mapping at ``key`` with its values parsed; {} when there is none."""
        path, values = join_path(self.path, key), self._section(key, required)
        entry = Entry(values, path, values, self.problems)
        parsed = {name: entry.read(name, parse, default="") for name in values}
        return {name: value for name, value in parsed.items() if value}

    def entries(self, key: str, kind: type) -> Iterator[Entry]:
        """Yield the named entries of a section; their keys are the fields of the dataclass ``kind``."""
        known = [each.name for each in fields(kind) if each.name != "name"]
        for name, data in self._section(key, f"{key}: {{name: ...}}").items():
            path = join_path(key, name)
            try:
                parse_name(name)
            except ValueError as problem:
                self.problems.add(path, problem)
            yield Entry(data, path, known, self.problems, name)

    def _section(self, key: str, required: str) -> dict[str, object]:
        nothing: dict[str, object] = {}
        return self.read(
            key,
            lambda value: self._mapping(value, join_path(self.path, key)),
            default=nothing,
            required=required,
        )

    def _mapping(self, data: object, path: str) -> dict[str, object]:
        if not isinstance(data, Mapping):
            self.problems.add(path, f"must be a mapping (key: value), not {data!r}")
            return {}
        for key in data:
            if not isinstance(key, str):
                self.problems.add(
                    join_path(path, key), f"the key must be text; write {str(key)!r} in quotes"
                )
        return {key: value for key, value in data.items() if isinstance(key, str)}


def _list(value: object) -> list[object]:
    if not isinstance(value, list):
        raise ValueError(f"must be a list such as [a, b], not {value!r}")
    return value


def join_path(path: str, key: object) -> str:
    return f"{path}.{key}" if path else str(key)
