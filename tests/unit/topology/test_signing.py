"""Keys and accepted sites in the topology; files that are made to do harm."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
import yaml
from topologies import VALID, changed, refusal, topology

from spark_wan.cli.output import JsonOutput
from spark_wan.datasource.options import SinkOptions
from spark_wan.errors import OptionError, SigningKeyError, TopologyError
from spark_wan.topology.model import copy_name
from spark_wan.topology.parsing import load_topology
from spark_wan.topology.signing import receiving_trust, sending_trust
from spark_wan.wire.signature import KeyReference

SECRET = "0123456789abcdef0123456789abcdef"
KEYS = "sites.newark.signing_keys"


def test_keys_are_given_by_where_they_are() -> None:
    loaded = topology((KEYS, ["env:WAN_KEY", "file:/run/secrets/wan"]))
    assert loaded.site("newark").signing_keys == (
        KeyReference("env", "WAN_KEY"),
        KeyReference("file", "/run/secrets/wan"),
    )
    url = topology((KEYS, ["file:///run/secrets/wan"])).site("newark").signing_keys
    assert [str(key) for key in url] == ["file:/run/secrets/wan"]


@pytest.mark.parametrize(
    "value",
    [
        SECRET,
        [SECRET],
        ["env:A", SECRET],
        {"key": SECRET},
        [f"env:{SECRET}"],
        [f"file:{SECRET}"],
        ["env:A", "env:B", f"file:/{SECRET}"],
        [f"hex:{SECRET}"],
        [{"env": SECRET}],
    ],
)
def test_a_key_itself_is_refused_and_never_shown(value: object) -> None:
    """Fails when an error repeats the value, as those of other settings do."""
    problem = refusal((KEYS, value))
    assert f"{KEYS}: " in problem
    assert SECRET not in problem
    assert "env:NAME" in problem or "env:WAN_KEY" in problem


@pytest.mark.parametrize("value", [[], None, 5, ["env:A", "env:A"], [None], ["env:"], ["file:a"]])
def test_other_values_are_no_keys(value: object) -> None:
    assert f"{KEYS}: " in refusal((KEYS, value))


def test_a_misspelt_setting_is_refused_without_its_value() -> None:
    problem = refusal(("sites.newark.signing_key", SECRET))
    assert problem.endswith("unknown key; did you mean 'signing_keys'?")
    assert SECRET not in problem


@pytest.mark.parametrize("value", [[], "", None, 5, ["../x"], [5], ["newark", "newark"]])
def test_accept_from_is_a_list_of_sites(value: object) -> None:
    assert "sites.seattle.accept_from: " in refusal(("sites.seattle.accept_from", value))


def test_accept_from_names_known_sites() -> None:
    problem = refusal(("sites.seattle.accept_from", ["newark", "seatle"]))
    assert "sites.seattle.accept_from[1]: unknown site 'seatle'; did you mean 'seattle'?" in problem


def test_a_sender_may_not_send_more_than_its_remotes_take() -> None:
    assert "is more than site 'seattle' receives; set it to 1000000" in refusal(
        ("sites.seattle.max_frame_bytes", "1MB")
    )
    assert "senders.east.batch_bytes: 8388608 is more than its max_frame_bytes, 5" in refusal(
        ("senders.east.max_frame_bytes", 5)
    )


def test_without_keys_there_is_nothing_to_sign_or_to_check() -> None:
    loaded = topology()
    trust = sending_trust(loaded, loaded.sender("east"))
    assert (trust.signer, trust.ack_keys) == (None, {})
    inbound = receiving_trust(loaded, "seattle", loaded.sender("east").channel)("any")
    assert (inbound.ack_signer, inbound.manifests) == (None, None)


def test_the_channel_is_called_as_its_sender_unless_it_has_an_id() -> None:
    for change, name in (((), "east"), ((("senders.east.channel_id", "prod-1"),), "prod-1")):
        loaded = topology((KEYS, ["env:A"]), *change)
        signer = sending_trust(loaded, loaded.sender("east")).signer
        assert signer is not None and (signer.site, signer.channel) == ("newark", name)
        inbound = receiving_trust(loaded, "seattle", loaded.sender("east").channel)
        for stream in ("newark.east.flights", "unknown"):
            rule = inbound(stream).manifests
            assert rule is not None and rule.channels["newark"] == {name}


def test_a_copy_is_believed_of_who_sends_the_table() -> None:
    """Fails when any site with a key may serve it, as for a stream that the topology lacks."""
    loaded = topology((KEYS, ["env:A"]))
    inbound = receiving_trust(loaded, "seattle", loaded.sender("east").channel)
    events = inbound("newark.east.flights").manifests
    assert events is not None and (events.sender, events.origin) == ("newark", "newark")
    assert inbound(copy_name("newark.east.flights", "seattle")).manifests == events


def test_validate_shows_where_keys_are(capsys: pytest.CaptureFixture[str]) -> None:
    JsonOutput().valid_topology(topology((KEYS, ["env:A", "file:/b"])))
    newark, *_ = json.loads(capsys.readouterr().out)["sites"]
    assert newark["signing_keys"] == ["env:A", "file:/b"]


# --- sinks


OPTIONS = {
    "channel": "/channel",
    "site": "newark",
    "remotes": "seattle",
    "table": "clicks",
    "key": "id",
    "eventId": "id",
}


def test_a_sink_without_a_topology_signs_by_its_options() -> None:
    options = SinkOptions.parse({**OPTIONS, "signingKeys": "env:A,file:/b", "sender": "web"})
    signer = options.trust.signer
    assert signer is not None
    assert [str(key) for key in signer.keys] == ["env:A", "file:/b"]
    assert (signer.site, signer.channel) == ("newark", "web")
    plain = SinkOptions.parse(OPTIONS)
    assert plain.trust.signer is None
    named = SinkOptions.parse({**OPTIONS, "signingKeys": "env:A", "channelId": "prod"}).trust
    assert named.signer is not None and named.signer.channel == "prod"
    assert pickle.loads(pickle.dumps(options)) == options


def test_a_sink_never_shows_a_key_given_as_an_option() -> None:
    with pytest.raises(OptionError, match="option signingKeys: say where the key is") as refused:
        SinkOptions.parse({**OPTIONS, "signingKeys": SECRET})
    assert SECRET not in str(refused.value)


def test_a_sink_with_a_topology_signs_as_its_site(tmp_path: Path) -> None:
    content = changed((KEYS, ["env:A"]), ("sites.seattle.signing_keys", ["env:B"]))
    (tmp_path / "wan.yaml").write_text(yaml.safe_dump(content))
    by_config = {"config": str(tmp_path / "wan.yaml"), "sender": "east", "table": "flights"}
    trust = SinkOptions.parse({**by_config, "eventId": "id"}).trust
    assert trust.signer is not None and trust.signer.channel == "east"
    assert {site: str(key) for site, (key,) in trust.ack_keys.items()} == {
        "newark": "env:A",
        "seattle": "env:B",
    }


# --- keys themselves


@pytest.mark.parametrize(
    ("content", "what"),
    [(b"", "0 bytes"), (b"x" * 31, "31 bytes"), (b" " * 99, "0 bytes"), (b"x" * 5000, "4097 byt")],
)
def test_a_file_that_is_no_key_is_refused(tmp_path: Path, content: bytes, what: str) -> None:
    (tmp_path / "key").write_bytes(content)
    with pytest.raises(SigningKeyError, match=what) as refused:
        KeyReference("file", str(tmp_path / "key")).secret()
    assert "xxx" not in str(refused.value)


def test_blanks_around_a_key_do_not_count(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"  " + SECRET.encode() + b"\r\n")
    assert KeyReference("file", str(tmp_path / "key")).secret() == SECRET.encode()


@pytest.mark.parametrize("place", ["/nowhere/key", "/", "/dev/null"])
def test_a_place_without_a_key_is_refused(place: str) -> None:
    with pytest.raises(SigningKeyError, match=f"signing key file:{place}: "):
        KeyReference("file", place).secret()


# --- files made to do harm


def bomb(levels: int, form: str) -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    for level in range(1, levels):
        repeated = ", ".join([f"*a{level - 1}"] * 10)
        lines.append(f"a{level}: &a{level} " + form.format(repeated))
    return "\n".join([*lines, "version: 1", f"sites: *a{levels - 1}"])


def nested(levels: int) -> str:
    return "version: 1\nsites: " + "[" * levels + "]" * levels


def merged(levels: int) -> str:
    lines = ["a0: &a0 {x: 1}"]
    for level in range(1, levels):
        repeated = ", ".join([f"*a{level - 1}"] * 10)
        lines.append(f"a{level}: &a{level} {{<<: [{repeated}], k{level}: 1}}")
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (bomb(12, "[{}]"), "expand to more than 1,000,000 values"),
        (bomb(12, "{{k: [{}]}}"), "expand to more than 1,000,000 values"),
        (merged(12), "expand to more than 1,000,000 values"),
        (nested(60), "more than 50 levels"),
        (nested(100_000), "is not valid YAML"),
        ("a: &a [*a]", "more than 50 levels"),
        ("&a {*a: *a}", "wan"),
        ("x" * 8_000_001, "more than 8,000,000 characters"),
        ("a: !!int " + "9" * 5000, "is not valid YAML"),
        ("a: !!binary '*'", "wan"),
        ("? [a]\n: b", "is not valid YAML"),
    ],
    ids=["list", "mapping", "merge", "deep", "deeper", "loop", "own", "huge", "int", "binary", "?"],
)
def test_a_file_made_to_do_harm_is_refused(tmp_path: Path, text: str, why: str) -> None:
    """At once, and with a short error that names the file. Fails (takes all memory, or for ever)
    when aliases are followed before they are counted."""
    path = tmp_path / "wan.yaml"
    path.write_text(text)
    with pytest.raises(TopologyError, match=why) as refused:
        load_topology(path)
    assert str(path) in str(refused.value)
    assert len(str(refused.value)) < 100_000


def test_an_endless_file_is_refused() -> None:
    with pytest.raises(TopologyError, match=r"/dev/zero: has more than 8,000,000 characters"):
        load_topology("/dev/zero")


def test_aliases_may_be_used(tmp_path: Path) -> None:
    content: Any = yaml.safe_dump(VALID).replace("ack_policy: ", "ack_policy: &policy ", 1)
    (tmp_path / "wan.yaml").write_text(f"{content}\n")
    assert load_topology(tmp_path / "wan.yaml").sites
