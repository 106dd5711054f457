"""The status as people see it, and shown again and again."""

from __future__ import annotations

import io
import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from fakes import manifest
from rich.console import Console
from rich.text import Text
from topologies import two_sites
from waiting import LONG

from spark_wan.channels.registry import open_channel
from spark_wan.cli.options import Format
from spark_wan.cli.output import open_output
from spark_wan.cli.status_view import StatusView
from spark_wan.errors import NEW_SITE, RESEND_TO_NEW_SITE
from spark_wan.status.reports import (
    ChannelReport,
    ReceiverReport,
    SenderReport,
    SiteReport,
    StreamReport,
    WorkReport,
    with_states,
)
from spark_wan.wire.receiver_record import NotApplied
from spark_wan.wire.sender_record import NotSent

ROOT = Path(__file__).parents[3]
NOW = 1_700_000_000_000
MINUTE, DAY = 60_000, 86_400_000

FINE = StreamReport(
    "newark.east.orders",
    "orders",
    "newark",
    "newark",
    epoch=15,
    version=41,
    published_at_ms=NOW - 3_200,
    sites=(SiteReport("seattle", 15), SiteReport("denver", 15)),
)
SENDER = SenderReport(
    held=None,
    held_as=None,
    held_since_ms=None,
    began_ms=NOW - 60 * MINUTE,
    epochs=3,
    events=9,
    batches=3,
    bytes=80,
    dead_letters=0,
    duplicates=0,
    not_sent=NotSent(),
    queue_full=None,
    queue_full_since_ms=None,
    alert=None,
    written_ms=NOW,
    settings_generation=4,
    waiting=0,
    delayed=0,
    work=None,
    stopped_ms=None,
    silent_since_ms=None,
    other_settings=False,
    ending=None,
    history_until_ms=None,
    retention_ms=None,
    duplicates_query="SELECT id FROM orders",
)
BEHIND = SiteReport(
    "denver", 12, 3, 1_200, 24_600_000, behind_ms=5 * MINUTE, answered_at_ms=NOW - 2 * MINUTE
)


def test_the_history_that_a_source_keeps_is_shown_where_it_matters() -> None:
    """While nothing is captured, or little is left. Fails when an operator cannot tell until when a
    stream has to go on."""

    def told(left: int, **more: object) -> list[str]:
        fields = {"history_until_ms": NOW + left, "retention_ms": 7 * DAY, **more}
        lines = shown(replace(FINE, sender=replace(SENDER, **fields)))  # type: ignore[arg-type]
        return [line.strip() for line in lines if "VACUUM" in line]

    assert told(4 * DAY) == told(4 * DAY, history_until_ms=None, held="no feed") == []
    for standing in (
        {"held": "no feed", "held_as": "held"},
        {"queue_full": "9 GB wait"},
        {"stopped_ms": NOW},
        {"silent_since_ms": NOW},
    ):
        assert told(4 * DAY, **standing) == [
            "newark keeps what is not sent for 4 d more: then VACUUM and log cleanup may take it"
        ]
    assert len(told(3 * DAY - 1)) == 1
    assert told(0) == [
        "VACUUM and log cleanup at newark may have taken what is not sent: orders keeps it for 7 d"
    ]


def shown(
    *streams: StreamReport,
    width: int | None = None,
    height: int = 100,
    title: str = "",
    channels: Sequence[ChannelReport] = (),
    counts: bool = False,
) -> list[str]:
    """Return the lines of a status, of these channels or of one with these streams; ``width``:
    those of a terminal."""
    file = io.StringIO()
    console = Console(
        file=file,
        force_terminal=width is not None,
        width=width or 200,
        height=height,
        no_color=True,
    )
    channels = [
        replace(each, streams=tuple(map(with_states, each.streams)))
        for each in channels or [ChannelReport("/data/channel", streams)]
    ]
    view = StatusView(channels, "wan.yaml", NOW, title, counts)
    console.print(view, soft_wrap=width is None, highlight=False)
    return Text.from_ansi(file.getvalue()).plain.splitlines()


