"""What the types of a target's columns demand of values, at every depth: NOT NULL and lengths."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    CharType,
    DataType,
    MapType,
    StructField,
    StructType,
    VarcharType,
)

from spark_wan.delta.sql import quoted
from spark_wan.events.columns import CHAR_VARCHAR

Violation = tuple[str, Column]
"""A cause, and whether a row has it."""


@dataclass(frozen=True)
class _Part:
    """A column, or a field or element of one at any depth."""

    path: str
    kind: DataType
    value: Column
    nullable: bool


_Rule = Callable[[_Part], Iterator[Violation]]


def nulls(own: StructField) -> list[Violation]:
    """Return where a column must not be null, at every depth."""

    def null(part: _Part) -> Iterator[Violation]:
        if not part.nullable:
            yield f"null in NOT NULL column {part.path}", part.value.isNull()

    return _violations(null, own, own.dataType)


def too_long_values(own: StructField) -> list[Violation]:
    """Return where a column's text must not be longer than declared, at every depth."""

    def too_long(part: _Part) -> Iterator[Violation]:
        if isinstance(part.kind, (CharType, VarcharType)):
            cause = f"too long for {part.kind.simpleString()} column {part.path}"
            yield cause, F.length(part.value) > part.kind.length

    return _violations(too_long, own, declared(own))


def _violations(rule: _Rule, own: StructField, kind: DataType) -> list[Violation]:
    whole = _Part(own.name, kind, F.col(quoted(own.name)), own.nullable)
    return list(_walk(rule, whole, inside=False))


def _walk(rule: _Rule, part: _Part, inside: bool) -> Iterator[Violation]:
    """Apply a rule at every depth of a column. ``inside``: inside an array or a map."""

    def in_any(array: Column, name: str, kind: DataType, nullable: bool) -> Iterator[Violation]:
        path = f"{part.path}.{name}"
        return _in_any(
            array, lambda item: _walk(rule, _Part(path, kind, item, nullable), inside=True)
        )

    yield from rule(part)
    kind, value = part.kind, part.value
    if isinstance(kind, StructType):
        for f in kind.fields:
            field = _Part(f"{part.path}.{f.name}", f.dataType, value.getField(f.name), f.nullable)
            # Delta refuses a null struct with NOT NULL fields, but not inside arrays and maps.
            yield from (
                (cause, value.isNotNull() & broken if inside else broken)
                for cause, broken in _walk(rule, field, inside)
            )
    elif isinstance(kind, ArrayType):
        yield from in_any(value, "element", kind.elementType, kind.containsNull)
    elif isinstance(kind, MapType):
        yield from in_any(F.map_keys(value), "key", kind.keyType, True)
        yield from in_any(F.map_values(value), "value", kind.valueType, kind.valueContainsNull)


def _in_any(array: Column, judge: Callable[[Column], Iterator[Violation]]) -> Iterator[Violation]:
    """Return what ``judge`` finds in any element of an array."""

    def broken_at(place: int) -> Callable[[Column], Column]:
        return lambda item: F.coalesce([*judge(item)][place][1], F.lit(False))

    for place, (cause, _) in enumerate(judge(F.lit(None))):
        yield cause, F.exists(array, broken_at(place))


def chars(path: str, here: DataType, origin: DataType) -> Iterator[tuple[str, str, str]]:
    """Yield the chars here that are something else at the origin, at every depth."""
    if isinstance(here, CharType):
        if here != origin:
            yield path, here.simpleString(), origin.simpleString()
    elif isinstance(here, StructType) and isinstance(origin, StructType):
        theirs = {f.name.lower(): f.dataType for f in origin.fields}
        for f in here.fields:
            if f.name.lower() in theirs:
                yield from chars(f"{path}.{f.name}", f.dataType, theirs[f.name.lower()])
    elif isinstance(here, ArrayType) and isinstance(origin, ArrayType):
        yield from chars(f"{path}.element", here.elementType, origin.elementType)
    elif isinstance(here, MapType) and isinstance(origin, MapType):
        yield from chars(f"{path}.key", here.keyType, origin.keyType)
        yield from chars(f"{path}.value", here.valueType, origin.valueType)


def declared(entry: StructField) -> DataType:
    """Return a column's type with the lengths of its chars and varchars."""
    text = (entry.metadata or {}).get(CHAR_VARCHAR)
    return DataType.fromDDL(text) if text else entry.dataType
