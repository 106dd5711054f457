"""Options of a channel on Kafka: those of Kafka's own clients, by their names, with ``kafka.``.

They are what Spark's Kafka source takes, too. Here they are turned into those of kafka-python.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spark_wan.errors import ChannelError, nearest
from spark_wan.units import parse_count

DOCUMENT = "docs/kafka.md"
_URL = re.compile(r"kafka://([^/]*)/([A-Za-z0-9._-]+)/?")
_HOST = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):(\d{1,5})")
REQUEST_TIMEOUT = 30_000
"""Milliseconds that a request may take, unless the options say otherwise."""
LONGEST_PREFIX = 249 - len(".frames")
"""Kafka's topics have names of up to 249 characters."""


class Secret(str):
    """A text that shows in no ``repr``: kafka-python logs its settings."""

    def __repr__(self) -> str:
        return "'…'"


@dataclass(frozen=True)
class ClusterOptions:
    """How to reach the brokers, and how to make topics."""

    servers: tuple[str, ...]
    """``host:port`` of some brokers."""
    prefix: str
    client: Mapping[str, Any]
    """Settings of kafka-python."""
    producer: Mapping[str, Any]
    """More of its settings, for producers."""
    partitions: int | None
    """Number of partitions with which the topic of frames is made; None: the default."""
    replication: int | None
    """Replicas of a topic that is made; None: 3, or as many as there are brokers."""


def parse_options(url: str, storage: Mapping[str, str], resolve: bool = True) -> ClusterOptions:
    """Return the options of the channel at a URL.

    ``resolve=False`` reads no file and no environment variable: for a check elsewhere.

    Raises ChannelError for a URL or an option that cannot be used, and names the nearest option.
    The message quotes no secret.
    """
    options = dict(storage)
    try:
        match = _URL.fullmatch(url)
        if match is None:
            raise ValueError(
                "the URL is kafka://<host>:<port>,<host>:<port>/<prefix of the topics>; the prefix "
                "has letters, digits, dots, dashes and underscores"
            )
        prefix = match[2]
        if len(prefix) > LONGEST_PREFIX:
            raise ValueError(f"the prefix is longer than {LONGEST_PREFIX} characters")
        servers = _servers(match[1], options.pop("kafka.bootstrap.servers", ""))
        partitions = options.pop("topics.partitions", None)
        replication = options.pop("topics.replication", None)
        client: dict[str, Any] = {}
        producer: dict[str, Any] = {}
        for name, value in options.items():
            _check_known(name)
            if not resolve and (name.endswith(".location") or _REFERENCE.search(str(value))):
                continue
            text = _resolved(name, str(value))
            try:
                (producer if name in _OF_PRODUCER else client).update(_OPTIONS[name](text))
            except ValueError as error:
                raise ValueError(f"option {name}: {error}") from None
        _check_together(options)
        if "request_timeout_ms" in client or "kafka.request.timeout.ms" not in options:
            _check_timeouts(client, producer)
        return ClusterOptions(
            servers,
            prefix,
            client=client,
            producer=producer,
            partitions=None if partitions is None else _count("topics.partitions", partitions),
            replication=None if replication is None else _count("topics.replication", replication),
        )
    except ValueError as error:
        raise ChannelError(f"channel {url}: cannot be opened: {error}. See {DOCUMENT}.") from None


def _count(name: str, text: object) -> int:
    try:
        return _whole(str(text))
    except ValueError as error:
        raise ValueError(f"option {name}: {error}") from None


def _whole(text: str) -> int:
    """Return a whole number of at least 1."""
    return parse_count(int(text) if re.fullmatch(r"\d{1,18}", text) else text)


def _servers(of_url: str, of_option: str) -> tuple[str, ...]:
    """Return the brokers that the URL names, or else the option."""
    if of_url and of_option and of_url != of_option:
        raise ValueError(
            "its URL and kafka.bootstrap.servers name different brokers; write kafka:///<prefix>, "
            "or leave out the option"
        )
    servers = tuple(filter(None, (each.strip() for each in (of_url or of_option).split(","))))
    if not servers:
        raise ValueError(
            "it names no broker; write kafka://<host>:<port>/<prefix>, or set "
            "kafka.bootstrap.servers"
        )
    for server in servers:
        match = _HOST.fullmatch(server)
        if match is None or not 0 < int(match[1]) < 65_536:
            raise ValueError(f"{server!r} is no broker; write <host>:<port>")
    return servers


