"""Invalid input: the error says what happened, where, and what to do. Nothing is lost or sent by
mistake, and other streams are not affected.

Elsewhere: damaged frames and lost history in ``tests/crash``, columns that cannot be carried in
``test_ddl_family``, types in ``test_types``, changes of a keyless table in ``test_propagation``,
key columns, the topology file and option values in ``tests/unit``.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import default_channel
import pyarrow as pa
import pytest
import yaml
from deltalake import DeltaTable, write_deltalake
from sites import COLUMNS, NEWARK, SEATTLE, Sites
from users import clicks, frame, price, write_epoch
from waiting import wait_until

import spark_wan
from spark_wan.delta.tables import history
from spark_wan.errors import ChannelError, LedgerError, StreamsHeldError, TopologyError, WanError
from spark_wan.log.notes import acks
from spark_wan.receiver.job import Receiver
from spark_wan.receiver.stream import TableStatus
from spark_wan.sender.job import Sender
from spark_wan.sender.outbound_stream import StreamStatus
from spark_wan.state.decisions import parse_decisions
from spark_wan.topology.parsing import load_topology

ORDER = {"id": 900, "item": "after it all", "amount": 9.0}


@pytest.fixture(scope="module")
def _sent(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Sites:
    wan = Sites.make(tmp_path_factory.mktemp("sent") / "wan")
    wan.change(10)
    shutil.copytree(wan.path("orders"), wan.folder / "older")
    wan.change(30)
    wan.send(spark)
    return wan


@pytest.fixture
def sent(_sent: Sites, tmp_path: Path) -> Sites:
    """Newark has published readings, and orders through version 7; ``older`` is orders at
    version 3. No receiver has run yet.
    """
    return _sent.copy(tmp_path / "wan")


def attempt(spark: Any, wan: Sites, **settings: Any) -> dict[str, StreamStatus]:
    """Run the sender, whose streams may be held; return the status of each table."""
    handle = Sender(spark, wan.topology, NEWARK, **{"senders": ["east"], **settings}).start(
        available_now=True
    )
    with suppress(WanError):
        handle.await_termination()
    wait_until(lambda: not handle.is_active, "the end of all streams")
    return {status.table: status for status in handle.status()}


def edit(wan: Sites, table: str, **settings: object) -> None:
    """Change a table's settings in the topology, or add a table."""
    file = wan.folder / "wan.yaml"
    content = yaml.safe_load(file.read_text())
    content["tables"].setdefault(table, {}).update(settings)
    file.write_text(yaml.safe_dump(content))


# --- a source that does not match its stream


def restored_and_written(spark: Any, wan: Sites) -> None:
    """Write up to the version that was published."""
    shutil.rmtree(wan.path("orders"))
    shutil.copytree(wan.folder / "older", wan.path("orders"))
    for n in range(4):
        wan.append("orders", [{"id": 700 + n, "item": "other history", "amount": 0.0}])
    assert wan.version("orders", NEWARK) == 7


def feed_off_for_one_commit(spark: Any, wan: Sites) -> None:
    name = f"delta.`{wan.path('orders')}`"
    spark.sql(
        f"ALTER TABLE {name} SET TBLPROPERTIES (delta.enableChangeDataFeed = false)"
    ).collect()
    wan.upsert("orders", [ORDER])
    spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES (delta.enableChangeDataFeed = true)").collect()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        pytest.param(
            restored_and_written,
            r"version 7 is not the commit that was published: .*restored.*decide orders@7=resync",
            marks=pytest.mark.core,
            id="restored_and_written",
        ),
        pytest.param(
            feed_off_for_one_commit,
            r"no change feed .*ALTER TABLE delta\.`.*orders` SET TBLPROPERTIES",
            id="feed_off_for_one_commit",
        ),
    ],
)
def test_a_source_that_does_not_match_its_stream_is_held(
    spark: Any, sent: Sites, damage: Callable[[Any, Sites], None], message: str
) -> None:
    """Held at every retry, and nothing of it is published; the other table is not affected. Once
    the source is restored, its stream continues.

    Fails without `Publisher._check_source`: the change is published as usual, or not noticed.
    """
    shutil.copytree(sent.path("orders"), sent.folder / "backup")
    damage(spark, sent)
    sent.append("readings", [{"sensor": "goes on", "value": 1.0}])
    status = attempt(spark, sent)
    assert re.match(f"orders: .*{message}", str(status["orders"].held), re.S)
    assert sent.numbers("orders") == [1]
    assert (status["readings"].held, sent.numbers("readings")) == (None, [1, 2])

    shutil.rmtree(sent.path("orders"))
    (sent.folder / "backup").rename(sent.path("orders"))
    sent.upsert("orders", [ORDER])
    assert attempt(spark, sent)["orders"].held is None
    assert sent.log("orders").read(2).last_version == 8


