"""Take a guard out of the package: replace some code in a function by other code.

The function has its qualified name (``Publisher.round``), whatever its module. The code is an
expression or some statements, compared as syntax: comments and line breaks do not count. A body
written ``...`` matches any body; in the new code, ``...`` is that body.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

Mutation = tuple[str, str, str]
"""(function, before, after)"""


class DoesNotFitError(Exception):
    """The code is missing, or occurs more than once."""


def mutated(package: Path, mutations: list[Mutation]) -> dict[Path, str]:
    """Return the files of ``package`` that change, with their new content. Writes nothing.
    Raises DoesNotFitError.
    """
    trees: dict[Path, ast.Module] = {}
    changed = set()
    for function, before, after in mutations:
        pattern, new = _parsed(before, after)
        for path in _defining(package).get(function.rpartition(".")[2], ()):
            if path not in trees:
                trees[path] = ast.parse(path.read_text())
        found = [
            (path, *place)
            for path, tree in trees.items()
            for place in _places(tree, function, pattern)
        ]
        assert before != after, f"{function}: the new code is the old one"
        if len(found) != 1:
            raise DoesNotFitError(
                f"{function} has this code {len(found)} times instead of once: {before}"
            )
        [(path, parent, field, start, bodies)] = found
        new = [_filled(each, bodies) for each in new]
        if start is None:
            [new_value] = new
            setattr(parent, field, new_value)
        else:
            getattr(parent, field)[start : start + len(pattern)] = new
        changed.add(path)
    return {path: ast.unparse(ast.fix_missing_locations(trees[path])) for path in changed}


@cache
def _defining(package: Path) -> dict[str, set[Path]]:
    """Return the files of a package by the functions and classes that they define. No mutation
    changes these."""
    found: dict[str, set[Path]] = {}
    for path in package.rglob("*.py"):
        for name in re.findall(r"\b(?:def|class) (\w+)", path.read_text()):
            found.setdefault(name, set()).add(path)
    return found


def _parsed(before: str, after: str) -> tuple[list[Any], list[Any]]:
    """Parse two expressions, or two lists of statements."""
    try:
        return [_expression(before)], [_expression(after)]
    except SyntaxError:
        return ast.parse(before).body, ast.parse(after).body


def _expression(code: str) -> ast.expr:
    """Parse an expression, which may go on over several lines."""
    return ast.parse(f"({code}\n)", mode="eval").body


def _places(
    tree: ast.Module, function: str, pattern: list[Any]
) -> Iterator[tuple[Any, str, int | None, list[Any]]]:
    """Yield where the code is: node, field, index in the field's list, and the bodies matched by
    ``...``.
    """
    for scope in _named(tree, function.split(".")):
        for parent in ast.walk(scope):
            for field, value in ast.iter_fields(parent):
                pieces = (
                    enumerate(_slices(value, len(pattern)))
                    if isinstance(value, list)
                    else [(None, [value])]
                )
                for start, piece in pieces:
                    bodies: list[Any] = []
                    if _matches(piece, pattern, bodies):
                        yield parent, field, start, bodies


def _named(node: ast.AST, names: list[str]) -> Iterator[ast.AST]:
    """Yield the functions and classes with a qualified name below ``node``."""
    if not names:
        yield node
        return
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, (ast.FunctionDef, ast.ClassDef)):
            yield from _named(child, names)
        elif child.name == names[0]:
            yield from _named(child, names[1:])


def _slices(values: list[Any], length: int) -> Iterator[list[Any]]:
    return (values[start : start + length] for start in range(len(values) - length + 1))


def _matches(found: Any, pattern: Any, bodies: list[Any]) -> bool:
    """Whether both are equal as syntax, whether read or assigned to."""
    if isinstance(pattern, ast.expr_context):
        return isinstance(found, ast.expr_context)
    if isinstance(pattern, ast.AST):
        return type(found) is type(pattern) and all(
            _matches(getattr(found, name, None), getattr(pattern, name, None), bodies)
            for name in pattern._fields
        )
    if isinstance(pattern, list):
        if _is_any_body(pattern) and isinstance(found, list):
            bodies.append(found)
            return True
        return (
            isinstance(found, list)
            and len(found) == len(pattern)
            and all(_matches(one, other, bodies) for one, other in zip(found, pattern, strict=True))
        )
    return type(found) is type(pattern) and bool(found == pattern)


def _is_any_body(statements: list[Any]) -> bool:
    return (
        len(statements) == 1
        and isinstance(statements[0], ast.Expr)
        and _is_ellipsis(statements[0].value)
    )


def _is_ellipsis(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is ...


def _filled(node: Any, bodies: list[Any]) -> Any:
    """Return ``node`` with the bodies that its ``...`` stand for, in order."""
    for parent in ast.walk(node):
        for field, value in ast.iter_fields(parent):
            if isinstance(value, list) and _is_any_body(value):
                setattr(parent, field, bodies.pop(0))
    return node
