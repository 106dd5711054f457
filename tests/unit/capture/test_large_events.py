"""An event that alone is larger than a frame may be: a dead letter; what is behind it goes on."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from capturing import capture_task
from fakes import HEADER, memory_channel

from spark_wan.capture import tasks
from spark_wan.capture.tasks import CaptureReport
from spark_wan.channels.base import Channel
from spark_wan.events.operations import OP, Operation, keyed_event_id
from spark_wan.log.frames import BatchLimits
from spark_wan.wire.frame import decode_frame

LIMITS = BatchLimits(100, 1_000, 10_000, received="20,000 at site seattle")


def rows(*entries: tuple[int, int, str, int]) -> pa.RecordBatch:
    """Change rows: version, key, type of change, and bytes of the text."""
    texts = pa.array(["x" * size for *_, size in entries])
    types = [kind for _, _, kind, _ in entries]
    return pa.record_batch(
        {
            "id": pa.array([key for _, key, _, _ in entries], pa.int64()),
            "text": texts,
            "_change_type": pa.array(types),
            "_commit_version": pa.array([version for version, *_ in entries], pa.int64()),
            "_wan_rank": pa.array(
                [int(kind in ("insert", "update_postimage")) for kind in types], pa.int8()
            ),
        }
    )


def capture(
    *entries: tuple[int, int, str, int], **task: Any
) -> tuple[CaptureReport, list[tuple[int, int, str | None]]]:
    """The report, and the events that were sent: operation, key, text."""
    channel: Channel = memory_channel()
    report, sent = CaptureReport(), []
    for batch in capture_task(channel, limits=LIMITS, **task)([rows(*entries)]):
        for row in batch.to_pylist():
            report.add(**row)
    for ref in report.frames:
        _, events = decode_frame(channel.get_frame(ref.path), ref.path, ref, LIMITS.max_frame_bytes)
        sent += zip(*(events.column(name).to_pylist() for name in (OP, "id", "text")), strict=True)
    return report, sent


def test_f19_an_event_that_cannot_fit_is_a_dead_letter_that_names_both_limits() -> None:
    """Fails when the publisher has nobody who sets it aside."""
    report, sent = capture((7, 1, "insert", 5), (7, 2, "insert", 50_000), (8, 3, "insert", 5))
    assert sent == [(Operation.CREATE, 1, "xxxxx"), (Operation.CREATE, 3, "xxxxx")]
    [letter] = report.dead_letters
    assert letter.cause.startswith("too_large: 50,")
    assert letter.cause.endswith(
        "bytes; max_frame_bytes is 10,000 at the sender, 20,000 at site seattle"
    )
    assert (letter.origin_version, letter.operation) == (7, "create")
    assert letter.event_id == keyed_event_id(HEADER.table_id, 7, ("2",))
    shown = json.loads(letter.row)
    assert shown["id"] == 2 and shown["text"] == "x" * 1_000 + " … (50,000 characters)"
    assert letter.payload is not None
    with pa.ipc.open_stream(letter.payload) as reader:
        assert reader.read_all().to_pylist() == [{"id": 2, "text": "x" * 50_000}]
    assert report.versions == {7, 8}


def test_f19_a_key_whose_row_has_become_too_large_is_sent_again_once_it_is_smaller() -> None:
    report, sent = capture(
        (7, 1, "update_preimage", 5),
        (7, 1, "update_postimage", 50_000),
        (8, 1, "update_preimage", 50_000),
        (8, 1, "update_postimage", 6),
    )
    assert sent == [(Operation.PUT, 1, "xxxxxx")]
    assert [letter.operation for letter in report.dead_letters] == ["put"]


def test_f19_a_row_that_is_too_large_can_be_deleted_everywhere() -> None:
    """A destroy needs the key alone. Fails when it is set aside: the other sites keep the row."""
    report, sent = capture((7, 1, "delete", 50_000), (7, 2, "delete", 5))
    assert sent == [(Operation.DESTROY, 1, None), (Operation.DESTROY, 2, "xxxxx")]
    assert not report.dead_letters


def test_f19_a_key_that_is_too_large_is_a_dead_letter_whatever_happens_to_it() -> None:
    report, sent = capture((7, 1, "delete", 50_000), keys=("text",))
    assert not sent
    assert [letter.operation for letter in report.dead_letters] == ["destroy"]


def test_f19_in_a_table_without_keys_too() -> None:
    report, sent = capture((7, 1, "insert", 50_000), (7, 2, "insert", 5), keys=())
    assert sent == [(Operation.CREATE, 2, "xxxxx")]
    assert len(report.dead_letters) == 1


@pytest.mark.parametrize("keys", [("id",), ()], ids=["keys", "no keys"])
def test_too_many_events_that_are_too_large_hold_the_stream(keys: tuple[str, ...]) -> None:
    entries = [(7, n, "insert", 50_000) for n in range(9)]
    report, _ = capture(*entries, keys=keys, max_dead_letters=3)
    assert report.too_many.startswith("too_large: 50,")
    assert not report.dead_letters


def test_dead_letters_keep_as_much_of_their_rows_as_the_driver_has_room_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Fails without the limit: ten thousand rows of a gigabyte each would go to the driver."""
    monkeypatch.setattr(tasks, "PAYLOAD_BYTES", 120_000)
    report, _ = capture(*((7, n, "insert", 50_000) for n in range(4)))
    assert [letter.payload is not None for letter in report.dead_letters] == [True] * 2 + [
        False
    ] * 2
    assert all("x" * 1_000 in letter.row for letter in report.dead_letters)


def test_what_is_long_at_any_depth_is_cut_for_people() -> None:
    value = {
        "a": [{"b": b"\0" * 2_000}],
        "c": [*range(5_000)],
        "d": [("k", "v" * 1_001)],
        "e": None,
    }
    shown = tasks._shortened(value)
    assert shown["a"][0]["b"].endswith(" … (2,000 bytes)")
    assert shown["c"][999:] == [999, "… (5,000 items)"]
    assert shown["d"] == [["k", "v" * 1_000 + " … (1,001 characters)"]]
    assert shown["e"] is None
