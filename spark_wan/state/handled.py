"""What people have done about the dead letters of a site (:mod:`spark_wan.wire.handled`)."""

from __future__ import annotations

from collections.abc import Mapping

from spark_wan.state.objects import StateObjects
from spark_wan.wire.handled import Handled, LetterKey

_NAME = "handled"


class HandledLetters:
    """A log in the site's ``state``, to which several people may add. Its methods raise
    ChannelError when the state does not answer, and LedgerError for an entry that cannot be read.
    """

    def __init__(self, state: str, storage: Mapping[str, str] | None = None) -> None:
        self._objects = StateObjects(state.rstrip("/"), "what was done", storage)

    def load(self) -> dict[LetterKey, Handled]:
        """Return what was done last about each letter."""
        found: dict[LetterKey, Handled] = {}
        for where, data in self._objects.entries(_NAME):
            entry = Handled.decode(data, where)
            found |= dict.fromkeys(entry.letters, entry)
        return found

    def add(self, entry: Handled) -> None:
        self._objects.append(_NAME, entry.encode())
