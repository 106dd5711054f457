"""Names, types and strings in SQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from spark_wan.topology.values import catalog_parts, is_path

IN_LIST = 100
"""Maximum length of an IN list of which Parquet's reader gets the values, and of those that
:func:`is_in` makes. It gets them as nested comparisons, up to
``spark.sql.parquet.pushdown.inFilterThreshold`` values, and of a longer list the bounds. With a
thousand of them, a task that reads them overflows its stack, which ends the executor: in local
mode, the whole session."""


def quoted(name: str) -> str:
    """Return an identifier.

    >>> quoted("a`b")
    '`a``b`'
    """
    return "`" + name.replace("`", "``") + "`"


def literal(text: str) -> str:
    """Return a string, for statements that take no parameters (Delta's DELETE).

    >>> literal("a'b")
    "'a\\\\'b'"
    """
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def is_in(expression: str, literals: Sequence[str]) -> str:
    """Return the condition that an expression has one of some values, in lists that are not too
    long. A file is skipped by the lowest and highest value of each list, so order them.

    >>> is_in("`id`", ["1", "2"])
    '`id` IN (1, 2)'
    """
    lists = [
        f"{expression} IN ({', '.join(literals[place : place + IN_LIST])})"
        for place in range(0, len(literals), IN_LIST)
    ]
    return lists[0] if len(lists) == 1 else f"({' OR '.join(lists)})"


def reference(location: str) -> str:
    """Return a table's name, for a path, a URL or a catalog name.

    >>> reference("main.`my schema`.`t.1`")
    '`main`.`my schema`.`t.1`'
    """
    if is_path(location):
        return f"delta.{quoted(location)}"
    return ".".join(quoted(part) for part in catalog_parts(location))


def sql_type(kind: Any) -> str:
    """Return a type of Spark's schema JSON.

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
