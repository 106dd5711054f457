"""The topology file: what it means, and what is refused before anything runs."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from topologies import REMOVED, VALID, changed, refusal, topology

from spark_wan.errors import TopologyError
from spark_wan.topology.model import Start
from spark_wan.topology.parsing import load_topology, parse_topology
from spark_wan.units import parse_bytes, parse_seconds

CONF = Path(__file__).parents[3] / "conf"


@pytest.mark.parametrize("file", sorted(CONF.rglob("*.yaml")), ids=lambda file: file.name)
def test_every_example_loads(file: Path) -> None:
    """Each has a table that newark writes."""
    loaded = load_topology(file)
    (table, *_) = (table for table in loaded.tables.values() if table.writers == ("newark",))
    assert loaded.sent_to(table.name, "newark")


def test_the_examples_show_the_defaults() -> None:
    minimal, full = load_topology(CONF / "minimal.yaml"), load_topology(CONF / "two_sites.yaml")
    assert minimal.sites == full.sites
    assert minimal.senders == full.senders
    assert minimal.table("flights") == full.table("flights")


def test_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    (tmp_path / "wan.yaml").write_text(yaml.safe_dump(VALID))
    loaded = load_topology(tmp_path / "wan.yaml")
    assert loaded.site("newark").state == str(tmp_path / "newark/_wan")
    assert loaded.sender("east").channel == str(tmp_path / "channel")
    assert loaded.table("flights").location("seattle") == str(tmp_path / "seattle/flights")


def test_b75_a_table_of_a_sink_needs_no_location_at_its_writer_and_no_start() -> None:
    sink = ("tables.readings.source", "sink")
    assert topology().table("readings").source == "table"
    loaded = topology(sink, ("tables.readings.at.newark", REMOVED)).table("readings")
    assert (loaded.source, list(loaded.at)) == ("sink", ["seattle"])
    assert "tables.readings.start: is for captured tables" in refusal(
        sink, ("tables.readings.start", {"version": 3})
    )


def test_home_expands_and_urls_and_catalog_names_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ann")
    loaded = topology(
        ("sites.newark.state", "~/_wan"), ("senders.east.channel", "s3://bucket/queue")
    )
    assert loaded.site("newark").state == "/home/ann/_wan"
    assert loaded.sender("east").channel == "s3://bucket/queue"
    assert loaded.table("readings").at == {
        "newark": "main.raw.readings",
        "seattle": "s3://bucket/readings",
    }


@pytest.mark.parametrize(
    ("table", "start", "expected"),
    [
        ("flights", REMOVED, Start()),
        ("flights", "snapshot", Start()),
        ("flights", {"version": 7}, Start(7)),
        ("readings", REMOVED, Start(0)),
        ("readings", {"version": 3}, Start(3)),
    ],
)
def test_a_keyed_table_starts_with_a_snapshot_and_a_keyless_one_at_version_0(
    table: str, start: object, expected: Start
) -> None:
    loaded = topology() if start is REMOVED else topology((f"tables.{table}.start", start))
    assert loaded.table(table).start == expected


def test_look_ups_follow_the_senders() -> None:
    loaded = topology(
        ("tables.flights.senders", ["east", "west"]),
        ("tables.flights.at.denver", "./denver/flights"),
    )
    assert [sender.name for sender in loaded.senders_at("newark")] == ["east", "west"]
    assert [table.name for table in loaded.tables_of("east")] == ["flights", "readings"]
    assert [table.name for table in loaded.tables_of("west")] == ["flights"]
    assert [sender.name for sender in loaded.senders_to("denver")] == ["west"]
    assert loaded.sent_to("flights", "newark") == ("denver", "seattle")
    assert loaded.sent_to("readings", "newark") == ("seattle",)
    assert loaded.sent_to("flights", "seattle") == ()


@pytest.mark.parametrize(
    "look_up",
    [
        lambda loaded: loaded.site("seatle"),
        lambda loaded: loaded.senders_at("seatle"),
        lambda loaded: loaded.senders_to("seatle"),
        lambda loaded: loaded.sent_to("flights", "seatle"),
        lambda loaded: loaded.table("flights").location("seatle"),
    ],
)
def test_b74_looking_up_an_unknown_name_suggests_the_nearest(look_up: Any) -> None:
    with pytest.raises(TopologyError, match="did you mean 'seattle'"):
        look_up(topology())


@pytest.mark.parametrize(
    ("path", "value", "where", "why"),
    [
        ("senders.east.site", "newarc", "senders.east.site", "did you mean 'newark'"),
        (
            "senders.east.remotes",
            ["x"],
            "senders.east.remotes[0]",
            "known: denver, newark, seattle",
        ),
        ("senders.east.remotes", ["newark"], "senders.east.remotes[0]", "own site"),
        ("senders.east.remotes", ["seattle", "seattle"], "senders.east.remotes[1]", "given twice"),
        ("senders.east.remotes", [], "senders.east.remotes", "at least one"),
        ("tables.flights.senders", ["eastt"], "tables.flights.senders[0]", "did you mean 'east'"),
        ("tables.flights.senders", ["east", "east"], "tables.flights.senders[1]", "given twice"),
        (
            "tables.flights.writers",
            ["newarc"],
            "tables.flights.writers[0]",
            "did you mean 'newark'",
        ),
        (
            "tables.flights.writers",
            ["newark", "seattle"],
            "tables.flights.writers",
            "conflict resolution",
        ),
        ("tables.flights.writers", [], "tables.flights.writers", "exactly one"),
        ("tables.flights.keys", ["id", "ID"], "tables.flights.keys[1]", "given twice"),
        ("tables.flights.keys", [""], "tables.flights.keys[0]", "empty"),
        ("tables.flights.at.seatle", "./x", "tables.flights.at.seatle", "did you mean 'seattle'"),
        ("tables.flights.at.newark", REMOVED, "tables.flights.at.newark", "writes the table"),
        ("tables.flights.at.seattle", REMOVED, "tables.flights.at.seattle", "sender 'east' serves"),
        (
            "tables.readings.at.newark",
            "./newark/flights",
            "tables.readings.at.newark",
            "table 'flights'",
        ),
        (
            "tables.readings.at.newark",
            "file:///etc/wan/newark/flights/",
            "tables.readings.at.newark",
            "'flights'",
        ),
        ("tables.readings.start", "snapshot", "tables.readings.start", "needs keys"),
    ],
)
def test_b74_inconsistent_names_and_keys_are_refused(
    path: str, value: object, where: str, why: str
) -> None:
    message = refusal((path, value))
    assert message.startswith(f"/etc/wan/topology.yaml: {where}: ")
    assert why in message
    assert "\n" not in message


@pytest.mark.parametrize("name", ["", "a b", "../up", ".hidden", "a/b", "naïve", "ends\n"])
@pytest.mark.parametrize("section", ["sites", "senders", "tables"])
def test_b74_a_name_that_cannot_be_part_of_a_path_is_refused(section: str, name: str) -> None:
    data = changed()
    data[section][name] = next(iter(VALID[section].values()))
    with pytest.raises(TopologyError, match=f"{section}.*: (is empty|.* is not a name)"):
        parse_topology(data, "wan.yaml")


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("version: 1\nversion: 1", "version"),
        ("sites:\n  a: {state: ./x}\n  a: {state: ./y}", "sites.a"),
        ("tables:\n  t:\n    at: {a: ./x, b: ./y, a: ./z}", "tables.t.at.a"),
        ("[{a: 1, a: 1}]", "[0].a"),
    ],
)
def test_b74_a_key_given_twice_is_refused(tmp_path: Path, text: str, where: str) -> None:
    (tmp_path / "wan.yaml").write_text(text)
    with pytest.raises(TopologyError) as error:
        load_topology(tmp_path / "wan.yaml")
    assert str(error.value) == f"{tmp_path / 'wan.yaml'}: {where}: is given twice; keep one"


def test_a_key_that_overrides_a_merged_one_is_no_repeated_key(tmp_path: Path) -> None:
    text = yaml.safe_dump({**VALID, "sites": {}}).replace(
        "sites: {}",
        "sites:\n"
        "  newark: &site {state: ./a, send_parallel: 3}\n"
        "  seattle: &b {<<: *site, state: ./b}\n"
        "  denver: {<<: *b, state: ./c}",
    )
    (tmp_path / "wan.yaml").write_text(text)
    seattle = load_topology(tmp_path / "wan.yaml").site("seattle")
    assert (seattle.state, seattle.send_parallel) == (str(tmp_path / "b"), 3)


@pytest.mark.parametrize("text", ["a: !!int", "a: !!bool maybe", "a: !!timestamp abc", "[" * 5_000])
def test_values_that_yaml_cannot_construct_are_refused_with_the_file(
    tmp_path: Path, text: str
) -> None:
    (tmp_path / "wan.yaml").write_text(text)
    with pytest.raises(TopologyError, match=r"wan\.yaml: is not valid YAML"):
        load_topology(tmp_path / "wan.yaml")


@pytest.mark.parametrize(
    ("section", "name", "setting", "problem"),
    [
        (
            "sites",
            "denver",
            "state",
            "sites.denver.state: .* is the state of site 'newark' already",
        ),
        ("senders", "west", "channel", "senders.west.channel: .* is the state of site 'newark'"),
    ],
)
def test_a_place_that_must_not_be_shared_is_refused(
    section: str, name: str, setting: str, problem: str
) -> None:
    data = copy.deepcopy(VALID)
    data[section][name][setting] = "./newark/_wan/"
    with pytest.raises(TopologyError, match=problem):
        parse_topology(data, "wan.yaml")


@pytest.mark.parametrize(
    "path",
    ["version", "sites", "senders", "tables", "sites.newark.state"]
    + [f"senders.east.{key}" for key in ("site", "remotes", "channel")]
    + [f"tables.flights.{key}" for key in ("writers", "senders", "at")],
)
def test_b75_a_missing_key_is_refused(path: str) -> None:
    assert f"topology.yaml: {path}: is missing; add " in refusal((path, REMOVED))


@pytest.mark.parametrize(
    ("path", "near"),
    [
        ("site", "sites"),
        ("sites.newark.States", "state"),
        ("senders.east.remote", "remotes"),
        ("tables.flights.key", "keys"),
        ("tables.flights.on_table_op", "on_table_operation"),
    ],
)
def test_b75_an_unknown_key_is_refused_with_the_nearest(path: str, near: str) -> None:
    assert (
        refusal((path, "x"))
        == f"/etc/wan/topology.yaml: {path}: unknown key; did you mean {near!r}?"
    )


@pytest.mark.parametrize(
    ("path", "values"),
    [
        ("version", [0, 2, "1", True, None]),
        ("sites", [[], None, "newark"]),
        ("sites.newark", [None, "./x"]),
        ("sites.newark.state", ["", " ", 1, None]),
        ("sites.newark.receive_interval", [0, -1, "1 day", True, None]),
        ("sites.newark.receive_parallel", [0, -1, 1.0, True, "1"]),
        ("sites.newark.receive_max_bytes", [0, 1.5, "8 parsecs"]),
        ("sites.newark.send_parallel", [0, "2"]),
        ("senders.east.remotes", ["seattle", None, {"seattle": 1}]),
        (
            "senders.east.channel",
            ["", "hdfs://host/x", "dbfs:/x", "https://host/x", "file:/x", "file://x", 5],
        ),
        ("senders.east.storage", [None, "x", {"allow_http": True}, {1: "x"}]),
        ("senders.east.ack_policy", ["most", True, []]),
        ("senders.east.batch_size", [0, -1, 1.5, True, "100"]),
        (
            "senders.east.batch_bytes",
            [0, 1.5, True, "8 parsecs", "0.5B", "-1kB", "", [], "9" * 99 + ".5"],
        ),
        (
            "senders.east.batch_interval",
            [0, -1, "0ms", "1 day", True, float("inf"), float("nan"), 10**400],
        ),
        ("senders.east.max_epoch_rows", [0, "1"]),
        ("senders.east.ack_timeout", [0, None]),
        ("senders.east.on_ack_timeout", ["Wait", "fail", None]),
        ("senders.east.block_on_ack", [-1, "soon"]),
        ("tables.flights.keys", ["flight_id", None]),
        ("tables.flights.at", [[], "./x", None]),
        ("tables.flights.at.newark", ["", "flights", "a b.c", "a..b", 1]),
        (
            "tables.flights.start",
            ["latest", {"version": -1}, {"version": True}, {"version": 1, "x": 1}, {}, 5],
        ),
        ("tables.flights.on_table_operation", ["resync", "Hold", False]),
        ("tables.flights.deletion_vectors", ["true", 1, None]),
        ("tables.flights.source", ["Sink", "events", None]),
    ],
)
def test_b75_a_value_of_the_wrong_type_or_range_is_refused(path: str, values: list[object]) -> None:
    for value in values:
        assert f"topology.yaml: {path}" in refusal((path, value)), value


@pytest.mark.parametrize("data", [None, [], "text", {}])
def test_b75_a_file_without_a_topology_is_refused(data: object) -> None:
    with pytest.raises(TopologyError, match=r"wan\.yaml: "):
        parse_topology(data, "wan.yaml")


@pytest.mark.parametrize(
    "content",
    [None, b"", b"a: [", b"\xff\xfe\xff", b"!!python/object:os.system {}", b"a: 2020-13-45"],
)
def test_b75_a_file_that_is_missing_or_not_yaml_is_refused(
    tmp_path: Path, content: bytes | None
) -> None:
    if content is not None:
        (tmp_path / "wan.yaml").write_bytes(content)
    with pytest.raises(TopologyError, match=r"wan\.yaml: "):
        load_topology(tmp_path / "wan.yaml")


def test_all_problems_are_reported_together() -> None:
    message = refusal(
        ("sites.newark.send_parallel", -1),
        ("senders.east.channel", REMOVED),
        ("tables.flights.senders", ["est", "east"]),
    )
    assert [line.split(": ")[1] for line in message.splitlines()] == [
        "sites.newark.send_parallel",
        "senders.east.channel",
        "tables.flights.senders[0]",
    ]


@pytest.mark.parametrize("text", ["010", "0x10", "0b11", "1:30", "0o17", "1:30.5"])
def test_a_number_that_yaml_reads_otherwise_is_refused(tmp_path: Path, text: str) -> None:
    """YAML 1.1 takes 010 for 8 and 1:30 for 90. Fails when these are numbers."""
    written = (CONF / "two_sites.yaml").read_text().replace("10000 ", f"{text} ", 1)
    (tmp_path / "wan.yaml").write_text(written)
    with pytest.raises(TopologyError, match=f"batch_size: .*'{re.escape(text)}'"):
        load_topology(tmp_path / "wan.yaml")
    (tmp_path / "wan.yaml").write_text(written.replace(f"{text} ", "10_000 "))
    assert load_topology(tmp_path / "wan.yaml").sender("east").batch_size == 10_000


def test_a_file_that_is_no_topology_is_refused_soon() -> None:
    """A hundred problems are listed. Fails (minutes) when each of many unknown names is compared
    with all known ones, or each key of a table with what it could mean."""
    content = {**VALID, "tables": {f"t{n}": {f"key{n}": n} for n in range(100_000)}}
    with pytest.raises(TopologyError) as refused:
        parse_topology(content, "wan.yaml")
    assert len(str(refused.value).splitlines()) == 100


def test_a_site_that_would_never_get_the_table_is_refused() -> None:
    message = refusal(("tables.flights.at.denver", "./denver/flights"))
    assert "tables.flights.at.denver: site 'denver' would never get the table" in message


def test_a_site_that_would_get_the_table_twice_is_refused_with_both_paths() -> None:
    message = refusal(
        ("senders.west.remotes", ["seattle"]), ("tables.flights.senders", ["east", "west"])
    )
    assert "site 'seattle' would get every event twice" in message
    assert "(newark -> east -> seattle; newark -> west -> seattle)" in message


def test_two_streams_of_one_name_are_refused() -> None:
    east = VALID["senders"]["east"]
    flights = VALID["tables"]["flights"]
    data = changed(("senders", {"b": east, "b.c": east}))
    data["tables"] = {
        "d": {**flights, "senders": ["b.c"]},
        "c.d": {**flights, "senders": ["b"], "at": {"newark": "a.b", "seattle": "a.b"}},
    }
    with pytest.raises(TopologyError, match=r"its stream would be 'newark\.b\.c\.d'"):
        parse_topology(data, "wan.yaml")


def test_secrets_of_the_store_are_not_shown() -> None:
    sender = topology(
        ("senders.east.channel", "s3://bucket/x"),
        ("senders.east.storage", {"secret_access_key": "hunter2"}),
    ).sender("east")
    assert sender.storage == {"secret_access_key": "hunter2"}
    assert "hunter2" not in repr(sender)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        (1, 1),
        ("12", 12),
        ("500kB", 500_000),
        ("8MiB", 8 * 2**20),
        ("1.5 KiB", 1536),
        ("1gb", 10**9),
        ("2GiB", 2**31),
    ],
)
def test_sizes_take_units(text: object, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize(
    ("text", "seconds"),
    [(1, 1.0), (0.25, 0.25), ("3", 3.0), ("500ms", 0.5), ("2s", 2.0), ("1m", 60.0), ("1.5h", 5400)],
)
def test_durations_take_units(text: object, seconds: float) -> None:
    assert parse_seconds(text) == seconds