def test_whole_table_operations_wait_for_a_decision(spark: Any, sent: Sites) -> None:
    """A DELETE of all rows, a TRUNCATE, a RESTORE: the cause names both decisions. Earlier commits
    are sent; the other table is not affected. Once distributed, the operation takes effect at the
    remote site; once skipped, the remote site keeps its rows. A decision is recorded and survives a
    restart.

    Fails without `table_operation` (the operation is sent at once) or `StoredDecisions.record` (the
    stream is held again).
    """
    name = f"delta.`{sent.path('orders')}`"
    sent.upsert("orders", [ORDER])
    spark.sql(f"DELETE FROM {name}").collect()
    sent.append("readings", [{"sensor": "goes on", "value": 1.0}])
    status = attempt(spark, sent)
    remedy = r".*`spark-wan decide orders@9=distribute`.*`on_table_operation: distribute`"
    assert re.match(
        f"orders: version 9 is a DELETE without a condition.{remedy}", str(status["orders"].held)
    )
    assert [sent.log("orders").read(n).last_version for n in sent.numbers("orders")] == [7, 8]
    assert (status["readings"].held, sent.numbers("readings")) == (None, [1, 2])

    def orders(*decisions: str) -> str | None:
        decided = parse_decisions(decisions)
        return attempt(spark, sent, tables=["orders"], decisions=decided)["orders"].held

    spark.sql(f"RESTORE TABLE {name} TO VERSION AS OF 8").collect()
    assert "orders: version 10 is a RESTORE." in str(orders("orders@9=distribute"))
    sent.apply(spark)
    assert not sent.rows("orders")
    assert orders("orders@10=distribute") is None
    restored = sent.rows("orders", NEWARK)

    spark.sql(f"TRUNCATE TABLE {name}").collect()
    assert "orders: version 11 is a TRUNCATE." in str(orders())
    # No epoch covers the skipped newest commit: the recorded decision alone prevents another hold.
    assert orders("orders@11=skip") is None
    assert orders() is None
    sent.append("orders", [{"id": 901, "item": "goes on", "amount": 0.0}])
    assert orders() is None
    sent.apply(spark)
    assert sent.rows("orders") == restored + Counter([(0.0, 901, "goes on")])
    sent.assert_equal("readings")


# --- first contact


def test_a_table_without_change_feed_is_refused_with_the_statement_that_enables_it(
    spark: Any, wan: Sites
) -> None:
    """With a snapshot and with a start version, before anything is sent. After that statement,
    both work.
    """
    for table in ("orders", "readings"):
        write_deltalake(wan.path(table), pa.Table.from_pylist([{}], schema=COLUMNS[table]).slice(1))
    row = {"id": 1, "item": "before", "amount": 1.0}
    write_deltalake(
        wan.path("orders"), pa.Table.from_pylist([row], schema=COLUMNS["orders"]), mode="append"
    )
    status = attempt(spark, wan)
    for table in ("orders", "readings"):
        held = str(status[table].held)
        statement = re.search(
            r"ALTER TABLE delta\.`[^`]*` SET TBLPROPERTIES \(delta\.enableChangeDataFeed = true\)",
            held,
        )
        assert held.startswith(f"{table}: the table keeps no change feed") and statement
        assert (wan.numbers(table), wan.frames(table)) == ([], set())
        spark.sql(statement[0]).collect()
        wan.append(
            table, [dict.fromkeys(COLUMNS[table].names) | ({"id": 2} if table == "orders" else {})]
        )

    assert "readings: the table keeps no change feed" in str(attempt(spark, wan)["readings"].held)
    edit(wan, "readings", start={"version": 2})
    assert [status.held for status in attempt(spark, wan).values()] == [None, None]
    wan.apply(spark)
    wan.assert_equal()


