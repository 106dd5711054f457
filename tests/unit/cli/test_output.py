"""What commands print of a running sender or receiver."""

from __future__ import annotations

import io
import json
import logging
import re
import sys
from dataclasses import asdict, replace

import pytest

from spark_wan.cli.options import Format
from spark_wan.cli.output import describe_applied, describe_sent, describe_work, open_output
from spark_wan.receiver.stream import TableStatus
from spark_wan.runtime.life import Other
from spark_wan.runtime.progress import LONG, Progress
from spark_wan.runtime.standby import News
from spark_wan.sender.outbound_stream import StreamStatus
from spark_wan.units import milliseconds
from spark_wan.wire.receiver_record import NotApplied
from spark_wan.wire.sender_record import NotSent
from spark_wan.wire.sign_of_life import SignOfLife

SENT = StreamStatus(
    "newark.east.orders",
    "orders",
    published=3,
    version=7,
    acked={"seattle": 2, "denver": 3},
    events=1_200,
    bytes=24_600_000,
)


def test_a_senders_stream_is_one_line() -> None:
    assert describe_sent(StreamStatus("a.b.t", "t")) == "a.b.t: nothing published yet"
    assert describe_sent(StreamStatus("a.b.t", "t", held="why")) == "a.b.t: HELD: why"
    assert describe_sent(SENT) == (
        "newark.east.orders: published through epoch 3, 1,200 events, 24.6 MB; "
        "denver has applied epoch 3, seattle has applied epoch 2"
    )
    held = StreamStatus(
        "a.b.t",
        "t",
        published=1,
        dead_letters=1_000,
        held="no change feed",
        remote_holds={"seattle": "full"},
        not_served=["denver"],
    )
    assert describe_sent(held) == (
        "a.b.t: published through epoch 1, 0 events, 0 B; no acks yet; 1,000 dead letters; "
        "denver is no longer served; held by seattle: full; HELD: no change feed"
    )


def test_a_hold_is_printed_whole_once(capsys: pytest.CaptureFixture[str]) -> None:
    """Fails when a cause of ten lines is printed again with each change of a counter."""
    out = open_output(Format.TEXT)
    long = "the table is missing. Create it, or make a full copy."
    out.receiver_progress(TableStatus("a.b.t", "t", applied=3, held=long))
    out.receiver_progress(TableStatus("a.b.t", "t", applied=3, duplicates=1, held=long))
    out.receiver_progress(TableStatus("a.b.t", "t", applied=4))
    out.receiver_progress(TableStatus("a.b.t", "t", applied=4, held=long))
    held = StreamStatus("a.b.u", "u", published=2, remote_holds={"seattle": "full", "denver": "x"})
    out.sender_progress(held)
    out.sender_progress(replace(held, events=5, remote_holds={"seattle": "full", "denver": "y"}))
    lines = [line.partition("; ")[2] for line in capsys.readouterr().out.splitlines()]
    again = re.sub(r"\d\d:\d\d:\d\d", "TIME", lines[1])
    assert again == "1 duplicates discarded; HELD: as printed at TIME"
    assert [lines[0], lines[2], lines[3]] == [f"HELD: {long}", "", f"HELD: {long}"]
    assert lines[4] == "no acks yet; held by seattle: full; held by denver: x"
    assert "held by seattle: as printed at" in lines[5] and "held by denver: y" in lines[5]


def test_what_is_not_sent_or_applied_prints_no_line_of_its_own(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """An apply at a site is a commit that its sender does not send. Fails when each prints what was
    printed already."""
    out = open_output(Format.TEXT)
    sent, applied = StreamStatus("a.b.t", "t"), TableStatus("a.b.t", "t")
    out.sender_progress(replace(sent, not_sent=NotSent(received=1)))
    out.sender_progress(replace(sent, published=1, not_sent=NotSent(received=1)))
    out.sender_progress(replace(sent, published=1, not_sent=NotSent(received=2)))
    out.receiver_progress(replace(applied, not_applied=NotApplied(elsewhere=1)))
    out.receiver_progress(replace(applied, applied=1, not_applied=NotApplied(elsewhere=1)))
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(": ")[2].partition(",")[0] for line in lines] == [
        "published through epoch 1",
        "applied through epoch 1",
    ]


