"""Names, types and texts as SQL writes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from spark_wan.topology.values import catalog_parts, is_path


def quoted(name: str) -> str:
    """An identifier for SQL.

    >>> quoted("a`b")
    '`a``b`'
    """
    return "`" + name.replace("`", "``") + "`"


def literal(text: str) -> str:
    """A string for SQL, where a statement takes no parameters (Delta's DELETE).

    >>> literal("a'b")
    "'a\\\\'b'"
    """
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def reference(location: str) -> str:
    """A table's name in SQL, for a path, a URL or a catalog name.

    >>> reference("main.`my schema`.`t.1`")
    '`main`.`my schema`.`t.1`'
    """
    if is_path(location):
        return f"delta.{quoted(location)}"
    return ".".join(quoted(part) for part in catalog_parts(location))


def sql_type(kind: Any) -> str:
    """A type of Spark's schema JSON in SQL.

    >>> sql_type({"type": "struct", "fields": [{"name": "a-b", "type": "integer"}]})
    'struct<`a-b`: integer>'
    """
    if not isinstance(kind, Mapping):
        return str(kind)
    if kind["type"] == "array":
        return f"array<{sql_type(kind['elementType'])}>"
    if kind["type"] == "map":
        return f"map<{sql_type(kind['keyType'])}, {sql_type(kind['valueType'])}>"
    fields = (f"{quoted(entry['name'])}: {sql_type(entry['type'])}" for entry in kind["fields"])
    return f"struct<{', '.join(fields)}>"


def select_columns(names: Sequence[str]) -> list[Any]:
    """Columns by name, whatever characters they have."""
    from pyspark.sql import functions as F

    return [F.col(quoted(name)) for name in names]
