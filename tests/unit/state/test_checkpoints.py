"""The checkpoints of log writers: their format, and where they are kept."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from fakes import STREAM

from spark_wan.errors import ChannelError, NewerRecordError
from spark_wan.state.checkpoints import StoredCheckpoints
from spark_wan.wire.checkpoint import PublishedState, SenderCheckpoint
from spark_wan.wire.records import TableClock

CHECKPOINT_V1 = (
    b'{"version":1,"incarnation":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",'
    b'"number":4,"acked":{"seattle":3}}'
)
CHECKPOINT = SenderCheckpoint("a" * 32, 4, {"seattle": 3})


CHECKPOINT_V2 = (
    b'{"version":2,"log_id":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa","epoch":4,"acked":{"seattle":3}}'
)


CHECKPOINT_V3 = b'{"version":3,"log":{"id":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"},"at":4}'
"""Made up."""


def test_b82_checkpoints_of_both_versions_are_read_and_version_2_is_written() -> None:
    assert (
        SenderCheckpoint.decode(CHECKPOINT_V1)
        == SenderCheckpoint.decode(CHECKPOINT_V2)
        == CHECKPOINT
    )
    assert CHECKPOINT.encode() == CHECKPOINT_V2


def test_fields_of_a_newer_version_are_ignored() -> None:
    """Fails when such a checkpoint is as good as lost: an upgrade, and the way back, would compare
    the log with nothing."""
    assert (
        SenderCheckpoint.decode(CHECKPOINT_V1.replace(b'"number"', b'"through":7,"number"'))
        == CHECKPOINT
    )
    published = PublishedState(40, "c0ffee", "table-1", ("id",), {})
    written = (
        replace(CHECKPOINT, published=published)
        .encode()
        .replace(b'"identity"', b'"more":1,"identity"')
    )
    assert SenderCheckpoint.decode(written) == replace(CHECKPOINT, published=published)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"5",
        b"null",
        b"{}",
        b"\xff",
        CHECKPOINT_V1[:-1],
        CHECKPOINT_V1.replace(b'"version":1', b'"version":0'),
    ]
    + [CHECKPOINT_V1.replace(b'"number":4,', b""), CHECKPOINT_V1.replace(b'"number"', b'"numero"')],
)
def test_an_unreadable_checkpoint_counts_as_lost(data: bytes) -> None:
    assert SenderCheckpoint.decode(data) is None


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (CHECKPOINT_V3, "in version 3; this spark_wan reads versions 1 and 2"),
        (
            CHECKPOINT_V2.replace(b'"epoch"', b'"requires":["sealed","epoch","key"],"epoch"'),
            "it requires sealed, key, unknown to this spark_wan",
        ),
        (
            CHECKPOINT_V2.replace(b'"epoch"', b'"requires":["published.sealed"],"epoch"'),
            "it requires published.sealed",
        ),
    ],
    ids=["v3", "requires", "requires a nested field"],
)
def test_f51_a_checkpoint_of_a_newer_version_holds_it(
    tmp_path: Path, data: bytes, what: str
) -> None:
    """Fails when it counts as lost: this sender would overwrite it, and compare the log with
    nothing."""
    (tmp_path / f"{STREAM}.json").write_bytes(data)
    with pytest.raises(NewerRecordError, match=f"{STREAM}.json was written by a newer.*Update"):
        StoredCheckpoints(str(tmp_path)).load(STREAM)
    with pytest.raises(NewerRecordError, match=what):
        SenderCheckpoint.decode(data)


def test_f51_required_fields_that_are_known_hold_nothing() -> None:
    data = CHECKPOINT_V2.replace(
        b'"epoch"', b'"requires":["epoch","published.clock"],"more":1,"epoch"'
    )
    assert SenderCheckpoint.decode(data) == CHECKPOINT


def test_checkpoints_are_stored_in_a_directory(tmp_path: Path) -> None:
    checkpoints = StoredCheckpoints(str(tmp_path / "checkpoints"))
    assert checkpoints.load(STREAM) is None
    checkpoints.save(STREAM, CHECKPOINT)
    checkpoints.save("other", SenderCheckpoint("b", 1))
    assert StoredCheckpoints(str(tmp_path / "checkpoints")).load(STREAM) == CHECKPOINT
    assert (tmp_path / "checkpoints" / f"{STREAM}.json").read_bytes() == CHECKPOINT_V2


def test_an_unreachable_store_is_a_channel_error_that_names_it(tmp_path: Path) -> None:
    """Fails when obstore's errors come through: they would end the stream's thread instead of
    holding it."""
    (tmp_path / "file").write_text("x")
    checkpoints = StoredCheckpoints(str(tmp_path / "file" / "below"))
    with pytest.raises(
        ChannelError,
        match=f"{tmp_path}/file/below: cannot read the sender's checkpoint of {STREAM}",
    ):
        checkpoints.load(STREAM)
    with pytest.raises(ChannelError, match="cannot write the sender's checkpoint"):
        checkpoints.save(STREAM, CHECKPOINT)


def test_later_fields_of_a_checkpoint_are_written_when_they_are_known() -> None:
    published = PublishedState(
        40, "c0ffee", "table-1", ("id",), {"type": "struct", "fields": []}, TableClock(7, 6)
    )
    more = SenderCheckpoint("a" * 32, 4, {"seattle": 3}, published, swept=1_700_000_000_000)
    fields = (
        b'{"through":40,"identity":"c0ffee","table_id":"table-1","keys":["id"],'
        b'"schema":{"type":"struct","fields":[]},"clock":{"stamp":7,"time":6}}'
    )
    assert (
        more.encode() == CHECKPOINT_V2[:-1] + b',"published":' + fields + b',"swept":1700000000000}'
    )
    assert SenderCheckpoint.decode(more.encode()) == more
