"""Errors. One root, ``WanError``; every message says what happened, where, and what to do next."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection
from importlib import metadata

SYNC = "`spark-wan sync` with your --config, and the --table and the --site that needs it"
"""How a site gets a copy of a table."""
NEW_SITE = (
    f"If its `sync` and `auto_init` let it, the site asks for a copy itself; else run {SYNC}."
)
"""How a site gets a table that others have already."""
RESEND_TO_NEW_SITE = (
    "If its `sync` and `auto_init` let it, the site asks another one that has the table for a "
    f"copy itself; else run {SYNC}. Without such a site, write the events again, with their event "
    "IDs, to a new stream (the sink's option `stream`): what a site has already is dropped there."
)
"""The same for a user stream."""
RESEND = (
    "all events again, with their IDs, under a new table name: in the topology rename the table, "
    "at each remote site remove the old table or give the new one another place, and write the "
    "events with the sink from a new checkpoint; then remove the old stream from the channel with "
    "the command that the site's receiver names, `spark-wan remove`"
)
"""How a user stream is sent again to all sites, when none of them has the table any more."""


def remake_advice(user_stream: bool) -> str:
    """Return the advice to a site whose table does not fit what comes, of a user stream or a
    captured one: a copy into a table that is missing makes it as it is at the origin."""
    return f"drop the table here, and {copy_advice(user_stream)}"


def copy_advice(user_stream: bool) -> str:
    """Return the advice to a site whose table a copy would mend, of a user stream or a captured
    one."""
    if not user_stream:
        return f"for a copy run {SYNC}"
    return f"for a copy from another site that has the table run {SYNC}; without one, send {RESEND}"


UNEXPECTED = "Nothing is lost, and it is retried. If it stays, report the error with its stack."
"""What to do about an error that has no message of its own."""
EPOCHS, SOURCE, TABLE, COLUMNS, LEDGER = "epochs", "source", "table", "columns", "ledger"
"""Why a site needs a copy of a table: earlier epochs of the log are gone for it, or are not those
that it applied; the source table was replaced; its own table is missing, replaced or restored; has
lost columns; its ledger does not say what the table has."""


DISK_FULL = "The disk is full, or its quota is used up: make room there, and it goes on by itself."
_DISK_FULL = re.compile(
    r"No space left on device|Disk quota exceeded|os error (28|122)\b|Errno (28|122)\b"
)


def is_disk_full(error: BaseException) -> bool:
    """Whether an error of Python, of obstore or of the JVM says that a disk is full."""
    return _DISK_FULL.search(str(error)) is not None


class WanError(Exception):
    """Root of all errors that spark_wan raises on purpose.

    ``needs``: why the site needs a copy of the table (:data:`EPOCHS` …); None: it does not, or a
    copy would not help. Of a sender: SOURCE, if all sites could get copies in place of what it
    cannot send."""

    passes = False
    """Whether it may pass though nobody does anything: a store or a table cannot be used now."""

    def __init__(self, *args: object, needs: str | None = None) -> None:
        super().__init__(*args)
        self.needs = needs


def may_pass(error: Exception) -> bool:
    """Whether what an error holds up may go on though nobody does anything. Of an error that
    spark_wan does not know, that is not known either: it may."""
    return not isinstance(error, WanError) or (error.passes and error.needs is None)


class OptionError(WanError, ValueError):
    """An option of the sink or the source is unknown, missing or out of range."""


class TopologyError(WanError, ValueError):
    """The topology file is invalid. The message names the file, the key path and the fix."""


class UnsupportedTypeError(WanError, TypeError):
    """A column has an unsupported type; it is refused by name before anything is sent."""


class SchemaError(WanError):
    """Columns were renamed, dropped or retyped so that they cannot be reconciled by name."""


class FrameError(WanError):
    """A frame is foreign, truncated, altered or of an unknown wire version."""


class NewerRecordError(WanError):
    """A record of a newer spark_wan: of a later version, or with fields that must be known."""


class ManifestError(WanError):
    """A manifest cannot be read: altered, foreign, or of an unknown version."""


class UntrustedError(ManifestError):
    """A manifest is unsigned, wrongly signed or of a site that is not accepted, was copied from
    another stream or channel, or has names that lead out of their folder."""


class SigningKeyError(WanError):
    """A key to sign or to check signatures cannot be read, or is no key. Never shows the key."""


class ChannelError(WanError):
    """The channel cannot be used: unwritable, unreachable, or not a spark_wan channel."""

    passes = True


class NotBegunError(ChannelError):
    """No sender has begun the channel yet, and this user may not begin it."""


class NoTopicsError(ChannelError):
    """The topics of a channel do not exist: no job has made them yet, or they were deleted."""


class ManifestExists(ChannelError):
    """Another writer appended this epoch; reload the log and replan."""


class LogGapError(WanError):
    """An epoch is missing in a stream's log, or the log was rewritten under its readers."""


class SourceError(WanError):
    """The source table cannot be captured (history lost, feed off, table replaced)."""


class ChangeFeedError(SourceError):
    """The source table has no change feed, or had none for some versions."""


