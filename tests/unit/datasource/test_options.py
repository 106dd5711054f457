"""Options of sink and source: they win over the topology; invalid ones are refused by name."""

from __future__ import annotations

import pickle
from dataclasses import fields
from pathlib import Path

import pytest

from spark_wan.datasource.options import SinkOptions, SourceOptions
from spark_wan.errors import OptionError, TopologyError
from spark_wan.topology.model import Sender
from spark_wan.topology.parsing import load_topology
from spark_wan.topology.settings import settings_of

CONFIG = str(Path(__file__).parents[3] / "conf" / "two_sites.yaml")
BY_CONFIG = {"config": CONFIG, "sender": "east", "table": "flights", "eventId": "id"}
ONE_BY_ONE = {
    "channel": "memory://queue",
    "site": "newark",
    "remotes": "seattle, denver",
    "table": "flights",
    "key": "flight_id, day",
    "eventId": "id",
}
SOURCE = {"channel": "memory://queue"}


def sink_error(**options: str) -> str:
    with pytest.raises(OptionError) as error:
        SinkOptions.parse({**ONE_BY_ONE, **options})
    return str(error.value)


def source_error(**options: str) -> str:
    with pytest.raises(OptionError) as error:
        SourceOptions.parse({**SOURCE, **options})
    return str(error.value)


def test_the_sink_takes_its_options_without_a_topology() -> None:
    options = SinkOptions.parse(ONE_BY_ONE)
    assert options == SinkOptions(
        channel="memory://queue",
        site="newark",
        remotes=("seattle", "denver"),
        table="flights",
        key=("flight_id", "day"),
        event_id="id",
        stream="newark.sink.flights",
    )


def test_the_topology_supplies_what_the_options_omit() -> None:
    options, sender = SinkOptions.parse(BY_CONFIG), load_topology(CONFIG).sender("east")
    assert (options.channel, options.site, options.remotes) == (
        sender.channel,
        "newark",
        ("seattle",),
    )
    assert (options.key, options.stream) == (("flight_id",), "newark.east.flights")


def test_sink_and_topology_share_their_defaults() -> None:
    sink = {each.name: each.default for each in fields(SinkOptions)}
    shared = [name for name in settings_of(Sender) if name in sink]
    assert len(shared) == 11
    assert {name: sink[name] for name in shared} == {name: getattr(Sender, name) for name in shared}


@pytest.mark.parametrize(
    ("option", "text", "field", "value"),
    [
        ("channel", "memory://other", "channel", "memory://other"),
        ("site", "denver", "site", "denver"),
        ("remotes", "denver", "remotes", ("denver",)),
        ("stream", "mine", "stream", "mine"),
        ("key", "", "key", ()),
        ("blockOnAck", "0", "block_on_ack", 0.0),
        ("batchSize", "5", "batch_size", 5),
        ("batchBytes", "500kB", "batch_bytes", 500_000),
        ("ackPolicy", "none", "ack_policy", "none"),
        ("ackTimeout", "500ms", "ack_timeout", 0.5),
        ("onAckTimeout", "continue", "on_ack_timeout", "continue"),
    ],
)
def test_an_option_wins_over_the_topology_even_when_it_is_false(
    tmp_path: Path, option: str, text: str, field: str, value: object
) -> None:
    topology = Path(CONFIG).read_text().replace("block_on_ack: 0 ", "block_on_ack: 30 ")
    (tmp_path / "wan.yaml").write_text(topology)
    config = {**BY_CONFIG, "config": str(tmp_path / "wan.yaml")}
    assert getattr(SinkOptions.parse(config), field) != value
    assert getattr(SinkOptions.parse({**config, option: text}), field) == value


def test_options_of_the_store_win_over_those_of_the_topology(tmp_path: Path) -> None:
    topology = "storage: {endpoint: a, region: r}".join(
        Path(CONFIG).read_text().rsplit("storage: {}", 1)
    )  # the sender's
    topology = topology.replace("channel: ./channel", "channel: s3://bucket/channel")
    (tmp_path / "wan.yaml").write_text(topology)
    config = {
        **BY_CONFIG,
        "config": str(tmp_path / "wan.yaml"),
        "storage.endpoint": "b",
        "Storage.Allow_HTTP": "true",
    }
    options = SinkOptions.parse(config)
    assert options.storage == {"endpoint": "b", "region": "r", "allow_http": "true"}
    assert "region" not in repr(options)


