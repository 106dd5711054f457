"""``check``: what is wrong is one line with what to do; what is right is none."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from unit.cli.test_status_view import SENDER
from unit.control.test_pause import world

from spark_wan.channels.registry import open_channel
from spark_wan.errors import WanError
from spark_wan.status.check import (
    Counters,
    Level,
    Limits,
    _dead_letters,
    check,
    exit_code,
    problems,
)
from spark_wan.status.reports import (
    ChannelReport,
    EndReport,
    PauseReport,
    ReceiverReport,
    SiteReport,
    StreamReport,
    with_states,
)
from spark_wan.wire.receiver_record import NotApplied

NOW = 1_800_000_000_000
MINUTE, DAY = 60_000, 86_400_000
FINE = replace(
    SENDER,
    held=None,
    held_as=None,
    held_since_ms=None,
    alert=None,
    dead_letters=0,
    duplicates=0,
    stopped_ms=None,
    silent_since_ms=None,
    other_settings=False,
    began_ms=NOW - DAY,
)
RECEIVER = ReceiverReport(NOW - DAY, 1, 1, 0, 0, 0, NotApplied(), None, NOW, None, None)
SITE = SiteReport("seattle", acked=9, answered_at_ms=NOW - MINUTE, receiver=RECEIVER)
STREAM = StreamReport(
    "newark.east.orders",
    "orders",
    "newark",
    "newark",
    epoch=9,
    version=41,
    published_at_ms=NOW - DAY,
    sender=FINE,
    sites=(SITE,),
)
BEHIND = replace(SITE, acked=7, backlog_epochs=2, backlog_events=1_200, backlog_bytes=24_600_000)


def found(stream: StreamReport, limits: Limits | None = None) -> list[tuple[str, str, str, str]]:
    """Level, kind and site of each problem, and its text."""
    channel = ChannelReport("s3://wan", (with_states(stream),))
    each = problems([channel], limits or Limits(), NOW)
    return [(p.level.value, p.kind, p.site, p.text) for p in each]


def kinds(stream: StreamReport, limits: Limits | None = None) -> list[tuple[str, str, str]]:
    return [each[:3] for each in found(stream, limits)]


def with_site(**more: object) -> StreamReport:
    return replace(STREAM, sites=(replace(SITE, **more),))  # type: ignore[arg-type]


def with_sender(**more: object) -> StreamReport:
    return replace(STREAM, sender=replace(FINE, **more))  # type: ignore[arg-type]


def test_what_is_right_is_no_problem() -> None:
    assert found(STREAM) == []
    assert found(replace(STREAM, sites=(replace(BEHIND, behind_ms=9 * MINUTE),))) == []
    assert found(replace(STREAM, sender=None)) == []
    assert found(with_site(served=False, cause="the table is gone")) == []
    assert exit_code([]) == 0


@pytest.mark.parametrize(
    ("stream", "problem", "text"),
    [
        (
            with_sender(held="the feed is off", held_as="held", held_since_ms=NOW - 5 * MINUTE),
            ("critical", "held", "newark"),
            "newark holds it for 5 min: the feed is off",
        ),
        (
            with_sender(stopped_ms=NOW - 5 * MINUTE),
            ("critical", "stopped", "newark"),
            "the sender of newark has been stopped for 5 min. Start it again.",
        ),
        (
            replace(with_sender(stopped_ms=NOW - MINUTE), from_site="chicago"),
            ("critical", "stopped", "chicago"),
            "the receiver of chicago has been stopped",
        ),
        (
            with_sender(silent_since_ms=NOW - 130 * MINUTE),
            ("critical", "unknown", "newark"),
            "the sender of newark has said nothing for 2 h 10 min",
        ),
        (
            with_sender(queue_full="9 GB wait for seattle", queue_full_since_ms=NOW - 5 * MINUTE),
            ("warning", "queue", "newark"),
            "newark adds nothing to it for 5 min: 9 GB wait for seattle",
        ),
        (
            with_site(dropped=7),
            ("critical", "dropped", "seattle"),
            "the stream goes on without what seattle had not acked through epoch 7. If its `sync`",
        ),
        (with_sender(alert="epoch 3 is late"), ("warning", "acks", "newark"), "epoch 3 is late"),
        (
            replace(STREAM, problem="epoch 3 is missing"),
            ("unknown", "channel", ""),
            "epoch 3 is missing",
        ),
        (
            replace(STREAM, sender_problem="the record is damaged"),
            ("warning", "channel", "newark"),
            "the record is damaged",
        ),
        (
            with_site(
                cause="the table is gone",
                held_as="held",
                held_at=8,
                answered_at_ms=NOW - 2 * MINUTE,
            ),
            ("critical", "held", "seattle"),
            "seattle holds it at epoch 8 for 2 min: the table is gone",
        ),
        (
            with_site(cause="full", held_as="retrying", held_at=8, held_since_ms=NOW - MINUTE),
            ("warning", "retrying", "seattle"),
            "seattle retries it at epoch 8 for 1 min: full",
        ),
        (
            with_site(cause="full", held_as="failed", held_at=8, held_since_ms=NOW - DAY),
            ("critical", "failed", "seattle"),
            "seattle has failed, and retries it at epoch 8 for 1 d: full",
        ),
        (
            with_sender(held="slow", held_as="retrying", held_since_ms=NOW - 5 * MINUTE),
            ("warning", "retrying", "newark"),
            "newark retries it for 5 min: slow",
        ),
        (
            with_site(overdue_since_ms=NOW - 7 * MINUTE),
            ("critical", "no answer", "seattle"),
            "seattle owes an ack for 7 min. Check that its receiver runs",
        ),
        (
            with_site(receiver=replace(RECEIVER, stopped_ms=NOW - MINUTE)),
            ("critical", "stopped", "seattle"),
            "the receiver of seattle has been stopped for 1 min. Start it again.",
        ),
        (
            with_site(receiver=None, connected=False, seen_ms=NOW - 4 * MINUTE),
            ("critical", "unknown", "seattle"),
            "no receiver of seattle has said anything for 4 min. Check that it runs.",
        ),
        (
            with_site(receiver=replace(RECEIVER, silent_since_ms=NOW - 121 * MINUTE)),
            ("critical", "unknown", "seattle"),
            "the receiver of seattle has said nothing for 2 h 1 min",
        ),
        (
            with_site(lacks_before=5),
            ("warning", "site", "seattle"),
            "seattle was added to a running stream, and lacks what came before.",
        ),
        (
            replace(STREAM, sites=(replace(BEHIND, behind_ms=11 * MINUTE),)),
            ("warning", "behind", "seattle"),
            "seattle is behind by 11 min, 1,200 events and 24.6 MB",
        ),
        (
            replace(STREAM, paused=PauseReport("ann", NOW - 2 * DAY, False, 1)),
            ("warning", "paused", "newark"),
            "paused by ann for 2 d. Run `spark-wan resume` at newark.",
        ),
    ],
    ids=lambda value: value[1] if isinstance(value, tuple) else "",
)
def test_b71_each_problem_is_named_with_what_to_do(
    stream: StreamReport, problem: tuple[str, str, str], text: str
) -> None:
    """And nothing else. Fails when an alert is missing, or comes twice."""
    [(level, kind, site, told)] = found(stream)
    assert (level, kind, site) == problem
    assert re.match(re.escape(text), told)


def test_b71_an_alert_comes_only_past_its_limit() -> None:
    at = 10 * MINUTE
    for ms, expected in ((at, []), (at + 1, [("warning", "behind", "seattle")])):
        stream = replace(STREAM, sites=(replace(BEHIND, behind_ms=ms),))
        assert kinds(stream) == expected
    behind = replace(STREAM, sites=(BEHIND,))
    size = BEHIND.backlog_bytes
    assert kinds(behind, Limits(queue_bytes=size)) == []
    assert kinds(behind, Limits(queue_bytes=size - 1)) == [("warning", "queue", "seattle")]
    paused = replace(STREAM, paused=PauseReport("ann", NOW - MINUTE, False, 1))
    assert kinds(paused, Limits(paused=60)) == []
    assert kinds(paused, Limits(paused=59)) == [("warning", "paused", "newark")]


def test_a_delay_is_not_behind() -> None:
    """Fails when a site that is late on purpose wakes somebody, or one that is later does not."""
    stream = replace(STREAM, delay_ms=60 * MINUTE)
    for minutes, text in ((70, None), (71, "is behind by 11 min beyond the delay of 1 h, 1,200")):
        late = replace(stream, sites=(replace(BEHIND, behind_ms=minutes * MINUTE),))
        said = [each[3] for each in found(late)]
        assert [text in each for each in said if text] == [True] * len(said)
        assert len(said) == (text is not None)


def test_what_waits_in_a_pause_is_not_behind() -> None:
    stream = replace(STREAM, sites=(replace(BEHIND, behind_ms=DAY),))
    assert kinds(replace(stream, paused=PauseReport("ann", NOW, False, 1))) == []


def test_a_site_that_is_held_or_silent_is_not_also_behind() -> None:
    held = {"cause": "why", "held_at": 8, "held_as": "held"}
    for more in (held, {**held, "held_as": "failed"}, {"overdue_since_ms": NOW - DAY}):
        site = replace(BEHIND, behind_ms=DAY, **more)  # type: ignore[arg-type]
        assert len(found(replace(STREAM, sites=(site,)))) == 1


@pytest.mark.parametrize(
    "stream",
    [
        replace(STREAM, paused=PauseReport("ann", NOW - 4 * DAY, True, 1)),
        replace(STREAM, ending=EndReport("ann", "newest", 0, 41, 2), published_at_ms=NOW - 4 * DAY),
        with_sender(stopped_ms=NOW - 4 * DAY),
        with_sender(silent_since_ms=NOW - 4 * DAY),
        with_sender(held="why", held_as="held", held_since_ms=NOW - 4 * DAY),
        with_sender(queue_full="9 GB wait", queue_full_since_ms=NOW - 4 * DAY),
    ],
    ids=["paused", "ended", "stopped", "silent", "held", "full"],
)
def test_a_source_that_has_to_keep_its_history_for_long_is_named(stream: StreamReport) -> None:
    """Before VACUUM takes it. Fails when that is said only once the history is lost."""
    assert ("warning", "history", "newark") in kinds(stream)
    assert ("warning", "history", "newark") not in kinds(stream, Limits(history=5 * 86_400))
    forwarded = replace(stream, from_site="chicago")
    assert "history" not in [kind for _, kind, _ in kinds(forwarded)]


def keeping(left: int, retention: int = 7 * DAY, **more: object) -> StreamReport:
    """A stream whose sender was stopped, and whose source keeps its history for so long still."""
    fields = {"stopped_ms": NOW - 60 * DAY, **more}
    return with_sender(history_until_ms=NOW + left, retention_ms=retention, **fields)


def history(stream: StreamReport, limits: Limits | None = None) -> list[tuple[str, str]]:
    """Level and text of what is said of its history."""
    each = found(stream, limits)
    return [(level, text) for level, kind, _, text in each if kind == "history"]


def test_a_history_that_ends_is_named_with_the_time_that_is_left() -> None:
    """By what the table keeps, not by how long nothing was captured. Fails when the warning of a
    table that keeps its history for a day comes after three."""
    assert history(keeping(3 * DAY)) == []
    [(level, text)] = history(keeping(3 * DAY - 1))
    assert level == "warning"
    assert text.startswith("newark keeps what is not sent of orders for 2 d 23 h more, of 7 d: ")
    assert "Have its sender go on, or raise" in text
    [(level, text)] = history(keeping(1))
    assert level == "warning"
    assert history(keeping(5 * DAY), Limits(history=4 * 86_400)) == []
    assert len(history(keeping(4 * DAY, retention=30 * DAY), Limits(history=5 * 86_400))) == 1


def test_a_table_that_keeps_little_is_not_warned_of_at_once() -> None:
    """But when half of it has passed. Fails when each stop of such a sender is a warning."""
    assert history(keeping(DAY // 2, retention=DAY)) == []
    assert len(history(keeping(DAY // 2 - 1, retention=DAY))) == 1


def test_a_history_that_has_ended_is_critical() -> None:
    for left in (0, -9 * DAY):
        [(level, text)] = history(keeping(left))
        assert level == "critical"
        assert text.startswith(
            "VACUUM and log cleanup at newark may have taken what is not sent of"
        )
    assert [level for level, _ in history(keeping(0, retention=0))] == ["critical"]
    ended = replace(keeping(0), ending=EndReport("ann", "newest", 0, 41, 2))
    [(level, text)] = history(ended)
    assert level == "warning" and "Run `spark-wan resume`" in text
    paused = replace(keeping(0), paused=PauseReport("ann", NOW, True, 1))
    assert [level for level, _ in history(paused)] == ["critical"]


def test_a_sender_that_goes_on_or_forwards_needs_no_history() -> None:
    """Also a pause of long ago does not count, if it does not stop the capture."""
    goes_on = with_sender(history_until_ms=None, retention_ms=7 * DAY, held_since_ms=NOW - 60 * DAY)
    assert history(goes_on) == []
    assert history(replace(keeping(0), from_site="chicago")) == []
    # With `start: 5`, before anything is published: that is in the history alone.
    assert len(history(replace(keeping(0), version=None))) == 1


def test_the_jobs_of_a_finished_stream_may_rest() -> None:
    """At both ends. Fails when a planned migration wakes somebody."""
    ended = EndReport("ann", "newest", 0, 41, 2)
    site = replace(SITE, receiver=replace(RECEIVER, stopped_ms=NOW - MINUTE))
    stream = replace(with_sender(stopped_ms=NOW - MINUTE), ending=ended, sites=(site,))
    assert kinds(replace(stream, published_at_ms=NOW)) == []
    [(_, _, _, text)] = found(replace(stream, published_at_ms=NOW - 4 * DAY))
    assert "Run `spark-wan resume`" in text


def test_a_channel_that_cannot_be_read_is_unknown_and_the_worst_counts() -> None:
    [problem] = problems([ChannelReport("s3://wan", problem="no route")], Limits(), NOW)
    assert (problem.level, problem.kind, exit_code([problem])) == (Level.UNKNOWN, "channel", 3)
    warning = replace(problem, level=Level.WARNING)
    critical = replace(problem, level=Level.CRITICAL)
    assert exit_code([warning]) == 1
    assert exit_code([warning, problem]) == 3
    assert exit_code([warning, problem, critical]) == 2


def letters(sender: int, site: int, at: int, began: int = NOW - DAY) -> Counters:
    stream = replace(
        STREAM,
        sender=replace(FINE, dead_letters=sender, began_ms=began),
        sites=(replace(SITE, dead_letters=site),),
    )
    return Counters.of([ChannelReport("s3://wan", (stream,))], at)


def test_dead_letters_are_counted_since_the_last_check() -> None:
    """Per minute, also of a sender that has begun anew. Fails when a letter of last year is an
    alert for ever."""
    before = letters(3, 7, NOW)

    def alerts(after: Counters, limit: float = 0) -> list[tuple[str, str]]:
        return [(p.site, p.text) for p in _dead_letters(before, after, Limits(dead_letters=limit))]

    assert alerts(letters(3, 7, NOW + 2 * MINUTE)) == []
    [(site, text)] = alerts(letters(3, 11, NOW + 2 * MINUTE))
    assert (site, text[:57]) == (
        "seattle",
        "4 events could not be applied at seattle in the last 2 mi",
    )
    assert alerts(letters(3, 11, NOW + 2 * MINUTE), limit=2) == []
    assert len(alerts(letters(3, 11, NOW + 2 * MINUTE), limit=1.9)) == 1
    [(site, text)] = alerts(letters(2, 7, NOW + 2 * MINUTE, began=NOW + 1))
    assert (site, text[:35]) == ("newark", "2 rows could not be sent at newark ")


def test_what_was_not_read_is_no_news(tmp_path: Path) -> None:
    """Neither what is seen for the first time. Fails when a channel that was away for a minute is
    an alert about letters of last year."""
    first, none = letters(3, 7, NOW), Counters(NOW + 1, {})
    assert [*_dead_letters(none, first, Limits())] == []
    kept = Counters(none.at, {**first.letters, **none.letters})
    assert [*_dead_letters(kept, letters(3, 7, NOW + MINUTE), Limits())] == []
    assert len([*_dead_letters(kept, letters(3, 8, NOW + MINUTE), Limits())]) == 1


def test_a_check_remembers_what_it_cannot_read(tmp_path: Path) -> None:
    topology, memory = world(tmp_path), tmp_path / "memory"
    letters(3, 7, NOW).write(memory)
    check(topology, memory=memory)
    remembered = Counters.read(memory)
    assert remembered is not None
    assert remembered.letters.items() >= letters(3, 7, NOW).letters.items()


def test_what_is_not_there_is_not_right(tmp_path: Path) -> None:
    """A channel that is not mounted, a sender that nobody has started. Fails when a probe is green
    because it sees nothing."""
    topology = world(tmp_path)
    found = check(topology)
    assert {(each.level, each.kind) for each in found} >= {(Level.UNKNOWN, "channel")}
    assert exit_code(found) == 3
    assert not (tmp_path / "east").exists()
    for sender in topology.senders.values():
        open_channel(sender.channel).ensure_prepared()
    found = check(topology)
    assert {(each.level, each.kind, each.site) for each in found} == {
        (Level.WARNING, "stopped", "newark")
    }


def test_the_memory_is_a_file(tmp_path: Path) -> None:
    file = tmp_path / "memory"
    assert Counters.read(file) is None
    letters(3, 7, NOW).write(file)
    assert Counters.read(file) == letters(3, 7, NOW)
    for damaged in ("", "{", "[]", json.dumps({"at": 1, "letters": [["x"]]})):
        file.write_text(damaged)
        with pytest.raises(WanError, match="cannot be read"):
            Counters.read(file)
    with pytest.raises(WanError, match="cannot be written"):
        letters(3, 7, NOW).write(tmp_path / "no" / "memory")