def link(site: SiteReport, **stream: object) -> list[str]:
    """Return what is shown of one link, and of its stream below the first line."""
    lines = shown(replace(FINE, sites=(site,), **stream))  # type: ignore[arg-type]
    assert lines[:2] == [
        "/data/channel",
        "  newark.east.orders  epoch 15, through version 41, 3.2 s ago",
    ]
    return lines[2:]


def since(ms: int) -> str:
    """Return the local time so long ago, as it is shown."""
    return time.strftime("%H:%M:%S", time.localtime((NOW - ms) / 1000))


def test_a_stream_that_is_everywhere() -> None:
    assert shown(FINE) == [
        "/data/channel",
        "  newark.east.orders  epoch 15, through version 41, 3.2 s ago",
        "    -> seattle  up to date",
        "    -> denver   up to date",
        "2 links: 2 up to date",
    ]
    unpublished = replace(FINE, epoch=0, version=None, published_at_ms=None)
    assert shown(unpublished)[1:3] == [
        "  newark.east.orders  nothing published yet",
        "    -> seattle  nothing sent yet",
    ]


@pytest.mark.parametrize(
    ("before", "lacks", "advice"),
    [(42, "what came before version 42", NEW_SITE), (-1, "the events before", RESEND_TO_NEW_SITE)],
)
def test_a_site_that_was_added_to_a_running_stream_is_told_how_to_get_the_rest(
    before: int, lacks: str, advice: str
) -> None:
    text = "\n".join(link(SiteReport("denver", lacks_before=before)))
    assert f"denver has acked nothing, and does not get {lacks}. If it lacks that" in text
    assert advice in text


def test_a_link_that_is_behind_says_by_how_much() -> None:
    assert link(BEHIND) == [
        "    -> denver  late; behind by 3 epochs, 1,200 events, 24.6 MB, 5 min",
        "1 link: 1 late",
    ]


def test_what_holds_a_link_at_its_receiver() -> None:
    held = replace(
        BEHIND, held_as="held", held_at=13, cause="the table is missing. Create it.", dead_letters=1
    )
    assert link(held) == [
        "    -> denver  held; behind by 3 epochs, 1,200 events, 24.6 MB, 5 min",
        f"               denver holds it at epoch 13 since {since(2 * MINUTE)} (2 min): "
        "the table is missing. Create it.",
        "               1 event could not be applied; "
        "rows and causes: `spark-wan dead-letters list --site denver`",
        "1 link: 1 held",
    ]
    needing = replace(held, needs="table", needs_since_ms=NOW - 2 * MINUTE)
    assert link(needing)[2] == (
        f"               denver needs a copy of the table since {since(2 * MINUTE)} (2 min) (table)"
    )


def test_work_that_takes_long_is_shown_where_it_is_done() -> None:
    """And how old the news are, if they are. Fails when a first copy shows nothing for an hour."""
    work = WorkReport(3_000_000, 24_600_000, NOW - 2 * MINUTE, 0.25, NOW - 5_000, 6_522, 5 * MINUTE)
    sender = replace(
        SENDER, work=replace(work, share=None, rows_per_s=None, bytes=None, left_ms=None)
    )
    receiver = ReceiverReport(NOW, 0, 0, 0, 0, 0, NotApplied(), work, NOW, None, None)
    assert link(replace(BEHIND, applying=13, receiver=receiver), sender=sender)[:3] == [
        f"    newark captures 3,000,000 rows since {since(2 * MINUTE)} (2 min)",
        "    -> denver  late; behind by 3 epochs, 1,200 events, 24.6 MB, 5 min",
        "               denver applies 3,000,000 rows (24.6 MB) "
        f"since {since(2 * MINUTE)} (2 min), [#####---------------] 25%, 6,522 rows/s, "
        "about 5 min left",
    ]
    old = replace(receiver, work=replace(work, written_ms=NOW - 61_000))
    assert link(replace(BEHIND, receiver=old))[1].endswith("5 min left, as of 1 min ago")
    gone = replace(receiver, stopped_ms=NOW - MINUTE)
    assert link(replace(BEHIND, receiver=gone))[1:-1] == [
        f"               the receiver of denver has been stopped since {since(MINUTE)} (1 min). "
        "Start it."
    ]
    silent = replace(receiver, work=None, silent_since_ms=NOW - MINUTE)
    assert link(replace(BEHIND, receiver=silent))[1:-1] == [
        f"               the receiver of denver has said nothing since {since(MINUTE)} (1 min). "
        "Check that it runs, and writes to heartbeats/ in this channel."
    ]
    stopped = replace(sender, stopped_ms=NOW - MINUTE)
    assert not any("captures" in line for line in link(BEHIND, sender=stopped))


