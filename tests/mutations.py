"""Take a guard out of the package: in a function, some code is replaced by other code.

The function has its qualified name (``Publisher.round``), whatever its module. The code is an expression or some statements, and is compared as
syntax: comments and line breaks do not count. A body that is written ``...`` is any body; in the new code, ``...`` is that body again.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Mutation = tuple[str, str, str]
"""(function, before, after)"""


class DoesNotFitError(Exception):
    """The code is not there, or more than once."""


def mutated(package: Path, mutations: list[Mutation]) -> dict[Path, str]:
    """The files of ``package`` that change, and what is in them then. Nothing is written. Raises DoesNotFitError."""
    trees: dict[Path, ast.Module] = {}
    changed = set()
    for function, before, after in mutations:
        wanted, new = _parsed(before, after)
        defined = re.compile(rf"\b(def|class) {function.rpartition('.')[2]}\b")
        for path in package.rglob("*.py"):
            if path not in trees and defined.search(text := path.read_text()):
                trees[path] = ast.parse(text)
        found = [
            (path, *place)
            for path, tree in trees.items()
            for place in _places(tree, function, wanted)
        ]
        assert before != after, f"{function}: the new code is the old one"
        if len(found) != 1:
            raise DoesNotFitError(
                f"{function} has {len(found)} times what is to be changed once: {before}"
            )
        [(path, parent, field, start, bodies)] = found
        new = [_filled(each, bodies) for each in new]
        if start is None:
            [new_value] = new
            setattr(parent, field, new_value)
        else:
            getattr(parent, field)[start : start + len(wanted)] = new
        changed.add(path)
    return {path: ast.unparse(ast.fix_missing_locations(trees[path])) for path in changed}


def _parsed(before: str, after: str) -> tuple[list[Any], list[Any]]:
    """Two expressions, or two lists of statements."""
    try:
        return [ast.parse(before, mode="eval").body], [ast.parse(after, mode="eval").body]
    except SyntaxError:
        return ast.parse(before).body, ast.parse(after).body


def _places(
    tree: ast.Module, function: str, wanted: list[Any]
) -> Iterator[tuple[Any, str, int | None, list[Any]]]:
    """Where the code is: a node, its field, the place in the field's list, and the bodies that ``...`` stands for."""
    for scope in _named(tree, function.split(".")):
        for parent in ast.walk(scope):
            for field, value in ast.iter_fields(parent):
                pieces = (
                    enumerate(_slices(value, len(wanted)))
                    if isinstance(value, list)
                    else [(None, [value])]
                )
                for start, piece in pieces:
                    bodies: list[Any] = []
                    if _matches(piece, wanted, bodies):
                        yield parent, field, start, bodies


def _named(node: ast.AST, names: list[str]) -> Iterator[ast.AST]:
    """The functions and classes with a qualified name below ``node``."""
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


def _matches(found: Any, wanted: Any, bodies: list[Any]) -> bool:
    """Whether both are equal as syntax, whether read or assigned to."""
    if isinstance(wanted, ast.expr_context):
        return isinstance(found, ast.expr_context)
    if isinstance(wanted, ast.AST):
        return type(found) is type(wanted) and all(
            _matches(getattr(found, name, None), getattr(wanted, name, None), bodies)
            for name in wanted._fields
        )
    if isinstance(wanted, list):
        if _is_any_body(wanted) and isinstance(found, list):
            bodies.append(found)
            return True
        return (
            isinstance(found, list)
            and len(found) == len(wanted)
            and all(_matches(one, other, bodies) for one, other in zip(found, wanted, strict=True))
        )
    return type(found) is type(wanted) and bool(found == wanted)


def _is_any_body(statements: list[Any]) -> bool:
    return (
        len(statements) == 1
        and isinstance(statements[0], ast.Expr)
        and _is_ellipsis(statements[0].value)
    )


def _is_ellipsis(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is ...


def _filled(node: Any, bodies: list[Any]) -> Any:
    """``node`` with the bodies that its ``...`` stand for, in their order."""
    for parent in ast.walk(node):
        for field, value in ast.iter_fields(parent):
            if isinstance(value, list) and _is_any_body(value):
                setattr(parent, field, bodies.pop(0))
    return node
