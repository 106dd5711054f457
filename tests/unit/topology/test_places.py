"""Where tables, channels and states may be: paths, URLs and catalog names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fakes import memory_channel
from inline import Running
from topologies import refusal, topology

from spark_wan.control.keeper import ControlKeeper
from spark_wan.datasource.options import SinkOptions
from spark_wan.delta.sql import reference
from spark_wan.errors import TopologyError
from spark_wan.log.ack_watch import AckWatch
from spark_wan.sender.job import Sender
from spark_wan.state.checkpoints import StoredCheckpoints
from spark_wan.topology.values import catalog_parts, is_path
from spark_wan.wire.checkpoint import SenderCheckpoint

AT = "tables.flights.at.seattle"

CATALOG_NAMES = [
    ("sales.orders", ("sales", "orders")),
    ("main.sales.orders", ("main", "sales", "orders")),
    ("main.`my schema`.`t.1`", ("main", "my schema", "t.1")),
    ("`a.b`.`c``d`.e", ("a.b", "c`d", "e")),
    ("`a-b`.`c/d`", ("a-b", "c/d")),
    ("x.`.hidden`", ("x", ".hidden")),
    ("`./x`.y", ("./x", "y")),
    ("`~`.y", ("~", "y")),
    ("x.````", ("x", "`")),
    ("größe.`1st`", ("größe", "1st")),
    ("deep.er.cata.log", ("deep", "er", "cata", "log")),
]


@pytest.mark.parametrize(("name", "parts"), CATALOG_NAMES)
def test_catalog_and_sql_parse_a_catalog_name_alike(name: str, parts: tuple[str, ...]) -> None:
    """Dots, slashes and backticks inside backticks are part of the name, in SQL as here."""
    assert topology((AT, name)).table("flights").location("seattle") == name
    assert not is_path(name)
    assert catalog_parts(name) == parts
    assert reference(name) == ".".join("`" + part.replace("`", "``") + "`" for part in parts)
    assert catalog_parts(reference(name)) == parts


@pytest.mark.parametrize(
    "name",
    [
        "flights",
        "a b.c",
        "a..b",
        "a.`b",
        "a.b`",
        "a.``",
        "a.`b`c",
        "`a`b.c",
        "a.b.c.d.e",
        "my-lake.s.t",
    ],
)
def test_an_invalid_catalog_name_is_refused_with_a_hint(name: str) -> None:
    assert "odd names in backticks" in refusal((AT, name))
    with pytest.raises(TopologyError, match="is not a catalog name"):
        catalog_parts(name)


def test_a_path_named_as_in_spark_sql_is_refused_with_the_path() -> None:
    """``delta.`/x` `` would escape the comparison of places."""
    assert refusal((AT, "delta.`/lake/flights`")).endswith(
        "is Spark's way to name a path; write /lake/flights"
    )


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("main.sales.orders", "MAIN.Sales.ORDERS"),
        ("main.sales.orders", "`main`.sales.`orders`"),
        ("sales.orders", "spark_catalog.`sales`.orders"),
        ("main.`my schema`.`t.1`", "main.`My Schema`.`T.1`"),
        ("/lake/orders", "file:///lake/orders/"),
        ("s3://bucket/orders", "s3a://bucket/orders/"),
        ("abfs://c@a.dfs.core.windows.net/x", "abfss://c@a.dfs.core.windows.net/x"),
    ],
)
def test_two_spellings_of_one_place_are_one_place(one: str, other: str) -> None:
    """Two tables at one place would overwrite each other."""
    message = refusal((AT, one), ("tables.readings.at.seattle", other))
    assert f"tables.readings.at.seattle: table 'flights' is at {other!r} already" in message


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("/lake/flights", "file:///lake/flights/"),
        ("s3://bucket/flights", "s3a://bucket/flights/"),
        ("dbfs:/mnt/lake/flights", "/dbfs/mnt/lake/flights"),
    ],
)
def test_two_sites_with_a_table_at_one_place_are_refused(one: str, other: str) -> None:
    """Each would apply what it has sent. A catalog has a table for each site."""
    message = refusal(("tables.flights.at.newark", one), (AT, other))
    assert f"{AT}: site 'newark' has table 'flights' at {other!r} already" in message
    assert topology(("tables.flights.at.newark", "a.b"), (AT, "a.b"))


def test_links_are_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    message = refusal(
        (AT, f"{tmp_path}/real/x"), ("tables.readings.at.seattle", f"{tmp_path}/link/x")
    )
    assert "table 'flights' is at" in message


@pytest.mark.parametrize(
    ("path", "what"),
    [
        ("tables.readings.at.seattle", "the table"),
        ("tables.readings.at.newark", "the table"),
        ("senders.east.channel", "the channel"),
        ("sites.newark.state", "the state"),
        ("sites.seattle.state", "the state"),
    ],
)
@pytest.mark.parametrize("table", ["/lake/flights", "s3://bucket/flights/"])
def test_a_place_in_the_folder_of_a_table_is_refused(path: str, what: str, table: str) -> None:
    """A VACUUM of the table deletes what is there; so does whoever drops the table."""
    inside = f"{table.rstrip('/')}/deep/er"
    message = refusal((AT, table), (path, inside))
    assert f"{path}: {inside!r} is in the folder of table 'flights' at site 'seattle'" in message
    assert f"give {what} a place outside of it" in message
    assert topology((AT, table), (path, f"{table.rstrip('/')}-deep"))


@pytest.mark.parametrize("path", ["senders.east.channel", "sites.newark.state"])
def test_the_folder_of_a_table_is_no_channel_and_no_state(path: str) -> None:
    message = refusal((AT, "/lake/flights"), (path, "/lake/flights/"))
    assert f"{path}: '/lake/flights' is the folder of table 'flights' at site 'seattle'" in message


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a.`b.c`", "`a.b`.c"),
        ("a.b.c", "a.`b.c`"),
        ("a.b", "main.a.b"),
        ("a.`/b`", "/b"),
        ("a.`b``c`", "a.`bc`"),
    ],
)
def test_similar_names_of_two_places_are_two_places(one: str, other: str) -> None:
    loaded = topology((AT, one), ("tables.readings.at.seattle", other))
    assert loaded.table("readings").location("seattle") == other


OF_SPARK = [
    "hdfs://name/x",
    "s3a://b/x",
    "s3://b/x",
    "gs://b/x",
    "abfss://c@a.dfs.core.windows.net/x",
    "dbfs:/mnt/x",
]


@pytest.mark.parametrize("location", [*OF_SPARK, "/Volumes/main/s/v/x", "/dbfs/mnt/x", "file:///x"])
def test_a_table_may_be_wherever_spark_reads(location: str) -> None:
    assert topology((AT, location)).table("flights").location("seattle") == location


@pytest.mark.parametrize(
    "place",
    ["/Volumes/main/s/v/x", "/dbfs/mnt/x", "file:///x", "s3a://b/x", "s3://b/x", "gs://b/x"],
)
def test_channels_and_states_may_be_in_object_stores_and_mounted_directories(place: str) -> None:
    loaded = topology(
        ("senders.east.channel", place), ("sites.seattle.state", f"{place}/of/seattle")
    )
    assert (loaded.sender("east").channel, loaded.site("seattle").state) == (
        place,
        f"{place}/of/seattle",
    )


OURS = ("sites.newark.state", "senders.east.channel")
"""Read and written through the object store's client."""
REFUSED = [
    (OURS, "dbfs:/mnt/x", "write the URL of the object store"),
    (OURS, "dbfs:///mnt/x", "write the URL of the object store"),
    (OURS, "hdfs://name/x", "HDFS mount"),
    (OURS, "HDFS://name/x", "HDFS mount"),
    (OURS, "wasbs://c@a/x", "write abfss://"),
    (OURS, "https://host/x", "unknown scheme 'https'"),
    ((*OURS, AT), "file:/x", "write file://..."),
    ((*OURS, AT), "file://x", "write file:///..."),
    (("sites.newark.state", AT), "az://c/x", "write abfss://"),
    (("sites.newark.state", AT), "memory://x", "Spark does not know it"),
    ((AT,), "s3:/b/x", "write s3://..."),
    (("senders.east.channel",), "kafka:broker:9092/wan", "is not a URL; write kafka://..."),
    (("sites.newark.state", AT), "kafka:broker:9092/wan", "Spark does not know it"),
    (OURS, "dbfs:mnt/x", "write the URL of the object store"),
    ((*OURS, AT), "s3:bucket/x", "is not a URL; write s3://..."),
]


