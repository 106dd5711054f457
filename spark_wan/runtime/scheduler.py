"""A scheduler for all tables and channels of a job: looks at due times, and workers for what they
find.

An :class:`Activity` is looked at again and again. A look is cheap and runs no Spark job, or a very
short one: some threads look at all activities. What a look finds is done by a worker. So the number
of threads depends on how much is done at once, not on how many tables there are, and waiting costs
nothing.

Looks and work of one activity never run at the same time.
"""

from __future__ import annotations

import heapq
import math
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from spark_wan.runtime.sessions import Session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOKERS = 4
"""Number of threads that look."""
SLOW = 20.0
"""Seconds after which work no longer counts towards ``parallel``, so that it delays no other: a
write that waits for a lock, for example."""
PRIORITY_STEP = 10.0
"""Seconds of waiting that a priority of one more is worth. So work of a low priority waits longer,
and no work waits for ever."""
MOST_SLOW = 4
"""Maximum number of slow works, as a multiple of ``parallel``."""


@dataclass(frozen=True)
class Next:
    """What to do with an activity next: look at it again in ``seconds``."""

    seconds: float


UNTIL_WOKEN = Next(3_600.0)
"""For activities that others wake: an hour is only in case nobody does."""


class Lane(Enum):
    """A kind of work. Each has places of its own, so that none waits for another."""

    TABLES = "tables"
    LARGE = "large"
    """Work that is expected to take long."""
    FORWARDS = "forwards"
    COPIES = "copies"
    """Copies for other sites."""


@dataclass(frozen=True)
class Found:
    """What a look has found: work for a worker. It returns what to do next."""

    work: Callable[[SparkSession], Next | Found | None]
    lane: Lane = Lane.TABLES
    first: bool = False
    """It goes before work that waits: others wait for it."""


Turn = Next | Found | None
"""What to do with an activity next. None: it has ended."""


class Job(Protocol):
    """What an activity needs of the job that it is part of."""

    @property
    def is_stopping(self) -> bool: ...

    def check_stopped(self) -> None:
        """Raise StoppedError once the job is stopped."""

    def pause(self, seconds: float) -> None:
        """Wait. Raises StoppedError once the job is stopped."""


class Activity(ABC):
    """Something that is looked at again and again, and worked on when a look finds something."""

    name: str
    """For logs and threads."""
    kind: ClassVar[str | None] = None
    """What has this name: a ``stream``, a ``table`` or a ``channel``. None: the job of a site."""

    priority: int = 0
    """Where workers are scarce, work of a higher one is taken first."""

    def subject(self) -> dict[str, Any]:
        """Return what its messages are about, as fields (:mod:`spark_wan.messages`)."""
        return {} if self.kind is None else {self.kind: self.name}

    @abstractmethod
    def look(self, spark: SparkSession) -> Turn:
        """Look for work. ``spark`` is the session of the thread."""


@dataclass(eq=False)
class _Entry:
    activity: Activity
    due: float
    """When to look next."""
    busy: bool = False
    """It is being looked at, queued, or worked on."""
    woken: bool = False
    """It was woken while it was busy."""


@dataclass(order=True)
class _Waiting:
    """Work that waits for a worker, in the order in which it is taken."""

    due: float
    """When it began to wait, and earlier by its priority."""
    number: int
    """Of what is due at the same time, the lowest first."""
    entry: _Entry = field(compare=False)
    found: Found = field(compare=False)


@dataclass
class _Queue:
    """The work of a lane: what waits, and what is under way."""

    places: int
    """Maximum number of works at once."""
    slow_counts: bool = False
    """Whether slow work takes a place."""
    waiting: list[_Waiting] = field(default_factory=list)
    """A heap."""
    since: dict[_Entry, float] = field(default_factory=dict)
    """Entry at work -> since when."""


