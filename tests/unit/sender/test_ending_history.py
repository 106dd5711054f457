"""How long a source keeps what is not published: what the sender's record says of it, and when the
sender warns."""

from __future__ import annotations

import logging
import uuid

import pytest
from counted_channel import CountedChannel
from fakes import DAY, STREAM, commit
from unit.sender.test_record import Stream

from spark_wan.errors import SourceError
from spark_wan.sender.history import READ_INTERVAL
from spark_wan.sender.record import NEXT_WITHIN, RECORD_INTERVAL
from spark_wan.steps import run
from spark_wan.wire.control import Rule

HOUR = 3_600.0
"""In seconds."""
PAUSED = Rule(None, None, True, capture=True, generation=1, by="ann", at=1)


@pytest.fixture
def channel() -> CountedChannel:
    return CountedChannel(f"dict://{uuid.uuid4().hex}")


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The warnings of a history that ends, since the last call."""
    found = [each.message for each in caplog.records if vars(each).get("event") == "history-ends"]
    caplog.clear()
    return found


def held(channel: CountedChannel) -> Stream:
    """A stream that has published version 0, and is held at a TRUNCATE in version 1."""
    sender = Stream(channel)
    sender.look()
    sender.source.add("TRUNCATE")
    sender.source.add()
    sender.look(1.0)
    assert sender.record.held is not None
    return sender


def test_the_oldest_commit_that_is_not_published_says_how_long_its_history_lasts(
    channel: CountedChannel,
) -> None:
    """However long the sender is held, stopped or away then. Fails when who reads the record later
    takes the history for younger than it is."""
    sender = held(channel)
    made = sender.source.commits[1].time
    for _ in range(3):
        sender.source.add()
        sender.look(HOUR)
    assert (sender.record.history_from, sender.record.retention) == (made, 7 * DAY)
    sender.keeper.stop()
    assert sender.record.history_until == made + 7 * DAY
    # Another sender, which cannot even read the table, knows no better.
    again = Stream(channel, clock=sender.clock)
    again.source.id = "another"
    again.source.commits = []
    again.look(24 * HOUR)
    assert again.record.held is not None and again.record.began > sender.record.history_from
    assert again.record.history_until == made + 7 * DAY


def test_the_history_of_an_idle_source_is_needed_from_the_last_look_on(
    channel: CountedChannel,
) -> None:
    """Without a request for each look. Fails when a table that was idle for a month seems to have
    lost its history on the day on which its sender is stopped."""
    sender = Stream(channel)
    sender.look()
    sender.look(RECORD_INTERVAL / 1000)
    kept = sender.record
    channel.counted()
    for _ in range(9):
        sender.look(60.0)
    assert sender.record == kept
    sender.clock.pass_seconds(30 * 24 * HOUR)
    sender.look()
    sender.keeper.keep_alive()
    looked = sender.clock.now
    assert (sender.record.written, sender.record.history_from) == (looked, looked)
    sender.look(NEXT_WITHIN / 2_000)
    looked = sender.clock.now
    sender.clock.pass_seconds(10.0)
    sender.keeper.stop()
    assert sender.record.history_from == looked
    sender.look(HOUR)


def test_while_capture_is_paused_no_look_shows_that_nothing_waits(channel: CountedChannel) -> None:
    sender = Stream(channel)
    sender.look()
    sender.look(1.0)
    looked = sender.clock.now
    sender.stream.pause = lambda: PAUSED
    for _ in range(3):
        sender.look(HOUR)
        sender.keeper.keep_alive()
    assert sender.record.history_from == looked


def test_of_a_long_history_the_first_part_does_not_hide_the_rest(channel: CountedChannel) -> None:
    """Fails when commits that were not read yet are taken for younger than the reading."""
    sender = Stream(channel)
    sender.source.commits += [commit(version) for version in range(1, 9)]
    sender.source.most = 3
    sender.clock.pass_seconds(24 * HOUR)
    publisher = sender.stream.publisher
    assert publisher is not None and publisher.unpublished_since is None
    while (manifest := run(publisher.round())) is not None:
        rest = sender.source.commits[manifest.last_version + 1 :]
        since = publisher.unpublished_since
        assert since is not None and all(since <= each.time for each in rest)
    assert run(publisher.round()) is None
    assert publisher.unpublished_since == sender.clock.now


def test_a_retention_that_cannot_be_read_is_no_reason_to_stop(channel: CountedChannel) -> None:
    sender = Stream(channel)
    sender.source.retention_error = ValueError("PERMISSION_DENIED")
    sender.look()
    assert (sender.record.through, sender.record.held, sender.record.retention) == (0, None, None)
    assert sender.record.history_until is None


def test_a_history_that_ends_is_warned_of_once(
    channel: CountedChannel, caplog: pytest.LogCaptureFixture
) -> None:
    """And again once the stream has gone on in between. Fails when each round warns, or none does
    before the history is lost."""
    caplog.set_level(logging.INFO)
    sender = held(channel)
    assert warnings(caplog) == []
    sender.look(4 * 24 * HOUR)
    assert warnings(caplog) == []
    sender.look(60.0)
    [text] = warnings(caplog)
    assert text.startswith(f"{STREAM}: the source keeps what is not published for 2 d 23 h")
    assert text.endswith("delta.deletedFileRetentionDuration and delta.logRetentionDuration.")
    for _ in range(9):
        sender.look(HOUR)
    assert warnings(caplog) == []
    sender.source.commits[1] = commit(1)
    sender.stream._holds["publishing"].retry_now()
    sender.look(HOUR)
    sender.look(HOUR)
    assert sender.stream.status.held is None
    sender.source.add("TRUNCATE")
    sender.look(7 * 24 * HOUR)
    [text] = warnings(caplog)
    assert "VACUUM and log cleanup may have taken what is not published." in text


def test_a_retention_that_is_raised_ends_the_warning(
    channel: CountedChannel, caplog: pytest.LogCaptureFixture
) -> None:
    """It is read again, once an hour while little is left. Fails when the advice that a warning
    gives changes nothing before the next day."""
    sender = held(channel)
    sender.look(5 * 24 * HOUR)
    assert len(warnings(caplog)) == 1 and sender.source.asked_afresh == 1
    sender.source.keeps = 30 * DAY
    sender.look(READ_INTERVAL / 1000 - 1)
    assert sender.source.asked_afresh == 1
    sender.look(1.0)
    sender.look(RECORD_INTERVAL / 1000)
    assert sender.source.asked_afresh == 2
    assert sender.record.retention == 30 * DAY
    for _ in range(5):
        sender.look(24 * HOUR)
    assert warnings(caplog) == [] and sender.source.asked_afresh == 2


def test_a_sender_that_is_paused_from_its_start_warns_by_what_the_last_one_has_said(
    channel: CountedChannel, caplog: pytest.LogCaptureFixture
) -> None:
    before = Stream(channel)
    before.look()
    before.keeper.stop()
    sender = Stream(channel, clock=before.clock)
    sender.stream.pause = lambda: PAUSED
    sender.look(HOUR)
    sender.look(HOUR)
    assert warnings(caplog) == []
    sender.look(6 * 24 * HOUR)
    assert len(warnings(caplog)) == 1


def test_a_source_that_cannot_be_read_is_warned_of_too(
    channel: CountedChannel, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    sender = Stream(channel)
    sender.look()
    sender.look(1.0)

    def fails(after: int) -> list[object]:
        raise SourceError("orders: nothing is there")

    monkeypatch.setattr(sender.source, "history", fails)
    monkeypatch.setattr(sender.source, "commit", fails)
    sender.source.commits.append(commit(1))
    sender.look(4 * 24 * HOUR + 60)
    assert sender.stream.status.held is not None
    assert len(warnings(caplog)) == 1
