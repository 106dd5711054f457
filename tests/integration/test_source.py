"""The source: one row per frame, in order and without gaps, within the read limits; an
error where epochs are missing.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import default_channel
import pytest
from sites import Sites
from users import CLICKS, PRICES, clicks, price, write_epoch
from waiting import wait_until

import spark_wan
from spark_wan.datasource.options import SourceOptions
from spark_wan.datasource.source import WanStreamReader
from spark_wan.errors import LogGapError, OptionError, TopologyError
from spark_wan.log.heads import WHOLE_LISTING_INTERVAL
from spark_wan.log.notes import announce
from spark_wan.wire.frame import decode_frame

Batches = list[list[tuple[str, int]]]
"""Stream and epoch of each frame, by micro-batch; those without rows are left out."""

COLUMNS = (
    "stream string, log_id string, epoch bigint, batch int, kind string, origin string, sent_to "
    "array<string>, table string, table_id string, selection string, first_version bigint, "
    "last_version bigint, events bigint, possible_duplicate boolean, schema string, path string, "
    "checksum bigint, payload binary"
)


@pytest.fixture(scope="module")
def _written(tmp_path_factory: pytest.TempPathFactory) -> Sites:
    written = Sites.make(tmp_path_factory.mktemp("source") / "wan")
    write_epoch(written, "clicks", clicks(range(5)), batchSize=2)
    write_epoch(written, "clicks", clicks(range(5, 7)))
    write_epoch(written, "clicks", clicks(range(7, 9)))
    write_epoch(written, "prices", [price("p1", 1, 1.0)])
    return written


@pytest.fixture
def wan(_written: Sites, tmp_path: Path) -> Sites:
    """Epochs 1 to 3 of clicks (the first in three batches) and epoch 1 of prices."""
    return _written.copy(tmp_path / "wan")


def load(spark: Any, wan: Sites, **options: object) -> Any:
    spark_wan.register(spark)
    channel = wan.channel_options("events")
    return spark.readStream.format("wan").options(**channel, **options).load()


def read(
    spark: Any,
    wan: Sites,
    checkpoint: str = "checkpoint",
    after_batch: Callable[[int], None] = lambda batch: None,
    **options: object,
) -> Batches:
    """Read the available epochs. ``after_batch`` is called with the number of every micro-batch
    that had rows, after they were read.
    """
    batches: Batches = []

    def take(rows: Any, batch: int) -> None:
        batch_rows = (
            rows.select("stream", "epoch", "batch").orderBy("stream", "epoch", "batch").collect()
        )
        if batch_rows:
            batches.append([(row["stream"], row["epoch"]) for row in batch_rows])
            after_batch(len(batches))

    writer = load(spark, wan, **options).writeStream.foreachBatch(take).trigger(availableNow=True)
    writer.option("checkpointLocation", str(wan.folder / checkpoint)).start().awaitTermination()
    return batches


def reader(wan: Sites, **options: object) -> WanStreamReader:
    """Return the source without Spark."""
    strings = {name: str(value) for name, value in options.items()}
    return WanStreamReader(SourceOptions.parse({**wan.channel_options("events"), **strings}))


def next_offset(source: WanStreamReader, start: dict[str, Any]) -> dict[str, Any]:
    return source.latestOffset(start, source.getDefaultReadLimit())


def epochs_between(
    source: WanStreamReader, start: dict[str, Any], end: dict[str, Any]
) -> list[tuple[str, int]]:
    """Return stream and epoch of each frame of a micro-batch."""
    return [(each.row["stream"], each.row["epoch"]) for each in source.partitions(start, end)]


def read_without_spark(wan: Sites, **options: object) -> Batches:
    """Return what :func:`read` returns."""
    source = reader(wan, **options)
    start, batches = source.initialOffset(), Batches()
    while (end := next_offset(source, start)) != start:
        batches.append(epochs_between(source, start, end))
        start = end
    return batches


# --- rows


def test_a_row_is_a_frame(spark: Any, wan: Sites) -> None:
    """Header and manifest as columns, the frame unchanged; the columns are fixed."""
    rows: list[Any] = []
    source = load(spark, wan)
    assert ", ".join(f"{name} {kind}" for name, kind in source.dtypes) == COLUMNS
    query = source.writeStream.foreachBatch(
        lambda batch_rows, batch: rows.extend(batch_rows.collect())
    ).trigger(availableNow=True)
    query.option("checkpointLocation", str(wan.folder / "checkpoint")).start().awaitTermination()
    (row,) = [
        row for row in rows if row["stream"] == CLICKS and (row["epoch"], row["batch"]) == (1, 1)
    ]
    manifest = wan.log("clicks").read(1)
    ref = manifest.frames[1]
    header, events = decode_frame(bytes(row["payload"]), row["path"], ref)
    assert row.asDict() == {
        "stream": CLICKS,
        "log_id": manifest.log_id,
        "epoch": 1,
        "batch": 1,
        "kind": "events",
        "origin": "newark",
        "sent_to": ["seattle"],
        "table": "clicks",
        "table_id": manifest.table_id,
        "selection": "all",
        "first_version": -1,
        "last_version": -1,
        "events": 2,
        "possible_duplicate": False,
        "schema": json.dumps(manifest.schema),
        "path": ref.path,
        "checksum": ref.checksum,
        "payload": row["payload"],
    }
    assert (header.origin, header.sent_to, header.stream) == ("newark", ("seattle",), CLICKS)
    assert events.column("event").to_pylist() == ["click 2", "click 3"]
    assert sorted((row["stream"], row["epoch"], row["batch"]) for row in rows) == [
        *((CLICKS, 1, batch) for batch in range(3)),
        (CLICKS, 2, 0),
        (CLICKS, 3, 0),
        (PRICES, 1, 0),
    ]


# --- limits, start and end


def test_read_limits_count_whole_epochs(wan: Sites) -> None:
    """By number: streams in turn. By bytes: epochs that fit, or one that does not. A limit that
    is never reached has no effect.
    """
    one_by_one = read_without_spark(wan, maxEpochsPerTrigger=1)
    assert one_by_one == [[(CLICKS, 1)] * 3, [(PRICES, 1)], [(CLICKS, 2)], [(CLICKS, 3)]]

    limit = wan.log("clicks").read(2).bytes + wan.log("clicks").read(3).bytes
    logs, epochs = {CLICKS: wan.log("clicks"), PRICES: wan.log("prices")}, 0
    batches = read_without_spark(wan, maxBytesPerTrigger=limit)
    for taken in map(set, batches):
        size = sum(logs[stream].read(epoch).bytes for stream, epoch in taken)
        assert len(taken) == 1 or size <= limit
        epochs += len(taken)
    assert epochs == 4 > len(batches)
    assert len(read_without_spark(wan, maxBytesPerTrigger="1GiB")) == 1


def test_a_busy_stream_does_not_starve_others(wan: Sites) -> None:
    """One epoch per trigger, and a new epoch of clicks before each. Fails (never reads prices)
    when the same stream always comes first.
    """
    source = reader(wan, maxEpochsPerTrigger=1)
    start = source.initialOffset()
    for n in range(3):
        write_epoch(wan, "clicks", clicks([100 + n]))
        start = next_offset(source, start)
    assert start["streams"][PRICES] == 1


def test_starting_offsets_choose_the_first_epoch(spark: Any, wan: Sites) -> None:
    """``earliest``, ``latest``, or the first epoch of some streams while the others start at
    their oldest. A checkpoint overrides them.
    """
    latest = reader(wan, startingOffsets="latest")
    start = latest.initialOffset()
    assert next_offset(latest, start) == start
    named = json.dumps({CLICKS: 3})
    assert read(spark, wan, startingOffsets=named) == [[(CLICKS, 3), (PRICES, 1)]]
    write_epoch(wan, "clicks", clicks([9]))
    assert epochs_between(latest, start, next_offset(latest, start)) == [(CLICKS, 4)]
    assert read(spark, wan, startingOffsets="earliest", streams=CLICKS) == [[(CLICKS, 4)]]
    with pytest.raises(
        OptionError,
        match=r"startingOffsets: channel .*events has no stream 'newark.events.click'; "
        r"did you mean 'newark.events.clicks'",
    ):
        reader(wan, startingOffsets=json.dumps({CLICKS[:-1]: 3})).initialOffset()


def test_available_now_reads_only_epochs_present_at_its_start(spark: Any, wan: Sites) -> None:
    """Also when it starts with a micro-batch that an earlier run did not finish."""

    def write_and_fail(batch: int) -> None:
        write_epoch(wan, "clicks", clicks([100 + batch]))
        if batch == 2:
            raise RuntimeError("stopped in its second micro-batch")

    with pytest.raises(Exception, match="in its second micro-batch"):
        read(spark, wan, after_batch=write_and_fail, streams=CLICKS, maxEpochsPerTrigger=1)

    def write(batch: int) -> None:
        write_epoch(wan, "clicks", clicks([200 + batch]))

    second_run = read(spark, wan, after_batch=write, streams=CLICKS, maxEpochsPerTrigger=1)
    assert second_run == [[(CLICKS, number)] for number in (2, 3, 4, 5)]
    assert wan.numbers("clicks")[-1] == 9


def test_a_running_query_reports_its_lag(spark: Any, wan: Sites) -> None:
    """Its progress has the newest epochs of the channel and the epochs that were read. Only the
    named streams are read.
    """
    seen: list[int] = []
    writer = load(spark, wan, streams=CLICKS, maxEpochsPerTrigger=1).writeStream.trigger(
        processingTime="100 milliseconds"
    )
    writer = writer.foreachBatch(
        lambda rows, batch: seen.extend(
            row["epoch"] for row in rows.select("epoch").distinct().collect()
        )
    )
    query = writer.option("checkpointLocation", str(wan.folder / "checkpoint")).start()
    try:
        wait_until(lambda: query.exception() is not None or len(seen) == 3, "three epochs")
        write_epoch(wan, "clicks", clicks([100]))
        wait_until(lambda: query.exception() is not None or len(seen) == 4, "another")
        first = next(
            progress.sources[0] for progress in query.recentProgress if progress.numInputRows
        )
    finally:
        query.stop()
    assert seen == [1, 2, 3, 4]
    read_to, there = (
        json.loads(offset)["streams"] for offset in (first.endOffset, first.latestOffset)
    )
    assert (read_to, there) == ({CLICKS: 1}, {CLICKS: 3})


def test_b40_reannounced_epochs_are_marked_as_possible_duplicates(spark: Any, wan: Sites) -> None:
    """They are redelivered with the mark; first deliveries have none."""
    rows: list[tuple[str, int, bool]] = []

    def run() -> list[tuple[str, int, bool]]:
        rows.clear()
        writer = load(spark, wan).writeStream.trigger(availableNow=True)
        columns = ("stream", "epoch", "possible_duplicate")
        writer = writer.foreachBatch(
            lambda batch_rows, batch: rows.extend(
                map(tuple, batch_rows.select(*columns).distinct().collect())
            )
        )
        writer.option(
            "checkpointLocation", str(wan.folder / "checkpoint")
        ).start().awaitTermination()
        return sorted(rows)

    channel = wan.channel("events")
    announce(channel, CLICKS, 1, 1)
    assert {mark for _, _, mark in run()} == {False}
    write_epoch(wan, "clicks", clicks([9]))
    announce(channel, CLICKS, 2, 1)
    assert run() == [(CLICKS, 2, True), (CLICKS, 3, True), (CLICKS, 4, False)]
    assert run() == []


# --- missing epochs


def trim(wan: Sites, through: int) -> None:
    """Trim as the sender does once every site has acked: the newest manifest stays, without its
    frames.
    """
    log = wan.log("clicks")
    *older, newest = log.since(0)
    trimmed = [number for number in older if number <= through]
    paths = [frame.path for number in trimmed for frame in log.read(number).frames]
    log.channel.trim(CLICKS, trimmed[-1], paths)
    if newest <= through:
        log.channel.trim_frames(CLICKS, [frame.path for frame in log.read(newest).frames])


def test_a_query_that_missed_trimmed_epochs_fails(spark: Any, wan: Sites) -> None:
    """It reports the missing epochs and skips nothing; a new query starts with the oldest epoch
    in the log.
    """
    read(spark, wan, maxEpochsPerTrigger=1, startingOffsets=json.dumps({CLICKS: 3, PRICES: 1}))
    late = reader(wan, streams=CLICKS)
    start = {**late.initialOffset(), "streams": {CLICKS: 1}}
    trim(wan, 2)
    message = (
        r"wan source: epochs 2 to 3 of newark\.events\.clicks cannot be read any more from .*: "
        r"it has 3 and later\..*new checkpoint"
    )
    with pytest.raises(LogGapError, match=message):
        late.partitions(start, next_offset(late, start))
    assert reader(wan, streams=CLICKS).initialOffset()["streams"] == {CLICKS: 2}

    write_epoch(wan, "clicks", clicks([9]))
    trim(wan, 4)
    assert wan.numbers("clicks") == [4]
    if default_channel.KIND == "kafka":
        # A topic keeps the frames of the newest epoch until later ones are trimmed, too.
        assert reader(wan, streams=CLICKS).initialOffset()["streams"] == {CLICKS: 3}
        return
    assert reader(wan, streams=CLICKS).initialOffset()["streams"] == {CLICKS: 4}
    assert read(spark, wan, "new") == [[(PRICES, 1)]]
    with pytest.raises(
        Exception,
        match=r"wan source: epoch 4 of newark\.events\.clicks cannot be read any more "
        r".*new checkpoint",
    ):
        read(spark, wan)


@pytest.mark.channels("directory", "s3")
def test_f16_a_gap_in_the_log_is_an_error(wan: Sites) -> None:
    wan.channel("events").trim_manifest(CLICKS, 2)
    source = reader(wan, streams=CLICKS)
    with pytest.raises(
        LogGapError,
        match=r"the log of newark\.events\.clicks goes from 1 to 3: manifests are missing",
    ):
        source.initialOffset()
    with pytest.raises(
        LogGapError,
        match=r"epochs 1 to 3 of newark\.events\.clicks cannot be read any more.*it has 3",
    ):
        source.partitions(
            {"streams": {CLICKS: 0}, "again": {}}, {"streams": {CLICKS: 3}, "again": {}}
        )


def minutes_later(source: WanStreamReader, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the time come at which logs are listed as a whole: their heads are as they were."""
    clock = time.monotonic() + WHOLE_LISTING_INTERVAL
    monkeypatch.setattr(source._heads, "clock", lambda: clock)


