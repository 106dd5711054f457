"""``spark-wan pause``, ``resume``, ``drain`` and ``stop``: what they print, and what the status
shows."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from fakes import ack, publish
from sites import NEWARK, Sites

from spark_wan.channels.registry import open_channel
from spark_wan.cli.app import main
from spark_wan.log.stream_log import StreamLog

STREAM = f"{NEWARK}.east.orders"


class Terminal:
    """Runs commands on the sites in a folder."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: object) -> None:
        self.sites = Sites.make(folder / "wan", channel=str(folder / "channel"))
        self.monkeypatch, self.capsys = monkeypatch, capsys

    def run(self, command: str, *words: str) -> tuple[int, str, str]:
        """Return the exit code, and what was printed."""
        config = str(self.sites.folder / "wan.yaml")
        argv = ["spark-wan", command, "--config", config, *words]
        self.monkeypatch.setattr(sys, "argv", argv)
        with pytest.raises(SystemExit) as end:
            main()
        out, err = self.capsys.readouterr()  # type: ignore[attr-defined]
        return int(end.value.code or 0), out, err


@pytest.fixture
def terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Terminal:
    return Terminal(tmp_path, monkeypatch, capsys)


def test_b18_a_pause_says_what_it_does_and_until_when(terminal: Terminal) -> None:
    code, out, _ = terminal.run("pause", "--site", NEWARK, "--table", "orders")
    assert (code, out.splitlines()[0]) == (0, f"{STREAM}: paused")
    assert "it takes nothing until `spark-wan resume`. The sender goes on to add" in out
    publish(StreamLog(open_channel(terminal.sites.topology.sender("east").channel), STREAM), 1)
    code, out, _ = terminal.run("status")
    assert code == 0
    assert "-> seattle  paused; behind by 1 epoch" in out
    assert "nothing is taken until `spark-wan resume` at newark" in out
    code, out, _ = terminal.run("pause", "--site", NEWARK, "--table", "orders", "--capture")
    assert "the source must keep its history until then" in out
    assert "nothing is added or taken until" in terminal.run("status")[1]
    code, out, _ = terminal.run("resume", "--site", NEWARK, "--table", "orders")
    assert (code, out) == (0, f"{STREAM}: resumed\n")
    code, out, _ = terminal.run("resume", "--site", NEWARK, "--table", "orders")
    assert (code, out) == (0, f"{STREAM}: not paused\n")


def test_the_answer_as_json(terminal: Terminal) -> None:
    code, out, _ = terminal.run("pause", "--site", NEWARK, "--table", "orders", "--output", "json")
    assert (code, json.loads(out)) == (
        0,
        {
            "v": 1,
            "verb": "pause",
            "site": NEWARK,
            "changed": True,
            "generation": 1,
            "streams": [STREAM],
        },
    )


def test_what_is_not_there_is_an_error_with_the_nearest_name(terminal: Terminal) -> None:
    code, _, err = terminal.run("pause", "--site", NEWARK, "--table", "order")
    assert code == 1 and "orders" in err


def test_b19_a_drain_says_what_it_waits_for_and_whether_all_has_arrived(terminal: Terminal) -> None:
    """Its exit code, too. Fails when a time-out looks like success."""
    log = StreamLog(open_channel(terminal.sites.topology.sender("east").channel), STREAM)
    publish(log, 1)
    drain = ("drain", "--site", NEWARK, "--table", "orders", "--timeout", "0s")
    code, out, _ = terminal.run(*drain)
    waits = "no sender of newark has said anything of it: check that one runs; "
    assert (code, out.splitlines()[0]) == (
        3,
        f"{STREAM} waits: {waits}seattle has acked nothing: check that its receiver runs",
    )
    assert out.splitlines()[1].startswith(f"{STREAM}: not all has arrived: no sender")
    publish(log, 2, first_version=10, last_version=9, start=False, control=1, end=True)
    ack(log, "seattle", 2)
    shown = " ".join(terminal.run("status")[1].split())
    assert "with version 9: nothing follows until `spark-wan resume` at newark" in shown
    code, out, _ = terminal.run("stop", "--site", NEWARK, "--table", "orders", "--at", "9")
    assert (code, out) == (0, f"{STREAM}: ends with version 9\n")
    code, out, _ = terminal.run("stop", "--site", NEWARK, "--table", "orders", "--at", "9")
    assert (code, out) == (0, f"{STREAM}: ends with version 9, as was asked before\n")
    publish(log, 3, first_version=10, last_version=9, start=False, control=2, end=True)
    ack(log, "seattle", 3)
    stop = ("stop", "--site", NEWARK, "--table", "orders", "--at", "9", "--timeout", "30s")
    code, out, _ = terminal.run(*stop)
    assert (code, out) == (0, f"{STREAM}: all sites have everything through version 9\n")
    code, out, _ = terminal.run(*stop, "--output", "json")
    assert (code, json.loads(out)) == (
        0,
        {
            "v": 1,
            "verb": "stop",
            "site": NEWARK,
            "changed": False,
            "generation": 2,
            "streams": [STREAM],
            "point": "version 9",
            "arrived": True,
            "ends": [
                {
                    "stream": STREAM,
                    "table": "orders",
                    "ended": True,
                    "version": 9,
                    "epoch": 3,
                    "missing": [],
                    "waits_for": None,
                    "arrived": True,
                }
            ],
        },
    )


@pytest.mark.parametrize(
    ("words", "code", "what"),
    [
        (("stop", "--at", "tomorrow"), 2, "neither a version nor a time"),
        (("stop", "--at", "2026-03-01T22:05:00"), 1, "no time zone"),
        (("stop", "--at", "7"), 1, "name it"),
        (("stop",), 2, "--at"),
        (("drain", "--timeout", "soon"), 2, "must be seconds or a duration"),
    ],
)
def test_what_makes_no_sense_is_refused(
    terminal: Terminal, words: tuple[str, ...], code: int, what: str
) -> None:
    command, *more = words
    found, out, err = terminal.run(command, "--site", NEWARK, *more)
    assert found == code and what in " ".join((out + err).split())
    assert not (terminal.sites.folder / NEWARK / "_wan" / "control").exists()


def test_a_drain_says_whose_pause_it_ends(terminal: Terminal) -> None:
    """Fails when somebody's pause is gone, and nobody has said so."""
    terminal.run("pause", "--site", NEWARK, "--table", "orders")
    stop = ("stop", "--site", NEWARK, "--table", "orders", "--at", "9")
    code, out, _ = terminal.run(*stop)
    assert code == 0 and re.match(r"what was paused by \S+ at \S+ goes on\n", out)
    assert json.loads(terminal.run(*stop, "--output", "json")[1]).get("unpaused") is None


def test_the_status_says_where_a_stream_is_to_end(terminal: Terminal) -> None:
    """Fails when who comes later cannot know it."""
    publish(StreamLog(open_channel(terminal.sites.topology.sender("east").channel), STREAM), 1)
    for at, told in (
        ("58", "with version 58"),
        ("2030-01-01T10:00:00Z", "until 2030-01-01 10:00:00 UTC"),
    ):
        terminal.run("stop", "--site", NEWARK, "--table", "orders", "--at", at)
        shown = " ".join(terminal.run("status")[1].split())
        assert f"{told}: it goes on until that has come" in shown