class HistoryLostError(SourceError):
    """VACUUM or log cleanup has deleted versions before they were published."""


class SourceUnreadableError(SourceError):
    """Files of the source cannot be read now: the store throttles, times out or refuses."""

    passes = True


class TableReplacedError(SourceError):
    """The table is not the one captured or written before: another ID, or an older state."""


class ChangeError(SourceError):
    """The commit ``version`` has changes that cannot be sent; the commits before it can."""

    def __init__(self, message: str, version: int, *, needs: str | None = None) -> None:
        super().__init__(message, needs=needs)
        self.version = version


class KeylessChangeError(ChangeError):
    """A keyless table was updated or deleted from; without a key only inserts can be sent."""


class UnreadableChangeError(ChangeError):
    """The change feed alters a value: text that is not valid UTF-8, a map with a repeated key."""


class TableOperationError(SourceError):
    """A whole-table operation (TRUNCATE, DELETE of all, RESTORE, REPLACE) needs a decision."""


class TargetError(WanError):
    """The target table cannot be written now (full, forbidden, other writers are faster)."""

    passes = True


class TargetMissingError(TargetError):
    """There is no table at the place of the target."""

    passes = False


class DeadLettersError(TargetError):
    """Too many rows of one epoch cannot be applied for this to be an accident."""

    passes = False


class LedgerError(WanError):
    """The ledger does not match the target's history."""


class LedgerUnavailableError(LedgerError):
    """The ledger cannot be read or written now."""

    passes = True


class JoinFailureError(WanError):
    """A site needs a copy of a whole table, and its ``auto_init`` is false: somebody must allow it
    (``spark-wan sync --full``), or adopt a backup."""


class LockoutError(WanError):
    """A table at a site is not synchronized: it needs a copy, or waits for one."""


class BackupError(WanError):
    """A backup cannot be made, or is not one that this site can adopt."""


class EventError(WanError):
    """Rows written to the sink cannot become events (duplicate IDs, unknown operation …)."""


class CompareError(WanError):
    """A table cannot be compared with its copy at another site."""


class UndoError(WanError):
    """Versions of a table cannot be undone. Nothing was written."""


class AckTimeoutError(WanError):
    """A commit does not meet its ack policy in time. It stays in the channel, and still arrives.

    ``acked``: the sites that have acked it. ``missing``: those that it is for and that have not."""

    def __init__(self, message: str, acked: frozenset[str], missing: frozenset[str]) -> None:
        super().__init__(message)
        self.acked = acked
        self.missing = missing


class StaleWriteError(WanError):
    """A write was interrupted for so long that its frames may be deleted. Write again."""

    passes = True


class ForwardingError(SourceError):
    """A captured table has rows that a receiver wrote; this version does not forward them."""


class NewerMarkError(SourceError):
    """A commit of a captured table carries a mark of a newer spark_wan."""


class SessionLostError(WanError):
    """The Spark session has ended. Start again with a new session."""


class EndMovedError(WanError):
    """An operator has ended a stream before what was captured meanwhile. It is planned again."""


class QueueFullError(WanError):
    """The queue of a stream is full: nothing is added to it until acks make room.

    ``is_hold``: it is to be reported as a hold."""

    def __init__(self, message: str, is_hold: bool) -> None:
        super().__init__(message)
        self.is_hold = is_hold


class StoppedError(WanError):
    """The work was cancelled by ``stop()``. Never swallowed, never a dead letter."""


class StreamsHeldError(WanError):
    """A run with ``available_now`` has ended while streams are held."""


def install_command(*extras: str) -> str:
    """Return the command that installs the packages of extras. spark_wan itself is on no registry,
    but they are: their names and versions are read from the metadata of the installed package.

    Where spark_wan was not installed (``PYTHONPATH``, ``--py-files``), it is one for the clone.
    """
    try:
        requirements = metadata.requires("spark_wan") or []
    except metadata.PackageNotFoundError:
        requirements = []
    found = [
        requirement
        for requirement, extra in (_needed_by_extra(line) for line in requirements)
        if extra in extras
    ]
    if not found:
        return f"pip install '.[{','.join(extras)}]' in a clone of spark_wan"
    return f"pip install {' '.join(map(repr, found))}"


def _needed_by_extra(line: str) -> tuple[str, str | None]:
    """Return a requirement of a package's metadata, and the extra that needs it.

    >>> _needed_by_extra('pandas<3,>=2.2; extra == "spark"')
    ('pandas<3,>=2.2', 'spark')
    """
    requirement, _, marker = line.partition(";")
    extra = re.search(r"extra == ['\"]([\w-]+)['\"]", marker)
    return re.sub(r"[\s()]", "", requirement), extra[1] if extra else None


def nearest(name: object, known: Collection[str]) -> str:
    """Return the hint of a message about an unknown name: the nearest known one, or all."""
    by_lower = {word.lower(): word for word in known}
    close = difflib.get_close_matches(str(name).lower(), by_lower, n=1)
    if close:
        return f"did you mean {by_lower[close[0]]!r}?"
    return f"known: {', '.join(sorted(known)) or 'none'}"
