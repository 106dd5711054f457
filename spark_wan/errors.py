"""Errors. One root, ``WanError``; every message says what happened, where, and what to do next.

``retriable`` is an attribute of the class: an error that may pass by itself (a table that is
missing, a channel that does not answer) is tried again; the others wait for somebody.
"""

from __future__ import annotations


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


class TableReplacedError(SourceError):
    """The table is not the one that was captured or written before: another ID, or an older state."""


class KeylessChangeError(SourceError):
    """A keyless table was updated or deleted from, by the commit ``version``; only inserts can be carried without a key."""

    def __init__(self, message: str, version: int) -> None:
        super().__init__(message)
        self.version = version


class TableOperationError(SourceError):
    """A whole-table operation (TRUNCATE, unconditional DELETE, RESTORE, REPLACE) waits for a decision."""


class TargetError(WanError):
    """The target table cannot be written now (missing, full, forbidden). Tried again."""

    retriable = True


class LedgerError(WanError):
    """The ledger and the target's history do not go together any more."""


class EventError(WanError):
    """Rows given to the sink cannot become events (duplicate event IDs, unknown operation …)."""


class SessionLostError(WanError):
    """The Spark session has ended: nothing can go on with it. Start again with a new session."""


class StoppedError(WanError):
    """The work was cancelled by ``stop()``. Never swallowed, never a dead letter."""
