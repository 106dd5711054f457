"""Rows of the ledger: marks, positions, summaries and their claims, in their golden text.

Marks in commits are in tests/unit/ledger.
"""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from fakes import STREAM

from spark_wan.errors import NewerRecordError
from spark_wan.wire.ledger import (
    FoldedIds,
    HistoryPosition,
    LedgerRow,
    Summary,
    decode_row,
    encode_row,
)
from spark_wan.wire.mark import AppliedStream, Mark
from spark_wan.wire.records import UNREADABLE

SUMMARY = Summary(
    target_id="target-1",
    target_version=9,
    apply=7,
    token="t7",
    number=2,
    through=(("newark", "id", "all", 69),),
    logs=((STREAM, "a" * 32, 7, "f" * 24),),
    dead_letters={STREAM: 2},
    user_streams=(False, True),
    columns=("id", "a"),
    moved={"a": None},
    ids=(FoldedIds("newark", 2, 7, 30, None),),
    lost=((1, 1),),
)
GOLDEN = (
    '{"summary": {"token": "t7", "number": 2, "through": [["newark", "id", "all", 69]], '
    '"logs": [["newark.east.orders", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", 7, '
    '"ffffffffffffffffffffffff"]], "dead_letters": {"newark.east.orders": 2}, '
    '"user_streams": [false, true], "columns": ["id", "a"], "moved": {"a": null}, '
    '"ids": [{"origin": "newark", "first": 2, "last": 7, "count": 30, "until": null}], '
    '"lost": [[1, 1]]}}'
)


def test_a_summary_survives_a_round_trip_in_its_golden_text() -> None:
    for row in (SUMMARY, SUMMARY.as_claim()):
        written = encode_row(row)
        assert (written["version"], written["apply"], written.get("token")) == (2, 7, None)
        found = decode_row("target-1", 9, written["mark"], 7)
        assert found == row and isinstance(found, Summary) and found.claimed is row.claimed
    assert encode_row(SUMMARY)["mark"] == GOLDEN
    more = replace(SUMMARY, vector_apply=5, local=3)
    assert encode_row(more)["mark"] == GOLDEN[:-2] + ', "vector_apply": 5, "local": 3}}'
    assert decode_row("target-1", 9, str(encode_row(more)["mark"]), 7) == more


POSITION = HistoryPosition("target-1", 9, "abc@123")
POSITION_V1 = '{"seen": "abc@123"}'
MOVED_V1 = '{"seen": "abc@123", "moved": {"a": "b", "c": null}}'
ROW = LedgerRow(
    "target-1",
    9,
    Mark(
        "seattle",
        "orders",
        3,
        "t3",
        (AppliedStream("newark", "id", "all", 9, STREAM, "a" * 32, 1, "f" * 32, False),),
    ),
)
ROW_V1 = (
    '{"site": "seattle", "table": "orders", "apply": 3, "token": "t3", "applied": [{"origin": '
    '"newark", "table_id": "id", "selection": "all", "through": 9, "stream": "newark.east.orders", '
    '"log_id": "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "epoch": 1, "fingerprint": '
    '"ffffffffffffffffffffffffffffffff", "ids": false, "dead_letters": 0}]}'
)


@pytest.mark.parametrize(
    ("row", "text"),
    [
        (POSITION, POSITION_V1),
        (replace(POSITION, moved={"a": "b", "c": None}), MOVED_V1),
        (ROW, ROW_V1),
    ],
    ids=["a position", "a position with moved columns", "a mark"],
)
def test_golden_rows_are_read_and_written_the_same(
    row: LedgerRow | HistoryPosition, text: str
) -> None:
    assert encode_row(row)["mark"] == text
    assert decode_row("target-1", 9, text) == row
    assert decode_row("target-1", 9, text.replace("{", '{"more": [1], ', 1)) == row


INNER = '"summary": {'


@pytest.mark.parametrize("text", [POSITION_V1, ROW_V1], ids=["a position", "a mark"])
def test_f51_a_row_that_requires_what_is_unknown_is_told_apart(text: str) -> None:
    """Fails when it counts without what it requires."""
    with pytest.raises(NewerRecordError, match="it requires sealed"):
        decode_row("target-1", 9, text.replace("{", '{"requires": ["sealed"], ', 1))
    inner = GOLDEN.replace(INNER, INNER + '"requires": ["sealed"], ')
    with pytest.raises(NewerRecordError, match="it requires sealed"):
        decode_row("target-1", 9, inner, 7)


def test_unknown_fields_of_a_summary_are_ignored() -> None:
    more = GOLDEN.replace(INNER, INNER + '"requires": ["ids.count", "lost"], "more": {}, ')
    assert decode_row("target-1", 9, more, 7) == SUMMARY


@pytest.mark.parametrize("name", sorted(json.loads(GOLDEN)["summary"]))
@pytest.mark.parametrize("damage", ["is missing", "is something else"])
def test_a_damaged_summary_is_no_row(name: str, damage: str) -> None:
    """Fails when a sum without it counts: what it stands for would be forgotten."""
    content = json.loads(GOLDEN)
    if damage == "is missing":
        del content["summary"][name]
    else:
        content["summary"][name] = 0.5
    with pytest.raises(UNREADABLE):
        decode_row("target-1", 9, json.dumps(content), 7)
