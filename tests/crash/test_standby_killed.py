"""A receiver and its standby, as processes: the active one is killed (SIGKILL)."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

from commands import Command, running
from sites import SEATTLE, Sites
from waiting import wait_until

AFTER = "20s"


def lines_of(command: Command, event: str) -> list[dict[str, Any]]:
    return [line for line in [*command.lines] if line["event"] == event]


def waits_for(command: Command, other: Command) -> None:
    """Wait until a standby says that it waits for another one."""
    wait_until(lambda: command.has_printed(lambda line: line["event"] == "waiting"), "it waits")
    [line] = lines_of(command, "waiting")
    assert line["other"]["process"] == other.process.pid


def test_b30_a_standby_takes_over_from_a_receiver_that_is_killed(
    spark: Any, replicated: Sites, tmp_path: Path
) -> None:
    """Rows go on to arrive, without a hand. The killed one is started again, and waits.

    Fails when the standby runs beside the active one, or waits for one that is dead.
    """
    replicated.set_site(SEATTLE, standby_after=AFTER)

    def standby(name: str) -> Any:
        return running("receive", replicated, tmp_path / name, "--standby")

    def has_started(command: Command) -> bool:
        return command.has_printed(lambda line: bool(line["event"] == "started"))

    with standby("first") as first, standby("second") as second:
        wait_until(lambda: any(map(has_started, (first, second))), "one of them runs")
        active, waiting = (first, second) if has_started(first) else (second, first)
        waits_for(waiting, active)
        replicated.change(50)
        replicated.send(spark)
        wait_until(replicated.are_equal, "the active one applies")
        active.end()
        replicated.change(70)
        replicated.send(spark)
        wait_until(replicated.are_equal, "the standby applies")
        [taken] = lines_of(waiting, "took-over")
        assert taken["other"]["process"] == active.process.pid and "silent" in taken["why"]
        with standby("again") as again:
            waits_for(again, waiting)
            again.signal(signal.SIGTERM)
            assert again.code() == 0, again.errors()
            assert again.lines[-1]["event"] == "stopped" and not lines_of(again, "started")
        waiting.signal(signal.SIGTERM)
        assert waiting.code() == 0, waiting.errors()
    replicated.assert_equal()
