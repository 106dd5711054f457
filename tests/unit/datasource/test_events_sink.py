"""A user's stream: rows become events, and what tasks have written becomes an epoch, once."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock, patch

import pyarrow as pa
import pytest
from event_sink import ARROW, STREAM, Sink, named, randomly, row
from fakes import MANIFEST, ack, memory_channel, publish, schema
from faulty_channel import Fault, FaultyChannel
from hypothesis import given
from hypothesis import strategies as st
from pyspark import TaskContext

from spark_wan.channels.base import Channel, write_of
from spark_wan.channels.registry import open_channel
from spark_wan.datasource import sink as datasource
from spark_wan.datasource.events import KEPT_WRITES, EventsWriter
from spark_wan.datasource.options import SinkOptions
from spark_wan.datasource.sink import WanCommitMessage, WanStreamWriter, WanWriter
from spark_wan.errors import (
    ChannelError,
    EventError,
    LogGapError,
    ManifestExists,
    OptionError,
    SchemaError,
    SourceError,
    StaleWriteError,
    WanError,
)
from spark_wan.log.frame_age import STALE_AGE
from spark_wan.log.stream_log import StreamLog
from spark_wan.log.writer import MOST_REFUSALS, remove_unnamed
from spark_wan.steps import run
from spark_wan.units import milliseconds
from spark_wan.wire.frame import decode_frame
from spark_wan.wire.manifest import EVENTS

# --- rows become events


def test_rows_become_events_with_their_id_and_operation() -> None:
    sink = Sink(operation="op", sequence="seq", event_time="at")
    first = sink.write(
        row("e1", op="create"), row("e2", op="destroy", seq=7), row("e3", op="put", seq=None)
    )
    assert first is not None
    micros = 1_767_323_045_000_000
    at = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
    rest = {"id": 1, "city": "Ulm", "at": at}
    assert sink.events(first) == [
        {
            "_wan_op": 0,
            "_wan_id": "e1",
            "_wan_sequence": 0,
            "_wan_time": micros,
            "event": "e1",
            "seq": 0,
            **rest,
        },
        {
            "_wan_op": 2,
            "_wan_id": "e2",
            "_wan_sequence": 7,
            "_wan_time": micros,
            "event": "e2",
            "seq": 7,
            **rest,
        },
        {
            "_wan_op": 1,
            "_wan_id": "e3",
            "_wan_sequence": None,
            "_wan_time": micros,
            "event": "e3",
            "seq": None,
            **rest,
        },
    ]


def test_without_an_operation_column_rows_are_puts_or_creates() -> None:
    keyed, keyless = Sink(), Sink(key=())
    first, other = keyed.write(row("e1", 1), row("e2", 2)), keyless.write(row("e1"), row("e2"))
    assert first is not None and other is not None
    assert [event["_wan_op"] for event in keyed.events(first)] == [1, 1]
    assert [event["_wan_op"] for event in keyless.events(other)] == [0, 0]
    assert "op" in keyed.events(first)[0]


def test_the_manifest_of_a_user_stream() -> None:
    sink = Sink()
    first = sink.write(row("e1"), batch=4)
    assert first is not None
    assert first == replace(
        MANIFEST,
        stream=STREAM,
        log_id=first.log_id,
        kind=EVENTS,
        sent_to=("seattle", "tacoma"),
        addressees=("seattle", "tacoma"),
        table_id="events",
        schema=sink.schema,
        first_version=-1,
        last_version=-1,
        identity="",
        frames=first.frames,
        disjoint=False,
        writes=first.writes,
    )
    assert [(write.query, write.batch) for write in first.writes] == [("q", "4")]


def test_epochs_follow_each_other() -> None:
    sink = Sink()
    found = [sink.write(row(f"e{batch}"), batch=batch) for batch in range(3)]
    assert [(each.epoch, each.start) for each in found if each] == [
        (1, True),
        (2, False),
        (3, False),
    ]
    assert len({each.log_id for each in found if each}) == 1


def test_nothing_written_is_no_epoch() -> None:
    sink = Sink()
    assert sink.commit([]) is None
    assert sink.write() is None
    assert sink.log.newest_manifest() is None


def test_an_integer_column_can_be_the_event_id() -> None:
    sink = Sink(event_id="seq")
    first = sink.write(row("x", 1, seq=5), row("x", 2, seq=6))
    assert first is not None
    assert [event["_wan_id"] for event in sink.events(first)] == ["5", "6"]


# --- what is refused


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"event_id": "evnt"}, "eventId names column 'evnt'.*event"),
        ({"operation": "what"}, "operation names column 'what'"),
        ({"event_id": "at"}, "eventId column 'at' is timestamp"),
        ({"operation": "id"}, "operation column 'id' is long; it must be one of string"),
        ({"sequence": "city"}, "sequence column 'city' is string"),
        ({"event_time": "seq"}, "eventTime column 'seq' is long; it must be one of timestamp"),
    ],
)
def test_missing_or_mistyped_columns_are_refused_by_name(
    options: dict[str, str], match: str
) -> None:
    with pytest.raises(OptionError, match=match):
        Sink(**options)


def refused(sink: Sink, match: str, *rows: dict[str, Any]) -> None:
    with pytest.raises(EventError, match=match):
        sink.write(*rows)
    assert sink.log.newest_manifest() is None


def test_unknown_operations_are_refused_by_name() -> None:
    refused(
        Sink(operation="op"),
        r"unknown operations \['upsert'\].*create, put, destroy",
        row("e", op="upsert"),
    )
    refused(Sink(operation="op"), r"unknown operations \[None\]", row("e", op=None))


def test_a_keyless_table_accepts_creates_only() -> None:
    refused(Sink(operation="op", key=()), "no key, so only `create`", row("e", op="put"))
    assert Sink(operation="op", key=()).write(row("e", op="create"))


def test_an_event_without_an_id_is_refused() -> None:
    refused(Sink(), "1 events have no ID.*'event' is null", row("e1", 1), row(None, 2))


def test_an_event_without_a_key_is_refused() -> None:
    refused(
        Sink(),
        "2 events have a null in key column 'id'",
        row("e1", None),
        row("e2", None),
        row("e3", 3),
    )


def test_a_repeated_event_id_in_an_epoch_is_refused() -> None:
    """In one task, and in two. Fails when IDs are not compared over all tasks."""
    refused(Sink(), "1 event IDs come twice", row("e", 1), row("e", 2))
    sink = Sink()
    with pytest.raises(EventError, match=r"1 event IDs come twice.*Nothing of it was sent"):
        sink.commit([sink.task(row("e", 1)), sink.task(row("e", 2))])
    assert sink.log.newest_manifest() is None


def test_a_repeated_key_needs_a_sequence() -> None:
    refused(Sink(), "1 keys come twice.*`sequence`", row("e1", 1), row("e2", 1))
    assert Sink(sequence="seq").write(row("e1", 1, seq=1), row("e2", 1, seq=2))
    assert Sink(key=()).write(row("e1", 1), row("e2", 1))


@pytest.mark.parametrize(
    ("other", "match"),
    [
        ({"table": "prices"}, "epochs have table 'orders', and this write has 'prices'"),
        ({"key": ("city",)}, "epochs have key 'id', and this write has 'city'"),
        ({"key": ()}, "epochs have key 'id', and this write has ''"),
        ({"site": "denver"}, "epochs have site 'newark', and this write has 'denver'"),
    ],
)
def test_f48_another_table_key_or_site_than_the_streams_is_refused(
    other: dict[str, Any], match: str
) -> None:
    """Fails when the last manifest is not compared: the epoch would hold every receiver for
    ever."""
    sink = Sink()
    sink.write(row("e1"))
    late = Sink(sink.channel, **other)
    with pytest.raises(SourceError, match=match):
        late.write(row("e2"))
    assert sink.log.since(0) == [1]


def test_f41_columns_of_a_stream_may_be_added_and_not_dropped_or_retyped() -> None:
    sink = Sink()
    sink.write(row("e1"))
    fields = {field["name"]: field["type"] for field in sink.schema["fields"]}
    for columns, match in (
        ({name: kind for name, kind in fields.items() if name != "city"}, "column city is missing"),
        ({**fields, "city": "long"}, "column city was string and is long"),
    ):
        sink.schema = schema(**columns)
        with pytest.raises(SchemaError, match=match):
            sink.commit([sink.task(row("e2"))])
    written = [sink.task(row("e2"))]
    sink.schema = schema(**{**fields, "more": "long"})
    second = sink.commit(written)
    assert second is not None and second.epoch == 2


@pytest.mark.parametrize("checkpoint", [True, False])
@pytest.mark.parametrize("acked", [True, False])
def test_f48_a_deleted_log_does_not_start_over(checkpoint: bool, acked: bool) -> None:
    """Its manifests were deleted with events unacked. Fails when a sink without a manifest always
    begins at 1: the receivers take the new log for the old one's heir, and the events are lost
    without a word."""
    sink = Sink()
    first = sink.write(row("e1"))
    assert first is not None
    sink.channel.trim_manifest(STREAM, 1)
    if acked:
        ack(sink.log, "seattle", 0, first.log_id)
    if not checkpoint:
        sink.checkpoints.kept.clear()
    if not checkpoint and not acked:
        return  # nothing is left that could tell; the receivers notice
    with pytest.raises(LogGapError, match=f"set the sink's option newLog to {first.log_id}"):
        sink.write(row("e2"), batch=1)
    assert sink.log.newest_manifest() is None
    sink.options = replace(sink.options, new_log=(first.log_id,))
    second = sink.write(row("e2"), batch=1)
    assert second is not None and (second.epoch, second.start) == (1, True)
    third = sink.write(row("e3"), batch=2)
    assert third is not None and third.epoch == 2


def test_f47_a_write_frozen_until_its_epoch_was_trimmed_is_repeated() -> None:
    """Its epoch was published, acked and trimmed, and a hundred others since, before it looks
    again. Fails when frames that are gone are named."""
    sink = Sink()
    written = sink.task(row("e1"))
    slow = sink.steps([written])
    for _ in range(3):
        next(slow)
    sink.write(row("e2"), batch=1)
    sink.channel.trim_frames(STREAM, [frame.path for frame in written.frames])
    with pytest.raises(StaleWriteError, match="Write the rows again"):
        run(slow)
    assert sink.log.since(0) == [1]


def test_f47_frames_that_may_be_swept_are_not_named() -> None:
    """The driver was frozen for most of a day between the tasks and the commit."""
    sink = Sink()
    sink.clock.now = milliseconds()  # the store's
    written = [sink.task(row("e1"))]
    sink.clock.pass_seconds(STALE_AGE + 1)
    with pytest.raises(StaleWriteError, match="Write the rows again"):
        sink.commit(written)
    assert sink.log.newest_manifest() is None


def test_f47_frames_that_were_swept_inside_append_are_not_named() -> None:
    """The driver was frozen inside the write of its manifest. Fails when frames are checked
    before the write only: the micro-batch counts as done, and every receiver is held."""
    sink = Sink()
    sink.clock.now = milliseconds()
    append = sink.channel.append

    def slow(stream: str, epoch: int, *more: Any, **named: Any) -> None:
        sink.clock.pass_seconds(STALE_AGE + 1)
        sink.channel.trim_frames(STREAM, sink.frames())
        append(stream, epoch, *more, **named)

    sink.channel.append = slow  # type: ignore[method-assign]
    with pytest.raises(StaleWriteError, match="Write the rows again"):
        sink.write(row("e1"))
    assert sink.log.newest_manifest() is None


def test_f48_acks_detect_a_restored_log() -> None:
    """A writer without a checkpoint. Fails when the log is extended: an older ack
    counts for what is new."""
    sink = Sink()
    sink.write(row("e1"))
    second = sink.write(row("e2"), batch=1)
    assert second is not None
    ack(sink.log, "seattle", 2, second.log_id)
    sink.log.channel.trim_manifest(STREAM, 2)
    sink.checkpoints.kept.clear()
    with pytest.raises(
        LogGapError, match=r"ends at manifest 1, but sites have acked more .*newLog to "
    ):
        sink.write(row("e3"), batch=2)
    assert sink.log.since(0) == [1]


def test_a_write_may_take_days() -> None:
    """As long as its frames keep coming. Fails (stale, each time) when its beginning decides."""
    sink = Sink()
    sink.clock.now = milliseconds() - 30 * 3_600_000
    written = [sink.task(row("e1"))]
    sink.clock.now = milliseconds()
    assert named(sink.commit(written)) == sink.frames()


def test_f47_the_frames_of_all_tasks_are_one_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """They share their age, and not with those of the next micro-batch: what a failed one left
    would never be old. Fails when the name of a task's attempt says nothing of its write, or when a
    query is one write."""
    sink = Sink()
    writer: Any = object.__new__(WanStreamWriter)
    writer.write_id = uuid.uuid4().hex

    def task(batch: str) -> str:
        context = SimpleNamespace(getLocalProperty={"streaming.sql.batchId": batch}.get)
        monkeypatch.setattr(TaskContext, "get", lambda: context)
        events = EventsWriter(
            sink.channel, sink.options, sink.columns, sink.schema, sink.clock, writer._write_id()
        )
        rows = pa.Table.from_pylist([row("e1")], schema=ARROW)
        (frame,) = events.write(rows.to_batches()).frames
        return write_of(frame.path)

    assert task("7") == task("7") != task("8")
    assert len(sink.frames()) == 3


def test_the_stream_of_a_captured_table_is_refused() -> None:
    sink = Sink()
    sink.log.append(replace(MANIFEST, stream=STREAM))
    with pytest.raises(
        SourceError, match=r"carries the captured table orders.*`stream` of its own"
    ):
        sink.write(row("e"))


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"key": "idd"}, "key column 'idd' is not there. Did you mean 'id'"),
        ({"channel": __file__}, "channel .*test_events_sink.py: cannot be opened"),
    ],
)
def test_keys_and_channel_are_checked_before_any_task(
    tmp_path: Path, options: dict[str, str], match: str
) -> None:
    """When Spark plans the write. Fails when the writer does not look at them."""
    given = {"channel": str(tmp_path), "site": "newark", "remotes": "seattle", "table": "orders"}
    parsed = SinkOptions.parse({**given, "key": "id", "eventId": "event", **options})
    with pytest.raises(WanError, match=match):
        WanWriter(parsed, schema(event="string", id="long"), None)
    assert list(tmp_path.iterdir()) == []


# --- replays


def test_f02_an_equal_replay_adds_no_epoch() -> None:
    """Fails when the digest is not looked for in the log: the epoch would be there twice."""
    sink = Sink()
    first = sink.write(row("e1", 1), row("e2", 2))
    assert sink.write(row("e2", 2), row("e1", 1)) == first
    assert sink.log.since(0) == [1]
    assert sink.frames() == named(first)


@pytest.mark.parametrize(
    "other",
    [[row("e1", 1)], [row("e1", 1, "Bonn")], [row("e9", 1)], [row("e1", 1), row("e2", 2)]],
    ids=range(4),
)
def test_a_replay_with_other_events_is_the_next_epoch(other: list[dict[str, Any]]) -> None:
    """f07: IDs, operations and values count. Dedup by event ID sorts it out at the receiver."""
    sink = Sink()
    sink.write(row("e1", 1), row("e3", 3))
    second = sink.write(*other)
    assert second is not None and second.epoch == 2


def test_the_operation_counts_for_the_digest() -> None:
    sink = Sink(operation="op")
    sink.write(row("e1", op="put"))
    second = sink.write(row("e1", op="destroy"))
    assert second is not None and second.epoch == 2


def test_another_batch_or_query_with_the_same_events_is_the_next_epoch() -> None:
    sink = Sink()
    sink.write(row("e1"), batch=0)
    second = sink.write(row("e1"), batch=1)
    assert second is not None and second.epoch == 2
    third = sink.commit([sink.task(row("e1"))], query="another", batch=1)
    assert third is not None and third.epoch == 3


@randomly
@given(st.lists(st.integers(0, 50), unique=True, min_size=1, max_size=12), st.data())
def test_f04_the_digest_does_not_depend_on_partitions(ids: list[int], data: st.DataObject) -> None:
    """Fails when the digest depends on the order of rows or on how tasks share them."""
    rows = [row(f"e{each}", each) for each in ids]
    shuffled = data.draw(st.permutations(rows))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=3)))
    parts = [shuffled[start:end] for start, end in zip([0, *cuts], [*cuts, len(rows)], strict=True)]
    sink = Sink()
    first = sink.commit([sink.task(*rows)])
    assert sink.commit([sink.task(*part, batches=2) for part in parts]) == first


def test_a_manifest_recognises_replays_of_the_last_hundred_writes() -> None:
    sink = Sink()
    for batch in range(KEPT_WRITES + 1):
        sink.write(row(f"e{batch}"), batch=batch)
    last = sink.log.newest_manifest()
    assert last is not None and len(last.writes) == KEPT_WRITES
    assert sink.write(row("e1"), batch=1) == last
    again = sink.write(row("e0"), batch=0)
    assert again is not None and again.epoch == last.epoch + 1


def test_of_two_attempts_of_a_task_only_one_is_named() -> None:
    """f05: what a speculative attempt wrote is not in the commit messages, and no manifest names
    it."""
    sink = Sink()
    speculative = sink.task(row("e1"))
    first = sink.commit([sink.task(row("e1"))])
    assert first is not None and first.rows == 1
    assert not named(first) & {frame.path for frame in speculative.frames}


# --- two writers, and a channel that fails


def test_two_concurrent_writers_both_get_an_epoch() -> None:
    sink = Sink()
    slow = sink.steps([sink.task(row("e1"))])
    assert [next(slow) for _ in range(3)] == [
        "sink.1 frames-published",
        "sink.2 log-read",
        "sink.3 checked",
    ]
    other = sink.commit([sink.task(row("e2"))], query="another")
    second = run(slow)
    assert second is not None and second.epoch == 2
    assert [write.query for write in second.writes] == ["another", "q"]
    assert sink.frames() == named(other, second)


def test_a_manifest_that_is_refused_again_and_again_fails_the_write() -> None:
    """Fails (without an end) when each refusal is taken for another writer's epoch."""
    sink = Sink()
    sink.write(row("e1"), batch=1)
    appended = Mock(side_effect=ManifestExists("it is there"))
    with (
        patch.object(sink.channel, "append", appended),
        pytest.raises(LogGapError, match=r"manifest 2 .* was refused 5 times"),
    ):
        sink.write(row("e2"), batch=2)
    assert appended.call_count == MOST_REFUSALS
    again = sink.write(row("e2"), batch=2)
    assert again is not None and again.epoch == 2


