"""A standby job: it waits while another job does the same work, and takes over when that gives no
sign of life (:mod:`spark_wan.runtime.life`).

What a standby does:

- *waits* while another job runs, and looks at its sign;
- *takes over* once all others are silent or were stopped: it takes the next term, of which two
  standbys that try get one, and starts the job;
- *gives way* once another job has taken a later term, as after this process was frozen: it stops
  the job, and waits again.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic

from spark_wan.delta.sessions import spark_thread
from spark_wan.messages import at_site, message_log
from spark_wan.runtime.handle import POLL_INTERVAL, JobHandle, S
from spark_wan.runtime.life import END_WAIT, Life, Other

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = message_log(__name__)

WAITING, TOOK_OVER, STARTED, GAVE_WAY = "waiting", "took-over", "started", "gave-way"


@dataclass(frozen=True)
class News:
    """What has changed at a standby."""

    event: str
    """``waiting``, ``took-over``, ``started`` or ``gave-way``."""
    other: Other | None = None
    """The job that it waits for, that it takes over from, or that it gives way to."""
    why: str = ""
    """For people."""


class StandbyHandle(Generic[S]):
    """The handle of a job that waits while another one runs.

    Args:
        spark: The user's session.
        name: ``sender`` or ``receiver``.
        start: Starts the job, with its sign of life.
        life: The sign of life.
        instead_of: A handle of this process that was stopped with ``gives_way``: this one goes on
            in its place. If that one was at work, the job is started before this returns, which
            raises what ``start`` does.
    """

    def __init__(
        self,
        spark: SparkSession,
        name: str,
        start: Callable[[Life], JobHandle[S]],
        life: Life,
        instead_of: StandbyHandle[S] | None = None,
    ) -> None:
        self._name = name
        self._start = start
        self.life = life
        self._job: JobHandle[S] | None = None
        self._stop = threading.Event()
        self._gives_way = False
        self._error: BaseException | None = None
        self._at_work = False
        """Whether the job is being started, runs, or is being stopped."""
        self._news: deque[News] = deque()
        self._told: tuple[int, str | None] | None = None
        """The job that this one was said to wait for."""
        if instead_of is not None:
            life.go_on_from(instead_of.life)
            self._told = instead_of._told
            if life.term is not None:
                self._begin()
                self._news.clear()  # it has gone on
            instead_of.life.term = None
        self._thread = spark_thread(spark, self._run, "wan-standby", self._end_with)
        self._thread.start()

    # --- as of any job

    @property
    def is_active(self) -> bool:
        """Whether the job waits or runs."""
        return self._thread.is_alive()

    @property
    def is_waiting(self) -> bool:
        """Whether another job runs, and this one waits."""
        return self.is_active and self._job is None

    def status(self) -> list[S]:
        """Return what each stream has done since this job took over; nothing while it waits."""
        job = self._job
        return [] if job is None else job.status()

    def exception(self) -> BaseException | None:
        """Return the first error that ended a stream or the job."""
        job = self._job
        return self._error or (None if job is None else job.exception())

    def await_termination(self, timeout: float | None = None) -> bool:
        """Wait until the job has ended; return False when ``timeout`` seconds pass before. Raises
        the error that ended it, or one of its streams."""
        end = None if timeout is None else time.monotonic() + timeout
        while self.is_active and self.exception() is None:
            left = POLL_INTERVAL if end is None else min(POLL_INTERVAL, end - time.monotonic())
            if left <= 0:
                return False
            self._thread.join(left)
        error = self.exception()
        if error is not None:
            raise error
        return True

    def stop(self, *, gives_way: bool = False) -> None:
        """Stop, as :meth:`JobHandle.stop <spark_wan.runtime.handle.JobHandle.stop>` does. Another
        standby takes over at once, unless this one ``gives_way`` to one of this process."""
        self._gives_way = gives_way
        self._stop.set()
        # While it waits, only a state that does not answer can keep it.
        end = time.monotonic() + END_WAIT
        while self.is_active and (self._at_work or time.monotonic() < end):
            self._thread.join(POLL_INTERVAL)
        if not gives_way:
            job = self._job
            if job is not None:
                job.stop()
            self.life.end()

    def news(self) -> list[News]:
        """Return what has changed since the last call."""
        news = []
        while self._news:
            news.append(self._news.popleft())
        return news

    # --- its thread

    def _run(self) -> None:
        with at_site(self.life.site):
            try:
                while not self._stop.is_set():
                    if self._job is None and not self._is_my_turn():
                        self._stop.wait(self.life.poll_interval)
                        continue
                    self._at_work = True
                    goes_on = self._work()
                    self._at_work = False
                    if not goes_on:
                        return
            except Exception as error:
                self._end_with(error)

    def _end_with(self, error: BaseException) -> None:
        """End the job: it cannot go on, but another one may."""
        self._error, self._at_work = error, False
        self.life.end()

    def _is_my_turn(self) -> bool:
        """Whether no other job runs. Then this one has the newest term."""
        life = self.life
        if not life.tried(life.look):
            return False  # who knows: it waits until it can see
        running = life.running()
        if running:
            self._say_waiting(running[-1])
            return False
        before, claimed = life.newest(), False

        def claim() -> None:
            nonlocal claimed
            claimed = life.claim()

        if life.tried(claim) and claimed:
            self._say_taken_over(before)
        return claimed

    def _begin(self) -> None:
        """Start the job. Raises what that does."""
        self.life.begin()  # a start may take longer than the others wait
        try:
            self._job = self._start(self.life)
        except BaseException:
            self.life.end(says_stopped=False)
            raise
        self._news.append(News(STARTED))

    def _work(self) -> bool:
        """Run the job until it is stopped, ends, or another one has a later term. Return whether
        this one is to wait again."""
        if self._job is None:
            self._begin()
        job = self._job
        assert job is not None
        while job.is_active and self.life.overtaken_by is None:
            if self._stop.wait(POLL_INTERVAL):
                break
        other = self.life.overtaken_by
        if self._stop.is_set() or other is None:
            job.stop(gives_way=self._gives_way)
            return False
        self._say_giving_way(other)
        job.stop(gives_way=True)
        self.life.end()
        self._told, self._job = None, None
        return True

    # --- what it says

    def _say_waiting(self, other: Other) -> None:
        who = other.term, other.sign.job if other.sign is not None else None
        if self._told == who:
            return
        self._told = who
        self._news.append(News(WAITING, other))
        log.info(
            "%s of site %s waits: %s runs. It takes over within %g s if that is killed",
            self._name,
            self.life.site,
            other,
            self.life.standby_after,
            event="standby-waits",
            site=self.life.site,
        )

    def _say_taken_over(self, before: Other | None) -> None:
        why = "no other job has run"
        if before is not None:
            why = f"{before} was stopped"
            if not before.is_stopped:
                why = f"{before} has been silent for {self.life.clock() - before.since:.0f} s"
        self._news.append(News(TOOK_OVER, before, why))
        self._told = None
        if before is None or before.is_stopped:
            log.info(
                "%s of site %s takes over: %s",
                self._name,
                self.life.site,
                why,
                event="took-over",
                site=self.life.site,
            )
            return
        log.warning(
            "%s of site %s takes over: %s",
            self._name,
            self.life.site,
            why,
            event="took-over",
            site=self.life.site,
            what_to_do="Find out why that job is silent, and start it again with --standby.",
        )

    def _say_giving_way(self, other: Other) -> None:
        why = f"{other} has taken over meanwhile"
        self._news.append(News(GAVE_WAY, other, why))
        log.warning(
            "%s of site %s gives way: %s",
            self._name,
            self.life.site,
            why,
            event="gave-way",
            site=self.life.site,
            what_to_do="Find out why this process stood still, or could not reach its state, for "
            "so long. It waits now.",
        )
