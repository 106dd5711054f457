"""Standby jobs: who waits, who runs, and when that changes."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from fakes import ConnectSession
from waiting import LONG, until

from spark_wan.errors import ChannelError, WanError
from spark_wan.runtime.handle import JobHandle
from spark_wan.runtime.life import Life
from spark_wan.runtime.scheduler import Activity, Next
from spark_wan.runtime.standby import StandbyHandle
from spark_wan.state.objects import StateObjects
from spark_wan.wire.sign_of_life import SignOfLife

AFTER = 0.2
"""Of the intervals at which jobs look and renew. How long another one is silent, the test says."""


class State(StateObjects):
    """A state in memory, which may be out of reach, or hide what is in it."""

    is_away = False
    is_unreadable = False
    reads = 0

    def entry(self, name: str, number: int) -> tuple[str, bytes] | None:
        self.reads += 1
        if self.is_unreadable:
            raise ChannelError("the state does not let objects be read.")
        return super().entry(name, number)

    def numbers(self, name: str) -> list[int]:
        if self.is_away:
            raise ChannelError("the state does not answer.")
        return super().numbers(name)


class Clock:
    """A monotonic clock that a test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class Nothing(Activity):
    name = "nothing"

    def look(self, spark: Any) -> Next:
        return Next(3_600)


class Site:
    """Jobs that do the same work at one site."""

    def __init__(self) -> None:
        self.state = State(f"memory://{uuid.uuid4().hex}", "the signs of life")
        self.clock = Clock()
        self.handles: list[StandbyHandle[Any]] = []
        self.started: list[JobHandle[Any]] = []

    def life(self) -> Life:
        return Life(self.state, "receiver", "seattle", AFTER, self.clock)

    def start(self, life: Life) -> JobHandle[Any]:
        status = SimpleNamespace(stream="orders", held=None, epochs=1, events=1)
        session: Any = ConnectSession()
        job: JobHandle[Any] = JobHandle(session, "receiver", 1, lambda: [status], life=life)
        job.begin([Nothing()])
        self.started.append(job)
        return job

    def stand_by(
        self,
        instead_of: StandbyHandle[Any] | None = None,
        start: Callable[[Life], JobHandle[Any]] | None = None,
    ) -> StandbyHandle[Any]:
        session: Any = ConnectSession()
        handle = StandbyHandle(session, "receiver", start or self.start, self.life(), instead_of)
        self.handles.append(handle)
        return handle

    def sign(self, term: int) -> SignOfLife:
        entry = self.state.entry("alive/receiver", term)
        assert entry is not None
        found = SignOfLife.of(entry[1])
        assert found is not None
        return found

    def active(self) -> StandbyHandle[Any]:
        """A standby that has taken over."""
        handle = self.stand_by()
        until(lambda: handle.status())
        return handle


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()
    yield site
    for handle in site.handles:
        handle.stop()


def told(handle: StandbyHandle[Any]) -> list[str]:
    return [each.event for each in handle.news()]


def killed(site: Site) -> Life:
    """The sign of a job that was killed: no one renews it."""
    life = site.life()
    assert life.claim()
    return life


def test_a_standby_takes_over_once_the_other_job_is_silent_and_not_before(site: Site) -> None:
    """Fails when a killed job is not replaced, or a running one is."""
    other = killed(site)
    standby = site.stand_by()
    until(lambda: standby._told)
    site.clock.now += AFTER * 3 / 4 - 0.001
    still = other._sign().encode()
    site.state.replace(other.name, 1, still)
    until(lambda: standby.life._others[1].data == still)
    site.clock.now += AFTER * 3 / 4 - 0.001
    assert standby.is_waiting and standby.status() == [] and told(standby) == ["waiting"]
    site.clock.now += 0.001
    until(lambda: standby.status())
    assert standby.life.term == 2 and not standby.is_waiting
    waited, started = standby.news()
    assert (waited.event, started.event) == ("took-over", "started")
    assert "has been silent for" in waited.why


def test_a_standby_takes_over_at_once_from_a_job_that_was_stopped(site: Site) -> None:
    """And where no job has ever run. Fails when a planned stop costs as much as a crash."""
    first = site.active()
    second = site.stand_by()
    until(lambda: second._told)
    first.stop()
    until(lambda: second.status())
    assert told(first) == ["took-over", "started"]
    assert told(second) == ["waiting", "took-over", "started"]
    assert site.sign(2).job == second.life.job and len(site.started) == 2


def test_of_two_standbys_that_begin_at_once_one_runs(site: Site) -> None:
    """Each has seen that no job runs. Fails when both take over."""
    both, create = threading.Barrier(2), site.state.create

    def slowly(name: str, number: int, data: bytes) -> bool:
        both.wait(LONG)  # so neither has seen the other
        return create(name, number, data)

    site.state.create = slowly  # type: ignore[method-assign]
    handles = [site.stand_by() for _ in range(2)]
    until(lambda: any(each.status() for each in handles))
    until(lambda: any(each._told for each in handles))
    assert len(site.started) == 1
    assert sorted(each.is_waiting for each in handles) == [False, True]