def test_f08_the_same_write_twice_concurrently_is_one_epoch() -> None:
    sink = Sink()
    slow = sink.steps([sink.task(row("e1"))])
    for _ in range(3):
        next(slow)
    first = sink.write(row("e1"))
    assert run(slow) == first
    assert sink.log.since(0) == [1]
    assert sink.frames() == named(first)


@pytest.mark.parametrize("kind", ["duplicate", "vanish", "fail"])
def test_f15_whatever_the_store_answers_the_epoch_is_there_once_and_whole(kind: Any) -> None:
    """`duplicate`: the store's client repeats a put. Fails when the frames of one's own manifest
    are removed."""
    sink = Sink(FaultyChannel(memory_channel(), [Fault("append", 1, kind)]))
    written = sink.task(row("e1"))
    try:
        sink.commit([written])
    except ChannelError:
        sink.write(row("e1"))  # Spark runs the micro-batch again
    last = sink.log.newest_manifest()
    assert last is not None and last.epoch == 1
    assert [event["_wan_id"] for event in sink.events(last)] == ["e1"]
    assert sink.frames() >= named(last)  # the others are swept


class Late:
    """A channel whose first manifest comes when its writer has heard of an error already."""

    def __init__(self, inner: Channel) -> None:
        self.inner, self.url, self.late = inner, inner.url, list[Callable[[], None]]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def append(self, *manifest: Any, **more: Any) -> None:
        if not self.late:
            self.late.append(lambda: self.inner.append(*manifest, **more))
            raise ChannelError("the PUT timed out")
        self.inner.append(*manifest, **more)


