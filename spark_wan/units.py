"""Sizes, durations and counts, as the topology file and the options of sink and source write them.

>>> parse_bytes("8MiB"), parse_bytes("500kB"), parse_seconds("500ms"), parse_seconds(2)
(8388608, 500000, 0.5, 2.0)
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from decimal import Decimal

_QUANTITY = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?) ?([A-Za-z]*)")
_ENDLESS = 1e15  # seconds; what is not below it (infinity, NaN) is a mistake
_BYTES = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
}
_SECONDS = {
    "": Decimal(1),
    "ms": Decimal("0.001"),
    "s": Decimal(1),
    "m": Decimal(60),
    "h": Decimal(3600),
    "d": Decimal(86400),
}


def parse_count(value: object, minimum: int = 1) -> int:
    """Return a whole number of at least ``minimum``. ``True`` is not a number.

    Raises ValueError when it is anything else, text included.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"must be a whole number, not {value!r}")
    if value < minimum:
        raise ValueError(f"must be {minimum} or more, not {value}")
    return value


def parse_bytes(value: object) -> int:
    """Return a size in bytes, at least 1, from a whole number or text with a unit.

    Units, in any case: B, kB, MB, GB (powers of 1000) and KiB, MiB, GiB (powers of 1024).

    Raises ValueError when it is neither, or not a whole number of bytes.
    """
    if isinstance(value, str):
        size = _quantity(value, _BYTES)
        if size is None:
            raise ValueError(f"must be a size such as 8388608, 500kB or 8MiB, not {value!r}")
        if size % 1:
            raise ValueError(f"must be a whole number of bytes, not {value!r}")
        value = int(size)
    return parse_count(value)


def parse_seconds(value: object, zero: bool = False) -> float:
    """Return a duration in seconds from a number (seconds) or text with a unit: ms, s, m, h, d.

    ``zero`` says whether 0 is allowed.

    Raises ValueError when it is neither, negative, not finite, or 0 where that is not allowed.
    """
    if isinstance(value, str):
        amount = _quantity(value, _SECONDS)
    elif isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < _ENDLESS:
        amount = Decimal(value)
    else:
        amount = None
    if amount is None:
        raise ValueError(f"must be seconds or a duration such as 500ms, 2s or 1m, not {value!r}")
    if amount < 0 or (amount == 0 and not zero):
        raise ValueError(f"must be {'0 or more' if zero else 'above 0'}, not {value!r}")
    return float(amount)


def _quantity(text: str, units: Mapping[str, Decimal | int]) -> Decimal | None:
    match = _QUANTITY.fullmatch(text.strip())
    if match is None or match[2].lower() not in units:
        return None
    return Decimal(match[1]) * units[match[2].lower()]


def milliseconds() -> int:
    """Return the milliseconds since 1970 UTC."""
    return time.time_ns() // 1_000_000


def format_bytes(size: int) -> str:
    """Return a size as text.

    >>> format_bytes(512), format_bytes(24_600_000)
    ('512 B', '24.6 MB')
    """
    if size < 1_000:
        return f"{size} B"
    return f"{size / 1e3:,.1f} kB" if size < 1e6 else f"{size / 1e6:,.1f} MB"


def format_duration(ms: int) -> str:
    """Return a duration in milliseconds as text, in at most two units.

    >>> format_duration(250), format_duration(3_200), format_duration(45_900)
    ('250 ms', '3.2 s', '45 s')
    >>> format_duration(5 * 60_000), format_duration(7_500_000), format_duration(30 * 3_600_000)
    ('5 min', '2 h 5 min', '1 d 6 h')
    """
    if ms < 1_000:
        return f"{max(0, ms)} ms"
    if ms < 10_000:
        return f"{ms // 100 / 10:g} s"
    seconds = ms // 1_000
    for size, unit, smaller, smaller_unit in (
        (86_400, "d", 3_600, "h"),
        (3_600, "h", 60, "min"),
        (60, "min", 0, ""),
    ):
        if seconds >= size:
            rest = seconds % size // smaller if smaller else 0
            whole = f"{seconds // size:,} {unit}"
            return f"{whole} {rest} {smaller_unit}" if rest else whole
    return f"{seconds} s"
