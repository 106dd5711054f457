"""Signs of life of jobs that do the same work, in the state of their site."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator
from dataclasses import replace

import pytest
from waiting import until

from spark_wan.errors import ChannelError
from spark_wan.runtime.life import MISSED, Life, kind_of_job
from spark_wan.state.objects import StateObjects
from spark_wan.wire.sign_of_life import SignOfLife

AFTER = 60.0
SILENT = AFTER * 3 / 4


class State(StateObjects):
    """A state in memory, which may be out of reach."""

    is_away = False

    def _check(self) -> None:
        if self.is_away:
            raise ChannelError("the state does not answer.")

    def numbers(self, name: str) -> list[int]:
        self._check()
        return super().numbers(name)

    def write(self, name: str, data: bytes) -> None:
        self._check()
        super().write(name, data)


class Clock:
    """A monotonic clock that a test sets."""

    now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def state() -> State:
    return State(f"memory://{uuid.uuid4().hex}", "the signs of life")


@pytest.fixture
def clock() -> Clock:
    return Clock()


def life(state: State, clock: Clock, after: float = AFTER) -> Life:
    return Life(state, "receiver", "seattle", after, clock)


def sign(state: State, term: int) -> SignOfLife | None:
    entry = state.entry("alive/receiver", term)
    return None if entry is None else SignOfLife.of(entry[1])


def test_a_job_is_silent_once_it_has_missed_three_renewals(state: State, clock: Clock) -> None:
    """By the clock of who looks, whatever the clock of the job says. Fails when a standby takes
    over from a job on a machine with another time, or from one that is a little late."""
    job, other = life(state, clock), life(state, clock)
    assert job.claim()
    wrong = replace(SignOfLife("x", "host", 1, began=5, every=15_000, at=5))
    state.replace(job.name, 1, wrong.encode())
    other.look()
    clock.now += SILENT - 1
    other.look()
    assert [each.term for each in other.running()] == [1]
    state.replace(job.name, 1, replace(wrong, at=6).encode())
    other.look()
    clock.now += SILENT - 1
    other.look()
    assert other.running() != []
    clock.now += 1
    other.look()
    assert other.running() == []


def test_a_job_that_renews_less_often_is_waited_for_longer(state: State, clock: Clock) -> None:
    """Its topology has another standby_after. Fails when the two then take turns."""
    slow, quick = life(state, clock, after=600), life(state, clock)
    assert slow.claim()
    quick.look()
    clock.now += SILENT
    assert quick.running() != []
    clock.now += 600 / 4 * MISSED
    assert quick.running() == []


def test_silence_does_not_count_while_the_state_is_away(
    state: State, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """No job can renew its sign then. Fails when each standby takes over once the state is back;
    or when the log has the same warning every few seconds."""
    job, other = life(state, clock), life(state, clock)
    assert job.claim()
    other.look()
    state.is_away = True
    for _ in range(3):
        clock.now += SILENT
        assert not other.tried(other.look)
    warned = [each for each in caplog.records if each.levelno == logging.WARNING]
    assert [each.event for each in warned] == ["sign-of-life-refused"]  # type: ignore[attr-defined]
    state.is_away = False
    other.look()
    clock.now += SILENT - 1
    assert other.running() != []


def test_of_two_jobs_that_take_the_same_term_one_gets_it(state: State, clock: Clock) -> None:
    """Each has seen that no other job runs. Fails when both count as the newest."""
    first, second = life(state, clock), life(state, clock)
    numbers = state.numbers
    state.numbers = lambda name: []  # type: ignore[method-assign]
    assert first.claim()
    assert not second.claim()
    assert (first.term, second.term) == (1, None)
    state.numbers = numbers  # type: ignore[method-assign]
    assert second.claim() and second.term == 2


def test_a_job_that_was_overtaken_notices_it(state: State, clock: Clock) -> None:
    """Whether it was frozen or could not reach the state. A job that was stopped has overtaken no
    one. Fails when a job that was thawed goes on beside the one in its place."""
    job, later = life(state, clock), life(state, clock)
    assert job.claim() and later.claim()
    job.renew()
    assert job.overtaken_by is not None and job.overtaken_by.term == 2
    later.renew()
    assert later.overtaken_by is None
    later.say_stopped()
    job.renew()
    assert job.overtaken_by is None


def test_a_job_deletes_what_ended_jobs_have_left(state: State, clock: Clock) -> None:
    """Of stopped and of killed ones; not of one that runs, nor the newest entry: a job that was
    only frozen would write the same one. Fails when each restart leaves an object for ever."""
    stopped, killed, runs = (life(state, clock) for _ in range(3))
    assert stopped.claim() and killed.claim() and runs.claim()
    stopped.say_stopped()
    job, frozen = life(state, clock), life(state, clock)
    assert job.claim() and frozen.claim()
    job.look()
    clock.now += SILENT
    runs.renew()
    job.renew()
    assert state.numbers(job.name) == [3, 4, 5]


def test_a_job_whose_term_another_one_has_takes_a_new_one(state: State, clock: Clock) -> None:
    """As after the state was lost. Fails when two jobs replace each other's sign, and neither sees
    the other."""
    job, other = life(state, clock), life(state, clock)
    assert job.claim()
    state.delete_entries(job.name, [1])
    assert other.claim() and other.term == 1
    job.renew()
    assert job.term == 2
    other.renew()
    assert other.overtaken_by is not None and other.overtaken_by.term == 2


def test_a_sign_that_cannot_be_read_is_one_while_it_changes(state: State, clock: Clock) -> None:
    """A damaged one, and one of a newer spark_wan. Fails when a standby runs beside a newer job, or
    waits for ever."""
    job = life(state, clock)
    state.create(job.name, 1, b'{"version":9,"n":1}')
    job.look()
    clock.now += SILENT - 1
    state.replace(job.name, 1, b'{"version":9,"n":2}')
    job.look()
    clock.now += SILENT - 1
    assert [str(each) for each in job.running()] == ["a job whose sign of life cannot be read"]
    clock.now += 1
    assert job.running() == []


@pytest.fixture
def quick(state: State, clock: Clock) -> Iterator[Life]:
    """A job that renews its sign every 10 ms."""
    job = life(state, clock, after=0.04)
    yield job
    job.end()


def test_a_job_renews_its_sign_and_says_that_it_was_stopped(state: State, quick: Life) -> None:
    """Also if the state was away when it began. Fails when a standby waits for a job that was
    stopped."""
    state.is_away = True
    quick.begin()
    until(lambda: quick._refused)
    state.is_away = False
    until(lambda: sign(state, 1))
    before = sign(state, 1)
    assert before is not None and not before.stopped
    until(lambda: sign(state, 1) != before)
    quick.end()
    after = sign(state, 1)
    assert after is not None and after.stopped and after.job == before.job


def test_a_job_that_gives_way_in_its_process_does_not_say_so(state: State, quick: Life) -> None:
    """Another one goes on in its place. Fails when a standby takes over from a job that has only
    read its topology again."""
    quick.begin()
    until(lambda: sign(state, 1))
    quick.end(says_stopped=False)
    there = sign(state, 1)
    assert there is not None and not there.stopped
    following = life(state, Clock())
    following.go_on_from(quick)
    assert (following.job, following.term) == (quick.job, 1)


def test_a_job_that_has_ended_by_itself_says_so(state: State, quick: Life) -> None:
    """As for lack of its session, while its process lives on. Fails when it counts as running."""
    quick.begin(goes_on=lambda: False)

    def is_stopped() -> bool:
        there = sign(state, 1)
        return there is not None and there.stopped

    until(is_stopped)


def test_jobs_of_other_options_do_not_wait_for_each_other() -> None:
    """Fails when the sender of some tables waits for that of others, which does not send them."""
    kinds = [
        kind_of_job("sender"),
        kind_of_job("receiver"),
        kind_of_job("sender", ["east"]),
        kind_of_job("sender", ["east", "west"]),
        kind_of_job("sender", None, ["east"]),
        kind_of_job("sender", ["east"], ["orders"]),
        kind_of_job("receiver", ["east"]),
    ]
    assert len({*kinds}) == len(kinds)
    assert kind_of_job("sender", ["west", "east", "west"]) == kinds[3] == "sender-c06db0a4"
