"""Heads, announcements and the marker of a channel: what can be read is, the rest is none."""

from __future__ import annotations

import pytest

from spark_wan.errors import NewerRecordError
from spark_wan.wire.head import MARKER, Announcement, Head, Pause, check_marker
from spark_wan.wire.records import UNREADABLE

MARKER_V1 = b'{"format": "spark_wan channel", "version": 1}'
HEAD_V1 = b'{"version": 1, "epoch": 7, "manifest": "25ee4a05c339424604bfc268f854dafa"}'
AGAIN_V1 = b'{"version": 1, "epoch": 7, "attempt": 2}'

PAUSE_V1 = (
    b'{"version": 1, "generation": 4, "by": "ann at here", "since": 5, "capture": true, '
    b'"until": null}'
)


def test_a_golden_pause_is_read_and_written_the_same() -> None:
    pause = Pause(4, "ann at here", 5, capture=True)
    assert (pause.encode(), Pause.of(PAUSE_V1)) == (PAUSE_V1, pause)
    ended = Pause(4, "ann at here", 5, capture=True, until=9)
    assert Pause.of(PAUSE_V1.replace(b"null", b"9")) == ended
    assert Pause.of(PAUSE_V1.replace(b'"by"', b'"more":[1],"by"')) == pause
    assert Pause.of(PAUSE_V1.replace(b'"version": 1', b'"version": 1,"requires":["x"]')) is None


@pytest.mark.parametrize(("since", "until"), [(-1, None), (5, 1 << 60), (1 << 60, None)])
def test_a_pause_shows_nothing_that_a_terminal_must_not(since: int, until: int | None) -> None:
    """Somebody else wrote it. Fails when a status clears the screen, or ends with an error for a
    time that Python cannot show."""
    assert Pause.of(Pause(4, "ann", since, until=until).encode()) is None
    read = Pause.of(Pause(4, "\x1b[2J ann", 5).encode())
    assert read is not None and read.by == "\ufffd[2J ann"


def test_golden_heads_and_announcements_are_read_and_written_the_same() -> None:
    head, again = Head.by(7, b"m"), Announcement(7, 2)
    assert (head.encode(), again.encode(), MARKER) == (HEAD_V1, AGAIN_V1, MARKER_V1)
    assert (Head.of(HEAD_V1), Announcement.of(AGAIN_V1)) == (head, again)
    assert Head.of(HEAD_V1.replace(b'"epoch"', b'"more":[1],"epoch"')) == head
    check_marker(MARKER_V1.replace(b'"version"', b'"more":[1],"version"'))


@pytest.mark.parametrize(
    "changed",
    [b'"version": 2', b'"version": 1,"requires":["writer"]', b'"version": 0', b'"version": true'],
    ids=["version 2", "requires", "version 0", "no version"],
)
def test_f51_a_hint_of_a_newer_spark_wan_is_none(changed: bytes) -> None:
    assert Head.of(HEAD_V1.replace(b'"version": 1', changed)) is None
    assert Announcement.of(AGAIN_V1.replace(b'"version": 1', changed)) is None


def test_f51_a_channel_of_a_newer_spark_wan_is_told_apart() -> None:
    """Fails when it is taken for damage, with the advice to delete the marker."""
    for changed in (b'"version": 2', b'"version": 1,"requires":["layout"]'):
        with pytest.raises(NewerRecordError):
            check_marker(MARKER_V1.replace(b'"version": 1', changed))
    for damaged in (b"{}", b"", b"5", MARKER_V1[:-1], MARKER_V1.replace(b"spark_wan", b"other")):
        with pytest.raises(UNREADABLE):
            check_marker(damaged)