def _check_known(name: str) -> None:
    if name in _OPTIONS:
        return
    if name in _REFUSED:
        raise ValueError(f"option {name}: {_REFUSED[name]}")
    if not name.startswith("kafka.") and f"kafka.{name}" in _OPTIONS:
        raise ValueError(f"unknown option {name!r}; write kafka.{name}")
    known = {*_OPTIONS, "kafka.bootstrap.servers", "topics.partitions", "topics.replication"}
    raise ValueError(f"unknown option {name!r}; {nearest(name, known)}")


def _check_timeouts(client: Mapping[str, Any], producer: Mapping[str, Any]) -> None:
    request = client.get("request_timeout_ms", REQUEST_TIMEOUT)
    if producer.get("delivery_timeout_ms", request) < request:
        raise ValueError(
            f"kafka.delivery.timeout.ms is less than kafka.request.timeout.ms ({request}): no "
            "write could be tried"
        )


def _check_together(options: Mapping[str, str]) -> None:
    protocol = options.get("kafka.security.protocol", "PLAINTEXT")
    secure = [name for name in options if name.startswith("kafka.ssl.")]
    if secure and "SSL" not in protocol:
        raise ValueError(
            f"{secure[0]} is set, but kafka.security.protocol is {protocol}; set it to SSL or "
            "SASL_SSL"
        )
    login = "kafka.sasl.jaas.config" in options
    if login != protocol.startswith("SASL"):
        raise ValueError(
            f"kafka.security.protocol is {protocol}, "
            + ("but kafka.sasl.jaas.config is set" if login else "so set kafka.sasl.jaas.config")
        )
    if protocol.startswith("SASL") and "kafka.sasl.mechanism" not in options:
        raise ValueError(f"set kafka.sasl.mechanism to one of {', '.join(_MECHANISMS)}")
    if ("kafka.ssl.keystore.certificate.chain" in options) != ("kafka.ssl.keystore.key" in options):
        raise ValueError(
            "kafka.ssl.keystore.certificate.chain and kafka.ssl.keystore.key go together"
        )


_REFERENCE = re.compile(r"\$\{(env|file):([^}]+)\}")


def _resolved(name: str, text: str) -> str:
    """Return an option's value with what ``${env:NAME}`` and ``${file:/path}`` stand for."""

    def value(match: re.Match[str]) -> str:
        kind, of = match.groups()
        if kind == "env":
            if of not in os.environ:
                raise ValueError(f"option {name}: the environment variable {of} is not set")
            return os.environ[of]
        try:
            return Path(of).read_text().rstrip("\n")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not text"
            raise ValueError(f"option {name}: the file {of} cannot be read: {reason}") from None

    return _REFERENCE.sub(value, text)


# --- each option ---------------------------------------------------------------------------------

_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MECHANISMS = {
    "PLAIN": "PlainLoginModule",
    "SCRAM-SHA-256": "ScramLoginModule",
    "SCRAM-SHA-512": "ScramLoginModule",
}
_JAAS = re.compile(
    r"\s*org\.apache\.kafka\.common\.security\.(?:plain|scram)\.(Plain|Scram)LoginModule\s+required"
    r"((?:\s+\w+\s*=\s*\"(?:[^\"\\]|\\.)*\")*)\s*;?\s*",
    re.DOTALL,
)
_JAAS_FIELD = re.compile(r"(\w+)\s*=\s*\"((?:[^\"\\]|\\.)*)\"", re.DOTALL)


def _one_of(setting: str, *known: str) -> Callable[[str], dict[str, Any]]:
    def parse(text: str) -> dict[str, Any]:
        if text not in known:
            raise ValueError(f"{text!r} is none of {', '.join(known)}")
        return {setting: text}

    return parse


def _milliseconds(setting: str) -> Callable[[str], dict[str, Any]]:
    return lambda text: {setting: _whole(text)}


def _login(text: str) -> dict[str, Any]:
    match = _JAAS.fullmatch(text)
    fields = dict(_JAAS_FIELD.findall(match[2])) if match is not None else {}
    if sorted(fields) != ["password", "username"]:
        raise ValueError(
            "it is to be org.apache.kafka.common.security.scram.ScramLoginModule required "
            'username="…" password="…"; (or plain.PlainLoginModule)'
        )
    return {
        "sasl_plain_username": _unescaped(fields["username"]),
        "sasl_plain_password": Secret(_unescaped(fields["password"])),
    }


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text, flags=re.DOTALL)


