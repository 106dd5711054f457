"""What people have done about dead letters. The log ``handled/<number, 20 digits>.json`` in the
site's state, of which each entry is created only if absent.

An entry is a JSON object:

===========  =============  =======================================================================
``version``  int            1
``what``     string         ``discarded``: they need nothing; ``replayed``: a copy was asked for,
                            which has what their rows should be
``by``       string         who did it
``at``       int            when, in milliseconds since 1970 UTC
``why``      string         a remark; empty: none
``letters``  list of lists  (side, stream, event ID) of each, as in ``dead_letters``
===========  =============  =======================================================================

Of several entries about a letter, the last one counts. Unknown fields are ignored, unless
``requires`` lists them (:mod:`spark_wan.wire.records`).
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from spark_wan.errors import LedgerError, NewerRecordError
from spark_wan.wire.names import printable
from spark_wan.wire.records import UNREADABLE, strict_record

VERSION = 1
DISCARDED, REPLAYED = "discarded", "replayed"
SUPERSEDED = "superseded"
"""In no entry: the ledger shows that a letter needs nothing any more."""

LetterKey = tuple[str, str, str]
"""Side, stream and event ID of a dead letter."""


@dataclass(frozen=True)
class Handled:
    """An entry of the log."""

    what: str
    by: str
    at: int
    why: str
    letters: tuple[LetterKey, ...]

    def encode(self) -> bytes:
        return json.dumps({"version": VERSION, **asdict(self)}, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes, where: str) -> Handled:
        """Raises LedgerError for any other record."""
        try:
            entry = strict_record(Handled, data, VERSION, renamed=False)
            texts = printable(entry.what), printable(entry.by), entry.at, printable(entry.why)
            return Handled(*texts, entry.letters)
        except NewerRecordError as error:
            raise LedgerError(
                f"{where}: what was done about dead letters was {error}. Update spark_wan here."
            ) from error
        except UNREADABLE as error:
            raise LedgerError(
                f"{where}: what was done about dead letters cannot be read ({error}). Restore the "
                "file, or delete it: then those letters are listed again."
            ) from error