def test_keys_that_are_not_unique_are_said_with_the_query_that_finds_them() -> None:
    note, *_ = link(SiteReport("denver", 15), sender=replace(SENDER, duplicates=3))
    assert note == (
        f"    the keys of orders are not unique at newark: 3 rows had the key of another since "
        f"{since(60 * MINUTE)} (1 h). Of several rows one is sent. This finds them: "
        "SELECT id FROM orders"
    )


def test_what_holds_a_stream_at_its_sender_holds_its_links() -> None:
    """Since long ago, and with a row that could not be sent."""
    sender = replace(
        SENDER,
        held="no change feed. Set it.",
        held_as="held",
        held_since_ms=NOW - 50 * 3_600_000,
        dead_letters=2,
    )
    first, second, *rest = link(SiteReport("denver", 15), sender=sender)
    assert first.startswith("    newark holds it since 2023-11-1")
    assert first.endswith(" (2 d 2 h): no change feed. Set it.")
    assert second.startswith(f"    2 rows could not be sent since {since(60 * MINUTE)} (1 h); ")
    assert rest == ["    -> denver  held; has all epochs", "1 link: 1 held"]


def test_f43_an_epoch_that_did_not_meet_the_ack_policy_is_shown_with_its_stream() -> None:
    alert = "epoch 13, published 2023-11-14 22:13:20 UTC, does not meet the ack policy all: …"
    note, *_ = link(BEHIND, sender=replace(SENDER, alert=alert))
    assert note == f"    {alert}"


def test_commits_that_are_delayed_are_shown_with_the_delay() -> None:
    late = replace(FINE, sender=replace(SENDER, waiting=2, delayed=3), delay_ms=4 * 60 * MINUTE)
    _, head, *_ = shown(late)
    assert "through version 41, 2 commits to come, 3 commits delayed until 4 h old, " in head


def test_a_full_queue_is_shown_with_its_stream() -> None:
    full = replace(SENDER, queue_full="9 GB wait for denver", queue_full_since_ms=NOW - MINUTE)
    note, *_ = link(BEHIND, sender=full)
    assert note == f"    newark adds nothing since {since(MINUTE)} (1 min): 9 GB wait for denver"
    held, *rest = link(BEHIND, sender=replace(full, held="9 GB wait for denver", held_as="held"))
    assert held == "    newark holds it: 9 GB wait for denver"
    assert not any("adds nothing" in line for line in rest)


def test_a_site_that_was_dropped_is_shown_with_what_it_needs() -> None:
    _, *notes = link(replace(BEHIND, dropped=12))
    text = " ".join(line.strip() for line in notes)
    assert "the stream goes on without what denver had not acked through epoch 12. If its" in text


@pytest.mark.parametrize("ever", [True, False])
def test_a_site_that_does_not_answer(ever: bool) -> None:
    answered = NOW - 5 * MINUTE if ever else None
    site = replace(BEHIND, answered_at_ms=answered, overdue_since_ms=NOW - 5 * MINUTE)
    first, note, summary = link(site)
    assert first == "    -> denver  no answer; behind by 3 epochs, 1,200 events, 24.6 MB, 5 min"
    never = "" if ever else ", and has never sent one"
    expected = f"denver owes an ack since {since(5 * MINUTE)} (5 min){never}. Check that a "
    assert note.strip().startswith(expected + "receiver of denver runs")
    assert summary == "1 link: 1 no answer"


