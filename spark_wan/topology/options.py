"""The options of the ``wan`` sink and the ``wan`` source.

An option is written in camelCase (``batchSize``) and is the field of the same name here (``batch_size``). Spark hands
names over in lower case, so case does not matter. With ``config`` the topology file answers what is not given; what is
given always wins. ``storage.<name>`` goes through to the object store.

>>> options = SinkOptions.parse({"config": "conf/minimal.yaml", "sender": "east", "table": "flights", "eventId": "id"})
>>> options.stream, options.remotes, options.batch_size
('newark.east.flights', ('seattle',), 10000)
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any, Literal

from spark_wan.errors import OptionError, nearest
from spark_wan.topology.ack_policy import AckPolicy
from spark_wan.topology.model import Sender, stream_name
from spark_wan.topology.parsing import load_topology
from spark_wan.topology.settings import required, setting, settings_of, shared
from spark_wan.topology.values import parse_channel, parse_each, parse_name, parse_text
from spark_wan.units import parse_bytes, parse_count

SPARKS_OWN = frozenset(
    {"checkpointlocation", "path", "queryname"}
)  # Spark hands these to every sink and source


StartingOffsets = Literal["earliest", "latest"] | dict[str, int]


def _split(
    value: object, parse: Callable[[object], str], same: Callable[[str], str] = str
) -> tuple[str, ...]:
    good, wrong = parse_each((part.strip() for part in str(value).split(",")), parse, same)
    if wrong:
        raise ValueError("; ".join(f"[{index}] {problem}" for index, problem in wrong))
    return good


def _parse_channel(value: object) -> str:
    return parse_channel(value, os.getcwd())


def _names(value: object) -> tuple[str, ...]:
    return _split(value, parse_name)


def _columns(value: object) -> tuple[str, ...]:
    return _split(value, parse_text, str.lower) if str(value).strip() else ()


def _starting_offsets(value: object) -> StartingOffsets:
    text = str(value)
    if text == "earliest":
        return "earliest"
    if text == "latest":
        return "latest"
    try:
        numbers = json.loads(text, object_pairs_hook=_without_repeats)
    except json.JSONDecodeError:
        numbers = None
    if not isinstance(numbers, dict) or not numbers:
        raise ValueError(f'must be earliest, latest or JSON such as {{"stream": 1}}, not {text!r}')
    return {stream: parse_count(number) for stream, number in numbers.items()}


def _without_repeats(pairs: list[tuple[str, object]]) -> dict[str, object]:
    _, wrong = parse_each((name for name, _ in pairs), parse_name)
    if wrong:
        raise ValueError(wrong[0][1])
    return dict(pairs)


@dataclass(frozen=True)
class SinkOptions:
    """Options of ``df.writeStream.format("wan")``, and of ``df.write`` inside foreachBatch.

    Give ``config``, ``sender`` and ``table``, or ``channel``, ``site``, ``remotes``, ``table`` and ``key`` one by one.
    ``eventId`` is always required.
    """

    channel: str = required(_parse_channel, "Directory or URL of the channel.")
    site: str = required(parse_name, "Site where the events come from.")
    remotes: tuple[str, ...] = required(_names, "Sites that the events go to, with commas.")
    table: str = required(parse_name, "Table whose rows these are.")
    key: tuple[str, ...] = required(_columns, "Key columns, with commas; '' for a keyless table.")
    event_id: str = required(parse_text, "Column that identifies an event for ever.")
    stream: str = required(
        parse_name, "Name of the stream; default: <site>.<sender or 'sink'>.<table>."
    )
    config: str | None = setting(
        None, parse_text, "Topology file, which answers what is not given."
    )
    sender: str | None = setting(
        None, parse_name, "Sender in the topology file, or a name for the stream."
    )
    operation: str | None = setting(
        None, parse_text, "Column with create, put or destroy; default: all rows are puts."
    )
    sequence: str | None = setting(
        None,
        parse_text,
        "Column that orders the events of a key; default: a key comes once an epoch.",
    )
    event_time: str | None = setting(
        None,
        parse_text,
        "Timestamp column that lets event IDs expire; default: they do not. Keep it once given: without it, IDs that"
        " expired count as new.",
    )
    batch_size: int = shared(Sender, "batch_size")
    batch_bytes: int = shared(Sender, "batch_bytes")
    max_rows: int = setting(
        10_000_000,
        parse_count,
        "Maximum number of rows in an epoch, a micro-batch or a write; more are refused. The driver holds 16 to 32"
        " bytes of each.",
    )
    ack_policy: AckPolicy = shared(Sender, "ack_policy")
    ack_timeout: float = shared(Sender, "ack_timeout")
    block_on_ack: float = shared(Sender, "block_on_ack")
    query_id: str | None = setting(
        None, parse_text, "With batchId: what a batch write inside foreachBatch belongs to."
    )
    batch_id: int | None = setting(None, partial(parse_count, minimum=0), "See queryId.")
    state: str | None = setting(
        None,
        _parse_channel,
        "Where the sink keeps its checkpoint of the stream; default: the state of the site in config, else the"
        " query's checkpointLocation.",
    )
    former_remotes: tuple[str, ...] | None = setting(
        (), _names, "Sites, with commas, served no more; with the remotes of config: all others."
    )
    new_log: tuple[str, ...] = setting(
        (), _names, "IDs, with commas, of lost logs in whose place a new log may begin."
    )
    storage: Mapping[str, str] = field(
        default_factory=dict, repr=False
    )  # storage.*; may hold secrets
    state_storage: Mapping[str, str] = field(
        default_factory=dict, repr=False
    )  # stateStorage.*, of `state`; may hold secrets

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> SinkOptions:
        """Return the options from what Spark hands over.

        Raises OptionError for an option that is unknown, missing or wrong, TopologyError for a wrong topology file or
        a sender or table that it does not know.
        """
        given = _given("sink", cls, options)
        if "config" in given:
            _require("sink", given, "sender", "table")
            given = _from_topology(given)
        _require("sink", given, "channel", "site", "remotes", "table", "key", "event_id")
        if ("query_id" in given) != ("batch_id" in given):
            raise OptionError("wan sink: queryId and batchId go together; give both or neither")
        if given["site"] in given["remotes"]:
            raise OptionError(
                f"wan sink: site {given['site']!r} is among its own remotes; take it out of one of them"
            )
        default = stream_name(given["site"], given.get("sender", "sink"), given["table"])
        return cls(**{"stream": default, **given})


@dataclass(frozen=True)
class SourceOptions:
    """Options of ``spark.readStream.format("wan")``: give ``config``, ``site`` and ``sender``, or ``channel``."""

    channel: str = required(_parse_channel, "Directory or URL of the channel.")
    config: str | None = setting(
        None, parse_text, "Topology file, which answers what is not given."
    )
    site: str | None = setting(None, parse_name, "Site that reads, one of the sender's remotes.")
    sender: str | None = setting(
        None, parse_name, "Sender in the topology file whose channel is read."
    )
    streams: tuple[str, ...] | None = setting(
        None, _names, "Names of streams, with commas; default: all."
    )
    starting_offsets: StartingOffsets = setting(
        "earliest", _starting_offsets, 'earliest, latest, or {"stream": first epoch to read}.'
    )
    max_bytes_per_trigger: int | None = setting(
        None,
        parse_bytes,
        "Maximum size of a micro-batch: bytes, or 8MiB, 500kB; default: no limit.",
    )
    max_epochs_per_trigger: int | None = setting(
        None, parse_count, "Maximum number of epochs in a micro-batch; default: no limit."
    )
    storage: Mapping[str, str] = field(
        default_factory=dict, repr=False
    )  # storage.*; may hold secrets

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> SourceOptions:
        """Return the options from what Spark hands over.

        Raises OptionError for an option that is unknown, missing or wrong, TopologyError for a wrong topology file or
        a sender or site that it does not know.
        """
        given = _given("source", cls, options)
        if "config" in given:
            _require("source", given, "sender", "site")
            topology = load_topology(given["config"])
            sender, site = topology.sender(given["sender"]), topology.site(given["site"])
            if site.name not in sender.remotes:
                raise OptionError(
                    f"wan source: sender {sender.name!r} does not serve site {site.name!r}; "
                    f"it serves {', '.join(sender.remotes)}"
                )
            given = {
                "channel": sender.channel,
                **given,
                "storage": {**sender.storage, **given["storage"]},
            }
        elif "sender" in given:
            _require("source", given, "config")
        _require("source", given, "channel")
        starts, streams = given.get("starting_offsets"), given.get("streams")
        if isinstance(starts, dict) and streams is not None:
            for stream in starts.keys() - set(streams):
                raise OptionError(
                    f"wan source: startingOffsets: unknown stream {stream!r}; {nearest(stream, streams)}"
                )
        return cls(**given)


def _from_topology(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sink's options, those that are not given from the topology."""
    topology = load_topology(given["config"])
    sender, table = topology.sender(given["sender"]), topology.table(given["table"])
    if sender.name not in table.senders:
        raise OptionError(
            f"wan sink: table {table.name!r} is not attached to sender {sender.name!r}; attach it in {topology.file}, "
            f"or use one of its senders: {', '.join(table.senders) or 'none'}"
        )
    shared = (
        "channel",
        "site",
        "remotes",
        "batch_size",
        "batch_bytes",
        "ack_policy",
        "ack_timeout",
        "block_on_ack",
    )
    defaults = {name: getattr(sender, name) for name in shared}
    if "remotes" not in given:
        defaults["former_remotes"] = None
    site = topology.site(sender.site)
    if "state" not in given:
        given = {
            **given,
            "state": site.state,
            "state_storage": {**site.storage, **given["state_storage"]},
        }
    return {
        **defaults,
        "key": table.keys,
        **given,
        "storage": {**sender.storage, **given["storage"]},
    }


