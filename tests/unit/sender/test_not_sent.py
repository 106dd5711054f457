"""What a sender does not send is counted by reason, once, and costs nothing."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from capturing import capture_task
from publishing import Site

from spark_wan.capture.ranges import CaptureRange, CaptureResult
from spark_wan.capture.tasks import CaptureReport
from spark_wan.errors import ChannelError, ManifestExists
from spark_wan.log.stream_log import StreamLog
from spark_wan.sender.publish import QUIET_COMMITS
from spark_wan.sender.record import RECORD_INTERVAL
from spark_wan.wire.decisions import Decisions
from spark_wan.wire.frame import FrameHeader
from spark_wan.wire.manifest import SNAPSHOT
from spark_wan.wire.mark import LOCAL_ONLY
from spark_wan.wire.sender_record import NotSent

RECEIVED = '{"spark_wan": {"site": "newark", "applied": [{"origin": "seattle"}]}}'
SOON = RECORD_INTERVAL / 1000
LOCAL = {"user_metadata": LOCAL_ONLY}


def mixed(site: Site) -> None:
    """Add a commit of each kind that is not sent, and one that is."""
    site.source.add("DELETE", **LOCAL)
    site.source.add("MERGE", user_metadata=RECEIVED)
    site.source.add("OPTIMIZE")
    site.source.add("TRUNCATE")
    site.source.without_events.add(site.source.add().version)
    site.source.add()


def test_b72_commits_that_are_not_sent_are_counted_by_reason() -> None:
    """Fails when nobody can say why a row of the source never left."""
    site = Site(on_table_operation="skip")
    mixed(site)
    assert site.publisher.not_sent == NotSent()
    assert site.published().rows == 2
    expected = NotSent(local_only=1, received=1, by_setting=1, no_rows=1, no_events=1)
    assert site.publisher.not_sent == expected
    assert site.rounds() == []
    assert site.publisher.not_sent == expected
    site.restart()
    assert (site.rounds(), site.publisher.not_sent) == ([], NotSent())


def test_a_commit_that_somebody_decided_to_skip_is_counted_as_such() -> None:
    """Also where the setting says the same. Fails when it counts as the setting's."""
    site = Site(on_table_operation="skip")
    site.decisions = Decisions(operations={1: "skip"})
    site.source.add("TRUNCATE")
    site.source.add("TRUNCATE")
    site.published()
    assert site.publisher.not_sent == NotSent(by_setting=1, by_decision=1)


def test_commits_that_wait_for_a_manifest_are_counted_once() -> None:
    """They are planned again with what follows. Fails when they count twice, or not before."""
    site = Site()
    site.published()
    for number in (1, 2, 3):
        site.source.add("DELETE", **LOCAL)
        assert site.round() is None
        assert site.publisher.not_sent == NotSent(local_only=number)
    site.source.without_events.add(site.source.add().version)
    assert site.round() is None
    assert site.publisher.not_sent == NotSent(local_only=3, no_events=1)
    site.source.add()
    site.published()
    assert site.publisher.not_sent == NotSent(local_only=3, no_events=1)
    for _ in range(QUIET_COMMITS):
        site.source.add("OPTIMIZE")
    assert site.published().rows == 0
    assert site.publisher.not_sent == NotSent(local_only=3, no_events=1, no_rows=QUIET_COMMITS)


def test_sites_that_are_named_take_no_count_away() -> None:
    """That epoch has no commits. Fails when those that wait for a manifest are forgotten, or count
    twice with the next one."""
    site = Site()
    site.published()
    site.source.add("DELETE", **LOCAL)
    assert site.round() is None
    site.publisher.settings = site.new(addressees=("seattle", "denver")).settings
    assert site.published().rows == 0
    assert site.publisher.not_sent == NotSent(local_only=1)
    site.source.add()
    site.published()
    assert site.publisher.not_sent == NotSent(local_only=1)


def test_an_epoch_that_is_not_added_counts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another writer was faster: the range is planned again. Fails when it counts each time."""
    site = Site()
    site.source.add("DELETE", **LOCAL)
    site.source.add()
    append, refused = StreamLog.append, [True]

    def faster(log: StreamLog, *words: Any) -> Any:
        if refused:
            refused.clear()
            raise ManifestExists("another writer was faster")
        return append(log, *words)

    monkeypatch.setattr(StreamLog, "append", faster)
    site.published()
    assert not refused
    assert site.publisher.not_sent == NotSent(local_only=1)


def test_what_was_planned_in_vain_is_not_counted_with_another_epoch() -> None:
    """The channel refuses it, and the source is restored meanwhile. Fails when the next epoch,
    which names a site, counts the commits that are gone."""
    site = Site()
    site.published()
    site.source.add("DELETE", **LOCAL)
    site.source.add()
    with (
        patch.object(StreamLog, "append", side_effect=ChannelError("refused")),
        pytest.raises(ChannelError),
    ):
        site.round()
    del site.source.commits[1:]
    site.publisher.settings = site.new(addressees=("seattle", "denver")).settings
    assert site.published().rows == 0
    assert site.publisher.not_sent == NotSent()


def test_what_a_stream_goes_over_is_counted() -> None:
    """Fails when commits that only a copy brings look as if they were sent."""
    site = Site()
    site.published()
    for _ in range(5):
        site.source.add()
    del site.source.commits[1:4]
    assert site.published().rows == 0
    assert site.publisher.gone_over is not None
    assert site.publisher.not_sent == NotSent(by_copy=5)
    site.source.add()
    site.published()
    assert site.publisher.not_sent == NotSent(by_copy=5)


def test_a_snapshot_leaves_nothing_out() -> None:
    """It has the rows of all commits before it. Fails when its version counts as one without."""
    site = Site(start=None)
    site.source.add("OPTIMIZE")
    with patch.object(site.source, "snapshot", lambda *_: CaptureResult()):  # of an empty table
        assert site.published().kind == SNAPSHOT
    assert site.publisher.not_sent == NotSent()


def test_rows_that_are_replaced_by_equal_ones_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the tasks to the publisher. Fails when one of them keeps the number to itself."""
    site = Site()
    report = CaptureReport()
    rows: list[tuple[str, str | None, bytes | None]] = []
    for batch in capture_task(site.inner)([unchanged_and_changed()]):
        rows += [(row["kind"], row["content"], row["hashes"]) for row in batch.to_pylist()]
    for row in rows + [each for each in rows if each[0] == "unchanged"]:  # as of two tasks
        report.add(*row)
    result = report.result()
    assert (report.duplicates, result.unchanged, result.versions) == (0, 2, (7,))

    def capture(planned: CaptureRange, header: FrameHeader) -> CaptureResult:
        return result

    monkeypatch.setattr(site.source, "capture", capture)
    site.published()
    assert site.publisher.not_sent.unchanged == 2


def unchanged_and_changed() -> Any:
    """Change rows of two keys: one is replaced by an equal row, one by another."""
    return pa.record_batch(
        {
            "id": pa.array([1, 1, 2, 2], pa.int64()),
            "city": pa.array(["a", "a", "b", "c"]),
            "_commit_version": pa.array([7, 7, 7, 7], pa.int64()),
            "_wan_rank": pa.array([0, 1, 0, 1], pa.int8()),
        }
    )