def test_f09_a_start_at_a_version_without_history_is_refused(spark: Any, wan: Sites) -> None:
    """A start at a version that the history has lost, or does not have yet."""
    wan.change(10)
    table = DeltaTable(wan.path("readings"))
    table.create_checkpoint()
    for version in range(table.version()):
        (wan.path("readings") / "_delta_log" / f"{version:020d}.json").unlink()
    edit(wan, "orders", start={"version": 7})
    status = attempt(spark, wan)
    assert re.match(
        r"readings: versions 0 to 1 are no longer in the table's history.*set a later `start`",
        str(status["readings"].held),
    )
    assert str(status["orders"].held) == "orders: it is to start at version 7, but its newest is 3."
    assert wan.numbers("readings") == wan.numbers("orders") == []


def test_rows_without_a_usable_key_are_dead_letters(spark: Any, wan: Sites) -> None:
    """A null in the key, and two rows of one key in a commit: dead letters at the sender, with the
    whole row and the cause, recorded once. One of the two rows is sent, and so are the others.

    Fails without `CaptureTask._with_keys`: the rows are sent, or raise an error.
    """
    wan.append("orders", [{"id": n, "item": "valid", "amount": 0.0} for n in range(3)])
    wan.append("readings", [{"sensor": "goes on", "value": 1.0}])
    wan.send(spark)
    wan.append(
        "orders",
        [
            {"id": None, "item": "nameless", "amount": 1.0},
            {"id": None, "item": "nameless", "amount": 1.0},
            {"id": 5, "item": "one", "amount": 5.0},
            {"id": 5, "item": "other", "amount": 5.0},
            {"id": 6, "item": "valid", "amount": 6.0},
        ],
    )
    fork = wan.copy(wan.folder.parent / "fork")
    status = {status.table: status for status in wan.send(spark)}
    assert (status["orders"].held, status["orders"].dead_letters) == (None, 3)
    letters = wan.dead_letters("orders", NEWARK)
    assert {
        (letter["side"], letter["origin_version"], letter["operation"]) for letter in letters
    } == {("sender", 1, "put")}
    rows = sorted((letter["cause"], json.loads(letter["row"])["item"]) for letter in letters)
    (set_aside,) = {"one", "other"} & {item for _, item in rows}
    assert rows == [
        ("duplicate_key", set_aside),
        ("null_in_key", "nameless"),
        ("null_in_key", "nameless"),
    ]
    [twice] = [
        letter
        for letter in spark_wan.dead_letters(wan.topology, NEWARK, "orders")
        if letter.cause == "duplicate_key"
    ]
    assert twice.values == {"id": 5, "item": set_aside, "amount": 5.0}
    assert (twice.key, twice.token) == ('{"id":5}', None)
    assert wan.dead_letters("readings", NEWARK) == []
    wan.apply(spark)
    arrived = {row[1]: row[2] for row in wan.rows("orders")}
    assert arrived == {
        **dict.fromkeys((0, 1, 2, 6), "valid"),
        5: ({"one", "other"} - {set_aside}).pop(),
    }

    # Repeat the capture, as after a crash before the manifest: it adds no dead letters.
    shutil.copytree(
        wan.folder / NEWARK / "_wan" / "ledger", fork.folder / NEWARK / "_wan" / "ledger"
    )
    fork.send(spark)
    assert len(fork.dead_letters("orders", NEWARK)) == 3


# --- sites and places


def test_unknown_names_are_refused_with_a_suggestion(spark: Any, wan: Sites) -> None:
    topology = wan.topology
    for end, site, chosen, message in (
        (Sender, "newak", {}, r"wan\.yaml: site 'newak' is unknown; did you mean 'newark'\?"),
        (Receiver, "seatle", {}, r"wan\.yaml: site 'seatle' is unknown; did you mean 'seattle'\?"),
        (Sender, NEWARK, {"senders": ["esat"]}, r"sender 'esat' is unknown; did you mean 'east'\?"),
        (
            Sender,
            NEWARK,
            {"tables": ["order"]},
            r"table 'order' is unknown; did you mean 'orders'\?",
        ),
        (Sender, SEATTLE, {}, "site seattle has nothing to send"),
        (Receiver, NEWARK, {}, "nothing comes to site newark: no sender has it among its remotes"),
    ):
        with pytest.raises(TopologyError, match=message):
            end(spark, topology, site, **chosen)
    text = (wan.folder / "wan.yaml").read_text()
    (wan.folder / "invalid.yaml").write_text(text.replace("- seattle", "- seatle"))
    with pytest.raises(
        TopologyError,
        match=r"senders\.east\.remotes\[0\]: unknown site 'seatle'; did you mean 'seattle'\?",
    ):
        load_topology(wan.folder / "invalid.yaml")


