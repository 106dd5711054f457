"""The scheduler: when it looks, and how many threads do what is found."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from waiting import LONG, until

from spark_wan.runtime import scheduler as module
from spark_wan.runtime.scheduler import (
    LOOKERS,
    MOST_SLOW,
    PRIORITY_STEP,
    Activity,
    Found,
    Lane,
    Next,
    Scheduler,
    Turn,
    _Entry,
)


class Does(Activity):
    """An activity whose looks return what it is given, in turn, and then the last of it again."""

    def __init__(self, name: str, *turns: Any) -> None:
        self.name, self.turns = name, list(turns)
        self.looks = 0

    def look(self, spark: Any) -> Turn:
        self.looks += 1
        turn = self.turns.pop(0) if len(self.turns) > 1 else self.turns[0]
        if isinstance(turn, BaseException):
            raise turn
        return turn


class Running:
    def __init__(self, parallel: int = 2) -> None:
        self.ended: list[tuple[str, BaseException]] = []
        self.scheduler = Scheduler(self._thread, parallel, self._ended)

    def _thread(self, name: str, run: Callable[[Any], None]) -> threading.Thread:
        return threading.Thread(target=run, args=(lambda: None,), name=name, daemon=True)

    def _ended(self, activity: Activity, error: BaseException) -> None:
        self.ended.append((activity.name, error))

    def begin(self, *activities: Activity) -> None:
        for activity in activities:
            self.scheduler.add(activity)
        self.scheduler.begin()


@pytest.fixture
def running() -> Iterator[Running]:
    made = Running()
    yield made
    made.scheduler.stop()
    assert made.scheduler.join(LONG)


class Gate:
    """Work that waits until it is let through."""

    def __init__(self) -> None:
        self.open, self.lock = threading.Event(), threading.Lock()
        self.at_work = self.most = self.done = 0

    def work(self, spark: Any) -> Turn:
        with self.lock:
            self.at_work += 1
            self.most = max(self.most, self.at_work)
        assert self.open.wait(LONG)
        with self.lock:
            self.at_work -= 1
            self.done += 1
        return None


def test_an_activity_is_looked_at_when_it_is_due_and_at_once_when_it_is_woken(
    running: Running,
) -> None:
    often, seldom = Does("often", Next(0.01)), Does("seldom", Next(3_600))
    running.begin(often, seldom)
    until(lambda: often.looks > 5 and seldom.looks == 1)
    running.scheduler.wake(seldom)
    until(lambda: seldom.looks == 2)


def test_an_overdue_activity_that_is_woken_keeps_its_place(running: Running) -> None:
    """Fails when each wake puts it behind all others that are overdue: while all threads are busy,
    one that is woken often would never be looked at."""
    first, second = Does("first", None), Does("second", None)
    for activity in (first, second):
        running.scheduler.add(activity)
    running.scheduler.wake(first)
    found = running.scheduler._next_due()
    assert found is not None and found.activity is first


def test_an_activity_that_is_woken_often_takes_no_memory(running: Running) -> None:
    """Fails when each wake leaves the place at which it was due before, an hour away."""
    activity = Does("orders", Next(3_600))
    running.begin(activity)
    for n in range(1, 200):
        until(lambda n=n: activity.looks == n)
        running.scheduler.wake(activity)
    assert len(running.scheduler._due) < 20


def test_an_activity_that_is_woken_while_it_is_busy_is_looked_at_afterwards(
    running: Running,
) -> None:
    """Fails when such a wake is forgotten: what it was for would wait until the next look."""
    gate = Gate()
    activity = Does("orders", Found(lambda _: (gate.work(_), Next(3_600))[1]), None)
    running.begin(activity)
    until(lambda: gate.at_work == 1)
    running.scheduler.wake(activity)
    gate.open.set()
    until(lambda: activity.looks == 2)
    until(lambda: not running.scheduler.is_active)


def test_an_activity_that_is_woken_while_it_ends_goes_on(running: Running) -> None:
    """A channel has given a table something, right when the table found that it had nothing.

    Fails when the table ends all the same.
    """
    activity = Does("orders", None)

    def look(spark: Any) -> Turn:
        activity.looks += 1
        if activity.looks == 1:
            running.scheduler.wake(activity)
        return None

    activity.look = look  # type: ignore[method-assign]
    running.begin(activity)
    until(lambda: not running.scheduler.is_active)
    assert activity.looks == 2


def test_looks_and_work_of_one_activity_never_run_at_the_same_time(running: Running) -> None:
    lock, turns = threading.Lock(), list[int]()

    def alone(spark: Any) -> Turn:
        assert lock.acquire(blocking=False)
        turns.append(1)
        lock.release()
        return Next(0.0) if len(turns) < 400 else None

    activity = Does("orders", None)
    activity.look = lambda spark: Found(alone)  # type: ignore[method-assign]
    running.begin(activity)
    while running.scheduler.is_active:
        running.scheduler.wake(activity)
    assert not running.ended


def test_threads_do_not_depend_on_the_number_of_activities() -> None:
    running = Running(parallel=2)
    gate = Gate()
    activities = [Does(str(number), Found(gate.work)) for number in range(200)]
    running.begin(*activities)
    until(lambda: gate.at_work == 2 and all(activity.looks for activity in activities))
    assert running.scheduler.threads <= LOOKERS + 2
    gate.open.set()
    until(lambda: not running.scheduler.is_active)
    assert (gate.done, gate.most) == (200, 2)


def test_large_work_delays_no_other_and_has_a_limit_of_its_own() -> None:
    """Fails when large work takes the place of other work."""
    running = Running(parallel=1)
    large, quick = Gate(), Gate()
    quick.open.set()
    running.begin(*(Does(f"large {n}", Found(large.work, Lane.LARGE)) for n in range(3)))
    until(lambda: large.at_work == 1)
    running.scheduler.add(Does("quick", Found(quick.work)))
    until(lambda: quick.done == 1)
    large.open.set()
    until(lambda: not running.scheduler.is_active)
    assert (large.done, large.most) == (3, 1)


def test_slow_work_delays_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to a limit. Fails (never ends) when slow work counts for as long as it takes."""
    monkeypatch.setattr(module, "SLOW", 0.05)
    running = Running(parallel=1)
    slow, quick = Gate(), Gate()
    quick.open.set()
    running.begin(*(Does(f"slow {n}", Found(slow.work)) for n in range(20)))
    until(lambda: slow.at_work == 1 + MOST_SLOW)
    assert running.scheduler.threads <= LOOKERS + 1 + MOST_SLOW
    running.scheduler.add(Does("quick", Found(quick.work)))
    slow.open.set()
    until(lambda: not running.scheduler.is_active)
    assert (slow.most, quick.done) == (1 + MOST_SLOW, 1)