def test_a_manifest_that_arrives_after_its_write_was_aborted_has_its_frames() -> None:
    """Spark calls abort(), then runs the micro-batch again, which the log has then. Fails when
    abort() removes the frames of a write whose tasks all succeeded: there is no other copy of these
    events."""
    inner = memory_channel()
    late = Late(inner)
    sink = Sink(late, remotes=("seattle",))  # type: ignore[arg-type]
    written = sink.task(row("e1"))
    with pytest.raises(ChannelError):
        sink.commit([written])
    writer = object.__new__(WanWriter)
    writer.options = sink.options
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(datasource, "open_channel", lambda *_: inner)
        writer.abort([WanCommitMessage(written)])
        late.late[0]()
        manifest = sink.write(row("e1"))
        assert named(manifest) == {frame.path for frame in written.frames} == sink.frames()
        failed = sink.task(row("e2"))
        writer.abort([WanCommitMessage(failed), None])  # a task has failed: no manifest was tried
        assert sink.frames() == named(manifest)


def test_a_write_refused_after_its_manifest_was_tried_keeps_its_frames() -> None:
    """The manifest may be on its way. Fails when they are removed: it would name what is gone."""
    inner = memory_channel()

    class Overtaken(Late):
        def append(self, *manifest: Any, **more: Any) -> None:
            if not self.late:
                self.late.append(lambda: None)
                Sink(inner, table="prices").write(row("e9"))
                raise ManifestExists("another writer was faster")
            self.inner.append(*manifest, **more)

    sink = Sink(Overtaken(inner))  # type: ignore[arg-type]
    written = sink.task(row("e1"))
    with pytest.raises(SourceError, match="epochs have table 'prices'"):
        sink.commit([written])
    assert sink.frames() >= {frame.path for frame in written.frames}