def test_news_of_a_receiver_do_not_contradict_each_other() -> None:
    """Work of an epoch that is acked is done; who was stopped need not be looked for."""
    work = WorkReport(200, 4_000, NOW - 13_000, None, NOW - 5_000, None, None)
    receiver = ReceiverReport(NOW, 0, 0, 0, 0, 0, NotApplied(), work, NOW, None, None)
    up_to_date = SiteReport("denver", 15, receiver=receiver)
    assert link(up_to_date) == ["    -> denver  up to date", "1 link: 1 up to date"]
    overdue = replace(BEHIND, overdue_since_ms=NOW - 5 * MINUTE, receiver=receiver)
    stopped = replace(receiver, work=None, stopped_ms=NOW - 5 * MINUTE)
    _, note, summary = link(replace(overdue, receiver=stopped))
    assert "the receiver of denver has been stopped" in note and "1 no answer" in summary


def test_a_sender_with_other_settings_says_what_to_do() -> None:
    note, *_ = link(SiteReport("denver", 15), sender=replace(SENDER, other_settings=True))
    assert note == (
        "    newark sends it with other settings than wan.yaml has (generation 4 of its settings). "
        "Send SIGHUP to the job there, which reads the file again, or restart it; or read the "
        "status with the file that it has."
    )


def test_a_record_or_a_log_that_cannot_be_read() -> None:
    """Only what cannot be read is left out."""
    lines = shown(
        replace(FINE, sender_problem="the sender's record is damaged"),
        replace(FINE, problem="manifests are missing", sites=()),
    )
    assert lines[2:4] == ["    the sender's record is damaged", "    -> seattle  up to date"]
    assert lines[-2:] == ["    manifests are missing", "2 links: 2 up to date"]


def test_a_forwarded_link_shows_its_path() -> None:
    path = "newark -> east -> chicago -> west -> denver"
    assert link(replace(SiteReport("denver", 15), path=path))[0] == (
        f"    -> denver  up to date  {path}"
    )


def test_a_site_that_is_no_longer_served_and_a_foreign_file() -> None:
    assert link(replace(BEHIND, served=False))[0].startswith("    -> denver  no longer served; ")
    report = ChannelReport("/data/[channel]", (FINE,), foreign=("notes.txt",))
    lines = shown(channels=[report])
    assert lines[0] == "/data/[channel]"
    assert any("notes.txt is in the channel and not spark_wan's" in line for line in lines)


def test_a_channel_that_cannot_be_read_shows_why_and_no_streams() -> None:
    """Fails when its streams seem to have published nothing."""
    report = ChannelReport("/data/channel", (FINE,), problem="403: forbidden")
    assert shown(channels=[report]) == [
        "/data/channel",
        "  403: forbidden",
        "0 links; 1 channel cannot be read",
    ]


@pytest.mark.parametrize("width", [40, 80, 120])
def test_long_lines_go_on_below_their_text_in_a_terminal_and_stay_whole_elsewhere(
    width: int,
) -> None:
    cause = "the table is missing. " * 20
    held = replace(BEHIND, held_as="held", held_at=13, cause=cause.strip())
    whole = shown(replace(FINE, sites=(held,)))
    assert sum(cause.strip() in line for line in whole) == 1
    lines = shown(replace(FINE, sites=(held,)), width=width)
    assert max(map(len, lines)) <= width
    assert all(line == line.rstrip() for line in lines)
    words = " ".join(" ".join(lines).split())
    assert words == " ".join(" ".join(whole).split())
    notes = lines[lines.index(next(line for line in lines if "holds it" in line)) : -1]
    assert all(line.startswith(" " * 15) for line in notes)