def test_slow_work_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails when each work that takes long makes room for another, without end."""
    monkeypatch.setattr(module, "SLOW", 0.0)
    scheduler = Running(parallel=1).scheduler
    found = Found(lambda spark: None)
    for n in range(1 + MOST_SLOW):
        scheduler._queue(_Entry(Does(str(n), None), 0.0), found)
        assert scheduler._with_room() is scheduler._lanes[Lane.TABLES]
        work = scheduler._lanes[Lane.TABLES].waiting.pop()
        scheduler._lanes[Lane.TABLES].since[work.entry] = 0.0
    scheduler._queue(_Entry(Does("more", None), 0.0), found)
    assert scheduler._with_room() is None


def test_a_slow_table_delays_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SLOW", 0.05)
    running = Running(parallel=1)
    slow, quick = Gate(), Gate()
    quick.open.set()
    running.begin(Does("slow", Found(slow.work)), Does("quick", Next(0.01), Found(quick.work)))
    until(lambda: quick.done == 1)
    assert slow.at_work == 1 and not running.ended
    slow.open.set()
    until(lambda: not running.scheduler.is_active)


def test_work_for_which_others_wait_goes_first() -> None:
    """Fails when it has to wait for all work that was found before."""
    running, gate, order = Running(1), Gate(), list[str]()

    def note(name: str, first: bool = False) -> Does:
        return Does(name, Found(lambda spark: order.append(name), first=first))

    running.begin(Does("at work", Found(gate.work)))
    until(lambda: gate.at_work == 1)
    assert not running.scheduler.is_busy
    for activity in (note("one"), note("two"), note("first", True)):
        running.scheduler.add(activity)
        until(lambda name=activity.name: name in [each.activity.name for each in queued(running)])
    assert running.scheduler.is_busy
    gate.open.set()
    assert running.scheduler.join(LONG)
    assert order == ["first", "one", "two"]


def queued(running: Running) -> list[_Entry]:
    return [work.entry for work in list(running.scheduler._lanes[Lane.TABLES].waiting)]


def taken(monkeypatch: pytest.MonkeyPatch, *waiting: tuple[str, int, float]) -> list[str]:
    """Return in which order work is taken. ``waiting``: the name and priority of each, and after
    how many seconds it was found."""
    running, gate, order, now = Running(1), Gate(), list[str](), [1_000.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    running.scheduler._entries = {Does("until the end", Next(1e9)): None}  # type: ignore[dict-item]
    for name, priority, seconds in waiting:
        now[0] = 1_000.0 + seconds
        activity = Does(name, None)
        activity.priority = priority
        running.scheduler._queue(_Entry(activity, 0.0), Found(gate.work))
    queue = running.scheduler._lanes[Lane.TABLES]
    while queue.waiting:
        running.scheduler._idle_workers += 1
        work = running.scheduler._next_work()
        assert work is not None
        order.append(work[1].activity.name)
        queue.since.clear()
    return order


def test_work_of_a_higher_priority_is_taken_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the same one, the first. Fails when it waits for all that was found before."""
    waiting = ("a", 0, 0.0), ("b", -1, 0.0), ("c", 5, 1.0), ("d", 5, 2.0), ("e", 0, 3.0)
    assert taken(monkeypatch, *waiting) == ["c", "d", "a", "e", "b"]