def test_a_refused_write_leaves_no_frames() -> None:
    sink = Sink()
    with pytest.raises(EventError):
        sink.write(row("e1"), row("e1", id=2))
    assert sink.frames() == set()


def test_a_write_for_other_sites_is_refused() -> None:
    """Two writers of one table with other remotes, and the default name of the stream for both:
    each would trim what the sites of the other have not read. Fails when remotes are not compared.
    A site that is to get nothing more is named, or left out of the topology."""
    sink = Sink(remotes=("tacoma", "seattle"))
    first = sink.write(row("e1"))
    sink.options = replace(sink.options, remotes=("seattle",))
    with pytest.raises(
        SourceError,
        match=r"epochs are for seattle, tacoma.*what tacoma has not read.*`stream` of its own.*"
        "`formerRemotes`",
    ):
        sink.write(row("e2"), batch=1)
    assert sink.frames() == named(first)
    for allowed in ({"former_remotes": ("tacoma",)}, {"former_remotes": None}):
        one = Sink(remotes=("tacoma", "seattle"))
        one.write(row("e1"))
        one.options = replace(one.options, remotes=("seattle",), **allowed)  # type: ignore[arg-type]
        assert one.write(row("e2"), batch=1) is not None
    more = Sink(remotes=("seattle",))
    more.write(row("e1"))
    more.options = replace(more.options, remotes=("seattle", "tacoma"))
    assert more.write(row("e2"), batch=1) is not None