def _pem_file(setting: str) -> Callable[[str], dict[str, Any]]:
    def parse(text: str) -> dict[str, Any]:
        try:
            content = Path(text).read_bytes()
        except OSError as error:
            raise ValueError(f"the file {text} cannot be read: {error.strerror}") from None
        if b"-----BEGIN " not in content:
            raise ValueError(
                f"the file {text} is not PEM. Convert a Java key store with keytool "
                "(-importkeystore to PKCS12) and openssl pkcs12"
            )
        return {setting: text}

    return parse


def _key_store(text: str) -> dict[str, Any]:
    return {"ssl_certfile": _pem_file("file")(text)["file"], "ssl_keyfile": text}


def _only_pem(text: str) -> dict[str, Any]:
    if text != "PEM":
        raise ValueError(f"{text!r} cannot be read without Java; convert it to PEM, and write PEM")
    return {}


def _host_names(text: str) -> dict[str, Any]:
    if text not in ("https", ""):
        raise ValueError(f"{text!r} is none of 'https' (check host names) and '' (do not)")
    return {"ssl_check_hostname": text == "https"}


def _secret(setting: str) -> Callable[[str], dict[str, Any]]:
    return lambda text: {setting: Secret(text)}


_OPTIONS: dict[str, Callable[[str], dict[str, Any]]] = {
    "kafka.security.protocol": _one_of("security_protocol", *_PROTOCOLS),
    "kafka.sasl.mechanism": _one_of("sasl_mechanism", *_MECHANISMS),
    "kafka.sasl.jaas.config": _login,
    "kafka.ssl.truststore.location": _pem_file("ssl_cafile"),
    "kafka.ssl.truststore.type": _only_pem,
    "kafka.ssl.truststore.certificates": lambda text: {"ca_text": text},
    "kafka.ssl.keystore.location": _key_store,
    "kafka.ssl.keystore.type": _only_pem,
    "kafka.ssl.keystore.certificate.chain": lambda text: {"chain_text": text},
    "kafka.ssl.keystore.key": _secret("key_text"),
    "kafka.ssl.key.password": _secret("ssl_password"),
    "kafka.ssl.endpoint.identification.algorithm": _host_names,
    "kafka.client.id": lambda text: {"client_id": text},
    "kafka.request.timeout.ms": _milliseconds("request_timeout_ms"),
    "kafka.delivery.timeout.ms": _milliseconds("delivery_timeout_ms"),
    "kafka.metadata.max.age.ms": _milliseconds("metadata_max_age_ms"),
    "kafka.connections.max.idle.ms": _milliseconds("connections_max_idle_ms"),
    "kafka.reconnect.backoff.ms": _milliseconds("reconnect_backoff_ms"),
    "kafka.reconnect.backoff.max.ms": _milliseconds("reconnect_backoff_max_ms"),
    "kafka.retry.backoff.ms": _milliseconds("retry_backoff_ms"),
}
"""Option -> its settings of kafka-python. The settings ``ca_text``, ``chain_text`` and ``key_text``
are ours: PEM in place of files."""
_OF_PRODUCER = frozenset({"kafka.delivery.timeout.ms"})

_SET = "spark_wan sets it; leave it out"
_REFUSED = {
    **dict.fromkeys(
        (
            "kafka.acks",
            "kafka.auto.offset.reset",
            "kafka.batch.size",
            "kafka.compression.type",
            "kafka.enable.auto.commit",
            "kafka.enable.idempotence",
            "kafka.group.id",
            "kafka.isolation.level",
            "kafka.key.deserializer",
            "kafka.key.serializer",
            "kafka.linger.ms",
            "kafka.max.in.flight.requests.per.connection",
            "kafka.max.request.size",
            "kafka.partitioner.class",
            "kafka.retries",
            "kafka.transactional.id",
            "kafka.value.deserializer",
            "kafka.value.serializer",
        ),
        _SET,
    ),
    "kafka.ssl.truststore.password": "a PEM file has no password; leave it out",
    "kafka.ssl.keystore.password": "for PEM it is kafka.ssl.key.password",
    "kafka.ssl.protocol": "the newest version that both sides know is used; leave it out",
    "kafka.sasl.kerberos.service.name": "Kerberos is not supported; use SCRAM or certificates",
    "kafka.sasl.login.callback.handler.class": "it needs Java; use SCRAM or certificates",
    "kafka.sasl.client.callback.handler.class": "it needs Java; use SCRAM or certificates",
}