@pytest.mark.channels("directory")
def test_unwritable_channel_and_state_are_refused_before_anything_is_sent(
    spark: Any, wan: Sites
) -> None:
    """A file stands where the channel or a site's state should be: reported before any capture
    or apply. Nothing is lost.
    """
    wan.change(10)
    channel, newark, seattle = (
        wan.folder / name for name in ("channel", f"{NEWARK}/_wan", f"{SEATTLE}/_wan")
    )
    seattle.parent.mkdir()
    for place in (channel, newark, seattle):
        place.write_text("in the way")
    with pytest.raises(
        ChannelError,
        match=r"channel .*/channel: cannot be opened .*Check the path or URL, its permissions",
    ):
        Sender(spark, wan.topology, NEWARK, senders=["east"]).start()
    with pytest.raises(
        LedgerError,
        match=r"the ledger at .*seattle/_wan/ledger/applied cannot be created .*`state` can "
        r"be written",
    ):
        Receiver(spark, wan.topology, SEATTLE, senders=["east"]).start()
    channel.unlink()
    status = attempt(spark, wan)
    assert re.search(
        r"newark/_wan/.*: cannot read the sender's checkpoint of .*Check that the site's `state`",
        str(status["orders"].held),
    )
    assert wan.numbers("orders") == []
    for place in (newark, seattle):
        place.unlink()
    wan.replicate(spark)
    wan.assert_equal()


# --- objects in the channel


@pytest.mark.channels("directory", "s3")
def test_a_foreign_or_newer_object_in_the_channel_holds_only_its_stream(
    spark: Any, wan: Sites
) -> None:
    """Foreign files that no stream reads are ignored. A foreign, altered or newer manifest, a
    damaged, newer or foreign frame, and a table unknown at this site hold their own stream, and its
    ack has the cause. All other streams are applied, and the receiver goes on.
    """
    channel: Any = wan.channel("events")
    for kind in ("altered", "newer", "damaged-frame", "frame", "foreign-frame", "valid"):
        write_epoch(wan, "clicks", clicks([1]), stream=kind, batchSize=1)
    settings = (wan.folder / "wan.yaml").read_text()
    edit(
        wan,
        "strays",
        **yaml.safe_load(settings)["tables"]["prices"]
        | {"at": {site: f"./{site}/strays" for site in (NEWARK, SEATTLE)}},
    )
    write_epoch(wan, "prices", [price("p1", 1, 1.0)], table="strays", stream="stray")
    (wan.folder / "wan.yaml").write_text(settings)

    def manifest(stream: str) -> str:
        return f"log/{stream}/{1:020d}.json"

    def change(path: str, how: Callable[[bytes], bytes]) -> None:
        channel.put(path, how(channel.read(path)))

    originals = {path: channel.read(path) for path in channel.list_paths("log/")}
    change(manifest("altered"), lambda data: data.replace(b'"clicks"', b'"prices"'))
    change(manifest("newer"), lambda data: data.replace(b"WANM 2", b"WANM 3"))
    frames = {
        kind: channel.list_paths(f"frames/{kind}/")[0]
        for kind in ("damaged-frame", "frame", "foreign-frame")
    }
    originals |= {path: channel.read(path) for path in frames.values()}
    change(frames["damaged-frame"], lambda data: data[:-1] + bytes([data[-1] ^ 1]))
    change(frames["frame"], lambda data: data[:4] + b"\x03" + data[5:])
    channel.put(frames["foreign-frame"], b"PAR1")
    channel.put(manifest("foreign"), b"{}")
    for name in (
        "notes.txt",
        "log/notes.txt",
        "log/valid/notes.txt",
        "frames/valid/notes.frame",
        "acks/valid/notes.txt",
    ):
        channel.put(name, b"foreign")
    assert "notes.txt" in channel.foreign()

    expected = {
        "altered": r"manifest 1 of altered: truncated or altered \(checksum\)\. Its stream is "
        r"held\. Restore the object",
        "newer": r"manifest 1 of newer: manifest written by a newer spark_wan, in version 3; this "
        r"spark_wan reads versions 1 and 2\..* Update spark_wan at this site",
        "foreign": r"manifest 1 of foreign: not a spark_wan manifest \(foreign or empty object\)\. "
        r"Its stream is held",
        "damaged-frame": r"frames/damaged-frame/\w+-00000\.frame: .*checksum",
        "frame": r"frames/frame/\w+-00000\.frame: frame written by a newer spark_wan, in version "
        r"3; this spark_wan reads versions 1 and 2\..* Update spark_wan at this site",
        "foreign-frame": r"frames/foreign-frame/\w+-00000\.frame: not a spark_wan frame "
        r"\(foreign or "
        r"empty object\)\. Its stream is held",
        "stray": r"stray: table 'strays' is not at site seattle in .*wan\.yaml\. Add it below "
        r"`tables:` with `at: \{seattle: …\}`",
        "valid": None,
    }

    def receive() -> list[TableStatus]:
        receiver = Receiver(spark, wan.topology, SEATTLE, senders=["events"])
        handle = receiver.start(available_now=True)
        with suppress(StreamsHeldError):
            handle.await_termination()
        return handle.status()

    held = {status.stream: status.held for status in receive()}
    assert held.keys() == expected.keys()
    answers = {
        stream: json.loads(data) for stream in expected for data in acks(channel, stream).values()
    }
    for stream, message in expected.items():
        if message is None:
            assert (held[stream], answers[stream]["applied"]) == (None, 1)
        else:
            assert re.search(message, str(held[stream])), held[stream]
            ack = answers[stream]
            assert (ack["applied"], ack["held"], ack["cause"]) == (0, 1, held[stream])
    assert sum(wan.rows("clicks").values()) == 1

    for path, data in originals.items():
        channel.put(path, data)
    statuses = receive()
    assert {status.stream for status in statuses if status.held} == {"foreign", "stray"}
    assert sum(status.duplicates for status in statuses) == 5
    assert sum(wan.rows("clicks").values()) == 1