TOPOLOGY = """
version: 1
sites: {newark: {state: ./newark}, seattle: {state: ./seattle}, tacoma: {state: ./tacoma}}
senders: {east: {site: newark, remotes: [seattle, tacoma], channel: ./channel}}
tables:
  orders:
    keys: [id]
    writers: [newark]
    senders: [east]
    at: {newark: ./n, seattle: ./s, tacoma: ./t}
"""


@pytest.mark.parametrize("config", [True, False])
@pytest.mark.parametrize("events", [[], ["e2"], ["e3"]], ids=["empty", "replayed", "new"])
def test_a_write_for_fewer_sites_trims_nothing_that_the_others_have_not_acked(
    tmp_path: Path, config: bool, events: list[str]
) -> None:
    """A query goes on with fewer remotes, and its next micro-batch is empty, the last one again, or
    new. Fails when only what is appended is compared, or when a topology excuses remotes that it
    does not name: the other site's epochs are trimmed."""
    (tmp_path / "wan.yaml").write_text(TOPOLOGY)
    base = {
        "config": f"{tmp_path}/wan.yaml",
        "sender": "east",
        "table": "orders",
        "eventId": "event",
    }
    if not config:
        base = {
            "channel": f"{tmp_path}/channel",
            "site": "newark",
            "remotes": "seattle,tacoma",
            "key": "id",
            **base,
        }
        del base["config"], base["sender"]
    rows = pa.schema([("event", pa.string()), ("id", pa.int64())])

    def write(batch: int, events: list[str], **options: str) -> None:
        writer = WanStreamWriter(
            SinkOptions.parse({**base, **options}),
            schema(event="string", id="long"),
            f"{tmp_path}/query",
        )
        table = pa.Table.from_pylist([{"event": event, "id": 1} for event in events], schema=rows)
        writer.commit([writer.write(iter(table.to_batches()))], batch)

    for epoch in range(3):
        write(epoch, [f"e{epoch}"])
    log = StreamLog(
        open_channel(f"{tmp_path}/channel"), f"newark.{'east' if config else 'sink'}.orders"
    )
    last = log.newest_manifest()
    assert last is not None
    ack(log, "seattle", 3, last.log_id)
    for options in ({"remotes": "seattle"}, {"remotes": "seattle", "formerRemotes": "elsewhere"}):
        with suppress(SourceError):
            write(2 if events == ["e2"] else 3, events, **options)
        assert (log.since(0), len(log.channel.frames(log.stream))) == ([1, 2, 3], 3)
    write(4, ["e4"], remotes="seattle", formerRemotes="tacoma")
    assert log.since(0) == [4]


