"""Names and paths that others wrote: in manifests, and as names of objects in a channel.

They become parts of paths and of messages. So they are checked before the first use.
"""

from __future__ import annotations

import re

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.~-]{0,254}")


def is_safe(name: object) -> bool:
    """Whether a name of a site, sender, table or stream can be a part of a path: letters, digits
    and ``_ . ~ -``, with a letter or digit first."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def shown(name: object) -> str:
    """Return an unsafe name for a message: no control characters, and not endless."""
    text = ascii(name)
    return text if len(text) <= 80 else f"{text[:77]}..."