# --- the user's sink

ROW = ("e1", 1, 1, 1.0)


@pytest.mark.parametrize(
    ("options", "rows", "message"),
    [
        pytest.param(
            {"bachSize": 3},
            [ROW],
            r"wan sink: unknown option 'bachsize'; did you mean 'batchSize'\?",
            id="when Spark plans",
        ),
        pytest.param(
            {"operation": "event"},
            [ROW],
            r"unknown operations \['e1'\] in column 'event'; known are create, put, destroy",
            id="in a task",
        ),
        pytest.param(
            {},
            [ROW, ("e1", 1, 2, 1.0)],
            r"1 event IDs come twice in one epoch\. .*Nothing of it was sent",
            id="at the commit",
        ),
    ],
)
def test_the_sink_refuses_invalid_input_as_a_whole(
    spark: Any,
    wan: Sites,
    options: dict[str, object],
    rows: list[tuple[Any, ...]],
    message: str,
) -> None:
    """Spark's exception contains our message, and no manifest or frame is left, but for frames in
    a topic: it deletes no single ones.
    """
    spark_wan.register(spark)
    events = frame(
        spark, "prices", [dict(zip(COLUMNS["prices"].names, row, strict=True)) for row in rows]
    )
    with pytest.raises(Exception, match=message):
        events.coalesce(1).write.format("wan").mode("append").options(
            **{**wan.sink_options("prices"), **options}
        ).save()
    assert wan.numbers("prices") == []
    assert default_channel.KIND == "kafka" or wan.frames("prices") == set()


def test_a_commit_with_a_shifted_time_is_the_same_commit(spark: Any, wan: Sites) -> None:
    """A store that keeps whole seconds, or a log copied quickly, has commits of equal time. Delta
    shifts the time of the later one, when it reads both; a snapshot reads only the newest.

    Fails when times are compared to the millisecond: the stream is held as if the source was
    restored.
    """
    wan.change(10)
    log = list((wan.path("orders") / "_delta_log").glob("*.json"))
    second = int(max(file.stat().st_mtime for file in log))
    for file in log:
        os.utime(file, (second, second))
    assert attempt(spark, wan)["orders"].held is None
    newest, *_ = history(spark, str(wan.path("orders")), len(log) - 2)
    assert newest.time > second * 1_000
    wan.upsert("orders", [ORDER])
    assert attempt(spark, wan)["orders"].held is None
    assert wan.numbers("orders") == [1, 2]