def stream_writer(channel: Path, **more: str) -> WanStreamWriter:
    options = {
        "channel": str(channel),
        "site": "newark",
        "remotes": "seattle",
        "key": "id",
        "table": "orders",
        "eventId": "event",
        **more,
    }
    return WanStreamWriter(SinkOptions.parse(options), schema(event="string", id="long"), None)


def test_b27_a_commit_that_waits_for_acks_ends_with_its_jvm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its error says that the epoch is in the channel, and a restart does not add it again."""

    def commit(**options: str) -> None:
        writer = stream_writer(tmp_path, **options)
        rows = pa.RecordBatch.from_pylist([{"event": "e1", "id": 1}])
        writer.commit([writer.write(iter([rows]))], 0)

    with monkeypatch.context() as patch:
        patch.setattr(datasource, "is_orphan", lambda: True)
        with pytest.raises(
            WanError,
            match=r"stream newark.sink.orders: stopped while waiting for acks; epoch 1 is in the "
            "channel",
        ):
            commit(blockOnAck="1h")
    commit()
    assert StreamLog(open_channel(str(tmp_path)), "newark.sink.orders").since(0) == [1]


def test_an_empty_write_leaves_the_log_of_a_captured_table_alone(tmp_path: Path) -> None:
    """Its sender looks after it, and knows its sites. Fails when the sink's ack manager takes any
    log for its own."""
    log = StreamLog(open_channel(str(tmp_path)), "newark.sink.orders")
    log.channel.prepare()
    publish(log, 1, 2)
    ack(log, "seattle", 2)
    stream_writer(tmp_path).commit([], 0)
    assert log.since(0) == [1, 2]


def test_a_commit_succeeds_although_its_acks_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Fails when acks that cannot be read fail the commit, or nothing is said."""
    channel = open_channel(str(tmp_path))
    writer = stream_writer(tmp_path)
    message = writer.write(iter([pa.RecordBatch.from_pylist([{"event": "e1", "id": 1}])]))
    faults = [Fault("read_acks", 2, "fail")]  # the first look is before the epoch is appended
    monkeypatch.setattr(datasource, "open_channel", lambda *_: FaultyChannel(channel, faults))
    writer.commit([message], 0)
    assert StreamLog(channel, "newark.sink.orders").since(0) == [1]
    assert "newark.sink.orders: cannot collect its acks: " in caplog.text