_STORES = ("storage", "state_storage")
"""Fields that collect all options with their prefix."""


def _given(what: str, kind: type, options: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields of ``kind`` that the options name, with their values parsed, and always those for stores."""
    stores = {
        f"{_option(each.name)}.".lower(): each.name for each in fields(kind) if each.name in _STORES
    }
    names = {
        _option(each.name).lower(): each.name for each in fields(kind) if each.name not in _STORES
    }
    settings, types = settings_of(kind), {each.name: str(each.type) for each in fields(kind)}
    given: dict[str, Any] = {name: {} for name in stores.values()}
    problems = []
    for option, text in options.items():
        lower = option.lower()
        if lower in SPARKS_OWN:
            continue
        store = next(
            (prefix for prefix in stores if lower.startswith(prefix) and lower != prefix), None
        )
        if store is not None:
            given[stores[store]][lower.removeprefix(store)] = text
        elif lower not in names:
            problems.append(f"unknown option {option!r}; {_suggest(option, kind)}")
        else:
            name = names[lower]
            try:
                is_number = "int" in types[name] and re.fullmatch("-?[0-9]{1,18}", text.strip())
                given[name] = settings[name].parse(int(text) if is_number else text)
            except ValueError as problem:
                problems.append(f"option {_option(name)}: {problem}")
    if problems:
        raise OptionError("\n".join(f"wan {what}: {problem}" for problem in problems))
    return given


def _suggest(option: str, kind: type) -> str:
    valid = [_option(each.name) + ".*" * (each.name in _STORES) for each in fields(kind)]
    suggestion, known = nearest(option, valid), f"known: {', '.join(sorted(valid))}"
    return known if suggestion == known else f"{suggestion} {known}"


def _require(what: str, given: Mapping[str, Any], *names: str) -> None:
    missing = [_option(name) for name in names if name not in given]
    if missing:
        instead = (
            "" if "config" in given else " (or config, the topology file, with what it asks for)"
        )
        raise OptionError(f"wan {what}: missing option {', '.join(missing)}; set it{instead}")


def _option(field_name: str) -> str:
    first, *rest = field_name.split("_")
    return first + "".join(word.capitalize() for word in rest)
