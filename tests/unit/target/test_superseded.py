"""How many events a later one of their key supersedes: counted where the driver sees them."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from fakes import HEADER, manifest, memory_channel
from pyspark.sql.types import StructType

from spark_wan.apply.change import Change
from spark_wan.apply.plan import PlannedEpoch
from spark_wan.channels.base import new_attempt
from spark_wan.delta.sessions import CurrentSession
from spark_wan.target import decode as decode_module
from spark_wan.target import delta_table as target_module
from spark_wan.target.decode import FrameDecoder
from spark_wan.target.delta_table import DeltaTarget
from spark_wan.target.rows import EventRows
from spark_wan.wire.frame import FrameRef, encode_frame, frame_checksum
from spark_wan.wire.manifest import EVENTS, Manifest

Event = tuple[int, Any]
"""(version, key)"""
TYPES = {"id": pa.int64(), "name": pa.string(), "x": pa.float64()}
SPARK_TYPES = {"id": "long", "name": "string", "x": "double"}


class Decoded:
    """Epochs that the driver decodes, or tasks would."""

    def __init__(self, key: str = "id") -> None:
        self.key, self.channel = key, memory_channel()
        self.epochs: list[PlannedEpoch] = []

    def add(self, *events: Event, above: int = -1, **of: Any) -> None:
        """Add an epoch, whose events are sorted by key and version."""
        versions, keys = zip(*events, strict=True)
        batch = pa.record_batch(
            {
                "_wan_op": pa.array([1] * len(events), pa.int8()),
                "_wan_version": pa.array(versions, pa.int64()),
                self.key: pa.array(keys, TYPES[self.key]),
            }
        )
        header = replace(HEADER, attempt=new_attempt("b" * 32), events=len(events))
        data = encode_frame(header, batch)
        path = self.channel.put_frame(HEADER.stream, header.attempt, 0, data)
        ref = FrameRef(path, len(events), len(data), frame_checksum(data))
        commits = tuple({"version": each, "time": 1, "clock": 1} for each in sorted({*versions}))
        more = {"keys": (self.key,), "frames": (ref,), "commits": commits, **of}
        made = manifest(len(self.epochs) + 1, **more)
        self.epochs.append(PlannedEpoch(made, above))

    def change(self) -> Change:
        """Return the change once it was decoded."""
        found = Change(self.epochs)
        schema = StructType().add(self.key, SPARK_TYPES[self.key])
        FrameDecoder(self.channel, found, schema, judged=False).frame(NO_SPARK)
        return found

    def counted(self) -> tuple[int | None, int]:
        found = self.change()
        return found.superseded, found.covered


class NoFrame:
    """A DataFrame that nobody reads."""

    def coalesce(self, number: int) -> NoFrame:
        return self

    def mapInArrow(self, task: Any, columns: Any) -> NoFrame:
        return self


NO_SPARK: Any = SimpleNamespace(createDataFrame=lambda *_: NoFrame())


def test_b72_events_of_a_key_are_superseded_by_the_last_one() -> None:
    """Within a frame, where the decoder drops them, and between epochs. Fails when only those that
    reach Spark count."""
    decoded = Decoded()
    decoded.add((1, 1), (2, 1), (3, 1), (1, 2))
    assert decoded.counted() == (2, 0)
    decoded.add((4, 2), (4, 3))
    assert decoded.counted() == (3, 0)


def test_events_that_a_copy_has_are_covered() -> None:
    """Those through a version that the table has already. Fails when they count as superseded."""
    decoded = Decoded("name")
    decoded.add((1, "a"), (2, "a"), (3, "a"), (1, "b"), (3, "c"), above=1)
    assert decoded.counted() == (1, 2)


def test_what_no_job_has_counted_is_not_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A large apply is decoded by tasks, and of some keys Arrow and Spark disagree: for Spark, 0.0
    and -0.0 are equal. Fails when 0 is said, or the rows are counted by a job of their own."""
    floats = Decoded("x")
    floats.add((1, 0.0), (1, -0.0), (2, 1.0))
    assert floats.counted() == (None, 0)
    monkeypatch.setattr(decode_module, "SMALL_EVENTS", 1)
    large = Decoded()
    large.add((1, 1), (2, 1))
    assert large.counted() == (None, 0)


@pytest.mark.parametrize(
    ("of", "above", "superseded"),
    [
        ([{}], -1, 0),
        ([{"kind": EVENTS}], -1, None),
        ([{}, {}], -1, None),
        ([{"keys": ()}, {"keys": ()}], -1, 0),
        ([{"keys": ()}], 0, None),
    ],
    ids=["one commit", "a user's events", "two epochs", "no keys", "overlapping a copy"],
)
def test_a_large_apply_supersedes_nothing_where_the_manifests_say_so(
    of: list[dict[str, Any]], above: int, superseded: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One commit has one event per key: a bulk load is counted without a look at it."""
    monkeypatch.setattr(decode_module, "SMALL_EVENTS", 1)
    large = Decoded()
    for more in of:
        large.add((1, 1), (1, 2), above=above, **more)
    assert large.counted() == (superseded, 0)


@pytest.mark.parametrize("dropped", ["dead_letters", "duplicates"])
def test_beside_dropped_events_nothing_is_known_of_the_others(
    dropped: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whose keys they have was not counted: one may have been the last of its key. Fails when the
    number is that of before."""
    nothing: Any = CurrentSession()
    target = DeltaTarget("", "seattle", "orders", "/o", channel=memory_channel(), ledger=nothing)  # type: ignore[arg-type]
    found: Manifest = manifest()
    change = Change([PlannedEpoch(found, -1)], EventRows(nothing, ["id"], ("id",)))
    change.superseded = 3
    for name in ("judge", "resolve"):
        monkeypatch.setattr(target_module, name, lambda *words: words[-1])
    monkeypatch.setattr(target_module, "count_dead_letters", lambda _, rows, *__: rows)
    target.resolve(change)
    assert change.superseded == 3
    setattr(change, dropped, 1)
    target.resolve(change)
    assert change.superseded is None