def test_frames_of_a_failed_write_are_removed_unless_a_manifest_names_them() -> None:
    """Fails when they are removed without a look at the log."""
    sink = Sink()
    kept, failed = sink.task(row("e1")), sink.task(row("e2"))
    first = sink.commit([kept])
    remove_unnamed(sink.log, [*kept.frames, *failed.frames])
    assert sink.frames() == named(first)


def test_frames_are_left_alone_when_the_log_cannot_be_read() -> None:
    sink = Sink(FaultyChannel(memory_channel(), [Fault("stream_epochs", 1, "fail")]))
    written = sink.task(row("e1"))
    remove_unnamed(sink.log, written.frames)
    assert sink.frames() == {frame.path for frame in written.frames}


def test_a_sink_limits_the_rows_of_its_batches() -> None:
    sink = Sink(batch_size=3)
    first = sink.write(*(row(f"e{n}", n) for n in range(10)))
    assert first is not None
    assert [frame.rows for frame in first.frames] == [3, 3, 3, 1]
    assert len(sink.events(first)) == 10


def test_b45_a_sink_limits_the_bytes_of_its_batches() -> None:
    """A larger event travels alone (f19). Fails when the sink does not pass `batchBytes` on."""
    sink = Sink(batch_bytes=4_000)
    sizes = [1_000] * 5 + [5_000] + [1_000] * 5
    first = sink.write(*(row(f"e{n}", n, "x" * size) for n, size in enumerate(sizes)))
    assert first is not None
    batches = [
        decode_frame(sink.channel.get_frame(ref.path), ref.path, ref)[1] for ref in first.frames
    ]
    assert [batch.num_rows for batch in batches if batch.nbytes > 4_000] == [1]
    assert len(batches) < len(sizes) == len(sink.events(first))


