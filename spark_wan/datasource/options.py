"""The options of the ``wan`` sink and the ``wan`` source.

An option is written in camelCase (``batchSize``) and is the field of the same name here
(``batch_size``). Spark passes names in lower case, so case does not matter. With ``config``, the
topology file supplies what the options omit; an option always wins. ``storage.<name>`` passes
through to the object store.

>>> by_config = {"config": "conf/minimal.yaml", "sender": "east", "table": "flights"}
>>> options = SinkOptions.parse({**by_config, "eventId": "id"})
>>> options.stream, options.remotes, options.batch_size
('newark.east.flights', ('seattle',), 10000)
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any, Literal

from spark_wan.errors import OptionError, nearest
from spark_wan.log.trust import Keys, StreamTrust
from spark_wan.topology.ack_policy import AckPolicy
from spark_wan.topology.fingerprint import settings_fingerprint
from spark_wan.topology.model import QueueLimits, Sender, Site, stream_name
from spark_wan.topology.parsing import load_topology
from spark_wan.topology.settings import required, setting, settings_of, shared, store_options
from spark_wan.topology.signing import keys_of
from spark_wan.topology.values import (
    OnAckTimeout,
    OnQueueLimit,
    parse_channel,
    parse_each,
    parse_name,
    parse_text,
)
from spark_wan.units import parse_bytes, parse_count
from spark_wan.wire.signature import KeyReference, Signer

SPARK_OPTIONS = frozenset({"checkpointlocation", "path", "queryname"})
"""What Spark passes to every sink and source."""

DEFAULT_SENDER = "sink"
"""In the name of the stream of a sink without a sender, and the name of its channel."""
CONFIG_HELP = "Topology file, which supplies what the options omit."

StartingOffsets = Literal["earliest", "latest"] | dict[str, int]


def _split(
    value: object, parse: Callable[[object], str], same: Callable[[str], str] = str
) -> tuple[str, ...]:
    valid, invalid = parse_each((part.strip() for part in str(value).split(",")), parse, same)
    if invalid:
        raise ValueError("; ".join(f"[{index}] {problem}" for index, problem in invalid))
    return valid


def _parse_channel(value: object) -> str:
    return parse_channel(value, os.getcwd())


def _parse_names(value: object) -> tuple[str, ...]:
    return _split(value, parse_name)


def _parse_columns(value: object) -> tuple[str, ...]:
    return _split(value, parse_text, str.lower) if str(value).strip() else ()


def _parse_starting_offsets(value: object) -> StartingOffsets:
    text = str(value)
    if text == "earliest" or text == "latest":
        return text  # type: ignore[return-value]
    try:
        epochs = json.loads(text, object_pairs_hook=_without_repeats)
    except json.JSONDecodeError:
        epochs = None
    if not isinstance(epochs, dict) or not epochs:
        raise ValueError(f'must be earliest, latest or JSON such as {{"stream": 1}}, not {text!r}')
    return {stream: parse_count(epoch) for stream, epoch in epochs.items()}


def _without_repeats(pairs: list[tuple[str, object]]) -> dict[str, object]:
    _, invalid = parse_each((name for name, _ in pairs), parse_name)
    if invalid:
        raise ValueError(invalid[0][1])
    return dict(pairs)


@dataclass(frozen=True)
class SinkOptions:
    """Options of ``df.writeStream.format("wan")``, and of ``df.write`` inside foreachBatch.

    Required: ``eventId``, and either ``config``, ``sender`` and ``table``, or ``channel``,
    ``site``, ``remotes``, ``table`` and ``key``.
    """

    channel: str = required(_parse_channel, "Directory or URL of the channel.")
    site: str = required(parse_name, "Site where the events come from.")
    remotes: tuple[str, ...] = required(_parse_names, "Sites that the events go to, with commas.")
    table: str = required(parse_name, "Table whose rows these are.")
    key: tuple[str, ...] = required(
        _parse_columns, "Key columns, with commas; '' for a keyless table."
    )
    event_id: str = required(parse_text, "Column that identifies an event forever.")
    stream: str = required(
        parse_name, "Name of the stream; default: <site>.<sender or 'sink'>.<table>."
    )
    config: str | None = setting(None, parse_text, CONFIG_HELP)
    sender: str | None = setting(
        None, parse_name, "Sender in the topology file, or a name for the stream."
    )
    operation: str | None = setting(
        None, parse_text, "Column with create, put or destroy; default: all rows are puts."
    )
    sequence: str | None = setting(
        None,
        parse_text,
        "Column that orders the events of a key; default: a key occurs once per epoch.",
    )
    event_time: str | None = setting(
        None,
        parse_text,
        "Timestamp column by which event IDs expire; default: they do not. Do not remove it later:"
        " without it, expired IDs count as new.",
    )
    batch_size: int = shared(Sender, "batch_size")
    batch_bytes: int = shared(Sender, "batch_bytes")
    max_frame_bytes: int = shared(Sender, "max_frame_bytes")
    channel_id: str | None = shared(Sender, "channel_id")
    signing_keys: tuple[KeyReference, ...] = shared(Site, "signing_keys")
    max_rows: int = setting(
        10_000_000,
        parse_count,
        "Maximum number of rows in an epoch, a micro-batch or a write; more are refused. The"
        " driver holds 16 to 32 bytes of each.",
    )
    ack_policy: AckPolicy = shared(Sender, "ack_policy")
    ack_timeout: float = shared(Sender, "ack_timeout")
    on_ack_timeout: OnAckTimeout = shared(Sender, "on_ack_timeout")
    block_on_ack: float = shared(Sender, "block_on_ack")
    max_queue_bytes: int | None = shared(Sender, "max_queue_bytes")
    max_queue_age: float | None = shared(Sender, "max_queue_age")
    on_queue_limit: OnQueueLimit = shared(Sender, "on_queue_limit")
    query_id: str | None = setting(
        None, parse_text, "With batchId: identifies a batch write inside foreachBatch."
    )
    batch_id: int | None = setting(None, partial(parse_count, minimum=0), "See queryId.")
    state: str | None = setting(
        None,
        _parse_channel,
        "Where the sink keeps its checkpoint of the stream; default: the state of the site in"
        " config, else the query's checkpointLocation.",
    )
    former_remotes: tuple[str, ...] | None = setting(
        (),
        _parse_names,
        "Sites that are no longer served, with commas; with the remotes of config: all others.",
    )
    new_log: tuple[str, ...] = setting(
        (), _parse_names, "IDs of lost logs, with commas, which a new log may replace."
    )
    storage: Mapping[str, str] = store_options()  # storage.*: for the channel
    state_storage: Mapping[str, str] = store_options()  # stateStorage.*: for `state`
    settings: str = ""  # no option: the fingerprint of the stream's settings in `config`
    never_primary: frozenset[str] = frozenset()  # no option: sites with priority 0 in `config`
    ack_keys: Mapping[str, Keys] = field(default_factory=dict)  # no option: of sites in `config`

    @property
    def queue_limits(self) -> QueueLimits:
        """How much of the stream may wait in the channel."""
        return QueueLimits(self.max_queue_bytes, self.max_queue_age, self.on_queue_limit)

    @property
    def trust(self) -> StreamTrust:
        """What the sink signs, and which acks have to be signed."""
        if not self.signing_keys:
            return StreamTrust(ack_keys=self.ack_keys)
        name = self.channel_id or self.sender or DEFAULT_SENDER
        return StreamTrust(Signer(self.site, name, self.signing_keys), ack_keys=self.ack_keys)

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> SinkOptions:
        """Return the options from what Spark passes.

        Raises OptionError for an option that is unknown, missing or invalid, TopologyError for an
        invalid topology file, and for a sender or table that it does not name.
        """
        values = _parse_options("sink", cls, options)
        if "config" in values:
            _require("sink", values, "sender", "table")
            values = _add_topology(values)
        _require("sink", values, "channel", "site", "remotes", "table", "key", "event_id")
        if ("query_id" in values) != ("batch_id" in values):
            raise OptionError("wan sink: queryId and batchId go together; give both or neither")
        if values["site"] in values["remotes"]:
            raise OptionError(
                f"wan sink: site {values['site']!r} is among its own remotes; "
                "take it out of one of them"
            )
        default = stream_name(values["site"], values.get("sender", DEFAULT_SENDER), values["table"])
        parsed = cls(**{"stream": default, **values})
        problem = parsed.ack_policy.problem(parsed.remotes, parsed.site, parsed.never_primary)
        if problem is not None:
            raise OptionError(f"wan sink: option ackPolicy: {problem}")
        if parsed.on_queue_limit == "drop_reader":
            raise OptionError(
                "wan sink: option onQueueLimit is drop_reader: a site that is dropped would have "
                "no source table to copy the events from; set it to block or hold"
            )
        if parsed.on_queue_limit != "block" and not parsed.queue_limits.exist:
            raise OptionError(
                f"wan sink: option onQueueLimit is {parsed.on_queue_limit}, but nothing limits the "
                "queue; set maxQueueBytes or maxQueueAge, or take it out"
            )
        return parsed


@dataclass(frozen=True)
class SourceOptions:
    """Options of ``spark.readStream.format("wan")``.

    Required: ``config``, ``site`` and ``sender``, or ``channel``.
    """

    channel: str = required(_parse_channel, "Directory or URL of the channel.")
    config: str | None = setting(None, parse_text, CONFIG_HELP)
    site: str | None = setting(None, parse_name, "Site that reads, one of the sender's remotes.")
    sender: str | None = setting(
        None, parse_name, "Sender in the topology file whose channel is read."
    )
    streams: tuple[str, ...] | None = setting(
        None, _parse_names, "Names of streams, with commas; default: all."
    )
    starting_offsets: StartingOffsets = setting(
        "earliest", _parse_starting_offsets, 'earliest, latest, or {"stream": first epoch to read}.'
    )
    max_bytes_per_trigger: int | None = setting(
        None,
        parse_bytes,
        "Maximum size of a micro-batch: bytes, or 8MiB, 500kB; default: no limit.",
    )
    max_epochs_per_trigger: int | None = setting(
        None, parse_count, "Maximum number of epochs in a micro-batch; default: no limit."
    )
    storage: Mapping[str, str] = store_options()  # storage.*: for the channel

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> SourceOptions:
        """Return the options from what Spark passes.

        Raises OptionError for an option that is unknown, missing or invalid, TopologyError for an
        invalid topology file, and for a sender or site that it does not name.
        """
        values = _parse_options("source", cls, options)
        if "config" in values:
            _require("source", values, "sender", "site")
            topology = load_topology(values["config"])
            sender, site = topology.sender(values["sender"]), topology.site(values["site"])
            if site.name not in sender.remotes:
                raise OptionError(
                    f"wan source: sender {sender.name!r} does not serve site {site.name!r}; "
                    f"it serves {', '.join(sender.remotes)}"
                )
            storage = {**sender.storage, **values["storage"]}
            values = {"channel": sender.channel, **values, "storage": storage}
        elif "sender" in values:
            _require("source", values, "config")
        _require("source", values, "channel")
        starts, streams = values.get("starting_offsets"), values.get("streams")
        if isinstance(starts, dict) and streams is not None:
            for stream in starts.keys() - set(streams):
                raise OptionError(
                    f"wan source: startingOffsets: unknown stream {stream!r}; "
                    f"{nearest(stream, streams)}"
                )
        return cls(**values)


def _add_topology(values: dict[str, Any]) -> dict[str, Any]:
    """Return the sink's options with those of the topology where ``values`` has none."""
    topology = load_topology(values["config"])
    sender, table = topology.sender(values["sender"]), topology.table(values["table"])
    if sender.name not in table.senders:
        raise OptionError(
            f"wan sink: table {table.name!r} is not attached to sender {sender.name!r}; attach it "
            f"in {topology.file}, or use one of its senders: {', '.join(table.senders) or 'none'}"
        )
    names = [field.name for field in fields(SinkOptions) if hasattr(sender, field.name)]
    defaults = {name: getattr(sender, name) for name in names} | {"key": table.keys}
    limits = QueueLimits.of(sender, table)
    defaults["max_queue_bytes"], defaults["max_queue_age"] = limits.bytes, limits.age
    defaults["on_queue_limit"] = limits.policy if limits.exist else "block"
    defaults["settings"] = settings_fingerprint(topology, sender, table)
    defaults["never_primary"] = topology.never_primary
    defaults["signing_keys"] = topology.site(sender.site).signing_keys
    defaults["ack_keys"] = keys_of(topology)
    if "remotes" not in values:
        defaults["former_remotes"] = None
    if "state" not in values:
        site = topology.site(sender.site)
        defaults["state"] = site.state
        values["state_storage"] = {**site.storage, **values["state_storage"]}
    return {**defaults, **values, "storage": {**sender.storage, **values["storage"]}}


