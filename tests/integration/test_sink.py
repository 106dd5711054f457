"""The sink: rows of any DataFrame become frames, a micro-batch becomes an epoch, and
the rows arrive in the remote site's table.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sites import NEWARK, SEATTLE, Sites, at
from users import PRICES, clicks, frame, price
from waiting import DEADLINE, wait_until

import spark_wan
from spark_wan import Sender
from spark_wan.channels.base import Channel
from spark_wan.datasource import format as datasource
from spark_wan.ledger import applied_ids
from spark_wan.log.stream_log import StreamLog
from spark_wan.wire.frame import FrameHeader, check_frame
from spark_wan.wire.manifest import Manifest


@pytest.fixture
def wan(spark: Any, sites: Callable[..., Sites]) -> Sites:
    spark_wan.register(spark)
    return sites()


def headers(channel: Channel, manifest: Manifest) -> list[FrameHeader]:
    return [check_frame(channel.get_frame(ref.path), ref.path, ref) for ref in manifest.frames]


# --- options, frames, manifest


def test_options_from_the_topology_and_explicit_options_are_equivalent(
    spark: Any, wan: Sites, tmp_path: Path
) -> None:
    """Both write the same manifest and the same headers; explicit options override the topology."""
    rows = frame(spark, "prices", [price(f"p{n}", n, n / 2) for n in range(30)]).coalesce(1)
    wan.write_events("prices", rows, batchSize=8)
    other = Sites.make(tmp_path / "other")
    explicit = {
        **other.channel_options("events"),
        "site": "newark",
        "remotes": "seattle",
        "table": "prices",
        "key": "id",
        "eventId": "event",
        "stream": PRICES,
        "batchSize": "8",
    }
    rows.write.format("wan").mode("append").options(**explicit).save()

    written = []
    for log in (wan.log("prices"), other.log("prices")):
        manifest = log.read(1)
        different = ("log_id", "created", "frames", "writes", "fingerprint")
        contents = {name: value for name, value in vars(manifest).items() if name not in different}
        headers_seen = [
            (head.origin, head.sent_to, head.stream, head.table, head.events)
            for head in headers(log.channel, manifest)
        ]
        written.append((contents, headers_seen, manifest.writes[0].digest))
    assert written[0] == written[1]
    assert written[0][1] == [
        ("newark", ("seattle",), PRICES, "prices", events) for events in (8, 8, 8, 6)
    ]


def test_a_write_without_rows_adds_no_epoch(spark: Any, wan: Sites) -> None:
    wan.write_events("clicks", frame(spark, "clicks", []))
    assert wan.numbers("clicks") == []


# --- retries


@pytest.mark.core
def test_each_micro_batch_of_a_stream_is_one_epoch(spark: Any, wan: Sites, tmp_path: Path) -> None:
    """A micro-batch that is retried after a restart, in other partitions, adds no epoch."""
    for start in (0, 10):
        wan.append("clicks", clicks(range(start, start + 10)))
    checkpoint = tmp_path / "checkpoint"

    def replicate(partitions: int) -> str:
        reader = spark.readStream.format("delta").option("maxFilesPerTrigger", 1)
        rows = reader.load(str(wan.path("clicks"))).repartition(partitions)
        writer = rows.writeStream.format("wan").options(**wan.sink_options("clicks"))
        writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
        query = writer.start()
        query.awaitTermination()
        return str(query.id)

    query = replicate(2)
    writes = wan.log("clicks").read(2).writes
    assert [(write.query, write.batch) for write in writes] == [(query, "0"), (query, "1")]

    # As after a crash between the manifest and Spark's own commit.
    for name in ("1", ".1.crc"):
        (checkpoint / "commits" / name).unlink()
    wan.append("clicks", clicks(range(20, 25)))
    replicate(3)
    assert wan.numbers("clicks") == [1, 2, 3]
    assert wan.frames("clicks") == wan.named_frames("clicks")
    wan.apply(spark, "events")
    wan.assert_equal("clicks")


def test_a_retried_batch_write_inside_foreach_batch_adds_only_what_is_missing(
    spark: Any, wan: Sites, tmp_path: Path
) -> None:
    """A micro-batch is written to two streams and fails between them. With ``queryId`` and
    ``batchId``, the retry writes only to the second.
    """
    wan.append("clicks", clicks(range(10)))
    fails = [True]

    def write(rows: Any, batch: int) -> None:
        for half in (0, 1):
            part = rows.where(f"hash(event) % 2 = 0 = {half == 0}")
            wan.write_events("clicks", part, stream=f"clicks.{half}", queryId="both", batchId=batch)
            if fails:
                fails.clear()
                raise RuntimeError("between the two writes")

    def run() -> None:
        rows = spark.readStream.format("delta").load(str(wan.path("clicks")))
        writer = rows.writeStream.foreachBatch(write).option(
            "checkpointLocation", str(tmp_path / "checkpoint")
        )
        writer.trigger(availableNow=True).start().awaitTermination()

    with pytest.raises(Exception, match="between the two writes"):
        run()
    assert wan.channel("events").epochs() == {"clicks.0": [1]}
    run()
    assert wan.channel("events").epochs() == {"clicks.0": [1], "clicks.1": [1]}
    logs = [StreamLog(wan.channel("events"), f"clicks.{half}") for half in (0, 1)]
    assert sum(log.read(1).rows for log in logs) == 10


# --- events at the remote site


@pytest.mark.core
def test_b01_operation_sequence_and_event_time_come_from_columns(spark: Any, wan: Sites) -> None:
    """The sequence orders the events of a key, in whatever order they arrive; the operation
    column is not replicated. Without the sequence, the same write is refused as a whole.
    """
    events = [
        ("a1", 1, 1, 1.0, "create"),
        ("a2", 2, 1, 1.5, "put"),
        ("b2", 2, 2, 2.0, "destroy"),
        ("b1", 1, 2, 2.0, "create"),
        ("c1", 1, 3, 3.0, "put"),
        ("d1", 3, 4, 4.0, "destroy"),
        ("d0", 4, 4, 4.5, "create"),
    ]
    rows = spark.createDataFrame(
        events, "event string, turn long, id long, price double, what string"
    )
    rows = rows.selectExpr("*", "timestamp_seconds(1704067200 + turn) AS at").repartition(3)
    options = {"operation": "what", "eventTime": "at"}
    with pytest.raises(
        Exception, match=r"3 keys come twice in one epoch\. Name a `sequence` column"
    ):
        wan.write_events("prices", rows, **options)
    wan.write_events("prices", rows, sequence="turn", **options)
    wan.apply(spark, "events")
    columns = ["event", "turn", "id", "price"]
    assert sorted(wan.table("prices", SEATTLE).schema.names) == sorted([*columns, "at"])
    arrived = wan.table("prices", SEATTLE, columns).to_pylist()
    assert sorted(tuple(row.values()) for row in arrived) == [
        ("a2", 2, 1, 1.5),
        ("c1", 1, 3, 3.0),
        ("d0", 4, 4, 4.5),
    ]

    ids = spark.read.format("delta").load(f"{wan.folder}/seattle/_wan/ledger/event_ids")
    times = ids.selectExpr("event_id", "time div 1000000 - 1704067200").collect()
    assert sorted(map(tuple, times)) == sorted((event[0], event[1]) for event in events)


@pytest.mark.core
def test_an_event_id_used_again_is_a_duplicate_or_a_dead_letter(spark: Any, wan: Sites) -> None:
    """The same event again is dropped. Other content under the same ID is a dead letter with its
    cause, here and in the ack, and later events go on. Equal events of a keyless table with
    different IDs are two rows.

    Fails when the event IDs in the ledger are ignored: nothing is a duplicate.
    """
    wan.write_events("prices", frame(spark, "prices", [price("p1", 1, 1.0), price("p2", 2, 2.0)]))
    wan.write_events(
        "clicks",
        frame(spark, "clicks", [{"event": f"c{n}", "at": at(0), "page": "/"} for n in (1, 2)]),
    )
    wan.apply(spark, "events")

    repeated = [price("p1", 1, 1.0), price("p2", 2, 99.0), price("p3", 3, 3.0)]
    wan.write_events("prices", frame(spark, "prices", repeated))
    wan.write_events(
        "clicks",
        frame(spark, "clicks", [{"event": f"c{n}", "at": at(0), "page": "/"} for n in (2, 3)]),
    )
    status = wan.apply(spark, "events")
    counts = {
        table: (status[table].held, status[table].duplicates, status[table].dead_letters)
        for table in ("prices", "clicks")
    }
    assert counts == {"prices": (None, 1, 1), "clicks": (None, 1, 0)}
    assert wan.rows("prices") == {("p1", 1, 1.0, 0): 1, ("p2", 2, 2.0, 0): 1, ("p3", 3, 3.0, 0): 1}
    assert wan.rows("clicks") == {(at(0), f"c{n}", "/"): 1 for n in (1, 2, 3)}

    (letter,) = spark_wan.dead_letters(wan.topology, SEATTLE, "prices")
    assert (letter.event_id, letter.operation, letter.side) == ("p2", "put", "receiver")
    assert letter.cause == "event ID used again with other content"
    assert letter.values == json.loads(letter.row) == price("p2", 2, 99.0)
    ack = wan.ack("prices")
    assert ack is not None and (ack.applied, ack.held, ack.dead_letters) == (2, None, 1)


# --- acks


def in_background(work: Callable[[], None]) -> tuple[threading.Thread, list[BaseException]]:
    errors: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, errors


def test_block_on_ack_waits_until_the_policy_is_met(spark: Any, wan: Sites) -> None:
    """With ``all``, a commit ends when the remote site has acked the epoch, which is then
    trimmed. With ``none``, it does not wait.
    """
    wan.write_events(
        "clicks", frame(spark, "clicks", clicks([1])), ackPolicy="none", blockOnAck="1h"
    )
    assert wan.frames("clicks") == wan.named_frames("clicks") != set()

    # A thread can use the sink once it has made a DataFrame.
    writing, errors = in_background(
        lambda: wan.write_events("clicks", frame(spark, "clicks", clicks([2])), blockOnAck="1h")
    )
    wait_until(lambda: wan.numbers("clicks") == [1, 2] or bool(errors), "the second epoch")
    assert writing.is_alive()
    wan.apply(spark, "events")
    writing.join(DEADLINE)
    assert not writing.is_alive() and not errors
    assert (wan.numbers("clicks"), wan.frames("clicks")) == ([2], set())


def test_a_sender_of_the_whole_topology_trims_a_user_stream_and_captures_nothing_of_it(
    spark: Any, wan: Sites
) -> None:
    """Its table has no location at the writer, or has the events themselves.

    Fails when it is captured: held, since there is no Delta table or it was replaced.
    """
    wan.append("orders", [{"id": 1, "item": "pear", "amount": 1.0}])
    wan.append("readings", [{"sensor": "attic", "value": 20.5}])
    wan.append("clicks", clicks([1]))
    wan.write_events("clicks", frame(spark, "clicks", clicks([1])))
    wan.write_events("prices", frame(spark, "prices", [price("p1", 1, 0.5)]))
    wan.apply(spark, "events")
    Sender(spark, wan.topology, NEWARK).start(available_now=True).await_termination()
    assert [wan.numbers(table) for table in ("orders", "readings", "clicks", "prices")] == [[1]] * 4
    assert wan.frames("clicks") == wan.frames("prices") == set()


def test_b02_more_events_than_can_be_looked_up_by_literals_arrive(
    spark: Any, wan: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that are sent again are dropped.

    Fails when the look-up reads the newest version of the ledger: recording the IDs makes Spark
    evaluate it once more, all events count as applied, and the apply writes no row.
    """
    monkeypatch.setattr(applied_ids, "FEW_IDS", 5)
    duplicates = 0
    for first, end in ((0, 20), (10, 40)):
        rows = [price(f"p{n}", n, n / 2) for n in range(first, end)]
        wan.write_events("prices", frame(spark, "prices", rows))
        duplicates += wan.apply(spark, "events")["prices"].duplicates
    events = wan.table("prices", SEATTLE, ["event"])["event"].to_pylist()
    assert (len(events), len(set(events)), duplicates) == (40, 40, 10)


def test_register_makes_the_wan_format_known(
    spark: Any, wan: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under a name that is registered nowhere else."""

    class Named(datasource.WanDataSource):
        @classmethod
        def name(cls) -> str:
            return "wan_of_this_test"

    monkeypatch.setattr(datasource, "WanDataSource", Named)
    spark_wan.register(spark)
    writer = frame(spark, "clicks", clicks([1])).write.format("wan_of_this_test").mode("append")
    writer.options(**wan.sink_options("clicks")).save()
    assert wan.numbers("clicks") == [1]


def test_spark_finds_the_installed_wan_format(spark: Any, wan: Sites) -> None:
    """pyspark finds ``pyspark_wan.DefaultSource`` by itself: a new session has no registrations
    of other sessions.
    """
    other = spark.newSession()
    batches = other.readStream.format("wan").options(**wan.channel_options("events")).load()
    assert batches.columns[:3] == ["stream", "log_id", "epoch"]
    other.createDataFrame(
        [("c", at(1), "/")], "event string, at timestamp, page string"
    ).write.format("wan").mode("append").options(**wan.sink_options("clicks")).save()
    assert wan.numbers("clicks") == [1]