def test_the_counts_of_a_stream_are_shown_where_somebody_asks_for_them() -> None:
    """Each with the field of the JSON that has it. Fails when the usual status has them, which is
    about what needs attention; or when one that is not 0 is left out."""
    receiver = ReceiverReport(
        NOW - MINUTE, 3, 9, 1, 2, 4, NotApplied(5, 6, 7, 1), None, NOW, None, None
    )
    sender = replace(SENDER, not_sent=NotSent(1, 2, 3, 4, 5, 6, 7, 8, 9, 1))
    counted = replace(FINE, sender=sender, sites=(SiteReport("seattle", 15, receiver=receiver),))
    assert shown(counted)[2:] == ["    -> seattle  up to date", "1 link: 1 up to date"]
    counted = replace(counted, sender=replace(sender, dead_letters=3))
    assert shown(counted, counts=True)[3:] == [
        f"    newark since {since(60 * MINUTE)} (1 h): sent 3 epochs, 9 events; not sent: "
        "dead_letters 3 rows, local_only 1 commit, received 2 commits, by_setting 3 commits, "
        "by_decision 4 commits, no_rows 5 commits, no_events 6 commits, by_copy 7 commits, "
        "unchanged 8 rows, replays 9 writes, elsewhere 1 epoch",
        "    -> seattle  up to date",
        f"                seattle since {since(MINUTE)} (1 min): applied 3 epochs, 9 events; "
        "not applied: duplicates 1 event, dead_letters 2 events, superseded 5 events, "
        "covered 6 events, uncounted 7 events, elsewhere 1 epoch; 4 commits of other writers in "
        "its table",
        "1 link: 1 up to date",
    ]
    quiet = replace(receiver, duplicates=0, dead_letters=0, local_commits=0)
    quiet = replace(quiet, not_applied=NotApplied())
    counted = replace(FINE, sender=SENDER, sites=(SiteReport("seattle", 15, receiver=quiet),))
    assert [line.strip().partition(": ")[2] for line in shown(counted, counts=True)[2:5]] == [
        "sent 3 epochs, 9 events",
        "",
        "applied 3 epochs, 9 events",
    ]
    assert not any("sent 3" in line for line in shown(FINE, counts=True))  # who says nothing
    old = replace(SENDER, written_ms=NOW - 5 * MINUTE)
    assert shown(replace(counted, sender=old), counts=True)[2] == (
        f"    newark since {since(60 * MINUTE)} (1 h), as of 5 min ago: sent 3 epochs, 9 events"
    )


def test_in_a_low_terminal_what_needs_no_attention_is_left_out() -> None:
    """When it is shown again and again: it does not scroll. Fails when what is held is cut off."""
    others = [replace(FINE, stream=f"newark.east.t{n}") for n in range(10)]
    held = replace(FINE, stream="newark.east.held", sites=(BEHIND,))
    lines = shown(*others, held, width=80, height=20, title="12:00:00, every 2 s")
    assert lines == [
        "12:00:00, every 2 s: 21 links: 1 late, 20 up to date",
        "Not shown for lack of room: what is up to date.",
        "/data/channel",
        "  newark.east.held  epoch 15, through version 41, 3.2 s ago",
        "    -> denver  late; behind by 3 epochs, 1,200 events, 24.6 MB, 5 min",
    ]
    assert len(shown(*others, held, width=80, height=40, title="12:00:00, every 2 s")) == 34
    assert len(shown(*others, held, width=80, height=20)) == 34


def test_durations_and_times_in_json_carry_their_unit(capsys: pytest.CaptureFixture[str]) -> None:
    stream = replace(FINE, sender=SENDER, sites=(BEHIND,))
    open_output(Format.JSON).status([ChannelReport("/data/channel", (stream,))], "wan.yaml")
    (channel,) = json.loads(capsys.readouterr().out)["channels"]
    (found,) = channel["streams"]
    assert found["published_at_ms"] == NOW - 3_200
    assert found["sender"]["began_ms"] == NOW - 60 * MINUTE
    assert found["sites"][0]["behind_ms"] == 5 * MINUTE
    for fields in (found, found["sender"], found["sites"][0]):
        assert all(name.endswith("_ms") for name, value in fields.items() if _is_time(name))


def _is_time(name: str) -> bool:
    return any(part in name.split("_") for part in ("at", "since", "behind")) and name != "held_at"


@pytest.fixture
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let local times be those of UTC."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