def _parse_options(what: str, kind: type, options: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields of ``kind`` that the options set, parsed, and always those for stores."""
    settings = {_option_name(name).lower(): each for name, each in settings_of(kind).items()}
    stores = {f"{_option_name(name)}.".lower(): name for name in _store_fields(kind)}
    values: dict[str, Any] = {name: {} for name in stores.values()}
    problems = []
    for option, text in options.items():
        name = option.lower()
        prefix = next((each for each in stores if name.startswith(each) and name != each), None)
        if prefix is not None:
            values[stores[prefix]][name.removeprefix(prefix)] = text
        elif name.startswith("kafka."):  # as users of Spark's own Kafka source write them
            values["storage"][name] = text
        elif name in settings:
            try:
                values[settings[name].name] = settings[name].parse_text(text)
            except ValueError as problem:
                problems.append(f"option {_option_name(settings[name].name)}: {problem}")
        elif name not in SPARK_OPTIONS:
            problems.append(f"unknown option {option!r}; {_suggest(option, kind)}")
    if problems:
        raise OptionError("\n".join(f"wan {what}: {problem}" for problem in problems))
    return values


def _store_fields(kind: type) -> list[str]:
    """Return the fields that collect all options with their prefix."""
    return [field.name for field in fields(kind) if "store" in field.metadata]


def _suggest(option: str, kind: type) -> str:
    valid = [_option_name(name) for name in settings_of(kind)]
    valid += [f"{_option_name(name)}.*" for name in _store_fields(kind)]
    suggestion, known = nearest(option, valid), f"known: {', '.join(sorted(valid))}"
    return known if suggestion == known else f"{suggestion} {known}"


def _require(what: str, values: Mapping[str, Any], *names: str) -> None:
    missing = [_option_name(name) for name in names if name not in values]
    if missing:
        config = "" if "config" in values else " (or config, the topology file, and what it needs)"
        raise OptionError(f"wan {what}: missing option {', '.join(missing)}; set it{config}")


def _option_name(field: str) -> str:
    first, *rest = field.split("_")
    return first + "".join(word.capitalize() for word in rest)
