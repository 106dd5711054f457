"""``spark-wan check``: its lines, its JSON and the exit codes of probes."""

from __future__ import annotations

import json
import signal
import threading
from pathlib import Path

import pytest
from fakes import publish
from test_pause_and_resume import STREAM, Terminal

from spark_wan.channels.registry import open_channel
from spark_wan.cli.output import JsonOutput, TextOutput
from spark_wan.log.notes import put_sender_record
from spark_wan.log.stream_log import StreamLog
from spark_wan.status.watch import Alert
from spark_wan.topology.routes import all_streams
from spark_wan.wire.sender_record import SenderRecord


@pytest.fixture
def terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Terminal:
    return Terminal(tmp_path, monkeypatch, capsys)


def test_a_probe_gets_a_line_for_each_problem_and_an_exit_code(terminal: Terminal) -> None:
    """The worst one counts. Fails when a text of several lines is several problems."""
    code, out, _ = terminal.run("check")
    assert code == 3 and "is not there" in out
    topology = terminal.sites.topology
    channel = open_channel(topology.sender("east").channel)
    for stream in all_streams(topology):
        place = open_channel(stream.sender.channel)
        put_sender_record(place, SenderRecord(stream.name, began=1, written=1))
    assert terminal.run("check")[:2] == (0, "OK: nothing is wrong\n")
    publish(StreamLog(channel, STREAM), 1)
    code, out, _ = terminal.run("check", "--behind", "1m")
    assert code == 2  # the ack is owed since 2023
    record = SenderRecord(STREAM, began=1, written=1, epoch=1, through=9, held="the feed\n is off")
    put_sender_record(channel, record)
    code, out, _ = terminal.run("check")
    summary, *lines = out.splitlines()
    assert (code, summary) == (2, "CRITICAL: 1 critical")
    assert lines == [f"critical: held: {STREAM}: newark holds it: the feed is off"]
    code, out, _ = terminal.run("check", "--output", "json")
    found = json.loads(out)
    assert (code, found["level"]) == (2, "critical")
    assert found["problems"] == [
        {
            "level": "critical",
            "kind": "held",
            "text": "newark holds it: the feed\n is off",
            "channel": channel.url,
            "stream": STREAM,
            "site": "newark",
        }
    ]


def test_an_error_is_not_taken_for_a_warning(terminal: Terminal) -> None:
    """A probe that cannot tell says so. Fails when a mistake in the options looks like one."""
    assert terminal.run("check", "--site", "newwark")[0] == 3
    memory = terminal.sites.folder / "memory"
    memory.write_text("{")
    assert terminal.run("check", "--memory", str(memory))[0] == 3
    memory.unlink()
    terminal.run("check", "--memory", str(memory))
    assert memory.exists()


@pytest.mark.parametrize(("kind", "words"), [(TextOutput, ()), (JsonOutput, ("--output", "json"))])
def test_a_check_goes_on_until_it_is_interrupted(
    terminal: Terminal,
    monkeypatch: pytest.MonkeyPatch,
    kind: type[TextOutput] | type[JsonOutput],
    words: tuple[str, ...],
) -> None:
    """A line for what is new, and for what is over. Fails when a service manager cannot end it."""
    topology = terminal.sites.topology
    streams = [(each.name, open_channel(each.sender.channel)) for each in all_streams(topology)]
    main, told, shown = threading.main_thread().ident, [], kind.alert
    assert main is not None

    def say(held: str | None) -> None:
        for name, channel in streams:
            put_sender_record(
                channel, SenderRecord(name, 1, 1, held=held if name == STREAM else None)
            )

    def alert(out: object, alert: Alert) -> None:
        shown(out, alert)  # type: ignore[arg-type]
        told.append(alert)
        say(None)
        if alert.is_over:
            signal.pthread_kill(main, signal.SIGTERM)

    monkeypatch.setattr(kind, "alert", alert)
    before = signal.getsignal(signal.SIGTERM)
    say("the feed\n is off")
    code, out, _ = terminal.run("check", "--every", "10ms", *words)
    assert (code, len(told), signal.getsignal(signal.SIGTERM)) == (0, 2, before)
    first, second = out.splitlines()
    if words:
        lines = [json.loads(first), json.loads(second)]
        assert [each["event"] for each in lines] == ["problem-found", "problem-over"]
        assert {"v", "time"} < {*lines[0]}
        assert (lines[0]["level"], lines[0]["kind"], lines[0]["stream"]) == (
            "critical",
            "held",
            STREAM,
        )
    else:
        assert first.endswith(f" critical: held: {STREAM}: newark holds it: the feed is off")
        assert second.endswith(f" over: held: {STREAM}: newark holds it: the feed is off")


def test_a_check_that_goes_on_has_no_memory_file(terminal: Terminal) -> None:
    assert terminal.run("check", "--every", "1m", "--memory", "file")[0] == 2
