"""``watch``: one call for what begins and one for what is over, whatever the callback does."""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from unit.control.test_pause import of, world
from unit.status.test_check import MINUTE, NOW, letters
from waiting import LONG, until

import spark_wan
from spark_wan.errors import OptionError, TopologyError
from spark_wan.log.notes import put_sender_record
from spark_wan.status import check as check_module
from spark_wan.status.check import Level, Limits, Problem
from spark_wan.status.watch import Alert, Watch
from spark_wan.topology.model import Topology
from spark_wan.topology.routes import all_streams
from spark_wan.wire.sender_record import SenderRecord

BEHIND = Problem(
    Level.WARNING, "behind", "seattle is behind by 11 min", "s3://wan", "a.b.t", "seattle"
)
HELD = Problem(Level.CRITICAL, "held", "newark holds it", "s3://wan", "a.b.t", "newark")
UNREAD = Problem(Level.UNKNOWN, "channel", "no route", "s3://wan")


class Script(Watch):
    """A watch whose checks find what the test says, and that runs when the test says so."""

    def __init__(self, topology: Topology) -> None:
        self.told: list[tuple[str, str]] = []
        super().__init__(topology, self.note)

    def note(self, alert: Alert) -> None:
        self.told.append(
            ("over" if alert.is_over else alert.problem.level.value, alert.problem.text)
        )

    def finds(self, *problems: Problem | Exception) -> list[tuple[str, str]]:
        """Return the calls after a check that finds these problems."""
        self.told.clear()

        def check() -> list[Problem]:
            for each in problems:
                if isinstance(each, Exception):
                    raise each
            return [each for each in problems if isinstance(each, Problem)]

        self._checker.check = check  # type: ignore[method-assign]
        self.look()
        return [*self.told]


@pytest.fixture
def script(tmp_path: Path) -> Script:
    return Script(world(tmp_path))


def logged(caplog: pytest.LogCaptureFixture, *fields: str) -> list[tuple[object, ...]]:
    """Level, event and fields of what the watch has logged since the last call."""
    found = [
        (each.levelname, *(vars(each).get(name) for name in ("event", *fields)))
        for each in caplog.records
        if each.name == "spark_wan.status.watch"
    ]
    caplog.clear()
    return found


def test_a_problem_is_told_once_and_once_when_it_is_over(script: Script) -> None:
    """Fails when somebody is called each minute; or is not, because a duration has changed."""
    assert script.finds() == []
    assert script.finds(BEHIND) == [("warning", BEHIND.text)]
    later = replace(BEHIND, text="seattle is behind by 12 min")
    assert script.finds(later) == []
    assert script.finds(later, HELD) == [("critical", HELD.text)]
    assert script.problems == [HELD, later]
    assert script.finds(HELD) == [("over", later.text)]
    assert script.finds() == [("over", HELD.text)]
    assert script.finds(BEHIND) == [("warning", BEHIND.text)]


@pytest.mark.parametrize(
    "other",
    [{"kind": "queue"}, {"channel": "s3://other"}, {"stream": "a.b.u"}, {"site": "denver"}],
    ids=str,
)
def test_what_differs_in_kind_or_place_is_another_problem(
    script: Script, other: dict[str, str]
) -> None:
    another = replace(BEHIND, text="another", **other)
    script.finds(BEHIND)
    assert script.finds(BEHIND, another) == [("warning", "another")]


def test_a_problem_that_becomes_worse_is_told_again(script: Script) -> None:
    """And not when it becomes better. Fails when a history that is lost is no news, since it was
    warned of for days."""
    script.finds(BEHIND)
    worse = replace(BEHIND, level=Level.CRITICAL, text="worse")
    assert script.finds(worse) == [("critical", "worse")]
    assert script.finds(BEHIND) == []
    assert script.finds(worse) == [("critical", "worse")]


def test_what_cannot_be_read_is_not_over(script: Script) -> None:
    """Nor is what comes of it told. Fails when a channel that is away for a minute means a call for
    each stream, and another one afterwards."""
    other = replace(HELD, channel="s3://other", text="elsewhere")
    script.finds(BEHIND, HELD, other)
    stopped = replace(HELD, kind="stopped", text="no sender has said anything")
    assert script.finds(UNREAD, stopped, other) == [("unknown", "no route")]
    assert script.finds(UNREAD) == [("over", "elsewhere")]
    assert script.finds(HELD) == [("over", BEHIND.text), ("over", "no route")]
    of_stream = replace(UNREAD, stream="a.b.t", text="epoch 3 is missing")
    beside = replace(BEHIND, stream="a.b.u", text="beside")
    assert script.finds(of_stream, beside) == [
        ("unknown", "epoch 3 is missing"),
        ("warning", "beside"),
    ]
    assert script.finds(of_stream) == [("over", "beside")]


