"""Keys that are not unique at the source, against a simple model: after each range, the target has
one row of each key that the source has, and no other key."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise

import pyarrow as pa
import pytest

from spark_wan.capture.netting import RANK, STILL_THERE, LastDestroys, net
from spark_wan.capture.tasks import CaptureReport
from spark_wan.events.operations import OP, VERSION, Operation

Row = tuple[int, int]
"""(key, value)"""
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("value", pa.int64()),
        ("_commit_version", pa.int64()),
        ("_wan_rank", pa.int8()),
    ]
)


@dataclass
class Source:
    """A table in which keys have any number of rows, and its change feed."""

    rows: list[Row] = field(default_factory=list)
    feed: list[list[tuple[int, int, int, int]]] = field(default_factory=list)
    """By version, rows of :data:`SCHEMA`."""

    def commit(self, chance: random.Random, keys: int) -> None:
        """Delete, change and move some rows, and insert others; each row is touched once."""

        def new_row() -> Row:
            return chance.randrange(keys), chance.randrange(3)

        version, changes, rows = len(self.feed), [], []
        for row in self.rows:
            what = chance.random()
            if what < 0.3:
                changes.append((*row, version, RANK["delete"]))
            elif what < 0.5:
                key, value = new_row()
                rows.append((chance.choice((row[0], key)), value))
                changes.append((*row, version, RANK["update_preimage"]))
                changes.append((*rows[-1], version, RANK["update_postimage"]))
            else:
                rows.append(row)
        for _ in range(chance.randrange(3)):
            rows.append(new_row())
            changes.append((*rows[-1], version, RANK["insert"]))
        self.rows = rows
        self.feed.append(changes)


@dataclass
class Target:
    rows: dict[int, int] = field(default_factory=dict)

    def apply(self, events: list[dict[str, int]]) -> None:
        for event in events:
            if event[OP] == Operation.DESTROY:
                self.rows.pop(event["id"], None)
            else:
                self.rows[event["id"]] = event["value"]


def captured(
    changes: list[tuple[int, int, int, int]], chance: random.Random
) -> tuple[list[dict[str, int]], dict[int, int]]:
    """Net change rows, in batches of any size: the events, and the version of the last event of
    each key that ends with a destroy."""
    changes = sorted(changes, key=lambda row: (row[0], row[2], row[3]))
    columns = zip(*changes, strict=True) if changes else [()] * 4
    batch = pa.RecordBatch.from_arrays(
        [pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
    )
    cuts = sorted(chance.randrange(len(changes) + 1) for _ in range(2))
    batches = [batch.slice(a, b - a) for a, b in pairwise([0, *cuts, len(changes)])]
    events: list[dict[str, int]] = []
    destroys, found = LastDestroys(["id"]), []
    for netted in net(batches, ["id"]):
        events += netted.events.to_pylist()
        found.append(destroys.of(netted))
    found.append(destroys.end())
    ended = [row for part in found if part is not None for row in part.to_pylist()]
    return events, {row["id"]: row[VERSION] for row in ended}


@pytest.mark.parametrize("seed", range(100))
def test_a_key_that_the_source_still_has_is_not_lost(seed: int) -> None:
    """Fails when a destroy stands though a row is left, when a row that is left is no event because
    it equals the one that has gone, and when the last event of a key in a batch is forgotten."""
    chance = random.Random(seed)
    source, target = Source(), Target()
    keys = chance.randrange(1, 5)
    for _ in range(4):
        first = len(source.feed)
        for _ in range(chance.randrange(1, 5)):
            source.commit(chance, keys)
        changes = [row for commit in source.feed[first:] for row in commit]
        events, destroyed = captured(changes, chance)
        last = {event["id"]: event for event in events}
        assert destroyed == {
            key: event[VERSION] for key, event in last.items() if event[OP] == Operation.DESTROY
        }
        left = [
            (key, value, destroyed[key], STILL_THERE)
            for key, value in source.rows
            if key in destroyed
        ]
        if left:
            events, _ = captured(changes + left, chance)
        target.apply(events)
        expected = Counter(key for key, _ in source.rows).keys()
        assert target.rows.keys() == expected
        assert set(target.rows.items()) <= set(source.rows)


@pytest.mark.parametrize(("tasks", "listed"), [(1, 200_000), (4, 200_000), (400, 2_000)])
def test_what_all_tasks_report_is_little_for_the_driver(tasks: int, listed: int) -> None:
    """Spark ends a job whose results are more than 1 GB. Fails when each of many tasks sends as
    many keys as one may."""
    keys = pa.record_batch({"id": pa.array([7] * listed, pa.int8())})
    report = CaptureReport(tasks=tasks)
    report.note_destroyed(listed, [keys])
    assert report.destroyed_keys is not None
    report.note_destroyed(1, [keys.slice(0, 1)])
    assert (report.destroyed_keys, report.destroyed) == (None, listed + 1)