def test_f47_a_standby_that_was_overtaken_gives_way_and_waits_again(site: Site) -> None:
    """It was frozen, and another one has taken over meanwhile. Fails when both go on, or when the
    status says that the work was stopped."""
    first = site.active()
    other = killed(site)  # with a later term
    until(lambda: first.is_waiting and first._told)
    [job] = site.started
    assert job.gives_way and not job.is_active and first.status() == []
    assert told(first) == ["took-over", "started", "gave-way", "waiting"]
    assert site.sign(1).stopped
    other.say_stopped()
    until(lambda: len(site.started) == 2)
    assert first.life.term == 3


def test_a_job_without_standby_goes_on_beside_a_later_one(site: Site) -> None:
    """Any number may run. Fails when a job stops that nobody has asked to."""
    life = site.life()
    job = site.start(life)
    until(lambda: life.term)
    later = killed(site)
    until(lambda: life.overtaken_by)
    assert job.is_active and life.overtaken_by is not None and life.overtaken_by.term == later.term
    job.stop()
    assert site.sign(1).stopped


def test_a_standby_that_cannot_read_the_state_waits(site: Site) -> None:
    """A job that runs goes on. Fails when each standby starts while the state is away."""
    site.state.is_away = True
    standby = site.stand_by()
    until(lambda: standby.life._refused)
    assert standby.is_waiting and site.started == []
    site.state.is_away = False
    until(lambda: standby.status())
    site.state.is_away = True
    until(lambda: standby.life._refused)
    assert standby.status() and standby.is_active


def test_a_standby_that_cannot_read_a_sign_waits(site: Site) -> None:
    """Although it could write one. Fails when it takes a job that it cannot see for none."""
    killed(site)
    site.state.is_unreadable = True
    standby = site.stand_by()
    until(lambda: site.state.reads > 5)
    assert standby.is_waiting and site.started == []
    site.state.is_unreadable = False
    until(lambda: standby._told)


def test_a_standby_that_waits_can_be_stopped(site: Site) -> None:
    """It writes no sign. Fails when Ctrl-C waits until it is its turn."""
    other = killed(site)
    standby = site.stand_by()
    until(lambda: standby._told)
    assert not standby.await_termination(0.01)
    standby.stop()
    assert not standby.is_active and standby.exception() is None and standby.await_termination()
    assert site.state.numbers(other.name) == [1]


def test_a_standby_that_is_replaced_while_it_runs_goes_on(site: Site) -> None:
    """As after SIGHUP. Fails when another one takes over from a job that has read its topology
    again, or when the job itself waits until it no longer sees itself."""
    first = site.active()
    waits = site.stand_by()
    until(lambda: waits._told)
    first.stop(gives_way=True)
    assert not site.sign(1).stopped
    second = site.stand_by(instead_of=first)
    assert second.status() and second.life.term == 1 and told(second) == []
    first.stop()  # it has nothing more to say
    assert not site.sign(1).stopped
    until(lambda: site.sign(1).job == second.life.job)
    assert waits.is_waiting


def test_a_standby_whose_follower_does_not_start_is_followed_by_another(site: Site) -> None:
    """Its new topology names a channel that cannot be used. Fails when it then waits for itself."""
    first = site.active()
    first.stop(gives_way=True)

    def refused(life: Life) -> JobHandle[Any]:
        raise WanError("the channel cannot be used")

    with pytest.raises(WanError, match="the channel cannot be used"):
        site.stand_by(first, refused)
    assert not site.sign(1).stopped
    again = site.stand_by(instead_of=first)
    assert again.status() and again.life.term == 1 and not site.sign(1).stopped


def test_a_standby_that_is_replaced_while_it_waits_knows_for_how_long(site: Site) -> None:
    """Fails when SIGHUP has it wait anew for a job that was killed before."""
    killed(site)
    first = site.stand_by()
    until(lambda: first._told)
    first.stop(gives_way=True)
    site.clock.now += AFTER * 3 / 4
    second = site.stand_by(instead_of=first)
    until(lambda: second.status())
    assert told(second) == ["took-over", "started"]


def test_a_standby_that_cannot_start_ends_with_the_error(site: Site) -> None:
    """So that its service manager starts it again; the next standby may be able to. Fails when it
    keeps others waiting."""

    def refused(life: Life) -> JobHandle[Any]:
        raise WanError("the channel cannot be used")

    standby = site.stand_by(start=refused)
    until(lambda: not standby.is_active)
    with pytest.raises(WanError, match="the channel cannot be used"):
        standby.await_termination()
    assert site.sign(1).stopped


def test_f50_a_standby_whose_job_ends_by_itself_ends(site: Site) -> None:
    """Its session has ended. Fails when a process without a session counts as running."""
    standby = site.active()
    [job] = site.started
    session: Any = job.sessions.spark
    session.ended = True
    job._end_with(job.sessions.lost() or pytest.fail("the session has not ended"))
    until(lambda: not standby.is_active)
    assert type(standby.exception()).__name__ == "SessionLostError"
    assert site.sign(1).stopped
