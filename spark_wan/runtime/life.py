"""The sign of life of a job, in its site's state, and those of the jobs that do the same work.

Any number of them may run: which one appends an epoch or applies it, the channel and Delta's
transactions decide. Signs of life only save double work: a standby job waits until no other one
gives a sign (:mod:`spark_wan.runtime.standby`, decision 62).
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b

from spark_wan.errors import ChannelError, WanError
from spark_wan.messages import Refusals, at_site, message_log
from spark_wan.state.objects import StateObjects
from spark_wan.topology.model import Site
from spark_wan.units import milliseconds
from spark_wan.wire.sign_of_life import SignOfLife

log = message_log(__name__)

RENEWALS = 4
"""A job renews its sign so many times in ``standby_after``."""
MISSED = 3
"""One that has missed so many renewals is silent. What remains of ``standby_after`` is for noticing
that, and for the start of the job."""
POLLS = 20
"""A standby looks at the signs so many times in ``standby_after``."""
END_WAIT = 5.0
"""Seconds that a stop waits for a state that does not answer."""


def kind_of_job(
    role: str, senders: Collection[str] | None = None, tables: Collection[str] | None = None
) -> str:
    """Return the name in the state of the jobs that do the same work: ``sender`` or ``receiver``;
    with a digest, if options restrict it to some senders or tables.

    >>> kind_of_job("sender"), kind_of_job("sender", ["west", "east"])
    ('sender', 'sender-c06db0a4')
    """
    chosen = [None if names is None else sorted({*names}) for names in (senders, tables)]
    if chosen == [None, None]:
        return role
    return f"{role}-{blake2b(json.dumps(chosen).encode(), digest_size=4).hexdigest()}"


@dataclass(frozen=True)
class Other:
    """The sign of another job, as it was seen last."""

    term: int
    data: bytes
    since: float
    """When this job first saw it as it is, by its own clock."""
    sign: SignOfLife | None
    """None: it cannot be read."""

    @property
    def is_stopped(self) -> bool:
        return self.sign is not None and self.sign.stopped

    def __str__(self) -> str:
        if self.sign is None:
            return "a job whose sign of life cannot be read"
        return f"job {self.sign.job[:8]} on {self.sign.host}, process {self.sign.process}"


@dataclass(eq=False)
class Life:
    """The sign of life of one job. :meth:`begin` renews it in a thread of its own, so that no
    channel and no table keeps it waiting."""

    objects: StateObjects
    kind: str
    """Of the job, by :func:`kind_of_job`."""
    site: str
    standby_after: float
    """Seconds."""
    clock: Callable[[], float] = time.monotonic
    job: str = field(default_factory=lambda: uuid.uuid4().hex)
    term: int | None = None
    """None: the job has not begun, or could not say so yet."""
    overtaken_by: Other | None = None
    """The job that has taken a later term, if one runs."""
    _began: int = 0
    _at: int = 0
    _others: dict[int, Other] = field(default_factory=dict)
    _refused: Refusals = field(default_factory=Refusals)
    """Whether the state has refused the last request."""
    _thread: threading.Thread | None = None
    _ended: threading.Event = field(default_factory=threading.Event)
    _says_stopped: bool = False

    @classmethod
    def of(cls, site: Site, kind: str) -> Life:
        objects = StateObjects(site.state.rstrip("/"), "the signs of life", site.storage)
        return cls(objects, kind, site.name, site.standby_after)

    @property
    def name(self) -> str:
        """The name of its log in the state."""
        return f"alive/{self.kind}"

    @property
    def every(self) -> float:
        """Seconds between renewals."""
        return self.standby_after / RENEWALS

    @property
    def poll_interval(self) -> float:
        """Seconds between looks of a standby."""
        return self.standby_after / POLLS

    def go_on_from(self, other: Life) -> None:
        """Take the place of another job of this process that has ended: its term, and what it has
        seen."""
        if (self.objects.url, self.kind) == (other.objects.url, other.kind):
            self.job, self.term, self._began = other.job, other.term, other._began
            self._others = dict(other._others)

    # --- the signs of others

    def look(self) -> None:
        """Read the signs of the other jobs. Raises ChannelError. Then all count as just seen: while
        the state is away, no job can renew its sign."""
        try:
            found: dict[int, Other] = {}
            for term in self.objects.numbers(self.name):
                entry = self.objects.entry(self.name, term)
                if entry is None:  # deleted just now
                    continue
                _, data = entry
                seen = self._others.get(term)
                if seen is None or seen.data != data:
                    seen = Other(term, data, self.clock(), SignOfLife.of(data))
                if seen.sign is None or seen.sign.job != self.job:
                    found[term] = seen
            self._others = found
        except ChannelError:
            self._others = {}
            raise

    def is_silent(self, other: Other) -> bool:
        """Whether a job should have renewed its sign and has not, by the longer one of its own
        interval and this job's: their topologies may differ."""
        every = other.sign.every / 1000 if other.sign is not None else 0.0
        return self.clock() - other.since >= MISSED * max(self.every, every)

    def running(self) -> list[Other]:
        """Return the other jobs that run, as far as is known, by term."""
        return [
            other
            for _, other in sorted(self._others.items())
            if not other.is_stopped and not self.is_silent(other)
        ]

    def newest(self) -> Other | None:
        """Return the newest sign of another job, whether that runs or not."""
        return self._others[max(self._others)] if self._others else None

    # --- its own

    def claim(self) -> bool:
        """Take the next term, which makes this job the newest. Returns False if another job was
        faster. Raises ChannelError."""
        term = max(self.objects.numbers(self.name), default=0) + 1
        self._began = milliseconds()
        if not self.objects.create(self.name, term, self._sign().encode()):
            return False
        self.term, self.overtaken_by = term, None
        return True

    def renew(self) -> None:
        """Write the sign again, see whether another job has taken a later term, and delete what
        older jobs have left. Raises ChannelError."""
        self.look()
        if self.term in self._others:  # the state was lost, and another job began there
            self.term = None
        if self.term is None:
            self.claim()
            return
        self.objects.replace(self.name, self.term, self._sign().encode())
        running = {other.term: other for other in self.running()}
        newest = max(running, default=0)
        self.overtaken_by = running[newest] if newest > self.term else None
        ended = [term for term in self._others if term < self.term and term not in running]
        with suppress(ChannelError):  # they do no harm
            self.objects.delete_entries(self.name, ended)

    def say_stopped(self) -> None:
        """Have a standby take over at once."""
        term, self.term = self.term, None
        if term is not None:
            self.tried(lambda: self.objects.replace(self.name, term, self._sign(True).encode()))

    def _sign(self, stopped: bool = False) -> SignOfLife:
        every, now = round(self.every * 1000), milliseconds()
        self._at = now + (now == self._at)  # each sign is another one
        host, process = socket.gethostname(), os.getpid()
        return SignOfLife(self.job, host, process, self._began, every, self._at, stopped)

    def tried(self, request: Callable[[], object]) -> bool:
        """Return whether a request to the state was answered. If not, that is logged: once, until
        one is."""
        try:
            request()
        except WanError as error:
            log.log(
                self._refused.level(),
                "the sign of life of the %s: %s",
                self.kind,
                error,
                event="sign-of-life-refused",
                site=self.site,
                cause=str(error),
                what_to_do="Let the jobs of the site list, read, create, write and delete in "
                "alive/ of its state. One that runs goes on; a standby waits until it can.",
            )
            return False
        self._refused.end()
        return True

    # --- the thread

    def begin(self, goes_on: Callable[[], bool] = lambda: True) -> None:
        """Renew the sign from now on, until :meth:`end`, or until the job no longer ``goes_on``."""
        if self._thread is not None:
            return
        # One of its own for each thread: that before may still wait for the state.
        self._ended, self._says_stopped = threading.Event(), False
        self._thread = threading.Thread(
            target=self._keep, args=(goes_on, self._ended), name="wan-alive", daemon=True
        )
        self._thread.start()

    def _keep(self, goes_on: Callable[[], bool], ended: threading.Event) -> None:
        with at_site(self.site):
            while True:
                self.tried(self.renew)
                if ended.wait(self.every):
                    break
                if not goes_on():
                    self._says_stopped = True
                    break
            if self._says_stopped:
                self.say_stopped()

    def end(self, says_stopped: bool = True) -> None:
        """Renew it no more. ``says_stopped``: nothing goes on in the place of this job here, so a
        standby is to take over at once."""
        thread, self._thread = self._thread, None
        self._says_stopped |= says_stopped
        self._ended.set()
        if thread is None and says_stopped and self.term is not None:
            thread = threading.Thread(target=self.say_stopped, name="wan-alive", daemon=True)
            thread.start()
        if thread is not None:
            thread.join(END_WAIT)
