"""The gateway receiver as a job: one streaming query per inbound channel wakes it, the ledger and the log say what to apply.

The query's micro-batches are not read: they only say that something is there. So a lost, restored or shared checkpoint costs a look
at the log and nothing else.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from spark_wan.channels.base import Channel
from spark_wan.channels.log import StreamLog
from spark_wan.channels.registry import open_channel
from spark_wan.control.decisions import Decisions, StoredDecisions
from spark_wan.delta.commits import record_after
from spark_wan.delta.errors import ErrorKind, error_text
from spark_wan.delta.sessions import SessionSettings, is_connect, lost_session, spark_thread
from spark_wan.errors import (
    ChannelError,
    LedgerError,
    SessionLostError,
    StoppedError,
    TopologyError,
    WanError,
)
from spark_wan.ledger.ledger import Ledger
from spark_wan.ledger.store import DeltaLedgerStore
from spark_wan.ledger.tables import LedgerTables
from spark_wan.receiver.apply import ApplyResult, TableApplier
from spark_wan.receiver.target import DeltaTarget
from spark_wan.receiver.wake_up import FORMAT, IDLE_INTERVAL, WakeUpSource
from spark_wan.receiver.workers import TableWorkers
from spark_wan.steps import Steps, reached
from spark_wan.topology.model import Topology
from spark_wan.wire.ack import Ack
from spark_wan.wire.manifest import EVENTS, Manifest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger(__name__)

EXPIRY_INTERVAL = 3_600.0
"""Seconds between two times at which event IDs are forgotten."""
RETRY_INTERVAL = 10.0
"""Seconds until a held stream is tried again for the first time; then twice as many each time, up to ``LONGEST_RETRY``."""
LONGEST_RETRY = 30.0
ACK_LOOKS = 10
"""So many streams with nothing to do are asked for their acks at once: what is new does not wait for more."""
CHANNEL_LOOK = 1.0
"""Seconds between looks at a channel that does not answer, and at one whose tables are at work."""
RESTART_WAIT = 5.0
"""Seconds until a query that ended by no fault of its own starts again; then twice as many each time, up to ``LONGEST_RESTART``."""
LONGEST_RESTART = 300.0
PYTHON_WAIT = 40.0
"""The same for a query whose Python did not come up: beyond it the receiver ends, since that interpreter may never run."""
STOP_WAIT = 10.0
"""Seconds that a stop leaves to the step at work, before it cancels its Spark job."""
ASK_INTERVAL = 5.0
"""Seconds between two times at which the session is asked whether it still answers."""
_LOOK = 0.25
"""Seconds between looks at the queries."""
_SHORT = 0.001
"""Seconds: Spark refuses to wait for 0."""
_GAVE_UP = f"{StoppedError.__module__}.{StoppedError.__qualname__}: "
"""How Python names the error in what Spark says of a micro-batch that another process ran."""


Announced = tuple[tuple[int, int], ...]
"""(number, attempt) of what was announced again."""
_Seen = tuple[tuple[int, ...], Announced]


@dataclass(frozen=True)
class _Found:
    """A stream that may have something to apply, as the channel was listed."""

    log: StreamLog
    numbers: Sequence[int]
    announced: Announced


@dataclass
class _Retry:
    """A held stream: when it is tried again, after how many seconds, and what its log looked like."""

    at: float
    wait: float
    held: int
    saw: _Seen
    cancelled: bool
    """Its Spark job was cancelled from outside: the micro-batch does not end without it."""


@dataclass
class TableStatus:
    """What a receiver says of one inbound stream since it began."""

    stream: str
    table: str
    applied: int = 0
    """Through this epoch everything is applied."""
    epochs: int = 0
    events: int = 0
    duplicates: int = 0
    """Events that came again and were discarded."""
    dead_letters: int = 0
    local_commits: int = 0
    """Commits to the target that no receiver made; this site does not send them."""
    held: str | None = None


class Receiver:
    """Applies what comes to a site over its inbound channels.

    Args:
        spark: A session, classic or Connect.
        topology: Who sends what to whom.
        site: The site that receives here.
        senders: Names of the remote senders to receive from; default: all that serve the site.
        interval: Seconds between looks at the channel.
        parallel: Maximum number of tables written concurrently. A table that takes longer than 20 seconds is no longer counted, so that it stops
            no other.
        max_bytes: So many bytes of frames at the most in one apply.
        decisions: What to do about what holds a stream, by table; recorded in the site's ``state``, so that once is enough
            (:func:`spark_wan.control.decisions.parse_decisions`).

    Raises:
        TopologyError: the site is unknown, or no sender serves it.
    """

    def __init__(
        self,
        spark: SparkSession,
        topology: Topology,
        site: str,
        *,
        senders: Sequence[str] | None = None,
        interval: float = 0.5,
        parallel: int = 2,
        max_bytes: int = 256 * 2**20,
        decisions: Mapping[str, Decisions] | None = None,
    ) -> None:
        self.spark = spark
        self.topology = topology
        self.site = topology.site(site)
        self.senders = [
            sender
            for sender in topology.inbound_channels(site)
            if senders is None or topology.sender(sender.name).name in senders
        ]
        if not self.senders:
            raise TopologyError(
                f"{topology.file}: nothing comes to site {site}: no sender{'' if senders is None else ' named'} has it among its remotes."
            )
        self.interval = interval
        self.parallel = parallel
        self.max_bytes = max_bytes
        self.decisions = {
            topology.table(name).name: each for name, each in (decisions or {}).items()
        }

    def start(self, available_now: bool = False) -> ReceiverHandle:
        """Begin to apply. ``available_now``: apply what is there, and end."""
        self.spark.dataSource.register(WakeUpSource)
        LedgerTables(self.spark, self.site.state).ensure()
        stop = threading.Event()
        queries: list[StreamingQuery] = []
        inbound: list[ChannelReceiver] = []
        try:
            for url in sorted({sender.channel for sender in self.senders}):
                query, channel = self._start(url, stop, available_now)
                queries.append(query)
                inbound.append(channel)
        except BaseException:
            for query in queries:
                query.stop()
            raise
        handle = ReceiverHandle(
            queries,
            inbound,
            stop,
            classic=not is_connect(self.spark),
            start_again=self._query,
            once=available_now,
            lost=partial(lost_session, self.spark),
        )
        name = f"wan-receiver {self.site.name}"
        handle._keep_running(spark_thread(self.spark, handle._watch, name, handle._end_with))
        return handle

    def _start(
        self, url: str, stop: threading.Event, available_now: bool
    ) -> tuple[StreamingQuery, ChannelReceiver]:
        sender = next(sender for sender in self.senders if sender.channel == url)
        channel = ChannelReceiver(
            self.topology,
            self.site.name,
            url,
            dict(sender.storage),
            self.parallel,
            self.max_bytes,
            waits=not available_now,
            decisions=self.decisions,
            settings=None if is_connect(self.spark) else SessionSettings.of(self.spark),
        )
        channel.stop = stop
        open_channel(url, sender.storage).prepare()
        return self._query(channel), channel

    def _query(self, channel: ChannelReceiver) -> StreamingQuery:
        url, storage = channel.url, channel.storage
        reader = (
            self.spark.readStream.format(FORMAT)
            .option("channel", url)
            .option("site", self.site.name)
        )
        reader = reader.option("token", uuid.uuid4().hex).option(
            "retryInterval", str(RETRY_INTERVAL)
        )
        for name, value in storage.items():
            reader = reader.option(f"storage.{name}", value)
        name = hashlib.blake2b(url.encode(), digest_size=6).hexdigest()
        writer = (
            reader.load()
            .writeStream.foreachBatch(channel)
            .queryName(f"wan receiver {self.site.name} {name} {uuid.uuid4().hex[:6]}")
            .option(
                "checkpointLocation", f"{self.site.state.rstrip('/')}/checkpoints/receiver/{name}"
            )
        )
        writer = (
            writer.trigger(availableNow=True)
            if not channel.waits
            else writer.trigger(processingTime=f"{self.interval} seconds")
        )
        try:
            channel.query = writer.start()
        except Exception as error:
            # Of two receivers that begin the same new checkpoint at the same moment, Spark lets one fail, though not the next time.
            log.info("the query for %s did not start, tried once more: %s", url, error_text(error))
            channel.query = writer.start()
        return channel.query


@dataclass
class _Restart:
    """When a query that has ended starts again, and why it has ended."""

    at: float
    cause: str


class ReceiverHandle:
    """A running receiver. A query that ends by no fault of its own starts again: its Spark job was cancelled from outside, another receiver
    has used its checkpoint meanwhile, or Python did not come up within the time that Spark gives it. A run that is to end (``once``) starts again
    for the last of these alone."""

    def __init__(
        self,
        queries: Sequence[StreamingQuery],
        inbound: Sequence[ChannelReceiver],
        stop: threading.Event,
        classic: bool,
        start_again: Callable[[ChannelReceiver], StreamingQuery],
        *,
        once: bool = False,
        lost: Callable[[], SessionLostError | None] = lambda: None,
    ) -> None:
        self.queries = list(queries)
        """The streaming queries, one per inbound channel: their progress shows the lag."""
        self._inbound = list(inbound)
        self._stop = stop
        self._classic = classic
        self._start_again = start_again
        self._once = once
        self._lost = lost
        self._lock = threading.RLock()
        self._thread: threading.Thread | None = None
        self._stopped: set[int] = set()
        """Queries that were active when :meth:`stop` came, by place."""
        self._ended: dict[int, BaseException | None] = {}
        self._restarts: dict[int, _Restart] = {}
        self._waits: dict[int, float] = {}
        self._began = dict.fromkeys(range(len(self.queries)), time.monotonic())

    @property
    def is_active(self) -> bool:
        """Whether any of the queries is still at work, or will start again."""
        self._look()
        return len(self._ended) < len(self.queries)

    def status(self) -> list[TableStatus]:
        """What each stream has done since this receiver began, and what holds it. Under Spark Connect the work is done in the server: there the
        channel's acks are read, and counts stay 0."""
        found = []
        for place, channel in enumerate(self._inbound):
            statuses = channel.statuses() if self._classic else channel.acked()
            restart = self._restarts.get(place)
            found += (
                [replace(status, held=restart.cause) for status in statuses]
                if restart is not None
                else statuses
            )
        return found

    def exception(self) -> BaseException | None:
        """The first error that ended a query for good, or None."""
        self._look()
        return next((error for error in list(self._ended.values()) if error is not None), None)

    def await_termination(self, timeout: float | None = None) -> bool:
        """Wait until the receiver has ended; False when ``timeout`` seconds have passed before. Raises the error that ended it, or one of its
        queries: with ``available_now`` once the others are done."""
        end = None if timeout is None else time.monotonic() + timeout
        while self.is_active and (self._once or self.exception() is None):
            left = _LOOK if end is None else min(_LOOK, end - time.monotonic())
            if left <= 0:
                return False
            time.sleep(left)
        error = self.exception()
        if error is not None:
            raise error
        return True

    def stop(self) -> None:
        """Stop. A step that is at work may end within ``STOP_WAIT`` seconds; what is left is given up, and decided again at the next start."""
        with self._lock:
            self._look()
            self._stopped |= set(range(len(self.queries))) - set(self._ended) - set(self._restarts)
            self._stop.set()
        end = time.monotonic() + STOP_WAIT
        for channel in self._inbound:
            channel.idle.wait(max(0.0, end - time.monotonic()))
        with self._lock:
            self._restarts.clear()
            for query in self.queries:
                try:
                    query.stop()
                except Exception as error:
                    if self._lost() is None:
                        raise
                    log.debug("the query has ended with its session: %s", error)
            self._look()
        if self._thread is not None:
            self._thread.join()

    def _keep_running(self, thread: threading.Thread) -> None:
        self._thread = thread
        thread.start()

    def _watch(self) -> None:
        """See queries end, and start them again, until the receiver is stopped or has ended."""
        ask_at = 0.0
        while self.is_active and not self._stop.wait(_LOOK):
            if time.monotonic() >= ask_at:
                # An idle query goes on when its context was stopped: it needs none to find out that nothing is new.
                lost = self._lost()
                if lost is not None:
                    self._end_with(lost)
                ask_at = time.monotonic() + ASK_INTERVAL
            for place, restart in list(self._restarts.items()):
                if time.monotonic() >= restart.at:
                    self._restart(place)

    def _end_with(self, lost: SessionLostError) -> None:
        with self._lock:
            if self._stop.is_set():
                return
            for place in range(len(self.queries)):
                self._restarts.pop(place, None)
                self._ended.setdefault(place, lost)
        log.error("the receiver has ended: %s", lost)

    def _restart(self, place: int) -> None:
        with self._lock:
            if self._stop.is_set():
                return
            channel = self._inbound[place]
            channel.forget()
            try:
                self.queries[place] = self._start_again(channel)
            except Exception as error:
                self._began[place] = time.monotonic()
                del self._restarts[place]
                cause = f"its query did not start again: {error_text(error)}"
                self._conclude(place, error, cause, PYTHON_WAIT if self._once else None)
                return
            self._began[place] = time.monotonic()
            del self._restarts[place]
            log.warning("%s: its query has started again", channel.url)

    def _look(self) -> None:
        """Find out which queries have ended, and why."""
        with self._lock:
            for place, query in enumerate(self.queries):
                if place not in self._ended and place not in self._restarts:
                    try:
                        if query.isActive:
                            continue
                        query.awaitTermination(_SHORT)  # type: ignore[arg-type]  # raises what ended it, with its causes
                    except Exception as error:
                        self._find_cause(place, error)
                    else:
                        self._find_end(place)

    def _find_end(self, place: int) -> None:
        """A query has ended without an error: a run that was to end has done so, or somebody has stopped it."""
        failure = self._inbound[place].failure if place < len(self._inbound) else None
        if self._stop.is_set() or (self._once and failure is None):
            self._ended[place] = None
            return
        url = self._inbound[place].url
        stopped = f"the receiver's query for {url} was stopped from outside: nothing more of this channel is applied. Start the receiver again."
        self._end(place, StoppedError(stopped))

    def _find_cause(self, place: int, error: Exception) -> None:
        failure = self._inbound[place].failure if place < len(self._inbound) else None
        given_up = isinstance(failure, StoppedError) or (failure is None and _GAVE_UP in str(error))
        given_up = given_up or ErrorKind.CANCELLED.matches(failure or error)
        if given_up and place in self._stopped:
            self._ended[place] = None  # its micro-batch gave up before Spark's own stop had come
        elif ErrorKind.PYTHON_MISSING.matches(error):
            cause = "its Python did not come up within the ten seconds that Spark gives it"
            self._conclude(place, error, cause, PYTHON_WAIT)
        elif self._once:
            self._end(place, error)
        elif ErrorKind.CHECKPOINT_CONFLICT.matches(error):
            self._conclude(
                place,
                error,
                "another receiver has used its checkpoint (CONCURRENT_STREAM_LOG_UPDATE)",
            )
        elif given_up:
            self._conclude(place, error, "its Spark job was cancelled from outside")
        else:
            self._end(place, error)

    def _conclude(
        self, place: int, error: Exception, cause: str, longest: float | None = None
    ) -> None:
        """Start a query again later, if that may be; not after more than ``longest`` seconds."""
        now = time.monotonic()
        fresh = now - self._began[place] > LONGEST_RESTART
        wait = (
            RESTART_WAIT
            if fresh
            else min(LONGEST_RESTART, self._waits.get(place, RESTART_WAIT / 2) * 2)
        )
        if (
            (longest is not None and wait > longest)
            or self._stop.is_set()
            or self._lost() is not None
        ):
            self._end(place, error)
            return
        self._waits[place] = wait
        url = self._inbound[place].url
        text = f"the receiver's query for {url} has ended: {cause}. Will start again in {wait:g} s."
        log.warning("%s", text)
        self._restarts[place] = _Restart(now + wait, text)

    def _end(self, place: int, error: Exception) -> None:
        lost = self._lost()
        if lost is not None and self._stop.is_set():
            self._ended[place] = None  # SIGTERM to a process group ends the JVM too
            return
        self._ended[place] = lost or error
        where = self._inbound[place].url if place < len(self._inbound) else "a channel"
        log.error("the receiver's query for %s has ended: %s", where, lost or error_text(error))