def test_case_does_not_matter_and_options_of_spark_are_ignored() -> None:
    lowered = {name.lower(): value for name, value in BY_CONFIG.items()}
    sparks = {"checkpointLocation": "/c", "path": "/p", "queryName": "q"}
    assert SinkOptions.parse({**lowered, **sparks}) == SinkOptions.parse(BY_CONFIG)
    assert SourceOptions.parse({"CHANNEL": "memory://queue", **sparks}) == SourceOptions.parse(
        SOURCE
    )


def test_a_relative_channel_is_relative_to_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert SourceOptions.parse({"channel": "queue"}).channel == str(tmp_path / "queue")


def test_options_can_be_pickled_for_tasks() -> None:
    for options in (SinkOptions.parse(BY_CONFIG), SourceOptions.parse(SOURCE)):
        assert pickle.loads(pickle.dumps(options)) == options


@pytest.mark.parametrize("option", list(ONE_BY_ONE))
def test_b75_a_missing_sink_option_is_refused(option: str) -> None:
    given = {name: value for name, value in ONE_BY_ONE.items() if name != option}
    with pytest.raises(OptionError, match=f"wan sink: missing option {option}; set it"):
        SinkOptions.parse(given)


@pytest.mark.parametrize("option", ["sender", "table", "eventId"])
def test_b75_a_missing_option_beside_config_is_refused(option: str) -> None:
    given = {name: value for name, value in BY_CONFIG.items() if name != option}
    with pytest.raises(OptionError, match=f"missing option {option}; set it"):
        SinkOptions.parse(given)


def test_b74_an_unknown_option_is_refused_with_the_nearest_and_all_valid_ones() -> None:
    message = sink_error(batchsise="1")
    assert (
        "unknown option 'batchsise'; did you mean 'batchSize'? known: ackPolicy, ackTimeout, "
        in message
    )
    assert "storage.*" in message
    assert "unknown option 'zzz'; known: channel, config, " in source_error(zzz="1")
    assert "did you mean 'storage.*'?" in source_error(**{"storage.": "1"})


def test_b74_all_invalid_options_are_reported_together() -> None:
    assert len(sink_error(batchSize="0", batchBytes="x", nope="1").splitlines()) == 3


@pytest.mark.parametrize(
    ("option", "values"),
    [
        ("site", ["", "a/b"]),
        ("remotes", ["", "a,,b", "a,a", "newark,seattle", "a b"]),
        ("table", ["", "a b"]),
        ("stream", ["", "../x"]),
        ("key", ["id,ID", "a,,b"]),
        ("eventId", ["", " "]),
        ("operation", [""]),
        ("batchSize", ["0", "-1", "1.5", "ten", "", "1_000", "9" * 99]),
        ("batchBytes", ["0", "8 parsecs"]),
        ("ackPolicy", ["most", ""]),
        ("onAckTimeout", ["", "raise"]),
        ("ackTimeout", ["0", "-1", "nan", "inf"]),
        ("blockOnAck", ["-1", "yes"]),
        ("channel", ["", "ftp://host/x"]),
        ("queryId", ["q"]),
        ("batchId", ["1", "-1"]),
    ],
)
def test_b75_a_sink_option_out_of_range_is_refused(option: str, values: list[str]) -> None:
    for value in values:
        assert option in sink_error(**{option: value}), value


def test_b75_an_ack_policy_that_the_remotes_can_never_meet_is_refused(tmp_path: Path) -> None:
    """Without a topology all sites are peers. With one, its priorities count, also for an option
    that wins over it."""
    assert SinkOptions.parse({**ONE_BY_ONE, "ackPolicy": "all_peers"}).never_primary == frozenset()
    topology = Path(CONFIG).read_text().replace("  seattle:\n", "  seattle:\n    priority: 0\n", 1)
    (tmp_path / "wan.yaml").write_text(topology)
    config = {**BY_CONFIG, "config": str(tmp_path / "wan.yaml")}
    assert SinkOptions.parse(config).never_primary == {"seattle"}
    with pytest.raises(OptionError, match="wan sink: option ackPolicy: one_peer can never be met"):
        SinkOptions.parse({**config, "ackPolicy": "one_peer"})


