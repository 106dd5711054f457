"""What the sender would do with what it has to send by now: its own path, epoch by epoch.

:class:`~spark_wan.sender.publish.Publisher` writes frames, manifests and checkpoints through
what it is given, and what a rehearsal gives it goes nowhere. So what would hold the stream raises
the error that holds it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from spark_wan.delta.commits import DAY
from spark_wan.errors import WanError
from spark_wan.rehearsal.findings import Finding, failed, ok, warning
from spark_wan.sender.publish import Publisher
from spark_wan.steps import run
from spark_wan.topology.model import Stream, Table
from spark_wan.units import format_duration
from spark_wan.wire.control import AT_TIME, AT_VERSION, Control
from spark_wan.wire.ledger import DeadLetter

DUPLICATE_KEY = "duplicate_key"
RETENTIONS = {
    "delta.deletedFileRetentionDuration": ("7 days", 7 * DAY),
    "delta.logRetentionDuration": ("30 days", 30 * DAY),
}
"""How long a source keeps what a sender that was stopped has to read, and Delta's defaults: less
is warned of."""


@dataclass
class Captured:
    """What a capture has found in the rows beside events."""

    is_read: bool = False
    """Whether rows were read."""
    dead: Counter[str] = field(default_factory=Counter)
    """Cause -> rows that would become dead letters."""
    example: str = ""

    def note_dead_letters(self, letters: Sequence[DeadLetter]) -> None:
        for letter in letters:
            if letter.cause != DUPLICATE_KEY:
                self.dead[letter.cause] += 1
                self.example = self.example or str(letter)


def start_of(publisher: Publisher, captured: Captured, is_here: bool = True) -> list[Finding]:
    """Rehearse all that a captured stream has to send by now, and return what was found.

    Args:
        publisher: Its log, its checkpoints and its source write nowhere.
        captured: Filled by that source.
        is_here: Whether the table must be within reach.
    """
    epochs, newest, over = 0, -1, None
    try:
        while (manifest := run(publisher.round())) is not None:
            epochs += 1
            over = publisher.gone_over or over
            # What writers commit meanwhile is not waited for.
            newest = publisher.source.newest().version if epochs == 1 else newest
            if manifest.last_version >= newest:
                break
    except WanError as error:
        return [failed("start", error, is_here)]
    return [_started(publisher, epochs, over), *_found(publisher.settings.table, captured)]


def _started(publisher: Publisher, epochs: int, over: WanError | None) -> Finding:
    if over is not None:
        return warning(
            "start",
            f"{over} Every site that lacks what came before gets a copy of the table instead.",
        )
    if publisher.has_ended:
        return ok("start", "the stream has ended; nothing is sent")
    if not epochs:
        return ok("start", "nothing is to be sent now")
    return ok("start", f"all that is to be sent can be: {epochs:,} epochs")


def _found(table: str, captured: Captured) -> Iterator[Finding]:
    if captured.dead:
        number = sum(captured.dead.values())
        yield warning(
            "rows",
            f"{table}: {number:,} rows cannot be sent, and would become dead letters (for example: "
            f"{captured.example}). Repair the rows at the source, or correct `keys:`.",
        )
    elif captured.is_read:
        yield ok("rows", "all rows that are to be sent now can be sent")


def repeated(table: Table, keys: int) -> Finding:
    """Return what the number of keys that have several rows comes to."""
    if not keys:
        return ok("keys", "no two rows have the same key")
    return warning(
        "keys",
        f"{table.name}: the keys are not unique: {keys:,} keys have several rows. The other sites "
        "get one row of each key. Repair the rows at the source, or correct `keys:`.",
    )


def retention_of(
    table: str, properties: Mapping[str, str], length: Callable[[str], int]
) -> Finding:
    """Return what the properties of a source say of how long its sender may be stopped.
    ``length``: returns the milliseconds of an interval as a property has it."""
    lasts = {name: length(properties.get(name, usual)) for name, (usual, _) in RETENTIONS.items()}
    least = format_duration(min(lasts.values()))
    short = [name for name, (_, advised) in RETENTIONS.items() if lasts[name] < advised]
    if not short:
        return ok("retention", f"a sender may be stopped or held for {least}")
    told = ", ".join(
        f"{name} is {properties.get(name)} (advised: {RETENTIONS[name][0]} or more)"
        for name in short
    )
    return warning(
        "retention",
        f"{table}: {told}. A sender that is stopped or held for longer than {least} cannot send "
        "what was committed meanwhile: sites need a copy then. Raise it: ALTER TABLE … SET "
        "TBLPROPERTIES.",
    )


def wanted_of(stream: Stream, control: Control) -> Iterator[Finding]:
    """Yield what the control log of the sending site says of a stream that keeps it from going
    on."""
    sender, table = stream.sender.name, stream.table.name
    pause = control.pause_of(sender, table)
    if pause is not None:
        more = ", and the sender adds nothing" if pause.capture else ""
        yield warning(
            "pause",
            f"{stream.name} is paused by {pause.by} (request {pause.generation}): no site takes "
            f"anything of it{more} until `spark-wan resume`.",
        )
    ending = control.end_of(sender, table)
    if ending is not None and ending.end is not None and stream.inbound is None:
        end = ending.end
        where = {AT_VERSION: f"version {end.point}", AT_TIME: "a time"}.get(
            end.kind, "the version that is the newest one"
        )
        yield warning(
            "end",
            f"{stream.name} is to end with {where}, as {ending.by} has asked (request "
            f"{ending.generation}). Nothing follows until `spark-wan resume`.",
        )
