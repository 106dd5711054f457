"""Which columns of two versions of a table are compared, and as which types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from spark_wan.events.columns import (
    FieldJson,
    SchemaJson,
    TypeJson,
    char_lengths,
    column_path,
    differences,
    widens,
)


@dataclass(frozen=True)
class ComparedColumns:
    """The columns that two tables have in common, named as at the origin."""

    flat: tuple[str, ...]
    """Columns whose values SQL hashes."""
    nested: tuple[str, ...]
    """Structs, arrays, maps and variants."""
    casts: Mapping[str, str] = field(default_factory=dict)
    """Column -> the wider of two types, as Spark's JSON names it."""
    chars: Mapping[str, int] = field(default_factory=dict)
    """Column -> the length to which it is padded."""
    floats: frozenset[str] = frozenset()
    """Flat columns in which -0.0 and 0.0 are told apart."""
    only_at_origin: tuple[str, ...] = ()
    not_compared: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.flat, *self.nested)


def compared_columns(origin: SchemaJson, target: SchemaJson) -> ComparedColumns:
    """Return the columns to compare. Those that only the target has are its own affair."""
    there = {entry["name"].lower(): entry for entry in target["fields"]}
    changes = differences(origin, target)
    casts, unfit = {}, {}
    for path, was, now in changes.retyped:
        wider = _wider(was, now)
        if wider is None:
            unfit[path[0]] = f"{column_path(path)}: {was} at the origin, {now} at the target"
        elif len(path) == 1:
            casts[path[0]] = wider
    shared = {
        entry["name"]: entry
        for entry in origin["fields"]
        if entry["name"].lower() in there and entry["name"] not in unfit
    }
    kinds = {name: _kind(entry, there[name.lower()]) for name, entry in shared.items()}
    chars = {**char_lengths(target), **char_lengths(origin)}
    return ComparedColumns(
        flat=tuple(name for name, kind in kinds.items() if is_flat(kind)),
        nested=tuple(name for name, kind in kinds.items() if kind != "void" and not is_flat(kind)),
        casts=casts,
        chars={name: chars[name] for name in shared if name in chars},
        floats=frozenset(n for n, kind in kinds.items() if kind in ("float", "double")),
        only_at_origin=tuple(column_path(path) for path in changes.dropped),
        not_compared=tuple(unfit.values()),
    )


def _kind(origin: FieldJson, target: FieldJson) -> TypeJson:
    """Return the type as which a column is compared, as far as its kind matters."""
    kind: TypeJson = target["type"] if origin["type"] == "void" else origin["type"]
    return kind


def is_flat(kind: TypeJson) -> bool:
    """Whether SQL hashes values of a type as they are."""
    return isinstance(kind, str) and kind not in ("variant", "void")


def _wider(was: str, now: str) -> str | None:
    """Return the one of two types that has the values of both; None: they do not fit."""
    texts = ("string", "char(", "varchar(")
    if was.startswith(texts) and now.startswith(texts):
        return "string"
    if was == "void" or widens(was, now):
        return now
    return was if now == "void" or widens(now, was) else None


def fitted_type(own: pa.DataType, other: pa.DataType, keeps: bool) -> pa.DataType:
    """Return a type of Arrow as which values of ``own`` are hashed, to be comparable with those of
    ``other``. Hashes do not depend on the order of fields, nor on the width of numbers.

    ``keeps``: keep fields that ``other`` does not have.
    """
    types = pa.types
    if types.is_struct(own) and types.is_struct(other):
        theirs = {each.name.lower(): each.type for each in other}
        return pa.struct(
            [
                each.with_type(
                    fitted_type(each.type, theirs.get(each.name.lower(), each.type), keeps)
                )
                for each in own
                if keeps or each.name.lower() in theirs
            ]
        )
    if types.is_map(own) and types.is_map(other):
        key = fitted_type(own.key_type, other.key_type, keeps)
        item = fitted_type(own.item_type, other.item_type, keeps)
        return pa.map_(own.key_field.with_type(key), own.item_field.with_type(item))
    if types.is_list(own) and types.is_list(other):
        inner = fitted_type(own.value_type, other.value_type, keeps)
        return pa.list_(own.value_field.with_type(inner))
    return other if types.is_date32(own) and types.is_timestamp(other) else own


def differ_in_columns(before: SchemaJson, after: SchemaJson) -> list[str]:
    """Return what is different in the columns of two versions of a table, for people."""
    changes = differences(before, after)
    return [
        *(f"{column_path(path)} was added" for path, _ in changes.added),
        *(f"{column_path(path)} was dropped or renamed" for path in changes.dropped),
        *(f"{column_path(path)} was {was} and is {now}" for path, was, now in changes.retyped),
    ]
