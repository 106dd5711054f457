"""How far a stream is that was asked to end: whether its log has ended, and who has all of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from spark_wan.channels.registry import open_channel
from spark_wan.control.enforce import Controlled
from spark_wan.errors import NoTopicsError, WanError
from spark_wan.log.notes import last_pause, receiver_record, sender_record
from spark_wan.log.progress import acked_through
from spark_wan.log.stream_log import StreamLog
from spark_wan.topology.model import Topology
from spark_wan.topology.signing import sending_trust
from spark_wan.wire.ack import Ack
from spark_wan.wire.control import AT_TIME, NEWEST, Control, WantedEnd
from spark_wan.wire.manifest import Manifest

LOOK_INTERVAL = 0.5
"""Seconds between looks at the channels."""


@dataclass(frozen=True)
class StreamEnd:
    """How far a stream is that was asked to end."""

    stream: str
    table: str
    ended: bool
    """Whether its log has ended; of one that no sender captures, always."""
    version: int | None
    """The version of the source through which it was published; None: nothing was, or it is of a
    query of yours."""
    epoch: int
    """The newest epoch that counts; 0: there is none."""
    missing: tuple[str, ...]
    """The sites that have not acked that."""
    waits_for: str | None
    """What it waits for; None: it has ended, and all sites have it."""

    @property
    def arrived(self) -> bool:
        return self.waits_for is None


def log_of(topology: Topology, each: Controlled) -> StreamLog:
    """Return the log of a stream."""
    channel = open_channel(each.sender.channel, each.sender.storage)
    return StreamLog(channel, each.stream, sending_trust(topology, each.sender))


class EndWait:
    """Waits for one stream that was asked to end."""

    def __init__(self, topology: Topology, stream: Controlled) -> None:
        self.stream = stream
        self._wanted = WantedEnd()
        """What is asked for, by the control log."""
        self.log = log_of(topology, stream)
        self._last: Manifest | None = None
        """Of a stream that no sender captures: its newest epoch at the first look."""

    def look(self, control: Control) -> StreamEnd:
        """Read how far it is with what is asked for now. A channel that does not answer is waited
        for, too."""
        ending = control.end_of(self.stream.sender.name, self.stream.table.name)
        self._wanted = WantedEnd(ending=ending)
        try:
            return self._look()
        except NoTopicsError as error:
            # Nobody has written anything. Whether a sender is still to do so, its record tells.
            is_nothing = not self.stream.captured and self._last is None
            waits_for = None if is_nothing else str(error)
            return self._end(None, ended=is_nothing, missing=(), waits_for=waits_for)
        except WanError as error:
            return self._end(None, ended=False, missing=(), waits_for=str(error))

    def _look(self) -> StreamEnd:
        newest = self._end_of_log()
        ended = not self.stream.captured or self._wanted.has_ended(newest)
        if newest is None:
            waits_for = None if ended or self._has_nothing() else self._why_not_ended()
            return self._end(None, ended=waits_for is None, missing=(), waits_for=waits_for)
        served = [site for site in newest.addressees if site in self.stream.addressees]
        acks = self.log.acks()
        acked = acked_through(newest, acks, served, log_read_first=True)
        unnamed = sorted({*self.stream.addressees} - {*newest.addressees})
        missing = tuple(sorted(site for site in served if acked[site] < newest.epoch))
        reasons = [self._why_beyond(newest)] if ended else [self._why_not_ended()]
        reasons += self._why_missing(missing, newest, acks)
        reasons += [
            f"{site} is not known to the sender yet: have it read the topology again (SIGHUP)"
            for site in unnamed
        ]
        missing = tuple(sorted({*missing, *unnamed}))
        return self._end(
            newest, ended=ended, missing=missing, waits_for="; ".join(filter(None, reasons)) or None
        )

    def _end_of_log(self) -> Manifest | None:
        """Return the epoch that all sites have to have; None: there is none."""
        if self.stream.captured:
            return self.log.newest_manifest()
        if self._last is None:
            self._last = self.log.newest_manifest()
        return self._last

    def _has_nothing(self) -> bool:
        """Whether the sender says that a stream without epochs has nothing to send. Before a point
        that is to come, something may come."""
        ending, end = self._wanted.ending, self._wanted.end
        if ending is None or end is None or end.kind != NEWEST:
            return False
        record = sender_record(self.log.channel, self.stream.stream)
        if record is None or record.held is not None:
            return False
        return record.control >= ending.generation and not (
            record.epoch or record.waiting or record.delayed
        )

    def _why_beyond(self, newest: Manifest) -> str:
        """Return that more was sent than was asked for; empty: it was not."""
        end = self._wanted.end
        if end is None or not end.is_passed_by(newest):
            return ""
        if end.kind == AT_TIME:
            return f"it has version {newest.last_version}, which is later than it was to end"
        return f"it has version {newest.last_version}, which is behind {end.point}"

    def _why_not_ended(self) -> str:
        if self._wanted.end is None:
            ending = self._wanted.ending
            by = f" by {ending.by}" if ending is not None else ""
            return f"it was resumed{by}, and goes on"
        last = last_pause(self.log.channel, self.stream.stream)
        if last is not None and last.until is None:
            return f"it was paused by {last.by}: run `spark-wan resume`, or drain it again"
        site, record = self.stream.sender.site, sender_record(self.log.channel, self.stream.stream)
        if record is None:
            return f"no sender of {site} has said anything of it: check that one runs"
        if record.stopped is not None:
            return f"the sender of {site} was stopped: start it"
        if record.held is not None:
            return f"{site} holds it: {record.held}"
        waiting = f", and {record.waiting} commits wait" if record.waiting else ""
        if record.delayed:
            waiting += f", and {record.delayed} commits wait until they are as old as its `delay`"
        through = "nothing is sent" if record.through is None else f"version {record.through}"
        return f"the sender of {site} has not ended it: {through} so far{waiting}"

    def _why_missing(
        self, missing: Sequence[str], newest: Manifest, acks: Mapping[str, Ack]
    ) -> Iterator[str]:
        for site in missing:
            ack = acks.get(site)
            record = receiver_record(self.log.channel, self.stream.stream, site)
            if ack is not None and ack.held is not None:
                yield f"{site} holds it at epoch {ack.held}: {ack.cause}"
            elif record is not None and record.stopped is not None:
                yield f"the receiver of {site} was stopped: start it"
            elif record is None and ack is None:
                yield f"{site} has acked nothing: check that its receiver runs"
            else:
                yield f"{site} has not acked epoch {newest.epoch}"

    def _end(
        self,
        newest: Manifest | None,
        *,
        ended: bool,
        missing: tuple[str, ...],
        waits_for: str | None,
    ) -> StreamEnd:
        return StreamEnd(
            self.stream.stream,
            self.stream.table.name,
            ended,
            version=newest.through if newest is not None else None,
            epoch=newest.epoch if newest is not None else 0,
            missing=missing,
            waits_for=waits_for,
        )