@dataclass
class ChannelReceiver:
    """The work of one inbound channel: the function of its foreachBatch. Pickled to the server under Spark Connect."""

    topology: Topology
    site: str
    url: str
    storage: dict[str, str]
    parallel: int
    max_bytes: int
    waits: bool = True
    """A channel that does not answer is waited for; otherwise the micro-batch fails."""
    decisions: Mapping[str, Decisions] = field(default_factory=dict)
    """Given at the start, by table."""
    settings: SessionSettings | None = None
    """Of the classic session that the receiver was started in."""
    stop: threading.Event | None = None
    query: StreamingQuery | None = None
    """Whose micro-batches these are; None in a Spark Connect server, and before it is known."""
    failure: BaseException | None = None
    """What the last micro-batch raised."""
    idle: threading.Event = field(default_factory=threading.Event)
    """Set while no micro-batch is at work."""
    on_outcome: Callable[[str, ApplyResult], None] | None = None
    _appliers: dict[str, TableApplier] = field(default_factory=dict)
    _tables: dict[str, str] = field(default_factory=dict)
    _statuses: dict[str, TableStatus] = field(default_factory=dict)
    _expire_at: dict[str, float] = field(default_factory=dict)
    _done: dict[str, tuple[int, Announced]] = field(default_factory=dict)
    """Per stream: the newest epoch and the announcements when all was applied and acked."""
    _done_at: dict[str, float] = field(default_factory=dict)
    _retries: dict[str, _Retry] = field(default_factory=dict)
    """Of the streams that are held."""
    _trouble: str | None = None
    """Why the channel could not be listed the last time."""
    _acks_at: float = 0.0
    """When acks of streams that are done are looked at again."""
    _to_ask: list[str] = field(default_factory=list)
    """The streams whose turn comes next."""
    _lock: threading.RLock = field(default_factory=threading.RLock)
    """For what all tables' threads share: appliers, statuses, retries."""

    def __post_init__(self) -> None:
        self.idle.set()

    def __getstate__(self) -> dict[str, Any]:
        kept = ("topology", "site", "url", "storage", "parallel", "max_bytes", "waits", "decisions")
        return {name: self.__dict__[name] for name in kept}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def __call__(self, frame: DataFrame, batch: int) -> None:
        """Apply whatever the channel's logs have for this site. Called by Spark for every micro-batch.

        While the channel does not answer, the micro-batch neither fails, which would end the receiver, nor counts as done: nobody
        might wake the receiver again."""
        spark = frame.sparkSession
        plan: Any = getattr(frame, "_plan", None)
        if plan is not None:
            # Under Connect, a frame that nobody needs any more asks the server to forget it, which at times never answers. The server forgets
            # it by itself after the micro-batch.
            plan._relation_id = None
        self.failure = None
        self.idle.clear()
        try:
            self._until_applied(spark)
        except BaseException as error:
            self.failure = error
            self.idle.set()
            if not self._has_ended():
                raise
            # Spark does not count the batch of a stopped query as done, and to raise would only make it log an error with its stack.
            log.debug("the micro-batch was given up: %s", error)
        finally:
            self.idle.set()

    def _has_ended(self) -> bool:
        """Whether the query was stopped. After a stop by the handle, which comes here first, wait for Spark's own."""
        end = time.monotonic() + 2 * STOP_WAIT
        while self.query is not None:
            if not _is_active(self.query):
                return True
            if self.stop is None or not self.stop.is_set() or time.monotonic() > end:
                break
            time.sleep(0.02)
        return False

    def _until_applied(self, spark: SparkSession) -> None:
        while True:
            try:
                return self.apply_all(spark)
            except ChannelError as error:
                if not self.waits:
                    raise
                log.warning("%s", error)
            self._pause()
            self._check_stopped()
            if self.query is None:
                spark.range(1).collect()  # raises when the query was stopped

    def forget(self) -> None:
        """Begin anew, as a receiver that starts does; what was told of the streams stays."""
        with self._lock:
            self._appliers.clear()
            self._done.clear()
            self._retries.clear()

    def apply_all(self, spark: SparkSession) -> None:
        """Apply, table by table, what the logs have now. One apply at a time per table; several tables at once.

        While a table is at work the channel is listed again, and other tables get what came meanwhile: a slow one delays no other's apply. Not
        with ``available_now``, which ends when what was there is applied. A stream whose Spark job was cancelled from outside is tried again
        here, since the micro-batch must not count as done without it."""
        channel = open_channel(self.url, self.storage)
        # Apart, since a listing must not forget what an apply that is at work has met.
        refused: dict[str, ChannelError] = {}
        errors: dict[str, ChannelError] = {}
        workers = TableWorkers(spark, self.parallel)
        found = self._find(channel, refused)
        try:
            while True:
                for table, streams in found.items():
                    workers.give(table, partial(self._apply_table, spark, table, streams, errors))
                idle = workers.wait(CHANNEL_LOOK)
                if idle and not self._cancelled():
                    break
                if idle:
                    self._pause()
                self._check_stopped()
                found = self._find_again(channel, refused) if self.waits else {}
        finally:
            workers.join()
        for error in (*refused.values(), *errors.values()):
            raise error

    def _apply_table(
        self,
        spark: SparkSession,
        table: str,
        streams: Sequence[_Found],
        errors: dict[str, ChannelError],
    ) -> None:
        for found in streams:
            with self._one_of_many(found.log.stream, errors):
                self._apply_stream(spark, table, found.log, found.numbers, found.announced)

    def _find(self, channel: Channel, errors: dict[str, ChannelError]) -> dict[str, list[_Found]]:
        """What may have to be applied, by table."""
        found: dict[str, list[_Found]] = {}
        try:
            listed, again = channel.numbers(), channel.announcements()
        except ChannelError as error:
            self._trouble = str(error)
            raise
        self._trouble = None
        with self._lock:
            self._retries = {
                stream: retry for stream, retry in self._retries.items() if stream in listed
            }
            for stream, status in self._statuses.items():
                if stream not in listed:
                    status.held = None  # it was removed from the channel
        done = []
        for stream, numbers in listed.items():
            announced = tuple(again.get(stream, ()))
            if self._done.get(stream) == (numbers[-1], announced) and not self._is_stale(stream):
                done.append(stream)
            elif self._is_due(stream, numbers, announced):
                self._find_one(StreamLog(channel, stream), numbers, announced, found, errors)
        for stream in self._asked(done):
            stream_log = StreamLog(channel, stream)
            if self._is_told_as_held(stream_log):
                self._find_one(
                    stream_log, listed[stream], tuple(again.get(stream, ())), found, errors
                )
        return found

    def _find_one(
        self,
        stream: StreamLog,
        numbers: Sequence[int],
        announced: Announced,
        found: dict[str, list[_Found]],
        errors: dict[str, ChannelError],
    ) -> None:
        with self._one_of_many(stream.stream, errors):
            self._done.pop(stream.stream, None)
            table = self._table_of(stream, numbers[-1])
            if table is not None:
                found.setdefault(table, []).append(_Found(stream, numbers, announced))

    def _asked(self, done: Sequence[str]) -> list[str]:
        """The streams among ``done`` whose acks are to be looked at now: some of them, now and then, in turn."""
        now = time.monotonic()
        if now < self._acks_at:
            return []
        self._acks_at = now + RETRY_INTERVAL / 2
        there = set(done)
        self._to_ask = [stream for stream in self._to_ask if stream in there] or list(done)
        asked, self._to_ask = self._to_ask[:ACK_LOOKS], self._to_ask[ACK_LOOKS:]
        return asked

    def _is_told_as_held(self, stream: StreamLog) -> bool:
        """Whether this site's ack says that a stream is held which is done here: another receiver of the site has left it so."""
        try:
            ack = stream.acks().get(self.site)
        except WanError:
            return True  # the round says what is wrong
        return ack is not None and ack.held is not None

    def _find_again(
        self, channel: Channel, errors: dict[str, ChannelError]
    ) -> dict[str, list[_Found]]:
        """The same while tables are at work, which a channel that does not answer must not end."""
        errors.clear()
        try:
            return self._find(channel, errors)
        except ChannelError as error:
            errors[self.url] = error
            return {}

    def _is_due(self, stream: str, numbers: Sequence[int], announced: Announced) -> bool:
        """Whether a stream may be tried: it is not held, its time has come, or its log shows something else than when it was held."""
        retry = self._retries.get(stream)
        return (
            retry is None
            or time.monotonic() >= retry.at
            or retry.saw != _seen(numbers, announced, retry.held)
        )

    def _cancelled(self) -> bool:
        with self._lock:
            return any(retry.cancelled for retry in self._retries.values())

    @contextmanager
    def _one_of_many(self, stream: str, errors: dict[str, ChannelError]) -> Iterator[None]:
        """What the channel refuses for one stream is kept until the others have had their turn."""
        try:
            yield
        except ChannelError as error:
            errors[stream] = error
            self._status(stream, self._tables.get(stream, "")).held = str(error)
        else:
            errors.pop(stream, None)

    def statuses(self) -> list[TableStatus]:
        """What each stream has done; all of them are held while the channel cannot be listed."""
        with self._lock:
            trouble = self._trouble
            if trouble is not None and not self._statuses:
                self._status(self.url, "")
            found = [self._statuses[stream] for stream in sorted(self._statuses)]
        return found if trouble is None else [replace(status, held=trouble) for status in found]

    def _status(self, stream: str, table: str) -> TableStatus:
        with self._lock:
            return self._statuses.setdefault(stream, TableStatus(stream, table))

    def acked(self) -> list[TableStatus]:
        """Statuses as the channel's acks tell them. What cannot be read is held."""
        try:
            channel = open_channel(self.url, self.storage)
            listed = channel.numbers()
        except WanError as error:
            self._trouble = str(error)
            return self.statuses()
        self._trouble = None
        for name in self._statuses.keys() - listed.keys():
            self._statuses[name].held = None  # it was removed from the channel
        for name in listed:
            stream = StreamLog(channel, name)
            try:
                ack = stream.acks().get(self.site)
                if ack is None:
                    if name in self._statuses:
                        self._statuses[name].held = None
                    continue
                if name not in self._tables:
                    last = stream.newest_manifest()
                    if last is None:
                        continue
                    self._tables[name] = last.table
            except WanError as error:
                self._status(name, self._tables.get(name, "")).held = str(error)
                continue
            status = self._status(name, self._tables[name])
            status.applied, status.dead_letters, status.held = (
                ack.applied,
                ack.dead_letters,
                ack.cause,
            )
        return self.statuses()

    def _table_of(self, stream: StreamLog, number: int) -> str | None:
        """The table that a stream is for, or None when this site has no part in it. A stream that cannot be read is held."""
        if stream.stream not in self._tables:
            try:
                manifest = stream.read(number)
            except WanError as error:
                self._refuse(stream, None, number, str(error))
                return None
            if self.site not in manifest.addressees:
                with self._lock:
                    self._statuses.pop(
                        stream.stream, None
                    )  # it may be held from when it could not be read
                return None
            if (
                manifest.table not in self.topology.tables
                or self.site not in self.topology.table(manifest.table).at
            ):
                cause = (
                    f"{stream.stream}: table {manifest.table!r} is not at site {self.site} in {self.topology.file}. Add it below `tables:` with "
                    f"`at: {{{self.site}: …}}`. When it has another name now, remove what is left of this stream from the channel: "
                    f"log/{stream.stream}, frames/{stream.stream} and acks/{stream.stream}."
                )
                self._refuse(stream, manifest, number, cause)
                return None
            self._tables[stream.stream] = manifest.table
        return self._tables[stream.stream]

    def _refuse(
        self, stream: StreamLog, manifest: Manifest | None, number: int, cause: str
    ) -> None:
        status = self._status(stream.stream, manifest.table if manifest else "")
        if status.held != cause:
            log.error("%s: held: %s", stream.stream, cause)
        status.held = cause
        before = stream.acks().get(self.site)
        ack = Ack(self.site, stream.stream, manifest.log_id if manifest else "", 0, number, cause)
        if before is not None:
            ack = Ack(
                self.site,
                stream.stream,
                before.log_id,
                before.applied,
                before.applied + 1,
                cause,
                before.dead_letters,
            )
        if ack != before:
            stream.channel.put_ack(stream.stream, self.site, ack.encode())

    def _apply_stream(
        self,
        spark: SparkSession,
        table: str,
        stream: StreamLog,
        numbers: Sequence[int],
        announced: Announced,
    ) -> None:
        try:
            applier = self._applier(spark, table, stream)
        except LedgerError as error:
            self._refuse(stream, None, numbers[-1], str(error))
            return
        status = self._status(stream.stream, table)
        # No further than the listing: what comes meanwhile wakes the receiver again, and other streams have their turn before it.
        while True:
            self._check_stopped()
            outcome, cancelled = self._round(spark, applier, numbers)
            self._note(status, outcome, applier)
            if self.on_outcome is not None:
                self.on_outcome(table, outcome)
            if outcome.epochs:
                self._expire_event_ids(applier, outcome.plan.new[0].manifest)
            if outcome.again:
                continue
            if outcome.held is None:
                self._done_at[stream.stream] = (
                    time.monotonic()
                )  # first: who sees the next line looks for it
                self._done[stream.stream] = (numbers[-1], announced)
            self._schedule(
                table, stream.stream, outcome, _seen(numbers, announced, outcome.held), cancelled
            )
            return

    def _schedule(
        self, table: str, stream: str, outcome: ApplyResult, saw: _Seen, cancelled: bool
    ) -> None:
        """Say when a held stream is tried again, less and less often. What it waits for may be what another stream of its table has brought."""
        with self._lock:
            if outcome.epochs:
                for name, retry in self._retries.items():
                    if self._tables.get(name) == table:
                        retry.at = 0.0
            if outcome.held is None:
                self._retries.pop(stream, None)
                return
            wait = self._wait(stream)
            # The source wakes the receiver every RETRY_INTERVAL, a little early or late.
            at = time.monotonic() + wait - RETRY_INTERVAL / 4
            self._retries[stream] = _Retry(at, wait, outcome.held, saw, cancelled)

    def _wait(self, stream: str) -> float:
        """Seconds until a stream that is held now is tried again."""
        before = self._retries.get(stream)
        return min(LONGEST_RETRY, before.wait * 2) if before is not None else RETRY_INTERVAL

    def _is_stale(self, stream: str) -> bool:
        """Whether the target of a stream that is done must be looked at again, before log cleanup takes commits that the ledger has not seen."""
        passed = time.monotonic() - self._done_at[stream]
        if passed < IDLE_INTERVAL:
            return False
        try:
            return passed * 1000 >= record_after(self._appliers[stream].target.log_retention())
        except WanError:
            return True  # the look says what is wrong with the table

    def _round(
        self, spark: SparkSession, applier: TableApplier, numbers: Sequence[int]
    ) -> tuple[ApplyResult, bool]:
        """One round, and whether its Spark job was cancelled from outside."""
        try:
            return self._steps(applier.round(numbers)), False
        except Exception as error:
            if self._stopping():
                raise StoppedError("the receiver was stopped") from error
            lost = lost_session(spark)
            if lost is not None:
                raise lost from error
            if not ErrorKind.CANCELLED.matches(error):
                log.exception("%s: unexpected error", applier.log.stream)
                return applier.unexpected(f"{applier.table}: {error_text(error)}"), False
            if self.query is None or not self.waits:
                # Who has stopped what is not known here. Swallowed, the cancellation would let the batch count as done.
                raise StoppedError(f"{applier.table}: its Spark job was cancelled") from error
            wait = self._wait(applier.log.stream)
            cause = f"{applier.table}: its Spark job was cancelled from outside. Will retry in {wait:g} s."
            return applier.unexpected(cause), True

    def _expire_event_ids(self, applier: TableApplier, applied: Manifest) -> None:
        """Now and then: forget the event IDs of a user's stream that are older than the table's ``event_id_ttl``."""
        ttl = self.topology.table(applier.table).event_id_ttl
        if (
            ttl is None
            or applied.kind != EVENTS
            or time.monotonic() < self._expire_at.get(applier.table, 0.0)
        ):
            return
        self._expire_at[applier.table] = time.monotonic() + EXPIRY_INTERVAL
        assert isinstance(applier.target, DeltaTarget)
        try:
            applier.target.expire_event_ids(applied.origin, int((time.time() - ttl) * 1_000_000))
        except Exception as error:
            # Tried again in an hour; what was applied is not touched by it.
            if self._stopping():
                raise StoppedError("the receiver was stopped") from error
            log.warning(
                "%s: event IDs could not be expired now: %s", applier.table, error_text(error)
            )

    def _note(self, status: TableStatus, outcome: ApplyResult, applier: TableApplier) -> None:
        status.applied = outcome.applied
        status.epochs += outcome.epochs
        status.events += outcome.events
        status.duplicates += outcome.duplicates
        status.dead_letters += outcome.dead_letters
        status.local_commits = applier.ledger.local_commits
        if outcome.cause != status.held and outcome.cause is not None:
            log.error("%s: held at epoch %s: %s", status.stream, outcome.held, outcome.cause)
        status.held = outcome.cause
        if outcome.epochs:
            log.info(
                "%s: applied through epoch %d (%d events)",
                status.stream,
                outcome.applied,
                outcome.events,
            )

    def _applier(self, spark: SparkSession, table: str, stream: StreamLog) -> TableApplier:
        with self._lock:
            applier = self._appliers.get(stream.stream)
            if applier is None:
                location = self.topology.table(table).location(self.site)
                tables = LedgerTables(spark, self.topology.site(self.site).state)
                most = self.topology.table(table).max_dead_letters
                target = DeltaTarget(
                    spark, self.site, table, location, stream.channel, tables, self.settings, most
                )
                # Streams of one table share its ledger: their applies are numbered together.
                ledger = next((a.ledger for a in self._appliers.values() if a.table == table), None)
                ledger = ledger or Ledger(self.site, table, DeltaLedgerStore(tables))
                site = self.topology.site(self.site)
                decisions = StoredDecisions(site.state, site.storage)
                decisions.record(table, self.decisions.get(table, Decisions()))
                applier = TableApplier(
                    self.site,
                    table,
                    stream,
                    target,
                    ledger,
                    self.max_bytes,
                    check_stopped=self._check_stopped,
                    decisions=partial(decisions.load, table),
                )
                self._appliers[stream.stream] = applier
            return applier

    def _pause(self) -> None:
        if self.stop is not None:
            self.stop.wait(CHANNEL_LOOK)
        else:
            time.sleep(CHANNEL_LOOK)

    def _stopping(self) -> bool:
        return (self.stop is not None and self.stop.is_set()) or (
            self.query is not None and not _is_active(self.query)
        )

    def _check_stopped(self) -> None:
        if self._stopping():
            raise StoppedError("the receiver was stopped")

    def _steps(self, steps: Steps[ApplyResult]) -> ApplyResult:
        while True:
            self._check_stopped()
            try:
                reached(next(steps))
            except StopIteration as end:
                outcome: ApplyResult = end.value
                return outcome


def _is_active(query: StreamingQuery) -> bool:
    try:
        return query.isActive
    except Exception as error:
        log.debug("the query does not answer, its session has ended: %s", error)
        return False


def _seen(numbers: Sequence[int], announced: Announced, held: int | None) -> _Seen:
    """What a listing says of the place where a stream is held: epochs that come after it are no reason to try again."""
    return tuple(number for number in numbers if held is None or number <= held), announced
