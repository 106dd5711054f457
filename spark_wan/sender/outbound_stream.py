"""One outbound stream: when to look, what to do, its status, and what holds it.

A sender runs those that it publishes. A receiver runs those that it forwards, to collect their
acks; a sender also those of sinks (:attr:`OutboundStream.publisher` is None for both).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from spark_wan.delta.errors import ErrorKind, error_text
from spark_wan.delta.sessions import CurrentSession, lost_session
from spark_wan.errors import (
    UNEXPECTED,
    QueueFullError,
    StoppedError,
    TableReplacedError,
    WanError,
    may_pass,
)
from spark_wan.messages import message_log
from spark_wan.runtime.first_looks import FirstLooks
from spark_wan.runtime.hold import Hold, next_wait
from spark_wan.runtime.pace import Pace
from spark_wan.runtime.progress import long_work
from spark_wan.runtime.scheduler import Activity, Found, Job, Lane, Next, Turn
from spark_wan.sender.ack_timeouts import AckTimeouts, Decide
from spark_wan.sender.acks import AckManager, StreamState
from spark_wan.sender.history import HistoryWatch
from spark_wan.sender.pipeline import Pipeline
from spark_wan.sender.publish import LARGE_PLANNED, PLANNED, Publisher
from spark_wan.sender.rate import SendRate
from spark_wan.sender.record import SenderRecordKeeper
from spark_wan.sender.sweep import Sweep
from spark_wan.steps import Steps, reached, run
from spark_wan.units import milliseconds
from spark_wan.wire.control import Rule
from spark_wan.wire.manifest import EVENTS, Manifest
from spark_wan.wire.sender_record import NotSent

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = message_log(__name__)

ACK_POLL_INTERVAL = 0.2
"""Seconds between polls of the acks while ``block_on_ack`` waits for them."""
_LANES = {PLANNED: Lane.TABLES, LARGE_PLANNED: Lane.LARGE}
"""Who goes on with a round after these steps: a worker."""


@dataclass
class StreamStatus:
    """Status of one stream of a sender. Times in milliseconds since 1970 UTC; epochs, events,
    batches, bytes and dead letters since this sender began."""

    stream: str
    table: str
    published: int = 0
    """The newest epoch."""
    version: int = -1
    """The channel has everything through this version of the source."""
    acked: dict[str, int] = field(default_factory=dict)
    backlog: int = 0
    """Epochs that some site has not acked."""
    epochs: int = 0
    events: int = 0
    batches: int = 0
    bytes: int = 0
    dead_letters: int = 0
    duplicates: int = 0
    """Source rows whose key had another row."""
    held: str | None = None
    """Why nothing is published at the moment."""
    held_since_ms: int | None = None
    replaced: bool = False
    """It is held because the source is not the table, or not in the state, that was published."""
    queue_full: str | None = None
    """Why nothing is added for now, though nothing is wrong here: too much waits for acks."""
    queue_full_since_ms: int | None = None
    alert: str | None = None
    """An epoch that did not meet the ack policy in time, and whose acks it lacks."""
    remote_holds: dict[str, str] = field(default_factory=dict)
    """Sites that hold the stream, and why."""
    not_served: list[str] = field(default_factory=list)
    """Addressees of the newest epoch that the sender no longer serves."""
    not_sent: NotSent = field(default_factory=NotSent)
    """What was not sent, by reason."""


@dataclass
class _Hold(Hold):
    """What holds a part of the work of a stream."""

    replaced: bool = field(kw_only=True)
    """The source is not the table, or not in the state, that was published."""
    passes: bool = field(kw_only=True)
    """The cause may pass though nobody does anything."""


@dataclass(eq=False)
class OutboundStream(Activity):
    """A stream of a running sender or forwarder."""

    kind = "stream"

    job: Job
    available_now: bool
    """Publish the versions that are there at the start, collect the acks, and end."""
    session: CurrentSession
    """Of the source, if there is one."""
    status: StreamStatus
    publisher: Publisher | None
    """None: a sink or a forwarder publishes the stream; here its acks are collected."""
    acks: AckManager
    pace: Pace
    block_on_ack: float
    first_looks: FirstLooks | None = None
    """None: the first look at the source is done, or cannot wait."""
    pipeline: Pipeline = field(default_factory=Pipeline)
    record: SenderRecordKeeper | None = None
    """None: no record of the stream is kept."""
    on_ack_timeout: Decide = "wait"
    pause: Callable[[], Rule | None] = lambda: None
    """Returns what pauses the stream, if anything does."""
    check_control: Callable[[], None] = lambda: None
    """Raises WanError as long as that cannot be told."""
    priority: int = 0
    rate: SendRate | None = None
    """How fast the sender publishes; None: as fast as it can."""
    forwarding_held: tuple[str, bool] | None = None
    """Why the forwarder that publishes the stream, beside this activity, adds nothing, and whether
    that may pass."""
    _holds: dict[str, _Hold] = field(default_factory=dict)
    """What holds the stream, by the part of its work that failed: publishing, acks."""
    _through: int | None = None
    """With ``available_now``, the version to end with."""
    _blocking: tuple[Manifest, float] | None = None
    """The epoch whose acks ``block_on_ack`` waits for, and until when."""
    _paused: tuple[bool, int] | None = None
    """The pause that was told of: whether of the capture too, and its request. None: none."""
    _ended: bool = False
    """Whether it was told that the stream has ended."""
    _dropped: Mapping[str, int] = field(default_factory=dict)
    """The sites without which the stream went on by the last epoch that was added here."""
    _newest: Manifest | None = None
    """The newest manifest, as far as it is known here."""

    def __post_init__(self) -> None:
        self.name = self.status.stream
        self.timeouts = AckTimeouts(self.acks, self.on_ack_timeout)
        self.sweep = Sweep(self.acks)
        self.history = (
            HistoryWatch(self.publisher, self.name, self.status.table)
            if self.publisher is not None
            else None
        )

    def look(self, spark: SparkSession) -> Turn:
        """Collect acks if it is time, and find out whether there is something to publish."""
        turn = self._look(spark)
        self._watch_history(spark)
        return self._recorded(turn)

    def _watch_history(self, spark: SparkSession) -> None:
        """Warn if the stream has stood still for so long that the source may lose its history."""
        if self.history is None:
            return
        is_held = "publishing" in self._holds or self.status.queue_full is not None
        if is_held or self._is_capture_paused():
            self.session.spark = spark
            self.history.look(self.record.last if self.record is not None else None)
        else:
            self.history.went_on()

    def _note_control(self) -> None:
        """Say what of an operator's requests has come into effect for the stream."""
        pause, before = self.pause(), self._paused
        state = None if pause is None else (pause.capture, pause.generation)
        if pause is not None and state != before:
            log.info(
                "%s: paused by %s. Sites take nothing until it is resumed, and the sender %s",
                self.name,
                pause.by,
                "adds nothing to the channel" if pause.capture else "goes on to add to the channel",
                event="paused",
                stream=self.name,
                table=self.status.table,
                epoch=self.status.published,
            )
        elif pause is None and before is not None:
            self._say_resumed("sites take it again")
        self._paused = state
        ended = self.publisher is not None and self.publisher.has_ended
        if ended and not self._ended:
            log.info(
                "%s: has ended, as somebody has asked. Nothing is added until it is resumed",
                self.name,
                event="ended",
                stream=self.name,
                table=self.status.table,
                epoch=self.status.published,
            )
        elif self._ended and not ended:
            self._say_resumed("goes on behind its end")
        self._ended = ended

    def _say_resumed(self, what: str) -> None:
        log.info(
            "%s: resumed: %s",
            self.name,
            what,
            event="resumed",
            stream=self.name,
            table=self.status.table,
            epoch=self.status.published,
        )

    def _look(self, spark: SparkSession) -> Turn:
        self.job.check_stopped()
        self._note_control()
        if self.available_now:
            return self._look_once(spark)
        if self._must_collect_acks():
            self._collect_acks(spark)
        if self._is_blocking(spark):
            return Next(ACK_POLL_INTERVAL)
        if self.publisher is None:
            return Next(self.pace.wait())
        rests = self.publisher.has_ended and not self.publisher.is_to_clean
        if self._is_capture_paused() or rests:
            self._leave_first_looks()
            return Next(self.pace.wait())
        hold = self._holds.get("publishing")
        # These add an epoch without events, which waits for nothing.
        is_asked = self.publisher.is_to_clean or self.publisher.may_end
        if self.status.queue_full is not None and not is_asked:
            if self._shows(self.publisher.is_queue_full, spark):
                return Next(self.pace.wait())
            if hold is not None:
                hold.retry_now()
        if hold is not None and (wait := hold.left()):
            return Next(min(wait, self.pace.wait()))
        if hold is None and self._shows(self.publisher.is_quiet, spark):
            return Next(self.pace.wait())
        # Whoever waits for the end of the stream waits for all that is before it.
        join = 0.0 if is_asked or self.publisher.is_to_end else self.pipeline.wait()
        if join > 0:
            return Next(min(join, self.pace.wait()))
        if not is_asked and (debt := self._debt()):
            return Next(debt)
        if self.first_looks is not None:
            return self._first_look(self.publisher, self.first_looks, spark)
        return self._plan(self.publisher, spark)

    def _debt(self) -> float:
        """Return for how many seconds the sender has published more than its rate."""
        return self.rate.wait() if self.rate is not None else 0.0

    def _look_once(self, spark: SparkSession) -> Turn:
        """Look in a run with ``available_now``, which ends with the version that was the newest at
        its start, however fast other writers are."""
        if self.publisher is None or self._is_capture_paused():
            self._collect_acks(spark, max_age=ACK_POLL_INTERVAL)
            return None
        if self._through is None:
            self.session.spark = spark
            try:
                self._through = self.publisher.source.newest().version
            except Exception as error:
                self._hold("publishing", error, spark)
                self._collect_acks(spark, max_age=ACK_POLL_INTERVAL)
                return None
        if debt := self._debt():
            return Next(debt)
        return self._plan(self.publisher, spark)

    def _is_capture_paused(self) -> bool:
        pause = self.pause()
        return pause is not None and pause.capture

    def _must_collect_acks(self) -> bool:
        """Whether there are new acks, something is overdue, or a fault may have passed. Costs no
        request."""
        hold = self._holds.get("acks")
        return self.acks.due() if hold is None else not hold.left()

    def _shows(self, glance: Callable[[], bool], spark: SparkSession) -> bool:
        """Whether a glance at the source shows that there is nothing to publish."""
        self.session.spark = spark
        try:
            return glance()
        except Exception as error:
            log.debug("%s: the look failed, a round will tell: %s", self.name, error)
            return False

    def _first_look(
        self, publisher: Publisher, first_looks: FirstLooks, spark: SparkSession
    ) -> Turn:
        """Begin the first round, unless nothing seems to be there and others have their turn."""
        is_known = not publisher.is_to_end and self._shows(publisher.seems_published, spark)
        if is_known and not first_looks.may_begin(self):
            return Next(self.pace.wait())
        turn = self._plan(publisher, spark)
        self._leave_first_looks()
        return turn

    def _leave_first_looks(self) -> None:
        if self.first_looks is not None:
            self.first_looks.done(self)
            self.first_looks = None

    def _plan(self, publisher: Publisher, spark: SparkSession) -> Turn:
        """Plan an epoch. A worker captures and publishes it, if there is one."""
        return self._go_on(self._round(publisher), spark, _LANES)

    def _round(self, publisher: Publisher) -> Steps[Manifest | None]:
        self.check_control()
        if self._is_capture_paused():
            return None
        publisher.log.channel.ensure_prepared()
        return (yield from publisher.round())

    def _capture(self, steps: Steps[Manifest | None], spark: SparkSession) -> Turn:
        """Capture and publish a planned epoch, in a worker."""
        began = time.monotonic()
        turn = self._go_on(steps, spark, {})
        self.pipeline.capture_took(time.monotonic() - began)
        return self._recorded(turn)

    def _go_on(
        self, steps: Steps[Manifest | None], spark: SparkSession, lanes: Mapping[str, Lane]
    ) -> Turn:
        """Run a round to its end, or to a step after which the rest is work for one of ``lanes``.
        An error holds the stream."""
        self.session.spark = spark
        published: Manifest | None = None
        try:
            while True:
                self.job.check_stopped()
                step = next(steps)
                reached(step)
                if step in lanes:
                    return Found(partial(self._capture, steps), lanes[step])
        except StopIteration as end:
            published = end.value
            self._release("publishing")
            self.note_queue(None)
        except Exception as error:
            full = error if isinstance(error, QueueFullError) else None
            self.note_queue(full)
            if full is None or full.is_hold or self.available_now:
                self._hold("publishing", error, spark)
            else:
                self._release("publishing")
        if self.publisher is not None:
            self.status.not_sent = self.publisher.not_sent
        if published is not None:
            self._note_published(published)
        return self._after_round(published, spark)

    def _after_round(self, published: Manifest | None, spark: SparkSession) -> Turn:
        """Return what to do after a round that has published an epoch, or none."""
        if self.available_now:
            self._collect_acks(spark, max_age=ACK_POLL_INTERVAL)
            assert self._through is not None
            assert self.publisher is not None
            if published is None:
                return None
            if published.last_version >= self._through and not self.publisher.may_end:
                return None
        return Next(0.0 if published is not None else self.pace.wait())

    def note_queue(self, full: QueueFullError | None) -> None:
        """Note whether the queue is full, and why."""
        status = self.status
        if full is None:
            status.queue_full = status.queue_full_since_ms = None
            return
        if status.queue_full is None:
            log.warning("%s", full, event="queue-full", stream=self.name, cause=str(full))
            status.queue_full_since_ms = milliseconds()
        status.queue_full = str(full)

    def _note_published(self, published: Manifest) -> None:
        self._newest = published
        self.pace.happened()
        self.pipeline.published()
        if self.block_on_ack:
            self._blocking = published, time.monotonic() + self.block_on_ack
        status = self.status
        status.epochs += 1
        status.events += published.rows
        status.batches += len(published.frames)
        status.bytes += published.bytes
        if self.rate is not None:
            self.rate.spend(published.bytes, published.rows)
        if published.end:
            log.info(
                "%s: epoch %d ends the stream with version %d, as somebody has asked. Nothing "
                "follows until it is resumed",
                status.stream,
                published.epoch,
                published.last_version,
                event="ended",
                stream=status.stream,
                epoch=published.epoch,
                version=published.last_version,
            )
            self._ended = True
            return
        newly = set(published.dropped) - set(self._dropped)
        self._dropped = published.dropped
        if published.first_version > published.last_version and newly:
            log.info(
                "%s: epoch %d, without sites: %s",
                self.name,
                published.epoch,
                ", ".join(sorted(newly)),
                event="sites-dropped",
                stream=self.name,
                epoch=published.epoch,
            )
            return
        if published.first_version > published.last_version:
            sites = ", ".join(published.addressees)
            log.info(
                "%s: epoch %d, to name sites: %s",
                status.stream,
                published.epoch,
                sites,
                event="sites-named",
                stream=status.stream,
                epoch=published.epoch,
            )
            return
        log.info(
            "%s: epoch %d, versions %d to %d, %d events",
            status.stream,
            published.epoch,
            published.first_version,
            published.last_version,
            published.rows,
            event="published",
            stream=status.stream,
            epoch=published.epoch,
            version=published.last_version,
            rows=published.rows,
            bytes=published.bytes,
        )

    def _recorded(self, turn: Turn) -> Turn:
        """Keep the stream's record before this turn, and look again when more of it is due."""
        if self.record is None:
            return turn
        if isinstance(turn, Found):
            self.record.expect(**self._known())
            return turn
        if self.publisher is not None and self.first_looks is not None and self.status.held is None:
            return turn  # whether the stream is held is not known yet
        wait = self.record.keep(last=turn is None, **self._known())
        return Next(min(turn.seconds, wait)) if turn is not None and wait is not None else turn

    def _known(self) -> dict[str, Any]:
        """Return what the record says of the stream."""
        status, newest = self.status, self._newest
        held, passes = self.forwarding_held or (None, False)
        if status.held is not None:
            held, passes = status.held, all(each.passes for each in self._holds.values())
        return dict(
            log_id=newest.log_id if newest is not None else "",
            epoch=newest.epoch if newest is not None else 0,
            through=newest.through if newest is not None else None,
            held=held,
            passes=passes,
            replaced=status.replaced,
            queue_full=status.queue_full,
            queue_full_since=status.queue_full_since_ms,
            waiting=self.publisher.waiting if self.publisher is not None else 0,
            delayed=self.publisher.delayed if self.publisher is not None else 0,
            work=None,
            epochs=status.epochs,
            events=status.events,
            batches=status.batches,
            bytes=status.bytes,
            dead_letters=status.dead_letters,
            duplicates=status.duplicates,
            not_served=tuple(status.not_served),
            not_sent=status.not_sent,
            **({"alert": status.alert} if self._knows_alert() else {}),
            **self._known_control(),
            **self._known_history(),
        )

    def _known_history(self) -> dict[str, Any]:
        """Return what is known of the source's history. What is not, an earlier sender has said."""
        if self.publisher is None:
            return {}
        known = {
            "retention": self.publisher.retention,
            "history_from": self.publisher.unpublished_since,
        }
        return {name: value for name, value in known.items() if value is not None}

    def _known_control(self) -> dict[str, Any]:
        if self.publisher is None:
            return {}
        return {"control": self.publisher.control, "ending": self.publisher.asked_to_end}

    def report_work(self) -> None:
        """Have the record say how far the capture under way is, if it takes long."""
        if self.record is not None and self.publisher is not None:
            site = self.publisher.settings.origin
            self.record.report(long_work("capturing", self.name, site, milliseconds()))

    def _knows_alert(self) -> bool:
        """Whether the alert in the record is to be replaced. That of a sink, whose commit has gone
        on without the policy, stays until the policy is met."""
        if self.publisher is not None or self.status.alert is not None:
            return True
        newest = self.acks.state.newest
        return newest is None or self.acks.done(newest)

    def _is_blocking(self, spark: SparkSession) -> bool:
        """Whether ``block_on_ack`` still waits for the ack policy to be met."""
        if self._blocking is None or self.pause() is not None:
            self._blocking = None
            return False
        published, until = self._blocking
        if not self.acks.done(published):
            self._collect_acks(spark, max_age=ACK_POLL_INTERVAL)
        if not self.timeouts.ends_wait(published):
            if time.monotonic() < until:
                return True
            self.timeouts.wait_failed(published)
            self._show_alert()
        self._blocking = None
        return False

    def _show_alert(self) -> None:
        alert = self.timeouts.alert
        self.status.alert = str(alert) if alert is not None else None

    def _collect_acks(self, spark: SparkSession, max_age: float | None = None) -> None:
        """Act on the acks that the channel's last look has shown. ``max_age``: look again if that
        was longer ago, in seconds."""
        try:
            if max_age is not None:
                self.acks.look(max_age)
            self._note(run(self.acks.round()))
            self.timeouts.act(self._blocking[0] if self._blocking is not None else None)
            self._show_alert()
            self.sweep.run_when_due()
        except Exception as error:
            self._hold("acks", error, spark)
            return
        self._release("acks")

    def _note(self, state: StreamState) -> None:
        """Take over what a round of the ack manager has read."""
        status = self.status
        self._newest = state.newest
        if state.newest is not None:
            status.published = state.newest.epoch
            if state.newest.kind != EVENTS:
                status.version = state.newest.last_version
            if self.acks.acked_by(state.newest):
                self.pipeline.acked()
        status.backlog = state.backlog
        status.acked = {site: ack.applied for site, ack in state.acks.items()}
        status.not_served = list(state.not_served)
        status.remote_holds = {
            site: ack.cause or "" for site, ack in state.acks.items() if ack.held is not None
        }

    def _release(self, part: str) -> None:
        """Note that a part of the work succeeded; another part may still hold the stream."""
        was_held = self._holds.pop(part, None) is not None
        if was_held and not self._holds:
            log.info(
                "%s: no longer held",
                self.name,
                event="released",
                stream=self.name,
                table=self.status.table,
            )
        self.status.held = next((hold.cause for hold in self._holds.values()), None)
        self.status.replaced = any(hold.replaced for hold in self._holds.values())
        if self.status.held is None:
            self.status.held_since_ms = None

    def _hold(self, part: str, error: Exception, spark: SparkSession) -> None:
        """Hold the stream. Raises StoppedError once the sender is stopped, SessionLostError once
        the session has ended."""
        table, before = self.status.table, self._holds.get(part)
        if self.job.is_stopping:
            raise StoppedError("stopped") from error
        lost = lost_session(spark)
        if lost is not None:
            raise lost from error
        first_wait = 2 * self.pace.shortest
        if ErrorKind.CANCELLED.matches(error):
            # Nothing was published, and the next round plans it again.
            wait = next_wait(first_wait, before)
            retry = "Start again." if self.available_now else f"Will retry in {wait:g} s."
            error = WanError(f"{table}: its Spark job was cancelled from outside. {retry}")
            error.passes = True
        expected = isinstance(error, WanError)
        cause = str(error) if expected else f"{table}: {error_text(error)}"
        if before is None or cause != before.cause:
            traceback = None if expected else error
            log.error(
                "%s: held: %s",
                self.status.stream,
                cause,
                exc_info=traceback,
                event="held",
                stream=self.status.stream,
                table=table,
                cause=cause,
                what_to_do=None if expected else UNEXPECTED,
            )
        hold = _Hold(
            cause,
            first_wait,
            before,
            replaced=isinstance(error, TableReplacedError),
            passes=may_pass(error),
        )
        self._holds[part] = hold
        self.status.held = cause
        self.status.replaced = any(each.replaced for each in self._holds.values())
        if self.status.held_since_ms is None:
            self.status.held_since_ms = hold.since_ms