def test_a_callback_that_fails_stops_nothing(
    script: Script, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What else is wrong is told all the same, and the failure is in the log."""

    def fails(alert: Alert) -> None:
        script.note(alert)
        raise ValueError("no network")

    monkeypatch.setattr(script, "_on_alert", fails)
    assert len(script.finds(BEHIND, HELD)) == 2
    assert logged(caplog, "stream") == [
        ("WARNING", "problem-found", "a.b.t"),
        ("ERROR", "listener-failed", "a.b.t"),
        ("ERROR", "problem-found", "a.b.t"),
        ("ERROR", "listener-failed", "a.b.t"),
    ]
    assert script.finds(BEHIND) == [("over", HELD.text)]


def test_a_check_that_fails_ends_nothing(script: Script, caplog: pytest.LogCaptureFixture) -> None:
    """It is logged once. Fails when all problems seem to be over, or the log fills."""
    script.finds(BEHIND)
    caplog.clear()
    for _ in range(3):
        assert script.finds(RuntimeError("out of memory")) == []
    assert logged(caplog) == [("ERROR", "watch-failed")]
    assert script.finds(BEHIND) == []
    script.finds(RuntimeError("out of memory"))
    assert logged(caplog) == [("ERROR", "watch-failed")]


def test_each_alert_is_in_the_log(script: Script, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    fields = ("kind", "stream", "site", "channel")
    for problems in ((BEHIND, UNREAD), (HELD,), (HELD,)):
        script.finds(*problems)
    assert logged(caplog, *fields) == [
        ("WARNING", "problem-found", "channel", None, None, "s3://wan"),
        ("ERROR", "problem-found", "held", "a.b.t", "newark", "s3://wan"),
        ("INFO", "problem-over", "channel", None, None, "s3://wan"),
    ]


def test_dead_letters_are_counted_from_check_to_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In memory, without a file. Fails when an alert needs `--memory`, or lasts for ever."""
    seen = iter([letters(0, count, NOW + n * MINUTE) for n, count in enumerate([3, 3, 5, 9, 9])])
    monkeypatch.setattr(check_module.Counters, "of", lambda channels, now: next(seen))
    told: list[tuple[bool, str]] = []
    watch = Watch(
        world(tmp_path),
        lambda alert: (
            told.append((alert.is_over, alert.problem.site))
            if alert.problem.kind == "dead letters"
            else None
        ),
    )
    expected: list[list[tuple[bool, str]]] = [[], [], [(False, "seattle")], [], [(True, "seattle")]]
    for each in expected:
        watch.look()
        assert told == each
        told.clear()


def test_a_watch_beside_other_work_tells_from_its_thread(tmp_path: Path) -> None:
    """By what is in the channels, and again when it is over."""
    topology, told = world(tmp_path), []
    streams = [(each.name, of(topology, each.sender.name)) for each in all_streams(topology)]
    for _, channel in streams:
        channel.ensure_prepared()
    (name, channel) = next(each for each in streams if each[0] == "newark.east.orders")

    def say(held: str | None) -> None:
        for each, place in streams:
            put_sender_record(place, SenderRecord(each, began=1, written=1))
        put_sender_record(channel, SenderRecord(name, began=1, written=1, held=held))

    def note(alert: Alert) -> None:
        told.append((threading.current_thread().name, alert.is_over, alert.problem.text))

    say("the feed is off")
    with spark_wan.watch(topology, note, site="newark", limits=Limits(), every=0.01) as watch:
        until(lambda: told)
        say(None)
        until(lambda: len(told) == 2)
        assert watch.is_active and watch.problems == []
    assert not watch.is_active
    text = "newark holds it: the feed is off"
    assert told == [("spark-wan-watch", False, text), ("spark-wan-watch", True, text)]


def test_a_stop_does_not_wait_for_a_callback_that_hangs(script: Script) -> None:
    """And no other begins. Fails when the end of a job hangs with a pager that does not answer."""
    entered, leave = threading.Event(), threading.Event()
    told: list[str] = []

    def hangs(alert: Alert) -> None:
        told.append(alert.problem.text)
        entered.set()
        leave.wait(LONG)

    script._on_alert = hangs
    script._checker.check = lambda: [HELD, BEHIND]  # type: ignore[method-assign]
    script.start()
    assert entered.wait(LONG)
    assert not script.stop(timeout=0.01) and script.is_active
    leave.set()
    assert script.stop(timeout=LONG)
    assert told == [HELD.text]


def test_a_callback_may_stop_its_watch(script: Script) -> None:
    stopped: list[bool] = []
    script._on_alert = lambda alert: stopped.append(script.stop())
    script._checker.check = lambda: [HELD, BEHIND]  # type: ignore[method-assign]
    script.start()
    until(lambda: not script.is_active)
    assert stopped == [False] and script.stop()


def test_a_watch_refuses_what_it_cannot_do(tmp_path: Path) -> None:
    topology = world(tmp_path)
    for every in (0, -1, float("nan")):
        with pytest.raises(OptionError, match="every is"):
            spark_wan.watch(topology, every=every)
    with pytest.raises(TopologyError, match="newwark"):
        spark_wan.watch(topology, site="newwark")
    assert Watch(topology).stop()  # that was never started