def test_no_work_waits_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """However much of a higher priority comes. Fails when that is always taken first."""
    urgent = [(f"urgent {n}", 3, float(n)) for n in range(100)]
    order = taken(monkeypatch, ("patient", 0, 0.0), *urgent)
    assert order.index("patient") == 3 * PRIORITY_STEP


def test_work_for_which_others_wait_goes_before_any_priority(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    running = Running(1)
    urgent, first = Does("urgent", None), Does("first", None)
    urgent.priority = 100
    for activity in (urgent, first):
        found = Found(lambda spark: None, first=activity is first)
        running.scheduler._queue(_Entry(activity, 0.0), found)
    assert min(running.scheduler._lanes[Lane.TABLES].waiting).entry.activity is first


def test_work_may_find_more_work(running: Running) -> None:
    """Large work, say, which only the first part of the work could tell."""
    found: list[str] = []

    def second(spark: Any) -> Turn:
        found.append("second")
        return None

    def first(spark: Any) -> Turn:
        found.append("first")
        return Found(second, Lane.LARGE)

    running.begin(Does("orders", Found(first)))
    until(lambda: not running.scheduler.is_active)
    assert found == ["first", "second"]


@pytest.mark.parametrize("where", ["look", "work"])
def test_an_error_ends_its_activity_alone(running: Running, where: str) -> None:
    error = KeyError("no")

    def fail(spark: Any) -> Turn:
        raise error

    bad = Does("bad", error) if where == "look" else Does("bad", Found(fail))
    good = Does("good", Next(0.01))
    running.begin(bad, good)
    until(lambda: bool(running.ended))
    seen = good.looks
    until(lambda: good.looks > seen + 2)
    assert running.ended == [("bad", error)] and bad.looks == 1


def test_a_stop_begins_nothing_more(running: Running) -> None:
    gate, waiting = Gate(), Gate()
    running.begin(*(Does(str(n), Found(gate.work)) for n in range(2)))
    until(lambda: gate.at_work == 2)
    running.scheduler.add(Does("waiting", Found(waiting.work)))
    running.scheduler.stop()
    gate.open.set()
    assert running.scheduler.join(LONG)
    assert (gate.done, waiting.done, running.scheduler.threads) == (2, 0, 0)
