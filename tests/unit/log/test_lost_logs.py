"""A log is compared with the checkpoint of its writer, and with what sites have acked."""

from __future__ import annotations

import uuid

import pytest
from fake_broker import FakeTopicChannel
from fakes import STREAM, ack, manifest, memory_channel, publish

from spark_wan.errors import LogGapError
from spark_wan.log.lost_logs import LogEnd, NewLog, check_log
from spark_wan.log.stream_log import StreamLog
from spark_wan.wire.checkpoint import SenderCheckpoint
from spark_wan.wire.manifest import Manifest

CHECKPOINT = SenderCheckpoint("a" * 32, 4, {"seattle": 3})


@pytest.fixture
def log() -> StreamLog:
    return StreamLog(memory_channel(), STREAM)


def check(
    log: StreamLog, checkpoint: SenderCheckpoint | None, last: Manifest | None, *allowed: str
) -> None:
    new_log = NewLog("decide {log}", allowed.__contains__)
    check_log(log, LogEnd(checkpoint, last), new_log)


def test_without_a_checkpoint_every_log_is_accepted(log: StreamLog) -> None:
    for last in (None, manifest(1), manifest(99, log_id="b")):
        check(log, None, last)


def test_a_log_that_was_extended_is_accepted(log: StreamLog) -> None:
    for epoch in (4, 5, 100):
        check(log, CHECKPOINT, manifest(epoch))


def test_f17_a_deleted_channel_is_detected_and_a_new_log_may_be_allowed(log: StreamLog) -> None:
    with pytest.raises(
        LogGapError,
        match=r"is gone; it was at manifest 4 \(acked: .*seattle.*3.*decide a{32} to begin",
    ):
        check(log, CHECKPOINT, None)
    with pytest.raises(LogGapError):
        check(log, CHECKPOINT, None, "b" * 32)
    check(log, CHECKPOINT, None, "a" * 32)


def test_f48_acks_show_that_a_log_is_gone_when_the_checkpoint_is_too(log: StreamLog) -> None:
    """Only the manifests were deleted. Fails when a sink without a checkpoint does not look at the
    acks before it begins a log."""
    ack(log, "seattle", 3)
    with pytest.raises(
        LogGapError, match=r"is gone; sites have acked it \({'seattle': 3}\).*decide a{32} to begin"
    ):
        check(log, None, None)
    check(log, None, None, "a" * 32)


def test_f17_a_new_log_in_the_channel_is_detected(log: StreamLog) -> None:
    with pytest.raises(
        LogGapError, match=r"is another one than before, b{32}; it was at manifest 4"
    ):
        check(log, CHECKPOINT, manifest(9, log_id="b" * 32))
    check(log, CHECKPOINT, manifest(9, log_id="b" * 32), "a" * 32)


def test_the_log_of_one_stream_begins_anew_on_topics_as_in_files(log: StreamLog) -> None:
    """As the advice says. Fails when it is to delete the topics, which have all streams."""
    topics = StreamLog(FakeTopicChannel(f"topics://{uuid.uuid4().hex}"), STREAM)
    topics.channel.prepare()
    for each in (log, topics):
        publish(each, 1, 2, 3)
        with pytest.raises(LogGapError, match=rf"spark-wan remove {STREAM} --begin-anew"):
            check(each, CHECKPOINT, manifest(3), "a" * 32)
        each.channel.remove(STREAM)
        anew = StreamLog(each.channel, STREAM)
        check(anew, CHECKPOINT, anew.newest_manifest(), "a" * 32)
        publish(anew, 1, log_id="b" * 32)
        assert anew.epochs() == [1]


def test_a_channel_restored_to_an_older_state_is_detected(log: StreamLog) -> None:
    with pytest.raises(
        LogGapError, match=r"ends at manifest 3, but it was at 4.*stop the sender, run"
    ):
        check(log, CHECKPOINT, manifest(3), "a" * 32)
    with pytest.raises(LogGapError, match="nothing acked"):
        check(log, SenderCheckpoint("a" * 32, 4), manifest(3))