def test_the_example_on_the_page_of_operations_is_what_is_shown(
    utc: None,
) -> None:
    path = "newark -> east -> chicago -> west"
    missing = "the target table is missing. Restore it, or remove it from the topology."
    held = replace(
        BEHIND, site="seattle", held_as="held", held_at=13, cause=missing, path=f"{path} -> seattle"
    )
    silent = SiteReport(
        "denver", 14, 1, 10, 1_200, behind_ms=9 * MINUTE, overdue_since_ms=NOW - 8 * MINUTE
    )
    forwarded = replace(
        FINE,
        stream="chicago.west~newark.east.orders",
        from_site="chicago",
        sites=(replace(silent, answered_at_ms=0, path=f"{path} -> denver"), held),
    )
    sender = replace(
        SENDER,
        held_as="held",
        held="orders: TRUNCATE in version 42. Decide: spark-wan decide orders@42=distribute or "
        "=skip.",
        held_since_ms=NOW - 2 * MINUTE,
    )
    orders = replace(FINE, sender=sender, sites=(SiteReport("chicago", 15),))
    readings = replace(orders, stream="newark.east.readings", epoch=8, version=7, sender=None)
    east = ChannelReport("s3://wan-channel/east", (orders, readings))
    west = ChannelReport("s3://wan-channel/west", (forwarded,))
    example = "\n".join(f"    {line}" for line in shown(channels=[east, west], width=80))
    assert example in (ROOT / "docs" / "operations.md").read_text(), example


# --- again and again


@pytest.fixture
def wan(tmp_path: Path) -> Path:
    """Return a topology of two sites whose channel has one epoch."""
    config = two_sites(tmp_path, "./channel")
    open_channel(str(tmp_path / "channel")).append("newark.east.orders", 1, manifest(1).encode())
    return config


def watching(config: Path, *words: str) -> list[str]:
    command = [sys.executable, "-m", "spark_wan.cli", "status", "--config", str(config)]
    return [*command, "--watch", "100ms", *words]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_without_a_terminal_each_status_is_printed_until_a_signal_ends_it(
    wan: Path, number: int
) -> None:
    """With exit code 0, and though the channel was away in between."""
    channel, away = wan.parent / "channel", wan.parent / "away"
    process = subprocess.Popen(
        watching(wan, "--output", "json"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None

    def until(epoch: int) -> None:
        for line in process.stdout or ():
            (report,) = json.loads(line)["channels"]
            if [stream["epoch"] for stream in report["streams"]] == [epoch]:
                return
        raise AssertionError(process.communicate())

    try:
        until(1)
        channel.rename(away)
        until(0)
        away.rename(channel)
        until(1)
        process.send_signal(number)
        _, errors = process.communicate(timeout=LONG)
        assert (process.returncode, errors) == (0, "")
    finally:
        process.kill()


def test_in_a_terminal_the_status_is_renewed_in_place_until_ctrl_c(wan: Path) -> None:
    """Ctrl-C ends it with exit code 0, and the terminal has its cursor back."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color"}
    process = subprocess.Popen(
        watching(wan),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment,
    )
    os.close(theirs)
    try:
        text = _read_until(ours, lambda text: text.count(b"every 100 ms") >= 3)
        assert b"\x1b[1A" in text  # the cursor goes up, to write over the status before
        process.send_signal(signal.SIGINT)
        text += _read_until(ours, lambda text: False)
        assert process.wait(LONG) == 0
        assert text.rindex(b"\x1b[?25h") > text.rindex(b"\x1b[?25l")
        assert b"Traceback" not in text and b"Aborted" not in text
    finally:
        process.kill()
        os.close(ours)


def _read_until(terminal: int, enough: Callable[[bytes], bool]) -> bytes:
    """Return what a terminal shows until it is enough, or its process has ended."""
    text, end = b"", time.monotonic() + LONG
    while not enough(text):
        assert time.monotonic() < end, text
        if select.select([terminal], [], [], 0.1)[0]:
            try:
                text += os.read(terminal, 65_536)
            except OSError:  # the other end is closed
                break
    return text


def test_an_interval_without_watch_is_wrong_usage(wan: Path) -> None:
    command = [sys.executable, "-m", "spark_wan.cli", "status", "--config", str(wan), "5"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, "an interval needs --watch" in done.stderr) == (2, True)