def test_f48_a_sink_with_a_topology_keeps_its_checkpoint_in_the_state_of_its_site(
    tmp_path: Path,
) -> None:
    """So it knows a log whose manifests were deleted, whatever query writes. Fails when the
    topology's `state` does not reach the sink: a new log begins without a word."""
    (tmp_path / "wan.yaml").write_text(TOPOLOGY)
    log = StreamLog(open_channel(f"{tmp_path}/channel"), "newark.east.orders")

    def write(batch: int, **more: str) -> None:
        options = {"config": f"{tmp_path}/wan.yaml", "sender": "east", "table": "orders", **more}
        writer = WanStreamWriter(
            SinkOptions.parse({"eventId": "event", **options}),
            schema(event="string", id="long"),
            None,
        )
        rows = pa.RecordBatch.from_pylist([{"event": f"e{batch}", "id": batch}])
        writer.commit([writer.write(iter([rows]))], batch)

    write(0)
    old = log.read(1).log_id
    write(1)
    for epoch in (1, 2):
        log.channel.trim_manifest(log.stream, epoch)
    with pytest.raises(LogGapError, match=f"is gone; it was at manifest 2.*newLog to {old}"):
        write(2)
    assert log.since(0) == []
    write(2, newLog=old)
    assert log.since(0) == [1]


def test_the_sinks_of_two_queries_share_nothing() -> None:
    channel = memory_channel()
    one, other = Sink(channel), Sink(channel, stream=f"newark.{uuid.uuid4().hex}.orders")
    other.log = StreamLog(channel, other.options.stream)
    one.write(row("e1"))
    second = other.write(row("e1"))
    assert second is not None and second.epoch == 1