@pytest.mark.channels("directory", "s3")
@pytest.mark.parametrize("fault", ["deleted", "restored"])
def test_f17_a_log_that_lost_epochs_is_an_error(
    wan: Sites, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = reader(wan, streams=CLICKS)
    start = next_offset(source, source.initialOffset())
    lost = (1, 2, 3) if fault == "deleted" else (3,)
    for epoch in lost:
        wan.channel("events").trim_manifest(CLICKS, epoch)
    end = 0 if fault == "deleted" else 2
    minutes_later(source, monkeypatch)
    with pytest.raises(
        LogGapError,
        match=rf"the log of newark\.events\.clicks ends at {end}, "
        "but this query has read epoch 3.*Restore it",
    ):
        next_offset(source, start)


# --- options


def test_the_site_option_selects_the_channel_of_its_sender(wan: Sites) -> None:
    """The topology has the channel of a sender that serves the site. Unknown names get a
    suggestion.
    """
    config = str(wan.folder / "wan.yaml")
    parse = SourceOptions.parse
    assert (
        parse({"config": config, "sender": "events", "site": "seattle"}).channel
        == wan.channel("events").url
    )
    with pytest.raises(TopologyError, match="site 'seatle' is unknown; did you mean 'seattle'"):
        parse({"config": config, "sender": "events", "site": "seatle"})
    with pytest.raises(
        OptionError, match="sender 'events' does not serve site 'newark'; it serves seattle"
    ):
        parse({"config": config, "sender": "events", "site": "newark"})


def test_an_unknown_option_is_named_in_the_exception(spark: Any, wan: Sites) -> None:
    """In the text of the exception, whatever Spark adds to it."""
    with pytest.raises(
        Exception,
        match="wan source: unknown option 'maxepochpertrigger'; did you mean 'maxEpochsPerTrigger'",
    ):
        read(spark, wan, maxEpochPerTrigger=1)


# --- processes

QUERIES = """
import json
import sys
from spark_wan.local import local_session

folder, channel, config = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3]
settings = {"spark.master": "local[2]", "spark.sql.warehouse.dir": folder + "/warehouse"}
spark = local_session("killed", quick=True, **settings)

source = spark.readStream.format("wan").options(**channel).load().writeStream
source = source.format("noop").option("checkpointLocation", folder + "/source")
source.trigger(processingTime="0 seconds").start()

rows = spark.readStream.format("rate").load()
rows = rows.selectExpr("string(value) AS event", "timestamp AS at", "'/' AS page")
sink = rows.writeStream.format("wan").option("checkpointLocation", folder + "/sink")
sink = sink.options(config=config, sender="events", table="clicks", eventId="event")
sink.options(stream="waiting", blockOnAck="1h").start().awaitTermination()
"""


def test_b15_processes_of_source_and_sink_end_with_their_parents(
    wan: Sites, tmp_path: Path
) -> None:
    """Driver and JVM are killed while the source polls for epochs and a commit waits for an ack."""
    script = tmp_path / "queries.py"
    script.write_text(QUERIES)
    channel = wan.channel("events")
    options = json.dumps(wan.channel_options("events"))
    words = [sys.executable, str(script), str(tmp_path), options, str(wan.folder / "wan.yaml")]
    with (tmp_path / "output").open("w") as output:
        driver = subprocess.Popen(words, stdout=output, stderr=output, start_new_session=True)
    try:
        wait_until(
            lambda: (
                driver.poll() is not None
                or (
                    bool(channel.stream_epochs("waiting"))
                    and (tmp_path / "source/commits/0").exists()
                )
            ),
            "an epoch in the channel, and a poll of the source",
        )
        processes = processes_of_session(driver.pid)
        assert any("python_streaming_source_runner" in command for command in processes.values()), (
            tmp_path / "output"
        ).read_text()
        for process, command in processes.items():
            if process == driver.pid or "java" in command.partition(" ")[0]:
                os.kill(process, signal.SIGKILL)
        driver.wait()
        wait_until(lambda: not processes_of_session(driver.pid), "the end of all workers")
    finally:
        for process in processes_of_session(driver.pid):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        driver.wait()


def processes_of_session(leader: int) -> dict[int, str]:
    """Return the processes of a session, whether or not its leader still runs: ID -> command
    line.
    """
    processes = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, _, _, session = (folder / "stat").read_text().rpartition(")")[2].split()[:4]
            if int(session) == leader and state != "Z":
                processes[int(folder.name)] = (folder / "cmdline").read_text().replace("\0", " ")
        except OSError:
            continue
    return processes
