"""Names, paths and texts that others wrote: in records, and as names of objects in a channel.

They become parts of paths and of messages. So they are checked before the first use.
"""

from __future__ import annotations

import re
import unicodedata

_UNSEEN = {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}
"""Categories of Unicode: control, format, surrogate and private characters, line separators."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.~-]{0,254}")


def is_safe(name: object) -> bool:
    """Whether a name of a site, sender, table or stream can be a part of a path: letters, digits
    and ``_ . ~ -``, with a letter or digit first."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def shown(name: object) -> str:
    """Return an unsafe name for a message: no control characters, and not endless."""
    text = ascii(name)
    return text if len(text) <= 80 else f"{text[:77]}..."


def printable(text: str) -> str:
    """Return a text for a terminal: U+FFFD in place of what could move the cursor, set colours or
    turn the direction of what follows.

    >>> printable("held: \x1b[2J gone")
    'held: \ufffd[2J gone'
    """
    return "".join(
        "\ufffd"
        if character not in "\n\t" and unicodedata.category(character) in _UNSEEN
        else character
        for character in text
    )
