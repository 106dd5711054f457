"""One outbound channel of a running job, a sender or a receiver that forwards: which of its streams
have new acks, and that the job is there."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from spark_wan.channels.parallel import AT_ONCE, in_order
from spark_wan.errors import ChannelError
from spark_wan.log.ack_watch import AckWatch
from spark_wan.log.heart import Heart
from spark_wan.messages import message_log
from spark_wan.runtime.pace import Pace
from spark_wan.runtime.progress import LONG, works
from spark_wan.runtime.scheduler import Activity, Next, Scheduler, Turn
from spark_wan.sender.copies import OutboundCopies
from spark_wan.sender.outbound_stream import OutboundStream, StreamStatus
from spark_wan.sender.record import SenderRecordKeeper
from spark_wan.units import milliseconds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = message_log(__name__)


class Stoppable(Protocol):
    """What a job says of itself, or of a stream, in the channel."""

    def stop(self, is_late: Callable[[], bool]) -> None: ...


class HasRecords(Protocol):
    """A channel of a job, with what the job says in it."""

    @property
    def answers(self) -> bool: ...

    @property
    def records(self) -> Sequence[Stoppable]: ...


LONGEST_STOP = 5.0
"""Seconds that a stop waits for channels."""


class Stopped(Protocol):
    """A job that is being stopped."""

    @property
    def gives_way(self) -> bool:
        """Whether another one goes on in its place at once."""


def note_stop(job: Stopped, channels: Iterable[HasRecords]) -> None:
    """Write into the records of all streams that their job was stopped, as far as their channels
    answer in time, unless it gives way to another. Requests that are late would open
    connections that the stop has closed."""
    if job.gives_way:
        return
    records = [each for channel in channels if channel.answers for each in channel.records]
    given_up = threading.Event()

    def stop(record: Stoppable) -> None:
        if not given_up.is_set():
            record.stop(given_up.is_set)

    def write() -> None:
        for _ in in_order(stop, records):
            pass

    thread = threading.Thread(target=write, name="stopped", daemon=True)
    thread.start()
    thread.join(LONGEST_STOP)
    given_up.set()


@dataclass(eq=False)
class OutboundChannel(Activity):
    """An outbound channel of a running job. It lists the acks of all streams at once."""

    kind = "channel"

    watch: AckWatch
    streams: list[OutboundStream]
    scheduler: Scheduler
    pace: Pace
    heart: Heart
    """Says that the job is there."""
    copies: OutboundCopies | None = None
    """None: no copies are served through it."""
    _unreachable: str | None = None
    """Why the last listing failed."""
    _unreachable_since: int | None = None
    """In milliseconds since 1970 UTC."""
    _published: int = 0
    """Epochs that the streams had published at the last look."""
    _changes: int = 0
    """Changes of acks that the watch had seen at the last look, in this one or in another."""

    def __post_init__(self) -> None:
        self.name = self.watch.channel.url

    @property
    def records(self) -> list[Stoppable]:
        """What the job says of itself."""
        return [*self._of_streams, self.heart]

    @property
    def _of_streams(self) -> list[SenderRecordKeeper]:
        copies = self.copies.records if self.copies is not None else []
        return [stream.record for stream in self.streams if stream.record is not None] + copies

    @property
    def answers(self) -> bool:
        """Whether the channel could be listed last time."""
        return self._unreachable is None

    def look(self, spark: SparkSession) -> Turn:
        """List the acks, and wake the streams whose acks have changed. Keep their records alive."""
        try:
            self.watch.look()
        except ChannelError as error:
            if self._unreachable is None:
                log.error(
                    "%s: held: %s",
                    self.name,
                    error,
                    event="channel-held",
                    channel=self.name,
                    cause=str(error),
                )
                self._unreachable_since = milliseconds()
            self._unreachable = str(error)
            return Next(self.pace.wait())
        self._unreachable = None
        published = sum(stream.status.epochs for stream in self.streams)
        if published != self._published:
            self._published = published
            self.pace.happened()  # acks will come
        for stream in self.streams:
            stream.report_work()
        # A few in a look: those of a thousand streams may be due at once.
        due = [record for record in self._of_streams if record.is_due()]
        for _ in in_order(SenderRecordKeeper.keep_alive, due[:AT_ONCE]):
            pass
        if self.watch.changes != self._changes:
            self._changes = self.watch.changes
            self.pace.happened()
        for stream in self.streams:
            if stream.acks.due():
                self.scheduler.wake(stream)
        if self.copies is not None:
            self.copies.begin_due()
        wait = min(self.pace.wait(), LONG) if works() else self.pace.wait()
        self.heart.beat()
        return Next(min(wait, self.heart.left()))

    def statuses(self) -> list[StreamStatus]:
        """Return the status of each stream. All are held while the channel cannot be listed."""
        unreachable = self._unreachable
        statuses = [stream.status for stream in self.streams]
        if unreachable is None:
            return statuses
        since = self._unreachable_since
        return [
            status if status.held else replace(status, held=unreachable, held_since_ms=since)
            for status in statuses
        ]