def test_query_and_batch_are_given_together() -> None:
    options = SinkOptions.parse({**ONE_BY_ONE, "queryId": "q", "batchId": "0"})
    assert (options.query_id, options.batch_id) == ("q", 0)


@pytest.mark.parametrize(
    ("option", "value", "near"),
    [("sender", "est", "east"), ("table", "flight", "flights"), ("config", "/nope", "/nope")],
)
def test_b74_names_that_are_not_in_the_topology_are_refused(
    option: str, value: str, near: str
) -> None:
    with pytest.raises(TopologyError, match=near):
        SinkOptions.parse({**BY_CONFIG, option: value})


def test_b74_a_table_that_is_not_attached_to_the_sender_is_refused(tmp_path: Path) -> None:
    text = Path(CONFIG).read_text()
    other = "senders:\n  other: {site: newark, remotes: [seattle], channel: ./other}\n"
    (tmp_path / "wan.yaml").write_text(text.replace("senders:\n", other, 1))
    with pytest.raises(
        OptionError, match=r"not attached to sender 'other'.* one of its senders: east"
    ):
        SinkOptions.parse({**BY_CONFIG, "config": str(tmp_path / "wan.yaml"), "sender": "other"})


def test_the_source_takes_a_channel_or_the_topology() -> None:
    options = SourceOptions.parse({**SOURCE, "storage.endpoint": "e"})
    assert options == SourceOptions(channel="memory://queue", storage={"endpoint": "e"})
    assert (options.streams, options.starting_offsets) == (None, "earliest")
    by_config = SourceOptions.parse({"config": CONFIG, "site": "seattle", "sender": "east"})
    assert by_config.channel == load_topology(CONFIG).sender("east").channel


@pytest.mark.parametrize(
    ("option", "text", "field", "value"),
    [
        ("streams", "a, b", "streams", ("a", "b")),
        ("startingOffsets", "latest", "starting_offsets", "latest"),
        ("startingOffsets", '{"a": 3}', "starting_offsets", {"a": 3}),
        ("maxBytesPerTrigger", "8MiB", "max_bytes_per_trigger", 8 * 2**20),
        ("maxEpochsPerTrigger", "2", "max_epochs_per_trigger", 2),
    ],
)
def test_the_source_reads_each_option(option: str, text: str, field: str, value: object) -> None:
    assert getattr(SourceOptions.parse({**SOURCE, option: text}), field) == value


@pytest.mark.parametrize(
    ("option", "values"),
    [
        ("streams", ["", "a,a"]),
        (
            "startingOffsets",
            [
                "",
                "earlist",
                "3",
                "[]",
                "{}",
                "{",
                '{"a": 0}',
                '{"a": true}',
                '{"a": "1"}',
                '{"a": 1, "a": 2}',
                '{"": 1}',
            ],
        ),
        ("maxBytesPerTrigger", ["0", "much"]),
        ("maxEpochsPerTrigger", ["0", "1.0"]),
    ],
)
def test_b75_a_source_option_out_of_range_is_refused(option: str, values: list[str]) -> None:
    for value in values:
        assert f"wan source: option {option}: " in source_error(**{option: value}), value


def test_b74_starting_offsets_of_a_stream_that_is_not_read_are_refused() -> None:
    assert "did you mean 'flights'" in source_error(
        streams="flights", startingOffsets='{"flight": 1}'
    )


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({}, "missing option channel"),
        ({"config": CONFIG}, "missing option sender, site"),
        ({"sender": "east", "channel": "memory://q"}, "missing option config"),
        (
            {"config": CONFIG, "sender": "east", "site": "newark"},
            "does not serve site 'newark'; it serves seattle",
        ),
    ],
)
def test_b75_a_source_without_a_channel_or_sender_is_refused(
    given: dict[str, str], why: str
) -> None:
    with pytest.raises(OptionError, match=why):
        SourceOptions.parse(given)
