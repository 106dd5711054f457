"""Mutations: what is valid, but for something."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

NUMBERS = (0, 1, -1, 2, 7, 127, 255, 256, 2**15, 2**31 - 1, 2**31, 2**32 - 1, 2**53, 2**62)
VALUES: tuple[Any, ...] = (
    *NUMBERS,
    2**63 - 1,
    2**63,
    -(2**63),
    10**400,
    None,
    True,
    False,
    0.5,
    1e308,
    float("inf"),
    float("nan"),
    "",
    "x",
    "../x",
    "/etc/passwd",
    "\0",
    "\ud800",
    "a" * 10_000,
    "%s{0}",
    [],
    {},
    [[]],
    [None],
    ["x", 5],
    {"x": {}},
    {"version": 1},
)


def mutated_bytes(chance: random.Random, data: bytes, others: list[bytes]) -> bytes:
    """Return bytes with one to four things wrong."""
    changed = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        at = chance.randrange(len(changed) + 1)
        end = min(len(changed), at + chance.choice((1, 2, 4, 8, 16, 100, 1000)))
        kind = chance.randrange(8)
        if kind == 0 and at < len(changed):
            changed[at] ^= 1 << chance.randrange(8)
        elif kind == 1:
            del changed[at:]
        elif kind == 2:
            del changed[at:end]
        elif kind == 3:
            changed[at:at] = changed[at:end]
        elif kind == 4:
            other = chance.choice(others)
            start = chance.randrange(len(other) + 1)
            changed[at:end] = other[start : start + chance.choice((1, 8, 100, 10_000))]
        elif kind == 5:
            changed[at:at] = chance.randbytes(chance.choice((1, 4, 8, 64)))
        else:
            size = chance.choice((1, 2, 4, 8))
            at -= at % size if chance.random() < 0.8 else 0
            number = chance.choice(NUMBERS) % (1 << 8 * size)
            if at + size <= len(changed):
                changed[at : at + size] = number.to_bytes(size, chance.choice(("little", "big")))
    return bytes(changed)


def mutated_value(chance: random.Random, value: Any) -> Any:
    """Return a JSON value with one to three things wrong."""
    changed = copy.deepcopy(value)
    for _ in range(chance.choice((1, 1, 2, 3))):
        places = [(None, None), *_places(changed)]
        holder, key = chance.choice(places)
        if holder is None:
            if chance.random() < 0.02:
                return copy.deepcopy(chance.choice(VALUES))
            continue
        kind = chance.randrange(6)
        if kind == 0:
            del holder[key]
        elif kind == 1:
            other, there = chance.choice(places[1:])
            if other is not None:
                holder[key] = copy.deepcopy(other[there])
        elif kind == 2 and isinstance(holder[key], list):
            holder[key] = holder[key] * chance.choice((2, 3, 50))
        elif kind == 3 and isinstance(holder[key], str):
            text = holder[key]
            at = chance.randrange(len(text) + 1)
            holder[key] = (
                text[:at] + chance.choice(("", "/", "..", "\n", "a", "~")) + text[at + 1 :]
            )
        elif kind == 4 and isinstance(holder, dict):
            name = chance.choice(("requires", "x", "../x", "version"))
            holder[name] = copy.deepcopy(chance.choice(VALUES))
        else:
            holder[key] = copy.deepcopy(chance.choice(VALUES))
    return changed


def as_json(chance: random.Random, value: Any) -> bytes:
    """Return JSON of a value; now and then with text that is not quite JSON."""
    text = json.dumps(value, separators=(",", ":"))
    if chance.random() < 0.02:
        text = chance.choice(('{"a":', "[")) * chance.choice((10, 990, 5_000)) + text
    if chance.random() < 0.02:
        text = text.replace("0", "9" * chance.choice((20, 400, 5_000)), 1)
    return text.encode("utf-8", "surrogatepass")


def _places(value: Any) -> list[tuple[Any, Any]]:
    found: list[tuple[Any, Any]] = []
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, (dict, list)):
            keys = list(each) if isinstance(each, dict) else range(len(each))
            found += [(each, key) for key in keys]
            waiting += [each[key] for key in keys]
    return found
