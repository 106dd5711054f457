"""Numbered steps: run to the end, and deadly only where a test asks for it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from spark_wan import steps
from spark_wan.errors import StoppedError
from spark_wan.steps import CRASH_VARIABLE, FREEZE_VARIABLE, Steps, reached, run

WORK = """
from spark_wan.steps import run
def work():
    for name in ("apply.1 caught-up", "apply.2 planned", "apply.1 caught-up"):
        print(name, flush=True)
        yield name
    return "done"
print(run(work()))
"""


def routine() -> Steps[str]:
    yield "publish.1 log-read"
    yield "publish.2 source-checked"
    return "the result"


def test_the_process_stops_at_each_step_in_the_variable_until_it_is_continued() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", WORK],
        env={FREEZE_VARIABLE: "apply.1 apply.2"},
        stdout=subprocess.PIPE,
        text=True,
    ) as stopped:
        assert stopped.stdout is not None
        for expected in ("apply.1 caught-up", "apply.2 planned"):
            assert stopped.stdout.readline().strip() == expected
            assert os.WIFSTOPPED(os.waitpid(stopped.pid, os.WUNTRACED)[1])
            stopped.send_signal(signal.SIGCONT)
        assert stopped.stdout.read().split("\n") == ["apply.1 caught-up", "done", ""]


THREADS = """
import threading
from spark_wan.steps import reached
def work(n):
    for step in range(50):
        reached(f"{n}.{step} done")
threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


def test_each_step_stops_the_process_once_when_threads_reach_steps_at_the_same_time() -> None:
    """Taken out once: the signal to the thread. Signals to the process that arrive before it has
    stopped count as one."""
    steps = [f"{n}.{step}" for n in range(4) for step in range(50)]
    with subprocess.Popen(
        [sys.executable, "-c", THREADS], env={FREEZE_VARIABLE: " ".join(steps)}
    ) as stopped:
        stops = 0
        while os.WIFSTOPPED(os.waitpid(stopped.pid, os.WUNTRACED)[1]):
            stops += 1
            os.kill(stopped.pid, signal.SIGCONT)
    assert stops == len(steps)


def process(crash_at: str | None) -> tuple[int, list[str]]:
    environment = {CRASH_VARIABLE: crash_at} if crash_at is not None else {}
    done = subprocess.run(
        [sys.executable, "-c", WORK], env=environment, capture_output=True, text=True
    )
    return done.returncode, done.stdout.splitlines()


def test_a_routine_runs_to_its_result() -> None:
    assert run(routine()) == "the result"


def test_an_error_in_a_routine_propagates() -> None:
    def failing() -> Steps[None]:
        yield "publish.1 log-read"
        raise KeyError("here")

    with pytest.raises(KeyError, match="here"):
        run(failing())


def test_without_the_variable_the_hook_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    kills: list[tuple[int, int]] = []
    monkeypatch.setattr(steps.os, "kill", lambda pid, sig: kills.append((pid, sig)))
    for value in (None, ""):
        monkeypatch.delenv(CRASH_VARIABLE, raising=False)
        if value is not None:
            monkeypatch.setenv(CRASH_VARIABLE, value)
        reached("publish.1 log-read")
        run(routine())
    assert kills == []
    monkeypatch.setenv(CRASH_VARIABLE, "publish.9")
    run(routine())
    assert kills == []


def test_the_process_dies_at_the_step_in_the_variable() -> None:
    assert process(None) == (
        0,
        ["apply.1 caught-up", "apply.2 planned", "apply.1 caught-up", "done"],
    )
    assert process("apply.3")[0] == 0
    assert process("apply.2") == (-signal.SIGKILL, ["apply.1 caught-up", "apply.2 planned"])


def test_the_process_dies_when_it_reaches_the_step_for_the_nth_time() -> None:
    assert process("apply.1:2") == (
        -signal.SIGKILL,
        ["apply.1 caught-up", "apply.2 planned", "apply.1 caught-up"],
    )
    assert process("apply.1:3")[0] == 0


def test_a_check_that_raises_ends_a_routine_before_its_next_step() -> None:
    """As a stop does."""
    done: list[str] = []

    def routine() -> Steps[None]:
        done.append("read")
        yield "apply.3 read"
        done.append("written")
        yield "apply.6 committed"

    def check() -> None:
        if done:
            raise StoppedError("the receiver was stopped")

    with pytest.raises(StoppedError):
        run(routine(), check)
    assert done == ["read"]