@pytest.mark.parametrize(
    ("path", "place", "hint"),
    [(path, place, hint) for paths, place, hint in REFUSED for path in paths],
)
def test_other_places_are_refused_with_a_hint(path: str, place: str, hint: str) -> None:
    """Once ``dbfs:/`` became a directory of that name, and ``hdfs://`` later held every stream."""
    message = refusal((path, place))
    assert message.startswith(f"/etc/wan/topology.yaml: {path}: ")
    assert hint in message and place in message


def test_the_channel_of_a_sink_is_checked_the_same_way() -> None:
    with pytest.raises(
        ValueError, match="option channel: 'dbfs:/x': the scheme 'dbfs' cannot be used here"
    ):
        SinkOptions.parse(
            {
                "channel": "dbfs:/x",
                "site": "a",
                "remotes": "b",
                "table": "t",
                "key": "id",
                "eventId": "e",
            }
        )


def test_s3_and_s3a_are_one_place_for_states_and_channels_too() -> None:
    message = refusal(("sites.newark.state", "s3a://b/x"), ("senders.east.channel", "s3://b/x/"))
    assert "senders.east.channel: 's3://b/x/' is the state of site 'newark'" in message


def test_a_state_takes_storage_options_and_shows_no_secrets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without them, checkpoints could be kept only where the environment has the credentials."""
    options = {"endpoint": "http://localhost:9000", "secret_access_key": "hunter2"}
    site = topology(("sites.newark.state", "s3://b/x"), ("sites.newark.storage", options)).site(
        "newark"
    )
    assert site.storage == options
    assert "hunter2" not in repr(site)
    opened: list[tuple[Any, ...]] = []
    monkeypatch.setattr(
        "spark_wan.state.objects.open_store", lambda *arguments: opened.append(arguments)
    )
    monkeypatch.setattr("spark_wan.state.objects.obstore.put", lambda *_: None)
    StoredCheckpoints(site.state, site.storage).save("s", SenderCheckpoint("i", 1))
    assert opened == [("s3://b/x", options)]


def test_a_sender_keeps_its_checkpoint_with_the_storage_options_of_the_state() -> None:
    loaded = topology(
        ("sites.newark.state", "s3://b/x/"), ("sites.newark.storage", {"region": "eu-1"})
    )
    no_spark: Any = None
    sender = Sender(no_spark, loaded, "newark")
    stream = sender._stream(
        Running(),
        loaded.sender("east"),
        loaded.table("flights"),
        watch=AckWatch(memory_channel()),
        available_now=True,
        control=ControlKeeper(loaded, loaded.site("newark")),
    )
    checkpoints = stream.publisher.checkpoints
    assert isinstance(checkpoints, StoredCheckpoints)
    assert (checkpoints.objects.url, checkpoints.objects.storage) == (
        "s3://b/x/checkpoints/sender/east",
        {"region": "eu-1"},
    )


@pytest.mark.parametrize("place", ["s3://b/x", "gs://b/x", "abfss://c@a.dfs.core.windows.net/x"])
@pytest.mark.parametrize(("entry", "key"), [("senders.east", "channel"), ("sites.newark", "state")])
def test_unknown_storage_options_are_refused_by_name(entry: str, key: str, place: str) -> None:
    """Without a request. Fails at the first look at the store, when the job runs already."""
    options = {"aws_regoin": "eu-1", "allow_http": "true"}
    message = refusal((f"{entry}.{key}", place), (f"{entry}.storage", options))
    assert (
        f"{entry}.storage: 'aws_regoin' is no option of {place.split(':')[0]}:// stores" in message
    )
    assert "eu-1" not in message


def test_storage_options_of_a_channel_in_a_directory_are_refused() -> None:
    message = refusal(("senders.east.storage", {"region": "eu-1"}))
    assert "senders.east.storage: storage options ['region'] are for object stores" in message


@pytest.mark.parametrize("state", ["./newark/_wan", "file:///newark/_wan"])
def test_storage_options_of_a_directory_are_refused(state: str) -> None:
    message = refusal(("sites.newark.state", state), ("sites.newark.storage", {"region": "eu-1"}))
    assert "sites.newark.storage: is for object stores, but the state is the directory" in message
