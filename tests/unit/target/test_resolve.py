"""What a target may leave out while it chooses the event of a key. Without Spark."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from fakes import manifest

from spark_wan.apply.change import Change
from spark_wan.apply.plan import PlannedEpoch
from spark_wan.delta.key_list import KeyList
from spark_wan.events.operations import VERSION
from spark_wan.target.resolve import is_resolved, needed, resolve
from spark_wan.target.rows import EventRows
from spark_wan.wire.manifest import COPY, EVENTS, CopyOf

NOTHING: Any = None
COPIED = {"kind": COPY, "copy": CopyOf("r1")}


def change(*manifests: dict[str, Any]) -> Change:
    return Change([PlannedEpoch(manifest(n, **of), -1) for n, of in enumerate(manifests, 1)])


def rows(unique: bool = False, **more: Any) -> EventRows:
    keys = KeyList(("id",), (("1",),), unique)
    return EventRows(NOTHING, ["id"], ("id",), key_list=keys, **more)


@pytest.mark.parametrize(
    ("of", "given"),
    [
        ([{}], rows()),
        ([{}, {}], rows(unique=True)),
        ([{"disjoint": False}], rows(unique=True, constraints="any")),
        ([{"keys": ()}, {"keys": ()}], rows()),
        ([COPIED, COPIED], rows()),
    ],
    ids=["frames without common keys", "epochs", "a constraint", "no keys", "parts of a copy"],
)
def test_events_that_are_one_per_key_are_not_looked_at(of: Any, given: EventRows) -> None:
    """Fails when a change is resolved that need not be: each job of Spark delays the apply."""
    assert resolve(change(*of), given) is given


@pytest.mark.parametrize(
    ("of", "given"),
    [
        ([{}, {}], rows()),
        ([{"disjoint": False}], rows()),
        ([{}], rows(constraints="any")),
        ([COPIED | {"disjoint": False}, COPIED], rows()),
    ],
    ids=["epochs", "frames with common keys", "a constraint", "a part with a key in two frames"],
)
def test_events_that_may_have_a_key_twice_are_resolved(of: Any, given: EventRows) -> None:
    assert not is_resolved(change(*of), given)


def test_a_task_keeps_the_last_event_of_a_key_in_a_frame() -> None:
    """All of them, where an event may be dropped before the winner is chosen."""
    events = pa.RecordBatch.from_pydict({"id": [1, 1, 2, 3, 3], VERSION: [4, 6, 5, 1, 9]})
    kept = needed(change({}), judged=False)
    assert kept is not None
    assert kept(events).column(VERSION).to_pylist() == [6, 5, 9]
    assert needed(change({}), judged=True) is None
    assert needed(change({"kind": EVENTS}), judged=False) is None
    assert needed(change({"keys": ()}), judged=False) is None