def test_a_hold_at_a_remote_site_that_comes_back_is_printed_whole(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Fails when a released hold is remembered. A site may have the name of another cause."""
    out = open_output(Format.TEXT)
    held = StreamStatus("a.b.u", "u", published=2, held="full", remote_holds={"held": "full"})
    for status in (held, replace(held, held=None, remote_holds={}), held):
        out.sender_progress(status)
    first, free, again = (
        line.partition("acks yet")[2] for line in capsys.readouterr().out.splitlines()
    )
    assert first == again == "; held by held: full; HELD: full"
    assert free == ""


def test_work_that_takes_long_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    now = 1_700_000_020_000
    work = Progress("a.b.t", "a", "capturing", 3_000_000, 74_300_000, now - 20_000, share=0.25)
    assert describe_work(work, now) == (
        "a.b.t: capturing 3,000,000 rows (74.3 MB) for 20 s, [#####---------------] 25%, "
        "37,500 rows/s, about 1 min left"
    )
    unknown = replace(work, work="applying", bytes=None, share=None)
    assert describe_work(unknown, now) == "a.b.t: applying 3,000,000 rows for 20 s"
    open_output(Format.JSON).work(replace(work, began_ms=milliseconds() - 20_000))
    fields = json.loads(capsys.readouterr().out)
    assert 30_000 < fields.pop("rows_per_s") <= 37_500
    assert fields.pop("left_ms") >= 60_000
    assert (fields["event"], fields["work"], fields["rows"]) == ("work", "capturing", 3_000_000)
    assert (fields["share"], fields["bytes"]) == (0.25, 74_300_000)


def test_a_receivers_stream_is_one_line() -> None:
    assert describe_applied(TableStatus("a.b.t", "t")) == "a.b.t: nothing applied yet"
    status = TableStatus(
        "a.b.t",
        "t",
        applied=3,
        forwarded=2,
        events=1_200,
        duplicates=4,
        dead_letters=2,
        local_commits=1,
        held="missing",
    )
    assert describe_applied(status) == (
        "a.b.t: applied through epoch 3, 1,200 events; forwarded through epoch 2; 4 duplicates "
        "discarded; 2 dead letters; 1 commits by other writers; HELD: missing"
    )


def test_a_stream_whose_queue_is_full_says_so_in_its_line() -> None:
    full = replace(SENT, queue_full="9 GB wait for seattle")
    assert describe_sent(full).endswith("; waits: 9 GB wait for seattle")
    held = describe_sent(replace(full, held="9 GB wait for seattle"))
    assert held.endswith("HELD: 9 GB wait for seattle") and "waits" not in held


def test_progress_for_scripts_has_the_fields_of_the_status(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The keys are an interface: the demo reads them, and so may users."""
    out = open_output(Format.JSON)
    out.job_event("started", "sender", "newark")
    out.sender_progress(SENT)
    out.receiver_progress(TableStatus("a.b.t", "t", applied=3))
    started, sent, applied = map(json.loads, capsys.readouterr().out.splitlines())
    for line in (started, sent, applied):
        assert line.pop("time").endswith("+00:00")
        assert line.pop("v") == 1
    assert started == {"event": "started", "job": "sender", "site": "newark"}
    assert sent == {
        "event": "progress",
        "stream": "newark.east.orders",
        "table": "orders",
        "published": 3,
        "version": 7,
        "acked": {"seattle": 2, "denver": 3},
        "backlog": 0,
        "epochs": 0,
        "events": 1_200,
        "batches": 0,
        "bytes": 24_600_000,
        "dead_letters": 0,
        "duplicates": 0,
        "held": None,
        "held_since_ms": None,
        "replaced": False,
        "queue_full": None,
        "queue_full_since_ms": None,
        "alert": None,
        "remote_holds": {},
        "not_served": [],
        "not_sent": asdict(NotSent()),
    }
    assert applied == {
        "event": "progress",
        "stream": "a.b.t",
        "table": "t",
        "applied": 3,
        "forwarded": None,
        "epochs": 0,
        "events": 0,
        "duplicates": 0,
        "dead_letters": 0,
        "local_commits": 0,
        "held": None,
        "needs": None,
        "not_applied": asdict(NotApplied()),
    }


SIGN = SignOfLife("0f6e1a77cc", "lake-3", 4711, 1_700_000_000_000, 15_000, 1_700_000_015_000)
NEWS = [
    News("waiting", Other(1, b"", 0.0, SIGN)),
    News("took-over", Other(1, b"", 0.0, SIGN), "it has been silent for 45 s"),
    News("started"),
    News("gave-way", Other(3, b"", 0.0, None), "it has taken over meanwhile"),
]


def test_a_standby_says_for_whom_it_waits_and_why_it_no_longer_does(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Fails when two machines run a job each, and nobody can tell which one is at work."""
    for each in (open_output(Format.TEXT), open_output(Format.JSON)):
        for news in NEWS:
            each.standby(news, "sender", "newark")
    lines = capsys.readouterr().out.splitlines()
    texts = [" ".join(line.split()[1:]) for line in lines[:-4]]
    assert " ".join(texts).replace("  ", " ") == (
        "sender at newark waits: job 0f6e1a77 on lake-3, process 4711 runs since 2023-11-14 "
        "22:13:20 UTC sender at newark takes over: it has been silent for 45 s sender at newark "
        "started sender at newark gives way: it has taken over meanwhile"
    )
    waiting, took_over, started, gave_way = map(json.loads, lines[-4:])
    other = {"job": "0f6e1a77cc", "host": "lake-3", "process": 4711}
    assert waiting["other"] == {**other, "began_ms": SIGN.began, "at_ms": SIGN.at}
    assert took_over["why"] == "it has been silent for 45 s"
    assert (started["event"], started["job"], started["site"]) == ("started", "sender", "newark")
    assert (gave_way["event"], gave_way["other"]) == ("gave-way", None)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_in_a_terminal_long_work_is_a_line_that_is_renewed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On standard error, cut to its width, and taken away before anything else is printed. Fails
    when a capture of an hour fills the terminal, or when its line is left there."""
    screen = Terminal()
    monkeypatch.setattr("sys.stdout", screen)
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setenv("COLUMNS", "90")
    out = open_output(Format.TEXT)
    work = Progress("a.b.t\n", "a", "capturing", 9_000, 24_600_000, milliseconds() - 60_000, 0.25)
    assert out.work_interval == 1.0
    out.work(work)
    out.work(replace(work, share=0.5))
    out.work_ended()
    out.work_ended()
    first, second, third, rest = screen.getvalue().split("\r")[1:] + [""]
    assert first.endswith("\x1b[K") and len(first) == 89 + len("\x1b[K") and "a.b.t?" in first
    assert (third, rest) == ("\x1b[K", "") and second != first
    out.work(work)
    out.job_event("stopped", "sender", "newark")
    assert "\x1b[K\r\x1b[K" in screen.getvalue()
    assert screen.getvalue().rstrip().endswith("sender at newark stopped")


@pytest.mark.parametrize("missing", ["stdout", "stderr", "log"])
def test_without_a_terminal_long_work_is_a_line_each_time(
    monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    """So it is where the log goes to the terminal, too. Fails when a file gets control codes."""
    out_stream, error_stream = Terminal(), Terminal()
    for name, stream in (("stdout", out_stream), ("stderr", error_stream)):
        monkeypatch.setattr(f"sys.{name}", io.StringIO() if name == missing else stream)
    handler = logging.StreamHandler(sys.stderr)
    if missing == "log":
        logging.getLogger().addHandler(handler)
    try:
        out = open_output(Format.TEXT)
        assert out.work_interval == LONG
        out.work(Progress("a.b.t", "a", "capturing", 9, None, milliseconds() - 60_000))
        out.work_ended()
    finally:
        logging.getLogger().removeHandler(handler)
    assert isinstance(sys.stdout, io.StringIO) and "a.b.t: capturing 9" in sys.stdout.getvalue()
    assert isinstance(sys.stderr, io.StringIO) and sys.stderr.getvalue() == ""