class Scheduler:
    """Looks at activities, and has workers do what is found.

    Args:
        spawn: Makes a thread, not started yet, that runs a function with a session of its own.
        parallel: Maximum number of works at once in each lane. One that takes more than ``SLOW``
            seconds no longer counts, unless it is expected to.
        on_error: Called with an activity that an error has ended, and the error.
        copies: Maximum number of works at once in the lane of copies.
    """

    def __init__(
        self,
        spawn: Callable[[str, Callable[[Session], None]], threading.Thread],
        parallel: int,
        on_error: Callable[[Activity, BaseException], None],
        copies: int = 1,
    ) -> None:
        self._spawn = spawn
        self._parallel = max(1, parallel)
        self._on_error = on_error
        self._lock = threading.RLock()
        self._look_due = threading.Condition(self._lock)
        self._work_there = threading.Condition(self._lock)
        self._entries: dict[Activity, _Entry] = {}
        self._due: list[tuple[float, int, _Entry]] = []
        """A heap: when, a number that makes places unique, and what. Outdated places stay in it."""
        self._places = 0
        self._lanes = {lane: _Queue(self._parallel) for lane in Lane}
        self._lanes[Lane.LARGE].slow_counts = True
        self._lanes[Lane.COPIES] = _Queue(copies, slow_counts=True)
        self._threads: list[threading.Thread] = []
        self._idle_workers = 0
        """Workers that wait for work, or are about to."""
        self._stopped = False

    @property
    def is_active(self) -> bool:
        """Whether any activity goes on, or any thread is still at one."""
        with self._lock:
            going_on = bool(self._entries) and not self._stopped
        return going_on or self.threads > 0

    @property
    def threads(self) -> int:
        """The number of threads that are alive."""
        with self._lock:
            return sum(thread.is_alive() for thread in self._threads)

    @property
    def at_work(self) -> list[str]:
        """The names of what workers are at, in the order in which they began."""
        with self._lock:
            since = [item for lane in self._lanes.values() for item in lane.since.items()]
        return [entry.activity.name for entry, _ in sorted(since, key=lambda item: item[1])]

    @property
    def is_busy(self) -> bool:
        """Whether work on tables waits for a worker."""
        with self._lock:
            return bool(self._lanes[Lane.TABLES].waiting)

    def add(self, activity: Activity) -> None:
        """Look at an activity from now on."""
        with self._lock:
            if activity not in self._entries:
                self._entries[activity] = entry = _Entry(activity, 0.0)
                self._schedule(entry, 0.0)

    def wake(self, activity: Activity) -> None:
        """Look at an activity at once; if it is busy, right afterwards."""
        with self._lock:
            entry = self._entries.get(activity)
            if entry is None:
                return
            if entry.busy:
                entry.woken = True
            elif entry.due > time.monotonic():  # one that is overdue keeps its place
                self._schedule(entry, 0.0)

    def begin(self) -> None:
        """Start to look."""
        with self._lock:
            for number in range(LOOKERS):
                self._start(f"wan-look-{number}", self._look_on)

    def stop(self) -> None:
        """Begin nothing more. What is under way goes on to its end."""
        with self._lock:
            self._stopped = True
            self._notify_all()

    def join(self, seconds: float) -> bool:
        """Wait for all threads to end, at most ``seconds``. Return whether they have."""
        end = time.monotonic() + seconds
        with self._lock:
            threads = list(self._threads)
        for thread in threads:
            thread.join(max(0.0, end - time.monotonic()))
        return self.threads == 0

    # --- threads

    def _start(self, name: str, run: Callable[[Session], None]) -> None:
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        thread = self._spawn(name, run)
        thread.start()
        self._threads.append(thread)

    def _look_on(self, session: Session) -> None:
        while (entry := self._next_due()) is not None:
            self._take_turn(entry, session, entry.activity.look)

    def _next_due(self) -> _Entry | None:
        """Wait for an entry that is due, and return it. None: there is nothing more to look at."""
        with self._lock:
            while not self._has_ended():
                if self._with_room() is not None:
                    self._start_workers()
                while self._due and self._is_outdated(self._due[0]):
                    heapq.heappop(self._due)
                now = time.monotonic()
                waits = [self._due[0][0] - now] if self._due else []
                if waits and waits[0] <= 0:
                    entry = heapq.heappop(self._due)[2]
                    entry.busy = True
                    return entry
                for queue in self._waiting_for_slow():
                    waits += [since + SLOW - now for since in queue.since.values()]
                self._look_due.wait(min((wait for wait in waits if wait > 0), default=None))
            self._notify_all()
            return None

    def _is_outdated(self, place: tuple[float, int, _Entry]) -> bool:
        due, _, entry = place
        return entry.busy or entry.due != due or self._entries.get(entry.activity) is not entry

    def _work_on(self, session: Session) -> None:
        while (taken := self._next_work()) is not None:
            queue, entry, found = taken
            self._take_turn(entry, session, found.work, queue)

    def _next_work(self) -> tuple[_Queue, _Entry, Found] | None:
        """Wait for work, and return it with its queue. None: this worker, idle so far, is to end.

        The caller counts as idle until it gets work.
        """
        with self._lock:
            try:
                while not self._has_ended() and self._idle_workers <= self._parallel:
                    queue = self._with_room()
                    if queue is not None:
                        work = heapq.heappop(queue.waiting)
                        queue.since[work.entry] = time.monotonic()
                        return queue, work.entry, work.found
                    self._work_there.wait()
                return None
            finally:
                self._idle_workers -= 1
                self._start_workers()

    def _with_room(self) -> _Queue | None:
        """Return a queue with work that may begin now."""
        now = time.monotonic()
        for queue in self._lanes.values():
            counted = sum(queue.slow_counts or now - since < SLOW for since in queue.since.values())
            most = queue.places * (1 + MOST_SLOW)
            if queue.waiting and counted < queue.places and len(queue.since) < most:
                return queue
        return None

    def _waiting_for_slow(self) -> list[_Queue]:
        """Return the queues in which work may begin once other work counts as slow."""
        return [each for each in self._lanes.values() if each.waiting and not each.slow_counts]

    def _start_workers(self) -> None:
        """Wake or start a worker when there is work that may begin."""
        if self._stopped:
            return
        if self._with_room() is None:
            if self._waiting_for_slow():
                self._look_due.notify()  # it waits until slow work no longer counts
        elif self._idle_workers:
            self._work_there.notify()
        else:
            self._idle_workers += 1
            self._start("wan-work", self._work_on)

    # --- turns

    def _take_turn(
        self,
        entry: _Entry,
        session: Session,
        run: Callable[[SparkSession], Turn],
        queue: _Queue | None = None,
    ) -> None:
        """Look or work, and do what it says next. ``queue``: where the work came from."""
        turn: Turn = None
        failed = False
        try:
            turn = run(session())
        except BaseException as error:
            failed = True
            self._on_error(entry.activity, error)
        with self._lock:
            if queue is not None:
                del queue.since[entry]
                self._idle_workers += 1
            entry.busy = isinstance(turn, Found)
            if isinstance(turn, Found):
                self._queue(entry, turn)
                self._start_workers()
            elif entry.woken and not failed:
                self._schedule(entry, 0.0)
                entry.woken = False
            elif turn is None:
                del self._entries[entry.activity]
            else:
                self._schedule(entry, turn.seconds)
            if self._has_ended():
                self._notify_all()

    def _queue(self, entry: _Entry, found: Found) -> None:
        """Have work wait for a worker."""
        self._places += 1
        due, number = time.monotonic() - PRIORITY_STEP * entry.activity.priority, self._places
        if found.first:
            due, number = -math.inf, -self._places
        heapq.heappush(self._lanes[found.lane].waiting, _Waiting(due, number, entry, found))

    def _schedule(self, entry: _Entry, seconds: float) -> None:
        entry.due = time.monotonic() + seconds
        self._places += 1
        heapq.heappush(self._due, (entry.due, self._places, entry))
        if len(self._due) > 2 * len(self._entries) + LOOKERS:
            # Activities that are woken often leave places far in the future.
            self._due = [place for place in self._due if not self._is_outdated(place)]
            heapq.heapify(self._due)
        if self._due[0][2] is entry:
            self._look_due.notify()

    def _has_ended(self) -> bool:
        return self._stopped or not self._entries

    def _notify_all(self) -> None:
        self._look_due.notify_all()
        self._work_there.notify_all()
