"""The log of a channel on topics: operations, and the state in a checkpoint, in golden bytes."""

from __future__ import annotations

import json
import zlib
from typing import Any

import pytest
from fakes import STREAM

from spark_wan.errors import ChannelError, NewerRecordError
from spark_wan.wire.manifest import fingerprint
from spark_wan.wire.records import UNREADABLE
from spark_wan.wire.topic_log import MANIFEST, TRIM, Operation, Part, joined, read_operation
from spark_wan.wire.topic_state import Epoch, Place, StreamState, TopicState

CHANNEL, ID = "c" * 32, "d" * 32
FRAME = f"frames/{STREAM}/{'b' * 32}-00000@0:3+0:4"
OTHER = f"frames/{STREAM}/{'b' * 32}-00001@1:3"
FIELDS = {"stream": STREAM, "epoch": 1, "previous": "", "frames": [FRAME]}
OPERATION = Operation(MANIFEST, CHANNEL, FIELDS, b"m1", ID)
OPERATION_V1 = (
    b'WANO 1 8e1b17c3\n{"kind":"manifest","id":"dddddddddddddddddddddddddddddddd",'
    b'"channel":"cccccccccccccccccccccccccccccccc","stream":"newark.east.orders","epoch":1,'
    b'"previous":"","frames":["frames/newark.east.orders/bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb-00000'
    b'@0:3+0:4"]}\nm1'
)
PARTS_V1 = [
    b"WANP 1 dddddddddddddddddddddddddddddddd 0 3 2f032d9a\n"
    b'WANO 1 dfd8d69d\n{"kind":"trim","id":"dddddddddddddddddddddddddddddddd",'
    b'"channel":"cccccccccccccccccc',
    b"WANP 1 dddddddddddddddddddddddddddddddd 1 3 6ac70d09\n"
    b'cccccccccccccc","stream":"newark.east.orders","through":1,'
    b'"fingerprint":"fffffffffffffffffffffffffff',
    b'WANP 1 dddddddddddddddddddddddddddddddd 2 3 463a2eec\nfffff"}\n',
]
STATE = TopicState(
    CHANNEL,
    {
        STREAM: StreamState(
            {
                1: Epoch(b"m1", fingerprint(b"m1"), (FRAME, OTHER)),
                2: Epoch(b"m2", fingerprint(b"m2"), ()),
            },
            (1, 2),
            b"record",
        )
    },
    {FRAME: (Place(1, 7), Place(1, 8))},
    {0: 3},
    {0: ((3, 5),), 1: ((3, 4),)},
)
STATE_V1 = (
    '{"channel":"cccccccccccccccccccccccccccccccc","streams":{"newark.east.orders":{"epochs":'
    '[[1,"bTE=",["frames/newark.east.orders/bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb-00000@0:3+0:4",'
    '"frames/newark.east.orders/bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb-00001@1:3"]],[2,"bTI=",[]]],'
    '"announced":[1,2],"record":"cmVjb3Jk"}},"moved":{"frames/newark.east.orders/'
    'bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb-00000@0:3+0:4":[[1,7],[1,8]]},"discarded":["frames/'
    'newark.east.orders/bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb-00001@1:3"],"floors":[[0,3]],'
    '"dead":[[0,[[3,5]]],[1,[[3,4]]]]}'
)


def decoded(text: str) -> TopicState:
    return TopicState.decode(zlib.compress(text.encode()), 10_000)


def test_golden_operations_are_read_and_written_the_same() -> None:
    assert OPERATION.encode() == OPERATION_V1
    assert read_operation(OPERATION_V1, "here") == OPERATION
    trim = {"stream": STREAM, "through": 1, "fingerprint": "f" * 32}
    large = Operation(TRIM, CHANNEL, trim, id=ID)
    assert large.records(100) == PARTS_V1
    parts = [read_operation(value, "here") for value in PARTS_V1]
    assert joined([part for part in parts if isinstance(part, Part)], "here") == large


def test_a_golden_state_is_read_and_written_the_same() -> None:
    assert zlib.decompress(STATE.encode(10_000)).decode() == STATE_V1
    for added in ("", '"version":1,', '"more":[1],', '"requires":["dead"],'):
        assert decoded(STATE_V1.replace("{", "{" + added, 1)) == STATE


@pytest.mark.parametrize("requires", [["stream"], ["lease"], 5])
def test_f51_an_operation_that_requires_what_is_unknown_is_an_error(requires: Any) -> None:
    operation = Operation(MANIFEST, CHANNEL, {**FIELDS, "requires": requires}, b"m1", ID)
    if requires == ["lease"]:
        with pytest.raises(ChannelError, match=r"here: written by a newer .* requires lease.*Upd"):
            read_operation(operation.encode(), "here")
    else:
        assert read_operation(operation.encode(), "here") == (
            operation if requires == ["stream"] else None
        )


@pytest.mark.parametrize("added", ['"version":2,', '"requires":["leases"],'])
def test_f51_a_state_of_a_newer_spark_wan_is_told_apart(added: str) -> None:
    """Fails when it is read without what it requires: readers would not agree."""
    with pytest.raises(NewerRecordError):
        decoded(STATE_V1.replace("{", "{" + added, 1))


@pytest.mark.parametrize("name", sorted(json.loads(STATE_V1)))
def test_a_damaged_state_is_none(name: str) -> None:
    content = json.loads(STATE_V1)
    without = {key: value for key, value in content.items() if key != name}
    for damaged in (without, {**content, name: 5} if name != "channel" else {}):
        with pytest.raises(UNREADABLE):
            decoded(json.dumps(damaged))
    with pytest.raises(UNREADABLE):
        TopicState.decode(STATE.encode(10_000), 100)
