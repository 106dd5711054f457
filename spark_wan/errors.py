"""Errors. One root, ``WanError``; every message says what happened, where, and what to do next.

``retriable`` is an attribute of the class: an error that may pass by itself (a table that is
missing, a channel that does not answer) is tried again; the others wait for somebody.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection

COPY = (
    "a full copy under a new table name: in the topology rename the table and set `start: snapshot` (a table without keys: write its rows into a new "
    "table with a change feed, and set `start: {version: 0}`); at each remote site remove the old table, or give the new one another place; then remove "
    "from the channel what that site's receiver names of the old stream"
)
"""How a table is sent once more as a whole: the way out when its rows cannot be told any more by what was sent before."""
AGAIN = (
    "all events again, with their IDs, under a new table name: in the topology rename the table, at each remote site remove the old table or give the "
    "new one another place, and write the events with the sink from a new checkpoint; then remove from the channel what that site's receiver names of the old stream"
)
"""The same for a user's stream, which has no source table."""


def anew(users: bool) -> str:
    """The same as an advice, for a ``users``' stream or a captured one."""
    return f"send {AGAIN}" if users else f"make {COPY}"


class WanError(Exception):
    """Root of all errors that spark_wan raises on purpose."""

    retriable = False


class OptionError(WanError, ValueError):
    """An option of the sink or the source is unknown, missing or out of its range."""


class TopologyError(WanError, ValueError):
    """The topology file is wrong. The message names the file, the key path and the fix."""


class UnsupportedTypeError(WanError, TypeError):
    """A column has a type that cannot be carried; refused by name before anything is sent."""


class SchemaError(WanError):
    """Columns were renamed, dropped or retyped in a way that cannot be reconciled by name."""


class FrameError(WanError):
    """A frame is foreign, truncated, altered or of an unknown wire version."""


class ManifestError(WanError):
    """A manifest cannot be read: altered, foreign, or of an unknown version."""


class ChannelError(WanError):
    """The channel cannot be used: unwritable, unreachable, or not a spark_wan channel."""

    retriable = True


class ManifestExists(ChannelError):
    """Somebody else has appended this manifest number: reload the log and decide again."""


class LogGapError(WanError):
    """A number is missing in a stream's log, or the log was rewritten under its readers."""


class SourceError(WanError):
    """The source table cannot be captured any further (history lost, feed off, table replaced)."""


class ChangeFeedError(SourceError):
    """The source table keeps no change feed, or kept none for a while."""


class HistoryLostError(SourceError):
    """VACUUM or log cleanup has taken versions that were not published yet."""


class SourceUnreadableError(SourceError):
    """Files of the source could not be read now: the store throttles, times out or refuses. Retried."""

    retriable = True


class TableReplacedError(SourceError):
    """The table is not the one that was captured or written before: another ID, or an older state."""


class ChangeError(SourceError):
    """The commit ``version`` has changes that cannot be carried; the commits before it can."""

    def __init__(self, message: str, version: int) -> None:
        super().__init__(message)
        self.version = version


class KeylessChangeError(ChangeError):
    """A keyless table was updated or deleted from; only inserts can be carried without a key."""


class UnreadableChangeError(ChangeError):
    """The change feed does not return a value as it is: text that is not valid UTF-8, a map with a repeated key."""


class TableOperationError(SourceError):
    """A whole-table operation (TRUNCATE, unconditional DELETE, RESTORE, REPLACE) waits for a decision."""


class TargetError(WanError):
    """The target table cannot be written now (missing, full, forbidden). Tried again."""

    retriable = True


class DeadLettersError(TargetError):
    """So many rows of one epoch cannot be applied that it is no accident."""


class LedgerError(WanError):
    """The ledger and the target's history do not go together any more."""


class EventError(WanError):
    """Rows given to the sink cannot become events (duplicate event IDs, unknown operation …)."""


class StaleWriteError(WanError):
    """A write was interrupted for so long that its frames may be gone. It must be made again."""

    retriable = True


class ForwardingError(SourceError):
    """Rows that a receiver wrote to a captured table, from another site, would have to be sent on; this version does not."""


class SessionLostError(WanError):
    """The Spark session has ended: nothing can go on with it. Start again with a new session."""


class StoppedError(WanError):
    """The work was cancelled by ``stop()``. Never swallowed, never a dead letter."""


def nearest(name: object, known: Collection[str]) -> str:
    """Return the end of a message about an unknown name: the one that was probably meant, else all there are."""
    by_lower = {word.lower(): word for word in known}
    close = difflib.get_close_matches(str(name).lower(), by_lower, n=1)
    if close:
        return f"did you mean {by_lower[close[0]]!r}?"
    return f"known: {', '.join(sorted(known)) or 'none'}"
